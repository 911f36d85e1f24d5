//! Names that other programs depend on: labels, annotations, finalizers, object names, field managers and environment
//! variables.

/// Mark in `external_ids` of Open vSwitch bridges and ports that vfleet created: the PCI address of the uplink.
pub const OVS_UPLINK: &str = "vfleet.io/uplink";

/// Entry in `external_ids` of Open vSwitch bridges: keys that vfleet set, as JSON.
pub const OVS_KEYS: &str = "vfleet.io/keys";

/// Domain of the resources by which a Node reports the Open vSwitch bridges of its machine. A slash and the name of the
/// bridge follow. ovs-cni gave it its name, and NetworkAttachmentDefinitions of its users request these resources.
pub const BRIDGE_RESOURCE_DOMAIN: &str = "ovs-cni.network.kubevirt.io";

/// Default namespace of the operator and its objects.
pub const DEFAULT_NAMESPACE: &str = "sriov-network-operator";

/// Default prefix of resource names.
pub const DEFAULT_RESOURCE_PREFIX: &str = "openshift.io";

/// Name of the only operator config that is used.
pub const OPERATOR_CONFIG: &str = "default";

/// Name of a policy that old installations leave behind. It is ignored.
pub const IGNORED_POLICY: &str = "default";

/// Name of the pool for nodes that no other pool selects.
pub const DEFAULT_POOL: &str = "default";

/// Field manager of the operator in server-side apply.
pub const OPERATOR_FIELD_MANAGER: &str = "vfleet-operator";

/// Name of the Lease that the leading replica of the operator holds.
pub const LEASE: &str = "vfleet-operator";

/// Field manager of the agent in server-side apply.
pub const AGENT_FIELD_MANAGER: &str = "vfleet-agent";

/// Node label (any value) that selects nodes for an agent, unless the operator config has a node selector.
pub const WORKER_LABEL: &str = "node-role.kubernetes.io/worker";

/// Node label with the operating system, set by the kubelet.
pub const OS_LABEL: &str = "kubernetes.io/os";

/// Annotation of a node state whose node does not exist: time until which it is kept (RFC 3339, UTC).
pub const KEEP_STATE_UNTIL: &str = "sriovnetwork.openshift.io/keep-state-until";

/// Node label, `Enabled` or `Disabled`: the Go device plugin runs on the node or not.
pub const DEVICE_PLUGIN_LABEL: &str = "sriovnetwork.openshift.io/device-plugin";

/// Annotation of a Go device plugin pod: fingerprint of the configuration and VFs at its start.
pub const DEVICE_PLUGIN_STARTED_WITH: &str = "vfleet.io/started-with";

/// Annotation of a Go device plugin pod, `true`: the pod waits for the VFs of its node. The agent removes it.
pub const DEVICE_PLUGIN_WAITS: &str = "sriovnetwork.openshift.io/device-plugin-wait-config";

/// ConfigMap with the PCI IDs of supported PFs and of their VFs.
pub const SUPPORTED_NIC_IDS: &str = "supported-nic-ids";

/// Label of nodes that `vfleet sim` creates, which have no machine.
pub const SIMULATED_LABEL: &str = "vfleet.io/simulated";

/// Annotation of a node that is being drained: `ours` if vfleet cordoned the node, `found` if it was cordoned before.
pub const CORDON: &str = "vfleet.io/cordon";

/// Annotation of a node that is being drained: the drain request (the time at which the agent requested the drain), and
/// the namespace of the operator that drains the node.
pub const DRAIN_REQUEST: &str = "vfleet.io/drain-request";

/// Annotation of a node: the last drain request that is finished. This and earlier requests are ignored.
pub const LAST_DRAIN: &str = "vfleet.io/last-drain";

/// Annotation of a node: request of the agent to an external drainer ([`drain_request`]). The Go operator also sets it
/// without an external drainer.
pub const NODE_DRAIN_STATE: &str = "sriovnetwork.openshift.io/state";

/// Annotation of a node state: the same request as [`NODE_DRAIN_STATE`].
pub const DESIRED_DRAIN_STATE: &str = "sriovnetwork.openshift.io/desired-state";

