//! NetworkAttachmentDefinitions (NADs) of networks: the real operator with its own rights, on a real API server.

use k8s_openapi::api::core::v1::ResourceQuota;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use vfleet_api::network::NetworkAttachmentDefinition;
use vfleet_tests::cluster::Cluster;
use vfleet_tests::networks::{
    FINALIZER, LAST_NAMESPACE, NetworkCluster, OWNER, RESOURCE, annotation, config,
};
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

/// Returns a NAD of another controller.
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
async fn every_kind_of_network_gets_a_nad_in_its_network_namespace() {
    let cluster = NetworkCluster::shared().await;
    let apps = cluster.namespace("apps").await;
    for (kind, plugin) in KINDS {
        let name = format!("every-{plugin}");
        let spec = json!({ "networkNamespace": apps, "ipam": r#"{"type": "dhcp"}"#, "metaPlugins": r#"{"type":"rdma"}"# });
        cluster.apply(kind, cluster.operator_namespace(), &name, spec).await;
        let network = cluster.wait_for(kind, cluster.operator_namespace(), &name, READY).await;
        assert_eq!(network.status(), "True");
        assert_eq!(network.finalizers(), [FINALIZER]);
        assert_eq!(network.last_namespace(), Some(apps.as_str()));
        let nad = cluster.nads(&apps).get(&name).await.unwrap();
        assert_eq!(config(&nad)["name"], name);
        assert_eq!(config(&nad)["plugins"][0]["type"], plugin);
        assert_eq!(config(&nad)["plugins"][0]["ipam"], json!({ "type": "dhcp" }));
        assert_eq!(config(&nad)["plugins"][1], json!({ "type": "rdma" }));
        assert_eq!(annotation(&nad, RESOURCE), Some("openshift.io/nics"));
        let owner = format!("{kind}.sriovnetwork.openshift.io/{}/{name}", cluster.operator_namespace());
        assert_eq!(annotation(&nad, OWNER), Some(owner.as_str()));
        assert_eq!(
            nad.metadata.owner_references, None,
            "an owner reference cannot point to another namespace"
        );
        cluster.expect_event(cluster.operator_namespace(), &name, "Normal", READY).await;
    }
    for (kind, plugin) in KINDS {
        let name = format!("every-{plugin}");
        cluster.delete(kind, cluster.operator_namespace(), &name).await;
        cluster.wait_until_deleted(cluster.nads(&apps), &name).await;
        cluster.wait_until_deleted(cluster.networks(kind, cluster.operator_namespace()), &name).await;
    }
}

#[tokio::test]
async fn the_text_of_a_nad_is_exact() {
    let cluster = NetworkCluster::shared().await;
    let spec = json!({ "vlan": 100, "trust": "on", "capabilities": r#"{"mac":true}"#, "ipam": r#"{"type": "dhcp"}"# });
    cluster.apply_sriov("exact", spec).await;
    cluster.wait_for_sriov("exact", READY).await;
    let nad = cluster.nads(cluster.operator_namespace()).get("exact").await.unwrap();
    let expected = r#"{
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
    assert_eq!(nad.spec.config.as_deref(), Some(expected));
}

#[tokio::test]
async fn a_nad_in_the_namespace_of_its_network_is_deleted_with_it() {
    let cluster = NetworkCluster::shared().await;
    let team = cluster.namespace("team").await;
    for namespace in [team.as_str(), cluster.operator_namespace()] {
        cluster.apply("SriovNetwork", namespace, "same-namespace", json!({})).await;
        let network = cluster.wait_for("SriovNetwork", namespace, "same-namespace", READY).await;
        let is_operator_namespace = namespace == cluster.operator_namespace();
        assert_eq!(network.finalizers().contains(&FINALIZER.to_owned()), is_operator_namespace);
        let nad = cluster.nads(namespace).get("same-namespace").await.unwrap();
        let owners = nad.metadata.owner_references.unwrap();
        assert_eq!(owners.len(), 1);
        assert_eq!(Some(&owners[0].uid), network.0.metadata.uid.as_ref());
        assert_eq!((owners[0].controller, owners[0].block_owner_deletion), (None, None));

        cluster.delete("SriovNetwork", namespace, "same-namespace").await;
        cluster.wait_until_deleted(cluster.nads(namespace), "same-namespace").await;
        cluster.wait_until_deleted(cluster.networks("SriovNetwork", namespace), "same-namespace").await;
    }
}

#[tokio::test]
async fn changes_of_managed_fields_are_reverted_and_other_fields_are_kept() {
    let cluster = NetworkCluster::shared().await;
    let apps = cluster.namespace("apps").await;
    cluster.apply_sriov("reverted", json!({ "networkNamespace": apps })).await;
    cluster.wait_for_sriov("reverted", READY).await;
    let nads = cluster.nads(&apps);
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
        let nad = cluster
            .wait_for_nad(&apps, "reverted", "restored", |nad| {
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
    let again = cluster.wait_for_nad(&apps, "reverted", "created again", |nad| nad.metadata.uid != uid).await;
    assert_eq!(again.spec, good.spec);
}

#[tokio::test]
async fn a_changed_network_changes_its_nad() {
    let cluster = NetworkCluster::shared().await;
    cluster.apply_sriov("changed", json!({ "vlan": 1 })).await;
    cluster.wait_for_sriov("changed", READY).await;
    cluster.apply_sriov("changed", json!({ "vlan": 2 })).await;
    cluster.wait_for_sriov("changed", READY).await;
    assert_eq!(config(&cluster.nads(cluster.operator_namespace()).get("changed").await.unwrap())["vlan"], 2);
}

#[tokio::test]
async fn invalid_json_is_reported_with_its_position_and_is_not_written() {
    let cluster = NetworkCluster::shared().await;
    cluster.apply_sriov("bad-json", json!({ "ipam": "{\n  \"type\" \"dhcp\"\n}" })).await;
    let network = cluster.wait_for_sriov("bad-json", INVALID).await;
    assert_eq!(network.status(), "False");
    network.expect_message(&["ipam", "line 2, column 10", r#"{"type": "dhcp"}"#]);
    cluster.expect_event(cluster.operator_namespace(), "bad-json", "Warning", INVALID).await;
    assert!(cluster.nads(cluster.operator_namespace()).get_opt("bad-json").await.unwrap().is_none());

    cluster.apply_sriov("bad-json", json!({ "ipam": r#"{"type": "dhcp"}"# })).await;
    cluster.wait_for_sriov("bad-json", READY).await;
    let good = cluster.nads(cluster.operator_namespace()).get("bad-json").await.unwrap();

    cluster.apply_sriov("bad-json", json!({ "ipam": "{}", "metaPlugins": r#"{"type": "rdma"},"# })).await;
    cluster.wait_for_sriov("bad-json", INVALID).await.expect_message(&["metaPlugins", "is not changed"]);
    let still = cluster.nads(cluster.operator_namespace()).get("bad-json").await.unwrap();
    assert_eq!(still.metadata.resource_version, good.metadata.resource_version);

    cluster.delete("SriovNetwork", cluster.operator_namespace(), "bad-json").await;
    cluster.wait_until_deleted(cluster.nads(cluster.operator_namespace()), "bad-json").await;
    cluster
        .wait_until_deleted(cluster.networks("SriovNetwork", cluster.operator_namespace()), "bad-json")
        .await;
}

#[tokio::test]
async fn a_network_outside_of_the_operator_namespace_may_not_set_a_network_namespace() {
    let cluster = NetworkCluster::shared().await;
    let (team, victim) = (cluster.namespace("team").await, cluster.namespace("victim").await);
    cluster.apply("OVSNetwork", &team, "reaching", json!({ "networkNamespace": victim })).await;
    let network = cluster.wait_for("OVSNetwork", &team, "reaching", INVALID).await;
    network.expect_message(&["networkNamespace", cluster.operator_namespace()]);
    for namespace in [&team, &victim] {
        assert!(cluster.nads(namespace).get_opt("reaching").await.unwrap().is_none());
    }

    // The annotation of the last namespace does not help either.
    cluster.nads(&victim).create(&PostParams::default(), &foreign_nad("reaching", &json!({}))).await.unwrap();
    let forged = json!({ "metadata": { "annotations": { LAST_NAMESPACE: victim } } });
    let networks = cluster.networks("OVSNetwork", &team);
    networks.patch("reaching", &PatchParams::default(), &merge(forged)).await.unwrap();
    cluster.apply("OVSNetwork", &team, "reaching", json!({})).await;
    let network = cluster.wait_for("OVSNetwork", &team, "reaching", READY).await;
    assert_eq!(network.last_namespace(), Some(team.as_str()));
    assert!(cluster.nads(&victim).get_opt("reaching").await.unwrap().is_some());
}

#[tokio::test]
async fn a_namespace_may_be_created_later() {
    let cluster = NetworkCluster::shared().await;
    cluster
        .apply(
            "SriovIBNetwork",
            cluster.operator_namespace(),
            "early",
            json!({ "networkNamespace": "comes-later" }),
        )
        .await;
    let network =
        cluster.wait_for("SriovIBNetwork", cluster.operator_namespace(), "early", NO_NAMESPACE).await;
    assert_eq!(network.status(), "False");
    network.expect_message(&["comes-later", "create it"]);
    cluster.expect_event(cluster.operator_namespace(), "early", "Warning", NO_NAMESPACE).await;

    cluster.create_namespace("comes-later").await;
    cluster.wait_for("SriovIBNetwork", cluster.operator_namespace(), "early", READY).await;
    cluster.wait_for_nad("comes-later", "early", "exists", |_| true).await;

    // If the namespace is deleted, the network reports it, and can still be deleted.
    cluster.delete_namespace("comes-later").await;
    cluster.wait_for("SriovIBNetwork", cluster.operator_namespace(), "early", NO_NAMESPACE).await;
    cluster.delete("SriovIBNetwork", cluster.operator_namespace(), "early").await;
    cluster
        .wait_until_deleted(cluster.networks("SriovIBNetwork", cluster.operator_namespace()), "early")
        .await;
}

#[tokio::test]
async fn a_changed_network_namespace_moves_the_nad() {
    let cluster = NetworkCluster::shared().await;
    let (old, new) = (cluster.namespace("old").await, cluster.namespace("new").await);
    cluster.apply_sriov("moving", json!({ "networkNamespace": old })).await;
    cluster.wait_for_sriov("moving", READY).await;

    cluster.apply_sriov("moving", json!({ "networkNamespace": new })).await;
    let network = cluster.wait_for_sriov("moving", READY).await;
    assert_eq!(network.last_namespace(), Some(new.as_str()));
    cluster.wait_until_deleted(cluster.nads(&old), "moving").await;
    assert!(cluster.nads(&new).get_opt("moving").await.unwrap().is_some());

    cluster.apply_sriov("moving", json!({ "networkNamespace": "not-there-yet" })).await;
    let network = cluster.wait_for_sriov("moving", NO_NAMESPACE).await;
    network.expect_message(&["not-there-yet", &format!("{new}/moving is not changed")]);
    assert!(cluster.nads(&new).get_opt("moving").await.unwrap().is_some(), "a typing error deletes nothing");

    cluster.create_namespace("not-there-yet").await;
    cluster.wait_for_sriov("moving", READY).await;
    cluster.wait_until_deleted(cluster.nads(&new), "moving").await;
    assert!(cluster.nads("not-there-yet").get_opt("moving").await.unwrap().is_some());

    // In the same namespace the NAD has an owner reference again.
    cluster.apply_sriov("moving", json!({})).await;
    cluster.wait_for_sriov("moving", READY).await;
    cluster.wait_until_deleted(cluster.nads("not-there-yet"), "moving").await;
    let nad = cluster.nads(cluster.operator_namespace()).get("moving").await.unwrap();
    assert_eq!(nad.metadata.owner_references.unwrap().len(), 1);
}

#[tokio::test]
async fn an_empty_last_namespace_of_the_go_operator_is_supported() {
    let cluster = NetworkCluster::shared().await;
    let apps = cluster.namespace("apps").await;
    let network = json!({
        "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovNetwork",
        "metadata": { "name": "empty-note", "annotations": { LAST_NAMESPACE: "" }, "finalizers": [FINALIZER] },
        "spec": { "resourceName": "nics", "networkNamespace": apps },
    });
    let params = PatchParams::apply("test").force();
    let networks = cluster.networks("SriovNetwork", cluster.operator_namespace());
    networks.patch("empty-note", &params, &Patch::Apply(&network)).await.unwrap();
    let network = cluster.wait_for_sriov("empty-note", READY).await;
    assert_eq!(network.last_namespace(), Some(apps.as_str()));

    let note = json!({ "metadata": { "annotations": { LAST_NAMESPACE: "" } } });
    networks.patch("empty-note", &PatchParams::default(), &merge(note)).await.unwrap();
    let is_updated = |network: Option<&kube::api::DynamicObject>| {
        let annotations = network.and_then(|network| network.metadata.annotations.as_ref());
        annotations.is_some_and(|annotations| annotations.get(LAST_NAMESPACE) == Some(&apps))
    };
    cluster.wait(networks, "empty-note", "the namespace of the NAD", is_updated).await;
}

#[tokio::test]
async fn a_nad_of_another_owner_is_never_changed_and_is_replaced_after_its_deletion() {
    let cluster = NetworkCluster::shared().await;
    let apps = cluster.namespace("apps").await;
    let theirs =
        foreign_nad("taken", &json!({ OWNER: "SriovNetwork.sriovnetwork.openshift.io/elsewhere/taken" }));
    let theirs = cluster.nads(&apps).create(&PostParams::default(), &theirs).await.unwrap();

    cluster.apply_sriov("taken", json!({ "networkNamespace": apps })).await;
    let network = cluster.wait_for_sriov("taken", INVALID).await;
    network.expect_message(&["elsewhere/taken", "is not changed"]);
    cluster.delete("SriovNetwork", cluster.operator_namespace(), "taken").await;
    cluster.wait_until_deleted(cluster.networks("SriovNetwork", cluster.operator_namespace()), "taken").await;
    let still = cluster.nads(&apps).get("taken").await.unwrap();
    assert_eq!(still.metadata.resource_version, theirs.metadata.resource_version);

    cluster.apply_sriov("taken", json!({ "networkNamespace": apps })).await;
    cluster.wait_for_sriov("taken", INVALID).await;
    cluster.nads(&apps).delete("taken", &DeleteParams::default()).await.unwrap();
    cluster.wait_for_sriov("taken", READY).await;
}

#[tokio::test]
async fn the_first_of_two_networks_for_one_nad_owns_it() {
    let cluster = NetworkCluster::shared().await;
    let apps = cluster.namespace("apps").await;
    cluster
        .apply("OVSNetwork", cluster.operator_namespace(), "twice", json!({ "networkNamespace": apps }))
        .await;
    cluster.wait_for("OVSNetwork", cluster.operator_namespace(), "twice", READY).await;
    cluster.apply_sriov("twice", json!({ "networkNamespace": apps })).await;
    cluster.apply("BridgeNetwork", &apps, "twice", json!({})).await;
    let owner = format!("OVSNetwork.sriovnetwork.openshift.io/{}/twice", cluster.operator_namespace());
    cluster.wait_for_sriov("twice", INVALID).await.expect_message(&[&owner]);
    cluster.wait_for("BridgeNetwork", &apps, "twice", INVALID).await.expect_message(&[&owner]);
    cluster.delete("BridgeNetwork", &apps, "twice").await;
    cluster.wait_until_deleted(cluster.networks("BridgeNetwork", &apps), "twice").await;

    cluster.delete("OVSNetwork", cluster.operator_namespace(), "twice").await;
    cluster.wait_for_sriov("twice", READY).await;
    assert_eq!(config(&cluster.nads(&apps).get("twice").await.unwrap())["type"], "sriov");
}

#[tokio::test]
async fn a_nad_without_owner_is_adopted() {
    let cluster = NetworkCluster::shared().await;
    let apps = cluster.namespace("apps").await;
    let found =
        cluster.nads(&apps).create(&PostParams::default(), &foreign_nad("found", &json!({ "a": "b" }))).await;
    cluster.apply_sriov("found", json!({ "networkNamespace": apps })).await;
    cluster.wait_for_sriov("found", READY).await;
    let nad = cluster.nads(&apps).get("found").await.unwrap();
    assert_eq!(nad.metadata.uid, found.unwrap().metadata.uid, "the NAD was created again");
    assert_eq!(config(&nad)["type"], "sriov");
    assert!(annotation(&nad, OWNER).is_some());
    assert_eq!(annotation(&nad, "a"), Some("b"));
    assert_eq!(nad.metadata.labels.unwrap()["whose"], "theirs");
}

#[tokio::test]
async fn a_deleted_network_waits_for_a_nad_with_a_finalizer() {
    let cluster = NetworkCluster::shared().await;
    let apps = cluster.namespace("apps").await;
    cluster.apply_sriov("held", json!({ "networkNamespace": apps })).await;
    cluster.wait_for_sriov("held", READY).await;
    let hold = |finalizers: Value| merge(json!({ "metadata": { "finalizers": finalizers } }));
    let nads = cluster.nads(&apps);
    nads.patch("held", &PatchParams::default(), &hold(json!(["example.com/hold"]))).await.unwrap();
    cluster.delete("SriovNetwork", cluster.operator_namespace(), "held").await;
    let network = cluster.wait_for_sriov("held", NOT_FOUND).await;
    network.expect_message(&["finalizer"]);
    assert_eq!(network.finalizers(), [FINALIZER]);
    nads.patch("held", &PatchParams::default(), &hold(json!([]))).await.unwrap();
    cluster.wait_until_deleted(cluster.networks("SriovNetwork", cluster.operator_namespace()), "held").await;
}

#[tokio::test]
async fn the_networks_of_a_deleted_namespace_are_deleted() {
    let cluster = NetworkCluster::shared().await;
    let team = cluster.namespace("ending").await;
    for (kind, plugin) in KINDS {
        cluster.apply(kind, &team, plugin, json!({})).await;
        cluster.wait_for(kind, &team, plugin, READY).await;
    }
    cluster.delete_namespace(&team).await;
    cluster
        .wait_until_deleted(kube::Api::<k8s_openapi::api::core::v1::Namespace>::all(cluster.client()), &team)
        .await;
}

#[tokio::test]
async fn a_nad_that_the_api_server_refuses_is_reported_and_retried() {
    let cluster = NetworkCluster::shared().await;
    let apps = cluster.namespace("full").await;
    let quotas = cluster.api::<ResourceQuota>(&apps);
    let count = "count/network-attachment-definitions.k8s.cni.cncf.io";
    let quota = json!({ "metadata": { "name": "none" }, "spec": { "hard": { count: "0" } } });
    quotas.create(&PostParams::default(), &serde_json::from_value(quota).unwrap()).await.unwrap();
    let is_enforced = |quota: Option<&ResourceQuota>| {
        quota.and_then(|quota| quota.status.as_ref()).is_some_and(|status| status.hard.is_some())
    };
    cluster.wait(quotas.clone(), "none", "an enforced quota", is_enforced).await;

    cluster.apply_sriov("refused", json!({ "networkNamespace": apps })).await;
    let network = cluster.wait_for_sriov("refused", NOT_FOUND).await;
    network.expect_message(&["cannot be created", "forbidden", "quota"]);
    quotas.delete("none", &DeleteParams::default()).await.unwrap();
    cluster.wait_for_sriov("refused", READY).await;
}

#[tokio::test]
async fn concurrent_writes_of_others_are_neither_lost_nor_override_managed_fields() {
    let cluster = NetworkCluster::shared().await;
    let apps = cluster.namespace("apps").await;
    cluster.apply_sriov("contested", json!({ "networkNamespace": apps, "vlan": 1 })).await;
    cluster.wait_for_sriov("contested", READY).await;
    let nads = cluster.nads(&apps);
    for round in 0..30 {
        let theirs = json!({ "metadata": { "labels": { format!("round-{round}"): "theirs" } }, "spec": { "config": "{}" } });
        let (edit, ()) = tokio::join!(
            async { nads.patch("contested", &PatchParams::default(), &merge(theirs)).await },
            cluster.apply_sriov("contested", json!({ "networkNamespace": apps, "vlan": round + 2 })),
        );
        edit.unwrap();
    }
    cluster.wait_for_sriov("contested", READY).await;
    let is_last = |nad: &NetworkAttachmentDefinition| {
        nad.spec.config.as_deref() != Some("{}") && config(nad)["vlan"] == 31
    };
    let nad = cluster.wait_for_nad(&apps, "contested", "matches the network", is_last).await;
    assert_eq!(nad.metadata.labels.unwrap().len(), 30, "a label of others was lost");
}

#[tokio::test]
async fn changes_while_the_operator_was_down_are_handled_later() {
    let cluster = NetworkCluster::exclusive().await;
    let (old, new) = (cluster.namespace("old").await, cluster.namespace("new").await);
    for name in ["away-deleted", "away-edited", "away-moved", "away-lost"] {
        cluster.apply_sriov(name, json!({ "networkNamespace": old })).await;
        cluster.wait_for_sriov(name, READY).await;
    }
    let good = cluster.nads(&old).get("away-edited").await.unwrap();

    cluster.kill_operator();
    cluster.delete("SriovNetwork", cluster.operator_namespace(), "away-deleted").await;
    let edit = merge(json!({ "spec": { "config": "{}" } }));
    cluster.nads(&old).patch("away-edited", &PatchParams::default(), &edit).await.unwrap();
    cluster.apply_sriov("away-moved", json!({ "networkNamespace": new })).await;
    cluster.nads(&old).delete("away-lost", &DeleteParams::default()).await.unwrap();
    cluster.apply_sriov("away-new", json!({ "networkNamespace": new })).await;
    cluster.start_operator();

    cluster
        .wait_until_deleted(cluster.networks("SriovNetwork", cluster.operator_namespace()), "away-deleted")
        .await;
    cluster.wait_until_deleted(cluster.nads(&old), "away-deleted").await;
    cluster.wait_for_nad(&old, "away-edited", "restored", |nad| nad.spec == good.spec).await;
    cluster.wait_for_sriov("away-moved", READY).await;
    cluster.wait_until_deleted(cluster.nads(&old), "away-moved").await;
    cluster.wait_for_nad(&new, "away-moved", "moved", |_| true).await;
    cluster.wait_for_nad(&old, "away-lost", "created again", |_| true).await;
    cluster.wait_for_sriov("away-new", READY).await;
}

/// The move is interrupted at different points, also in the order of the Go operator.
#[tokio::test]
async fn an_interrupted_move_is_completed() {
    let cluster = NetworkCluster::exclusive().await;
    let (old, new) = (cluster.namespace("old").await, cluster.namespace("new").await);
    let cuts = ["cut-at-first", "cut-after-delete", "cut-after-note", "cut-as-go-does"];
    for name in cuts {
        cluster.apply_sriov(name, json!({ "networkNamespace": old })).await;
        cluster.wait_for_sriov(name, READY).await;
    }

    cluster.kill_operator();
    for name in cuts {
        cluster.apply_sriov(name, json!({ "networkNamespace": new })).await;
    }
    for name in ["cut-after-delete", "cut-after-note"] {
        cluster.nads(&old).delete(name, &DeleteParams::default()).await.unwrap();
    }
    let note = merge(json!({ "metadata": { "annotations": { LAST_NAMESPACE: new } } }));
    let networks = cluster.networks("SriovNetwork", cluster.operator_namespace());
    networks.patch("cut-after-note", &PatchParams::default(), &note).await.unwrap();
    let owner =
        format!("SriovNetwork.sriovnetwork.openshift.io/{}/cut-as-go-does", cluster.operator_namespace());
    let created = foreign_nad("cut-as-go-does", &json!({ OWNER: owner }));
    cluster.nads(&new).create(&PostParams::default(), &created).await.unwrap();
    cluster.start_operator();

    for name in cuts {
        let network = cluster.wait_for_sriov(name, READY).await;
        assert_eq!(network.last_namespace(), Some(new.as_str()), "{name}");
        cluster.wait_until_deleted(cluster.nads(&old), name).await;
        cluster.wait_for_nad(&new, name, "moved", |nad| nad.spec.config.as_deref() != Some("{}")).await;
    }
}

#[tokio::test]
async fn an_operator_that_is_killed_repeatedly_loses_no_change() {
    let cluster = NetworkCluster::exclusive().await;
    let (old, new) = (cluster.namespace("old").await, cluster.namespace("new").await);
    let names: Vec<_> = (0..30).map(|number| format!("many-{number}")).collect();

    cluster.kill_operator();
    for name in &names {
        cluster.apply_sriov(name, json!({ "networkNamespace": old })).await;
    }
    cluster.start_operator();
    cluster.wait_for_nad(&old, &names[3], "the first NADs are created", |_| true).await;
    cluster.kill_operator();
    cluster.start_operator();
    for name in &names {
        cluster.wait_for_sriov(name, READY).await;
    }

    cluster.kill_operator();
    for name in &names {
        cluster.apply_sriov(name, json!({ "networkNamespace": new })).await;
    }
    cluster.start_operator();
    cluster.wait_until_deleted(cluster.nads(&old), &names[5]).await;
    cluster.kill_operator();
    cluster.start_operator();
    for name in &names {
        cluster.wait_for_sriov(name, READY).await;
        assert!(cluster.nads(&new).get_opt(name).await.unwrap().is_some());
        assert!(cluster.nads(&old).get_opt(name).await.unwrap().is_none());
    }

    cluster.kill_operator();
    for name in &names {
        cluster.delete("SriovNetwork", cluster.operator_namespace(), name).await;
    }
    cluster.start_operator();
    cluster.wait_until_deleted(cluster.nads(&new), &names[7]).await;
    cluster.kill_operator();
    cluster.start_operator();
    for name in &names {
        cluster
            .wait_until_deleted(cluster.networks("SriovNetwork", cluster.operator_namespace()), name)
            .await;
        assert!(cluster.nads(&new).get_opt(name).await.unwrap().is_none());
    }
}

#[tokio::test]
async fn an_operator_that_starts_with_nothing_to_do_writes_nothing() {
    let cluster = NetworkCluster::exclusive().await;
    let apps = cluster.namespace("apps").await;
    for (kind, plugin) in KINDS {
        cluster
            .apply(
                kind,
                cluster.operator_namespace(),
                &format!("rest-{plugin}"),
                json!({ "networkNamespace": apps }),
            )
            .await;
    }
    let mut before = Vec::new();
    for (kind, plugin) in KINDS {
        let name = format!("rest-{plugin}");
        let network = cluster.wait_for(kind, cluster.operator_namespace(), &name, READY).await;
        let nad = cluster.nads(&apps).get(&name).await.unwrap();
        before.push((kind, name, network.version(), nad.metadata.resource_version));
    }
    cluster.kill_operator();
    cluster.start_operator();
    // When a new network is ready, all older networks were reconciled.
    cluster.apply_sriov("rest-marker", json!({})).await;
    cluster.wait_for_sriov("rest-marker", READY).await;
    for (kind, name, network, nad) in before {
        assert_eq!(
            cluster.wait_for(kind, cluster.operator_namespace(), &name, READY).await.version(),
            network,
            "{name}"
        );
        assert_eq!(cluster.nads(&apps).get(&name).await.unwrap().metadata.resource_version, nad, "{name}");
    }
}

#[tokio::test]
async fn operators_of_two_installations_do_not_interfere() {
    let cluster = NetworkCluster::exclusive().await;
    let apps = cluster.namespace("apps").await;
    let other = Cluster::new("other-installation", Plane::Networks).await;
    let _other_operator = other.start_operator();
    cluster.apply_sriov("good", json!({ "networkNamespace": apps })).await;
    cluster.apply_sriov("early", json!({ "networkNamespace": "never-there" })).await;
    cluster.apply("SriovNetwork", &apps, "neither", json!({ "networkNamespace": "x" })).await;

    // When the other operator has reconciled its own network, it has handled all older ones. Each network is written
    // once.
    let mut versions = Vec::new();
    for round in 0..10 {
        let spec = json!({ "networkNamespace": apps, "vlan": round });
        cluster.apply("SriovNetwork", other.namespace(), "theirs", spec).await;
        cluster.wait_for("SriovNetwork", other.namespace(), "theirs", READY).await;
        let good = cluster.wait_for_sriov("good", READY).await;
        let early = cluster.wait_for_sriov("early", NO_NAMESPACE).await;
        let neither = cluster.wait_for("SriovNetwork", &apps, "neither", INVALID).await;
        versions.push([good.version(), early.version(), neither.version()]);
    }
    assert_eq!(versions[8], versions[9], "the operators keep writing: {versions:#?}");

    for (namespace, name) in [(cluster.operator_namespace(), "good"), (other.namespace(), "theirs")] {
        cluster.delete("SriovNetwork", namespace, name).await;
        cluster.wait_until_deleted(cluster.networks("SriovNetwork", namespace), name).await;
        let left = cluster.nads(&apps).get_opt(name).await.unwrap();
        assert!(left.is_none(), "the network was deleted before its NAD: {left:?}");
    }
}

#[tokio::test]
async fn multus_may_be_installed_later() {
    let cluster = NetworkCluster::exclusive().await;
    cluster.kill_operator();
    cluster.uninstall_nads();
    cluster.start_operator();
    for name in ["before-multus", "gone-before-multus"] {
        cluster.apply_sriov(name, json!({})).await;
        let network = cluster.wait_for_sriov(name, NOT_FOUND).await;
        assert_eq!(network.status(), "False");
        network.expect_message(&["install Multus"]);
        cluster.expect_event(cluster.operator_namespace(), name, "Warning", NOT_FOUND).await;
    }
    cluster.delete("SriovNetwork", cluster.operator_namespace(), "gone-before-multus").await;
    cluster
        .wait_until_deleted(
            cluster.networks("SriovNetwork", cluster.operator_namespace()),
            "gone-before-multus",
        )
        .await;

    cluster.install_nads();
    cluster.wait_for_sriov("before-multus", READY).await;
    cluster.wait_for_nad(cluster.operator_namespace(), "before-multus", "exists", |_| true).await;
}
