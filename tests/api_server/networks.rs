//! Networks become NetworkAttachmentDefinitions (NADs): the real operator, with its own rights, on a real API server.

use k8s_openapi::api::core::v1::ResourceQuota;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use vfleet_api::network::NetworkAttachmentDefinition;
use vfleet_tests::cluster::Cluster;
use vfleet_tests::networks::{FINALIZER, LAST_NAMESPACE, OWNER, RESOURCE, World, annotation, config};
use vfleet_tests::plane::Plane;

const READY: &str = "NetworkReady";
const NOT_FOUND: &str = "NetworkAttachmentDefinitionNotFound";
const INVALID: &str = "NetworkAttachmentDefinitionInvalid";
const NO_NAMESPACE: &str = "NamespaceNotFound";

const KINDS: [(&str, &str); 4] = [
    ("SriovNetwork", "sriov"),
    ("SriovIBNetwork", "ib-sriov"),
    ("OVSNetwork", "ovs"),
    ("BridgeNetwork", "accelerated-bridge"),
];

/// A NAD as somebody else would write it.
fn foreign_nad(name: &str, annotations: &Value) -> NetworkAttachmentDefinition {
    serde_json::from_value(json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": { "name": name, "annotations": annotations, "labels": { "whose": "theirs" } },
        "spec": { "config": "{}" },
    }))
    .unwrap()
}

fn merge(patch: Value) -> Patch<Value> {
    Patch::Merge(patch)
}

