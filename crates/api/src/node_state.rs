//! `SriovNetworkNodeState`: what one node shall be like (spec, by the operator) and is like (status, by its agent).

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::bridge::Bridges;
use crate::meta::{Condition, MicroTime};
use crate::pci::PciAddress;
use crate::pool_config::RdmaMode;
use crate::vf::VfRange;
use crate::written::Written;

/// What the node shall be like. Written by the operator, from the policies that select the node.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "crds",
    derive(kube::CustomResource, schemars::JsonSchema),
    kube(
        group = "sriovnetwork.openshift.io",
        version = "v1",
        kind = "SriovNetworkNodeState",
        plural = "sriovnetworknodestates",
        namespaced,
        derive = "PartialEq",
        derive = "Default",
        status = "SriovNetworkNodeStateStatus",
        doc = "What one node's network cards shall be like (spec, worked out by the operator from the policies) and are like (status, reported by the node's agent). Has the name of its node. Edit policies, not this.",
        printcolumn(
            name = "Sync Status",
            type_ = "string",
            json_path = ".status.syncStatus",
            description = "Succeeded, InProgress or Failed"
        ),
        printcolumn(
            name = "Drain",
            type_ = "string",
            json_path = ".status.drainStatus",
            description = "How far the node's drain is"
        ),
        printcolumn(
            name = "Desired Sync State",
            type_ = "string",
            json_path = ".metadata.annotations.sriovnetwork\\.openshift\\.io/desired-state",
            description = "What the agent asked an external drainer for"
        ),
        printcolumn(
            name = "Current Sync State",
            type_ = "string",
            json_path = ".metadata.annotations.sriovnetwork\\.openshift\\.io/current-state",
            description = "How far the external drainer is"
        ),
        printcolumn(
            name = "Error",
            type_ = "string",
            json_path = ".status.lastSyncError",
            priority = 1,
            description = "Why the last attempt failed"
        ),
        printcolumn(
            name = "Age",
            type_ = "date",
            json_path = ".metadata.creationTimestamp",
            description = "How long ago the node state was created"
        )
    )
)]
#[serde(rename_all = "camelCase")]
pub struct SriovNetworkNodeStateSpec {
    /// PFs that policies select. A PF that is not listed is not vfleet's.
    pub interfaces: Option<Vec<Interface>>,
    /// Software bridges that policies want.
    pub bridges: Option<Bridges>,
    /// Settings of the whole machine.
    pub system: Option<System>,
}

/// What one PF shall be like.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Interface {
    /// PCI address of the PF.
    pub pci_address: Written<PciAddress>,
    /// How many VFs it shall have.
    pub num_vfs: Option<i64>,
    /// The MTU that it shall have at least.
    pub mtu: Option<i64>,
    /// Name of the PF's interface.
    pub name: Option<String>,
    /// The link type that it must have.
    pub link_type: Option<String>,
    /// Mode of its embedded switch.
    pub e_switch_mode: Option<String>,
    /// Which of its VFs are given out, and how they are set up.
    pub vf_groups: Option<Vec<VfGroup>>,
    /// The PF and its VFs are made by somebody else.
    pub externally_managed: Option<bool>,
    /// A policy has the PF and its VFs changed although the node itself uses them.
    pub override_host_protection: Option<bool>,
}

/// A range of VFs of one PF that are set up alike.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct VfGroup {
    /// Name of the resource that they are given out as.
    pub resource_name: Option<String>,
    /// What they are for: netdevice or vfio-pci.
    pub device_type: Option<String>,
    /// First and last index of the VFs: `0-3`.
    pub vf_range: Option<Written<VfRange>>,
    /// The policy that wants them.
    pub policy_name: Option<String>,
    /// Their MTU.
    pub mtu: Option<i64>,
    /// Whether they are used for RDMA.
    pub is_rdma: Option<bool>,
    /// The kind of vDPA device to make of them.
    pub vdpa_type: Option<String>,
}

