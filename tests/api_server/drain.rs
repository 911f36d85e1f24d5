//! Drains with a real API server. kwok simulates the pods, the tests act as agents.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tokio_util::task::AbortOnDropHandle;
use vfleet_api::SriovNetworkPoolConfig;
use vfleet_api::node_state::DrainStatus::{DrainDisabled, DrainRequired, Draining, DrainingComplete, Idle};
use vfleet_tests::cluster::Cluster;
use vfleet_tests::drain::log::DrainLog;
use vfleet_tests::drain::{RESOURCE, cordon_mark, is_cordoned};
use vfleet_tests::plane::Plane;

#[tokio::test]
async fn a_node_is_drained_and_uncordoned() {
    let cluster = Cluster::new("drain", Plane::Drains).await;
    let _operator = cluster.start_operator();
    cluster.create_workers(&["drain-1"]).await;
    cluster
        .create_pool("one", &["drain-1"], json!({ "drainConfig": { "maxParallelNodeConfiguration": 1 } }))
        .await;
    cluster.create_pod("with-vf", "drain-1", json!({}), Some(RESOURCE)).await;
    cluster.create_pod("without", "drain-1", json!({}), None).await;
    cluster.expect_running("with-vf").await;
    cluster.expect_running("without").await;

    cluster.request_drain("drain-1", "Partial").await;
    cluster.expect_drain("drain-1", DrainingComplete).await;
    assert!(!cluster.has_pod("with-vf").await, "the pod is gone, not only terminating");
    assert!(cluster.has_pod("without").await);
    let node = cluster.nodes().get("drain-1").await.unwrap();
    assert!(is_cordoned(&node) && cordon_mark(&node) == Some("ours"));
    assert_eq!(cluster.slots("one").await, ["drain-1"]);

    cluster.set_idle("drain-1").await;
    cluster.expect_uncordoned("drain-1").await;
    cluster.expect_event("drain-1", "Normal", "Uncordoned").await;
}

#[allow(clippy::many_single_char_names, reason = "node names of the example")]
#[tokio::test]
async fn two_pools_that_share_a_node() {
    let cluster = Cluster::new("example", Plane::Drains).await;
    let _operator = cluster.start_operator();
    let [a, b, c, d, e] = ["example-a", "example-b", "example-c", "example-d", "example-e"];
    cluster.create_workers(&[a, b, c, d, e]).await;
    let limit = |priority: u32, most: u32| json!({ "priority": priority, "drainConfig": { "maxParallelNodeConfiguration": most } });
    cluster.create_pool("pool1", &[a, b, c], limit(1, 1)).await;
    cluster.create_pool("pool2", &[c, d, e], limit(99, 2)).await;
    for node in [c, d, e] {
        cluster.request_drain(node, "Partial").await;
    }
    for node in [c, d, e] {
        cluster.expect_drain(node, DrainingComplete).await;
    }
    // A, B and C share a pool with limit 1.
    cluster.request_drain(a, "Partial").await;
    cluster.request_drain(b, "Partial").await;
    expect_waiting(&cluster, a, "waiting for a slot in pool pool1 (limit 1, held by example-c)").await;
    cluster.set_idle(d).await;
    cluster.expect_uncordoned(d).await;
    assert_eq!(
        [cluster.drain_status(a).await, cluster.drain_status(b).await],
        [DrainRequired, DrainRequired]
    );
    cluster.set_idle(c).await;
    cluster.expect_drain(a, DrainingComplete).await;
    assert_eq!(cluster.drain_status(b).await, DrainRequired);
    expect_waiting(&cluster, b, "waiting for a slot in pool pool1 (limit 1, held by example-a)").await;
    cluster.set_idle(a).await;
    cluster.expect_drain(b, DrainingComplete).await;
    assert_eq!(cluster.drain_status(a).await, Idle);
}

