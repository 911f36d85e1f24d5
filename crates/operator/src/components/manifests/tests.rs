use serde_json::{Value, json};
use vfleet_api::operator_config::SriovOperatorConfigSpec;

use super::*;

fn config(spec: Value) -> SriovOperatorConfig {
    let spec: SriovOperatorConfigSpec = serde_json::from_value(spec).unwrap();
    let mut config = SriovOperatorConfig::new("default", spec);
    config.metadata.uid = Some("the-config".to_owned());
    config
}

fn deploy() -> DeployConfig {
    DeployConfig {
        cni_bin_path: "/opt/cni/bin".to_owned(),
        log_format: "text".to_owned(),
        ..Default::default()
    }
}

fn build(spec: Value, deploy: &DeployConfig) -> ComponentManifests {
    let settings = DeploySettings {
        namespace: "ns",
        resource_prefix: "openshift.io",
        deploy,
        agent_image: Some("vfleet:1"),
    };
    build_manifests(&config(spec), &settings)
}

fn pod(daemon_set: &DaemonSet) -> PodSpec {
    daemon_set.spec.clone().unwrap().template.spec.unwrap()
}

fn agent(spec: Value) -> PodSpec {
    pod(&build(spec, &deploy()).daemon_sets[0])
}

fn variables(pod: &PodSpec) -> BTreeMap<String, Option<String>> {
    let variables = pod.containers[0].env.clone().unwrap();
    let count = variables.len();
    let map: BTreeMap<_, _> = variables.into_iter().map(|variable| (variable.name, variable.value)).collect();
    assert_eq!(map.len(), count, "each name once");
    map
}

#[test]
fn the_agent_has_the_names_of_existing_clusters() {
    let manifests = build(json!({}), &deploy());
    let [daemon_set] = manifests.daemon_sets.as_slice() else { panic!("{manifests:?}") };
    assert!(manifests.service_accounts.is_empty());
    assert_eq!(daemon_set.metadata.name.as_deref(), Some("sriov-network-config-daemon"));
    assert_eq!(daemon_set.metadata.owner_references.as_ref().unwrap()[0].uid, "the-config");
    let app = map(&[("app", "sriov-network-config-daemon")]);
    assert_eq!(daemon_set.spec.as_ref().unwrap().selector.match_labels, Some(app));

    let pod = pod(daemon_set);
    assert_eq!((pod.host_network, pod.host_pid), (Some(true), Some(true)));
    assert_eq!(pod.service_account_name.as_deref(), Some("sriov-network-config-daemon"));
    assert_eq!(pod.containers[0].args, Some(strings(&["agent", "--host-root", "/host"])));
    let propagation = Some("HostToContainer".to_owned());
    let host = VolumeMount { mount_propagation: propagation, ..mount("host", "/host") };
    assert_eq!(pod.containers[0].volume_mounts, Some(vec![host]), "it sees namespaces of later pods");
}

#[test]
fn an_agent_runs_on_linux_workers_or_on_selected_nodes() {
    let default = agent(json!({}));
    assert_eq!(default.node_selector, None);
    let affinity = json!(default.affinity.unwrap());
    let term =
        &affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"][0];
    assert_eq!(
        term["matchExpressions"],
        json!([
            { "key": "node-role.kubernetes.io/worker", "operator": "Exists" },
            { "key": "kubernetes.io/os", "operator": "In", "values": ["linux"] },
        ])
    );

    let chosen = agent(json!({ "configDaemonNodeSelector": { "rack": "a" } }));
    assert_eq!(chosen.node_selector, Some(map(&[("rack", "a")])));
    assert_eq!(chosen.affinity, None);
    assert_eq!(
        agent(json!({ "configDaemonNodeSelector": {} })).node_selector,
        None,
        "an empty selector is the same as none"
    );
}

