//! Network kinds. For each network the operator creates a NetworkAttachmentDefinition that pods name.

mod enums;

pub use enums::{CniLogLevel, OnOff, VfLinkState, VlanProto};

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::meta::Condition;

/// Spec of a network over Ethernet VFs.
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
        doc = "Network over Ethernet VFs. The operator creates a NetworkAttachmentDefinition of the same name for the CNI plugin sriov.",
        printcolumn(
            name = "Ready",
            type_ = "string",
            json_path = ".status.conditions[?(@.type=='Ready')].status",
            description = "True if the NetworkAttachmentDefinition is up to date"
        ),
        printcolumn(
            name = "Age",
            type_ = "date",
            json_path = ".metadata.creationTimestamp",
            description = "Time since the network was created"
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
    /// Namespace of the NetworkAttachmentDefinition. Defaults to the namespace of the network. Only networks in the
    /// namespace of the operator may set it.
    pub network_namespace: Option<String>,
    /// Name of the resource that provides the VFs, without prefix.
    pub resource_name: String,
    /// Capabilities of the CNI plugin as JSON: `{"mac": true, "ips": true}`.
    pub capabilities: Option<String>,
    /// IP address management for the CNI plugin as JSON: `{"type": "dhcp"}`.
    pub ipam: Option<String>,
    /// VLAN of the VF. 0 means no VLAN.
    #[cfg_attr(feature = "crds", schemars(range(min = 0, max = 4094)))]
    pub vlan: Option<i64>,
    /// VLAN priority (802.1p) of the VF.
    #[serde(rename = "vlanQoS")]
    #[cfg_attr(feature = "crds", schemars(range(min = 0, max = 7)))]
    pub vlan_qos: Option<i64>,
    /// VLAN protocol of the VF.
    pub vlan_proto: Option<VlanProto>,
    /// Drop frames whose source MAC address is not the address of the VF.
    pub spoof_chk: Option<OnOff>,
    /// Trust the VF: it may change its MAC address and enable promiscuous mode.
    pub trust: Option<OnOff>,
    /// Link state of the VF: auto (link state of the PF), enable (always up) or disable (always down).
    pub link_state: Option<VfLinkState>,
    /// Minimum transmit rate of the VF in Mbit/s.
    #[cfg_attr(feature = "crds", schemars(range(min = 0)))]
    pub min_tx_rate: Option<i64>,
    /// Maximum transmit rate of the VF in Mbit/s. 0 means no limit.
    #[cfg_attr(feature = "crds", schemars(range(min = 0)))]
    pub max_tx_rate: Option<i64>,
    /// CNI plugins that are chained after this one: JSON objects, separated by commas.
    pub meta_plugins: Option<String>,
    /// Log level of the CNI plugin.
    #[cfg_attr(feature = "crds", schemars(extend("default" = "info")))]
    pub log_level: Option<CniLogLevel>,
    /// Log file of the CNI plugin. Defaults to standard error.
    pub log_file: Option<String>,
}

/// Spec of a network over InfiniBand VFs.
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
        doc = "Network over InfiniBand VFs. The operator creates a NetworkAttachmentDefinition of the same name for the CNI plugin ib-sriov.",
        printcolumn(
            name = "Ready",
            type_ = "string",
            json_path = ".status.conditions[?(@.type=='Ready')].status",
            description = "True if the NetworkAttachmentDefinition is up to date"
        ),
        printcolumn(
            name = "Age",
            type_ = "date",
            json_path = ".metadata.creationTimestamp",
            description = "Time since the network was created"
        )
    )
)]
#[serde(rename_all = "camelCase")]
pub struct SriovIBNetworkSpec {
    /// Namespace of the NetworkAttachmentDefinition. Defaults to the namespace of the network. Only networks in the
    /// namespace of the operator may set it.
    pub network_namespace: Option<String>,
    /// Name of the resource that provides the VFs, without prefix.
    pub resource_name: String,
    /// Capabilities of the CNI plugin as JSON: `{"infinibandGUID": true}`.
    pub capabilities: Option<String>,
    /// IP address management for the CNI plugin as JSON: `{"type": "dhcp"}`.
    pub ipam: Option<String>,
    /// Link state of the VF: auto (link state of the PF), enable (always up) or disable (always down).
    pub link_state: Option<VfLinkState>,
    /// CNI plugins that are chained after this one: JSON objects, separated by commas.
    pub meta_plugins: Option<String>,
}