#[tokio::test]
async fn every_kind_becomes_a_nad_in_the_namespace_that_it_names() {
    let world = World::shared().await;
    let apps = world.namespace("apps").await;
    for (kind, plugin) in KINDS {
        let name = format!("every-{plugin}");
        let spec = json!({ "networkNamespace": apps, "ipam": r#"{"type": "dhcp"}"#, "metaPlugins": r#"{"type":"rdma"}"# });
        world.apply(kind, world.home(), &name, spec).await;
        let network = world.wait_for(kind, world.home(), &name, READY).await;
        assert_eq!(network.status(), "True");
        assert_eq!(network.finalizers(), [FINALIZER]);
        assert_eq!(network.last_namespace(), Some(apps.as_str()));
        let nad = world.nads(&apps).get(&name).await.unwrap();
        assert_eq!(config(&nad)["name"], name);
        assert_eq!(config(&nad)["plugins"][0]["type"], plugin);
        assert_eq!(config(&nad)["plugins"][0]["ipam"], json!({ "type": "dhcp" }));
        assert_eq!(config(&nad)["plugins"][1], json!({ "type": "rdma" }));
        assert_eq!(annotation(&nad, RESOURCE), Some("openshift.io/nics"));
        let owner = format!("{kind}.sriovnetwork.openshift.io/{}/{name}", world.home());
        assert_eq!(annotation(&nad, OWNER), Some(owner.as_str()));
        assert_eq!(nad.metadata.owner_references, None, "it cannot point to another namespace");
        world.expect_event(world.home(), &name, "Normal", READY).await;
    }
    for (kind, plugin) in KINDS {
        let name = format!("every-{plugin}");
        world.delete(kind, world.home(), &name).await;
        world.wait_until_gone(world.nads(&apps), &name).await;
        world.wait_until_gone(world.networks(kind, world.home()), &name).await;
    }
}

#[tokio::test]
async fn the_text_of_a_nad_is_exact() {
    let world = World::shared().await;
    let spec = json!({ "vlan": 100, "trust": "on", "capabilities": r#"{"mac":true}"#, "ipam": r#"{"type": "dhcp"}"# });
    world.apply_sriov("exact", spec).await;
    world.wait_for_sriov("exact", READY).await;
    let nad = world.nads(world.home()).get("exact").await.unwrap();
    let wanted = r#"{
    "cniVersion": "1.0.0",
    "name": "exact",
    "type": "sriov",
    "vlan": 100,
    "trust": "on",
    "vlanQoS": 0,
    "capabilities": {
        "mac": true
    },
    "logLevel": "info",
    "ipam": {
        "type": "dhcp"
    }
}"#;
    assert_eq!(nad.spec.config.as_deref(), Some(wanted));
}

#[tokio::test]
async fn a_nad_beside_its_network_goes_with_it() {
    let world = World::shared().await;
    let team = world.namespace("team").await;
    for namespace in [team.as_str(), world.home()] {
        world.apply("SriovNetwork", namespace, "beside", json!({})).await;
        let network = world.wait_for("SriovNetwork", namespace, "beside", READY).await;
        let is_home = namespace == world.home();
        assert_eq!(network.finalizers().contains(&FINALIZER.to_owned()), is_home);
        let nad = world.nads(namespace).get("beside").await.unwrap();
        let owners = nad.metadata.owner_references.unwrap();
        assert_eq!(owners.len(), 1);
        assert_eq!(Some(&owners[0].uid), network.0.metadata.uid.as_ref());
        assert_eq!((owners[0].controller, owners[0].block_owner_deletion), (None, None));

        world.delete("SriovNetwork", namespace, "beside").await;
        world.wait_until_gone(world.nads(namespace), "beside").await;
        world.wait_until_gone(world.networks("SriovNetwork", namespace), "beside").await;
    }
}

#[tokio::test]
async fn what_others_change_of_ours_is_reverted_and_what_is_theirs_stays() {
    let world = World::shared().await;
    let apps = world.namespace("apps").await;
    world.apply_sriov("reverted", json!({ "networkNamespace": apps })).await;
    world.wait_for_sriov("reverted", READY).await;
    let nads = world.nads(&apps);
    let good = nads.get("reverted").await.unwrap();
    let owner = annotation(&good, OWNER).unwrap();

    let theirs = json!({ "labels": { "whose": "theirs" }, "annotations": { "whose": "theirs" } });
    nads.patch("reverted", &PatchParams::default(), &merge(json!({ "metadata": theirs }))).await.unwrap();
    let edits = [
        json!({ "spec": { "config": "{}" } }),
        json!({ "spec": null }),
        json!({ "metadata": { "annotations": { RESOURCE: "other/one" } } }),
        json!({ "metadata": { "annotations": { OWNER: "" } } }),
        json!({ "metadata": { "annotations": { OWNER: null, RESOURCE: null } } }),
    ];
    for edit in edits {
        let edited = nads.patch_metadata("reverted", &PatchParams::default(), &merge(edit)).await.unwrap();
        let nad = world
            .wait_for_nad(&apps, "reverted", "as it was", |nad| {
                nad.metadata.resource_version != edited.metadata.resource_version
                    && nad.spec == good.spec
                    && annotation(nad, RESOURCE) == Some("openshift.io/nics")
                    && annotation(nad, OWNER) == Some(owner)
            })
            .await;
        assert_eq!(annotation(&nad, "whose"), Some("theirs"));
        assert_eq!(nad.metadata.labels.as_ref().unwrap()["whose"], "theirs");
    }

    let uid = nads.get("reverted").await.unwrap().metadata.uid;
    nads.delete("reverted", &DeleteParams::default()).await.unwrap();
    let again = world.wait_for_nad(&apps, "reverted", "made again", |nad| nad.metadata.uid != uid).await;
    assert_eq!(again.spec, good.spec);
}

#[tokio::test]
async fn a_changed_network_changes_its_nad() {
    let world = World::shared().await;
    world.apply_sriov("changed", json!({ "vlan": 1 })).await;
    world.wait_for_sriov("changed", READY).await;
    world.apply_sriov("changed", json!({ "vlan": 2 })).await;
    world.wait_for_sriov("changed", READY).await;
    assert_eq!(config(&world.nads(world.home()).get("changed").await.unwrap())["vlan"], 2);
}

#[tokio::test]
async fn bad_json_is_told_where_and_never_reaches_a_nad() {
    let world = World::shared().await;
    world.apply_sriov("bad-json", json!({ "ipam": "{\n  \"type\" \"dhcp\"\n}" })).await;
    let network = world.wait_for_sriov("bad-json", INVALID).await;
    assert_eq!(network.status(), "False");
    network.expect_message(&["ipam", "line 2, column 10", r#"{"type": "dhcp"}"#]);
    world.expect_event(world.home(), "bad-json", "Warning", INVALID).await;
    assert!(world.nads(world.home()).get_opt("bad-json").await.unwrap().is_none());

    world.apply_sriov("bad-json", json!({ "ipam": r#"{"type": "dhcp"}"# })).await;
    world.wait_for_sriov("bad-json", READY).await;
    let good = world.nads(world.home()).get("bad-json").await.unwrap();

    world.apply_sriov("bad-json", json!({ "ipam": "{}", "metaPlugins": r#"{"type": "rdma"},"# })).await;
    world.wait_for_sriov("bad-json", INVALID).await.expect_message(&["metaPlugins", "stays as it is"]);
    let still = world.nads(world.home()).get("bad-json").await.unwrap();
    assert_eq!(still.metadata.resource_version, good.metadata.resource_version);

    world.delete("SriovNetwork", world.home(), "bad-json").await;
    world.wait_until_gone(world.nads(world.home()), "bad-json").await;
    world.wait_until_gone(world.networks("SriovNetwork", world.home()), "bad-json").await;
}

#[tokio::test]
async fn a_network_elsewhere_may_not_name_a_namespace() {
    let world = World::shared().await;
    let (team, victim) = (world.namespace("team").await, world.namespace("victim").await);
    world.apply("OVSNetwork", &team, "reaching", json!({ "networkNamespace": victim })).await;
    let network = world.wait_for("OVSNetwork", &team, "reaching", INVALID).await;
    network.expect_message(&["networkNamespace", world.home()]);
    for namespace in [&team, &victim] {
        assert!(world.nads(namespace).get_opt("reaching").await.unwrap().is_none());
    }

    // Nor by pretending that its NAD was there.
    world.nads(&victim).create(&PostParams::default(), &foreign_nad("reaching", &json!({}))).await.unwrap();
    let pretence = json!({ "metadata": { "annotations": { LAST_NAMESPACE: victim } } });
    let networks = world.networks("OVSNetwork", &team);
    networks.patch("reaching", &PatchParams::default(), &merge(pretence)).await.unwrap();
    world.apply("OVSNetwork", &team, "reaching", json!({})).await;
    let network = world.wait_for("OVSNetwork", &team, "reaching", READY).await;
    assert_eq!(network.last_namespace(), Some(team.as_str()));
    assert!(world.nads(&victim).get_opt("reaching").await.unwrap().is_some());
}

#[tokio::test]
async fn a_namespace_that_comes_later_is_enough() {
    let world = World::shared().await;
    world.apply("SriovIBNetwork", world.home(), "early", json!({ "networkNamespace": "comes-later" })).await;
    let network = world.wait_for("SriovIBNetwork", world.home(), "early", NO_NAMESPACE).await;
    assert_eq!(network.status(), "False");
    network.expect_message(&["comes-later", "create it"]);
    world.expect_event(world.home(), "early", "Warning", NO_NAMESPACE).await;

    world.create_namespace("comes-later").await;
    world.wait_for("SriovIBNetwork", world.home(), "early", READY).await;
    world.wait_for_nad("comes-later", "early", "there", |_| true).await;

    // And when it goes again, the network says so, and can still go.
    world.delete_namespace("comes-later").await;
    world.wait_for("SriovIBNetwork", world.home(), "early", NO_NAMESPACE).await;
    world.delete("SriovIBNetwork", world.home(), "early").await;
    world.wait_until_gone(world.networks("SriovIBNetwork", world.home()), "early").await;
}

#[tokio::test]
async fn a_network_moves_its_nad() {
    let world = World::shared().await;
    let (old, new) = (world.namespace("old").await, world.namespace("new").await);
    world.apply_sriov("moving", json!({ "networkNamespace": old })).await;
    world.wait_for_sriov("moving", READY).await;

    world.apply_sriov("moving", json!({ "networkNamespace": new })).await;
    let network = world.wait_for_sriov("moving", READY).await;
    assert_eq!(network.last_namespace(), Some(new.as_str()));
    world.wait_until_gone(world.nads(&old), "moving").await;
    assert!(world.nads(&new).get_opt("moving").await.unwrap().is_some());

    world.apply_sriov("moving", json!({ "networkNamespace": "not-there-yet" })).await;
    let network = world.wait_for_sriov("moving", NO_NAMESPACE).await;
    network.expect_message(&["not-there-yet", &format!("{new}/moving stays")]);
    assert!(
        world.nads(&new).get_opt("moving").await.unwrap().is_some(),
        "a slip of the pen takes nothing away"
    );

    world.create_namespace("not-there-yet").await;
    world.wait_for_sriov("moving", READY).await;
    world.wait_until_gone(world.nads(&new), "moving").await;
    assert!(world.nads("not-there-yet").get_opt("moving").await.unwrap().is_some());

    // Home: a plain owner reference again.
    world.apply_sriov("moving", json!({})).await;
    world.wait_for_sriov("moving", READY).await;
    world.wait_until_gone(world.nads("not-there-yet"), "moving").await;
    let nad = world.nads(world.home()).get("moving").await.unwrap();
    assert_eq!(nad.metadata.owner_references.unwrap().len(), 1);
}

#[tokio::test]
async fn an_empty_note_of_the_go_operator_is_understood() {
    let world = World::shared().await;
    let apps = world.namespace("apps").await;
    let network = json!({
        "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovNetwork",
        "metadata": { "name": "empty-note", "annotations": { LAST_NAMESPACE: "" }, "finalizers": [FINALIZER] },
        "spec": { "resourceName": "nics", "networkNamespace": apps },
    });
    let params = PatchParams::apply("test").force();
    let networks = world.networks("SriovNetwork", world.home());
    networks.patch("empty-note", &params, &Patch::Apply(&network)).await.unwrap();
    let network = world.wait_for_sriov("empty-note", READY).await;
    assert_eq!(network.last_namespace(), Some(apps.as_str()));

    let note = json!({ "metadata": { "annotations": { LAST_NAMESPACE: "" } } });
    networks.patch("empty-note", &PatchParams::default(), &merge(note)).await.unwrap();
    let is_right = |network: Option<&kube::api::DynamicObject>| {
        let annotations = network.and_then(|network| network.metadata.annotations.as_ref());
        annotations.is_some_and(|annotations| annotations.get(LAST_NAMESPACE) == Some(&apps))
    };
    world.wait(networks, "empty-note", "a note of where it is", is_right).await;
}

#[tokio::test]
async fn a_nad_of_another_is_never_touched_and_its_place_taken_when_it_goes() {
    let world = World::shared().await;
    let apps = world.namespace("apps").await;
    let theirs =
        foreign_nad("taken", &json!({ OWNER: "SriovNetwork.sriovnetwork.openshift.io/elsewhere/taken" }));
    let theirs = world.nads(&apps).create(&PostParams::default(), &theirs).await.unwrap();

    world.apply_sriov("taken", json!({ "networkNamespace": apps })).await;
    let network = world.wait_for_sriov("taken", INVALID).await;
    network.expect_message(&["elsewhere/taken", "left alone"]);
    world.delete("SriovNetwork", world.home(), "taken").await;
    world.wait_until_gone(world.networks("SriovNetwork", world.home()), "taken").await;
    let still = world.nads(&apps).get("taken").await.unwrap();
    assert_eq!(still.metadata.resource_version, theirs.metadata.resource_version);

    world.apply_sriov("taken", json!({ "networkNamespace": apps })).await;
    world.wait_for_sriov("taken", INVALID).await;
    world.nads(&apps).delete("taken", &DeleteParams::default()).await.unwrap();
    world.wait_for_sriov("taken", READY).await;
}

#[tokio::test]
async fn of_two_networks_for_one_nad_the_first_has_it() {
    let world = World::shared().await;
    let apps = world.namespace("apps").await;
    world.apply("OVSNetwork", world.home(), "twice", json!({ "networkNamespace": apps })).await;
    world.wait_for("OVSNetwork", world.home(), "twice", READY).await;
    world.apply_sriov("twice", json!({ "networkNamespace": apps })).await;
    world.apply("BridgeNetwork", &apps, "twice", json!({})).await;
    let owner = format!("OVSNetwork.sriovnetwork.openshift.io/{}/twice", world.home());
    world.wait_for_sriov("twice", INVALID).await.expect_message(&[&owner]);
    world.wait_for("BridgeNetwork", &apps, "twice", INVALID).await.expect_message(&[&owner]);
    world.delete("BridgeNetwork", &apps, "twice").await;
    world.wait_until_gone(world.networks("BridgeNetwork", &apps), "twice").await;

    world.delete("OVSNetwork", world.home(), "twice").await;
    world.wait_for_sriov("twice", READY).await;
    assert_eq!(config(&world.nads(&apps).get("twice").await.unwrap())["type"], "sriov");
}

#[tokio::test]
async fn a_nad_of_nobody_is_adopted() {
    let world = World::shared().await;
    let apps = world.namespace("apps").await;
    let found =
        world.nads(&apps).create(&PostParams::default(), &foreign_nad("found", &json!({ "a": "b" }))).await;
    world.apply_sriov("found", json!({ "networkNamespace": apps })).await;
    world.wait_for_sriov("found", READY).await;
    let nad = world.nads(&apps).get("found").await.unwrap();
    assert_eq!(nad.metadata.uid, found.unwrap().metadata.uid, "it is the same one");
    assert_eq!(config(&nad)["type"], "sriov");
    assert!(annotation(&nad, OWNER).is_some());
    assert_eq!(annotation(&nad, "a"), Some("b"));
    assert_eq!(nad.metadata.labels.unwrap()["whose"], "theirs");
}

#[tokio::test]
async fn a_network_waits_for_a_nad_that_is_held() {
    let world = World::shared().await;
    let apps = world.namespace("apps").await;
    world.apply_sriov("held", json!({ "networkNamespace": apps })).await;
    world.wait_for_sriov("held", READY).await;
    let hold = |finalizers: Value| merge(json!({ "metadata": { "finalizers": finalizers } }));
    let nads = world.nads(&apps);
    nads.patch("held", &PatchParams::default(), &hold(json!(["example.com/hold"]))).await.unwrap();
    world.delete("SriovNetwork", world.home(), "held").await;
    let network = world.wait_for_sriov("held", NOT_FOUND).await;
    network.expect_message(&["finalizer"]);
    assert_eq!(network.finalizers(), [FINALIZER]);
    nads.patch("held", &PatchParams::default(), &hold(json!([]))).await.unwrap();
    world.wait_until_gone(world.networks("SriovNetwork", world.home()), "held").await;
}

#[tokio::test]
async fn a_namespace_that_ends_takes_its_networks_along() {
    let world = World::shared().await;
    let team = world.namespace("ending").await;
    for (kind, plugin) in KINDS {
        world.apply(kind, &team, plugin, json!({})).await;
        world.wait_for(kind, &team, plugin, READY).await;
    }
    world.delete_namespace(&team).await;
    world
        .wait_until_gone(kube::Api::<k8s_openapi::api::core::v1::Namespace>::all(world.client()), &team)
        .await;
}

#[tokio::test]
async fn a_nad_that_the_api_server_refuses_is_told_and_tried_again() {
    let world = World::shared().await;
    let apps = world.namespace("full").await;
    let quotas = world.api::<ResourceQuota>(&apps);
    let count = "count/network-attachment-definitions.k8s.cni.cncf.io";
    let quota = json!({ "metadata": { "name": "none" }, "spec": { "hard": { count: "0" } } });
    quotas.create(&PostParams::default(), &serde_json::from_value(quota).unwrap()).await.unwrap();
    let counts = |quota: Option<&ResourceQuota>| {
        quota.and_then(|quota| quota.status.as_ref()).is_some_and(|status| status.hard.is_some())
    };
    world.wait(quotas.clone(), "none", "a quota that is in force", counts).await;

    world.apply_sriov("refused", json!({ "networkNamespace": apps })).await;
    let network = world.wait_for_sriov("refused", NOT_FOUND).await;
    network.expect_message(&["cannot be made", "forbidden", "quota"]);
    quotas.delete("none", &DeleteParams::default()).await.unwrap();
    world.wait_for_sriov("refused", READY).await;
}

#[tokio::test]
async fn writes_of_others_at_the_same_time_are_neither_lost_nor_do_they_win() {
    let world = World::shared().await;
    let apps = world.namespace("apps").await;
    world.apply_sriov("contested", json!({ "networkNamespace": apps, "vlan": 1 })).await;
    world.wait_for_sriov("contested", READY).await;
    let nads = world.nads(&apps);
    for round in 0..30 {
        let theirs = json!({ "metadata": { "labels": { format!("round-{round}"): "theirs" } }, "spec": { "config": "{}" } });
        let (edit, ()) = tokio::join!(
            async { nads.patch("contested", &PatchParams::default(), &merge(theirs)).await },
            world.apply_sriov("contested", json!({ "networkNamespace": apps, "vlan": round + 2 })),
        );
        edit.unwrap();
    }
    world.wait_for_sriov("contested", READY).await;
    let is_last = |nad: &NetworkAttachmentDefinition| {
        nad.spec.config.as_deref() != Some("{}") && config(nad)["vlan"] == 31
    };
    let nad = world.wait_for_nad(&apps, "contested", "as the network wants it", is_last).await;
    assert_eq!(nad.metadata.labels.unwrap().len(), 30, "no label of theirs is lost");
}

#[tokio::test]
async fn what_happened_while_the_operator_was_away_is_caught_up() {
    let world = World::alone().await;
    let (old, new) = (world.namespace("old").await, world.namespace("new").await);
    for name in ["away-deleted", "away-edited", "away-moved", "away-lost"] {
        world.apply_sriov(name, json!({ "networkNamespace": old })).await;
        world.wait_for_sriov(name, READY).await;
    }
    let good = world.nads(&old).get("away-edited").await.unwrap();

    world.kill_operator();
    world.delete("SriovNetwork", world.home(), "away-deleted").await;
    let edit = merge(json!({ "spec": { "config": "{}" } }));
    world.nads(&old).patch("away-edited", &PatchParams::default(), &edit).await.unwrap();
    world.apply_sriov("away-moved", json!({ "networkNamespace": new })).await;
    world.nads(&old).delete("away-lost", &DeleteParams::default()).await.unwrap();
    world.apply_sriov("away-new", json!({ "networkNamespace": new })).await;
    world.start_operator();

    world.wait_until_gone(world.networks("SriovNetwork", world.home()), "away-deleted").await;
    world.wait_until_gone(world.nads(&old), "away-deleted").await;
    world.wait_for_nad(&old, "away-edited", "as before", |nad| nad.spec == good.spec).await;
    world.wait_for_sriov("away-moved", READY).await;
    world.wait_until_gone(world.nads(&old), "away-moved").await;
    world.wait_for_nad(&new, "away-moved", "moved", |_| true).await;
    world.wait_for_nad(&old, "away-lost", "made again", |_| true).await;
    world.wait_for_sriov("away-new", READY).await;
}

/// A move that was cut off, wherever: also in the order in which the Go operator does it.
#[tokio::test]
async fn a_move_that_was_cut_off_is_finished() {
    let world = World::alone().await;
    let (old, new) = (world.namespace("old").await, world.namespace("new").await);
    let cuts = ["cut-at-first", "cut-after-delete", "cut-after-note", "cut-as-go-does"];
    for name in cuts {
        world.apply_sriov(name, json!({ "networkNamespace": old })).await;
        world.wait_for_sriov(name, READY).await;
    }

    world.kill_operator();
    for name in cuts {
        world.apply_sriov(name, json!({ "networkNamespace": new })).await;
    }
    for name in ["cut-after-delete", "cut-after-note"] {
        world.nads(&old).delete(name, &DeleteParams::default()).await.unwrap();
    }
    let note = merge(json!({ "metadata": { "annotations": { LAST_NAMESPACE: new } } }));
    let networks = world.networks("SriovNetwork", world.home());
    networks.patch("cut-after-note", &PatchParams::default(), &note).await.unwrap();
    let owner = format!("SriovNetwork.sriovnetwork.openshift.io/{}/cut-as-go-does", world.home());
    let made = foreign_nad("cut-as-go-does", &json!({ OWNER: owner }));
    world.nads(&new).create(&PostParams::default(), &made).await.unwrap();
    world.start_operator();

    for name in cuts {
        let network = world.wait_for_sriov(name, READY).await;
        assert_eq!(network.last_namespace(), Some(new.as_str()), "{name}");
        world.wait_until_gone(world.nads(&old), name).await;
        world.wait_for_nad(&new, name, "moved", |nad| nad.spec.config.as_deref() != Some("{}")).await;
    }
}

#[tokio::test]
async fn an_operator_that_is_killed_in_the_middle_loses_nothing() {
    let world = World::alone().await;
    let (old, new) = (world.namespace("old").await, world.namespace("new").await);
    let names: Vec<_> = (0..30).map(|number| format!("many-{number}")).collect();

    world.kill_operator();
    for name in &names {
        world.apply_sriov(name, json!({ "networkNamespace": old })).await;
    }
    world.start_operator();
    world.wait_for_nad(&old, &names[3], "the first few are made", |_| true).await;
    world.kill_operator();
    world.start_operator();
    for name in &names {
        world.wait_for_sriov(name, READY).await;
    }

    world.kill_operator();
    for name in &names {
        world.apply_sriov(name, json!({ "networkNamespace": new })).await;
    }
    world.start_operator();
    world.wait_until_gone(world.nads(&old), &names[5]).await;
    world.kill_operator();
    world.start_operator();
    for name in &names {
        world.wait_for_sriov(name, READY).await;
        assert!(world.nads(&new).get_opt(name).await.unwrap().is_some());
        assert!(world.nads(&old).get_opt(name).await.unwrap().is_none());
    }

    world.kill_operator();
    for name in &names {
        world.delete("SriovNetwork", world.home(), name).await;
    }
    world.start_operator();
    world.wait_until_gone(world.nads(&new), &names[7]).await;
    world.kill_operator();
    world.start_operator();
    for name in &names {
        world.wait_until_gone(world.networks("SriovNetwork", world.home()), name).await;
        assert!(world.nads(&new).get_opt(name).await.unwrap().is_none());
    }
}

#[tokio::test]
async fn where_all_is_done_an_operator_that_starts_writes_nothing() {
    let world = World::alone().await;
    let apps = world.namespace("apps").await;
    for (kind, plugin) in KINDS {
        world.apply(kind, world.home(), &format!("rest-{plugin}"), json!({ "networkNamespace": apps })).await;
    }
    let mut before = Vec::new();
    for (kind, plugin) in KINDS {
        let name = format!("rest-{plugin}");
        let network = world.wait_for(kind, world.home(), &name, READY).await;
        let nad = world.nads(&apps).get(&name).await.unwrap();
        before.push((kind, name, network.version(), nad.metadata.resource_version));
    }
    world.kill_operator();
    world.start_operator();
    // By the time that a new network is ready, all old ones were looked at: they came first.
    world.apply_sriov("rest-marker", json!({})).await;
    world.wait_for_sriov("rest-marker", READY).await;
    for (kind, name, network, nad) in before {
        assert_eq!(world.wait_for(kind, world.home(), &name, READY).await.version(), network, "{name}");
        assert_eq!(world.nads(&apps).get(&name).await.unwrap().metadata.resource_version, nad, "{name}");
    }
}

#[tokio::test]
async fn operators_of_two_installations_do_not_disturb_each_other() {
    let world = World::alone().await;
    let apps = world.namespace("apps").await;
    let other = Cluster::new("other-installation", Plane::Networks).await;
    let _other_operator = other.operator();
    world.apply_sriov("good", json!({ "networkNamespace": apps })).await;
    world.apply_sriov("early", json!({ "networkNamespace": "never-there" })).await;
    world.apply("SriovNetwork", &apps, "neither", json!({ "networkNamespace": "x" })).await;

    // When the other one has written its own network, it has seen what was there before. Each has its say once.
    let mut versions = Vec::new();
    for round in 0..10 {
        let spec = json!({ "networkNamespace": apps, "vlan": round });
        world.apply("SriovNetwork", other.namespace(), "theirs", spec).await;
        world.wait_for("SriovNetwork", other.namespace(), "theirs", READY).await;
        let good = world.wait_for_sriov("good", READY).await;
        let early = world.wait_for_sriov("early", NO_NAMESPACE).await;
        let neither = world.wait_for("SriovNetwork", &apps, "neither", INVALID).await;
        versions.push([good.version(), early.version(), neither.version()]);
    }
    assert_eq!(versions[8], versions[9], "they write for ever: {versions:#?}");

    for (namespace, name) in [(world.home(), "good"), (other.namespace(), "theirs")] {
        world.delete("SriovNetwork", namespace, name).await;
        world.wait_until_gone(world.networks("SriovNetwork", namespace), name).await;
        let left = world.nads(&apps).get_opt(name).await.unwrap();
        assert!(left.is_none(), "the network went before its NAD: {left:?}");
    }
}

#[tokio::test]
async fn multus_may_come_later() {
    let world = World::alone().await;
    world.kill_operator();
    world.uninstall_nads();
    world.start_operator();
    for name in ["before-multus", "gone-before-multus"] {
        world.apply_sriov(name, json!({})).await;
        let network = world.wait_for_sriov(name, NOT_FOUND).await;
        assert_eq!(network.status(), "False");
        network.expect_message(&["install Multus"]);
        world.expect_event(world.home(), name, "Warning", NOT_FOUND).await;
    }
    world.delete("SriovNetwork", world.home(), "gone-before-multus").await;
    world.wait_until_gone(world.networks("SriovNetwork", world.home()), "gone-before-multus").await;

    world.install_nads();
    world.wait_for_sriov("before-multus", READY).await;
    world.wait_for_nad(world.home(), "before-multus", "there", |_| true).await;
}
