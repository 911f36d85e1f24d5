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

/// On nodes, `Enabled` or `Disabled`: whether the separate device plugin runs there.
pub const DEVICE_PLUGIN_LABEL: &str = "sriovnetwork.openshift.io/device-plugin";

/// On a pod of the separate device plugin: a fingerprint of the config and VFs that it started with.
pub const DEVICE_PLUGIN_STARTED_WITH: &str = "vfleet.io/started-with";

/// On a pod of the separate device plugin that waits until its node's VFs are there: `true`. Taken off by the agent.
pub const DEVICE_PLUGIN_WAITS: &str = "sriovnetwork.openshift.io/device-plugin-wait-config";

/// The ConfigMap that tells which devices the VFs of which cards are.
pub const SUPPORTED_NIC_IDS: &str = "supported-nic-ids";

/// On nodes made by `vfleet sim`: nobody's machine.
pub const SIMULATED_LABEL: &str = "vfleet.io/simulated";

/// On a node that is being drained: `ours` when its cordon is vfleet's, `found` when it was there before.
pub const CORDON: &str = "vfleet.io/cordon";

/// On a node that is being drained: the request that it is drained for, which is the time at which its agent asked, and
/// the namespace of the operator that drains it.
pub const DRAIN_REQUEST: &str = "vfleet.io/drain-request";

/// On a node: the last request to drain it that is over. Nothing is done for it, or for an earlier one, any more.
pub const LAST_DRAIN: &str = "vfleet.io/last-drain";

/// On a node: what its agent asks for, for an external drainer ([`drain_request`]). In installations of the Go operator
/// also without one.
pub const NODE_DRAIN_STATE: &str = "sriovnetwork.openshift.io/state";

/// The same on a node state, and beside it on the node.
pub const DESIRED_DRAIN_STATE: &str = "sriovnetwork.openshift.io/desired-state";

/// On a node state: how far an external drainer is ([`drain_answer`]).
pub const CURRENT_DRAIN_STATE: &str = "sriovnetwork.openshift.io/current-state";

/// On a node state, `true`: somebody else drains the node.
pub const USE_EXTERNAL_DRAINER: &str = "sriovnetwork.openshift.io/use-external-drainer";

/// What an agent asks for by annotation.
pub mod drain_request {
    pub const IDLE: &str = "Idle";
    /// Pods that use our resources shall go.
    pub const DRAIN: &str = "Drain_Required";
    /// All pods shall go.
    pub const REBOOT: &str = "Reboot_Required";
}

/// What a drainer answers by annotation.
pub mod drain_answer {
    pub const IDLE: &str = "Idle";
    pub const DRAINING: &str = "Draining";
    pub const COMPLETE: &str = "DrainComplete";
}

/// OpenShift: on a node, the MachineConfig that it shall have.
pub const DESIRED_MACHINE_CONFIG: &str = "machineconfiguration.openshift.io/desiredConfig";

/// OpenShift: on a MachineConfig, the MachineConfigPool that it is for.
pub const MACHINE_CONFIG_ROLE: &str = "machineconfiguration.openshift.io/role";

/// What [`NODE_DRAIN_STATE`] says on a MachineConfigPool (OpenShift).
pub mod mcp_state {
    pub const IDLE: &str = "Idle";
    /// It is paused for a drain.
    pub const PAUSED: &str = "Paused";
}

/// The Go operator's name in objects that it wrote.
pub const GO_FIELD_MANAGER: &str = "sriov-network-operator";

/// The lease by which old versions of the Go operator let one node drain at a time.
pub const GO_DRAIN_LEASE: &str = "config-daemon-draining-lock";

/// The Go operator's finalizer of the operator config.
pub const GO_OPERATOR_CONFIG_FINALIZER: &str = "operatorconfig.finalizers.sriovnetwork.openshift.io";

/// The Go operator's finalizer of pools.
pub const GO_POOL_FINALIZER: &str = "poolconfig.finalizers.sriovnetwork.openshift.io";

/// The agent's DaemonSet, its container, and the value of its pods' label `app`.
pub const AGENT_DAEMON_SET: &str = "sriov-network-config-daemon";

/// The separate device plugin's DaemonSet, its account, its container, and the value of its pods' label `app`.
pub const DEVICE_PLUGIN_DAEMON_SET: &str = "sriov-device-plugin";

/// What the separate device plugin offers, one key a node.
pub const DEVICE_PLUGIN_CONFIG_MAP: &str = "device-plugin-config";

/// The value of [`DEVICE_PLUGIN_LABEL`] where the plugin runs.
pub const ENABLED: &str = "Enabled";

/// The value of [`DEVICE_PLUGIN_LABEL`] where it does not.
pub const DISABLED: &str = "Disabled";

