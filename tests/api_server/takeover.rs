//! Take-over from the Go operator v1.6.0: vfleet adopts the objects that the Go operator has written on this control
//! plane, and nothing that agents or pods read changes without a change of configuration.

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::core::DynamicObject;
use kube::runtime::wait::await_condition;
use serde_json::{Value, json};
use vfleet_tests::takeover::{Kind, TakeoverCluster, interfaces};

const KEEP_UNTIL: &str = "sriovnetwork.openshift.io/keep-state-until";
const PLUGIN_CONFIG: &str = "device-plugin-config";
const OWNER: &str = "sriovnetwork.openshift.io/owner-ref";
const FINALIZER: &str = "netattdef.finalizers.sriovnetwork.openshift.io";

fn shared_cluster() -> &'static TakeoverCluster {
    TakeoverCluster::shared()
}

fn owners(object: &DynamicObject) -> Vec<(String, String, bool)> {
    let owner = |owner: &k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference| {
        (owner.kind.clone(), owner.name.clone(), owner.controller == Some(true))
    };
    object.owner_references().iter().map(owner).collect()
}

/// Creates a network and waits for its NAD. By then vfleet has reconciled all older networks.
async fn wait_for_networks(cluster: &TakeoverCluster, name: &str) {
    cluster.apply(&network(name, &json!({ "resourceName": "canary" })));
    cluster.wait(Kind::Attachment, cluster.namespace(), name, "a NAD of vfleet", |_| true).await;
}

fn network(name: &str, spec: &Value) -> String {
    json!({
        "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovNetwork",
        "metadata": { "name": name }, "spec": spec,
    })
    .to_string()
}

#[tokio::test]
async fn vfleet_can_be_installed_next_to_the_objects_of_the_go_operator() {
    if let Err(error) = &shared_cluster().installed {
        panic!("{error:#}");
    }
}

async fn expect_unchanged_state(role: &str) {
    let cluster = shared_cluster();
    let node = cluster.node(role);
    let before = cluster.before(Kind::State, cluster.namespace(), &node);
    let now = cluster.get(Kind::State, cluster.namespace(), &node).await;
    assert_eq!(now.uid(), before.uid(), "{node} was created again");
    assert_eq!(now.data["spec"], before.data["spec"], "{node}");
    assert_eq!(now.metadata.generation, before.metadata.generation, "{node}: its agent would plan again");
}

#[tokio::test]
async fn node_states_stay_unchanged() {
    for role in ["stays", "other", "gone"] {
        expect_unchanged_state(role).await;
    }
}

/// Checks that the spec has an empty list. The Go operator omits it, but for vfleet a missing list means "not planned
/// yet".
fn expect_empty_spec(state: &DynamicObject) {
    let spec = serde_json::json!({ "interfaces": [], "bridges": {}, "system": {} });
    assert_eq!(state.data["spec"], spec, "{}", state.name_any());
}

#[tokio::test]
async fn the_node_state_of_a_node_without_policies_has_an_empty_spec() {
    let cluster = shared_cluster();
    let node = cluster.node("unwanted");
    let now = cluster.get(Kind::State, cluster.namespace(), &node).await;
    assert_eq!(now.uid(), cluster.before(Kind::State, cluster.namespace(), &node).uid());
    expect_empty_spec(&now);
}

