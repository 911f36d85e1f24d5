//! Every name that other programs depend on, each once: labels, annotations, finalizers, object names,
//! field managers and the programs' environment.

/// The API group.
pub const GROUP: &str = "sriovnetwork.openshift.io";

/// The namespace that the programs use when none is given.
pub const DEFAULT_NAMESPACE: &str = "sriov-network-operator";

/// The name of the one [`crate::SriovOperatorConfig`] that is honoured.
pub const DEFAULT_OPERATOR_CONFIG: &str = "default";

/// A policy of this name is a left-over of old installations and selects nothing.
pub const IGNORED_POLICY: &str = "default";

/// The operator's name in server-side apply.
pub const OPERATOR_FIELD_MANAGER: &str = "vfleet-operator";

/// The agent's name in server-side apply.
pub const AGENT_FIELD_MANAGER: &str = "vfleet-agent";

/// Nodes that run an agent carry this label (any value) unless the operator config selects others.
pub const WORKER_LABEL: &str = "node-role.kubernetes.io/worker";

/// The operating system of a node, as the kubelet reports it.
pub const OS_LABEL: &str = "kubernetes.io/os";

/// On a node state: what the agent asked for (Go operator and external drainers).
pub const DESIRED_STATE_ANNOTATION: &str = "sriovnetwork.openshift.io/desired-state";

/// On a node state: how far the drain is (Go operator and external drainers).
pub const CURRENT_STATE_ANNOTATION: &str = "sriovnetwork.openshift.io/current-state";

/// On nodes made by `vfleet sim`: nobody's machine.
pub const SIMULATED_LABEL: &str = "vfleet.io/simulated";
