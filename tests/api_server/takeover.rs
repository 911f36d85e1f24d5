//! vfleet takes over from the Go operator v1.6.0: what that has really written on this control plane is adopted, and
//! nothing that agents or pods read changes, until somebody wants it to.

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::core::DynamicObject;
use kube::runtime::wait::await_condition;
use serde_json::{Value, json};
use vfleet_tests::takeover::{Kind, Scene, interfaces};

const KEEP_UNTIL: &str = "sriovnetwork.openshift.io/keep-state-until";
const PLUGIN_CONFIG: &str = "device-plugin-config";
const OWNER: &str = "sriovnetwork.openshift.io/owner-ref";
const FINALIZER: &str = "netattdef.finalizers.sriovnetwork.openshift.io";

fn scene() -> &'static Scene {
    Scene::shared()
}

fn owners(object: &DynamicObject) -> Vec<(String, String, bool)> {
    let owner = |owner: &k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference| {
        (owner.kind.clone(), owner.name.clone(), owner.controller == Some(true))
    };
    object.owner_references().iter().map(owner).collect()
}

/// A network that is new: when it has its attachment, vfleet has looked at the others.
async fn networks_are_served(scene: &Scene, name: &str) {
    scene.apply(&network(name, &json!({ "resourceName": "canary" })));
    scene.wait(Kind::Attachment, scene.namespace(), name, "an attachment of vfleet's", |_| true).await;
}

fn network(name: &str, spec: &Value) -> String {
    json!({
        "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovNetwork",
        "metadata": { "name": name }, "spec": spec,
    })
    .to_string()
}

#[tokio::test]
async fn vfleet_can_be_installed_beside_what_is_there() {
    if let Err(error) = &scene().installed {
        panic!("{error:#}");
    }
}

async fn stays_as_it_is(role: &str) {
    let scene = scene();
    let node = scene.node(role);
    let before = scene.before(Kind::State, scene.namespace(), &node);
    let now = scene.now(Kind::State, scene.namespace(), &node).await;
    assert_eq!(now.uid(), before.uid(), "{node} was made again");
    assert_eq!(now.data["spec"], before.data["spec"], "{node}");
    assert_eq!(
        now.metadata.generation, before.metadata.generation,
        "{node}: its agent would look at it again"
    );
}

#[tokio::test]
async fn node_states_stay_as_they_are() {
    for role in ["stays", "other", "gone"] {
        stays_as_it_is(role).await;
    }
}

/// The Go operator leaves the list out; with us that means "not worked out yet", so it is said, and nothing else.
fn says_that_nothing_is_wanted(state: &DynamicObject) {
    let spec = serde_json::json!({ "interfaces": [], "bridges": {}, "system": {} });
    assert_eq!(state.data["spec"], spec, "{}", state.name_any());
}

#[tokio::test]
async fn the_node_state_of_a_node_that_no_policy_selects_says_so() {
    let scene = scene();
    let node = scene.node("unwanted");
    let now = scene.now(Kind::State, scene.namespace(), &node).await;
    assert_eq!(now.uid(), scene.before(Kind::State, scene.namespace(), &node).uid());
    says_that_nothing_is_wanted(&now);
}