/// Waits until condition `Blocked` of the node has this message and reason `WaitingForSlot`.
async fn expect_waiting(cluster: &Cluster, node: &str, message: &str) {
    let is_waiting = |state: &vfleet_api::SriovNetworkNodeState| {
        let conditions = state.status.as_ref().and_then(|status| status.conditions.as_ref());
        let (status, reason, found) = vfleet_tests::objects::condition(conditions, "Blocked");
        status == "False" && reason == "WaitingForSlot" && found == message
    };
    cluster.wait_for(node, message, is_waiting).await;
}

fn limit(most: u32) -> Value {
    json!({ "drainConfig": { "maxParallelNodeConfiguration": most } })
}

fn limit_and_timeout(most: u32, seconds: u32, on_timeout: &str) -> Value {
    let config = json!({
        "maxParallelNodeConfiguration": most, "timeoutSeconds": seconds, "onTimeout": on_timeout,
    });
    json!({ "drainConfig": config })
}

#[tokio::test]
async fn a_slot_that_cannot_be_written_is_reported() {
    let cluster = Cluster::new("unwritten", Plane::Drains).await;
    let nodes = ["unwritten-1", "unwritten-2"];
    let _operator = cluster.start_operator();
    cluster.create_workers(&nodes).await;
    cluster.create_pool("p", &nodes, limit(1)).await;
    cluster.revoke_operator_access("sriovnetworkpoolconfigs/status").await;
    for node in nodes {
        cluster.request_drain(node, "Partial").await;
    }
    for node in nodes {
        let message = cluster.expect_blocked(node, "WriteRefused").await;
        assert!(message.contains("forbidden"), "{message}");
    }
    cluster.install().unwrap();
    for node in nodes {
        cluster.expect_drain(node, DrainingComplete).await;
        cluster.expect_not_blocked(nodes[1]).await;
        cluster.set_idle(node).await;
    }
}

#[tokio::test]
async fn a_refused_eviction_is_reported_and_a_withdrawal_ends_the_drain_at_once() {
    let cluster = Cluster::new("refused", Plane::Drains).await;
    let _operator = cluster.start_operator();
    cluster.create_workers(&["refused-1", "refused-2"]).await;
    cluster.create_pool("p", &["refused-1", "refused-2"], limit(2)).await;
    cluster.create_protected_pod("web", "refused-1").await;

    cluster.request_drain("refused-1", "Partial").await;
    cluster.request_drain("refused-2", "Partial").await;
    cluster.expect_drain("refused-1", Draining).await;
    let since = Instant::now();
    let message = cluster.expect_blocked("refused-1", "EvictionRefused").await;
    assert!(since.elapsed() < Duration::from_secs(15), "{:?}", since.elapsed());
    assert!(message.contains("/web") && message.contains("web-budget"), "{message}");
    cluster.expect_event("refused-1", "Warning", "EvictionRefused").await;
    // Other nodes are not delayed.
    cluster.expect_drain("refused-2", DrainingComplete).await;

    cluster.set_idle("refused-1").await;
    cluster.expect_uncordoned("refused-1").await;
    assert!(cluster.has_pod("web").await);
    let not_blocked = |state: &vfleet_api::SriovNetworkNodeState| {
        let conditions = state.status.as_ref().and_then(|status| status.conditions.as_ref());
        vfleet_tests::objects::condition(conditions, "Blocked").0 == "False"
    };
    cluster.wait_for("refused-1", "not blocked any more", not_blocked).await;
}

#[tokio::test]
async fn a_drain_that_times_out_waits_and_is_reported() {
    let cluster = Cluster::new("late", Plane::Drains).await;
    let _operator = cluster.start_operator();
    cluster.create_workers(&["late-1"]).await;
    cluster.create_pool("p", &["late-1"], limit_and_timeout(1, 2, "Wait")).await;
    cluster.create_protected_pod("web", "late-1").await;
    cluster.request_drain("late-1", "Partial").await;
    let message = cluster.expect_blocked("late-1", "TimedOut").await;
    assert!(message.contains("web-budget") && message.contains("2 s"), "{message}");
    assert_eq!(cluster.drain_status("late-1").await, Draining);
    cluster.kubectl(&["delete", "pdb", "web-budget"]);
    cluster.expect_drain("late-1", DrainingComplete).await;
}

