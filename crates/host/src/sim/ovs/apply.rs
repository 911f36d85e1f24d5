//! ovs-vswitchd: it applies the rows to the kernel, and reports errors of interfaces.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use vfleet_plan::{OvsBridgeFacts, OvsInterfaceFacts, OvsPortFacts};

use super::super::kernel::Kernel;

/// Time that a real host waits for the daemons.
pub(in crate::sim) const DEADLINE: Duration = Duration::from_secs(10);
const INTERNAL: &str = "internal";

impl Kernel {
    /// Lets ovs-vswitchd apply the rows, if it runs. It also follows changes of interfaces.
    pub(in crate::sim) fn run_switch(&mut self) {
        self.ovs.forget_removed_ports();
        if !self.ovs.has_server {
            self.ovs.forget_results();
        }
        if !self.ovs.is_installed || !self.ovs.has_switch {
            self.ovs.has_datapath = false;
            return;
        }
        if !self.ovs.has_server {
            return;
        }
        let before = (self.ovs.bridges.clone(), self.ovs.kernel_ports.clone(), self.ovs.cur_cfg);
        let errors = self.apply_rows();
        for interface in self.ovs.bridges.iter_mut().flat_map(interfaces_mut) {
            interface.error = errors.get(&interface.name).cloned();
        }
        self.apply_mtu_requests();
        let types = &self.ovs.datapath_types;
        // A bridge whose type is changed to an unknown one keeps the ID of its former datapath.
        for bridge in self.ovs.bridges.iter_mut().filter(|bridge| types.contains(datapath_type(bridge))) {
            bridge.lacks_datapath = false;
        }
        self.ovs.cur_cfg = self.ovs.next_cfg;
        if before != (self.ovs.bridges.clone(), self.ovs.kernel_ports.clone(), self.ovs.cur_cfg) {
            self.event_count += 1;
        }
    }

    /// Creates internal ports, and makes interfaces ports of the kernel's datapath. Returns the errors of interfaces.
    fn apply_rows(&mut self) -> BTreeMap<String, String> {
        let mut errors = BTreeMap::new();
        let (mut ports, mut internal) = (BTreeSet::new(), BTreeSet::new());
        let types = &self.ovs.datapath_types;
        let created = self.ovs.bridges.iter().filter(|bridge| types.contains(datapath_type(bridge)));
        let rows: Vec<(bool, OvsInterfaceFacts)> = created.flat_map(interfaces_of).collect();
        let has_kernel_bridge = rows.iter().any(|(is_kernel_datapath, _)| *is_kernel_datapath);
        for (is_kernel_datapath, interface) in rows {
            let name = interface.name.clone();
            if let Some(error) = self.find_interface_error(&interface) {
                errors.insert(name, error);
                continue;
            }
            match interface.type_.as_str() {
                INTERNAL => drop(internal.insert(name)),
                "" | "system" if is_kernel_datapath => drop(ports.insert(name)),
                _ => {}
            }
        }
        if has_kernel_bridge || self.ovs.has_datapath {
            self.ovs.kernel_ports = ports;
            self.ovs.internal_links = internal;
        } else {
            // It opens the datapath for its first bridge, and removes ports of earlier bridges only then.
            self.ovs.internal_links.extend(internal);
        }
        self.ovs.has_datapath = has_kernel_bridge;
        errors
    }

    fn find_interface_error(&self, interface: &OvsInterfaceFacts) -> Option<String> {
        let name = &interface.name;
        let type_ = if interface.type_.is_empty() { "system" } else { &interface.type_ };
        let open = |cause: &str| Some(format!("could not open network device {name} ({cause})"));
        if !self.ovs.interface_types.contains(type_) {
            return open("Address family not supported by protocol");
        }
        let is_own_link = self.ovs.internal_links.contains(name);
        match type_ {
            INTERNAL if self.has_interface(name) && !is_own_link => {
                Some(format!("could not add network device {name} to ofproto (File exists)"))
            }
            "system" if !self.has_interface(name) || is_own_link => open("No such device"),
            "system" if self.has_other_master(name) => {
                Some(format!("could not add network device {name} to ofproto (Device or resource busy)"))
            }
            _ => None,
        }
    }

    fn has_other_master(&self, interface: &str) -> bool {
        self.master_of(interface).is_some_and(|master| master.kind != "openvswitch")
    }

    /// Sets the MTU of interfaces with `mtu_request`, if they support it.
    fn apply_mtu_requests(&mut self) {
        let requests: Vec<(String, u32)> = self
            .ovs
            .bridges
            .iter()
            .flat_map(interfaces_of)
            .filter(|(_, interface)| interface.error.is_none())
            .filter_map(|(_, interface)| Some((interface.name, interface.mtu_request?.try_into().ok()?)))
            .collect();
        for (name, mtu) in requests {
            let pf = |kernel: &Self| {
                let mut pfs = kernel.pfs.iter();
                pfs.find(|pf| pf.link.as_ref().is_some_and(|link| link.name == name && link.mtu != mtu))
                    .map(|pf| pf.address)
            };
            if let Some(pf) = pf(self) {
                // ovs-vswitchd only logs a refusal.
                let _ = self.set_pf_mtu(pf, mtu);
            }
        }
    }
}

/// Returns the type of the datapath of a bridge.
pub(super) fn datapath_type(bridge: &OvsBridgeFacts) -> &str {
    if bridge.datapath_type.is_empty() { "system" } else { &bridge.datapath_type }
}

/// Returns the interfaces of a bridge, each with whether the bridge is in the kernel.
fn interfaces_of(bridge: &OvsBridgeFacts) -> Vec<(bool, OvsInterfaceFacts)> {
    let is_kernel_datapath = datapath_type(bridge) == "system";
    let interfaces = bridge.ports.iter().flat_map(|port: &OvsPortFacts| &port.interfaces);
    interfaces.map(|interface| (is_kernel_datapath, interface.clone())).collect()
}

fn interfaces_mut(bridge: &mut OvsBridgeFacts) -> impl Iterator<Item = &mut OvsInterfaceFacts> {
    bridge.ports.iter_mut().flat_map(|port| &mut port.interfaces)
}