/// Annotation of a node state: progress of an external drainer ([`drain_progress`]).
pub const CURRENT_DRAIN_STATE: &str = "sriovnetwork.openshift.io/current-state";

/// Annotation of a node state, `true`: an external drainer drains the node.
pub const USE_EXTERNAL_DRAINER: &str = "sriovnetwork.openshift.io/use-external-drainer";

/// Values of drain requests in annotations.
pub mod drain_request {
    pub const IDLE: &str = "Idle";
    /// Evict pods that request resources of SR-IOV policies.
    pub const DRAIN: &str = "Drain_Required";
    /// Evict all pods.
    pub const REBOOT: &str = "Reboot_Required";
}

/// Values of the progress of a drainer in annotations.
pub mod drain_progress {
    pub const IDLE: &str = "Idle";
    pub const DRAINING: &str = "Draining";
    pub const COMPLETE: &str = "DrainComplete";
}

/// Annotation of a node (OpenShift): its desired MachineConfig.
pub const DESIRED_MACHINE_CONFIG: &str = "machineconfiguration.openshift.io/desiredConfig";

/// Label of a MachineConfig (OpenShift): its MachineConfigPool.
pub const MACHINE_CONFIG_ROLE: &str = "machineconfiguration.openshift.io/role";

/// Values of [`NODE_DRAIN_STATE`] on a MachineConfigPool (OpenShift).
pub mod mcp_state {
    pub const IDLE: &str = "Idle";
    /// The MachineConfigPool is paused for a drain.
    pub const PAUSED: &str = "Paused";
}

/// Field manager of the Go operator.
pub const GO_FIELD_MANAGER: &str = "sriov-network-operator";

/// Lease by which old versions of the Go operator drain one node at a time.
pub const GO_DRAIN_LEASE: &str = "config-daemon-draining-lock";

/// Finalizer of the Go operator on the operator config.
pub const GO_OPERATOR_CONFIG_FINALIZER: &str = "operatorconfig.finalizers.sriovnetwork.openshift.io";

/// Finalizer of the Go operator on pools.
pub const GO_POOL_FINALIZER: &str = "poolconfig.finalizers.sriovnetwork.openshift.io";

/// Name of the DaemonSet and the container of the agent, and value of the pod label `app`.
pub const AGENT_DAEMON_SET: &str = "sriov-network-config-daemon";

/// Name of the DaemonSet, service account and container of the Go device plugin, and value of the pod label `app`.
pub const DEVICE_PLUGIN_DAEMON_SET: &str = "sriov-device-plugin";

/// ConfigMap with the configuration of the Go device plugin, one key per node.
pub const DEVICE_PLUGIN_CONFIG_MAP: &str = "device-plugin-config";

/// Value of [`DEVICE_PLUGIN_LABEL`] on nodes that run the Go device plugin.
pub const ENABLED: &str = "Enabled";

/// Value of [`DEVICE_PLUGIN_LABEL`] on nodes that do not run the Go device plugin.
pub const DISABLED: &str = "Disabled";

/// Label of all objects that the operator deploys.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";