#[tokio::test]
async fn a_drain_that_times_out_releases_its_slot() {
    let cluster = Cluster::new("release", Plane::Drains).await;
    let _operator = cluster.start_operator();
    cluster.create_workers(&["release-1", "release-2"]).await;
    cluster.create_pool("p", &["release-1", "release-2"], limit_and_timeout(1, 2, "Release")).await;
    cluster.create_protected_pod("web", "release-1").await;
    cluster.request_drain("release-1", "Partial").await;
    cluster.expect_drain("release-1", Draining).await;
    cluster.request_drain("release-2", "Partial").await;
    cluster.expect_drain("release-2", DrainingComplete).await;
    let state = cluster.expect_drain("release-1", DrainRequired).await;
    let retry = state.status.unwrap().drain_retry.unwrap();
    assert_eq!(retry.times, 1);
    cluster.expect_uncordoned("release-1").await;
    cluster.expect_event("release-1", "Warning", "DrainReleased").await;
    assert!(cluster.has_pod("web").await);
}

#[tokio::test]
async fn an_administrators_cordon_stays() {
    let cluster = Cluster::new("cordoned", Plane::Drains).await;
    let _operator = cluster.start_operator();
    cluster.create_workers(&["cordoned-1"]).await;
    cluster.create_pool("p", &["cordoned-1"], limit(1)).await;
    cluster.kubectl(&["cordon", "cordoned-1"]);
    cluster.request_drain("cordoned-1", "Full").await;
    cluster.expect_drain("cordoned-1", DrainingComplete).await;
    assert_eq!(cordon_mark(&cluster.nodes().get("cordoned-1").await.unwrap()), Some("found"));
    cluster.set_idle("cordoned-1").await;
    let node =
        cluster.expect_node("cordoned-1", "without our mark", |node| cordon_mark(node).is_none()).await;
    assert!(is_cordoned(&node));
    cluster.expect_event("cordoned-1", "Normal", "DrainFinished").await;
}

#[tokio::test]
async fn a_status_that_only_the_operator_may_write_is_corrected() {
    let cluster = Cluster::new("right", Plane::Drains).await;
    let _operator = cluster.start_operator();
    cluster.create_workers(&["right-1"]).await;
    cluster.create_pool("p", &["right-1"], limit(1)).await;
    cluster.create_pod("with-vf", "right-1", json!({}), Some(RESOURCE)).await;
    cluster.expect_running("with-vf").await;
    let params = PatchParams { field_manager: Some("somebody".to_owned()), ..Default::default() };
    let patch = Patch::Merge(json!({ "status": { "drainStatus": "Draining_Complete" } }));
    cluster.states().patch_status("right-1", &params, &patch).await.unwrap();
    cluster.expect_event("right-1", "Warning", "DrainStatusCorrected").await;
    // Now the status is true.
    let is_ours = |state: &vfleet_api::SriovNetworkNodeState| {
        vfleet_plan::drain::StateFacts::of(state).writer == vfleet_plan::drain::StatusWriter::Operator
            && vfleet_tests::drain::status_of(state) == DrainingComplete
    };
    cluster.wait_for("right-1", "drained by the operator", is_ours).await;
    assert!(!cluster.has_pod("with-vf").await);
}

#[tokio::test]
async fn requests_without_a_time_are_served() {
    let cluster = Cluster::new("nameless", Plane::Drains).await;
    let _operator = cluster.start_operator();
    cluster.create_workers(&["nameless-1"]).await;
    cluster.create_pool("p", &["nameless-1"], limit(1)).await;
    for _ in 0..2 {
        cluster.write_agent_status("nameless-1", json!({ "drainStatus": "Drain_Required" })).await;
        cluster.expect_drain("nameless-1", DrainingComplete).await;
        cluster.set_idle("nameless-1").await;
        cluster.expect_uncordoned("nameless-1").await;
    }
}

