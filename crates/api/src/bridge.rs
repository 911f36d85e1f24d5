//! Software bridges: what a policy asks for, and what a node state lists. Open vSwitch and Linux.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::pci::PciAddress;
use crate::written::Written;

/// The software bridge that a policy wants for each selected PF. At most one of `ovs` and `linux`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "crds", schemars(extend("x-kubernetes-validations" = [{
    "rule": "!(has(self.ovs) && has(self.linux))",
    "message": "only one of bridge.ovs and bridge.linux can be set: a PF is the uplink of one bridge",
    "fieldPath": ".linux",
}])))]
pub struct Bridge {
    /// An Open vSwitch bridge with the PF as uplink.
    pub ovs: Option<OvsConfig>,
    /// A Linux bridge with the PF as uplink.
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
    /// Settings of the uplink, the PF.
    pub uplink: Option<OvsUplinkConfig>,
}

/// Columns of the OVSDB table Bridge.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct OvsBridgeConfig {
    /// Datapath type: `system` (kernel) when empty, or `netdev`.
    pub datapath_type: Option<String>,
    /// Pairs for the column external_ids. Other pairs that are found there are left alone.
    #[serde(rename = "externalIDs")]
    pub external_ids: Option<BTreeMap<String, String>>,
    /// Pairs for the column other_config. Other pairs that are found there are left alone.
    pub other_config: Option<BTreeMap<String, String>>,
    /// What the bridge does while its controller is away.
    pub fail_mode: Option<OvsFailMode>,
}

/// What an Open vSwitch bridge does while its controller is away.
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
    /// Interface type, for example `dpdk`; a system interface when empty.
    #[serde(rename = "type")]
    pub type_: Option<String>,
    /// Pairs for the column options.
    pub options: Option<BTreeMap<String, String>>,
    /// Pairs for the column external_ids.
    #[serde(rename = "externalIDs")]
    pub external_ids: Option<BTreeMap<String, String>>,
    /// Pairs for the column other_config.
    pub other_config: Option<BTreeMap<String, String>>,
    /// The MTU to ask Open vSwitch for. The policy's `mtu` wins when it is set.
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
    /// Settings of the uplink as a bridge port, by the kernel's names.
    pub uplink: Option<BTreeMap<String, String>>,
}

/// Settings of a Linux bridge.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct LinuxBridgeSettings {
    /// Whether the bridge looks at VLAN tags.
    pub vlan_filtering: Option<bool>,
    /// The VLAN protocol of the bridge.
    pub vlan_protocol: Option<BridgeVlanProtocol>,
}

/// The VLAN protocol of a Linux bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
pub enum BridgeVlanProtocol {
    #[serde(rename = "802.1Q")]
    Ieee8021Q,
    #[serde(rename = "802.1ad")]
    Ieee8021ad,
}

/// The software bridges of a node.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Bridges {
    /// Open vSwitch bridges, by name.
    pub ovs: Option<Vec<OvsConfigExt>>,
    /// Linux bridges, by name.
    pub linux: Option<Vec<LinuxBridgeConfigExt>>,
}

/// An Open vSwitch bridge of a node.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct OvsConfigExt {
    /// Name of the bridge: `br-` and the PF's PCI address with `_` for `:`.
    pub name: String,
    /// Settings of the bridge.
    pub bridge: Option<OvsBridgeConfig>,
    /// Uplinks; exactly one is supported.
    pub uplinks: Option<Vec<OvsUplinkConfigExt>>,
}

/// The uplink of an Open vSwitch bridge of a node.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct OvsUplinkConfigExt {
    /// PCI address of the PF.
    pub pci_address: Written<PciAddress>,
    /// Name of the PF's interface.
    pub name: Option<String>,
    /// Columns of the OVSDB table Interface for the PF.
    pub interface: Option<OvsInterfaceConfig>,
}

/// A Linux bridge of a node.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct LinuxBridgeConfigExt {
    /// Name of the bridge.
    pub name: String,
    /// Settings of the bridge.
    pub bridge: Option<LinuxBridgeSettings>,
    /// Uplinks; exactly one is supported.
    pub uplinks: Option<Vec<LinuxBridgeUplinkConfigExt>>,
}

/// The uplink of a Linux bridge of a node.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct LinuxBridgeUplinkConfigExt {
    /// PCI address of the PF.
    pub pci_address: Written<PciAddress>,
    /// Name of the PF's interface.
    pub name: Option<String>,
    /// Settings of the uplink as a bridge port, by the kernel's names.
    pub uplink: Option<BTreeMap<String, String>>,
}
