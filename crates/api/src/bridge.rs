//! Software bridges (Open vSwitch and Linux) in policies and node states.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::meta::Condition;
use crate::parsed::Parsed;
use crate::pci::PciAddress;

/// Software bridge for each selected PF. At most one of `ovs` and `linux` can be set.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "crds", schemars(extend("x-kubernetes-validations" = [{
    "rule": "!(has(self.ovs) && has(self.linux))",
    "message": "only one of bridge.ovs and bridge.linux can be set: a PF can be the uplink of one bridge only",
    "fieldPath": ".linux",
}])))]
pub struct Bridge {
    /// Open vSwitch bridge with the PF as uplink.
    pub ovs: Option<OvsConfig>,
    /// Linux bridge with the PF as uplink.
    pub linux: Option<LinuxBridgeConfig>,
}

/// Settings of an Open vSwitch bridge and of its uplink.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct OvsConfig {
    /// Settings of the bridge (OVSDB table Bridge).
    pub bridge: Option<OvsBridgeConfig>,
    /// Settings of the uplink (the PF).
    pub uplink: Option<OvsUplinkConfig>,
}

/// Columns of the OVSDB table Bridge.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct OvsBridgeConfig {
    /// Datapath type: `system` (kernel, the default) or `netdev` (userspace).
    pub datapath_type: Option<String>,
    /// Entries for the column external_ids. Other existing entries are kept.
    #[serde(rename = "externalIDs")]
    pub external_ids: Option<BTreeMap<String, String>>,
    /// Entries for the column other_config. Other existing entries are kept.
    pub other_config: Option<BTreeMap<String, String>>,
    /// Behavior while the controller of the bridge is unreachable: `secure` or `standalone`.
    pub fail_mode: Option<OvsFailMode>,
}

/// Behavior of an Open vSwitch bridge while its controller is unreachable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum OvsFailMode {
    Secure,
    Standalone,
}

/// Settings of the uplink of an Open vSwitch bridge.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct OvsUplinkConfig {
    /// Columns of the OVSDB table Interface for the PF.
    pub interface: Option<OvsInterfaceConfig>,
}

/// Columns of the OVSDB table Interface.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct OvsInterfaceConfig {
    /// Interface type, for example `dpdk`. Defaults to a system interface.
    #[serde(rename = "type")]
    pub type_: Option<String>,
    /// Entries for the column options.
    pub options: Option<BTreeMap<String, String>>,
    /// Entries for the column external_ids.
    #[serde(rename = "externalIDs")]
    pub external_ids: Option<BTreeMap<String, String>>,
    /// Entries for the column other_config.
    pub other_config: Option<BTreeMap<String, String>>,
    /// MTU to request from Open vSwitch. `mtu` of the policy takes precedence if it is set.
    pub mtu_request: Option<i64>,
}

/// Settings of a Linux bridge and of its uplink.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct LinuxBridgeConfig {
    /// Settings of the bridge.
    pub bridge: Option<LinuxBridgeSettings>,
    /// Settings of the uplink as a bridge port, with the names of the kernel.
    pub uplink: Option<BTreeMap<String, String>>,
}

/// Settings of a Linux bridge.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct LinuxBridgeSettings {
    /// Enable VLAN filtering.
    pub vlan_filtering: Option<bool>,
    /// VLAN protocol of the bridge.
    pub vlan_protocol: Option<BridgeVlanProtocol>,
}

/// VLAN protocol of a Linux bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
pub enum BridgeVlanProtocol {
    #[serde(rename = "802.1Q")]
    Ieee8021Q,
    #[serde(rename = "802.1ad")]
    Ieee8021ad,
}

impl BridgeVlanProtocol {
    /// Returns the name in the API and in iproute2.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ieee8021Q => "802.1Q",
            Self::Ieee8021ad => "802.1ad",
        }
    }
}

/// Software bridges of a node.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Bridges {
    /// Open vSwitch bridges, sorted by name.
    pub ovs: Option<Vec<OvsConfigExt>>,
    /// Linux bridges, sorted by name.
    pub linux: Option<Vec<LinuxBridgeConfigExt>>,
}

impl Bridges {
    /// Returns the bridges sorted by name; `None` if there are none.
    pub fn into_sorted(mut self) -> Option<Self> {
        self.ovs = self.ovs.filter(|bridges| !bridges.is_empty());
        self.linux = self.linux.filter(|bridges| !bridges.is_empty());
        self.ovs.iter_mut().for_each(|bridges| bridges.sort_by(|a, b| a.name.cmp(&b.name)));
        self.linux.iter_mut().for_each(|bridges| bridges.sort_by(|a, b| a.name.cmp(&b.name)));
        (self.ovs.is_some() || self.linux.is_some()).then_some(self)
    }
}

/// Open vSwitch bridge of a node.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct OvsConfigExt {
    /// Name of the bridge: `br-` and the PCI address of the PF, with `_` instead of `:`.
    pub name: String,
    /// Settings of the bridge.
    pub bridge: Option<OvsBridgeConfig>,
    /// Uplinks. Exactly one is supported.
    pub uplinks: Option<Vec<OvsUplinkConfigExt>>,
    /// Conditions of the bridge, in the status only: `Ready`.
    pub conditions: Option<Vec<Condition>>,
}

/// Uplink of an Open vSwitch bridge of a node.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct OvsUplinkConfigExt {
    /// PCI address of the PF.
    pub pci_address: Parsed<PciAddress>,
    /// Interface name of the PF.
    pub name: Option<String>,
    /// Columns of the OVSDB table Interface for the PF.
    pub interface: Option<OvsInterfaceConfig>,
}

/// Linux bridge of a node.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct LinuxBridgeConfigExt {
    /// Name of the bridge.
    pub name: String,
    /// Settings of the bridge.
    pub bridge: Option<LinuxBridgeSettings>,
    /// Uplinks. Exactly one is supported.
    pub uplinks: Option<Vec<LinuxBridgeUplinkConfigExt>>,
    /// Conditions of the bridge, in the status only: `Ready`.
    pub conditions: Option<Vec<Condition>>,
}

/// Uplink of a Linux bridge of a node.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct LinuxBridgeUplinkConfigExt {
    /// PCI address of the PF.
    pub pci_address: Parsed<PciAddress>,
    /// Interface name of the PF.
    pub name: Option<String>,
    /// Settings of the uplink as a bridge port, with the names of the kernel.
    pub uplink: Option<BTreeMap<String, String>>,
}