#[tokio::test]
async fn a_deleted_node_or_node_state_frees_its_slot() {
    let cluster = Cluster::new("away", Plane::Drains).await;
    let _operator = cluster.start_operator();
    let nodes = ["away-1", "away-2", "away-3"];
    cluster.create_workers(&nodes).await;
    cluster.create_pool("p", &nodes, limit(1)).await;
    cluster.request_drain("away-1", "Partial").await;
    cluster.expect_drain("away-1", DrainingComplete).await;
    cluster.request_drain("away-2", "Partial").await;
    cluster.request_drain("away-3", "Partial").await;
    cluster.nodes().delete("away-1", &DeleteParams::default()).await.unwrap();
    cluster.expect_drain("away-2", DrainingComplete).await;
    assert_eq!(cluster.drain_status("away-3").await, DrainRequired);
    cluster.states().delete("away-2", &DeleteParams::default()).await.unwrap();
    cluster.expect_uncordoned("away-2").await;
    cluster.expect_drain("away-3", DrainingComplete).await;
}

#[tokio::test]
async fn a_changed_limit_applies_at_once() {
    let cluster = Cluster::new("limits", Plane::Drains).await;
    let _operator = cluster.start_operator();
    let nodes = ["limits-1", "limits-2", "limits-3", "limits-4"];
    cluster.create_workers(&nodes).await;
    cluster.create_pool("p", &nodes, json!({ "maxUnavailable": 0 })).await;
    for node in nodes {
        cluster.request_drain(node, "Partial").await;
    }
    let message = cluster.expect_blocked("limits-1", "MaxUnavailableZero").await;
    assert!(message.contains("maxUnavailable"), "{message}");
    cluster.create_pool("p", &nodes, json!({ "maxUnavailable": "50%" })).await;
    cluster.expect_drain("limits-1", DrainingComplete).await;
    cluster.expect_drain("limits-2", DrainingComplete).await;
    assert_eq!(cluster.slots("p").await, ["limits-1", "limits-2"]);
    // Lowered while two nodes are drained: the next drain starts when both are finished.
    cluster.create_pool("p", &nodes, json!({ "maxUnavailable": 1 })).await;
    cluster.set_idle("limits-1").await;
    cluster.expect_uncordoned("limits-1").await;
    cluster.wait_for("p", "one slot", |pool: &SriovNetworkPoolConfig| slots(pool) == ["limits-2"]).await;
    cluster.set_idle("limits-2").await;
    cluster.expect_drain("limits-3", DrainingComplete).await;
    assert_eq!(cluster.drain_status("limits-4").await, DrainRequired);
    cluster.create_pool("p", &nodes, limit(0)).await;
    cluster.expect_drain("limits-4", DrainingComplete).await;
}

fn slots(pool: &SriovNetworkPoolConfig) -> Vec<&str> {
    let slots = pool.status.as_ref().and_then(|status| status.slots.as_deref()).unwrap_or_default();
    slots.iter().map(|slot| slot.node.as_str()).collect()
}

#[tokio::test]
async fn a_node_that_changes_pools_counts_in_its_new_pool() {
    let cluster = Cluster::new("moves", Plane::Drains).await;
    let _operator = cluster.start_operator();
    let nodes = ["moves-1", "moves-2", "moves-3"];
    cluster.create_workers(&nodes).await;
    cluster.create_pool("old", &["moves-1"], limit(1)).await;
    cluster.create_pool("new", &["moves-2", "moves-3"], limit(1)).await;
    cluster.request_drain("moves-1", "Partial").await;
    cluster.expect_drain("moves-1", DrainingComplete).await;
    // The old pool is deleted, and its node belongs to the new one.
    cluster.create_pool("new", &nodes, limit(1)).await;
    cluster.api::<SriovNetworkPoolConfig>().delete("old", &DeleteParams::default()).await.unwrap();
    cluster.wait_for("new", "has it", |pool: &SriovNetworkPoolConfig| slots(pool) == ["moves-1"]).await;
    cluster.request_drain("moves-2", "Partial").await;
    cluster.request_drain("moves-3", "Partial").await;
    cluster.set_idle("moves-1").await;
    cluster.expect_drain("moves-2", DrainingComplete).await;
    assert_eq!(cluster.drain_status("moves-3").await, DrainRequired);
}

