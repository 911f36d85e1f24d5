//! Separate Go device plugin: its configuration, its nodes, and its restarts. kwok simulates the pods of the plugin;
//! everything else is real.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{Patch, PatchParams};
use kube::runtime::wait::await_condition;
use kube::{Api, ResourceExt};
use serde_json::json;
use vfleet_tests::cluster::{Cluster, machine};
use vfleet_tests::plane::Plane;

const PF: &str = "enp1s0";
const NODE: &str = "plugin-1";
/// Deadline of waits; generous, because the machine may be busy.
const DEADLINE: Duration = Duration::from_mins(1);

async fn apply_policy(cluster: &Cluster, resource: &str, num_vfs: i64, mtu: i64) {
    let spec = json!({
        "resourceName": resource, "nodeSelector": { "kubernetes.io/hostname": NODE }, "numVfs": num_vfs, "mtu": mtu,
        "nicSelector": { "vendor": "8086", "deviceID": "10c9", "pfNames": [PF] },
    });
    cluster.apply("SriovNetworkNodePolicy", "sriovnetworknodepolicies", "p", &spec).await;
}

fn config(map: &ConfigMap, node: &str) -> Option<String> {
    map.data.as_ref()?.get(node).cloned()
}

fn expected_config(resource: &str) -> String {
    // In the format of the Go operator; `crates/plan/tests/device_plugin` contains output of its code.
    format!(
        r#"{{"resourceList":[{{"resourceName":"{resource}","selectors":{{"vendors":["8086"],"devices":["10ca"],"pfNames":["{PF}"],"IsRdma":false,"NeedVhostNet":false}},"SelectorObj":null}}]}}"#
    )
}

/// Waits for a new pod of the plugin on the node, with the annotation of its configuration.
async fn wait_for_new_pod(cluster: &Cluster, previous: Option<&Pod>) -> Pod {
    let matches = |pod: &Pod| {
        pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(NODE)
            && pod.annotations().contains_key("vfleet.io/started-with")
            && pod.metadata.deletion_timestamp.is_none()
            && previous.is_none_or(|old| old.uid() != pod.uid())
    };
    cluster.wait_for_any("app=sriov-device-plugin", "a pod of the plugin on the node", matches).await
}

