//! The network kinds: each becomes a NetworkAttachmentDefinition that pods name.

mod words;

pub use words::{CniLogLevel, OnOff, VfLinkState, VlanProto};

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::meta::Condition;

/// A network over VFs that pods get directly.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "crds",
    derive(kube::CustomResource, schemars::JsonSchema),
    kube(
        group = "sriovnetwork.openshift.io",
        version = "v1",
        kind = "SriovNetwork",
        plural = "sriovnetworks",
        namespaced,
        derive = "PartialEq",
        derive = "Default",
        status = "NetworkStatus",
        doc = "A network over Ethernet VFs. Becomes a NetworkAttachmentDefinition of the same name for the CNI plugin sriov.",
        printcolumn(
            name = "Ready",
            type_ = "string",
            json_path = ".status.conditions[?(@.type=='Ready')].status",
            description = "Whether the NetworkAttachmentDefinition is there"
        ),
        printcolumn(
            name = "Age",
            type_ = "date",
            json_path = ".metadata.creationTimestamp",
            description = "How long ago the network was created"
        )
    )
)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "crds", schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.minTxRate) || !has(self.maxTxRate) || self.maxTxRate == 0 || self.minTxRate <= self.maxTxRate",
    "message": "minTxRate must not be above maxTxRate",
    "fieldPath": ".minTxRate",
}])))]
pub struct SriovNetworkSpec {
    /// Namespace of the NetworkAttachmentDefinition; the network's own when empty. Only for networks in the
    /// operator's namespace.
    pub network_namespace: Option<String>,
    /// Name of the resource that the VFs are taken from, without its prefix.
    pub resource_name: String,
    /// Capabilities for the CNI plugin as JSON: `{"mac": true, "ips": true}`.
    pub capabilities: Option<String>,
    /// IP address management for the CNI plugin as JSON: `{"type": "dhcp"}`.
    pub ipam: Option<String>,
    /// VLAN of the VF; 0 is none.
    #[cfg_attr(feature = "crds", schemars(range(min = 0, max = 4094)))]
    pub vlan: Option<i64>,
    /// VLAN priority of the VF.
    #[serde(rename = "vlanQoS")]
    #[cfg_attr(feature = "crds", schemars(range(min = 0, max = 7)))]
    pub vlan_qos: Option<i64>,
    /// VLAN protocol of the VF.
    pub vlan_proto: Option<VlanProto>,
    /// Whether frames with a foreign source address are dropped.
    pub spoof_chk: Option<OnOff>,
    /// Whether the VF may change what the card otherwise forbids, such as its address or promiscuous mode.
    pub trust: Option<OnOff>,
    /// Link state of the VF: that of the PF (auto), or always up or down.
    pub link_state: Option<VfLinkState>,
    /// Bandwidth that the VF is given at least, in Mbit/s.
    #[cfg_attr(feature = "crds", schemars(range(min = 0)))]
    pub min_tx_rate: Option<i64>,
    /// Bandwidth that the VF is given at most, in Mbit/s; 0 is no limit.
    #[cfg_attr(feature = "crds", schemars(range(min = 0)))]
    pub max_tx_rate: Option<i64>,
    /// CNI plugins to chain after this one: JSON objects, separated by commas.
    pub meta_plugins: Option<String>,
    /// How much the CNI plugin logs.
    #[cfg_attr(feature = "crds", schemars(extend("default" = "info")))]
    pub log_level: Option<CniLogLevel>,
    /// File that the CNI plugin logs to; standard error when empty.
    pub log_file: Option<String>,
}

