//! Who may do what in the cluster, and why. This is the one list: `vfleet manifests` writes the roles from it.

use vfleet_api::keys::{SUPPORTED_NIC_IDS, WEBHOOK_SECRET};

/// A service account that a program of vfleet runs as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Account {
    /// `vfleet operator`.
    Operator,
    /// `vfleet agent`, in the Go operator's DaemonSet, so under the name that it has there.
    Agent,
    /// The separate device plugin, when the operator deploys it.
    DevicePlugin,
    /// `vfleet sim`, which plays many nodes and makes them. Not for a cluster that does real work.
    Sim,
}

impl Account {
    /// The name of the service account.
    pub fn name(self) -> &'static str {
        match self {
            Self::Operator => "vfleet-operator",
            Self::Agent => "sriov-network-config-daemon",
            Self::DevicePlugin => "sriov-device-plugin",
            Self::Sim => "vfleet-sim",
        }
    }

    /// The name of its roles and their bindings: never one that the Go operator uses, since what a binding binds
    /// cannot be changed.
    pub fn role_name(self) -> &'static str {
        match self {
            Self::Operator => "vfleet-operator",
            Self::Agent => "vfleet-agent",
            Self::DevicePlugin => "vfleet-device-plugin",
            Self::Sim => "vfleet-sim",
        }
    }
}

/// Where something may be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// In the namespace that vfleet is installed in.
    OwnNamespace,
    /// Everywhere.
    Cluster,
}

/// What some accounts may do to some resources.
#[derive(Clone, Copy, Debug)]
pub struct Right {
    /// Who.
    pub accounts: &'static [Account],
    /// Where.
    pub scope: Scope,
    /// The API group of the resources.
    pub group: &'static str,
    /// The resources.
    pub resources: &'static [&'static str],
    /// Only objects of these names; all when empty. [`OWN_NAMESPACE`] stands for the name of the namespace that vfleet is
    /// installed in.
    pub names: &'static [&'static str],
    /// What they may do.
    pub verbs: &'static [&'static str],
    /// What for.
    pub why: &'static str,
}

/// In names of objects: the namespace that vfleet is installed in.
pub const OWN_NAMESPACE: &str = "{namespace}";

/// The Secret with a certificate for webhooks that charts for the Go operator use. Whoever takes another one gives the
/// operator a role for it.
const PROVIDED_SECRET: &str = "operator-webhook-cert";

const SRIOV: &str = "sriovnetwork.openshift.io";
const MACHINE_CONFIGURATION: &str = "machineconfiguration.openshift.io";
const NETWORKS: &[&str] = &["sriovnetworks", "sriovibnetworks", "ovsnetworks", "bridgenetworks"];
const NETWORKS_STATUS: &[&str] =
    &["sriovnetworks/status", "sriovibnetworks/status", "ovsnetworks/status", "bridgenetworks/status"];

const OPERATOR: &[Account] = &[Account::Operator];
const AGENTS: &[Account] = &[Account::Agent, Account::Sim];

const READ: &[&str] = &["get", "list", "watch"];
const FOLLOW: &[&str] = &["list", "watch"];

