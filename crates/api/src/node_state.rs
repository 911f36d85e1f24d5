//! `SriovNetworkNodeState`: desired state of a node (spec, by the operator) and observed state (status, by the agent).

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::bridge::Bridges;
use crate::meta::{Condition, MicroTime};
use crate::parsed::Parsed;
use crate::pci::PciAddress;
use crate::pool_config::RdmaMode;
use crate::vf::VfRange;

/// Desired state of the node. Written by the operator, from the policies that select the node.
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
        doc = "Desired state (spec, written by the operator from the policies) and observed state (status, written by the agent) of the network cards of one node. Has the name of the node. Do not edit it: change policies instead.",
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
            description = "Progress of the drain of the node"
        ),
        printcolumn(
            name = "Desired Sync State",
            type_ = "string",
            json_path = ".metadata.annotations.sriovnetwork\\.openshift\\.io/desired-state",
            description = "Request of the agent to an external drainer"
        ),
        printcolumn(
            name = "Current Sync State",
            type_ = "string",
            json_path = ".metadata.annotations.sriovnetwork\\.openshift\\.io/current-state",
            description = "Progress of the external drainer"
        ),
        printcolumn(
            name = "Bridges",
            type_ = "string",
            json_path = ".status.readyBridges",
            priority = 1,
            description = "Number of ready software bridges, and the total"
        ),
        printcolumn(
            name = "Error",
            type_ = "string",
            json_path = ".status.lastSyncError",
            priority = 1,
            description = "Error of the last attempt"
        ),
        printcolumn(
            name = "Age",
            type_ = "date",
            json_path = ".metadata.creationTimestamp",
            description = "Time since the node state was created"
        )
    )
)]
#[serde(rename_all = "camelCase")]
pub struct SriovNetworkNodeStateSpec {
    /// PFs that policies select. vfleet does not manage other PFs.
    pub interfaces: Option<Vec<Interface>>,
    /// Software bridges that policies request.
    pub bridges: Option<Bridges>,
    /// Settings of the whole node.
    pub system: Option<System>,
}

/// Desired state of a PF.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Interface {
    /// PCI address of the PF.
    pub pci_address: Parsed<PciAddress>,
    /// Number of VFs.
    pub num_vfs: Option<i64>,
    /// Minimum MTU of the PF.
    pub mtu: Option<i64>,
    /// Interface name of the PF.
    pub name: Option<String>,
    /// Required link type.
    pub link_type: Option<String>,
    /// Eswitch mode: legacy or switchdev.
    pub e_switch_mode: Option<String>,
    /// VF groups of the PF.
    pub vf_groups: Option<Vec<VfGroup>>,
    /// The PF and its VFs are created by another program.
    pub externally_managed: Option<bool>,
    /// Change the PF and its VFs even if the node itself uses them.
    pub override_host_protection: Option<bool>,
}

/// VF group: range of VFs of one PF with the same configuration.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct VfGroup {
    /// Name of the resource, without prefix.
    pub resource_name: Option<String>,
    /// Driver type of the VFs: netdevice or vfio-pci.
    pub device_type: Option<String>,
    /// First and last index of the VFs: `0-3`.
    pub vf_range: Option<Parsed<VfRange>>,
    /// Name of the policy.
    pub policy_name: Option<String>,
    /// MTU of the VFs.
    pub mtu: Option<i64>,
    /// The VFs are used for RDMA.
    pub is_rdma: Option<bool>,
    /// Type of the vDPA device to create on each VF.
    pub vdpa_type: Option<String>,
}

/// Settings of the whole node.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct System {
    /// RDMA mode: network namespaces share RDMA devices (shared), or each has its own (exclusive).
    pub rdma_mode: Option<RdmaMode>,
}

/// Observed state of the node. Written by its agent.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SriovNetworkNodeStateStatus {
    /// PFs of the node with their VFs.
    pub interfaces: Option<Vec<InterfaceExt>>,
    /// Software bridges that vfleet manages on the node.
    pub bridges: Option<Bridges>,
    /// Number of ready bridges and the total of `bridges`, for example 1/2. Absent without bridges.
    pub ready_bridges: Option<String>,
    /// Observed settings of the whole node.
    pub system: Option<System>,
    /// Version of the CNI plugins of vfleet in the directory of the container runtime; several after an interrupted
    /// installation. Absent if none is installed. The condition CniPlugins reports programs that were not replaced.
    pub cni_version: Option<String>,
    /// Progress of the drain. The agent writes Drain_Required when a change removes VFs from pods or reboots the node,
    /// and Idle when no drain is needed. The operator writes the other values: Draining_MCP_Pausing and
    /// Draining_MCP_Paused (OpenShift: the MachineConfigPool is paused), Draining (the node is cordoned, pods are
    /// evicted), Draining_Complete (pods are gone, the agent applies changes) and Drain_Disabled (the agent continues
    /// without a drain). The condition Blocked shows why a drain does not progress.
    pub drain_status: Option<DrainStatus>,
    /// Scope of the drain. Partial (the default): pods that request resources of SR-IOV policies. Full: all pods,
    /// before a reboot. Pods of DaemonSets and static pods are never evicted.
    pub drain_scope: Option<DrainScope>,
    /// Time of the last drain request of the agent. It identifies the request in the slots of the pool and in the
    /// annotations of the node.
    pub drain_requested_at: Option<MicroTime>,
    /// Start of the eviction of pods. drainConfig.timeoutSeconds of the pool counts from this time.
    pub draining_since: Option<MicroTime>,
    /// Time at which the drain was complete. If it is before `drainRequestedAt`, it belongs to an earlier drain.
    pub drain_completed_at: Option<MicroTime>,
    /// Resources whose VFs did not change during the last drain: their pods need no restart. Written by the agent after
    /// the changes.
    pub kept_resources: Option<Vec<String>>,
    /// Retry of a drain that exceeded its timeout (drainConfig.onTimeout: Release).
    pub drain_retry: Option<DrainRetry>,
    /// Result of the last attempt: Succeeded, InProgress or Failed.
    pub sync_status: Option<String>,
    /// Error of the last attempt, with the remedy. Empty after a success.
    pub last_sync_error: Option<String>,
    /// Conditions Ready, Progressing and Degraded (by the agent), and Blocked (by the operator, if a drain does not
    /// progress).
    pub conditions: Option<Vec<Condition>>,
}

