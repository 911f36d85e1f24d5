//! Draining, on the real API server with pods that kwok plays. The tests play the agents.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tokio_util::task::AbortOnDropHandle;
use vfleet_api::SriovNetworkPoolConfig;
use vfleet_api::node_state::DrainStatus::{DrainDisabled, DrainRequired, Draining, DrainingComplete, Idle};
use vfleet_tests::cluster::Cluster;
use vfleet_tests::drain::log::BusyLog;
use vfleet_tests::drain::{RESOURCE, is_cordoned, mark};
use vfleet_tests::plane::Plane;

#[tokio::test]
async fn a_node_is_drained_and_given_back() {
    let cluster = Cluster::new("drain", Plane::Drains).await;
    let _operator = cluster.operator();
    cluster.workers(&["drain-1"]).await;
    cluster.pool("one", &["drain-1"], json!({ "drainConfig": { "maxParallelNodeConfiguration": 1 } })).await;
    cluster.pod("with-vf", "drain-1", json!({}), Some(RESOURCE)).await;
    cluster.pod("without", "drain-1", json!({}), None).await;
    cluster.expect_running("with-vf").await;
    cluster.expect_running("without").await;

    cluster.ask("drain-1", "Partial").await;
    cluster.expect_drain("drain-1", DrainingComplete).await;
    assert!(!cluster.has_pod("with-vf").await, "it is gone, not only told to go");
    assert!(cluster.has_pod("without").await);
    let node = cluster.nodes().get("drain-1").await.unwrap();
    assert!(is_cordoned(&node) && mark(&node) == Some("ours"));
    assert_eq!(cluster.slots("one").await, ["drain-1"]);

    cluster.be_idle("drain-1").await;
    cluster.expect_at_rest("drain-1").await;
    cluster.expect_event("drain-1", "Normal", "Uncordoned").await;
}

