//! RBAC permissions of all programs, with their purpose. `vfleet manifests` generates the roles from this list.

use vfleet_api::keys::{SUPPORTED_NIC_IDS, WEBHOOK_SECRET};

/// Service account of a vfleet program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Account {
    /// `vfleet operator`.
    Operator,
    /// `vfleet agent`, with the name that the Go operator uses.
    Agent,
    /// Separate device plugin, if the operator deploys it.
    DevicePlugin,
    /// `vfleet sim`, which creates and simulates nodes. Not for production clusters.
    Sim,
}

impl Account {
    /// Returns the name of the service account.
    pub fn name(self) -> &'static str {
        match self {
            Self::Operator => "vfleet-operator",
            Self::Agent => "sriov-network-config-daemon",
            Self::DevicePlugin => "sriov-device-plugin",
            Self::Sim => "vfleet-sim",
        }
    }

    /// Returns the name of the roles and bindings. The Go operator does not use these names, because the role of an
    /// existing binding cannot be changed.
    pub fn role_name(self) -> &'static str {
        match self {
            Self::Operator => "vfleet-operator",
            Self::Agent => "vfleet-agent",
            Self::DevicePlugin => "vfleet-device-plugin",
            Self::Sim => "vfleet-sim",
        }
    }
}

/// Scope of a permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Namespace of the installation.
    OwnNamespace,
    /// All namespaces and cluster-scoped objects.
    Cluster,
}

/// Permission of accounts for resources.
#[derive(Clone, Copy, Debug)]
pub struct Permission {
    /// Accounts that have the permission.
    pub accounts: &'static [Account],
    /// Scope of the permission.
    pub scope: Scope,
    /// API group of the resources.
    pub group: &'static str,
    /// Resources, in plural.
    pub resources: &'static [&'static str],
    /// Names of the objects; empty for all. [`OWN_NAMESPACE`] is replaced by the namespace of the installation.
    pub names: &'static [&'static str],
    /// Allowed verbs.
    pub verbs: &'static [&'static str],
    /// Reason why the permission is needed.
    pub purpose: &'static str,
}

/// Placeholder in object names for the namespace of the installation.
pub const OWN_NAMESPACE: &str = "{namespace}";

/// Secret with the webhook certificate in charts of the Go operator. An administrator who uses another Secret has to
/// grant access to it.
const PROVIDED_SECRET: &str = "operator-webhook-cert";

const SRIOV: &str = "sriovnetwork.openshift.io";
const MACHINE_CONFIGURATION: &str = "machineconfiguration.openshift.io";
const NETWORKS: &[&str] = &["sriovnetworks", "sriovibnetworks", "ovsnetworks", "bridgenetworks"];
const NETWORKS_STATUS: &[&str] =
    &["sriovnetworks/status", "sriovibnetworks/status", "ovsnetworks/status", "bridgenetworks/status"];

const OPERATOR: &[Account] = &[Account::Operator];
const AGENTS: &[Account] = &[Account::Agent, Account::Sim];

const READ: &[&str] = &["get", "list", "watch"];
const WATCH: &[&str] = &["list", "watch"];

