//! The separate Go device plugin, where it is deployed: what it is told, where it runs, and when it starts again. The
//! plugin's pods are played by kwok; everything else is real.

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
/// Generous: the machine may be busy.
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

fn told(resource: &str) -> String {
    // In the Go operator's form, which `crates/plan/tests/device_plugin` has from that operator's own code.
    format!(
        r#"{{"resourceList":[{{"resourceName":"{resource}","selectors":{{"vendors":["8086"],"devices":["10ca"],"pfNames":["{PF}"],"IsRdma":false,"NeedVhostNet":false}},"SelectorObj":null}}]}}"#
    )
}

/// The plugin's pod on the node, when what it started with is noted on it.
async fn noted_pod(cluster: &Cluster, unlike: Option<&Pod>) -> Pod {
    let is_it = |pod: &Pod| {
        pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(NODE)
            && pod.annotations().contains_key("vfleet.io/started-with")
            && pod.metadata.deletion_timestamp.is_none()
            && unlike.is_none_or(|old| old.uid() != pod.uid())
    };
    cluster.wait_for_any("app=sriov-device-plugin", "a pod of the plugin on the node", is_it).await
}

#[tokio::test]
async fn the_plugin_is_told_and_starts_again_only_for_what_changed() {
    let cluster = Cluster::new("plugin", Plane::Deployment).await;
    let nics = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "supported-nic-ids" },
                       "data": { "igb": "8086 10c9 10ca", "bad": "only two" } });
    cluster.kubectl(&["apply", "-f", &cluster.file("nics.json", &nics.to_string())]);
    let mut operator = cluster.operator_with(&[("SRIOV_DEVICE_PLUGIN_IMAGE", "plugin:1")]);
    // It does not hold the plugin back: a pod that kwok plays would not wait. See tests/agent.rs.
    let _agent = cluster.agent(NODE, &machine()).await;
    cluster.create_worker("plugin-2").await;

    let nothing = |map: &ConfigMap| {
        [NODE, "plugin-2"].iter().all(|node| config(map, node).as_deref() == Some(r#"{"resourceList":null}"#))
    };
    cluster.wait_for("device-plugin-config", "nothing for anybody", nothing).await;
    apply_policy(&cluster, "nics", 3, 1500).await;
    let is_told = |map: &ConfigMap| config(map, NODE) == Some(told("nics"));
    cluster.wait_for("device-plugin-config", "the policy's resource", is_told).await;
    let first = noted_pod(&cluster, None).await;
    let nodes: Api<Node> = Api::all(cluster.administrator());
    assert_eq!(label(&nodes.get(NODE).await.unwrap()), Some("Enabled"));
    assert_eq!(label(&nodes.get("plugin-2").await.unwrap()), Some("Disabled"));

    // An MTU is nothing to the plugin.
    apply_policy(&cluster, "nics", 3, 2000).await;
    cluster.wait(NODE, "MTU 2000", |state| state.is_synced() && state.card(PF).mtu == Some(2000)).await;
    // Another resource is; so are other VFs.
    apply_policy(&cluster, "others", 3, 2000).await;
    let second = noted_pod(&cluster, Some(&first)).await;
    apply_policy(&cluster, "others", 4, 2000).await;
    noted_pod(&cluster, Some(&second)).await;
    let restarts = cluster.log().matches("the device plugin starts again").count();
    assert_eq!(restarts, 2, "once for the resource and once for the VFs");

    // Somebody else's hand in the ConfigMap is put right.
    let patch = json!({ "data": { NODE: "{}", "nobody": "{}" } });
    cluster.kubectl(&[
        "patch",
        "configmap",
        "device-plugin-config",
        "--type=merge",
        "-p",
        &patch.to_string(),
    ]);
    let put_right =
        |map: &ConfigMap| config(map, NODE) == Some(told("others")) && config(map, "nobody").is_none();
    cluster.wait_for("device-plugin-config", "put right", put_right).await;

    // A node that runs no agent any more is forgotten.
    cluster.kubectl(&["label", "node", "plugin-2", "node-role.kubernetes.io/worker-"]);
    label_becomes(&cluster, "plugin-2", None).await;
    let is_forgotten = |map: &ConfigMap| config(map, "plugin-2").is_none();
    cluster.wait_for("device-plugin-config", "only one node", is_forgotten).await;

    cluster.kubectl(&["delete", "sriovnetworknodepolicy", "p"]);
    cluster.wait(NODE, "no VFs", |state| state.is_synced() && state.vfs(PF).is_empty()).await;
    let nothing = |map: &ConfigMap| config(map, NODE).as_deref() == Some(r#"{"resourceList":null}"#);
    cluster.wait_for("device-plugin-config", "nothing for anybody", nothing).await;
    label_becomes(&cluster, NODE, Some("Disabled")).await;

    // Without the plugin nothing of it stays.
    operator.signal("TERM");
    operator.wait();
    let _operator = cluster.operator();
    cluster.kubectl(&["wait", "--for=delete", "configmap/device-plugin-config", "--timeout=60s"]);
    label_becomes(&cluster, NODE, None).await;
}

async fn label_becomes(cluster: &Cluster, node: &str, wanted: Option<&str>) {
    let nodes: Api<Node> = Api::all(cluster.administrator());
    let has_it = |node: Option<&Node>| node.is_some_and(|node| label(node) == wanted);
    let seen = tokio::time::timeout(DEADLINE, await_condition(nodes, node, has_it)).await;
    assert!(seen.is_ok_and(|found| found.is_ok()), "{node}: the label does not become {wanted:?}");
}

fn label(node: &Node) -> Option<&str> {
    node.labels().get("sriovnetwork.openshift.io/device-plugin").map(String::as_str)
}

/// The plugin is told with such a patch: what somebody else has written meanwhile is a conflict, and not a mistake.
#[tokio::test]
async fn a_version_that_is_put_into_an_object_is_a_precondition() {
    let cluster = Cluster::new("versions", Plane::Deployment).await;
    cluster.kubectl(&["create", "configmap", "versioned"]);
    let maps: Api<ConfigMap> = Api::namespaced(cluster.administrator(), cluster.namespace());
    let version = maps.get("versioned").await.unwrap().resource_version();
    let write = async |text: &str| {
        let patch = serde_json::from_value(json!([
            { "op": "replace", "path": "/metadata/resourceVersion", "value": version },
            { "op": "add", "path": "/data", "value": { "text": text } },
        ]));
        maps.patch("versioned", &PatchParams::default(), &Patch::Json::<()>(patch.unwrap())).await
    };
    write("first").await.expect("nobody was quicker");
    let Err(kube::Error::Api(refused)) = write("second").await else { panic!("the version is an old one") };
    assert_eq!(refused.code, 409, "{refused:?}");
}
