//! Options of the deployed components. Environment variables have the names of the Go operator.

use vfleet_api::keys::agent_environment::CNI_BIN_PATH;
use vfleet_operator::{ClusterType, CniImages, DeployConfig};

use crate::log::LogFormat;

/// Text after the options: environment variables of the Go operator that have no effect.
pub(super) const IGNORED: &str = "\
Environment variables of the Go operator that are ignored:
  SRIOV_NETWORK_WEBHOOK_IMAGE, NETWORK_RESOURCES_INJECTOR_IMAGE, *_NETWORK_POLICY_PORT
      the operator serves the webhooks itself
  ADMISSION_CONTROLLERS_CERTIFICATES_INJECTOR_*
      all webhooks share one certificate
  TLS_CIPHER_SUITES, TLS_CURVE_PREFERENCES
      only secure cipher suites and curves are offered
  METRICS_EXPORTER_*
      no metrics exporter is deployed
  RELEASE_VERSION, RELEASEVERSION
      informational only";

/// Options of the deployed components. An empty value counts as unset.
#[derive(clap::Args)]
#[command(next_help_heading = "Deployed components")]
pub(super) struct DeployArguments {
    /// Image of the agents [default: the image of the operator's own pod]
    #[arg(long, value_name = "IMAGE", env = "SRIOV_NETWORK_CONFIG_DAEMON_IMAGE")]
    agent_image: Option<String>,
    /// Image of the external Go device plugin; not deployed if unset
    #[arg(long, value_name = "IMAGE", env = "SRIOV_DEVICE_PLUGIN_IMAGE")]
    device_plugin_image: Option<String>,
    /// Image that installs the CNI plugin sriov on hosts; if unset, agents install that of vfleet
    #[arg(long, value_name = "IMAGE", env = "SRIOV_CNI_IMAGE")]
    sriov_cni_image: Option<String>,
    /// Image that installs the CNI plugin ib-sriov; if unset, agents install that of vfleet
    #[arg(long, value_name = "IMAGE", env = "SRIOV_INFINIBAND_CNI_IMAGE")]
    infiniband_cni_image: Option<String>,
    /// Image that installs the CNI plugins ovs, ovs-mirror-producer and ovs-mirror-consumer; if unset, agents install those of vfleet
    #[arg(long, value_name = "IMAGE", env = "OVS_CNI_IMAGE")]
    ovs_cni_image: Option<String>,
    /// Image that installs the CNI plugin accelerated-bridge; if unset, agents install that of vfleet
    #[arg(long, value_name = "IMAGE", env = "ACCELERATED_BRIDGE_CNI_IMAGE")]
    accelerated_bridge_cni_image: Option<String>,
    /// Image that installs the CNI plugin rdma; if unset, agents install that of vfleet
    #[arg(long, value_name = "IMAGE", env = "RDMA_CNI_IMAGE")]
    rdma_cni_image: Option<String>,
    /// Directory of CNI plugins on hosts [default: /opt/cni/bin, on OpenShift /var/lib/cni/bin]
    #[arg(long, value_name = "DIRECTORY", env = CNI_BIN_PATH)]
    cni_bin_path: Option<String>,
    /// Image pull Secrets, separated by commas
    #[arg(long, value_name = "NAMES", env = "IMAGE_PULL_SECRETS", value_delimiter = ',')]
    image_pull_secrets: Vec<String>,
    /// Type of cluster: kubernetes or openshift
    #[arg(
        long,
        value_name = "TYPE",
        env = "CLUSTER_TYPE",
        default_value = "kubernetes",
        value_parser = parse_cluster_type
    )]
    cluster_type: ClusterType,
    /// Development mode: accept cards that the ConfigMap supported-nic-ids does not list
    #[arg(long, value_name = "BOOL", env = "DEV_MODE", default_value = "false")]
    dev_mode: String,
    /// Let an external drainer drain nodes
    #[arg(long, value_name = "BOOL", env = "USE_EXTERNAL_DRAINER", default_value = "false")]
    use_external_drainer: String,
    /// Socket of the Open vSwitch database on hosts, if it is not at the default path
    #[arg(long, value_name = "PATH", env = "OVSDB_SOCKET_PATH")]
    ovsdb_socket_path: Option<String>,
}

/// Parses the type of a cluster. An empty value counts as unset.
pub(crate) fn parse_cluster_type(word: &str) -> Result<ClusterType, String> {
    match word {
        "" | "kubernetes" => Ok(ClusterType::Kubernetes),
        "openshift" => Ok(ClusterType::OpenShift),
        _ => Err("expected kubernetes or openshift".to_owned()),
    }
}

impl DeployArguments {
    /// Returns the configuration of the deployed components. Agents log in the format of the operator.
    pub(super) fn into_config(self, log_format: LogFormat) -> DeployConfig {
        let non_empty = |value: Option<String>| value.filter(|value| !value.is_empty());
        DeployConfig {
            agent_image: non_empty(self.agent_image),
            device_plugin_image: non_empty(self.device_plugin_image),
            cni_images: CniImages {
                sriov: non_empty(self.sriov_cni_image),
                infiniband: non_empty(self.infiniband_cni_image),
                ovs: non_empty(self.ovs_cni_image),
                accelerated_bridge: non_empty(self.accelerated_bridge_cni_image),
                rdma: non_empty(self.rdma_cni_image),
            },
            cni_bin_path: non_empty(self.cni_bin_path)
                .unwrap_or_else(|| self.cluster_type.default_cni_directory().to_owned()),
            image_pull_secrets: self.image_pull_secrets.into_iter().filter(|name| !name.is_empty()).collect(),
            cluster_type: self.cluster_type,
            dev_mode: is_true(&self.dev_mode),
            use_external_drainer: is_true(&self.use_external_drainer),
            ovsdb_socket_path: non_empty(self.ovsdb_socket_path),
            log_format: log_format.name().to_owned(),
        }
    }
}

fn is_true(word: &str) -> bool {
    word.eq_ignore_ascii_case("true")
}