/// Settings of the whole machine.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct System {
    /// Whether network namespaces share the RDMA devices.
    pub rdma_mode: Option<RdmaMode>,
}

/// What the node is like. Written by the node's agent.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SriovNetworkNodeStateStatus {
    /// The PFs found on the node, and their VFs.
    pub interfaces: Option<Vec<InterfaceExt>>,
    /// The software bridges that vfleet keeps on the node.
    pub bridges: Option<Bridges>,
    /// Settings of the whole machine, as found.
    pub system: Option<System>,
    /// How far the node's drain is. The agent writes Drain_Required when a change takes VFs from pods or restarts the
    /// machine, and Idle when nothing is needed any more. The operator writes the others: Draining_MCP_Pausing and
    /// Draining_MCP_Paused (OpenShift: its MachineConfigPool is paused), Draining (cordoned, pods are evicted),
    /// Draining_Complete (they are gone, the agent works) and Drain_Disabled (the agent goes on without a drain). The
    /// condition Blocked tells why it does not go on.
    pub drain_status: Option<DrainStatus>,
    /// How much of the node is drained. Partial (when absent): pods that ask for resources of SR-IOV policies. Full: all
    /// pods, before the machine restarts. Pods of DaemonSets and static pods stay in both.
    pub drain_scope: Option<DrainScope>,
    /// When the agent last asked for a drain. It is also the name of its request, by which the slots of a pool and the
    /// annotations of the node tell requests apart.
    pub drain_requested_at: Option<MicroTime>,
    /// Since when the node's pods are being evicted. The pool's drainConfig.timeoutSeconds counts from here.
    pub draining_since: Option<MicroTime>,
    /// Since when they are all gone. Earlier than `drainRequestedAt`: not this time.
    pub drain_completed_at: Option<MicroTime>,
    /// Resources none of whose VFs were touched while the node was drained last: their pods need no restart. Written by
    /// the agent when it is done.
    pub kept_resources: Option<Vec<String>>,
    /// After a drain that took too long and was given up for now (drainConfig.onTimeout: Release).
    pub drain_retry: Option<DrainRetry>,
    /// Succeeded, InProgress or Failed.
    pub sync_status: Option<String>,
    /// Why the last attempt failed, and what to do about it. Empty after a success.
    pub last_sync_error: Option<String>,
    /// Ready, Progressing, Degraded (by the agent) and Blocked (by the operator: what keeps the drain from going on), each
    /// with its reason.
    pub conditions: Option<Vec<Condition>>,
}

/// How far a node's drain is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
pub enum DrainStatus {
    Idle,
    #[serde(rename = "Drain_Disabled")]
    DrainDisabled,
    #[serde(rename = "Drain_Required")]
    DrainRequired,
    #[serde(rename = "Draining_MCP_Pausing")]
    DrainingMcpPausing,
    #[serde(rename = "Draining_MCP_Paused")]
    DrainingMcpPaused,
    Draining,
    #[serde(rename = "Draining_Complete")]
    DrainingComplete,
}

impl DrainStatus {
    /// As the API spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "Idle",
            Self::DrainDisabled => "Drain_Disabled",
            Self::DrainRequired => "Drain_Required",
            Self::DrainingMcpPausing => "Draining_MCP_Pausing",
            Self::DrainingMcpPaused => "Draining_MCP_Paused",
            Self::Draining => "Draining",
            Self::DrainingComplete => "Draining_Complete",
        }
    }
}

/// How much of a node is drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
pub enum DrainScope {
    /// Pods that use our resources.
    Partial,
    /// Everything, before a reboot.
    Full,
}

/// A drain took too long and was given up for now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct DrainRetry {
    /// How often that was so.
    pub times: i64,
    /// It is not tried again before this.
    pub not_before: MicroTime,
}

/// `syncStatus`: the node is as wanted.
pub const SUCCEEDED: &str = "Succeeded";
/// `syncStatus`: the agent is at work.
pub const IN_PROGRESS: &str = "InProgress";
/// `syncStatus`: `lastSyncError` says why.
pub const FAILED: &str = "Failed";

