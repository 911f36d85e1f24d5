//! DaemonSet of the agent.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{
    Affinity, Container, EnvVar, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm,
    PodSpec, VolumeMount,
};
use vfleet_api::SriovOperatorConfig;
use vfleet_api::keys::agent_environment as name;
use vfleet_api::keys::{AGENT_DAEMON_SET, OS_LABEL, WORKER_LABEL};
use vfleet_api::operator_config::{ConfigurationMode, PluginName, SriovOperatorConfigSpec};
use vfleet_plan::admission::FIXED_VARIABLES;
use vfleet_plan::gates::FeatureGate;

use super::{
    DeploySettings, build_node_daemon_set, cni, go_device_plugin, host_path, mount, pod_field, privileged,
    requests, strings,
};

/// Mount point of the host's file system in the agent.
const HOST_ROOT: &str = "/host";

/// Agents use the host network. The ports of the Go operator's agents stay free.
const METRICS_ADDRESS: &str = ":9110";

/// Builds the DaemonSet, which runs on all nodes that the config selects.
pub(super) fn build_daemon_set(
    config: &SriovOperatorConfig,
    settings: &DeploySettings<'_>,
    image: &str,
) -> DaemonSet {
    let init_containers = cni::build_init_containers(settings.deploy, image);
    let mut volumes = vec![host_path("host", "/", None)];
    if !init_containers.is_empty() {
        volumes.extend(cni::build_volumes(settings.deploy));
    }
    let selector = config.spec.config_daemon_node_selector.clone().filter(|selector| !selector.is_empty());
    let annotations = [
        ("kubectl.kubernetes.io/default-container", AGENT_DAEMON_SET),
        ("openshift.io/required-scc", "privileged"),
    ];
    let pod = PodSpec {
        host_pid: Some(true),
        affinity: selector.is_none().then(default_affinity),
        node_selector: selector,
        init_containers: (!init_containers.is_empty()).then_some(init_containers),
        containers: vec![build_container(config, settings, image)],
        volumes: Some(volumes),
        ..Default::default()
    };
    build_node_daemon_set(AGENT_DAEMON_SET, config, settings, &annotations, pod)
}

fn build_container(config: &SriovOperatorConfig, settings: &DeploySettings<'_>, image: &str) -> Container {
    Container {
        name: AGENT_DAEMON_SET.to_owned(),
        image: Some(image.to_owned()),
        command: Some(strings(&["/usr/bin/vfleet"])),
        args: Some(strings(&["agent", "--host-root", HOST_ROOT])),
        env: Some(build_variables(config, settings)),
        security_context: Some(privileged()),
        resources: Some(requests("50m", "64Mi")),
        // Namespaces of pods that start later are mounts, too.
        volume_mounts: Some(vec![VolumeMount {
            mount_propagation: Some("HostToContainer".to_owned()),
            ..mount("host", HOST_ROOT)
        }]),
        ..Default::default()
    }
}

/// Builds the environment variables. Each name occurs once, because the API server rejects duplicates.
fn build_variables(config: &SriovOperatorConfig, settings: &DeploySettings<'_>) -> Vec<EnvVar> {
    let mut values: BTreeMap<&str, String> = collect_settings(&config.spec, settings);
    if settings.deploy.device_plugin_image.is_some() {
        values.insert(name::GO_DEVICE_PLUGIN, "true".to_owned());
    }
    if go_device_plugin::waits_for_agent(config, settings) {
        values.insert(name::HOLD_BACK_DEVICE_PLUGIN, "true".to_owned());
    }
    for (name, value) in config.spec.config_daemon_env_vars.iter().flatten() {
        values.insert(name.as_str(), value.clone());
    }
    let fixed = [
        pod_field(name::NODE_NAME, "spec.nodeName"),
        pod_field(name::NAMESPACE, "metadata.namespace"),
        pod_field(name::HOST_IPS, "status.hostIPs"),
    ];
    let configured = values.into_iter().filter(|(name, _)| !FIXED_VARIABLES.contains(name));
    fixed.into_iter().chain(configured.map(|(name, value)| build_variable(name, value))).collect()
}