#[tokio::test]
async fn an_agent_that_does_not_finish_keeps_its_slot_and_is_reported() {
    let cluster = Cluster::new("silent", Plane::Drains).await;
    let _operator = cluster.start_operator();
    cluster.create_workers(&["silent-1", "silent-2"]).await;
    cluster.create_pool("p", &["silent-1", "silent-2"], limit_and_timeout(1, 2, "Release")).await;
    cluster.request_drain("silent-1", "Partial").await;
    cluster.expect_drain("silent-1", DrainingComplete).await;
    cluster.request_drain("silent-2", "Partial").await;
    cluster.expect_blocked("silent-1", "AgentNotFinished").await;
    assert_eq!(cluster.slots("p").await, ["silent-1"]);
    assert_eq!(cluster.drain_status("silent-2").await, DrainRequired);
    cluster.set_idle("silent-1").await;
    cluster.expect_drain("silent-2", DrainingComplete).await;
}

#[tokio::test]
async fn disabled_drains_are_answered() {
    let cluster = Cluster::new("off", Plane::Drains).await;
    let _operator = cluster.start_operator();
    cluster.create_workers(&["off-1", "off-2"]).await;
    cluster.create_pool("p", &["off-1", "off-2"], limit(1)).await;
    cluster.create_protected_pod("web", "off-1").await;
    cluster.request_drain("off-1", "Partial").await;
    cluster.expect_blocked("off-1", "EvictionRefused").await;
    cluster
        .apply("SriovOperatorConfig", "sriovoperatorconfigs", "default", &json!({ "disableDrain": true }))
        .await;
    // Also a drain in progress.
    cluster.expect_drain("off-1", DrainDisabled).await;
    cluster.expect_uncordoned("off-1").await;
    cluster.request_drain("off-2", "Full").await;
    cluster.expect_drain("off-2", DrainDisabled).await;
    let node = cluster.nodes().get("off-2").await.unwrap();
    assert!(!is_cordoned(&node) && cordon_mark(&node).is_none());
}

#[tokio::test]
async fn daemon_set_pods_that_may_have_lost_their_vfs_are_restarted() {
    let cluster = Cluster::new("daemons", Plane::Drains).await;
    let _operator = cluster.start_operator();
    cluster.create_workers(&["daemons-1"]).await;
    cluster.create_pool("p", &["daemons-1"], limit(1)).await;
    let resources = json!({ "openshift.io/nics": "8" });
    let patch = Patch::Merge(json!({ "status": { "allocatable": resources, "capacity": resources } }));
    cluster.nodes().patch_status("daemons-1", &PatchParams::default(), &patch).await.unwrap();
    let set = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": "ds" },
        "spec": {
            "selector": { "matchLabels": { "app": "ds" } },
            "template": {
                "metadata": { "labels": { "app": "ds" } },
                "spec": {
                    "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{ "matchFields": [
                            { "key": "metadata.name", "operator": "In", "values": ["daemons-1"] },
                        ] }],
                    } } },
                    "containers": [{ "name": "c", "image": "none", "resources": { "limits": { RESOURCE: "1" } } }],
                },
            },
        },
    });
    let file = cluster.write_file("ds.json", &set.to_string());
    cluster.apply_file(&file);
    let runs = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
    let first: Pod = cluster.wait_for_any("app=ds", "runs", runs).await;

    // Its VFs did not change: it is not restarted.
    cluster.request_drain("daemons-1", "Partial").await;
    cluster.expect_drain("daemons-1", DrainingComplete).await;
    cluster
        .write_agent_status("daemons-1", json!({ "drainStatus": "Idle", "keptResources": ["nics"] }))
        .await;
    cluster.expect_uncordoned("daemons-1").await;
    let pods: Api<Pod> = cluster.api();
    assert_eq!(pods.get(&first.name_any()).await.unwrap().uid(), first.uid());

    cluster.request_drain("daemons-1", "Partial").await;
    cluster.expect_drain("daemons-1", DrainingComplete).await;
    cluster.write_agent_status("daemons-1", json!({ "drainStatus": "Idle", "keptResources": null })).await;
    cluster.expect_uncordoned("daemons-1").await;
    cluster.expect_event("daemons-1", "Normal", "DaemonPodsRestarted").await;
    cluster.wait_for_any("app=ds", "is another", |pod: &Pod| runs(pod) && pod.uid() != first.uid()).await;
}