#[tokio::test]
async fn what_the_go_operator_wrote_is_what_it_should_be() {
    let scene = scene();
    let stays = scene.before(Kind::State, scene.namespace(), &scene.node("stays"));
    assert_eq!(stays.data["spec"]["system"]["rdmaMode"], "exclusive");
    assert_eq!(stays.data["spec"]["bridges"]["ovs"][0]["name"], "br-0000_5e_00.0");
    let policies: Vec<_> = interfaces(stays)
        .iter()
        .flat_map(|interface| interface["vfGroups"].as_array().cloned().unwrap_or_default())
        .map(|group| group["policyName"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(policies, ["stays-ib", "stays-high", "stays-low", "stays-bridge", "stays-two"]);
    let nad = scene.before(Kind::Attachment, scene.namespace(), "net-full");
    assert!(!nad.annotations().contains_key(OWNER), "this version knows no owners of attachments");
}

#[tokio::test]
async fn drain_annotations_go() {
    let scene = scene();
    let keys =
        ["state", "desired-state", "current-state"].map(|key| format!("sriovnetwork.openshift.io/{key}"));
    for role in ["stays", "other"] {
        let node = scene.node(role);
        let before = scene.before(Kind::State, scene.namespace(), &node);
        for key in &keys[1..] {
            assert_eq!(before.annotations().get(key).map(String::as_str), Some("Idle"), "{role}: {key}");
        }
        let is_clean =
            |object: &DynamicObject| keys.iter().all(|key| !object.annotations().contains_key(key));
        scene.wait(Kind::State, scene.namespace(), &node, "no drain annotations", is_clean).await;
        let node_is_clean = |node: Option<&Node>| {
            node.is_some_and(|node| keys.iter().all(|key| !node.annotations().contains_key(key)))
        };
        let gone = await_condition(scene.nodes().await, &node, node_is_clean);
        let gone = tokio::time::timeout(std::time::Duration::from_secs(30), gone).await;
        assert!(gone.is_ok(), "{role}: its node is still annotated");
    }
}

#[tokio::test]
async fn the_device_plugin_that_runs_keeps_its_label() {
    let scene = scene();
    let label = "jsonpath={.metadata.labels.sriovnetwork\\.openshift\\.io/device-plugin}";
    assert_eq!(scene.kubectl(&["get", "node", &scene.node("stays"), "-o", label]), "Enabled");
}

#[tokio::test]
async fn the_device_plugin_is_left_alone_without_its_image() {
    let scene = scene();
    let before = scene.before(Kind::ConfigMap, scene.namespace(), PLUGIN_CONFIG);
    assert_eq!(scene.without_plugin_image.as_ref().map(|map| &map.metadata), Some(&before.metadata));
}

/// When the canary's resource is in it, vfleet has written it, all nodes at once.
#[tokio::test]
async fn the_device_plugin_is_told_the_same_and_does_not_start_again() {
    let scene = scene();
    let before = scene.before(Kind::ConfigMap, scene.namespace(), PLUGIN_CONFIG);
    let canary = scene.node("canary");
    let is_written =
        |map: &DynamicObject| map.data["data"][&canary].as_str().is_some_and(|told| told.contains("canary"));
    let now = scene.wait(Kind::ConfigMap, scene.namespace(), PLUGIN_CONFIG, "vfleet's", is_written).await;
    assert_eq!(now.uid(), before.uid(), "it was made again");
    for role in ["stays", "other", "unwanted", "pool", "bridge"] {
        let node = scene.node(role);
        let (old, new) = (before.data["data"][&node].as_str(), now.data["data"][&node].as_str());
        assert!(old.is_some_and(|old| old.contains("resourceList")), "{role}: {old:?}");
        assert_eq!(new, old, "{role}");
        let log = scene.log();
        let restarts = |line: &&str| line.contains("device plugin starts again") && line.contains(&node);
        assert_eq!(log.lines().find(restarts), None);
    }
    let stays = before.data["data"][&scene.node("stays")].as_str().unwrap_or_default();
    assert!(stays.contains(r#""devices":["154c"]"#), "by the list of card models: {stays}");
}

#[tokio::test]
async fn node_states_belong_to_the_operator_config_alone() {
    let scene = scene();
    let expected = [("SriovOperatorConfig".to_owned(), "default".to_owned(), true)];
    for role in ["stays", "other"] {
        let belongs = |state: &DynamicObject| owners(state) == expected;
        scene.wait(Kind::State, scene.namespace(), &scene.node(role), "one owner", belongs).await;
    }
}

#[tokio::test]
async fn a_stale_node_state_is_kept_as_long_as_the_go_operator_said() {
    let scene = scene();
    let before = scene.before(Kind::State, scene.namespace(), &scene.node("gone"));
    let now = scene.now(Kind::State, scene.namespace(), &scene.node("gone")).await;
    assert_eq!(now.annotations().get(KEEP_UNTIL), before.annotations().get(KEEP_UNTIL));
    assert!(now.metadata.deletion_timestamp.is_none());
}

#[tokio::test]
async fn a_stale_node_state_whose_time_is_over_goes() {
    let scene = scene();
    scene.wait_gone(Kind::State, scene.namespace(), &scene.node("expired")).await;
}

#[tokio::test]
async fn a_node_that_comes_back_finds_its_node_state_as_it_was() {
    let scene = scene();
    let node = scene.node("returns");
    scene.create_node("returns").await;
    let is_kept = |state: &DynamicObject| !state.annotations().contains_key(KEEP_UNTIL);
    let now = scene.wait(Kind::State, scene.namespace(), &node, "no end", is_kept).await;
    let before = scene.before(Kind::State, scene.namespace(), &node);
    assert_eq!(now.uid(), before.uid());
    let is_planned = |state: &DynamicObject| !state.data["spec"]["interfaces"].is_null();
    says_that_nothing_is_wanted(
        &scene.wait(Kind::State, scene.namespace(), &node, "planned", is_planned).await,
    );
}

#[tokio::test]
async fn a_later_change_of_a_policy_is_written() {
    let scene = scene();
    let change = r#"{"spec":{"numVfs":6,"mtu":2000,"deviceType":"vfio-pci"}}"#;
    scene.kubectl(&["patch", "sriovnetworknodepolicies", "changes", "--type=merge", "--patch", change]);
    let is_changed = |state: &DynamicObject| {
        let wanted = interfaces(state);
        let group = &wanted[0]["vfGroups"][0];
        wanted.len() == 1
            && wanted[0]["numVfs"] == 6
            && wanted[0]["mtu"] == 2000
            && wanted[0]["vfGroups"].as_array().is_some_and(|groups| groups.len() == 1)
            && (&group["vfRange"], &group["deviceType"]) == (&json!("0-5"), &json!("vfio-pci"))
    };
    scene.wait(Kind::State, scene.namespace(), &scene.node("changes"), "the change", is_changed).await;
}

#[tokio::test]
async fn a_policy_that_goes_takes_what_the_go_operator_wrote_for_it() {
    let scene = scene();
    scene.kubectl(&["delete", "sriovnetworknodepolicies", "loses"]);
    let is_empty = |state: &DynamicObject| interfaces(state).is_empty();
    scene.wait(Kind::State, scene.namespace(), &scene.node("loses"), "nothing wanted", is_empty).await;
}

#[tokio::test]
async fn a_pool_that_goes_takes_its_rdma_mode() {
    let scene = scene();
    let before = scene.before(Kind::State, scene.namespace(), &scene.node("pool"));
    assert_eq!(before.data["spec"]["system"]["rdmaMode"], "shared");
    scene.kubectl(&["delete", "sriovnetworkpoolconfigs", "pool"]);
    let has_none = |state: &DynamicObject| state.data["spec"]["system"].get("rdmaMode").is_none();
    let state = scene.wait(Kind::State, scene.namespace(), &scene.node("pool"), "no mode", has_none).await;
    assert_eq!(interfaces(&state), interfaces(before));
}

#[tokio::test]
async fn a_policy_that_wants_no_bridge_any_more_takes_the_go_operators() {
    let scene = scene();
    let before = scene.before(Kind::State, scene.namespace(), &scene.node("bridge"));
    assert_eq!(before.data["spec"]["bridges"]["ovs"].as_array().map(Vec::len), Some(1));
    let change = r#"{"spec":{"bridge":null}}"#;
    scene.kubectl(&["patch", "sriovnetworknodepolicies", "bridge", "--type=merge", "--patch", change]);
    let has_none =
        |state: &DynamicObject| state.data["spec"]["bridges"]["ovs"].as_array().is_none_or(Vec::is_empty);
    let state =
        scene.wait(Kind::State, scene.namespace(), &scene.node("bridge"), "no bridge", has_none).await;
    assert_eq!(interfaces(&state), interfaces(before));
}

#[tokio::test]
async fn a_pool_with_the_go_operators_finalizer_can_be_deleted() {
    let scene = scene();
    scene.kubectl(&["delete", "sriovnetworkpoolconfigs", "offload", "--wait=false"]);
    scene.wait_gone(Kind::Pool, scene.namespace(), "offload").await;
}

#[tokio::test]
async fn the_agents_daemon_set_is_taken_over_in_place() {
    let scene = scene();
    let name = "sriov-network-config-daemon";
    let is_ours = |set: &DynamicObject| {
        set.managed_fields().iter().any(|entry| entry.manager.as_deref() == Some("vfleet-operator"))
    };
    let now = scene.wait(Kind::DaemonSet, scene.namespace(), name, "vfleet's DaemonSet", is_ours).await;
    assert_eq!(now.uid(), scene.before(Kind::DaemonSet, scene.namespace(), name).uid());
    let is_ready = |config: &DynamicObject| {
        let conditions = config.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
    };
    scene.wait(Kind::Config, scene.namespace(), "default", "Ready", is_ready).await;
}

#[tokio::test]
async fn attachments_stay_to_the_byte() {
    let scene = scene();
    networks_are_served(scene, "canary-stays").await;
    for (_, name, namespace) in scene.networks().into_iter().filter(|(_, name, _)| !name.ends_with("goes")) {
        let before = scene.before(Kind::Attachment, &namespace, name);
        let now = scene.now(Kind::Attachment, &namespace, name).await;
        assert_eq!(now.uid(), before.uid(), "{name} was made again");
        assert_eq!(now.data["spec"]["config"], before.data["spec"]["config"], "{name}");
        let resource = "k8s.v1.cni.cncf.io/resourceName";
        assert_eq!(now.annotations().get(resource), before.annotations().get(resource), "{name}");
    }
}

#[tokio::test]
async fn attachments_learn_whose_they_are() {
    let scene = scene();
    for (kind, owner) in [
        (Kind::Network, "SriovNetwork"),
        (Kind::IbNetwork, "SriovIBNetwork"),
        (Kind::OvsNetwork, "OVSNetwork"),
    ] {
        for (_, name, namespace) in
            scene.networks().into_iter().filter(|(found, name, _)| *found == kind && !name.ends_with("goes"))
        {
            let expected = format!("{owner}.sriovnetwork.openshift.io/{}/{name}", scene.namespace());
            let is_owned = |nad: &DynamicObject| nad.annotations().get(OWNER) == Some(&expected);
            scene.wait(Kind::Attachment, &namespace, name, &expected, is_owned).await;
        }
    }
}

#[tokio::test]
async fn networks_get_the_finalizer_back_that_the_go_operator_took_with_it() {
    let scene = scene();
    let before = scene.before(Kind::Network, scene.namespace(), "net-full");
    assert!(before.finalizers().is_empty(), "the Go operator takes its finalizers when it stops");
    let has_finalizer = |network: &DynamicObject| network.finalizers() == [FINALIZER];
    scene.wait(Kind::Network, scene.namespace(), "net-full", "a finalizer", has_finalizer).await;
    scene.wait(Kind::IbNetwork, scene.namespace(), "ib-full", "one finalizer", has_finalizer).await;
}

#[tokio::test]
async fn a_network_that_goes_takes_the_go_operators_attachment() {
    let scene = scene();
    networks_are_served(scene, "canary-goes").await;
    let (own, pods) = (scene.namespace(), scene.pods());
    for (kind, name, namespace) in [(Kind::Network, "net-goes", own), (Kind::IbNetwork, "ib-goes", &pods)] {
        scene.kubectl(&["delete", &kind.plural(), name, "--wait=false"]);
        scene.wait_gone(kind, own, name).await;
        scene.wait_gone(Kind::Attachment, namespace, name).await;
    }
}

#[tokio::test]
async fn a_network_that_waits_for_its_namespace_goes_on_waiting() {
    let scene = scene();
    networks_are_served(scene, "canary-late").await;
    scene.kubectl(&["create", "namespace", &scene.late()]);
    scene.wait(Kind::Attachment, &scene.late(), "net-late", "an attachment", |_| true).await;
}

#[tokio::test]
async fn an_attachment_of_nobody_is_adopted() {
    let scene = scene();
    scene.apply(
        &json!({
            "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
            "metadata": { "name": "by-hand", "labels": { "somebody": "else" } }, "spec": { "config": "{}" },
        })
        .to_string(),
    );
    let before = scene.now(Kind::Attachment, scene.namespace(), "by-hand").await;
    scene.apply(&network("by-hand", &json!({ "resourceName": "low", "vlan": 3 })));
    let is_adopted = |nad: &DynamicObject| {
        let config: Value = nad.data["spec"]["config"]
            .as_str()
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default();
        config["vlan"] == 3 && nad.annotations().contains_key(OWNER)
    };
    let now = scene.wait(Kind::Attachment, scene.namespace(), "by-hand", "adopted", is_adopted).await;
    assert_eq!(now.uid(), before.uid());
    assert_eq!(now.labels().get("somebody").map(String::as_str), Some("else"), "others' labels stay");
}
