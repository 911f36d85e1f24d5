//! Kinds of objects that tests read as plain data.

use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};

/// Kind of an object.
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
        const GROUP: &str = "sriovnetwork.openshift.io";
        match self {
            Self::State => (GROUP, "SriovNetworkNodeState", "sriovnetworknodestates"),
            Self::Policy => (GROUP, "SriovNetworkNodePolicy", "sriovnetworknodepolicies"),
            Self::Pool => (GROUP, "SriovNetworkPoolConfig", "sriovnetworkpoolconfigs"),
            Self::Config => (GROUP, "SriovOperatorConfig", "sriovoperatorconfigs"),
            Self::Network => (GROUP, "SriovNetwork", "sriovnetworks"),
            Self::IbNetwork => (GROUP, "SriovIBNetwork", "sriovibnetworks"),
            Self::OvsNetwork => (GROUP, "OVSNetwork", "ovsnetworks"),
            Self::Attachment => {
                ("k8s.cni.cncf.io", "NetworkAttachmentDefinition", "network-attachment-definitions")
            }
            Self::DaemonSet => ("apps", "DaemonSet", "daemonsets"),
            Self::ConfigMap => ("", "ConfigMap", "configmaps"),
        }
    }

    /// Returns the name of the resource in commands.
    pub fn plural(self) -> String {
        let (group, _, plural) = self.names();
        if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") }
    }

    /// Returns the API of this kind.
    pub fn api(self, client: &Client, namespace: &str) -> Api<DynamicObject> {
        let (group, kind, plural) = self.names();
        let kind = GroupVersionKind::gvk(group, "v1", kind);
        Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk_with_plural(&kind, plural))
    }
}
