//! Settings of the deployed components from the environment of the operator.

use vfleet_plan::cni::programs::default_directory;

/// Settings of the deployed components. A component whose image is `None` is not deployed.
#[derive(Clone, Debug, Default)]
pub struct DeployConfig {
    /// Image of the agent; if absent, the image of the operator's own pod.
    pub agent_image: Option<String>,
    /// Image of the separate device plugin.
    pub device_plugin_image: Option<String>,
    /// Images that install CNI plugins on hosts.
    pub cni_images: CniImages,
    /// Directory of CNI plugins on hosts.
    pub cni_bin_path: String,
    /// Image pull Secrets of the namespace.
    pub image_pull_secrets: Vec<String>,
    /// Type of the cluster.
    pub cluster_type: ClusterType,
    /// True if virtual machines without an IOMMU are supported.
    pub dev_mode: bool,
    /// True if an external drainer drains nodes.
    pub use_external_drainer: bool,
    /// Path of the Open vSwitch database socket on hosts, if it is not the default.
    pub ovsdb_socket_path: Option<String>,
    /// Log format of agents: `text` or `json`.
    pub log_format: String,
}

/// Images of CNI plugins of other projects, which are installed instead of those of vfleet.
#[derive(Clone, Debug, Default)]
pub struct CniImages {
    /// `sriov`.
    pub sriov: Option<String>,
    /// `ib-sriov`.
    pub infiniband: Option<String>,
    /// `ovs` and its mirror plugins.
    pub ovs: Option<String>,
    /// `accelerated-bridge`.
    pub accelerated_bridge: Option<String>,
    /// `rdma`.
    pub rdma: Option<String>,
}

/// Type of the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClusterType {
    /// Any Kubernetes cluster.
    #[default]
    Kubernetes,
    /// OpenShift.
    OpenShift,
}

impl ClusterType {
    /// Returns the value of the environment variable.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kubernetes => "kubernetes",
            Self::OpenShift => "openshift",
        }
    }

    /// Returns the directory of CNI plugins that the container runtimes of such a cluster read.
    pub fn default_cni_directory(self) -> &'static str {
        default_directory(self == Self::OpenShift)
    }
}
