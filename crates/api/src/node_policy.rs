//! `SriovNetworkNodePolicy`: which PFs of which nodes get VFs, and what those are like.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::bridge::Bridge;
use crate::meta::Condition;
use crate::pci::PciAddress;
use crate::vf::PfSelector;
use crate::written::Written;

/// Which PFs of which nodes get VFs, and what those are like.
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
        doc = "Gives VFs to the network cards (PFs) that it selects on the nodes that it selects. Several policies can share a PF, each with its own range of VFs; where they disagree, the lower priority number wins.",
        printcolumn(
            name = "Resource",
            type_ = "string",
            json_path = ".spec.resourceName",
            description = "The resource that pods ask for, without its prefix"
        ),
        printcolumn(
            name = "VFs",
            type_ = "integer",
            json_path = ".spec.numVfs",
            description = "VFs of each selected PF"
        ),
        printcolumn(
            name = "Priority",
            type_ = "integer",
            json_path = ".spec.priority",
            description = "The lower number wins; 99 when empty"
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
            description = "Of those, nodes that are as the policy wants"
        ),
        printcolumn(
            name = "Failed",
            type_ = "integer",
            json_path = ".status.failedNodeCount",
            description = "Of those, nodes that report an error or cannot follow the policy"
        ),
        printcolumn(
            name = "Ready",
            type_ = "string",
            json_path = ".status.conditions[?(@.type=='Ready')].status",
            description = "Whether all matched nodes are as the policy wants"
        ),
        printcolumn(
            name = "Age",
            type_ = "date",
            json_path = ".metadata.creationTimestamp",
            description = "How long ago the policy was created"
        )
    )
)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "crds", schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!has(self.bridge) || (!has(self.bridge.ovs) && !has(self.bridge.linux)) || (has(self.eSwitchMode) && self.eSwitchMode == 'switchdev')",
        "message": "a software bridge needs eSwitchMode switchdev: the bridge connects the representors of the VFs",
        "fieldPath": ".bridge",
    },
    {
        "rule": "!has(self.bridge) || (!has(self.bridge.ovs) && !has(self.bridge.linux)) || !has(self.externallyManaged) || !self.externallyManaged",
        "message": "a PF that is managed outside (externallyManaged) cannot be given a software bridge",
        "fieldPath": ".bridge",
    },
    {
        "rule": "!has(self.vdpaType) || (has(self.eSwitchMode) && self.eSwitchMode == 'switchdev' && self.deviceType == 'netdevice')",
        "message": "vdpaType needs eSwitchMode switchdev and deviceType netdevice",
        "fieldPath": ".vdpaType",
    },
])))]
pub struct SriovNetworkNodePolicySpec {
    /// Name of the resource that pods ask for, without its prefix: `intelnics` becomes `openshift.io/intelnics`.
    pub resource_name: String,
    /// Labels that a node must carry, all of them. An empty map selects every node.
    pub node_selector: BTreeMap<String, String>,
    /// Which policy wins where several select the same PF: the lower number. 99 when absent.
    #[cfg_attr(feature = "crds", schemars(range(min = 0, max = 99)))]
    pub priority: Option<i64>,
    /// MTU of the VFs. The PF's is raised to it where it is lower, and never lowered.
    #[cfg_attr(feature = "crds", schemars(range(min = 1)))]
    pub mtu: Option<i64>,
    /// How many VFs each selected PF gets.
    #[cfg_attr(feature = "crds", schemars(range(min = 0)))]
    pub num_vfs: i64,
    /// Which PFs of the selected nodes are meant.
    pub nic_selector: NicSelector,
    /// What the VFs are for: `netdevice` (the kernel's own driver) or `vfio-pci` (virtual machines, DPDK).
    #[cfg_attr(feature = "crds", schemars(extend("default" = "netdevice")))]
    pub device_type: Option<DeviceType>,
    /// Whether the VFs are used for RDMA.
    pub is_rdma: Option<bool>,
    /// Whether pods also get `/dev/vhost-net` (DPDK with virtio ports).
    pub need_vhost_net: Option<bool>,
    /// The link type that the port must have: Ethernet or InfiniBand.
    pub link_type: Option<LinkType>,
    /// Mode of the card's embedded switch. `legacy` when absent.
    pub e_switch_mode: Option<EswitchMode>,
    /// The kind of vDPA device to make of each VF.
    pub vdpa_type: Option<VdpaType>,
    /// Leave NUMA nodes out of what the kubelet is told about the devices.
    pub exclude_topology: Option<bool>,
    /// The PF and its VFs are made by somebody else (nmstate, a script). vfleet sets up the VFs of this policy,
    /// makes and removes none, and leaves the PF alone.
    pub externally_managed: Option<bool>,
    /// Change the PF and its VFs although the node itself uses them (default route, IP addresses, storage sessions), which
    /// otherwise protects them. Whoever changes the interface that carries the node's own traffic may cut the node off. Only
    /// for PFs that nicSelector names in pfNames or rootDevices.
    pub override_host_protection: Option<bool>,
    /// A software bridge for each selected PF. Needs the feature gate manageSoftwareBridges.
    pub bridge: Option<Bridge>,
}