/// Permissions of all programs, except [`EXTERNAL_DRAINER_PERMISSIONS`] and [`BRIDGE_RESOURCE_PERMISSIONS`].
pub const PERMISSIONS: &[Permission] = &[
    // Operator, cluster-wide.
    cluster_wide(
        OPERATOR,
        "",
        &["nodes"],
        &["get", "list", "watch", "patch"],
        "select nodes by policies; set the label that lets the separate device plugin run; cordon",
    ),
    cluster_wide(
        OPERATOR,
        "",
        &["namespaces"],
        WATCH,
        "create the NAD of a network when its namespace is created",
    ),
    cluster_wide(
        OPERATOR,
        SRIOV,
        NETWORKS,
        &["list", "watch", "patch"],
        "reconcile networks of all namespaces; write their finalizer and annotation",
    ),
    cluster_wide(OPERATOR, SRIOV, NETWORKS_STATUS, &["patch"], "write conditions of networks"),
    cluster_wide(
        OPERATOR,
        "k8s.cni.cncf.io",
        &["network-attachment-definitions"],
        &["get", "list", "watch", "create", "patch", "delete"],
        "write NADs of networks in any namespace; read NADs that pods reference",
    ),
    cluster_wide(
        OPERATOR,
        "events.k8s.io",
        &["events"],
        &["create"],
        "record Events in the namespaces of the objects",
    ),
    cluster_wide(
        OPERATOR,
        "",
        &["pods"],
        &["list", "watch", "delete"],
        "watch pods of nodes during drains; restart DaemonSet pods, such as the separate device plugin, whose devices changed",
    ),
    cluster_wide(OPERATOR, "", &["pods/eviction"], &["create"], "drain nodes within disruption budgets"),
    cluster_wide(
        OPERATOR,
        "policy",
        &["poddisruptionbudgets"],
        &["list"],
        "name the disruption budget that blocks an eviction",
    ),
    Permission {
        names: crate::components::manifests::GO_WEBHOOK_CONFIGURATIONS,
        ..cluster_wide(
            OPERATOR,
            "admissionregistration.k8s.io",
            &["mutatingwebhookconfigurations", "validatingwebhookconfigurations"],
            &["get", "delete"],
            "delete webhook configurations of the Go operator, which would block all writes without their server",
        )
    },
    Permission {
        names: &["vfleet-admission.{namespace}"],
        ..cluster_wide(
            OPERATOR,
            "admissionregistration.k8s.io",
            &["validatingwebhookconfigurations"],
            &["list", "watch", "patch"],
            "configure the validating webhook and its CA certificate",
        )
    },
    Permission {
        names: &["vfleet-admission.{namespace}", "vfleet-injector.{namespace}"],
        ..cluster_wide(
            OPERATOR,
            "admissionregistration.k8s.io",
            &["mutatingwebhookconfigurations"],
            &["list", "watch", "patch"],
            "configure the mutating webhooks and their CA certificate",
        )
    },
    cluster_wide(
        OPERATOR,
        MACHINE_CONFIGURATION,
        &["machineconfigpools"],
        &["list", "watch", "patch"],
        "pause a machine config pool (OpenShift) while its nodes are drained",
    ),
    cluster_wide(
        OPERATOR,
        MACHINE_CONFIGURATION,
        &["machineconfigs"],
        &["get", "list", "watch", "create", "patch", "delete"],
        "find the machine config pool (OpenShift) of a node; write the machine config for Open vSwitch hardware offload",
    ),
    Permission {
        names: &["cluster"],
        ..cluster_wide(
            OPERATOR,
            "config.openshift.io",
            &["infrastructures"],
            &["get"],
            "detect hosted control planes (OpenShift)",
        )
    },
    // Operator, in its namespace.
    in_namespace(
        OPERATOR,
        SRIOV,
        &["sriovnetworknodepolicies"],
        WATCH,
        "read policies, the desired configuration",
    ),
    in_namespace(
        OPERATOR,
        SRIOV,
        &["sriovnetworkpoolconfigs"],
        &["get", "list", "watch", "create", "patch"],
        "read pools; create the default pool; remove the finalizer of the Go operator from deleted pools",
    ),
    in_namespace(
        OPERATOR,
        SRIOV,
        &[
            "sriovnetworknodepolicies/status",
            "sriovnetworknodestates/status",
            "sriovnetworkpoolconfigs/status",
            "sriovoperatorconfigs/status",
        ],
        &["patch"],
        "write counts, conditions, drain status and slots",
    ),
    in_namespace(
        OPERATOR,
        SRIOV,
        &["sriovnetworknodestates"],
        &["get", "list", "watch", "create", "patch", "delete"],
        "write the desired state of nodes; delete it some time after its node",
    ),
    in_namespace(
        OPERATOR,
        SRIOV,
        &["sriovoperatorconfigs"],
        &["list", "watch", "create", "patch"],
        "read the operator config; create it if it is missing; remove the finalizer of the Go operator",
    ),
    in_namespace(
        OPERATOR,
        "apps",
        &["daemonsets"],
        &["list", "watch", "create", "patch", "delete"],
        "deploy the agent and the separate device plugin",
    ),
    in_namespace(
        OPERATOR,
        "",
        &["serviceaccounts"],
        &["list", "watch", "create", "patch", "delete"],
        "deploy the account of the separate device plugin",
    ),
    in_namespace(
        OPERATOR,
        "",
        &["configmaps"],
        &["list", "watch", "create", "patch", "delete"],
        "write the config of the separate device plugin; read the supported NIC IDs",
    ),
    in_namespace(
        OPERATOR,
        "",
        &["pods"],
        &["get", "patch"],
        "find its own image; record on pods of the separate device plugin what they started with",
    ),
    in_namespace(
        OPERATOR,
        "coordination.k8s.io",
        &["leases"],
        &["get", "list", "watch", "create", "update", "delete"],
        "elect a leader; delete a lease of old versions of the Go operator",
    ),
    Permission {
        names: &[WEBHOOK_SECRET],
        ..in_namespace(
            OPERATOR,
            "",
            &["secrets"],
            &["get", "list", "watch", "patch"],
            "write and renew its own webhook certificate",
        )
    },
    Permission {
        names: &[PROVIDED_SECRET],
        ..in_namespace(
            OPERATOR,
            "",
            &["secrets"],
            &["get", "list", "watch"],
            "read a webhook certificate that an administrator provides",
        )
    },
    // Agents.
    in_namespace(AGENTS, SRIOV, &["sriovnetworknodestates"], READ, "read the desired state of its node"),
    in_namespace(
        AGENTS,
        SRIOV,
        &["sriovnetworknodestates/status"],
        &["patch"],
        "report the state of its node; limited to its own node by node-scope.yaml",
    ),
    in_namespace(AGENTS, "events.k8s.io", &["events"], &["create"], "record Events about its node state"),
    in_namespace(
        &[Account::Agent],
        SRIOV,
        &["sriovoperatorconfigs"],
        WATCH,
        "read the log level, which can change at run time",
    ),
    in_namespace(
        &[Account::Agent],
        "",
        &["pods"],
        &["list", "watch", "patch", "delete"],
        "hold back the separate device plugin on its node while VFs change; limited by node-scope.yaml",
    ),
    Permission {
        names: &[SUPPORTED_NIC_IDS],
        ..in_namespace(&[Account::Agent], "", &["configmaps"], WATCH, "read the supported NIC IDs")
    },
    cluster_wide(
        &[Account::Agent],
        "",
        &["nodes"],
        READ,
        "read provider ID, addresses and drain annotations of its node",
    ),
    in_namespace(
        &[Account::DevicePlugin],
        "",
        &["pods"],
        &["list", "watch", "patch"],
        "let its init container annotate its own pod and wait for the agent; limited by node-scope.yaml",
    ),
    Permission {
        names: &["privileged"],
        ..in_namespace(
            &[Account::Agent, Account::DevicePlugin],
            "security.openshift.io",
            &["securitycontextconstraints"],
            &["use"],
            "run privileged pods on OpenShift; without effect elsewhere",
        )
    },
    cluster_wide(
        &[Account::Sim],
        "",
        &["nodes"],
        &["get", "create", "delete"],
        "create and delete simulated nodes",
    ),
];

