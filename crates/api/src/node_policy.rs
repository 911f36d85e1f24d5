//! `SriovNetworkNodePolicy`: VFs on selected PFs of selected nodes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::bridge::Bridge;
use crate::meta::Condition;
use crate::parsed::Parsed;
use crate::pci::PciAddress;
use crate::vf::PfSelector;

/// VFs to create on the selected PFs of the selected nodes.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "crds",
    derive(kube::CustomResource, schemars::JsonSchema),
    kube(
        group = "sriovnetwork.openshift.io",
        version = "v1",
        kind = "SriovNetworkNodePolicy",
        plural = "sriovnetworknodepolicies",
        namespaced,
        derive = "PartialEq",
        status = "SriovNetworkNodePolicyStatus",
        doc = "Creates VFs on the selected network cards (PFs) of the selected nodes. Several policies can share a PF, each with its own VF range. In case of a conflict, the policy with the lower priority number wins.",
        printcolumn(
            name = "Resource",
            type_ = "string",
            json_path = ".spec.resourceName",
            description = "Resource that pods request, without prefix"
        ),
        printcolumn(
            name = "VFs",
            type_ = "integer",
            json_path = ".spec.numVfs",
            description = "Number of VFs on each selected PF"
        ),
        printcolumn(
            name = "Priority",
            type_ = "integer",
            json_path = ".spec.priority",
            description = "Lower numbers take precedence; 99 if empty"
        ),
        printcolumn(
            name = "Matched",
            type_ = "integer",
            json_path = ".status.matchedNodeCount",
            description = "Nodes on which the policy selects a PF"
        ),
        printcolumn(
            name = "Configured",
            type_ = "integer",
            json_path = ".status.readyNodeCount",
            description = "Matched nodes that are configured"
        ),
        printcolumn(
            name = "Failed",
            type_ = "integer",
            json_path = ".status.failedNodeCount",
            description = "Matched nodes that report an error or on which the policy is invalid"
        ),
        printcolumn(
            name = "Ready",
            type_ = "string",
            json_path = ".status.conditions[?(@.type=='Ready')].status",
            description = "True if all matched nodes are configured"
        ),
        printcolumn(
            name = "Age",
            type_ = "date",
            json_path = ".metadata.creationTimestamp",
            description = "Time since the policy was created"
        )
    )
)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "crds", schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!has(self.bridge) || (!has(self.bridge.ovs) && !has(self.bridge.linux)) || (has(self.eSwitchMode) && self.eSwitchMode == 'switchdev')",
        "message": "a software bridge connects VF representors, which exist only in switchdev mode: set eSwitchMode to switchdev",
        "fieldPath": ".bridge",
    },
    {
        "rule": "!has(self.bridge) || (!has(self.bridge.ovs) && !has(self.bridge.linux)) || !has(self.externallyManaged) || !self.externallyManaged",
        "message": "an externally managed PF cannot be the uplink of a software bridge: remove bridge or externallyManaged",
        "fieldPath": ".bridge",
    },
    {
        "rule": "!has(self.vdpaType) || (has(self.eSwitchMode) && self.eSwitchMode == 'switchdev' && self.deviceType == 'netdevice')",
        "message": "vdpaType needs eSwitchMode switchdev and deviceType netdevice",
        "fieldPath": ".vdpaType",
    },
])))]
pub struct SriovNetworkNodePolicySpec {
    /// Name of the resource that pods request, without prefix: `intelnics` becomes `openshift.io/intelnics`.
    pub resource_name: String,
    /// Labels that a node must have. An empty map selects every node.
    pub node_selector: BTreeMap<String, String>,
    /// Priority of the policy. If several policies select the same PF, the lowest number wins. Defaults to 99.
    #[cfg_attr(feature = "crds", schemars(range(min = 0, max = 99)))]
    pub priority: Option<i64>,
    /// MTU of the VFs. The MTU of the PF is raised to this value if it is lower, and never lowered.
    #[cfg_attr(feature = "crds", schemars(range(min = 1)))]
    pub mtu: Option<i64>,
    /// Number of VFs on each selected PF.
    #[cfg_attr(feature = "crds", schemars(range(min = 0)))]
    pub num_vfs: i64,
    /// Selector of PFs on the selected nodes.
    pub nic_selector: NicSelector,
    /// Driver type of the VFs: `netdevice` (kernel driver) or `vfio-pci` (userspace driver for virtual machines and
    /// DPDK).
    #[cfg_attr(feature = "crds", schemars(extend("default" = "netdevice")))]
    pub device_type: Option<DeviceType>,
    /// Use the VFs for RDMA.
    pub is_rdma: Option<bool>,
    /// Mount `/dev/vhost-net` into pods (DPDK with virtio ports).
    pub need_vhost_net: Option<bool>,
    /// Required link type of the port: `eth` or `ib`.
    pub link_type: Option<LinkType>,
    /// Eswitch mode of the card: `legacy` or `switchdev`. Defaults to `legacy`.
    pub e_switch_mode: Option<EswitchMode>,
    /// Type of the vDPA device to create on each VF: `virtio` or `vhost`.
    pub vdpa_type: Option<VdpaType>,
    /// Do not report the NUMA node of the devices to the kubelet.
    pub exclude_topology: Option<bool>,
    /// The PF and its VFs are created by another program (for example nmstate or a script). vfleet only configures the
    /// VFs of this policy; it neither creates nor removes VFs and does not change the PF.
    pub externally_managed: Option<bool>,
    /// Change the PF and its VFs even if the node itself uses them (default route, IP addresses, storage sessions).
    /// Without this field such PFs and VFs are protected. Changing the interface that carries the traffic of the node
    /// may disconnect the node. Only for PFs that nicSelector names in pfNames or rootDevices.
    pub override_host_protection: Option<bool>,
    /// Software bridge for each selected PF. Needs the feature gate manageSoftwareBridges.
    pub bridge: Option<Bridge>,
}

