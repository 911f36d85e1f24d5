//! DaemonSet of the separate (Go) device plugin, if its image is configured.
//!
//! Resources come from a ConfigMap and are not part of the DaemonSet, so that a new policy does not restart all
//! plugins. Unless the feature gate blockDevicePluginUntilConfigured is off, an init container waits until the agent
//! reports that the VFs exist.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, Container, PodSpec, ServiceAccount, Volume, VolumeMount,
};
use vfleet_api::SriovOperatorConfig;
use vfleet_api::keys::{
    DEVICE_PLUGIN_CONFIG_MAP, DEVICE_PLUGIN_DAEMON_SET, DEVICE_PLUGIN_LABEL, ENABLED, OS_LABEL,
};
use vfleet_plan::gates::FeatureGate;

use super::{
    DeploySettings, build_node_daemon_set, host_path, map, mount, owned_metadata, pod_field, privileged,
    requests, strings,
};

/// Directories of the host that the plugin uses: volume, path, and whether a missing directory is created.
const DIRECTORIES: [(&str, &str, bool); 3] = [
    ("devicesock", "/var/lib/kubelet/device-plugins", false),
    ("plugins-registry", "/var/lib/kubelet/plugins_registry", false),
    ("device-info", "/var/run/k8s.cni.cncf.io/devinfo/dp", true),
];
const CDI_DIRECTORY: (&str, &str, bool) = ("dynamic-cdi", "/var/run/cdi", true);

/// Returns whether the plugin waits for the agent to create the VFs.
pub(super) fn waits_for_agent(config: &SriovOperatorConfig, settings: &DeploySettings<'_>) -> bool {
    let is_deployed = settings.deploy.device_plugin_image.is_some();
    is_deployed
        && settings.agent_image.is_some()
        && FeatureGate::BlockDevicePluginUntilConfigured.is_enabled(&config.spec)
}

/// Builds the init container that waits until the agent removes an annotation from the pod.
fn build_wait_container(image: &str) -> Container {
    Container {
        name: "wait-for-config".to_owned(),
        image: Some(image.to_owned()),
        command: Some(strings(&["/usr/bin/vfleet"])),
        args: Some(strings(&[
            "wait-for-config",
            "--pod-name",
            "$(POD_NAME)",
            "--pod-namespace",
            "$(POD_NAMESPACE)",
        ])),
        env: Some(vec![
            pod_field("POD_NAME", "metadata.name"),
            pod_field("POD_NAMESPACE", "metadata.namespace"),
        ]),
        resources: Some(requests("10m", "16Mi")),
        ..Default::default()
    }
}

/// Builds the service account.
pub(super) fn build_service_account(
    config: &SriovOperatorConfig,
    settings: &DeploySettings<'_>,
) -> ServiceAccount {
    ServiceAccount {
        metadata: owned_metadata(DEVICE_PLUGIN_DAEMON_SET, config, settings),
        ..Default::default()
    }
}

/// Builds the DaemonSet, which runs on nodes whose label says that they have resources.
pub(super) fn build_daemon_set(
    config: &SriovOperatorConfig,
    settings: &DeploySettings<'_>,
    image: &str,
) -> DaemonSet {
    let use_cdi = config.spec.use_cdi.unwrap_or_default();
    let selected = config.spec.config_daemon_node_selector.clone().filter(|selector| !selector.is_empty());
    let mut node_selector = selected.unwrap_or_else(|| map(&[(OS_LABEL, "linux")]));
    node_selector.insert(DEVICE_PLUGIN_LABEL.to_owned(), ENABLED.to_owned());
    let mut directories = DIRECTORIES.to_vec();
    if use_cdi {
        directories.push(CDI_DIRECTORY);
    }
    let mut volumes: Vec<_> = directories
        .iter()
        .map(|&(name, path, create)| host_path(name, path, create.then_some("DirectoryOrCreate")))
        .collect();
    volumes.push(Volume {
        name: "config-volume".to_owned(),
        config_map: Some(ConfigMapVolumeSource {
            name: DEVICE_PLUGIN_CONFIG_MAP.to_owned(),
            ..Default::default()
        }),
        ..Default::default()
    });
    let mut mounts: Vec<_> = directories.iter().map(|&(name, path, _)| mount(name, path)).collect();
    mounts.push(VolumeMount { read_only: Some(true), ..mount("config-volume", "/etc/pcidp/") });

    let container = Container {
        name: DEVICE_PLUGIN_DAEMON_SET.to_owned(),
        image: Some(image.to_owned()),
        args: Some(build_arguments(settings.resource_prefix, use_cdi)),
        env: Some(vec![pod_field("NODE_NAME", "spec.nodeName")]),
        security_context: Some(privileged()),
        resources: Some(requests("10m", "50Mi")),
        volume_mounts: Some(mounts),
        ..Default::default()
    };
    let pod = PodSpec {
        node_selector: Some(node_selector),
        init_containers: settings
            .agent_image
            .filter(|_| waits_for_agent(config, settings))
            .map(|image| vec![build_wait_container(image)]),
        containers: vec![container],
        volumes: Some(volumes),
        ..Default::default()
    };
    build_node_daemon_set(DEVICE_PLUGIN_DAEMON_SET, config, settings, &[], pod)
}

fn build_arguments(resource_prefix: &str, use_cdi: bool) -> Vec<String> {
    let mut arguments = vec![
        "--log-level=10".to_owned(),
        format!("--resource-prefix={resource_prefix}"),
        "--config-file=/etc/pcidp/$(NODE_NAME)".to_owned(),
    ];
    if use_cdi {
        arguments.push("--use-cdi".to_owned());
    }
    arguments
}