#[tokio::test]
async fn a_leader_that_was_stopped_grants_no_slot_when_it_continues() {
    let cluster = Cluster::new("sleeper", Plane::Drains).await;
    let first = cluster.start_operator_with(&[("POD_NAME", "first")]);
    let nodes = ["sleeper-1", "sleeper-2", "sleeper-3"];
    cluster.create_workers(&nodes).await;
    cluster.create_pool("p", &nodes, limit(1)).await;
    let log = DrainLog::start(&cluster);
    cluster.request_drain("sleeper-1", "Partial").await;
    cluster.expect_drain("sleeper-1", DrainingComplete).await;
    cluster.request_drain("sleeper-2", "Partial").await;
    let _second = cluster.start_operator_with(&[("POD_NAME", "second")]);
    first.signal("STOP");
    // While it is stopped the slot becomes free, and the other replica grants it.
    cluster.set_idle("sleeper-1").await;
    cluster.expect_drain("sleeper-2", DrainingComplete).await;
    cluster.request_drain("sleeper-3", "Partial").await;
    first.signal("CONT");
    let woke = Instant::now();
    while !cluster.log().contains("lost leadership") {
        assert!(woke.elapsed() < Duration::from_mins(1), "the first replica still leads:\n{}", cluster.log());
        // The log is a file without notifications, so the loop polls; meanwhile no slot may be granted.
        assert_eq!(cluster.drain_status("sleeper-3").await, DrainRequired);
    }
    cluster.set_idle("sleeper-2").await;
    cluster.expect_drain("sleeper-3", DrainingComplete).await;
    assert_eq!(log.max_busy_nodes(&nodes.map(str::to_owned)), 1);
}

/// Writes an irrelevant annotation repeatedly until it is dropped.
fn write_repeatedly<K>(api: Api<K>, name: &'static str) -> AbortOnDropHandle<()>
where
    K: kube::Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug + Send + Sync + 'static,
{
    AbortOnDropHandle::new(tokio::spawn(async move {
        for number in 0_u64.. {
            let patch = Patch::Merge(
                json!({ "metadata": { "annotations": { "test/nuisance": number.to_string() } } }),
            );
            let _ = api.patch(name, &PatchParams::default(), &patch).await;
        }
    }))
}

#[tokio::test(flavor = "multi_thread")]
async fn other_writers_of_the_same_objects_do_not_stop_a_drain() {
    let cluster = Cluster::new("nuisance", Plane::Drains).await;
    let _operator = cluster.start_operator();
    let nodes = ["nuisance-1", "nuisance-2"];
    cluster.create_workers(&nodes).await;
    cluster.create_pool("p", &nodes, limit(1)).await;
    let _writers = [
        write_repeatedly(cluster.nodes(), "nuisance-1"),
        write_repeatedly(cluster.states(), "nuisance-1"),
        write_repeatedly(cluster.states(), "nuisance-2"),
        write_repeatedly(cluster.api::<SriovNetworkPoolConfig>(), "p"),
    ];
    for round in 0..3 {
        for node in nodes {
            cluster.request_drain(node, "Partial").await;
        }
        for node in nodes {
            cluster.expect_drain(node, DrainingComplete).await;
            cluster.set_idle(node).await;
            cluster.expect_uncordoned(node).await;
        }
        assert!(cluster.log().contains("drain started"), "round {round}");
    }
}
