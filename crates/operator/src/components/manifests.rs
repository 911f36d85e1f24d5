//! Manifests of the deployed components, as a pure function of the operator config and the environment of the operator.

mod agent;
mod cni;
mod deploy_config;
mod go_device_plugin;

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetSpec, DaemonSetUpdateStrategy, RollingUpdateDaemonSet};
use k8s_openapi::api::core::v1::{
    EnvVar, EnvVarSource, HostPathVolumeSource, LocalObjectReference, ObjectFieldSelector, PodSpec,
    PodTemplateSpec, ResourceRequirements, SecurityContext, ServiceAccount, Toleration, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use vfleet_api::SriovOperatorConfig;
use vfleet_api::keys::{MANAGED_BY_LABEL, OPERATOR_FIELD_MANAGER};

use crate::components::config_watch::owner_reference;

pub use self::deploy_config::{ClusterType, CniImages, DeployConfig};

/// Webhook configurations that the Go operator creates; the last one by old versions.
pub(crate) const GO_WEBHOOK_CONFIGURATIONS: &[&str] =
    &["sriov-operator-webhook-config", "network-resources-injector-config", "operator-webhook-config"];

/// Settings of the installation that manifests depend on.
pub(crate) struct DeploySettings<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) resource_prefix: &'a str,
    pub(crate) deploy: &'a DeployConfig,
    /// Image of the agent, if it is known.
    pub(crate) agent_image: Option<&'a str>,
}

/// Desired objects. All other objects of the operator config are deleted.
#[derive(Debug, Default)]
pub(crate) struct ComponentManifests {
    pub(crate) service_accounts: Vec<ServiceAccount>,
    pub(crate) daemon_sets: Vec<DaemonSet>,
}

/// Builds the manifests that `config` requires.
pub(crate) fn build_manifests(
    config: &SriovOperatorConfig,
    settings: &DeploySettings<'_>,
) -> ComponentManifests {
    let mut manifests = ComponentManifests::default();
    if let Some(image) = settings.agent_image {
        manifests.daemon_sets.push(agent::build_daemon_set(config, settings, image));
    }
    if let Some(image) = &settings.deploy.device_plugin_image {
        manifests.service_accounts.push(go_device_plugin::build_service_account(config, settings));
        manifests.daemon_sets.push(go_device_plugin::build_daemon_set(config, settings, image));
    }
    manifests
}

/// Returns the metadata of an object that is owned by the operator config.
fn owned_metadata(name: &str, config: &SriovOperatorConfig, settings: &DeploySettings<'_>) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(settings.namespace.to_owned()),
        labels: Some(map(&[(MANAGED_BY_LABEL, OPERATOR_FIELD_MANAGER)])),
        owner_references: owner_reference(config).map(|owner| vec![owner]),
        ..Default::default()
    }
}

/// Builds a DaemonSet with the name and the selector that the Go operator uses, because neither can be changed on
/// take-over. One third of its pods may be unavailable during an update.
fn build_node_daemon_set(
    name: &str,
    config: &SriovOperatorConfig,
    settings: &DeploySettings<'_>,
    annotations: &[(&str, &str)],
    pod: PodSpec,
) -> DaemonSet {
    let app = map(&[("app", name)]);
    let template = PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(app.clone()),
            annotations: (!annotations.is_empty()).then(|| map(annotations)),
            ..Default::default()
        }),
        spec: Some(PodSpec {
            service_account_name: Some(name.to_owned()),
            host_network: Some(true),
            priority_class_name: Some("system-node-critical".to_owned()),
            // Tolerates all taints of the selected nodes.
            tolerations: Some(vec![Toleration { operator: Some("Exists".to_owned()), ..Default::default() }]),
            image_pull_secrets: pull_secrets(settings.deploy),
            ..pod
        }),
    };
    DaemonSet {
        metadata: owned_metadata(name, config, settings),
        spec: Some(DaemonSetSpec {
            selector: LabelSelector { match_labels: Some(app), ..Default::default() },
            update_strategy: Some(DaemonSetUpdateStrategy {
                type_: Some("RollingUpdate".to_owned()),
                rolling_update: Some(RollingUpdateDaemonSet {
                    max_unavailable: Some(IntOrString::String("33%".to_owned())),
                    ..Default::default()
                }),
            }),
            template,
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn pull_secrets(deploy: &DeployConfig) -> Option<Vec<LocalObjectReference>> {
    let secrets = deploy.image_pull_secrets.iter();
    let secrets: Vec<_> = secrets.map(|name| LocalObjectReference { name: name.clone() }).collect();
    (!secrets.is_empty()).then_some(secrets)
}

fn privileged() -> SecurityContext {
    SecurityContext { privileged: Some(true), ..Default::default() }
}

fn requests(cpu: &str, memory: &str) -> ResourceRequirements {
    let requests = [("cpu", cpu), ("memory", memory)];
    ResourceRequirements {
        requests: Some(
            requests.map(|(resource, amount)| (resource.to_owned(), Quantity(amount.to_owned()))).into(),
        ),
        ..Default::default()
    }
}

/// Builds a volume for a path of the host; `type_` is the required type of the path.
fn host_path(name: &str, path: &str, type_: Option<&str>) -> Volume {
    Volume {
        name: name.to_owned(),
        host_path: Some(HostPathVolumeSource { path: path.to_owned(), type_: type_.map(str::to_owned) }),
        ..Default::default()
    }
}

/// Builds an environment variable from a field of the pod.
fn pod_field(name: &str, path: &str) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector { field_path: path.to_owned(), ..Default::default() }),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn mount(volume: &str, path: &str) -> VolumeMount {
    VolumeMount { name: volume.to_owned(), mount_path: path.to_owned(), ..Default::default() }
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
}

#[cfg(test)]
mod tests;
