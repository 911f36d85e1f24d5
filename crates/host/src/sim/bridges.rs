//! Linux bridges of a simulated machine, and the facts of all software bridges.

use std::collections::BTreeMap;

use vfleet_api::bridge::BridgeVlanProtocol;
use vfleet_plan::cni::facts::BridgeVlan;
use vfleet_plan::{BridgeFacts, LinuxBridgeFacts, LinuxPortFacts, Master, bridge_port};

use super::devices::SimLink;
use super::kernel::Kernel;

/// MTU of a new bridge, and of one without ports.
const DEFAULT_MTU: u32 = 1500;
/// Setting of a port: its spanning tree state.
pub(super) const STATE: &str = "state";
/// States of a port.
const DISABLED: &str = "disabled";
pub(super) const FORWARDING: &str = "forwarding";

/// Linux bridge of a simulated machine.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a setting of its own")]
pub struct SimBridge {
    /// Name.
    pub name: String,
    /// Alias.
    pub alias: Option<String>,
    /// Device group.
    pub group: u32,
    /// VLAN filtering is enabled.
    pub vlan_filtering: bool,
    /// VLAN protocol.
    pub vlan_protocol: BridgeVlanProtocol,
    /// MTU.
    pub mtu: u32,
    /// Somebody set the MTU. Before that it follows the lowest MTU of the ports.
    pub mtu_is_set: bool,
    /// Administrative state.
    pub up: bool,
    /// `accept_ra`: the kernel gives the bridge addresses from IPv6 router advertisements.
    pub accepts_ra: bool,
    /// Ports with their settings, by names of bridge(8).
    pub ports: BTreeMap<String, BTreeMap<String, String>>,
    /// VLANs of ports, by their IDs.
    pub vlans: BTreeMap<String, BTreeMap<u16, BridgeVlan>>,
}

impl SimBridge {
    /// Returns a new bridge.
    pub fn new(name: &str, group: u32) -> Self {
        Self {
            name: name.to_owned(),
            alias: None,
            group,
            vlan_filtering: false,
            vlan_protocol: BridgeVlanProtocol::Ieee8021Q,
            mtu: DEFAULT_MTU,
            mtu_is_set: false,
            up: false,
            accepts_ra: true,
            ports: BTreeMap::new(),
            vlans: BTreeMap::new(),
        }
    }

    /// Removes a port. Returns its settings and VLANs; `None` if the bridge does not have it.
    fn take_port(&mut self, port: &str) -> Option<(BTreeMap<String, String>, BTreeMap<u16, BridgeVlan>)> {
        let vlans = self.vlans.remove(port).unwrap_or_default();
        Some((self.ports.remove(port)?, vlans))
    }

    /// Returns the facts of the bridge.
    pub fn facts(&self) -> LinuxBridgeFacts {
        let to_port = |(name, settings): (&String, &_)| LinuxPortFacts {
            name: name.clone(),
            settings: BTreeMap::clone(settings),
        };
        LinuxBridgeFacts {
            name: self.name.clone(),
            alias: self.alias.clone(),
            group: self.group,
            vlan_filtering: self.vlan_filtering,
            vlan_protocol: Some(self.vlan_protocol),
            mtu: self.mtu,
            admin_up: self.up,
            accepts_ra: self.accepts_ra,
            ports: self.ports.iter().map(to_port).collect(),
        }
    }
}

/// Returns the settings of a new port, the defaults of the kernel.
pub(super) fn default_port_settings(speed: Option<u32>, is_forwarding: bool) -> BTreeMap<String, String> {
    let default = |name: &str| Some((name.to_owned(), bridge_port::default_value(name, speed)?));
    let mut settings: BTreeMap<_, _> = bridge_port::NAMES.into_iter().filter_map(default).collect();
    if !is_forwarding {
        settings.insert(STATE.to_owned(), DISABLED.to_owned());
    }
    settings
}

/// Reads the software bridges. Open vSwitch is not asked unless `reads_ovs`.
pub(super) fn read_facts(kernel: &Kernel, reads_ovs: bool) -> BridgeFacts {
    let ovs = if reads_ovs { kernel.ovs_facts() } else { vfleet_plan::OvsFacts::NotRead };
    BridgeFacts { ovs, linux: kernel.bridges.iter().map(SimBridge::facts).collect() }
}

impl Kernel {
    /// Returns the Linux bridge with this name.
    pub fn bridge(&self, name: &str) -> Option<&SimBridge> {
        self.bridges.iter().find(|bridge| bridge.name == name)
    }

    /// Returns the Linux bridge with this name, to change it without the rules of a kernel.
    pub fn bridge_mut(&mut self, name: &str) -> Option<&mut SimBridge> {
        self.bridges.iter_mut().find(|bridge| bridge.name == name)
    }

    /// Returns the interface that the interface with this name is a port or member of.
    pub fn master_of(&self, interface: &str) -> Option<Master> {
        let to_master = |name: &str, kind: &str| Master { name: name.to_owned(), kind: kind.to_owned() };
        let bond = self.link(interface).and_then(|link| link.master.clone());
        let bridge = || self.bridges.iter().find(|bridge| bridge.ports.contains_key(interface));
        let is_ovs_port = || self.is_kernel_port_of_ovs(interface);
        bond.or_else(|| bridge().map(|bridge| to_master(&bridge.name, "bridge")))
            .or_else(|| is_ovs_port().then(|| to_master("ovs-system", "openvswitch")))
    }

