//! The software bridges of a node: one for each PF whose winning policy wants one.

use vfleet_api::SriovNetworkNodePolicySpec;
use vfleet_api::bridge::{
    Bridges, LinuxBridgeConfig, LinuxBridgeConfigExt, LinuxBridgeUplinkConfigExt, OvsConfig, OvsConfigExt,
    OvsInterfaceConfig, OvsUplinkConfigExt,
};
use vfleet_api::node_state::InterfaceExt;

use super::NodeInput;
use crate::prelude::*;

/// Bridges, as the PFs of a node are looked at one by one.
pub(super) struct Collected<'a> {
    /// What the node has until now; nothing while bridges are not managed.
    current: Option<&'a Bridges>,
    ovs: Vec<OvsConfigExt>,
    linux: Vec<LinuxBridgeConfigExt>,
}

impl<'a> Collected<'a> {
    /// None yet.
    pub(super) fn new(node: &NodeInput<'a>) -> Self {
        let current = node.current.bridges.as_ref().filter(|_| node.manage_software_bridges);
        Self { current, ovs: Vec::new(), linux: Vec::new() }
    }

    /// The bridge that this policy wants for `card`.
    pub(super) fn add(&mut self, spec: &SriovNetworkNodePolicySpec, card: &InterfaceExt) {
        let Some(bridge) = &spec.bridge else { return };
        self.ovs.extend(bridge.ovs.as_ref().map(|config| ovs(config, spec.mtu, card)));
        self.linux.extend(bridge.linux.as_ref().map(|config| linux(config, card)));
    }

    /// The bridge that `card` has until now.
    pub(super) fn keep(&mut self, card: &InterfaceExt) {
        let Some(current) = self.current else { return };
        let has_card = |address: &vfleet_api::Written<_>| address.value() == card.pci_address.value();
        let ovs = current.ovs.iter().flatten();
        let ovs = ovs.filter(|bridge| bridge.uplinks.iter().flatten().any(|up| has_card(&up.pci_address)));
        self.ovs.extend(ovs.cloned());
        let linux = current.linux.iter().flatten();
        let linux =
            linux.filter(|bridge| bridge.uplinks.iter().flatten().any(|up| has_card(&up.pci_address)));
        self.linux.extend(linux.cloned());
    }

    /// All of them, sorted by name; `None` of none.
    pub(super) fn by_name(mut self) -> Option<Bridges> {
        self.ovs.sort_by(|a, b| a.name.cmp(&b.name));
        self.linux.sort_by(|a, b| a.name.cmp(&b.name));
        let ovs = Some(self.ovs).filter(|list| !list.is_empty());
        let linux = Some(self.linux).filter(|list| !list.is_empty());
        (ovs.is_some() || linux.is_some()).then_some(Bridges { ovs, linux })
    }
}

/// Parts that are not given are written as empty ones, as the Go operator does: a take-over changes nothing.
fn ovs(config: &OvsConfig, mtu: Option<i64>, card: &InterfaceExt) -> OvsConfigExt {
    let interface = config.uplink.as_ref().and_then(|uplink| uplink.interface.clone()).unwrap_or_default();
    let mtu_request = mtu.filter(|mtu| *mtu > 0).or(interface.mtu_request);
    OvsConfigExt {
        name: name(card),
        bridge: Some(config.bridge.clone().unwrap_or_default()),
        uplinks: Some(vec![OvsUplinkConfigExt {
            pci_address: card.pci_address.clone(),
            name: card.name.clone(),
            interface: Some(OvsInterfaceConfig { mtu_request, ..interface }),
        }]),
    }
}

fn linux(config: &LinuxBridgeConfig, card: &InterfaceExt) -> LinuxBridgeConfigExt {
    LinuxBridgeConfigExt {
        name: name(card),
        bridge: Some(config.bridge.clone().unwrap_or_default()),
        uplinks: Some(vec![LinuxBridgeUplinkConfigExt {
            pci_address: card.pci_address.clone(),
            name: card.name.clone(),
            uplink: config.uplink.clone(),
        }]),
    }
}

fn name(card: &InterfaceExt) -> String {
    format!("br-{}", card.pci_address.text().replace(':', "_"))
}
