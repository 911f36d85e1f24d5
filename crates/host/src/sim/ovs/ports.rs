//! Ports and mirrors of attachments in the Open vSwitch of a simulated machine.

use std::collections::{BTreeMap, BTreeSet};

use vfleet_plan::cni::facts::{
    HolderNamespace, NAMESPACE_KEY, OvsSwitchBridge, OvsSwitchInterface, OvsSwitchMirror, OvsSwitchPort,
};
use vfleet_plan::cni::step::{OvsPort, OvsVlans};
use vfleet_plan::{OvsBridgeFacts, OvsInterfaceFacts, OvsPortFacts};

use super::SimOvs;
use super::apply::datapath_type;
use crate::sim::kernel::Kernel;
use crate::sim::namespaces::NamespacePath;

/// OpenFlow port number of an interface that ovs-vswitchd could not add.
const NO_PORT: i64 = -1;

/// Columns of a port and of its interface that only attachments set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SimPortColumns {
    /// Column vlan_mode.
    pub vlan_mode: Option<String>,
    /// Column tag.
    pub tag: Option<u16>,
    /// Column trunks.
    pub trunks: BTreeSet<u16>,
    /// Column ofport_request of the interface.
    pub ofport_request: Option<u32>,
}

impl SimPortColumns {
    fn of(port: &OvsPort) -> Self {
        let (tag, trunks) = match &port.vlans {
            OvsVlans::Access(tag) => (Some(*tag), BTreeSet::new()),
            OvsVlans::Trunk(trunks) => (None, trunks.clone()),
        };
        let vlan_mode = Some(port.vlans.mode().to_owned());
        Self { vlan_mode, tag, trunks, ofport_request: port.ofport_request }
    }
}

impl SimOvs {
    /// Returns the port with this name, and its bridge.
    pub fn port(&self, name: &str) -> Option<(&OvsBridgeFacts, &OvsPortFacts)> {
        let find = |bridge: &'_ OvsBridgeFacts| bridge.ports.iter().position(|port| port.name == name);
        self.bridges.iter().find_map(|bridge| Some((bridge, bridge.ports.get(find(bridge)?)?)))
    }

    /// Returns whether a port with another name has an interface with this one.
    pub(in crate::sim) fn is_in_bond(&self, interface: &str) -> bool {
        let ports = self.bridges.iter().flat_map(|bridge| &bridge.ports);
        let mut others = ports.filter(|port| port.name != interface);
        others.any(|port| port.interfaces.iter().any(|found| found.name == interface))
    }

    /// Sets the columns of a port of an attachment.
    pub(in crate::sim) fn set_port(&mut self, port: &OvsPort) {
        self.columns.insert(port.name.clone(), SimPortColumns::of(port));
        let ports = self.bridges.iter_mut().flat_map(|bridge| &mut bridge.ports);
        for found in ports.filter(|found| found.name == port.name) {
            found.external_ids.clone_from(&port.external_ids);
            for interface in &mut found.interfaces {
                interface.type_ = port.interface_type.clone().unwrap_or_default();
                interface.external_ids.clone_from(&port.interface_ids);
            }
        }
        self.next_cfg += 1;
    }

    /// Returns whether a port has the settings of an attachment.
    pub(in crate::sim) fn has_port(&self, port: &OvsPort) -> bool {
        let interface = self.port(&port.name).and_then(|(_, found)| found.interfaces.first());
        self.columns.get(&port.name) == Some(&SimPortColumns::of(port))
            && interface.is_some_and(|interface| {
                interface.type_ == port.interface_type.as_deref().unwrap_or_default()
                    && interface.external_ids == port.interface_ids
            })
    }

    /// Removes what refers to ports and bridges that do not exist any more, as the database does.
    pub(in crate::sim) fn forget_removed_ports(&mut self) {
        let bridges = &self.bridges;
        let exists =
            |name: &String| bridges.iter().any(|bridge| bridge.ports.iter().any(|port| port.name == *name));
        self.columns.retain(|name, _| exists(name));
        self.mirrors.retain(|(bridge, _), _| bridges.iter().any(|found| found.name == *bridge));
        for mirror in self.mirrors.values_mut() {
            mirror.sources.retain(exists);
            mirror.destinations.retain(exists);
            mirror.output = mirror.output.take().filter(exists);
        }
    }
}