    /// Returns the interface of a card or VF with this name in the network namespace of the host.
    pub(super) fn link(&self, name: &str) -> Option<&SimLink> {
        let of_vfs = |pf: &super::devices::SimPf| {
            pf.vfs.iter().position(|vf| {
                vf.namespace.is_none() && vf.link.as_ref().is_some_and(|link| link.name == name)
            })
        };
        self.pfs.iter().find_map(|pf| {
            let own = pf.link.as_ref().filter(|link| link.name == name);
            own.or_else(|| pf.vfs.get(of_vfs(pf)?)?.link.as_ref())
        })
    }

    /// Returns whether there is an interface with this name.
    pub fn has_interface(&self, name: &str) -> bool {
        let is_representor = || {
            let mut vfs = self.pfs.iter().flat_map(|pf| &pf.vfs);
            vfs.any(|vf| vf.representor.as_deref() == Some(name))
        };
        self.link(name).is_some()
            || self.bridge(name).is_some()
            || self.other_links.contains(name)
            || self.veths.contains_key(name)
            || self.ovs.internal_links.contains(name)
            || is_representor()
    }

    /// Returns whether the interface with this name is up. Representors and interfaces that belong to no card always are.
    pub(super) fn is_up(&self, interface: &str) -> bool {
        self.link(interface).is_none_or(|link| link.up)
    }

    /// Removes ports whose interfaces vanished from all Linux bridges. Rows of Open vSwitch stay.
    pub(super) fn remove_bridge_ports(&mut self, interfaces: &[String]) {
        for bridge in &mut self.bridges {
            for interface in interfaces {
                bridge.take_port(interface);
            }
        }
        self.ovs.kernel_ports.retain(|port| !interfaces.contains(port));
    }

    /// Renames a port of a Linux bridge, or removes it if its interface vanished.
    pub(super) fn rename_bridge_port(&mut self, before: &str, after: Option<&str>) {
        for bridge in &mut self.bridges {
            if let Some((settings, vlans)) = bridge.take_port(before)
                && let Some(after) = after
            {
                bridge.ports.insert(after.to_owned(), settings);
                bridge.vlans.insert(after.to_owned(), vlans);
            }
        }
        if self.ovs.kernel_ports.remove(before) {
            self.ovs.kernel_ports.extend(after.map(str::to_owned));
        }
    }

    /// Sets the state of the port, or of the ports of the bridge, with the name of an interface that went up or down:
    /// `forwarding` if both are up.
    pub(super) fn update_port_states(&mut self, interface: &str) {
        let is_changed = |bridge: &SimBridge, port: &str| bridge.name == interface || port == interface;
        let up: Vec<(usize, String, bool)> = (0..)
            .zip(&self.bridges)
            .flat_map(|(at, bridge)| bridge.ports.keys().map(move |port| (at, bridge, port)))
            .filter(|(_, bridge, port)| is_changed(bridge, port))
            .map(|(at, bridge, port)| (at, port.clone(), bridge.up && self.is_up(port)))
            .collect();
        for (at, port, is_up) in up {
            let Some(state) = self.bridges[at].ports.get_mut(&port).and_then(|port| port.get_mut(STATE))
            else {
                continue;
            };
            match (is_up, state.as_str()) {
                (true, DISABLED) => FORWARDING.clone_into(state),
                (false, _) => DISABLED.clone_into(state),
                (true, _) => {}
            }
        }
    }

    /// Lets the MTU of bridges follow the lowest MTU of their ports, unless somebody set it.
    pub(super) fn update_bridge_mtus(&mut self) {
        let lowest = |bridge: &SimBridge| {
            let mtus = bridge.ports.keys().map(|port| self.link(port).map_or(DEFAULT_MTU, |link| link.mtu));
            mtus.min().unwrap_or(DEFAULT_MTU)
        };
        let mtus: Vec<u32> = self
            .bridges
            .iter()
            .map(|bridge| if bridge.mtu_is_set { bridge.mtu } else { lowest(bridge) })
            .collect();
        for (bridge, mtu) in self.bridges.iter_mut().zip(mtus) {
            bridge.mtu = mtu;
        }
    }

    /// Removes the bridges of the last boot and creates those that other programs create at each boot. The rows of Open
    /// vSwitch are on a disk.
    pub(super) fn start_bridges(&mut self) {
        self.other_links.clear();
        self.bridges.clear();
        self.ovs.start(self.machine.open_vswitch.running);
        let described = self.machine.linux_bridges.clone();
        let ovs_ports = self.machine.open_vswitch.bridges.iter().flat_map(|bridge| &bridge.ports);
        let ports = described.iter().flat_map(|bridge| &bridge.ports).chain(ovs_ports);
        let ports: Vec<String> = ports.filter(|port| !self.has_interface(port)).cloned().collect();
        self.other_links.extend(ports);
        for bridge in described {
            // Cannot fail: the names are different.
            let _ = self.create_bridge(&bridge.name, 0);
            let _ = self.set_bridge_up(&bridge.name, true);
            for port in &bridge.ports {
                let _ = self.add_bridge_port(&bridge.name, port);
            }
        }
        self.run_switch();
    }
}
