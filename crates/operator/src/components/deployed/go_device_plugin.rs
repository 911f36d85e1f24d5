//! The external Go device plugin, when its image is given.
//!
//! Nothing of a policy is in it: what it offers comes from a ConfigMap, so that a new policy does not start all plugins
//! again. Unless the gate blockDevicePluginUntilConfigured is off, an init container waits until the node's agent says
//! that the VFs are there.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, Container, PodSpec, ServiceAccount, Volume, VolumeMount,
};
use vfleet_api::SriovOperatorConfig;
use vfleet_api::keys::{
    DEVICE_PLUGIN_CONFIG_MAP, DEVICE_PLUGIN_DAEMON_SET, DEVICE_PLUGIN_LABEL, ENABLED, OS_LABEL,
};
use vfleet_plan::gates::Gate;

use super::{Site, host_path, map, mount, on_nodes, owned, pod_field, privileged, requests, words};

/// A directory of the host that the plugin uses: volume, path, and whether it is made when it is missing.
const DIRECTORIES: [(&str, &str, bool); 3] = [
    ("devicesock", "/var/lib/kubelet/device-plugins", false),
    ("plugins-registry", "/var/lib/kubelet/plugins_registry", false),
    ("device-info", "/var/run/k8s.cni.cncf.io/devinfo/dp", true),
];
const CDI_DIRECTORY: (&str, &str, bool) = ("dynamic-cdi", "/var/run/cdi", true);

/// Whether agents hold the plugin back while VFs change, and it waits for their sign.
pub(super) fn waits(config: &SriovOperatorConfig, site: &Site<'_>) -> bool {
    let is_deployed = site.deploy.device_plugin_image.is_some();
    is_deployed && site.agent_image.is_some() && Gate::BlockDevicePluginUntilConfigured.is_on(&config.spec)
}

/// Waits until the agent takes a word off the pod.
fn wait_for_agent(image: &str) -> Container {
    Container {
        name: "wait-for-config".to_owned(),
        image: Some(image.to_owned()),
        command: Some(words(&["/usr/bin/vfleet"])),
        args: Some(words(&[
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

/// Its account.
pub(super) fn service_account(config: &SriovOperatorConfig, site: &Site<'_>) -> ServiceAccount {
    ServiceAccount { metadata: owned(DEVICE_PLUGIN_DAEMON_SET, config, site), ..Default::default() }
}

/// The plugin on every node that has devices to offer, which the node's label says.
pub(super) fn daemon_set(config: &SriovOperatorConfig, site: &Site<'_>, image: &str) -> DaemonSet {
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
        .map(|&(name, path, make)| host_path(name, path, make.then_some("DirectoryOrCreate")))
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
        args: Some(arguments(site.resource_prefix, use_cdi)),
        env: Some(vec![pod_field("NODE_NAME", "spec.nodeName")]),
        security_context: Some(privileged()),
        resources: Some(requests("10m", "50Mi")),
        volume_mounts: Some(mounts),
        ..Default::default()
    };
    let pod = PodSpec {
        node_selector: Some(node_selector),
        init_containers: site
            .agent_image
            .filter(|_| waits(config, site))
            .map(|image| vec![wait_for_agent(image)]),
        containers: vec![container],
        volumes: Some(volumes),
        ..Default::default()
    };
    on_nodes(DEVICE_PLUGIN_DAEMON_SET, config, site, &[], pod)
}

fn arguments(resource_prefix: &str, use_cdi: bool) -> Vec<String> {
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