/// Collects the settings of the agent by variable. They are variables and not flags, because an older agent would not
/// start with an unknown flag.
fn collect_settings(
    spec: &SriovOperatorConfigSpec,
    settings: &DeploySettings<'_>,
) -> BTreeMap<&'static str, String> {
    let deploy = settings.deploy;
    let mode = match spec.configuration_mode.unwrap_or_default() {
        ConfigurationMode::Daemon => "daemon",
        ConfigurationMode::Systemd => "systemd",
    };
    let disabled = spec.disable_plugins.iter().flatten().map(|plugin| match plugin {
        PluginName::Mellanox => "mellanox",
    });
    let disabled: Vec<_> = disabled.collect();
    let gate = |gate: FeatureGate| gate.is_enabled(spec).to_string();
    let mut values = BTreeMap::from([
        (name::CNI_BIN_PATH, deploy.cni_bin_path.clone()),
        (name::CLUSTER_TYPE, deploy.cluster_type.name().to_owned()),
        (name::CONFIGURATION_MODE, mode.to_owned()),
        (name::LOG_FORMAT, deploy.log_format.clone()),
        (name::MANAGE_SOFTWARE_BRIDGES, gate(FeatureGate::ManageSoftwareBridges)),
        (name::MELLANOX_FIRMWARE_RESET, gate(FeatureGate::MellanoxFirmwareReset)),
        (name::OVS_BRIDGE_RESOURCES, gate(FeatureGate::OvsBridgeResources)),
        (name::METRICS_BIND_ADDRESS, METRICS_ADDRESS.to_owned()),
        (name::PARALLEL_NIC_CONFIG, gate(FeatureGate::ParallelNicConfig)),
        (name::RESOURCE_PREFIX, settings.resource_prefix.to_owned()),
    ]);
    if deploy.dev_mode {
        values.insert(name::DEV_MODE, "TRUE".to_owned());
    }
    if deploy.use_external_drainer {
        values.insert(name::USE_EXTERNAL_DRAINER, "true".to_owned());
    }
    if let Some(path) = &deploy.ovsdb_socket_path {
        values.insert(name::OVSDB_SOCKET_PATH, path.clone());
    }
    let replaced_plugins = cni::replaced_plugins(deploy);
    if !replaced_plugins.is_empty() {
        values.insert(name::OTHER_CNI_PLUGINS, replaced_plugins.join(","));
    }
    if !disabled.is_empty() {
        values.insert(name::DISABLE_PLUGINS, disabled.join(","));
    }
    values
}

/// Builds a variable. An empty value is omitted, because the API server does not store it and the difference would look
/// like a change by another writer.
fn build_variable(name: &str, value: String) -> EnvVar {
    EnvVar { name: name.to_owned(), value: (!value.is_empty()).then_some(value), ..Default::default() }
}

/// Selects Linux workers. The worker label may have any value, which a node selector cannot express.
fn default_affinity() -> Affinity {
    let requirement = |key: &str, operator: &str, values: Option<Vec<String>>| NodeSelectorRequirement {
        key: key.to_owned(),
        operator: operator.to_owned(),
        values,
    };
    let term = NodeSelectorTerm {
        match_expressions: Some(vec![
            requirement(WORKER_LABEL, "Exists", None),
            requirement(OS_LABEL, "In", Some(strings(&["linux"]))),
        ]),
        ..Default::default()
    };
    Affinity {
        node_affinity: Some(NodeAffinity {
            required_during_scheduling_ignored_during_execution: Some(NodeSelector {
                node_selector_terms: vec![term],
            }),
            ..Default::default()
        }),
        ..Default::default()
    }
}
