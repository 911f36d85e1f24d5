//! `SriovNetworkPoolConfig`: limit for parallel drains of a group of nodes.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::meta::{Condition, IntOrString, LabelSelector, MicroTime, NodeSelectorTerm};

/// Nodes of the pool and their limit for parallel drains.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "crds",
    derive(kube::CustomResource, schemars::JsonSchema),
    kube(
        group = "sriovnetwork.openshift.io",
        version = "v1",
        kind = "SriovNetworkPoolConfig",
        plural = "sriovnetworkpoolconfigs",
        namespaced,
        derive = "PartialEq",
        derive = "Default",
        status = "SriovNetworkPoolConfigStatus",
        doc = "Pool of nodes that share a limit for parallel drains. A node that several pools select belongs to the pool with the lowest priority number; a node that no pool selects belongs to the pool named default.",
        printcolumn(
            name = "Priority",
            type_ = "integer",
            json_path = ".spec.priority",
            description = "Lower numbers take precedence; 99 if empty"
        ),
        printcolumn(
            name = "Max",
            type_ = "integer",
            json_path = ".spec.drainConfig.maxParallelNodeConfiguration",
            description = "Maximum number of nodes drained at the same time; 0 means no limit"
        ),
        printcolumn(
            name = "MaxUnavailable",
            type_ = "string",
            json_path = ".spec.maxUnavailable",
            description = "Maximum number or percentage of nodes drained at the same time"
        ),
        printcolumn(
            name = "Nodes",
            type_ = "integer",
            json_path = ".status.nodes.total",
            description = "Number of nodes in the pool"
        ),
        printcolumn(
            name = "Waiting",
            type_ = "integer",
            json_path = ".status.nodes.waiting",
            description = "Nodes that wait for a drain slot"
        ),
        printcolumn(
            name = "Draining",
            type_ = "integer",
            json_path = ".status.nodes.draining",
            description = "Nodes that are being drained or configured"
        ),
        printcolumn(
            name = "Blocked",
            type_ = "integer",
            json_path = ".status.nodes.blocked",
            description = "Waiting or draining nodes that do not progress"
        ),
        printcolumn(
            name = "Ready",
            type_ = "string",
            json_path = ".status.conditions[?(@.type=='Ready')].status",
            description = "True if no node waits, drains or is blocked"
        ),
        printcolumn(
            name = "Age",
            type_ = "date",
            json_path = ".metadata.creationTimestamp",
            description = "Time since the pool was created"
        )
    )
)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "crds", schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!has(self.maxUnavailable) || !has(self.drainConfig) || !has(self.drainConfig.maxParallelNodeConfiguration)",
        "message": "maxUnavailable and drainConfig.maxParallelNodeConfiguration are the same limit: set only one of them",
        "fieldPath": ".maxUnavailable",
    },
    {
        "rule": "!has(self.nodeSelector) || !has(self.nodeSelectorTerms) || size(self.nodeSelectorTerms) == 0",
        "message": "nodeSelector and nodeSelectorTerms both select nodes: set only one of them",
        "fieldPath": ".nodeSelectorTerms",
    },
])))]
pub struct SriovNetworkPoolConfigSpec {
    /// Priority of the pool. If several pools select a node, it belongs to the pool with the lowest number, or to the
    /// first of them by name. Defaults to 99. The pool named default only contains nodes that no other pool selects,
    /// regardless of its priority.
    #[cfg_attr(feature = "crds", schemars(range(min = 0, max = 99)))]
    pub priority: Option<i64>,
    /// MachineConfigPool for which Open vSwitch hardware offload is enabled (OpenShift).
    pub ovs_hardware_offload_config: Option<OvsHardwareOffloadConfig>,
    /// Nodes of the pool, by labels. Defaults to all nodes. Cannot be combined with nodeSelectorTerms.
    pub node_selector: Option<LabelSelector>,
    /// Nodes of the pool, as in node affinity: a node matches if one of the terms matches. An absent or empty list
    /// selects all nodes; an empty term selects no node. Cannot be combined with nodeSelector.
    pub node_selector_terms: Option<Vec<NodeSelectorTerm>>,
    /// Maximum number of nodes that are drained and configured at the same time: a number, or a percentage of the pool
    /// such as `10%` (rounded down, at least 1). 0 means that no node is drained. Defaults to 1. Cannot be combined
    /// with drainConfig.maxParallelNodeConfiguration.
    #[cfg_attr(feature = "crds", schemars(extend("x-kubernetes-validations" = [{
        "rule": "type(self) == string ? self.matches('^([1-9][0-9]?|100)%$') : self >= 0",
        "message": "maxUnavailable must be a number from 0 or a percentage from 1% to 100%",
    }])))]
    pub max_unavailable: Option<IntOrString>,
    /// Settings for draining nodes before a change that removes VFs from pods or reboots the node.
    pub drain_config: Option<DrainConfig>,
    /// RDMA mode of the nodes: network namespaces share RDMA devices (shared), or each has its own (exclusive).
    pub rdma_mode: Option<RdmaMode>,
}