/// A PF, as found.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct InterfaceExt {
    /// Name of the interface.
    pub name: Option<String>,
    /// Its other names.
    pub alt_names: Option<Vec<String>>,
    /// Its MAC address.
    pub mac: Option<String>,
    /// Driver that it is bound to.
    pub driver: Option<String>,
    /// PCI address.
    pub pci_address: Written<PciAddress>,
    /// PCI vendor id.
    pub vendor: Option<String>,
    /// PCI device id.
    #[serde(rename = "deviceID")]
    pub device_id: Option<String>,
    /// The network that it is on, on virtual platforms.
    pub net_filter: Option<String>,
    /// Its MTU.
    pub mtu: Option<i64>,
    /// How many VFs it has.
    pub num_vfs: Option<i64>,
    /// Speed of the link: `10000 Mb/s`.
    pub link_speed: Option<String>,
    /// ETH or IB.
    pub link_type: Option<String>,
    /// Whether it is set up or down.
    pub link_admin_state: Option<String>,
    /// Mode of its embedded switch.
    pub e_switch_mode: Option<String>,
    /// Whether it is made by somebody else.
    pub externally_managed: Option<bool>,
    /// How many VFs it can have.
    pub totalvfs: Option<i64>,
    /// The NUMA node that it is near to, on a machine that has several.
    pub numa_node: Option<i64>,
    /// What the node itself uses it for. It may have VFs, but is not disturbed.
    pub in_use_by: Option<String>,
    /// Its VFs.
    #[serde(rename = "Vfs")]
    pub vfs: Option<Vec<VirtualFunction>>,
    /// What is wrong with this device, or that nothing is.
    pub conditions: Option<Vec<Condition>>,
    /// Facts that cannot be read now and were never known: vendor, deviceID, name, altNames, netFilter. Policies that
    /// select by them are not decided on: what was decided for the PF stays.
    pub unknown_facts: Option<Vec<String>>,
}

/// A fact in [`InterfaceExt::unknown_facts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnknownFact {
    Vendor,
    DeviceId,
    Name,
    AltNames,
    NetFilter,
}

impl UnknownFact {
    /// As the API spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Vendor => "vendor",
            Self::DeviceId => "deviceID",
            Self::Name => "name",
            Self::AltNames => "altNames",
            Self::NetFilter => "netFilter",
        }
    }
}

impl InterfaceExt {
    /// Returns whether `fact` cannot be read now and was never known.
    pub fn is_unknown(&self, fact: UnknownFact) -> bool {
        self.unknown_facts.iter().flatten().any(|unknown| unknown == fact.as_str())
    }
}

/// A VF, as found.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct VirtualFunction {
    /// Name of its interface, when a kernel driver holds it.
    pub name: Option<String>,
    /// Its MAC address.
    pub mac: Option<String>,
    /// Not written any more.
    pub assigned: Option<String>,
    /// Driver that it is bound to.
    pub driver: Option<String>,
    /// PCI address.
    pub pci_address: Written<PciAddress>,
    /// PCI vendor id.
    pub vendor: Option<String>,
    /// PCI device id.
    #[serde(rename = "deviceID")]
    pub device_id: Option<String>,
    /// Not written any more.
    #[serde(rename = "Vlan")]
    pub vlan: Option<i64>,
    /// Its MTU.
    pub mtu: Option<i64>,
    /// Its index on the PF.
    #[serde(rename = "vfID")]
    pub vf_id: i64,
    /// The kind of vDPA device made of it.
    pub vdpa_type: Option<String>,
    /// Name of its representor, in switchdev mode.
    pub representor_name: Option<String>,
    /// Its GUID, where it has an RDMA device or speaks InfiniBand.
    pub guid: Option<String>,
    /// What the node itself uses it for. It is never touched.
    pub in_use_by: Option<String>,
}