/// A network over InfiniBand VFs.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "crds",
    derive(kube::CustomResource, schemars::JsonSchema),
    kube(
        group = "sriovnetwork.openshift.io",
        version = "v1",
        kind = "SriovIBNetwork",
        plural = "sriovibnetworks",
        namespaced,
        derive = "PartialEq",
        derive = "Default",
        status = "NetworkStatus",
        doc = "A network over InfiniBand VFs. Becomes a NetworkAttachmentDefinition of the same name for the CNI plugin ib-sriov.",
        printcolumn(
            name = "Ready",
            type_ = "string",
            json_path = ".status.conditions[?(@.type=='Ready')].status",
            description = "Whether the NetworkAttachmentDefinition is there"
        ),
        printcolumn(
            name = "Age",
            type_ = "date",
            json_path = ".metadata.creationTimestamp",
            description = "How long ago the network was created"
        )
    )
)]
#[serde(rename_all = "camelCase")]
pub struct SriovIBNetworkSpec {
    /// Namespace of the NetworkAttachmentDefinition; the network's own when empty. Only for networks in the
    /// operator's namespace.
    pub network_namespace: Option<String>,
    /// Name of the resource that the VFs are taken from, without its prefix.
    pub resource_name: String,
    /// Capabilities for the CNI plugin as JSON: `{"infinibandGUID": true}`.
    pub capabilities: Option<String>,
    /// IP address management for the CNI plugin as JSON: `{"type": "dhcp"}`.
    pub ipam: Option<String>,
    /// Link state of the VF: that of the PF (auto), or always up or down.
    pub link_state: Option<VfLinkState>,
    /// CNI plugins to chain after this one: JSON objects, separated by commas.
    pub meta_plugins: Option<String>,
}

/// A network over VFs whose representors are ports of an Open vSwitch bridge.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "crds",
    derive(kube::CustomResource, schemars::JsonSchema),
    kube(
        group = "sriovnetwork.openshift.io",
        version = "v1",
        kind = "OVSNetwork",
        plural = "ovsnetworks",
        namespaced,
        derive = "PartialEq",
        derive = "Default",
        status = "NetworkStatus",
        doc = "A network over VFs in switchdev mode whose representors are ports of an Open vSwitch bridge. Becomes a NetworkAttachmentDefinition of the same name for the CNI plugin ovs.",
        printcolumn(
            name = "Ready",
            type_ = "string",
            json_path = ".status.conditions[?(@.type=='Ready')].status",
            description = "Whether the NetworkAttachmentDefinition is there"
        ),
        printcolumn(
            name = "Age",
            type_ = "date",
            json_path = ".metadata.creationTimestamp",
            description = "How long ago the network was created"
        )
    )
)]
#[serde(rename_all = "camelCase")]
pub struct OVSNetworkSpec {
    /// Namespace of the NetworkAttachmentDefinition; the network's own when empty. Only for networks in the
    /// operator's namespace.
    pub network_namespace: Option<String>,
    /// Name of the resource that the VFs are taken from, without its prefix.
    pub resource_name: String,
    /// Capabilities for the CNI plugin as JSON: `{"mac": true}`.
    pub capabilities: Option<String>,
    /// IP address management for the CNI plugin as JSON: `{"type": "dhcp"}`.
    pub ipam: Option<String>,
    /// Name of the bridge; found from the VF's PCI address when empty.
    pub bridge: Option<String>,
    /// VLAN of the port; 0 is none.
    #[cfg_attr(feature = "crds", schemars(range(min = 0, max = 4095)))]
    pub vlan: Option<i64>,
    /// MTU of the port.
    #[cfg_attr(feature = "crds", schemars(range(min = 0)))]
    pub mtu: Option<i64>,
    /// VLANs that the port carries tagged.
    // There are no more VLANs; the bound keeps the cost of the rule below within the API server's budget.
    #[cfg_attr(feature = "crds", schemars(length(max = 4096)))]
    pub trunk: Option<Vec<TrunkConfig>>,
    /// Type of the interface in Open vSwitch.
    pub interface_type: Option<String>,
    /// CNI plugins to chain after this one: JSON objects, separated by commas.
    pub meta_plugins: Option<String>,
}