/// Settings for draining the nodes of a pool.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct DrainConfig {
    /// Maximum number of nodes that are drained and configured at the same time, from the start of the drain until the
    /// node is uncordoned. 0 means no limit. Defaults to 1. Lowering the number does not affect drains that have
    /// started.
    // No schema default: it would conflict with maxUnavailable, which excludes this field.
    #[cfg_attr(feature = "crds", schemars(range(min = 0)))]
    pub max_parallel_node_configuration: Option<i64>,
    /// Seconds until the pods of a node must have terminated. 0 means no limit. Defaults to 900.
    #[cfg_attr(feature = "crds", schemars(range(min = 0)))]
    pub timeout_seconds: Option<i64>,
    /// Action after timeoutSeconds. Wait (the default): the drain continues, and the condition Blocked of the node
    /// state shows the cause. Release: the node is uncordoned, its slot is released, and the drain is tried again after
    /// 1 minute, then after 2, 4, and at most 30 minutes.
    pub on_timeout: Option<OnTimeout>,
}

/// Action when a drain exceeds its timeout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
pub enum OnTimeout {
    /// Continue the drain, and report what blocks it.
    #[default]
    Wait,
    /// Uncordon the node, release its slot, and try again later.
    Release,
}

/// MachineConfigPool for which Open vSwitch hardware offload is enabled (OpenShift).
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct OvsHardwareOffloadConfig {
    /// Name of the MachineConfigPool.
    pub name: Option<String>,
}

/// RDMA mode: network namespaces share RDMA devices, or each has its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum RdmaMode {
    Shared,
    Exclusive,
}

/// Status of a pool.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SriovNetworkPoolConfigStatus {
    /// Number of nodes by state.
    pub nodes: Option<PoolNodes>,
    /// Drain slots: nodes that may be drained and configured now. Written by the operator.
    pub slots: Option<Vec<DrainSlot>>,
    /// Conditions Ready, Progressing, Degraded, Limit, Valid, and HardwareOffload if offload is requested.
    pub conditions: Option<Vec<Condition>>,
}

/// Drain slot: permission to drain one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct DrainSlot {
    /// Name of the node.
    pub node: String,
    /// Time of the drain request for which the slot was granted. Identifies the request.
    pub requested_at: MicroTime,
}

/// Number of nodes of a pool by state. The states waiting, draining and done exclude each other; a node that failed, or
/// that is being configured without a drain, is in none of them.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PoolNodes {
    /// Number of nodes in the pool.
    pub total: Option<i64>,
    /// Nodes that wait for a drain slot.
    pub waiting: Option<i64>,
    /// Nodes that are being drained or configured.
    pub draining: Option<i64>,
    /// Nodes that are configured.
    pub done: Option<i64>,
    /// Nodes whose drain does not progress. They are also counted as waiting or draining.
    pub blocked: Option<i64>,
}