impl Kernel {
    /// Returns the bridges of Open vSwitch as attachments see them.
    pub(in crate::sim) fn ovs_switch_bridges(&self) -> Vec<OvsSwitchBridge> {
        let ovs = &self.ovs;
        let of_bridge = |bridge: &OvsBridgeFacts| OvsSwitchBridge {
            name: bridge.name.clone(),
            ports: bridge.ports.iter().map(|port| self.ovs_switch_port(bridge, port)).collect(),
            mirrors: mirrors_of(&ovs.mirrors, &bridge.name),
        };
        ovs.bridges.iter().map(of_bridge).collect()
    }

    fn ovs_switch_port(&self, bridge: &OvsBridgeFacts, port: &OvsPortFacts) -> OvsSwitchPort {
        let columns = self.ovs.columns.get(&port.name).cloned().unwrap_or_default();
        let interfaces = port.interfaces.iter().map(|interface| self.ovs_switch_interface(bridge, interface));
        let interfaces: Vec<_> = interfaces.collect();
        let has_error = interfaces.iter().any(|interface| interface.error.is_some());
        let path = port.external_ids.get(NAMESPACE_KEY).filter(|_| has_error);
        OvsSwitchPort {
            name: port.name.clone(),
            external_ids: port.external_ids.clone(),
            vlan_mode: columns.vlan_mode,
            tag: columns.tag,
            trunks: columns.trunks,
            interfaces,
            namespace: path.map(|path| self.namespace_state(path)),
        }
    }

    fn ovs_switch_interface(
        &self,
        bridge: &OvsBridgeFacts,
        interface: &OvsInterfaceFacts,
    ) -> OvsSwitchInterface {
        let is_applied = self.ovs.cur_cfg >= self.ovs.next_cfg && !bridge.lacks_datapath;
        let ofport = match &interface.error {
            Some(_) => Some(NO_PORT),
            None => is_applied.then_some(1),
        };
        let state = if self.has_link(&interface.name) { "up" } else { "down" };
        OvsSwitchInterface {
            name: interface.name.clone(),
            type_: interface.type_.clone(),
            ofport,
            error: interface.error.clone(),
            link_state: (ofport == Some(1)).then(|| state.to_owned()),
        }
    }

    /// Returns whether the interface with this name has a carrier, as Open vSwitch reports it.
    pub(in crate::sim) fn has_link(&self, name: &str) -> bool {
        let mut vfs = self.pfs.iter().flat_map(|pf| &pf.vfs);
        if let Some(veth) = self.veths.get(name) {
            return self.has_veth_carrier(veth);
        }
        match vfs.find(|vf| vf.representor.as_deref() == Some(name)) {
            Some(vf) => vf.representor_link.up,
            None => self.is_up(name),
        }
    }

    /// Returns the state of the namespace at a path.
    pub(in crate::sim) fn namespace_state(&self, path: &str) -> HolderNamespace {
        match self.namespaces.paths.get(path) {
            None => HolderNamespace::Gone,
            Some(NamespacePath::OtherFile) => HolderNamespace::Unknown,
            Some(NamespacePath::Host | NamespacePath::Namespace(_)) => HolderNamespace::Alive,
        }
    }

    /// Returns whether ovs-vswitchd has a datapath for the bridge with this name.
    pub(in crate::sim) fn has_ovs_datapath(&self, bridge: &str) -> bool {
        let found = self.ovs.bridge(bridge);
        found.is_some_and(|found| self.ovs.datapath_types.contains(datapath_type(found)))
    }
}

fn mirrors_of(mirrors: &BTreeMap<(String, String), OvsSwitchMirror>, bridge: &str) -> Vec<OvsSwitchMirror> {
    mirrors.iter().filter(|((of, _), _)| of == bridge).map(|(_, mirror)| mirror.clone()).collect()
}
