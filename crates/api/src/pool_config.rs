//! `SriovNetworkPoolConfig`: how many nodes of a pool may be drained and configured at once.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::meta::{Condition, IntOrString, LabelSelector, MicroTime, NodeSelectorTerm};

/// How many nodes of a pool may be drained and configured at once.
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
        doc = "A pool of nodes: how many of them may be drained and configured at the same time. A node that several pools select belongs to the one with the lowest priority number; a node that none selects belongs to the pool named default.",
        printcolumn(
            name = "Priority",
            type_ = "integer",
            json_path = ".spec.priority",
            description = "The lower number wins; 99 when empty"
        ),
        printcolumn(
            name = "Max",
            type_ = "integer",
            json_path = ".spec.drainConfig.maxParallelNodeConfiguration",
            description = "Nodes at the same time; 0 is no limit"
        ),
        printcolumn(
            name = "MaxUnavailable",
            type_ = "string",
            json_path = ".spec.maxUnavailable",
            description = "Nodes at the same time, as a number or a percentage"
        ),
        printcolumn(
            name = "Nodes",
            type_ = "integer",
            json_path = ".status.nodes.total",
            description = "Nodes in the pool"
        ),
        printcolumn(
            name = "Waiting",
            type_ = "integer",
            json_path = ".status.nodes.waiting",
            description = "Nodes that wait for their turn"
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
            description = "Nodes of those that wait or drain and cannot go on"
        ),
        printcolumn(
            name = "Ready",
            type_ = "string",
            json_path = ".status.conditions[?(@.type=='Ready')].status",
            description = "Whether no node waits, drains or is blocked"
        ),
        printcolumn(
            name = "Age",
            type_ = "date",
            json_path = ".metadata.creationTimestamp",
            description = "How long ago the pool was created"
        )
    )
)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "crds", schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!has(self.maxUnavailable) || !has(self.drainConfig) || !has(self.drainConfig.maxParallelNodeConfiguration)",
        "message": "maxUnavailable and drainConfig.maxParallelNodeConfiguration both limit the same thing: set one of them",
        "fieldPath": ".maxUnavailable",
    },
    {
        "rule": "!has(self.nodeSelector) || !has(self.nodeSelectorTerms) || size(self.nodeSelectorTerms) == 0",
        "message": "nodeSelector and nodeSelectorTerms both select the nodes: set one of them",
        "fieldPath": ".nodeSelectorTerms",
    },
])))]
pub struct SriovNetworkPoolConfigSpec {
    /// Which pool a node belongs to where several select it: the one with the lowest number, of equal ones the first by
    /// name. 99 when absent. The pool named default is only for nodes that no other pool selects, whatever it says here.
    #[cfg_attr(feature = "crds", schemars(range(min = 0, max = 99)))]
    pub priority: Option<i64>,
    /// OpenShift: the MachineConfigPool whose nodes get Open vSwitch hardware offload.
    pub ovs_hardware_offload_config: Option<OvsHardwareOffloadConfig>,
    /// The nodes of the pool, by their labels. Absent selects all nodes. Not together with nodeSelectorTerms.
    pub node_selector: Option<LabelSelector>,
    /// The nodes of the pool, as in node affinity: a node belongs to it when one of the terms matches. An absent
    /// or empty list selects all nodes; an empty term selects none. Not together with nodeSelector.
    pub node_selector_terms: Option<Vec<NodeSelectorTerm>>,
    /// How many nodes of the pool may be drained and configured at once: a number, or a percentage of the pool
    /// such as `10%` (rounded down, but at least 1). 0 is never. Not together with
    /// drainConfig.maxParallelNodeConfiguration; 1 when neither is given.
    #[cfg_attr(feature = "crds", schemars(extend("x-kubernetes-validations" = [{
        "rule": "type(self) == string ? self.matches('^([1-9][0-9]?|100)%$') : self >= 0",
        "message": "maxUnavailable is a number from 0 or a percentage from 1% to 100%",
    }])))]
    pub max_unavailable: Option<IntOrString>,
    /// How the nodes are drained, before a change that takes VFs from pods or restarts the machine.
    pub drain_config: Option<DrainConfig>,
    /// Whether network namespaces share the RDMA devices of the pool's nodes.
    pub rdma_mode: Option<RdmaMode>,
}

/// How the nodes of a pool are drained.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct DrainConfig {
    /// How many nodes may be drained and configured at once, from the first step until each is uncordoned. 0 is no limit;
    /// 1 when neither this nor `maxUnavailable` is given. A lower number holds for those who begin: nodes that are being
    /// drained go on.
    // No schema default: it would clash with maxUnavailable, which excludes this field.
    #[cfg_attr(feature = "crds", schemars(range(min = 0)))]
    pub max_parallel_node_configuration: Option<i64>,
    /// Seconds that the pods of a node may take to go. 900 when absent, 0 is no limit.
    #[cfg_attr(feature = "crds", schemars(range(min = 0)))]
    pub timeout_seconds: Option<i64>,
    /// What happens when that time is up. Wait (when absent): it goes on, and the node state's condition Blocked says why.
    /// Release: the node is uncordoned, others go first, and it is tried again after 1 minute, then 2, 4, at most 30.
    pub on_timeout: Option<OnTimeout>,
}

/// What happens when a drain takes too long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
pub enum OnTimeout {
    /// Keep trying, and say what blocks the drain.
    #[default]
    Wait,
    /// Uncordon the node, let others go first, and try again later.
    Release,
}

/// OpenShift: where Open vSwitch hardware offload is switched on.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct OvsHardwareOffloadConfig {
    /// Name of the MachineConfigPool.
    pub name: Option<String>,
}

/// Whether network namespaces share RDMA devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum RdmaMode {
    Shared,
    Exclusive,
}

/// How far the pool's nodes are.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SriovNetworkPoolConfigStatus {
    /// The pool's nodes, counted by state.
    pub nodes: Option<PoolNodes>,
    /// Nodes whose turn it is: they may be drained and configured now. Written by the operator alone.
    pub slots: Option<Vec<DrainSlot>>,
    /// Ready, Progressing, Degraded, Limit, Valid and (where it is asked for) HardwareOffload, each with its reason.
    pub conditions: Option<Vec<Condition>>,
}

/// A node that may be drained and configured now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct DrainSlot {
    /// The node.
    pub node: String,
    /// The request that it was given for: when the node's agent asked.
    pub requested_at: MicroTime,
}

/// The nodes of a pool, counted by state. No node is counted in two of waiting, draining and done; a node that is being
/// configured without a drain, or failed, is in none of them.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PoolNodes {
    /// All nodes of the pool.
    pub total: Option<i64>,
    /// Nodes that wait for their turn.
    pub waiting: Option<i64>,
    /// Nodes that are being drained or configured.
    pub draining: Option<i64>,
    /// Nodes that are as wanted.
    pub done: Option<i64>,
    /// Nodes whose drain cannot go on. They are counted as waiting or draining, too.
    pub blocked: Option<i64>,
}