/// A network over VFs whose representors are ports of a Linux bridge.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "crds",
    derive(kube::CustomResource, schemars::JsonSchema),
    kube(
        group = "sriovnetwork.openshift.io",
        version = "v1",
        kind = "BridgeNetwork",
        plural = "bridgenetworks",
        namespaced,
        derive = "PartialEq",
        derive = "Default",
        status = "NetworkStatus",
        doc = "A network over VFs in switchdev mode whose representors are ports of a Linux bridge. Becomes a NetworkAttachmentDefinition of the same name for the CNI plugin accelerated-bridge.",
        printcolumn(
            name = "Ready",
            type_ = "string",
            json_path = ".status.conditions[?(@.type=='Ready')].status",
            description = "Whether the NetworkAttachmentDefinition is there"
        ),
        printcolumn(
            name = "Age",
            type_ = "date",
            json_path = ".metadata.creationTimestamp",
            description = "How long ago the network was created"
        )
    )
)]
#[serde(rename_all = "camelCase")]
pub struct BridgeNetworkSpec {
    /// Namespace of the NetworkAttachmentDefinition; the network's own when empty. Only for networks in the
    /// operator's namespace.
    pub network_namespace: Option<String>,
    /// Name of the resource that the VFs are taken from, without its prefix.
    pub resource_name: String,
    /// Capabilities for the CNI plugin as JSON: `{"mac": true}`.
    pub capabilities: Option<String>,
    /// IP address management for the CNI plugin as JSON: `{"type": "dhcp"}`.
    pub ipam: Option<String>,
    /// Name of the bridge; found from the VF's PCI address when empty.
    pub bridge: Option<String>,
    /// VLAN of the VF; 0 is none.
    #[cfg_attr(feature = "crds", schemars(range(min = 0, max = 4095)))]
    pub vlan: Option<i64>,
    /// VLANs that the VF carries tagged.
    // There are no more VLANs; the bound keeps the cost of the rule below within the API server's budget.
    #[cfg_attr(feature = "crds", schemars(length(max = 4096)))]
    pub trunk: Option<Vec<TrunkConfig>>,
    /// Also set the VLANs on the uplink of the bridge.
    pub set_uplink_vlan: Option<bool>,
    /// MTU of the VF and its representor.
    #[cfg_attr(feature = "crds", schemars(range(min = 0)))]
    pub mtu: Option<i64>,
    /// CNI plugins to chain after this one: JSON objects, separated by commas.
    pub meta_plugins: Option<String>,
}

/// What a network becomes: Multus' object that pods name. It is not ours: its definition comes with Multus.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "crds",
    derive(kube::CustomResource),
    kube(
        group = "k8s.cni.cncf.io",
        version = "v1",
        kind = "NetworkAttachmentDefinition",
        plural = "network-attachment-definitions",
        namespaced,
        schema = "disabled",
        derive = "PartialEq",
        derive = "Default"
    )
)]
pub struct NetworkAttachmentDefinitionSpec {
    /// The CNI configuration: a JSON object, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
}

/// VLANs of a trunk: one of them (`id`), or all from `minID` to `maxID`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "crds", schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.minID) == has(self.maxID) && (!has(self.minID) || self.minID <= self.maxID)",
    "message": "minID and maxID go together, and minID must not be above maxID",
}])))]
pub struct TrunkConfig {
    /// First VLAN of a range.
    #[serde(rename = "minID")]
    #[cfg_attr(feature = "crds", schemars(range(min = 0, max = 4095)))]
    pub min_id: Option<i64>,
    /// Last VLAN of a range.
    #[serde(rename = "maxID")]
    #[cfg_attr(feature = "crds", schemars(range(min = 0, max = 4095)))]
    pub max_id: Option<i64>,
    /// A single VLAN.
    #[cfg_attr(feature = "crds", schemars(range(min = 0, max = 4095)))]
    pub id: Option<i64>,
}

/// Whether the network can be used.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NetworkStatus {
    /// Ready and Valid, each with its reason.
    pub conditions: Option<Vec<Condition>>,
}
