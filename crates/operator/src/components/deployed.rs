//! What the operator deploys, as typed values: a pure function of the operator config and the operator's environment.

mod agent;
mod cni;
mod environment;
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

use crate::components::settings::owner_reference;

pub use self::environment::{ClusterType, CniImages, DeployConfig};

/// Webhook configurations that the Go operator makes; the last one is an old version's.
pub(crate) const GO_WEBHOOK_CONFIGURATIONS: &[&str] =
    &["sriov-operator-webhook-config", "network-resources-injector-config", "operator-webhook-config"];

/// What things are deployed from.
pub(crate) struct Site<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) resource_prefix: &'a str,
    pub(crate) deploy: &'a DeployConfig,
    /// The agents' image, when it is known.
    pub(crate) agent_image: Option<&'a str>,
}

/// What shall be there. Anything else of ours shall not.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) service_accounts: Vec<ServiceAccount>,
    pub(crate) daemon_sets: Vec<DaemonSet>,
}

/// What `config` wants deployed at `site`.
pub(crate) fn wanted(config: &SriovOperatorConfig, site: &Site<'_>) -> Wanted {
    let mut wanted = Wanted::default();
    if let Some(image) = site.agent_image {
        wanted.daemon_sets.push(agent::daemon_set(config, site, image));
    }
    if let Some(image) = &site.deploy.device_plugin_image {
        wanted.service_accounts.push(go_device_plugin::service_account(config, site));
        wanted.daemon_sets.push(go_device_plugin::daemon_set(config, site, image));
    }
    wanted
}

/// Something of ours: it goes when the operator config goes.
fn owned(name: &str, config: &SriovOperatorConfig, site: &Site<'_>) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(site.namespace.to_owned()),
        labels: Some(map(&[(MANAGED_BY_LABEL, OPERATOR_FIELD_MANAGER)])),
        owner_references: owner_reference(config).map(|owner| vec![owner]),
        ..Default::default()
    }
}

/// A DaemonSet under the name that the Go operator gives it, with the selector that it has there: neither can change
/// when it is taken over. One third of its pods may be away while it changes.
fn on_nodes(
    name: &str,
    config: &SriovOperatorConfig,
    site: &Site<'_>,
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
            // Every node that is selected, whatever its taints.
            tolerations: Some(vec![Toleration { operator: Some("Exists".to_owned()), ..Default::default() }]),
            image_pull_secrets: pull_secrets(site.deploy),
            ..pod
        }),
    };
    DaemonSet {
        metadata: owned(name, config, site),
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
        requests: Some(requests.map(|(of, amount)| (of.to_owned(), Quantity(amount.to_owned()))).into()),
        ..Default::default()
    }
}

/// A path of the host; `type_` says what must be there.
fn host_path(name: &str, path: &str, type_: Option<&str>) -> Volume {
    Volume {
        name: name.to_owned(),
        host_path: Some(HostPathVolumeSource { path: path.to_owned(), type_: type_.map(str::to_owned) }),
        ..Default::default()
    }
}

/// A variable with a field of the pod in it.
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

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
}

#[cfg(test)]
mod tests;
