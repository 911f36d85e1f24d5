//! Software bridges of a node: one for each PF whose winning policy requests one.

use vfleet_api::SriovNetworkNodePolicySpec;
use vfleet_api::bridge::{
    Bridges, LinuxBridgeConfig, LinuxBridgeConfigExt, LinuxBridgeUplinkConfigExt, OvsConfig, OvsConfigExt,
    OvsInterfaceConfig, OvsUplinkConfigExt,
};
use vfleet_api::node_state::InterfaceExt;

use super::NodeInput;
use crate::prelude::*;

/// Bridges collected from the PFs of a node.
pub(super) struct BridgeCollector<'a> {
    /// Current bridges of the node; `None` while bridges are not managed.
    current: Option<&'a Bridges>,
    ovs: Vec<OvsConfigExt>,
    linux: Vec<LinuxBridgeConfigExt>,
}

impl<'a> BridgeCollector<'a> {
    /// Creates an empty collection.
    pub(super) fn new(node: &NodeInput<'a>) -> Self {
        let current = node.current.bridges.as_ref().filter(|_| node.manage_software_bridges);
        Self { current, ovs: Vec::new(), linux: Vec::new() }
    }

    /// Adds the bridge that the policy requests for `card`.
    pub(super) fn add(&mut self, spec: &SriovNetworkNodePolicySpec, card: &InterfaceExt) {
        let Some(bridge) = &spec.bridge else { return };
        self.ovs.extend(bridge.ovs.as_ref().map(|config| build_ovs(config, spec.mtu, card)));
        self.linux.extend(bridge.linux.as_ref().map(|config| build_linux(config, card)));
    }

    /// Adds the current bridge of `card`.
    pub(super) fn keep(&mut self, card: &InterfaceExt) {
        let Some(current) = self.current else { return };
        let has_card = |address: &vfleet_api::Parsed<_>| address.value() == card.pci_address.value();
        let ovs = current.ovs.iter().flatten();
        let ovs = ovs.filter(|bridge| bridge.uplinks.iter().flatten().any(|up| has_card(&up.pci_address)));
        self.ovs.extend(ovs.cloned());
        let linux = current.linux.iter().flatten();
        let linux =
            linux.filter(|bridge| bridge.uplinks.iter().flatten().any(|up| has_card(&up.pci_address)));
        self.linux.extend(linux.cloned());
    }

    /// Returns all bridges sorted by name; `None` if there are none.
    pub(super) fn into_sorted(mut self) -> Option<Bridges> {
        self.ovs.sort_by(|a, b| a.name.cmp(&b.name));
        self.linux.sort_by(|a, b| a.name.cmp(&b.name));
        let ovs = Some(self.ovs).filter(|list| !list.is_empty());
        let linux = Some(self.linux).filter(|list| !list.is_empty());
        (ovs.is_some() || linux.is_some()).then_some(Bridges { ovs, linux })
    }
}

/// Builds an Open vSwitch bridge. Absent parts are written as empty ones, as the Go operator does, so that a take-over
/// changes nothing.
fn build_ovs(config: &OvsConfig, mtu: Option<i64>, card: &InterfaceExt) -> OvsConfigExt {
    let interface = config.uplink.as_ref().and_then(|uplink| uplink.interface.clone()).unwrap_or_default();
    let mtu_request = mtu.filter(|mtu| *mtu > 0).or(interface.mtu_request);
    OvsConfigExt {
        name: bridge_name(card.pci_address.text()),
        bridge: Some(config.bridge.clone().unwrap_or_default()),
        uplinks: Some(vec![OvsUplinkConfigExt {
            pci_address: card.pci_address.clone(),
            name: card.name.clone(),
            interface: Some(OvsInterfaceConfig { mtu_request, ..interface }),
        }]),
        conditions: None,
    }
}

fn build_linux(config: &LinuxBridgeConfig, card: &InterfaceExt) -> LinuxBridgeConfigExt {
    LinuxBridgeConfigExt {
        name: bridge_name(card.pci_address.text()),
        bridge: Some(config.bridge.clone().unwrap_or_default()),
        uplinks: Some(vec![LinuxBridgeUplinkConfigExt {
            pci_address: card.pci_address.clone(),
            name: card.name.clone(),
            uplink: config.uplink.clone(),
        }]),
        conditions: None,
    }
}

/// Returns the name of the bridge of the PF at `address`: `br-` and the address with `_` instead of `:`. A longer PCI
/// domain than usual would exceed the maximum length of an interface name; the name then has no separators.
pub(crate) fn bridge_name(address: &str) -> String {
    const MAX_LENGTH: usize = 15;
    let name = format!("br-{}", address.replace(':', "_"));
    if name.len() <= MAX_LENGTH {
        return name;
    }
    let digits: String = address.chars().filter(char::is_ascii_alphanumeric).collect();
    let name = format!("br{digits}");
    name.chars().take(MAX_LENGTH).collect()
}