#[tokio::test]
async fn the_plugin_gets_its_configuration_and_restarts_only_for_relevant_changes() {
    let cluster = Cluster::new("plugin", Plane::Deployment).await;
    let nics = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "supported-nic-ids" },
                       "data": { "igb": "8086 10c9 10ca", "bad": "only two" } });
    cluster.kubectl(&["apply", "-f", &cluster.write_file("nics.json", &nics.to_string())]);
    let mut operator = cluster.start_operator_with(&[("SRIOV_DEVICE_PLUGIN_IMAGE", "plugin:1")]);
    // The agent does not hold the plugin back, because simulated pods do not wait. See plugin_hold.rs.
    let _agent = cluster.start_agent(NODE, &machine()).await;
    cluster.create_worker("plugin-2").await;

    let is_empty = |map: &ConfigMap| {
        [NODE, "plugin-2"].iter().all(|node| config(map, node).as_deref() == Some(r#"{"resourceList":null}"#))
    };
    cluster.wait_for("device-plugin-config", "no resources", is_empty).await;
    apply_policy(&cluster, "nics", 3, 1500).await;
    let has_resource = |map: &ConfigMap| config(map, NODE) == Some(expected_config("nics"));
    cluster.wait_for("device-plugin-config", "the resource of the policy", has_resource).await;
    let first = wait_for_new_pod(&cluster, None).await;
    let nodes: Api<Node> = Api::all(cluster.admin_client());
    assert_eq!(label(&nodes.get(NODE).await.unwrap()), Some("Enabled"));
    assert_eq!(label(&nodes.get("plugin-2").await.unwrap()), Some("Disabled"));

    // An MTU is not relevant for the plugin.
    apply_policy(&cluster, "nics", 3, 2000).await;
    cluster.wait(NODE, "MTU 2000", |state| state.is_synced() && state.card(PF).mtu == Some(2000)).await;
    // Another resource and other VFs are relevant.
    apply_policy(&cluster, "others", 3, 2000).await;
    let second = wait_for_new_pod(&cluster, Some(&first)).await;
    apply_policy(&cluster, "others", 4, 2000).await;
    wait_for_new_pod(&cluster, Some(&second)).await;
    let restarts = cluster.log().matches("restarting the device plugin").count();
    assert_eq!(restarts, 2, "one restart for the resource and one for the VFs");

    // Changes of the ConfigMap by others are reverted.
    let patch = json!({ "data": { NODE: "{}", "nobody": "{}" } });
    cluster.kubectl(&[
        "patch",
        "configmap",
        "device-plugin-config",
        "--type=merge",
        "-p",
        &patch.to_string(),
    ]);
    let is_reverted = |map: &ConfigMap| {
        config(map, NODE) == Some(expected_config("others")) && config(map, "nobody").is_none()
    };
    cluster.wait_for("device-plugin-config", "reverted", is_reverted).await;

    // A node without agent is removed from the ConfigMap.
    cluster.kubectl(&["label", "node", "plugin-2", "node-role.kubernetes.io/worker-"]);
    wait_for_label(&cluster, "plugin-2", None).await;
    let is_removed = |map: &ConfigMap| config(map, "plugin-2").is_none();
    cluster.wait_for("device-plugin-config", "only one node", is_removed).await;

    cluster.kubectl(&["delete", "sriovnetworknodepolicy", "p"]);
    cluster.wait(NODE, "no VFs", |state| state.is_synced() && state.vfs(PF).is_empty()).await;
    let is_empty = |map: &ConfigMap| config(map, NODE).as_deref() == Some(r#"{"resourceList":null}"#);
    cluster.wait_for("device-plugin-config", "no resources", is_empty).await;
    wait_for_label(&cluster, NODE, Some("Disabled")).await;

    // Without the plugin its ConfigMap and labels are removed.
    operator.signal("TERM");
    operator.wait();
    let _operator = cluster.start_operator();
    cluster.kubectl(&["wait", "--for=delete", "configmap/device-plugin-config", "--timeout=60s"]);
    wait_for_label(&cluster, NODE, None).await;
}

async fn wait_for_label(cluster: &Cluster, node: &str, expected: Option<&str>) {
    let nodes: Api<Node> = Api::all(cluster.admin_client());
    let matches = |node: Option<&Node>| node.is_some_and(|node| label(node) == expected);
    let result = tokio::time::timeout(DEADLINE, await_condition(nodes, node, matches)).await;
    assert!(result.is_ok_and(|found| found.is_ok()), "{node}: timed out waiting for the label {expected:?}");
}

fn label(node: &Node) -> Option<&str> {
    node.labels().get("sriovnetwork.openshift.io/device-plugin").map(String::as_str)
}

/// The ConfigMap of the plugin is written with such a patch, so that concurrent writes of others cause a conflict.
#[tokio::test]
async fn a_resource_version_in_a_patch_is_a_precondition() {
    let cluster = Cluster::new("versions", Plane::Deployment).await;
    cluster.kubectl(&["create", "configmap", "versioned"]);
    let maps: Api<ConfigMap> = Api::namespaced(cluster.admin_client(), cluster.namespace());
    let version = maps.get("versioned").await.unwrap().resource_version();
    let write = async |text: &str| {
        let patch = serde_json::from_value(json!([
            { "op": "replace", "path": "/metadata/resourceVersion", "value": version },
            { "op": "add", "path": "/data", "value": { "text": text } },
        ]));
        maps.patch("versioned", &PatchParams::default(), &Patch::Json::<()>(patch.unwrap())).await
    };
    write("first").await.expect("the version is current");
    let Err(kube::Error::Api(refused)) = write("second").await else {
        panic!("an outdated version was accepted")
    };
    assert_eq!(refused.code, 409, "{refused:?}");
}