/// All rights of all programs, but for [`FOR_EXTERNAL_DRAINER`].
pub const RIGHTS: &[Right] = &[
    // The operator, everywhere.
    cluster(
        OPERATOR,
        "",
        &["nodes"],
        &["get", "list", "watch", "patch"],
        "which nodes a policy selects; the label that lets the separate device plugin run there; the cordon",
    ),
    cluster(OPERATOR, "", &["namespaces"], FOLLOW, "a network may name a namespace that does not exist yet"),
    cluster(
        OPERATOR,
        SRIOV,
        NETWORKS,
        &["list", "watch", "patch"],
        "networks of all namespaces are served; their finalizer and annotation are written",
    ),
    cluster(OPERATOR, SRIOV, NETWORKS_STATUS, &["patch"], "a network's conditions"),
    cluster(
        OPERATOR,
        "k8s.cni.cncf.io",
        &["network-attachment-definitions"],
        &["get", "list", "watch", "create", "patch", "delete"],
        "what networks become, in whatever namespace they name; the one that a pod names",
    ),
    cluster(
        OPERATOR,
        "events.k8s.io",
        &["events"],
        &["create"],
        "an Event stands in the namespace of the object it is about",
    ),
    cluster(
        OPERATOR,
        "",
        &["pods"],
        &["list", "watch", "delete"],
        "pods of nodes that are drained, until they are gone; those of DaemonSets, also of the separate device plugin, \
         start again where devices changed",
    ),
    cluster(OPERATOR, "", &["pods/eviction"], &["create"], "nodes are drained as disruption budgets allow"),
    cluster(
        OPERATOR,
        "policy",
        &["poddisruptionbudgets"],
        &["list"],
        "the budget that does not let a pod be evicted is named",
    ),
    Right {
        names: crate::components::deployed::GO_WEBHOOK_CONFIGURATIONS,
        ..cluster(
            OPERATOR,
            "admissionregistration.k8s.io",
            &["mutatingwebhookconfigurations", "validatingwebhookconfigurations"],
            &["get", "delete"],
            "webhooks that the Go operator left and nobody serves would block every write",
        )
    },
    Right {
        names: &["vfleet-admission.{namespace}"],
        ..cluster(
            OPERATOR,
            "admissionregistration.k8s.io",
            &["validatingwebhookconfigurations"],
            &["list", "watch", "patch"],
            "the API server is told to ask the operator about objects, and whom to trust",
        )
    },
    Right {
        names: &["vfleet-admission.{namespace}", "vfleet-injector.{namespace}"],
        ..cluster(
            OPERATOR,
            "admissionregistration.k8s.io",
            &["mutatingwebhookconfigurations"],
            &["list", "watch", "patch"],
            "the same for what is added to objects and pods",
        )
    },
    cluster(
        OPERATOR,
        MACHINE_CONFIGURATION,
        &["machineconfigpools"],
        &["list", "watch", "patch"],
        "on OpenShift a machine config pool is paused while nodes of it are drained",
    ),
    cluster(
        OPERATOR,
        MACHINE_CONFIGURATION,
        &["machineconfigs"],
        &["get", "list", "watch", "create", "patch", "delete"],
        "on OpenShift a node's machine config names its pool; the one for Open vSwitch hardware offload is made",
    ),
    Right {
        names: &["cluster"],
        ..cluster(
            OPERATOR,
            "config.openshift.io",
            &["infrastructures"],
            &["get"],
            "whether the control plane of an OpenShift cluster is elsewhere",
        )
    },
    // The operator, at home.
    at_home(OPERATOR, SRIOV, &["sriovnetworknodepolicies"], FOLLOW, "what is wanted"),
    at_home(
        OPERATOR,
        SRIOV,
        &["sriovnetworkpoolconfigs"],
        &["get", "list", "watch", "create", "patch"],
        "which nodes go together; the default pool, made when missing; the Go operator's finalizer on a pool that is deleted",
    ),
    at_home(
        OPERATOR,
        SRIOV,
        &[
            "sriovnetworknodepolicies/status",
            "sriovnetworknodestates/status",
            "sriovnetworkpoolconfigs/status",
            "sriovoperatorconfigs/status",
        ],
        &["patch"],
        "counts and conditions; how far a node's drain is, and a pool's slots",
    ),
    at_home(
        OPERATOR,
        SRIOV,
        &["sriovnetworknodestates"],
        &["get", "list", "watch", "create", "patch", "delete"],
        "what each node shall be like; removed when the node is gone for long",
    ),
    at_home(
        OPERATOR,
        SRIOV,
        &["sriovoperatorconfigs"],
        &["list", "watch", "create", "patch"],
        "the settings, made when missing; the Go operator's finalizer is taken off",
    ),
    at_home(
        OPERATOR,
        "apps",
        &["daemonsets"],
        &["list", "watch", "create", "patch", "delete"],
        "the agent and the separate device plugin",
    ),
    at_home(
        OPERATOR,
        "",
        &["serviceaccounts"],
        &["list", "watch", "create", "patch", "delete"],
        "the account of the separate device plugin",
    ),
    at_home(
        OPERATOR,
        "",
        &["configmaps"],
        &["list", "watch", "create", "patch", "delete"],
        "the separate device plugin's configuration, and known card models",
    ),
    at_home(
        OPERATOR,
        "",
        &["pods"],
        &["get", "patch"],
        "its own image; what a pod of the separate device plugin started with is noted on it",
    ),
    at_home(
        OPERATOR,
        "coordination.k8s.io",
        &["leases"],
        &["get", "list", "watch", "create", "update", "delete"],
        "one of several replicas leads; a lock of older versions of the Go operator goes",
    ),
    Right {
        names: &[WEBHOOK_SECRET],
        ..at_home(
            OPERATOR,
            "",
            &["secrets"],
            &["get", "list", "watch", "patch"],
            "its own certificate of the webhooks, renewed before it ends",
        )
    },
    Right {
        names: &[PROVIDED_SECRET],
        ..at_home(
            OPERATOR,
            "",
            &["secrets"],
            &["get", "list", "watch"],
            "the certificate of the webhooks that somebody provides instead",
        )
    },
    // Agents.
    at_home(AGENTS, SRIOV, &["sriovnetworknodestates"], READ, "what its node shall be like"),
    at_home(
        AGENTS,
        SRIOV,
        &["sriovnetworknodestates/status"],
        &["patch"],
        "what its node is like; node-scope.yaml narrows it to its own node",
    ),
    at_home(AGENTS, "events.k8s.io", &["events"], &["create"], "Events about its node state"),
    at_home(
        &[Account::Agent],
        SRIOV,
        &["sriovoperatorconfigs"],
        FOLLOW,
        "the log level changes while it runs",
    ),
    at_home(
        &[Account::Agent],
        "",
        &["pods"],
        &["list", "watch", "patch", "delete"],
        "the separate device plugin on its node is held back while VFs change; node-scope.yaml narrows it",
    ),
    Right {
        names: &[SUPPORTED_NIC_IDS],
        ..at_home(&[Account::Agent], "", &["configmaps"], FOLLOW, "the kinds of cards that are reported")
    },
    cluster(&[Account::Agent], "", &["nodes"], READ, "its node's cloud, addresses and last drain"),
    at_home(
        &[Account::DevicePlugin],
        "",
        &["pods"],
        &["list", "watch", "patch"],
        "its init container says on its own pod that it waits, and waits; node-scope.yaml narrows it",
    ),
    Right {
        names: &["privileged"],
        ..at_home(
            &[Account::Agent, Account::DevicePlugin],
            "security.openshift.io",
            &["securitycontextconstraints"],
            &["use"],
            "on OpenShift a privileged pod needs this; elsewhere it means nothing",
        )
    },
    cluster(
        &[Account::Sim],
        "",
        &["nodes"],
        &["get", "create", "delete"],
        "simulated nodes are made and removed",
    ),
];