/// Which PFs are meant. Every field that is given must match; with no field given, no PF matches.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NicSelector {
    /// PCI vendor id in hex: `8086`.
    pub vendor: Option<String>,
    /// PCI device id of the PF in hex: `158b`.
    #[serde(rename = "deviceID")]
    pub device_id: Option<String>,
    /// PCI addresses of PFs: `0000:3b:00.0`.
    pub root_devices: Option<Vec<Written<PciAddress>>>,
    /// Names or alternative names of PFs, each with a range of VFs if only those are meant: `ens1f0`, `ens1f0#0-3`.
    #[cfg_attr(feature = "crds", schemars(length(max = 1024)))]
    #[cfg_attr(feature = "crds", schemars(extend("x-kubernetes-validations" = [{
        "rule": "self.all(name, !name.matches('^[^#]+#[0-9]{1,5}-[0-9]{1,5}$') || int(name.split('#')[1].split('-')[0]) <= int(name.split('#')[1].split('-')[1]))",
        "message": "a range of VFs goes from a lower to a higher index, as in ens1f0#0-3",
    }])))]
    pub pf_names: Option<Vec<Written<PfSelector>>>,
    /// The network that the interface is on, on virtual platforms: `openstack/NetworkID:<uuid>` or
    /// `aws/NetworkID:<id>`.
    pub net_filter: Option<String>,
}

/// What VFs are for, which decides their driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
pub enum DeviceType {
    #[default]
    #[serde(rename = "netdevice")]
    Netdevice,
    #[serde(rename = "vfio-pci")]
    VfioPci,
}

/// A link type, in either case.
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

/// Mode of a card's embedded switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum EswitchMode {
    #[default]
    Legacy,
    Switchdev,
}

/// The kind of vDPA device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum VdpaType {
    Virtio,
    Vhost,
}

/// How far the policy is on the nodes.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SriovNetworkNodePolicyStatus {
    /// Nodes on which the policy selects at least one PF.
    pub matched_node_count: Option<i64>,
    /// Of those, nodes that are as the policy wants.
    pub ready_node_count: Option<i64>,
    /// Of those, nodes that report an error, that cannot follow the policy, or whose VFs one of equal priority has.
    pub failed_node_count: Option<i64>,
    /// Ready, Progressing, Degraded and Valid, each with its reason.
    pub conditions: Option<Vec<Condition>>,
}

impl LinkType {
    /// As a node state's status spells it.
    pub const fn upper(self) -> &'static str {
        match self {
            Self::EthLower | Self::Eth => "ETH",
            Self::IbLower | Self::Ib => "IB",
        }
    }
}

impl DeviceType {
    /// As the API spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Netdevice => "netdevice",
            Self::VfioPci => "vfio-pci",
        }
    }
}

impl VdpaType {
    /// As the API spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Virtio => "virtio",
            Self::Vhost => "vhost",
        }
    }
}

impl EswitchMode {
    /// As the API spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Switchdev => "switchdev",
        }
    }
}
