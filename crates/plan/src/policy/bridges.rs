//! Software bridges of a node: one for each PF whose winning policy requests one.

use vfleet_api::SriovNetworkNodePolicySpec;
use vfleet_api::bridge::{
    Bridge, BridgeVlanProtocol, Bridges, LinuxBridgeConfig, LinuxBridgeConfigExt, LinuxBridgeSettings,
    LinuxBridgeUplinkConfigExt, OvsBridgeConfig, OvsConfig, OvsConfigExt, OvsInterfaceConfig,
    OvsUplinkConfig, OvsUplinkConfigExt,
};
use vfleet_api::node_state::InterfaceExt;

use super::NodeInput;
use crate::bridge_port;
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
    pub(super) fn into_sorted(self) -> Option<Bridges> {
        Bridges { ovs: Some(self.ovs), linux: Some(self.linux) }.into_sorted()
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

/// Returns whether two policies request the same bridge, however they spell its settings.
pub(super) fn have_same_bridge(one: &SriovNetworkNodePolicySpec, other: &SriovNetworkNodePolicySpec) -> bool {
    normalize(one) == normalize(other)
}

/// Returns the requested bridge with default values in place of absent ones. `mtu` of the policy replaces `mtuRequest`
/// and is no setting of the bridge: the PF gets the highest one of all policies.
fn normalize(spec: &SriovNetworkNodePolicySpec) -> Bridge {
    let bridge = spec.bridge.clone().unwrap_or_default();
    let has_mtu = spec.mtu.is_some_and(|mtu| mtu > 0);
    Bridge {
        ovs: bridge.ovs.map(|config| normalize_ovs(config, has_mtu)),
        linux: bridge.linux.map(normalize_linux),
    }
}

fn normalize_ovs(config: OvsConfig, has_mtu: bool) -> OvsConfig {
    let or_empty = |map: Option<BTreeMap<String, String>>| map.or_else(|| Some(BTreeMap::new()));
    let or_system = |kind: Option<String>| kind.filter(|kind| !kind.is_empty()).or(Some("system".to_owned()));
    let bridge = config.bridge.unwrap_or_default();
    let interface = config.uplink.and_then(|uplink| uplink.interface).unwrap_or_default();
    let bridge = OvsBridgeConfig {
        datapath_type: or_system(bridge.datapath_type),
        external_ids: or_empty(bridge.external_ids),
        other_config: or_empty(bridge.other_config),
        fail_mode: bridge.fail_mode,
    };
    let interface = OvsInterfaceConfig {
        type_: or_system(interface.type_),
        options: or_empty(interface.options),
        external_ids: or_empty(interface.external_ids),
        other_config: or_empty(interface.other_config),
        mtu_request: interface.mtu_request.filter(|mtu| *mtu != 0 && !has_mtu),
    };
    OvsConfig { bridge: Some(bridge), uplink: Some(OvsUplinkConfig { interface: Some(interface) }) }
}

fn normalize_linux(config: LinuxBridgeConfig) -> LinuxBridgeConfig {
    let bridge = config.bridge.unwrap_or_default();
    let bridge = LinuxBridgeSettings {
        vlan_filtering: bridge.vlan_filtering.or(Some(false)),
        vlan_protocol: bridge.vlan_protocol.or(Some(BridgeVlanProtocol::Ieee8021Q)),
    };
    let uplink = config.uplink.unwrap_or_default().into_iter().map(|(name, value)| {
        let value = bridge_port::normalize(&name, &value).unwrap_or(value);
        (name, value)
    });
    LinuxBridgeConfig { bridge: Some(bridge), uplink: Some(uplink.collect()) }
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
