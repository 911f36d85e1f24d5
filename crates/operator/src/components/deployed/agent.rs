//! The agent's DaemonSet.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{
    Affinity, Container, EnvVar, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm,
    PodSpec,
};
use vfleet_api::SriovOperatorConfig;
use vfleet_api::keys::agent_environment as name;
use vfleet_api::keys::{AGENT_DAEMON_SET, OS_LABEL, WORKER_LABEL};
use vfleet_api::operator_config::{ConfigurationMode, PluginName, SriovOperatorConfigSpec};
use vfleet_plan::admission::FIXED_VARIABLES;
use vfleet_plan::gates::Gate;

use super::{
    Site, cni, go_device_plugin, host_path, mount, on_nodes, pod_field, privileged, requests, words,
};

/// Where the agent sees the host's file tree.
const HOST: &str = "/host";

/// The agents' pods share the network of their hosts, where the ports of the Go operator's are free.
const METRICS: &str = ":9110";

/// The agent on every node that the config selects.
pub(super) fn daemon_set(config: &SriovOperatorConfig, site: &Site<'_>, image: &str) -> DaemonSet {
    let init_containers = cni::init_containers(site.deploy);
    let mut volumes = vec![host_path("host", "/", None)];
    if !init_containers.is_empty() {
        volumes.extend(cni::volumes(site.deploy));
    }
    let selector = config.spec.config_daemon_node_selector.clone().filter(|selector| !selector.is_empty());
    let annotations = [
        ("kubectl.kubernetes.io/default-container", AGENT_DAEMON_SET),
        ("openshift.io/required-scc", "privileged"),
    ];
    let pod = PodSpec {
        host_pid: Some(true),
        affinity: selector.is_none().then(usual_nodes),
        node_selector: selector,
        init_containers: (!init_containers.is_empty()).then_some(init_containers),
        containers: vec![container(config, site, image)],
        volumes: Some(volumes),
        ..Default::default()
    };
    on_nodes(AGENT_DAEMON_SET, config, site, &annotations, pod)
}

fn container(config: &SriovOperatorConfig, site: &Site<'_>, image: &str) -> Container {
    Container {
        name: AGENT_DAEMON_SET.to_owned(),
        image: Some(image.to_owned()),
        command: Some(words(&["/usr/bin/vfleet"])),
        args: Some(words(&["agent", "--host-root", HOST])),
        env: Some(variables(config, site)),
        security_context: Some(privileged()),
        resources: Some(requests("50m", "64Mi")),
        volume_mounts: Some(vec![mount("host", HOST)]),
        ..Default::default()
    }
}

/// Each name once: the API server refuses a list with a name in it twice.
fn variables(config: &SriovOperatorConfig, site: &Site<'_>) -> Vec<EnvVar> {
    let mut values: BTreeMap<&str, String> = settings(&config.spec, site);
    if go_device_plugin::waits(config, site) {
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
    let chosen = values.into_iter().filter(|(name, _)| !FIXED_VARIABLES.contains(name));
    fixed.into_iter().chain(chosen.map(|(name, value)| plain(name, value))).collect()
}

/// What the agent is told, by variable. Settings of features that it does not have yet are variables and not flags: it
/// would refuse to start with a flag that it does not know.
fn settings(spec: &SriovOperatorConfigSpec, site: &Site<'_>) -> BTreeMap<&'static str, String> {
    let deploy = site.deploy;
    let mode = match spec.configuration_mode.unwrap_or_default() {
        ConfigurationMode::Daemon => "daemon",
        ConfigurationMode::Systemd => "systemd",
    };
    let disabled = spec.disable_plugins.iter().flatten().map(|plugin| match plugin {
        PluginName::Mellanox => "mellanox",
    });
    let disabled: Vec<_> = disabled.collect();
    let gate = |gate: Gate| gate.is_on(spec).to_string();
    let mut values = BTreeMap::from([
        (name::CLUSTER_TYPE, deploy.cluster_type.name().to_owned()),
        (name::CONFIGURATION_MODE, mode.to_owned()),
        (name::LOG_FORMAT, deploy.log_format.clone()),
        (name::MANAGE_SOFTWARE_BRIDGES, gate(Gate::ManageSoftwareBridges)),
        (name::MELLANOX_FIRMWARE_RESET, gate(Gate::MellanoxFirmwareReset)),
        (name::METRICS_BIND_ADDRESS, METRICS.to_owned()),
        (name::PARALLEL_NIC_CONFIG, gate(Gate::ParallelNicConfig)),
        (name::RESOURCE_PREFIX, site.resource_prefix.to_owned()),
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
    if !disabled.is_empty() {
        values.insert(name::DISABLE_PLUGINS, disabled.join(","));
    }
    values
}

/// The API server stores no empty value, and we would take that for somebody's change.
fn plain(name: &str, value: String) -> EnvVar {
    EnvVar { name: name.to_owned(), value: (!value.is_empty()).then_some(value), ..Default::default() }
}

/// Linux workers. The label counts whatever its value, as it does for policies; a node selector cannot say that.
fn usual_nodes() -> Affinity {
    let requirement = |key: &str, operator: &str, values: Option<Vec<String>>| NodeSelectorRequirement {
        key: key.to_owned(),
        operator: operator.to_owned(),
        values,
    };
    let term = NodeSelectorTerm {
        match_expressions: Some(vec![
            requirement(WORKER_LABEL, "Exists", None),
            requirement(OS_LABEL, "In", Some(words(&["linux"]))),
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
