//! The kinds of objects that are looked at as plain data.

use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};

/// A kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    State,
    Policy,
    Pool,
    Config,
    Network,
    IbNetwork,
    OvsNetwork,
    Attachment,
    DaemonSet,
    ConfigMap,
}

impl Kind {
    fn names(self) -> (&'static str, &'static str, &'static str) {
        const OURS: &str = "sriovnetwork.openshift.io";
        match self {
            Self::State => (OURS, "SriovNetworkNodeState", "sriovnetworknodestates"),
            Self::Policy => (OURS, "SriovNetworkNodePolicy", "sriovnetworknodepolicies"),
            Self::Pool => (OURS, "SriovNetworkPoolConfig", "sriovnetworkpoolconfigs"),
            Self::Config => (OURS, "SriovOperatorConfig", "sriovoperatorconfigs"),
            Self::Network => (OURS, "SriovNetwork", "sriovnetworks"),
            Self::IbNetwork => (OURS, "SriovIBNetwork", "sriovibnetworks"),
            Self::OvsNetwork => (OURS, "OVSNetwork", "ovsnetworks"),
            Self::Attachment => {
                ("k8s.cni.cncf.io", "NetworkAttachmentDefinition", "network-attachment-definitions")
            }
            Self::DaemonSet => ("apps", "DaemonSet", "daemonsets"),
            Self::ConfigMap => ("", "ConfigMap", "configmaps"),
        }
    }

    /// Its name in commands.
    pub fn plural(self) -> String {
        let (group, _, plural) = self.names();
        if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") }
    }

    /// The objects of this kind.
    pub fn api(self, client: &Client, namespace: &str) -> Api<DynamicObject> {
        let (group, kind, plural) = self.names();
        let kind = GroupVersionKind::gvk(group, "v1", kind);
        Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk_with_plural(&kind, plural))
    }
}
