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

/// The operator's name in server-side apply.
pub const OPERATOR_FIELD_MANAGER: &str = "vfleet-operator";

/// The agent's name in server-side apply.
pub const AGENT_FIELD_MANAGER: &str = "vfleet-agent";

/// Nodes that run an agent carry this label (any value) unless the operator config selects others.
pub const WORKER_LABEL: &str = "node-role.kubernetes.io/worker";

/// The operating system of a node, as the kubelet reports it.
pub const OS_LABEL: &str = "kubernetes.io/os";

/// On nodes made by `vfleet sim`: nobody's machine.
pub const SIMULATED_LABEL: &str = "vfleet.io/simulated";

/// On a network in the operator's namespace, as long as its NetworkAttachmentDefinition may exist.
pub const NETWORK_FINALIZER: &str = "netattdef.finalizers.sriovnetwork.openshift.io";

/// On a network: the namespace that its NetworkAttachmentDefinition was put into.
pub const LAST_NETWORK_NAMESPACE: &str = "operator.sriovnetwork.openshift.io/last-network-namespace";

/// On a NetworkAttachmentDefinition: the network that it was made for.
pub const NAD_OWNER: &str = "sriovnetwork.openshift.io/owner-ref";

/// On a NetworkAttachmentDefinition: the resource that its devices are taken from.
pub const NAD_RESOURCE: &str = "k8s.v1.cni.cncf.io/resourceName";