/// Spec of a network over VFs whose representors are ports of an Open vSwitch bridge.
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
        doc = "Network over VFs in switchdev mode whose representors are ports of an Open vSwitch bridge. The operator creates a NetworkAttachmentDefinition of the same name for the CNI plugin ovs.",
        printcolumn(
            name = "Ready",
            type_ = "string",
            json_path = ".status.conditions[?(@.type=='Ready')].status",
            description = "True if the NetworkAttachmentDefinition is up to date"
        ),
        printcolumn(
            name = "Age",
            type_ = "date",
            json_path = ".metadata.creationTimestamp",
            description = "Time since the network was created"
        )
    )
)]
#[serde(rename_all = "camelCase")]
pub struct OVSNetworkSpec {
    /// Namespace of the NetworkAttachmentDefinition. Defaults to the namespace of the network. Only networks in the
    /// namespace of the operator may set it.
    pub network_namespace: Option<String>,
    /// Name of the resource that provides the VFs, without prefix.
    pub resource_name: String,
    /// Capabilities of the CNI plugin as JSON: `{"mac": true}`.
    pub capabilities: Option<String>,
    /// IP address management for the CNI plugin as JSON: `{"type": "dhcp"}`.
    pub ipam: Option<String>,
    /// Name of the bridge. Defaults to the bridge whose uplink is the PF of the VF.
    pub bridge: Option<String>,
    /// VLAN of the port. 0 means no VLAN.
    #[cfg_attr(feature = "crds", schemars(range(min = 0, max = 4095)))]
    pub vlan: Option<i64>,
    /// MTU of the port.
    #[cfg_attr(feature = "crds", schemars(range(min = 0)))]
    pub mtu: Option<i64>,
    /// Tagged VLANs of the port.
    // There are 4096 VLANs; the bound keeps the cost of the rule below within the budget of the API server.
    #[cfg_attr(feature = "crds", schemars(length(max = 4096)))]
    pub trunk: Option<Vec<TrunkConfig>>,
    /// Interface type in Open vSwitch.
    pub interface_type: Option<String>,
    /// CNI plugins that are chained after this one: JSON objects, separated by commas.
    pub meta_plugins: Option<String>,
}

/// Spec of a network over VFs whose representors are ports of a Linux bridge.
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
        doc = "Network over VFs in switchdev mode whose representors are ports of a Linux bridge. The operator creates a NetworkAttachmentDefinition of the same name for the CNI plugin accelerated-bridge.",
        printcolumn(
            name = "Ready",
            type_ = "string",
            json_path = ".status.conditions[?(@.type=='Ready')].status",
            description = "True if the NetworkAttachmentDefinition is up to date"
        ),
        printcolumn(
            name = "Age",
            type_ = "date",
            json_path = ".metadata.creationTimestamp",
            description = "Time since the network was created"
        )
    )
)]
#[serde(rename_all = "camelCase")]
pub struct BridgeNetworkSpec {
    /// Namespace of the NetworkAttachmentDefinition. Defaults to the namespace of the network. Only networks in the
    /// namespace of the operator may set it.
    pub network_namespace: Option<String>,
    /// Name of the resource that provides the VFs, without prefix.
    pub resource_name: String,
    /// Capabilities of the CNI plugin as JSON: `{"mac": true}`.
    pub capabilities: Option<String>,
    /// IP address management for the CNI plugin as JSON: `{"type": "dhcp"}`.
    pub ipam: Option<String>,
    /// Name of the bridge. Defaults to the bridge whose uplink is the PF of the VF.
    pub bridge: Option<String>,
    /// VLAN of the VF. 0 means no VLAN.
    #[cfg_attr(feature = "crds", schemars(range(min = 0, max = 4095)))]
    pub vlan: Option<i64>,
    /// Tagged VLANs of the VF.
    // There are 4096 VLANs; the bound keeps the cost of the rule below within the budget of the API server.
    #[cfg_attr(feature = "crds", schemars(length(max = 4096)))]
    pub trunk: Option<Vec<TrunkConfig>>,
    /// Also configure the VLANs on the uplink of the bridge.
    pub set_uplink_vlan: Option<bool>,
    /// MTU of the VF and of its representor.
    #[cfg_attr(feature = "crds", schemars(range(min = 0)))]
    pub mtu: Option<i64>,
    /// CNI plugins that are chained after this one: JSON objects, separated by commas.
    pub meta_plugins: Option<String>,
}

/// Spec of a NetworkAttachmentDefinition. Its CustomResourceDefinition is part of Multus.
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
    /// CNI configuration: a JSON object as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
}

/// VLANs of a trunk: a single VLAN (`id`) or a range from `minID` to `maxID`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "crds", schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.minID) == has(self.maxID) && (!has(self.minID) || self.minID <= self.maxID)",
    "message": "minID and maxID go together, and minID must not be above maxID",
}])))]
pub struct TrunkConfig {
    /// First VLAN of the range.
    #[serde(rename = "minID")]
    #[cfg_attr(feature = "crds", schemars(range(min = 0, max = 4095)))]
    pub min_id: Option<i64>,
    /// Last VLAN of the range.
    #[serde(rename = "maxID")]
    #[cfg_attr(feature = "crds", schemars(range(min = 0, max = 4095)))]
    pub max_id: Option<i64>,
    /// Single VLAN.
    #[cfg_attr(feature = "crds", schemars(range(min = 0, max = 4095)))]
    pub id: Option<i64>,
}

/// Status of a network.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NetworkStatus {
    /// Conditions Ready and Valid.
    pub conditions: Option<Vec<Condition>>,
}