/// What agents may do as well where somebody else drains nodes. Only such a cluster is given it.
pub const FOR_EXTERNAL_DRAINER: &[Right] = &[
    at_home(
        &[Account::Agent],
        SRIOV,
        &["sriovnetworknodestates"],
        &["patch"],
        "annotations for an external drainer, to which node-scope.yaml narrows it",
    ),
    cluster(
        &[Account::Agent],
        "",
        &["nodes"],
        &["patch"],
        "annotations for an external drainer, to which node-scope.yaml narrows it",
    ),
];

/// The name of the roles with [`FOR_EXTERNAL_DRAINER`].
pub const EXTERNAL_DRAINER_ROLE: &str = "vfleet-agent-external-drainer";

const fn cluster(
    accounts: &'static [Account],
    group: &'static str,
    resources: &'static [&'static str],
    verbs: &'static [&'static str],
    why: &'static str,
) -> Right {
    Right { accounts, scope: Scope::Cluster, group, resources, names: &[], verbs, why }
}

const fn at_home(
    accounts: &'static [Account],
    group: &'static str,
    resources: &'static [&'static str],
    verbs: &'static [&'static str],
    why: &'static str,
) -> Right {
    Right { scope: Scope::OwnNamespace, ..cluster(accounts, group, resources, verbs, why) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_right_has_a_reason_and_names_all_it_gives() {
        for right in RIGHTS.iter().chain(FOR_EXTERNAL_DRAINER) {
            assert!(right.why.split(' ').count() > 2, "{right:?}: say what for");
            assert!(
                !right.accounts.is_empty() && !right.resources.is_empty() && !right.verbs.is_empty(),
                "{right:?}"
            );
            for word in right.resources.iter().chain(right.verbs) {
                assert!(!word.contains('*'), "{right:?}: everything is more than anybody needs");
            }
        }
    }

    #[test]
    fn nothing_is_given_twice() {
        for (at, right) in RIGHTS.iter().enumerate() {
            for other in &RIGHTS[at + 1..] {
                let shares = |a: &[&str], b: &[&str]| a.iter().any(|word| b.contains(word));
                let same_account = right.accounts.iter().any(|account| other.accounts.contains(account));
                let same = same_account
                    && right.group == other.group
                    && shares(right.resources, other.resources)
                    && (right.scope == other.scope || shares(right.verbs, other.verbs))
                    && (right.names.is_empty() || other.names.is_empty() || shares(right.names, other.names));
                assert!(!same, "{right:?} and {other:?} speak about the same thing");
            }
        }
    }
}