/// Environment variables that the operator sets for its agents. Agents ignore those that are marked as unused: they are
/// settings of features that the agent does not have yet.
pub mod agent_environment {
    /// Name of the node.
    pub const NODE_NAME: &str = "NODE_NAME";
    /// Namespace of node states.
    pub const NAMESPACE: &str = "NAMESPACE";
    /// Log format: `text` or `json`.
    pub const LOG_FORMAT: &str = "LOG_FORMAT";
    /// Cluster type: `kubernetes` or `openshift`. Unused.
    pub const CLUSTER_TYPE: &str = "CLUSTER_TYPE";
    /// `TRUE`: report every card, including cards that [`super::SUPPORTED_NIC_IDS`] does not list.
    pub const DEV_MODE: &str = "DEV_MODE";
    /// `true`: an external drainer drains nodes.
    pub const USE_EXTERNAL_DRAINER: &str = "USE_EXTERNAL_DRAINER";
    /// Prefix of resource names. Unused.
    pub const RESOURCE_PREFIX: &str = "RESOURCE_PREFIX";
    /// Configuration mode: `daemon` or `systemd`.
    pub const CONFIGURATION_MODE: &str = "CONFIGURATION_MODE";
    /// `true`: configure several cards in parallel.
    pub const PARALLEL_NIC_CONFIG: &str = "PARALLEL_NIC_CONFIG";
    /// `true`: manage software bridges.
    pub const MANAGE_SOFTWARE_BRIDGES: &str = "MANAGE_SOFTWARE_BRIDGES";
    /// `true`: report Open vSwitch bridges as resources of the Node.
    pub const OVS_BRIDGE_RESOURCES: &str = "OVS_BRIDGE_RESOURCES";
    /// `true`: reset the firmware of a card instead of rebooting the node.
    pub const MELLANOX_FIRMWARE_RESET: &str = "MELLANOX_FIRMWARE_RESET";
    /// Disabled vendor plugins, separated by commas.
    pub const DISABLE_PLUGINS: &str = "DISABLE_PLUGINS";
    /// IP addresses of the node, separated by commas.
    pub const HOST_IPS: &str = "HOST_IPS";
    /// Seconds for which a PF or VF stays protected after its last use by the node itself.
    pub const HOST_PROTECTION_SECONDS: &str = "HOST_PROTECTION_SECONDS";
    /// `true`: keep the Go device plugin on the node from starting while VFs change.
    pub const HOLD_BACK_DEVICE_PLUGIN: &str = "HOLD_BACK_DEVICE_PLUGIN";
    /// `true`: the Go device plugin announces the VFs of the node.
    pub const GO_DEVICE_PLUGIN: &str = "GO_DEVICE_PLUGIN";
    /// Address at which metrics are served.
    pub const METRICS_BIND_ADDRESS: &str = "METRICS_BIND_ADDRESS";
    /// Directory of CNI plugins on the host.
    pub const CNI_BIN_PATH: &str = "SRIOV_CNI_BIN_PATH";
    /// Names of plugins that other programs provide, separated by commas.
    pub const OTHER_CNI_PLUGINS: &str = "OTHER_CNI_PLUGINS";
    /// Socket of the Open vSwitch database on the host.
    pub const OVSDB_SOCKET_PATH: &str = "OVSDB_SOCKET_PATH";
}

/// Service of the webhooks of the operator.
pub const WEBHOOK_SERVICE: &str = "vfleet-webhook";

/// Secret with the certificates of the webhooks.
pub const WEBHOOK_SECRET: &str = "vfleet-webhook-cert";

/// Prefix of the names of the validating and mutating webhook configurations for vfleet's kinds. A dot and the
/// namespace of the operator follow, so that each installation has its own.
pub const ADMISSION_CONFIGURATION: &str = "vfleet-admission";

/// Prefix of the name of the mutating webhook configuration for pods. A dot and the namespace of the operator follow.
pub const INJECTOR_CONFIGURATION: &str = "vfleet-injector";

/// Label of the namespace of an operator, with the name of the namespace: objects in the namespace, and MachineConfigs
/// with this label, belong to that installation.
pub const INSTALLATION_LABEL: &str = "vfleet.io/installation";

/// Finalizer of a network in the namespace of the operator, as long as its NetworkAttachmentDefinition may exist.
pub const NETWORK_FINALIZER: &str = "netattdef.finalizers.sriovnetwork.openshift.io";

/// Annotation of a network: last namespace of its NetworkAttachmentDefinition.
pub const LAST_NETWORK_NAMESPACE: &str = "operator.sriovnetwork.openshift.io/last-network-namespace";

/// Annotation of a NetworkAttachmentDefinition: its network.
pub const NAD_OWNER: &str = "sriovnetwork.openshift.io/owner-ref";

/// Annotation of a NetworkAttachmentDefinition: resource that provides its devices.
pub const NAD_RESOURCE: &str = "k8s.v1.cni.cncf.io/resourceName";

/// Annotation of a NetworkAttachmentDefinition: label of the nodes with its devices, such as `rack=a`.
pub const NAD_NODE_SELECTOR: &str = "k8s.v1.cni.cncf.io/nodeSelector";

/// Annotation of a pod: its additional networks.
pub const POD_NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";

/// Annotation of a pod: network that replaces the default network of the cluster.
pub const POD_DEFAULT_NETWORK: &str = "v1.multus-cni.io/default-network";
