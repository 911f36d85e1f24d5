//! Open vSwitch of a simulated machine: rows of its database, its two daemons, and its ports in the kernel.

mod apply;
mod ports;
mod rows;

pub(super) use apply::DEADLINE as APPLY_DEADLINE;
pub use ports::SimPortColumns;

use std::collections::{BTreeMap, BTreeSet};

use vfleet_plan::cni::facts::OvsSwitchMirror;
use vfleet_plan::{OvsBridgeFacts, OvsDatabase, OvsFacts};

use super::kernel::Kernel;
use super::machine::MachineOvs;
use crate::HostError;

/// Socket of the database.
pub const OVS_SOCKET: &str = "/var/run/openvswitch/db.sock";
/// Types of datapaths without DPDK.
const DATAPATH_TYPES: [&str; 2] = ["netdev", "system"];
/// Key of `other_config` for hardware offload.
const OFFLOAD: &str = "hw-offload";

/// Open vSwitch of a simulated machine. Tests may change the fields directly.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct SimOvs {
    /// Open vSwitch is installed.
    pub is_installed: bool,
    /// ovsdb-server runs.
    pub has_server: bool,
    /// ovsdb-server accepts connections and does not answer.
    pub is_unanswering: bool,
    /// ovs-vswitchd runs.
    pub has_switch: bool,
    /// Error with which the server refuses all transactions.
    pub refusal: Option<String>,
    /// Types of datapaths that ovs-vswitchd can create. Without the kernel module, `system` is not one of them.
    pub datapath_types: BTreeSet<String>,
    /// Types of interfaces that ovs-vswitchd supports.
    pub interface_types: BTreeSet<String>,
    /// Column other_config of the table Open_vSwitch.
    pub other_config: BTreeMap<String, String>,
    /// Number of the latest configuration.
    pub next_cfg: i64,
    /// Number of the configuration that ovs-vswitchd applied.
    pub cur_cfg: i64,
    /// Rows of the table Bridge with those of their ports and interfaces, sorted by name.
    pub bridges: Vec<OvsBridgeFacts>,
    /// Columns of ports that only attachments set, by name of the port.
    pub columns: BTreeMap<String, SimPortColumns>,
    /// Mirrors by the names of their bridges and their own.
    pub mirrors: BTreeMap<(String, String), OvsSwitchMirror>,
    /// ovs-vswitchd uses the datapath in the kernel.
    pub(super) has_datapath: bool,
    /// Interfaces that are ports of the datapath in the kernel, which works without the daemons.
    pub(super) kernel_ports: BTreeSet<String>,
    /// Interfaces that ovs-vswitchd created: internal ports.
    pub(super) internal_links: BTreeSet<String>,
    /// Number of created rows, for their UUIDs.
    created_rows: u64,
    seed: String,
}

impl SimOvs {
    /// Returns Open vSwitch with the described bridges of other programs, not started yet.
    pub(super) fn new(machine: &MachineOvs, seed: &str) -> Self {
        let offload = machine.offload.then(|| (OFFLOAD.to_owned(), "true".to_owned()));
        let mut ovs = Self {
            is_installed: machine.installed,
            has_server: false,
            is_unanswering: false,
            has_switch: false,
            refusal: None,
            datapath_types: DATAPATH_TYPES.map(str::to_owned).into(),
            interface_types: machine.interface_types.clone(),
            other_config: offload.into_iter().collect(),
            next_cfg: 0,
            cur_cfg: 0,
            bridges: Vec::new(),
            columns: BTreeMap::new(),
            mirrors: BTreeMap::new(),
            has_datapath: false,
            kernel_ports: BTreeSet::new(),
            internal_links: BTreeSet::new(),
            created_rows: 0,
            seed: seed.to_owned(),
        };
        for bridge in &machine.bridges {
            ovs.add_bridge(&bridge.name);
            for port in &bridge.ports {
                // Ports with a name that is taken are left out, as ovs-vsctl does.
                let _ = ovs.add_port(&bridge.name, port, "");
            }
        }
        ovs
    }

    /// Starts a machine: the datapath of the last boot is gone.
    pub(super) fn start(&mut self, is_running: bool) {
        self.has_server = self.is_installed && is_running;
        self.has_switch = self.has_server;
        self.is_unanswering = false;
        self.forget_results();
        self.has_datapath = false;
        self.kernel_ports.clear();
        self.internal_links.clear();
    }

    /// Returns the bridge with this name.
    pub fn bridge(&self, name: &str) -> Option<&OvsBridgeFacts> {
        self.bridges.iter().find(|bridge| bridge.name == name)
    }

    /// Returns the bridge with this name, to change its rows.
    pub fn bridge_mut(&mut self, name: &str) -> Option<&mut OvsBridgeFacts> {
        self.bridges.iter_mut().find(|bridge| bridge.name == name)
    }

    /// Removes the ports of earlier bridges from the kernel if ovs-vswitchd runs and left them, as an administrator does
    /// with `ovs-dpctl del-dp`. ovs-vswitchd leaves them if it starts without a bridge in the kernel.
    pub fn remove_stale_datapath(&mut self) {
        if self.has_switch && !self.has_datapath {
            let ports = self.bridges.iter().flat_map(|bridge| &bridge.ports);
            let names: BTreeSet<&String> = ports.map(|port| &port.name).collect();
            self.internal_links.retain(|link| names.contains(link));
            self.kernel_ports.clear();
        }
    }

    /// Forgets the columns that ovsdb-server does not store on disk.
    fn forget_results(&mut self) {
        self.bridges.iter_mut().for_each(|bridge| bridge.lacks_datapath = true);
    }

    /// Returns the content of the database as facts.
    fn database(&self) -> OvsDatabase {
        let is_behind = self.cur_cfg < self.next_cfg;
        let mut bridges = self.bridges.clone();
        for bridge in &mut bridges {
            bridge.lacks_datapath &= !is_behind;
        }
        OvsDatabase { has_offload: self.has_offload(), is_behind, bridges }
    }

    /// Returns whether hardware offload is requested.
    pub fn has_offload(&self) -> bool {
        self.other_config.get(OFFLOAD).is_some_and(|value| value == "true")
    }

    /// Requests hardware offload.
    pub(super) fn set_offload(&mut self) {
        self.other_config.insert(OFFLOAD.to_owned(), "true".to_owned());
    }

    /// Fails if the database cannot be reached.
    pub(super) fn check_server(&self, attempt: &str) -> Result<(), HostError> {
        let (attempt, socket) = (attempt.to_owned(), OVS_SOCKET.to_owned());
        if !self.has_server || !self.is_installed {
            return Err(HostError::OvsNotRunning { attempt, socket });
        }
        if self.is_unanswering {
            return Err(HostError::OvsTimeout { attempt, socket, after: apply::DEADLINE });
        }
        Ok(())
    }

    fn facts(&self) -> OvsFacts {
        match self.check_server("read the database of Open vSwitch") {
            Ok(()) => OvsFacts::Database(self.database()),
            Err(HostError::OvsNotRunning { socket, .. }) => OvsFacts::NotRunning { socket },
            Err(error) => OvsFacts::Unreadable { error: error.to_string(), reason: error.reason() },
        }
    }
}

impl Kernel {
    /// Returns the facts of Open vSwitch.
    pub(super) fn ovs_facts(&self) -> OvsFacts {
        self.ovs.facts()
    }

    /// Returns whether the interface is a port of Open vSwitch in the kernel.
    pub(super) fn is_kernel_port_of_ovs(&self, interface: &str) -> bool {
        self.ovs.kernel_ports.contains(interface)
    }
}