#[test]
fn feature_gates_are_passed_to_the_agent_with_their_defaults() {
    let default = variables(&agent(json!({})));
    let value = |variables: &BTreeMap<String, Option<String>>, name: &str| variables[name].clone().unwrap();
    assert_eq!(value(&default, "PARALLEL_NIC_CONFIG"), "true");
    assert_eq!(value(&default, "MANAGE_SOFTWARE_BRIDGES"), "false");
    assert_eq!(value(&default, "OVS_BRIDGE_RESOURCES"), "false");
    assert_eq!(value(&default, "CONFIGURATION_MODE"), "daemon");
    assert!(!default.contains_key("DEV_MODE") && !default.contains_key("DISABLE_PLUGINS"));

    let switched = variables(&agent(json!({
        "featureGates": {
            "parallelNicConfig": false, "manageSoftwareBridges": true, "ovsBridgeResources": true, "unknown": true,
        },
        "disablePlugins": ["mellanox"],
    })));
    assert_eq!(value(&switched, "PARALLEL_NIC_CONFIG"), "false");
    assert_eq!(value(&switched, "MANAGE_SOFTWARE_BRIDGES"), "true");
    assert_eq!(value(&switched, "OVS_BRIDGE_RESOURCES"), "true");
    assert_eq!(value(&switched, "DISABLE_PLUGINS"), "mellanox");
}

#[test]
fn the_socket_of_open_vswitch_is_passed_to_the_agent() {
    let socket = |path: Option<&str>| {
        let deploy = DeployConfig { ovsdb_socket_path: path.map(str::to_owned), ..deploy() };
        variables(&pod(&build(json!({}), &deploy).daemon_sets[0])).get("OVSDB_SOCKET_PATH").cloned().flatten()
    };
    assert_eq!((socket(None), socket(Some("unix:/x")).as_deref()), (None, Some("unix:/x")));
}

#[test]
fn variables_of_the_config_take_precedence_except_for_fixed_ones() {
    let vars = json!({ "NODE_NAME": "other", "CLUSTER_TYPE": "mine", "EMPTY": "", "MORE": "1" });
    let variables = variables(&agent(json!({ "configDaemonEnvVars": vars })));
    assert_eq!(variables["NODE_NAME"], None, "it comes from a field of the pod");
    assert_eq!(variables["CLUSTER_TYPE"].as_deref(), Some("mine"));
    assert_eq!(variables["MORE"].as_deref(), Some("1"));
    assert_eq!(variables["EMPTY"], None, "the API server would drop an empty value");
}

#[test]
fn the_cni_plugins_of_vfleet_are_installed_from_the_image_of_the_agent() {
    let pod = agent(json!({}));
    let [own] = pod.init_containers.clone().unwrap().try_into().unwrap();
    assert_eq!((own.name.as_str(), own.image.as_deref()), ("vfleet-cni", Some("vfleet:1")));
    assert_eq!(own.command, Some(strings(&["/usr/bin/vfleet"])));
    let arguments = ["install-cni", "--dir", "/host/opt/cni/bin", "--tolerate-foreign"];
    assert_eq!(own.args, Some(strings(&arguments)));
    let volumes: Vec<_> = pod.volumes.clone().unwrap().into_iter().map(|volume| volume.name).collect();
    assert_eq!(volumes, ["host", "cnibin"]);
    let variables = variables(&pod);
    assert_eq!(variables["SRIOV_CNI_BIN_PATH"].as_deref(), Some("/opt/cni/bin"));
    assert!(!variables.contains_key("OTHER_CNI_PLUGINS"));
}

#[test]
fn plugins_of_configured_images_replace_those_of_vfleet() {
    let image = || Some("image".to_owned());
    let pod_with = |cni_images: CniImages| {
        pod(&build(json!({}), &DeployConfig { cni_images, ..deploy() }).daemon_sets[0])
    };
    let some = pod_with(CniImages { sriov: image(), ovs: image(), rdma: image(), ..Default::default() });
    let own = &some.init_containers.clone().unwrap()[0];
    let replaced = ["sriov", "ovs", "ovs-mirror-producer", "ovs-mirror-consumer", "rdma"];
    let skipped: Vec<_> = replaced.iter().flat_map(|name| ["--skip", name]).collect();
    assert_eq!(own.args.as_ref().unwrap()[4..], strings(&skipped));
    assert_eq!(variables(&some)["OTHER_CNI_PLUGINS"].as_deref(), Some(replaced.join(",").as_str()));

    let all = pod_with(CniImages {
        sriov: image(),
        infiniband: image(),
        rdma: image(),
        ovs: image(),
        accelerated_bridge: image(),
    });
    let names: Vec<_> = all.init_containers.unwrap().into_iter().map(|container| container.name).collect();
    let others = ["sriov-cni", "sriov-infiniband-cni", "ovs-cni", "accelerated-bridge-cni", "rdma-cni"];
    assert_eq!(names, others, "nothing is left for vfleet");
}