/// Progress of the drain of a node.
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
    /// Returns the value as written in the API.
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

/// Scope of a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
pub enum DrainScope {
    /// Pods that request resources of SR-IOV policies.
    Partial,
    /// All pods, before a reboot.
    Full,
}

/// Retry of a drain that exceeded its timeout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct DrainRetry {
    /// Number of drains that exceeded their timeout.
    pub times: i64,
    /// Earliest time of the next drain.
    pub not_before: MicroTime,
}

/// `syncStatus`: the node is configured.
pub const SUCCEEDED: &str = "Succeeded";
/// `syncStatus`: the agent applies changes.
pub const IN_PROGRESS: &str = "InProgress";
/// `syncStatus`: the last attempt failed, see `lastSyncError`.
pub const FAILED: &str = "Failed";

/// Observed state of a PF.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct InterfaceExt {
    /// Name of the interface.
    pub name: Option<String>,
    /// Alternative names of the interface.
    pub alt_names: Option<Vec<String>>,
    /// MAC address.
    pub mac: Option<String>,
    /// Driver.
    pub driver: Option<String>,
    /// PCI address.
    pub pci_address: Parsed<PciAddress>,
    /// PCI vendor ID.
    pub vendor: Option<String>,
    /// PCI device ID.
    #[serde(rename = "deviceID")]
    pub device_id: Option<String>,
    /// Network of the interface in a cloud.
    pub net_filter: Option<String>,
    /// MTU.
    pub mtu: Option<i64>,
    /// Number of VFs.
    pub num_vfs: Option<i64>,
    /// Link speed: `10000 Mb/s`.
    pub link_speed: Option<String>,
    /// Link type: ETH or IB.
    pub link_type: Option<String>,
    /// Administrative state of the link: up or down.
    pub link_admin_state: Option<String>,
    /// Eswitch mode: legacy or switchdev.
    pub e_switch_mode: Option<String>,
    /// The PF is externally managed.
    pub externally_managed: Option<bool>,
    /// Maximum number of VFs.
    pub totalvfs: Option<i64>,
    /// NUMA node, on a machine with several NUMA nodes.
    pub numa_node: Option<i64>,
    /// Use of the PF by the node itself, which protects it: VFs can be created, but the PF is not disturbed.
    pub in_use_by: Option<String>,
    /// VFs of the PF.
    #[serde(rename = "Vfs")]
    pub vfs: Option<Vec<VirtualFunction>>,
    /// Conditions Ready and Warning of the PF.
    pub conditions: Option<Vec<Condition>>,
    /// Facts that could never be read: vendor, deviceID, name, altNames, netFilter. If policies select by them, the
    /// configuration of the PF does not change.
    pub unknown_facts: Option<Vec<String>>,
}

/// Fact in [`InterfaceExt::unknown_facts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnknownFact {
    Vendor,
    DeviceId,
    Name,
    AltNames,
    NetFilter,
}

impl UnknownFact {
    /// Returns the value as written in the API.
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
    /// Returns whether `fact` could never be read.
    pub fn is_unknown(&self, fact: UnknownFact) -> bool {
        self.unknown_facts.iter().flatten().any(|unknown| unknown == fact.as_str())
    }
}

/// Observed state of a VF.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct VirtualFunction {
    /// Interface name, if the VF is bound to a kernel driver.
    pub name: Option<String>,
    /// MAC address.
    pub mac: Option<String>,
    /// Not used. Accepted for compatibility with existing objects.
    pub assigned: Option<String>,
    /// Driver.
    pub driver: Option<String>,
    /// PCI address.
    pub pci_address: Parsed<PciAddress>,
    /// PCI vendor ID.
    pub vendor: Option<String>,
    /// PCI device ID.
    #[serde(rename = "deviceID")]
    pub device_id: Option<String>,
    /// Not used. Accepted for compatibility with existing objects.
    #[serde(rename = "Vlan")]
    pub vlan: Option<i64>,
    /// MTU.
    pub mtu: Option<i64>,
    /// Index of the VF on its PF.
    #[serde(rename = "vfID")]
    pub vf_id: i64,
    /// Type of the vDPA device of the VF.
    pub vdpa_type: Option<String>,
    /// Name of the representor, in switchdev mode.
    pub representor_name: Option<String>,
    /// GUID, if the VF has an RDMA device or is an InfiniBand VF.
    pub guid: Option<String>,
    /// Use of the VF by the node itself, which protects it: the VF is not changed.
    pub in_use_by: Option<String>,
}
