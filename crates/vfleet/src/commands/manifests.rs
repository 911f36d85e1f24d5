//! `vfleet manifests`: manifests that install the operator, apart from the CRDs.

mod admission;
mod network;
mod node_scope;
mod operator;
mod rbac;

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;
use vfleet_api::keys::DEFAULT_NAMESPACE;
use vfleet_operator::ClusterType;
use vfleet_operator::permissions::Account;

use crate::commands::operator::parse_cluster_type;

/// Print the manifests that install vfleet, or write them to files
///
/// They contain service accounts, roles, admission policies, the operator and its network policies. Install the
/// CustomResourceDefinitions (vfleet crds) first, then: vfleet manifests | kubectl apply --server-side -f -
#[derive(clap::Args)]
pub(crate) struct ManifestsArguments {
    /// Write files into this directory instead of printing
    ///
    /// Three more files are written there: external-drainer.yaml for clusters with an external drainer,
    /// ovs-bridge-resources.yaml for the feature gate ovsBridgeResources, and sim-rbac.yaml for vfleet sim.
    #[arg(long, value_name = "DIRECTORY")]
    dir: Option<PathBuf>,
    /// Namespace to install into
    #[arg(long, value_name = "NAMESPACE", default_value = DEFAULT_NAMESPACE)]
    namespace: String,
    /// Image of the operator and of the agents
    ///
    /// It must contain /usr/bin/vfleet and /usr/bin/vfleet-cni.
    #[arg(long, value_name = "IMAGE", default_value = concat!("vfleet:", env!("CARGO_PKG_VERSION")))]
    image: String,
    /// Type of cluster: kubernetes or openshift, whose CNI plugins are in another directory
    #[arg(long, value_name = "TYPE", default_value = "kubernetes", value_parser = parse_cluster_type)]
    cluster_type: ClusterType,
    /// Omit the network policies, which allow access only to the webhooks and the metrics of the operator
    #[arg(long, help_heading = "Network policies")]
    no_network_policies: bool,
    /// Namespace whose pods may read the operator's metrics, may be repeated [default: all namespaces]
    #[arg(
        long,
        value_name = "NAMESPACE",
        help_heading = "Network policies",
        conflicts_with = "no_network_policies"
    )]
    monitoring_namespace: Vec<String>,
}

/// File of manifests.
struct ManifestFile {
    name: &'static str,
    purpose: &'static str,
    objects: Vec<Value>,
}

pub(crate) fn run(arguments: &ManifestsArguments) -> anyhow::Result<()> {
    let namespace = arguments.namespace.as_str();
    let mut files = vec![
        ManifestFile {
            name: "rbac.yaml",
            purpose: "Service accounts of the operator and the agents, and their roles.",
            objects: rbac::for_installation(namespace)?,
        },
        ManifestFile {
            name: "node-scope.yaml",
            purpose: "Admission policies: an agent may write only objects of its own node.",
            objects: node_scope::policies(namespace)?,
        },
        ManifestFile {
            name: "admission.yaml",
            purpose: "Objects of the admission webhooks. The operator fills them in when webhooks are enabled.",
            objects: admission::objects(namespace)?,
        },
        ManifestFile {
            name: "operator.yaml",
            purpose: "Deployment of the operator: two replicas, of which one leads. It deploys the agents.",
            objects: operator::deployment(namespace, &arguments.image, arguments.cluster_type)?,
        },
    ];
    if !arguments.no_network_policies {
        files.push(ManifestFile {
            name: "network-policies.yaml",
            purpose: "Network policies for the ports of the operator (docs/ports.md). Optional.",
            objects: network::policies(namespace, &arguments.monitoring_namespace)?,
        });
    }
    if arguments.dir.is_some() {
        files.push(ManifestFile {
            name: "external-drainer.yaml",
            purpose: "Additional permissions of agents for an external drainer (USE_EXTERNAL_DRAINER).",
            objects: rbac::for_external_drainer(namespace)?,
        });
        files.push(ManifestFile {
            name: "ovs-bridge-resources.yaml",
            purpose: "Additional permission of agents for the feature gate ovsBridgeResources.",
            objects: rbac::for_bridge_resources(namespace)?,
        });
        files.push(ManifestFile {
            name: "sim-rbac.yaml",
            purpose: "Service account of `vfleet sim`. Not for production clusters.",
            objects: rbac::for_account(Account::Sim, namespace)?,
        });
    }
    files.iter().try_for_each(|file| write(file, arguments))
}

fn write(file: &ManifestFile, arguments: &ManifestsArguments) -> anyhow::Result<()> {
    let documents: Result<Vec<_>, _> = file.objects.iter().map(serde_saphyr::to_string).collect();
    let yaml = documents.with_context(|| format!("cannot write {} as YAML", file.name))?.join("---\n");
    match &arguments.dir {
        None => write!(std::io::stdout(), "---\n{yaml}")?,
        Some(dir) => {
            let path = dir.join(file.name);
            let text = format!(
                "# {}\n# Generated by `make manifests`: edit crates/operator/src/components/permissions.rs or \
                 crates/vfleet/src/commands/manifests instead.\n{yaml}",
                file.purpose
            );
            std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    Ok(())
}

/// Returns the metadata of a namespaced object.
fn named(name: &str, namespace: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), namespace: Some(namespace.to_owned()), ..Default::default() }
}

/// Returns the metadata of a cluster-scoped object. Its name contains the namespace of the installation.
fn cluster_wide(name: &str, namespace: &str) -> ObjectMeta {
    ObjectMeta { name: Some(format!("{name}.{namespace}")), ..Default::default() }
}

fn to_strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}
