//! What the operator's environment says about what it deploys.

/// How things are deployed. Images that are `None` are not deployed.
#[derive(Clone, Debug, Default)]
pub struct DeployConfig {
    /// The agents' image; when absent, the image of the operator's own pod.
    pub agent_image: Option<String>,
    /// The separate device plugin.
    pub device_plugin_image: Option<String>,
    /// Images that put CNI plugins on hosts.
    pub cni_images: CniImages,
    /// The host's directory of CNI plugins.
    pub cni_bin_path: String,
    /// Secrets of the namespace that images are pulled with.
    pub image_pull_secrets: Vec<String>,
    /// The kind of cluster.
    pub cluster_type: ClusterType,
    /// Whether virtual machines may do without an IOMMU.
    pub dev_mode: bool,
    /// Whether somebody else drains nodes.
    pub use_external_drainer: bool,
    /// The socket of Open vSwitch's database on hosts, where it is not in its usual place.
    pub ovsdb_socket_path: Option<String>,
    /// How agents write their log: `text` or `json`.
    pub log_format: String,
}

/// Images of CNI plugins that other projects make.
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

impl CniImages {
    /// The variables of the operator's environment that give them.
    pub(crate) const VARIABLES: [&str; 5] = [
        "SRIOV_CNI_IMAGE",
        "SRIOV_INFINIBAND_CNI_IMAGE",
        "OVS_CNI_IMAGE",
        "ACCELERATED_BRIDGE_CNI_IMAGE",
        "RDMA_CNI_IMAGE",
    ];

    pub(crate) fn is_empty(&self) -> bool {
        let Self { sriov, infiniband, ovs, accelerated_bridge, rdma } = self;
        [sriov, infiniband, ovs, accelerated_bridge, rdma].iter().all(|image| image.is_none())
    }
}

/// The kind of cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClusterType {
    /// Any.
    #[default]
    Kubernetes,
    /// With what OpenShift adds.
    OpenShift,
}

impl ClusterType {
    /// Its name in the environment.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kubernetes => "kubernetes",
            Self::OpenShift => "openshift",
        }
    }
}
