//! What the operator deploys, by the Go operator's names of environment variables.

use vfleet_operator::{ClusterType, CniImages, DeployConfig};

use crate::log::Format;

/// Printed after the options.
pub(super) const IGNORED: &str = "\
Variables of the Go operator without effect in this version:
  because the operator serves webhooks itself: SRIOV_NETWORK_WEBHOOK_IMAGE, NETWORK_RESOURCES_INJECTOR_IMAGE,
    *_NETWORK_POLICY_PORT
  because one certificate is for all of them: ADMISSION_CONTROLLERS_CERTIFICATES_INJECTOR_*
  because nothing weak is spoken anyway: TLS_CIPHER_SUITES, TLS_CURVE_PREFERENCES
  because no exporter is deployed: METRICS_EXPORTER_*
  because it is only a description: RELEASE_VERSION, RELEASEVERSION";

/// Where CNI plugins are when nothing else is said.
const USUAL_CNI_DIRECTORY: &str = "/var/lib/cni/bin";

/// What is deployed. An empty value is the same as none.
#[derive(clap::Args)]
#[command(next_help_heading = "What is deployed")]
pub(super) struct Environment {
    /// Image of the agents. When there is none: that of the operator's own pod.
    #[arg(long, value_name = "IMAGE", env = "SRIOV_NETWORK_CONFIG_DAEMON_IMAGE")]
    agent_image: Option<String>,
    /// Image of the separate device plugin. When there is none, it is not deployed.
    #[arg(long, value_name = "IMAGE", env = "SRIOV_DEVICE_PLUGIN_IMAGE")]
    device_plugin_image: Option<String>,
    /// Image that puts the CNI plugin sriov on hosts. When there is none, it is not put there; likewise below.
    #[arg(long, value_name = "IMAGE", env = "SRIOV_CNI_IMAGE")]
    sriov_cni_image: Option<String>,
    /// Image of the CNI plugin ib-sriov.
    #[arg(long, value_name = "IMAGE", env = "SRIOV_INFINIBAND_CNI_IMAGE")]
    infiniband_cni_image: Option<String>,
    /// Image of the CNI plugin ovs.
    #[arg(long, value_name = "IMAGE", env = "OVS_CNI_IMAGE")]
    ovs_cni_image: Option<String>,
    /// Image of the CNI plugin accelerated-bridge.
    #[arg(long, value_name = "IMAGE", env = "ACCELERATED_BRIDGE_CNI_IMAGE")]
    accelerated_bridge_cni_image: Option<String>,
    /// Image of the CNI plugin rdma.
    #[arg(long, value_name = "IMAGE", env = "RDMA_CNI_IMAGE")]
    rdma_cni_image: Option<String>,
    /// Directory of CNI plugins on hosts.
    #[arg(long, value_name = "DIRECTORY", env = "SRIOV_CNI_BIN_PATH", default_value = USUAL_CNI_DIRECTORY)]
    cni_bin_path: String,
    /// Secrets that images are pulled with, separated by commas.
    #[arg(long, value_name = "NAMES", env = "IMAGE_PULL_SECRETS", value_delimiter = ',')]
    image_pull_secrets: Vec<String>,
    /// Kind of cluster: kubernetes or openshift.
    #[arg(long, value_name = "TYPE", env = "CLUSTER_TYPE", default_value = "kubernetes", value_parser = cluster_type)]
    cluster_type: ClusterType,
    /// TRUE lets virtual machines do without an IOMMU.
    #[arg(long, value_name = "TRUE", env = "DEV_MODE", default_value = "")]
    dev_mode: String,
    /// true when somebody else drains nodes.
    #[arg(long, value_name = "true", env = "USE_EXTERNAL_DRAINER", default_value = "")]
    use_external_drainer: String,
    /// Socket of Open vSwitch's database on hosts, where it is not in its usual place.
    #[arg(long, value_name = "PATH", env = "OVSDB_SOCKET_PATH")]
    ovsdb_socket_path: Option<String>,
}

fn cluster_type(word: &str) -> Result<ClusterType, String> {
    match word {
        "" | "kubernetes" => Ok(ClusterType::Kubernetes),
        "openshift" => Ok(ClusterType::OpenShift),
        _ => Err("kubernetes or openshift is meant".to_owned()),
    }
}

impl Environment {
    /// As the operator wants it; agents log as the operator does.
    pub(super) fn into_config(self, log_format: Format) -> DeployConfig {
        let given = |value: Option<String>| value.filter(|value| !value.is_empty());
        DeployConfig {
            agent_image: given(self.agent_image),
            device_plugin_image: given(self.device_plugin_image),
            cni_images: CniImages {
                sriov: given(self.sriov_cni_image),
                infiniband: given(self.infiniband_cni_image),
                ovs: given(self.ovs_cni_image),
                accelerated_bridge: given(self.accelerated_bridge_cni_image),
                rdma: given(self.rdma_cni_image),
            },
            cni_bin_path: given(Some(self.cni_bin_path)).unwrap_or_else(|| USUAL_CNI_DIRECTORY.to_owned()),
            image_pull_secrets: self.image_pull_secrets.into_iter().filter(|name| !name.is_empty()).collect(),
            cluster_type: self.cluster_type,
            dev_mode: is_true(&self.dev_mode),
            use_external_drainer: is_true(&self.use_external_drainer),
            ovsdb_socket_path: given(self.ovsdb_socket_path),
            log_format: log_format.name().to_owned(),
        }
    }
}

fn is_true(word: &str) -> bool {
    word.eq_ignore_ascii_case("true")
}