#[test]
fn configured_images_install_their_cni_plugins_on_the_host() {
    let mut deploy = deploy();
    deploy.cni_images.sriov = Some("sriov-cni:2".to_owned());
    deploy.cni_images.accelerated_bridge = Some("bridge:1".to_owned());
    let pod = pod(&build(json!({}), &deploy).daemon_sets[0]);
    let containers = pod.init_containers.unwrap();
    let names: Vec<_> = containers.iter().map(|container| container.name.as_str()).collect();
    assert_eq!(names, ["vfleet-cni", "sriov-cni", "accelerated-bridge-cni"]);
    assert_eq!(containers[1].image.as_deref(), Some("sriov-cni:2"));
    assert_eq!(containers[1].args, Some(strings(&["--no-sleep"])));
    assert_eq!(containers[2].args, Some(strings(&["cp -f /usr/bin/accelerated-bridge /host/opt/cni/bin/"])));
    let bin = pod.volumes.unwrap().into_iter().find(|volume| volume.name == "cnibin").unwrap();
    assert_eq!(bin.host_path.unwrap().path, "/opt/cni/bin");
}

#[test]
fn the_separate_device_plugin_is_deployed_only_with_its_image() {
    let deploy = DeployConfig { device_plugin_image: Some("plugin:1".to_owned()), ..deploy() };
    let manifests = build(json!({}), &deploy);
    assert_eq!(manifests.service_accounts[0].metadata.name.as_deref(), Some("sriov-device-plugin"));
    let default = pod(&manifests.daemon_sets[1]);
    let label = ("sriovnetwork.openshift.io/device-plugin", "Enabled");
    assert_eq!(default.node_selector, Some(map(&[("kubernetes.io/os", "linux"), label])));
    assert_eq!(
        default.containers[0].args,
        Some(strings(&[
            "--log-level=10",
            "--resource-prefix=openshift.io",
            "--config-file=/etc/pcidp/$(NODE_NAME)"
        ]))
    );

    let spec = json!({ "useCDI": true, "configDaemonNodeSelector": { "rack": "a" } });
    let chosen = pod(&build(spec, &deploy).daemon_sets[1]);
    assert_eq!(chosen.node_selector, Some(map(&[("rack", "a"), label])));
    assert!(chosen.containers[0].args.as_ref().unwrap().contains(&"--use-cdi".to_owned()));
    assert!(chosen.volumes.unwrap().iter().any(|volume| volume.name == "dynamic-cdi"));
}

#[test]
fn image_pull_secrets_are_set_for_all_pods() {
    let deploy = DeployConfig {
        device_plugin_image: Some("plugin:1".to_owned()),
        image_pull_secrets: strings(&["one", "two"]),
        ..deploy()
    };
    for daemon_set in build(json!({}), &deploy).daemon_sets {
        let secrets = pod(&daemon_set).image_pull_secrets.unwrap();
        assert!(secrets.iter().map(|secret| secret.name.as_str()).eq(["one", "two"]));
    }
}

#[test]
fn the_device_plugin_waits_for_the_agent_unless_the_gate_is_off() {
    let deploy = DeployConfig { device_plugin_image: Some("plugin:1".to_owned()), ..deploy() };
    let init_containers = |spec: Value| {
        let manifests = build(spec, &deploy);
        let [agent, plugin] = manifests.daemon_sets.as_slice() else { panic!("{manifests:?}") };
        let announces = variables(&pod(agent)).get("GO_DEVICE_PLUGIN").cloned().flatten();
        assert_eq!(
            announces.as_deref(),
            Some("true"),
            "the agent warns that the plugin does not know bridges"
        );
        let held_back = variables(&pod(agent)).get("HOLD_BACK_DEVICE_PLUGIN").cloned().flatten();
        (held_back, pod(plugin).init_containers)
    };
    let (held_back, waits) = init_containers(json!({}));
    assert_eq!(held_back.as_deref(), Some("true"));
    let [wait] = waits.unwrap().try_into().unwrap();
    assert_eq!(wait.image.as_deref(), Some("vfleet:1"));
    assert_eq!(wait.args.unwrap()[0], "wait-for-config");

    let off = json!({ "featureGates": { "blockDevicePluginUntilConfigured": false } });
    assert_eq!(init_containers(off), (None, None));
    let without = variables(&agent(json!({})));
    let names = ["HOLD_BACK_DEVICE_PLUGIN", "GO_DEVICE_PLUGIN"];
    assert!(!names.iter().any(|name| without.contains_key(*name)), "there is no plugin");
}