#[tokio::test]
async fn the_go_operator_has_written_the_expected_objects() {
    let cluster = shared_cluster();
    let stays = cluster.before(Kind::State, cluster.namespace(), &cluster.node("stays"));
    assert_eq!(stays.data["spec"]["system"]["rdmaMode"], "exclusive");
    assert_eq!(stays.data["spec"]["bridges"]["ovs"][0]["name"], "br-0000_5e_00.0");
    let policies: Vec<_> = interfaces(stays)
        .iter()
        .flat_map(|interface| interface["vfGroups"].as_array().cloned().unwrap_or_default())
        .map(|group| group["policyName"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(policies, ["stays-ib", "stays-high", "stays-low", "stays-bridge", "stays-two"]);
    let nad = cluster.before(Kind::Attachment, cluster.namespace(), "net-full");
    assert!(!nad.annotations().contains_key(OWNER), "this version sets no owner of NADs");
}

#[tokio::test]
async fn drain_annotations_are_removed() {
    let cluster = shared_cluster();
    let keys =
        ["state", "desired-state", "current-state"].map(|key| format!("sriovnetwork.openshift.io/{key}"));
    for role in ["stays", "other"] {
        let node = cluster.node(role);
        let before = cluster.before(Kind::State, cluster.namespace(), &node);
        for key in &keys[1..] {
            assert_eq!(before.annotations().get(key).map(String::as_str), Some("Idle"), "{role}: {key}");
        }
        let is_clean =
            |object: &DynamicObject| keys.iter().all(|key| !object.annotations().contains_key(key));
        cluster.wait(Kind::State, cluster.namespace(), &node, "no drain annotations", is_clean).await;
        let node_is_clean = |node: Option<&Node>| {
            node.is_some_and(|node| keys.iter().all(|key| !node.annotations().contains_key(key)))
        };
        let clean = await_condition(cluster.nodes().await, &node, node_is_clean);
        let clean = tokio::time::timeout(std::time::Duration::from_secs(30), clean).await;
        assert!(clean.is_ok(), "{role}: the node is still annotated");
    }
}

#[tokio::test]
async fn a_running_device_plugin_keeps_its_label() {
    let cluster = shared_cluster();
    let label = "jsonpath={.metadata.labels.sriovnetwork\\.openshift\\.io/device-plugin}";
    assert_eq!(cluster.kubectl(&["get", "node", &cluster.node("stays"), "-o", label]), "Enabled");
}

#[tokio::test]
async fn the_device_plugin_is_left_alone_without_its_image() {
    let cluster = shared_cluster();
    let before = cluster.before(Kind::ConfigMap, cluster.namespace(), PLUGIN_CONFIG);
    assert_eq!(cluster.without_plugin_image.as_ref().map(|map| &map.metadata), Some(&before.metadata));
}

/// vfleet has written the ConfigMap, with all nodes, once it contains the resource of the canary.
#[tokio::test]
async fn the_device_plugin_keeps_its_configuration_and_does_not_restart() {
    let cluster = shared_cluster();
    let before = cluster.before(Kind::ConfigMap, cluster.namespace(), PLUGIN_CONFIG);
    let canary = cluster.node("canary");
    let is_written = |map: &DynamicObject| {
        map.data["data"][&canary].as_str().is_some_and(|config| config.contains("canary"))
    };
    let now = cluster
        .wait(Kind::ConfigMap, cluster.namespace(), PLUGIN_CONFIG, "the configuration of vfleet", is_written)
        .await;
    assert_eq!(now.uid(), before.uid(), "the ConfigMap was created again");
    for role in ["stays", "other", "unwanted", "pool", "bridge"] {
        let node = cluster.node(role);
        let (old, new) = (before.data["data"][&node].as_str(), now.data["data"][&node].as_str());
        assert!(old.is_some_and(|old| old.contains("resourceList")), "{role}: {old:?}");
        assert_eq!(new, old, "{role}");
        let log = cluster.log();
        let restarts = |line: &&str| line.contains("restarting the device plugin") && line.contains(&node);
        assert_eq!(log.lines().find(restarts), None);
    }
    let stays = before.data["data"][&cluster.node("stays")].as_str().unwrap_or_default();
    assert!(
        stays.contains(r#""devices":["154c"]"#),
        "the device ID is not from the list of supported cards: {stays}"
    );
}

#[tokio::test]
async fn node_states_belong_to_the_operator_config_alone() {
    let cluster = shared_cluster();
    let expected = [("SriovOperatorConfig".to_owned(), "default".to_owned(), true)];
    for role in ["stays", "other"] {
        let belongs = |state: &DynamicObject| owners(state) == expected;
        cluster.wait(Kind::State, cluster.namespace(), &cluster.node(role), "one owner", belongs).await;
    }
}

#[tokio::test]
async fn a_stale_node_state_is_kept_until_the_time_of_the_go_operator() {
    let cluster = shared_cluster();
    let before = cluster.before(Kind::State, cluster.namespace(), &cluster.node("gone"));
    let now = cluster.get(Kind::State, cluster.namespace(), &cluster.node("gone")).await;
    assert_eq!(now.annotations().get(KEEP_UNTIL), before.annotations().get(KEEP_UNTIL));
    assert!(now.metadata.deletion_timestamp.is_none());
}

#[tokio::test]
async fn an_expired_node_state_is_deleted() {
    let cluster = shared_cluster();
    cluster.wait_until_deleted(Kind::State, cluster.namespace(), &cluster.node("expired")).await;
}

#[tokio::test]
async fn a_node_that_returns_keeps_its_node_state() {
    let cluster = shared_cluster();
    let node = cluster.node("returns");
    cluster.create_node("returns").await;
    let is_kept = |state: &DynamicObject| !state.annotations().contains_key(KEEP_UNTIL);
    let now = cluster.wait(Kind::State, cluster.namespace(), &node, "no expiry time", is_kept).await;
    let before = cluster.before(Kind::State, cluster.namespace(), &node);
    assert_eq!(now.uid(), before.uid());
    let is_planned = |state: &DynamicObject| !state.data["spec"]["interfaces"].is_null();
    expect_empty_spec(&cluster.wait(Kind::State, cluster.namespace(), &node, "planned", is_planned).await);
}

#[tokio::test]
async fn a_later_change_of_a_policy_is_written() {
    let cluster = shared_cluster();
    let change = r#"{"spec":{"numVfs":6,"mtu":2000,"deviceType":"vfio-pci"}}"#;
    cluster.kubectl(&["patch", "sriovnetworknodepolicies", "changes", "--type=merge", "--patch", change]);
    let is_changed = |state: &DynamicObject| {
        let desired = interfaces(state);
        let group = &desired[0]["vfGroups"][0];
        desired.len() == 1
            && desired[0]["numVfs"] == 6
            && desired[0]["mtu"] == 2000
            && desired[0]["vfGroups"].as_array().is_some_and(|groups| groups.len() == 1)
            && (&group["vfRange"], &group["deviceType"]) == (&json!("0-5"), &json!("vfio-pci"))
    };
    cluster.wait(Kind::State, cluster.namespace(), &cluster.node("changes"), "the change", is_changed).await;
}

#[tokio::test]
async fn a_deleted_policy_is_removed_from_the_spec_of_the_go_operator() {
    let cluster = shared_cluster();
    cluster.kubectl(&["delete", "sriovnetworknodepolicies", "loses"]);
    let is_empty = |state: &DynamicObject| interfaces(state).is_empty();
    cluster.wait(Kind::State, cluster.namespace(), &cluster.node("loses"), "an empty spec", is_empty).await;
}

#[tokio::test]
async fn the_rdma_mode_of_a_deleted_pool_is_removed() {
    let cluster = shared_cluster();
    let before = cluster.before(Kind::State, cluster.namespace(), &cluster.node("pool"));
    assert_eq!(before.data["spec"]["system"]["rdmaMode"], "shared");
    cluster.kubectl(&["delete", "sriovnetworkpoolconfigs", "pool"]);
    let has_none = |state: &DynamicObject| state.data["spec"]["system"].get("rdmaMode").is_none();
    let state =
        cluster.wait(Kind::State, cluster.namespace(), &cluster.node("pool"), "no mode", has_none).await;
    assert_eq!(interfaces(&state), interfaces(before));
}

#[tokio::test]
async fn the_bridge_of_the_go_operator_is_removed_with_the_bridge_of_the_policy() {
    let cluster = shared_cluster();
    let before = cluster.before(Kind::State, cluster.namespace(), &cluster.node("bridge"));
    assert_eq!(before.data["spec"]["bridges"]["ovs"].as_array().map(Vec::len), Some(1));
    let change = r#"{"spec":{"bridge":null}}"#;
    cluster.kubectl(&["patch", "sriovnetworknodepolicies", "bridge", "--type=merge", "--patch", change]);
    let has_none =
        |state: &DynamicObject| state.data["spec"]["bridges"]["ovs"].as_array().is_none_or(Vec::is_empty);
    let state =
        cluster.wait(Kind::State, cluster.namespace(), &cluster.node("bridge"), "no bridge", has_none).await;
    assert_eq!(interfaces(&state), interfaces(before));
}

#[tokio::test]
async fn a_pool_with_the_go_operators_finalizer_can_be_deleted() {
    let cluster = shared_cluster();
    cluster.kubectl(&["delete", "sriovnetworkpoolconfigs", "offload", "--wait=false"]);
    cluster.wait_until_deleted(Kind::Pool, cluster.namespace(), "offload").await;
}

#[tokio::test]
async fn the_daemon_set_of_the_agent_is_taken_over_in_place() {
    let cluster = shared_cluster();
    let name = "sriov-network-config-daemon";
    let is_applied = |set: &DynamicObject| {
        set.managed_fields().iter().any(|entry| entry.manager.as_deref() == Some("vfleet-operator"))
    };
    let now =
        cluster.wait(Kind::DaemonSet, cluster.namespace(), name, "the DaemonSet of vfleet", is_applied).await;
    assert_eq!(now.uid(), cluster.before(Kind::DaemonSet, cluster.namespace(), name).uid());
    let is_ready = |config: &DynamicObject| {
        let conditions = config.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
    };
    cluster.wait(Kind::Config, cluster.namespace(), "default", "Ready", is_ready).await;
}

#[tokio::test]
async fn nads_stay_unchanged() {
    let cluster = shared_cluster();
    wait_for_networks(cluster, "canary-stays").await;
    for (_, name, namespace) in cluster.networks().into_iter().filter(|(_, name, _)| !name.ends_with("goes"))
    {
        let before = cluster.before(Kind::Attachment, &namespace, name);
        let now = cluster.get(Kind::Attachment, &namespace, name).await;
        assert_eq!(now.uid(), before.uid(), "{name} was created again");
        assert_eq!(now.data["spec"]["config"], before.data["spec"]["config"], "{name}");
        let resource = "k8s.v1.cni.cncf.io/resourceName";
        assert_eq!(now.annotations().get(resource), before.annotations().get(resource), "{name}");
    }
}

#[tokio::test]
async fn nads_get_an_owner() {
    let cluster = shared_cluster();
    for (kind, owner) in [
        (Kind::Network, "SriovNetwork"),
        (Kind::IbNetwork, "SriovIBNetwork"),
        (Kind::OvsNetwork, "OVSNetwork"),
    ] {
        for (_, name, namespace) in cluster
            .networks()
            .into_iter()
            .filter(|(found, name, _)| *found == kind && !name.ends_with("goes"))
        {
            let expected = format!("{owner}.sriovnetwork.openshift.io/{}/{name}", cluster.namespace());
            let is_owned = |nad: &DynamicObject| nad.annotations().get(OWNER) == Some(&expected);
            cluster.wait(Kind::Attachment, &namespace, name, &expected, is_owned).await;
        }
    }
}

#[tokio::test]
async fn networks_get_the_finalizer_again_that_the_go_operator_removed() {
    let cluster = shared_cluster();
    let before = cluster.before(Kind::Network, cluster.namespace(), "net-full");
    assert!(before.finalizers().is_empty(), "the Go operator removes its finalizers when it stops");
    let has_finalizer = |network: &DynamicObject| network.finalizers() == [FINALIZER];
    cluster.wait(Kind::Network, cluster.namespace(), "net-full", "a finalizer", has_finalizer).await;
    cluster.wait(Kind::IbNetwork, cluster.namespace(), "ib-full", "one finalizer", has_finalizer).await;
}

#[tokio::test]
async fn the_nad_of_the_go_operator_is_deleted_with_its_network() {
    let cluster = shared_cluster();
    wait_for_networks(cluster, "canary-goes").await;
    let (own, pods) = (cluster.namespace(), cluster.pod_namespace());
    for (kind, name, namespace) in [(Kind::Network, "net-goes", own), (Kind::IbNetwork, "ib-goes", &pods)] {
        cluster.kubectl(&["delete", &kind.plural(), name, "--wait=false"]);
        cluster.wait_until_deleted(kind, own, name).await;
        cluster.wait_until_deleted(Kind::Attachment, namespace, name).await;
    }
}

#[tokio::test]
async fn a_network_that_waits_for_its_namespace_gets_its_nad_later() {
    let cluster = shared_cluster();
    wait_for_networks(cluster, "canary-late").await;
    cluster.kubectl(&["create", "namespace", &cluster.missing_namespace()]);
    cluster.wait(Kind::Attachment, &cluster.missing_namespace(), "net-late", "an attachment", |_| true).await;
}

#[tokio::test]
async fn a_nad_without_owner_is_adopted() {
    let cluster = shared_cluster();
    cluster.apply(
        &json!({
            "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
            "metadata": { "name": "by-hand", "labels": { "somebody": "else" } }, "spec": { "config": "{}" },
        })
        .to_string(),
    );
    let before = cluster.get(Kind::Attachment, cluster.namespace(), "by-hand").await;
    cluster.apply(&network("by-hand", &json!({ "resourceName": "low", "vlan": 3 })));
    let is_adopted = |nad: &DynamicObject| {
        let config: Value = nad.data["spec"]["config"]
            .as_str()
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default();
        config["vlan"] == 3 && nad.annotations().contains_key(OWNER)
    };
    let now = cluster.wait(Kind::Attachment, cluster.namespace(), "by-hand", "adopted", is_adopted).await;
    assert_eq!(now.uid(), before.uid());
    assert_eq!(now.labels().get("somebody").map(String::as_str), Some("else"), "labels of others are kept");
}