#[allow(clippy::many_single_char_names, reason = "the names of the example")]
#[tokio::test]
async fn the_seeds_example() {
    let cluster = Cluster::new("example", Plane::Drains).await;
    let _operator = cluster.operator();
    let [a, b, c, d, e] = ["example-a", "example-b", "example-c", "example-d", "example-e"];
    cluster.workers(&[a, b, c, d, e]).await;
    let limit = |priority: u32, most: u32| json!({ "priority": priority, "drainConfig": { "maxParallelNodeConfiguration": most } });
    cluster.pool("pool1", &[a, b, c], limit(1, 1)).await;
    cluster.pool("pool2", &[c, d, e], limit(99, 2)).await;
    for node in [c, d, e] {
        cluster.ask(node, "Partial").await;
    }
    for node in [c, d, e] {
        cluster.expect_drain(node, DrainingComplete).await;
    }
    // A and C share a pool that takes one at a time.
    cluster.ask(a, "Partial").await;
    cluster.ask(b, "Partial").await;
    cluster.be_idle(d).await;
    cluster.expect_at_rest(d).await;
    assert_eq!(
        [cluster.drain_status(a).await, cluster.drain_status(b).await],
        [DrainRequired, DrainRequired]
    );
    cluster.be_idle(c).await;
    cluster.expect_drain(a, DrainingComplete).await;
    assert_eq!(cluster.drain_status(b).await, DrainRequired);
    cluster.be_idle(a).await;
    cluster.expect_drain(b, DrainingComplete).await;
    assert_eq!(cluster.drain_status(a).await, Idle);
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
async fn a_slot_that_cannot_be_written_is_told() {
    let cluster = Cluster::new("unwritten", Plane::Drains).await;
    let nodes = ["unwritten-1", "unwritten-2"];
    let _operator = cluster.operator();
    cluster.workers(&nodes).await;
    cluster.pool("p", &nodes, limit(1)).await;
    cluster.take_right_away("sriovnetworkpoolconfigs/status").await;
    for node in nodes {
        cluster.ask(node, "Partial").await;
    }
    for node in nodes {
        let message = cluster.expect_blocked(node, "WriteRefused").await;
        assert!(message.contains("forbidden"), "{message}");
    }
    cluster.install().unwrap();
    for node in nodes {
        cluster.expect_drain(node, DrainingComplete).await;
        cluster.expect_not_blocked(nodes[1]).await;
        cluster.be_idle(node).await;
    }
}

#[tokio::test]
async fn a_refused_eviction_is_told_and_a_withdrawal_ends_it_at_once() {
    let cluster = Cluster::new("refused", Plane::Drains).await;
    let _operator = cluster.operator();
    cluster.workers(&["refused-1", "refused-2"]).await;
    cluster.pool("p", &["refused-1", "refused-2"], limit(2)).await;
    cluster.stubborn_pod("web", "refused-1").await;

    cluster.ask("refused-1", "Partial").await;
    cluster.ask("refused-2", "Partial").await;
    cluster.expect_drain("refused-1", Draining).await;
    let since = Instant::now();
    let message = cluster.expect_blocked("refused-1", "EvictionRefused").await;
    assert!(since.elapsed() < Duration::from_secs(15), "{:?}", since.elapsed());
    assert!(message.contains("/web") && message.contains("web-budget"), "{message}");
    cluster.expect_event("refused-1", "Warning", "EvictionRefused").await;
    // It holds up nobody else.
    cluster.expect_drain("refused-2", DrainingComplete).await;

    cluster.be_idle("refused-1").await;
    cluster.expect_at_rest("refused-1").await;
    assert!(cluster.has_pod("web").await);
    let not_blocked = |state: &vfleet_api::SriovNetworkNodeState| {
        let conditions = state.status.as_ref().and_then(|status| status.conditions.as_ref());
        vfleet_tests::objects::condition(conditions, "Blocked").0 == "False"
    };
    cluster.wait_for("refused-1", "not blocked any more", not_blocked).await;
}

#[tokio::test]
async fn a_drain_that_takes_too_long_waits_and_says_so() {
    let cluster = Cluster::new("late", Plane::Drains).await;
    let _operator = cluster.operator();
    cluster.workers(&["late-1"]).await;
    cluster.pool("p", &["late-1"], limit_and_timeout(1, 2, "Wait")).await;
    cluster.stubborn_pod("web", "late-1").await;
    cluster.ask("late-1", "Partial").await;
    let message = cluster.expect_blocked("late-1", "TimedOut").await;
    assert!(message.contains("web-budget") && message.contains("2 s"), "{message}");
    assert_eq!(cluster.drain_status("late-1").await, Draining);
    cluster.kubectl(&["delete", "pdb", "web-budget"]);
    cluster.expect_drain("late-1", DrainingComplete).await;
}

#[tokio::test]
async fn a_drain_that_takes_too_long_gives_its_slot_to_others() {
    let cluster = Cluster::new("release", Plane::Drains).await;
    let _operator = cluster.operator();
    cluster.workers(&["release-1", "release-2"]).await;
    cluster.pool("p", &["release-1", "release-2"], limit_and_timeout(1, 2, "Release")).await;
    cluster.stubborn_pod("web", "release-1").await;
    cluster.ask("release-1", "Partial").await;
    cluster.expect_drain("release-1", Draining).await;
    cluster.ask("release-2", "Partial").await;
    cluster.expect_drain("release-2", DrainingComplete).await;
    let state = cluster.expect_drain("release-1", DrainRequired).await;
    let retry = state.status.unwrap().drain_retry.unwrap();
    assert_eq!(retry.times, 1);
    cluster.expect_at_rest("release-1").await;
    cluster.expect_event("release-1", "Warning", "DrainReleased").await;
    assert!(cluster.has_pod("web").await);
}

#[tokio::test]
async fn an_administrators_cordon_stays() {
    let cluster = Cluster::new("cordoned", Plane::Drains).await;
    let _operator = cluster.operator();
    cluster.workers(&["cordoned-1"]).await;
    cluster.pool("p", &["cordoned-1"], limit(1)).await;
    cluster.kubectl(&["cordon", "cordoned-1"]);
    cluster.ask("cordoned-1", "Full").await;
    cluster.expect_drain("cordoned-1", DrainingComplete).await;
    assert_eq!(mark(&cluster.nodes().get("cordoned-1").await.unwrap()), Some("found"));
    cluster.be_idle("cordoned-1").await;
    let node = cluster.expect_node("cordoned-1", "without our mark", |node| mark(node).is_none()).await;
    assert!(is_cordoned(&node));
}

#[tokio::test]
async fn what_only_the_operator_may_write_is_put_right() {
    let cluster = Cluster::new("right", Plane::Drains).await;
    let _operator = cluster.operator();
    cluster.workers(&["right-1"]).await;
    cluster.pool("p", &["right-1"], limit(1)).await;
    cluster.pod("with-vf", "right-1", json!({}), Some(RESOURCE)).await;
    cluster.expect_running("with-vf").await;
    let params = PatchParams { field_manager: Some("somebody".to_owned()), ..Default::default() };
    let patch = Patch::Merge(json!({ "status": { "drainStatus": "Draining_Complete" } }));
    cluster.states().patch_status("right-1", &params, &patch).await.unwrap();
    cluster.expect_event("right-1", "Warning", "DrainStatusPutRight").await;
    // Now it is what it says.
    let is_ours = |state: &vfleet_api::SriovNetworkNodeState| {
        vfleet_plan::drain::StateFacts::of(state).writer == vfleet_plan::drain::Writer::Operator
            && vfleet_tests::drain::status_of(state) == DrainingComplete
    };
    cluster.wait_for("right-1", "drained by the operator", is_ours).await;
    assert!(!cluster.has_pod("with-vf").await);
}

#[tokio::test]
async fn a_request_without_a_time_is_served_again_and_again() {
    let cluster = Cluster::new("nameless", Plane::Drains).await;
    let _operator = cluster.operator();
    cluster.workers(&["nameless-1"]).await;
    cluster.pool("p", &["nameless-1"], limit(1)).await;
    for _ in 0..2 {
        cluster.agent_writes("nameless-1", json!({ "drainStatus": "Drain_Required" })).await;
        cluster.expect_drain("nameless-1", DrainingComplete).await;
        cluster.be_idle("nameless-1").await;
        cluster.expect_at_rest("nameless-1").await;
    }
}

#[tokio::test]
async fn who_goes_away_frees_its_slot() {
    let cluster = Cluster::new("away", Plane::Drains).await;
    let _operator = cluster.operator();
    let nodes = ["away-1", "away-2", "away-3"];
    cluster.workers(&nodes).await;
    cluster.pool("p", &nodes, limit(1)).await;
    cluster.ask("away-1", "Partial").await;
    cluster.expect_drain("away-1", DrainingComplete).await;
    cluster.ask("away-2", "Partial").await;
    cluster.ask("away-3", "Partial").await;
    cluster.nodes().delete("away-1", &DeleteParams::default()).await.unwrap();
    cluster.expect_drain("away-2", DrainingComplete).await;
    assert_eq!(cluster.drain_status("away-3").await, DrainRequired);
    cluster.states().delete("away-2", &DeleteParams::default()).await.unwrap();
    cluster.expect_at_rest("away-2").await;
    cluster.expect_drain("away-3", DrainingComplete).await;
}

#[tokio::test]
async fn a_limit_that_changes_counts_at_once() {
    let cluster = Cluster::new("limits", Plane::Drains).await;
    let _operator = cluster.operator();
    let nodes = ["limits-1", "limits-2", "limits-3", "limits-4"];
    cluster.workers(&nodes).await;
    cluster.pool("p", &nodes, json!({ "maxUnavailable": 0 })).await;
    for node in nodes {
        cluster.ask(node, "Partial").await;
    }
    let message = cluster.expect_blocked("limits-1", "NeverDrained").await;
    assert!(message.contains("maxUnavailable"), "{message}");
    cluster.pool("p", &nodes, json!({ "maxUnavailable": "50%" })).await;
    cluster.expect_drain("limits-1", DrainingComplete).await;
    cluster.expect_drain("limits-2", DrainingComplete).await;
    assert_eq!(cluster.slots("p").await, ["limits-1", "limits-2"]);
    // Lowered while two are drained: the next begins when none is.
    cluster.pool("p", &nodes, json!({ "maxUnavailable": 1 })).await;
    cluster.be_idle("limits-1").await;
    cluster.expect_at_rest("limits-1").await;
    cluster.wait_for("p", "one slot", |pool: &SriovNetworkPoolConfig| slots(pool) == ["limits-2"]).await;
    cluster.be_idle("limits-2").await;
    cluster.expect_drain("limits-3", DrainingComplete).await;
    assert_eq!(cluster.drain_status("limits-4").await, DrainRequired);
    cluster.pool("p", &nodes, limit(0)).await;
    cluster.expect_drain("limits-4", DrainingComplete).await;
}

fn slots(pool: &SriovNetworkPoolConfig) -> Vec<&str> {
    let slots = pool.status.as_ref().and_then(|status| status.slots.as_deref()).unwrap_or_default();
    slots.iter().map(|slot| slot.node.as_str()).collect()
}

#[tokio::test]
async fn a_node_that_changes_pools_counts_where_it_is() {
    let cluster = Cluster::new("moves", Plane::Drains).await;
    let _operator = cluster.operator();
    let nodes = ["moves-1", "moves-2", "moves-3"];
    cluster.workers(&nodes).await;
    cluster.pool("old", &["moves-1"], limit(1)).await;
    cluster.pool("new", &["moves-2", "moves-3"], limit(1)).await;
    cluster.ask("moves-1", "Partial").await;
    cluster.expect_drain("moves-1", DrainingComplete).await;
    // The old pool goes, the new one takes its node over.
    cluster.pool("new", &nodes, limit(1)).await;
    cluster.api::<SriovNetworkPoolConfig>().delete("old", &DeleteParams::default()).await.unwrap();
    cluster.wait_for("new", "has it", |pool: &SriovNetworkPoolConfig| slots(pool) == ["moves-1"]).await;
    cluster.ask("moves-2", "Partial").await;
    cluster.ask("moves-3", "Partial").await;
    cluster.be_idle("moves-1").await;
    cluster.expect_drain("moves-2", DrainingComplete).await;
    assert_eq!(cluster.drain_status("moves-3").await, DrainRequired);
}

#[tokio::test]
async fn an_agent_that_says_nothing_keeps_its_slot_and_is_named() {
    let cluster = Cluster::new("silent", Plane::Drains).await;
    let _operator = cluster.operator();
    cluster.workers(&["silent-1", "silent-2"]).await;
    cluster.pool("p", &["silent-1", "silent-2"], limit_and_timeout(1, 2, "Release")).await;
    cluster.ask("silent-1", "Partial").await;
    cluster.expect_drain("silent-1", DrainingComplete).await;
    cluster.ask("silent-2", "Partial").await;
    cluster.expect_blocked("silent-1", "AgentSilent").await;
    assert_eq!(cluster.slots("p").await, ["silent-1"]);
    assert_eq!(cluster.drain_status("silent-2").await, DrainRequired);
    cluster.be_idle("silent-1").await;
    cluster.expect_drain("silent-2", DrainingComplete).await;
}

#[tokio::test]
async fn drains_that_are_switched_off_are_answered() {
    let cluster = Cluster::new("off", Plane::Drains).await;
    let _operator = cluster.operator();
    cluster.workers(&["off-1", "off-2"]).await;
    cluster.pool("p", &["off-1", "off-2"], limit(1)).await;
    cluster.stubborn_pod("web", "off-1").await;
    cluster.ask("off-1", "Partial").await;
    cluster.expect_blocked("off-1", "EvictionRefused").await;
    cluster
        .apply("SriovOperatorConfig", "sriovoperatorconfigs", "default", &json!({ "disableDrain": true }))
        .await;
    // Also one that is under way.
    cluster.expect_drain("off-1", DrainDisabled).await;
    cluster.expect_at_rest("off-1").await;
    cluster.ask("off-2", "Full").await;
    cluster.expect_drain("off-2", DrainDisabled).await;
    let node = cluster.nodes().get("off-2").await.unwrap();
    assert!(!is_cordoned(&node) && mark(&node).is_none());
}

#[tokio::test]
async fn daemon_pods_that_may_have_lost_their_vfs_start_again() {
    let cluster = Cluster::new("daemons", Plane::Drains).await;
    let _operator = cluster.operator();
    cluster.workers(&["daemons-1"]).await;
    cluster.pool("p", &["daemons-1"], limit(1)).await;
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
    let file = cluster.file("ds.json", &set.to_string());
    cluster.apply_file(&file);
    let runs = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
    let first: Pod = cluster.wait_for_any("app=ds", "runs", runs).await;

    // Its VFs were left alone: so is it.
    cluster.ask("daemons-1", "Partial").await;
    cluster.expect_drain("daemons-1", DrainingComplete).await;
    cluster.agent_writes("daemons-1", json!({ "drainStatus": "Idle", "keptResources": ["nics"] })).await;
    cluster.expect_at_rest("daemons-1").await;
    let pods: Api<Pod> = cluster.api();
    assert_eq!(pods.get(&first.name_any()).await.unwrap().uid(), first.uid());

    cluster.ask("daemons-1", "Partial").await;
    cluster.expect_drain("daemons-1", DrainingComplete).await;
    cluster.agent_writes("daemons-1", json!({ "drainStatus": "Idle", "keptResources": null })).await;
    cluster.expect_at_rest("daemons-1").await;
    cluster.expect_event("daemons-1", "Normal", "DaemonPodsRestarted").await;
    cluster.wait_for_any("app=ds", "is another", |pod: &Pod| runs(pod) && pod.uid() != first.uid()).await;
}

#[tokio::test]
async fn a_leader_that_was_asleep_gives_no_slot_when_it_wakes() {
    let cluster = Cluster::new("sleeper", Plane::Drains).await;
    let first = cluster.operator_with(&[("POD_NAME", "first")]);
    let nodes = ["sleeper-1", "sleeper-2", "sleeper-3"];
    cluster.workers(&nodes).await;
    cluster.pool("p", &nodes, limit(1)).await;
    let log = BusyLog::begin(&cluster);
    cluster.ask("sleeper-1", "Partial").await;
    cluster.expect_drain("sleeper-1", DrainingComplete).await;
    cluster.ask("sleeper-2", "Partial").await;
    let _second = cluster.operator_with(&[("POD_NAME", "second")]);
    first.signal("STOP");
    // While it sleeps its slot becomes free, and another gives it away.
    cluster.be_idle("sleeper-1").await;
    cluster.expect_drain("sleeper-2", DrainingComplete).await;
    cluster.ask("sleeper-3", "Partial").await;
    first.signal("CONT");
    let woke = Instant::now();
    while !cluster.log().contains("this replica leads no more") {
        assert!(woke.elapsed() < Duration::from_mins(1), "it never found out:\n{}", cluster.log());
        // The log is a file: nothing announces its next line but time. The API server is asked instead.
        assert_eq!(cluster.drain_status("sleeper-3").await, DrainRequired);
    }
    cluster.be_idle("sleeper-2").await;
    cluster.expect_drain("sleeper-3", DrainingComplete).await;
    assert_eq!(log.most_at_once(&nodes.map(str::to_owned)), 1);
}

/// Writes something that counts for nobody, again and again, until it is dropped.
fn nuisance<K>(api: Api<K>, name: &'static str) -> AbortOnDropHandle<()>
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
async fn others_who_write_the_same_objects_hold_up_nobody() {
    let cluster = Cluster::new("nuisance", Plane::Drains).await;
    let _operator = cluster.operator();
    let nodes = ["nuisance-1", "nuisance-2"];
    cluster.workers(&nodes).await;
    cluster.pool("p", &nodes, limit(1)).await;
    let _writers = [
        nuisance(cluster.nodes(), "nuisance-1"),
        nuisance(cluster.states(), "nuisance-1"),
        nuisance(cluster.states(), "nuisance-2"),
        nuisance(cluster.api::<SriovNetworkPoolConfig>(), "p"),
    ];
    for round in 0..3 {
        for node in nodes {
            cluster.ask(node, "Partial").await;
        }
        for node in nodes {
            cluster.expect_drain(node, DrainingComplete).await;
            cluster.be_idle(node).await;
            cluster.expect_at_rest(node).await;
        }
        assert!(cluster.log().contains("drain goes on"), "round {round}");
    }
}