/// Additional permissions of agents in clusters with an external drainer.
pub const EXTERNAL_DRAINER_PERMISSIONS: &[Permission] = &[
    in_namespace(
        &[Account::Agent],
        SRIOV,
        &["sriovnetworknodestates"],
        &["patch"],
        "write annotations for an external drainer; limited to these by node-scope.yaml",
    ),
    cluster_wide(
        &[Account::Agent],
        "",
        &["nodes"],
        &["patch"],
        "write annotations for an external drainer; limited to these by node-scope.yaml",
    ),
];

/// Name of the roles with [`EXTERNAL_DRAINER_PERMISSIONS`].
pub const EXTERNAL_DRAINER_ROLE: &str = "vfleet-agent-external-drainer";

/// Additional permissions of agents in clusters with the feature gate ovsBridgeResources.
pub const BRIDGE_RESOURCE_PERMISSIONS: &[Permission] = &[cluster_wide(
    &[Account::Agent],
    "",
    &["nodes/status"],
    &["patch"],
    "report Open vSwitch bridges in the capacity of its node; limited to these resources by node-scope.yaml",
)];

/// Name of the role with [`BRIDGE_RESOURCE_PERMISSIONS`].
pub const BRIDGE_RESOURCE_ROLE: &str = "vfleet-agent-ovs-bridge-resources";

/// Lists of permissions for clusters that use a feature, each in a manifest of its own.
#[cfg(test)]
const ADDITIONAL_PERMISSIONS: [&[Permission]; 2] =
    [EXTERNAL_DRAINER_PERMISSIONS, BRIDGE_RESOURCE_PERMISSIONS];

const fn cluster_wide(
    accounts: &'static [Account],
    group: &'static str,
    resources: &'static [&'static str],
    verbs: &'static [&'static str],
    purpose: &'static str,
) -> Permission {
    Permission { accounts, scope: Scope::Cluster, group, resources, names: &[], verbs, purpose }
}

const fn in_namespace(
    accounts: &'static [Account],
    group: &'static str,
    resources: &'static [&'static str],
    verbs: &'static [&'static str],
    purpose: &'static str,
) -> Permission {
    Permission { scope: Scope::OwnNamespace, ..cluster_wide(accounts, group, resources, verbs, purpose) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_permission_has_a_purpose_and_no_wildcards() {
        for permission in PERMISSIONS.iter().chain(ADDITIONAL_PERMISSIONS.into_iter().flatten()) {
            assert!(permission.purpose.split(' ').count() > 2, "{permission:?}: name the purpose");
            assert!(
                !permission.accounts.is_empty()
                    && !permission.resources.is_empty()
                    && !permission.verbs.is_empty(),
                "{permission:?}"
            );
            for word in permission.resources.iter().chain(permission.verbs) {
                assert!(!word.contains('*'), "{permission:?}: wildcards are too broad");
            }
        }
    }

    #[test]
    fn no_permission_is_listed_twice() {
        for (at, permission) in PERMISSIONS.iter().enumerate() {
            for other in &PERMISSIONS[at + 1..] {
                let shares = |a: &[&str], b: &[&str]| a.iter().any(|word| b.contains(word));
                let same_account = permission.accounts.iter().any(|account| other.accounts.contains(account));
                let same = same_account
                    && permission.group == other.group
                    && shares(permission.resources, other.resources)
                    && (permission.scope == other.scope || shares(permission.verbs, other.verbs))
                    && (permission.names.is_empty()
                        || other.names.is_empty()
                        || shares(permission.names, other.names));
                assert!(!same, "{permission:?} and {other:?} overlap");
            }
        }
    }
}