/// Selector of PFs. All fields that are set must match. An empty selector matches no PF.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NicSelector {
    /// PCI vendor ID in hexadecimal: `8086`.
    pub vendor: Option<String>,
    /// PCI device ID of the PF in hexadecimal: `158b`.
    #[serde(rename = "deviceID")]
    pub device_id: Option<String>,
    /// PCI addresses of PFs: `0000:3b:00.0`.
    pub root_devices: Option<Vec<Parsed<PciAddress>>>,
    /// Names or alternative names of PFs, each with an optional VF range: `ens1f0` (all VFs), `ens1f0#0-3`.
    #[cfg_attr(feature = "crds", schemars(length(max = 1024)))]
    #[cfg_attr(feature = "crds", schemars(extend("x-kubernetes-validations" = [{
        "rule": "self.all(name, !name.matches('^[^#]+#[0-9]{1,5}-[0-9]{1,5}$') || int(name.split('#')[1].split('-')[0]) <= int(name.split('#')[1].split('-')[1]))",
        "message": "a VF range must go from a lower to a higher index, as in ens1f0#0-3",
    }])))]
    pub pf_names: Option<Vec<Parsed<PfSelector>>>,
    /// Network of the interface in a cloud: `openstack/NetworkID:<uuid>` or `aws/NetworkID:<id>`.
    pub net_filter: Option<String>,
}

/// Driver type of VFs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
pub enum DeviceType {
    #[default]
    #[serde(rename = "netdevice")]
    Netdevice,
    #[serde(rename = "vfio-pci")]
    VfioPci,
}

/// Link type, in upper or lower case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
pub enum LinkType {
    #[serde(rename = "eth")]
    EthLower,
    #[serde(rename = "ETH")]
    Eth,
    #[serde(rename = "ib")]
    IbLower,
    #[serde(rename = "IB")]
    Ib,
}

/// Eswitch mode of a card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum EswitchMode {
    #[default]
    Legacy,
    Switchdev,
}

/// Type of a vDPA device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum VdpaType {
    Virtio,
    Vhost,
}

/// Status of a policy.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SriovNetworkNodePolicyStatus {
    /// Nodes on which the policy selects at least one PF.
    pub matched_node_count: Option<i64>,
    /// Matched nodes that are configured.
    pub ready_node_count: Option<i64>,
    /// Matched nodes that report an error, on which the policy is invalid, or whose VFs belong to a policy of equal
    /// priority.
    pub failed_node_count: Option<i64>,
    /// Conditions Ready, Progressing, Degraded and Valid.
    pub conditions: Option<Vec<Condition>>,
}

impl LinkType {
    /// Returns the value as written in the status of node states.
    pub const fn upper(self) -> &'static str {
        match self {
            Self::EthLower | Self::Eth => "ETH",
            Self::IbLower | Self::Ib => "IB",
        }
    }
}

impl DeviceType {
    /// Returns the value as written in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Netdevice => "netdevice",
            Self::VfioPci => "vfio-pci",
        }
    }
}

impl VdpaType {
    /// Returns the value as written in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Virtio => "virtio",
            Self::Vhost => "vhost",
        }
    }
}

impl EswitchMode {
    /// Returns the value as written in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Switchdev => "switchdev",
        }
    }
}