/// On all that the operator deploys.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";

/// What the operator tells its agents by their environment. Those with "later" are settings of features that the agent
/// does not have yet: it ignores them until then.
pub mod agent_environment {
    /// The node that it runs on.
    pub const NODE_NAME: &str = "NODE_NAME";
    /// The namespace of node states.
    pub const NAMESPACE: &str = "NAMESPACE";
    /// `text` or `json`.
    pub const LOG_FORMAT: &str = "LOG_FORMAT";
    /// `kubernetes` or `openshift`; later.
    pub const CLUSTER_TYPE: &str = "CLUSTER_TYPE";
    /// `TRUE`: every card is reported, also one that [`super::SUPPORTED_NIC_IDS`] does not list.
    pub const DEV_MODE: &str = "DEV_MODE";
    /// `true`: somebody else drains nodes.
    pub const USE_EXTERNAL_DRAINER: &str = "USE_EXTERNAL_DRAINER";
    /// What stands before the names of resources; later.
    pub const RESOURCE_PREFIX: &str = "RESOURCE_PREFIX";
    /// `daemon` or `systemd`: who configures the cards.
    pub const CONFIGURATION_MODE: &str = "CONFIGURATION_MODE";
    /// Whether several cards are configured at once.
    pub const PARALLEL_NIC_CONFIG: &str = "PARALLEL_NIC_CONFIG";
    /// Whether bridges are made; later.
    pub const MANAGE_SOFTWARE_BRIDGES: &str = "MANAGE_SOFTWARE_BRIDGES";
    /// Whether a card's firmware may be reset instead of the machine.
    pub const MELLANOX_FIRMWARE_RESET: &str = "MELLANOX_FIRMWARE_RESET";
    /// Vendor support that is switched off, separated by commas.
    pub const DISABLE_PLUGINS: &str = "DISABLE_PLUGINS";
    /// The addresses of the node, separated by commas.
    pub const HOST_IPS: &str = "HOST_IPS";
    /// How many seconds what the node itself used stays protected after it was last seen.
    pub const HOST_PROTECTION_SECONDS: &str = "HOST_PROTECTION_SECONDS";
    /// Whether the separate device plugin on the node is held back while the node's VFs are changed.
    pub const HOLD_BACK_DEVICE_PLUGIN: &str = "HOLD_BACK_DEVICE_PLUGIN";
    /// Where metrics are served.
    pub const METRICS_BIND_ADDRESS: &str = "METRICS_BIND_ADDRESS";
    /// The socket of Open vSwitch's database on the host; later.
    pub const OVSDB_SOCKET_PATH: &str = "OVSDB_SOCKET_PATH";
}

/// The Service by which the API server reaches the operator's webhooks.
pub const WEBHOOK_SERVICE: &str = "vfleet-webhook";

/// The Secret with the certificates of the operator's webhooks.
pub const WEBHOOK_SECRET: &str = "vfleet-webhook-cert";

/// The webhook configurations (validating and mutating) for our own kinds are called so, a dot, and the operator's
/// namespace: each installation has its own.
pub const ADMISSION_CONFIGURATION: &str = "vfleet-admission";

/// The mutating webhook configuration for pods is called so, a dot, and the operator's namespace.
pub const INJECTOR_CONFIGURATION: &str = "vfleet-injector";

/// On the namespace of an operator, with its own name: objects in there are that installation's business. So are machine
/// configs with it.
pub const INSTALLATION_LABEL: &str = "vfleet.io/installation";

/// On a network in the operator's namespace, as long as its NetworkAttachmentDefinition may exist.
pub const NETWORK_FINALIZER: &str = "netattdef.finalizers.sriovnetwork.openshift.io";

/// On a network: the namespace that its NetworkAttachmentDefinition was put into.
pub const LAST_NETWORK_NAMESPACE: &str = "operator.sriovnetwork.openshift.io/last-network-namespace";

/// On a NetworkAttachmentDefinition: the network that it was made for.
pub const NAD_OWNER: &str = "sriovnetwork.openshift.io/owner-ref";

/// On a NetworkAttachmentDefinition: the resource that its devices are taken from.
pub const NAD_RESOURCE: &str = "k8s.v1.cni.cncf.io/resourceName";

/// On a NetworkAttachmentDefinition: the label of the nodes that its devices are on, as in `rack=a`.
pub const NAD_NODE_SELECTOR: &str = "k8s.v1.cni.cncf.io/nodeSelector";

/// On a pod: the networks that it is attached to besides the cluster's own.
pub const POD_NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";

/// On a pod: the network that it has in place of the cluster's own.
pub const POD_DEFAULT_NETWORK: &str = "v1.multus-cni.io/default-network";
