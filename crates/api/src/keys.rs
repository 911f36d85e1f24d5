//! Every name that other programs depend on, each once: labels, annotations, finalizers, object names,
//! field managers and the programs' environment.

/// The namespace that the programs use when none is given.
pub const DEFAULT_NAMESPACE: &str = "sriov-network-operator";

/// What stands before the names of resources when nothing else is given.
pub const DEFAULT_RESOURCE_PREFIX: &str = "openshift.io";

/// The only operator config that is honoured.
pub const OPERATOR_CONFIG: &str = "default";

/// A policy of this name is a left-over of old installations and selects nothing.
pub const IGNORED_POLICY: &str = "default";

/// The pool of nodes that no other pool selects.
pub const DEFAULT_POOL: &str = "default";

/// The operator's name in server-side apply.
pub const OPERATOR_FIELD_MANAGER: &str = "vfleet-operator";

/// Whoever of the operator's replicas holds this Lease leads.
pub const LEASE: &str = "vfleet-operator";

/// The agent's name in server-side apply.
pub const AGENT_FIELD_MANAGER: &str = "vfleet-agent";

/// Nodes that run an agent carry this label (any value) unless the operator config selects others.
pub const WORKER_LABEL: &str = "node-role.kubernetes.io/worker";

/// The operating system of a node, as the kubelet reports it.
pub const OS_LABEL: &str = "kubernetes.io/os";

/// On a node state whose node is away: until when it is kept (RFC 3339, UTC).
pub const KEEP_STATE_UNTIL: &str = "sriovnetwork.openshift.io/keep-state-until";

/// Feature gate: software bridges are made for policies that want them.
pub const MANAGE_SOFTWARE_BRIDGES: &str = "manageSoftwareBridges";

/// On nodes made by `vfleet sim`: nobody's machine.
pub const SIMULATED_LABEL: &str = "vfleet.io/simulated";
