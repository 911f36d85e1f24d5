//! Several replicas of the operator, of which one leads. Real processes, a real API server, real signals.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::SignedDuration;
use serde_json::json;
use vfleet_api::node_state::DrainStatus::DrainingComplete;
use vfleet_tests::cluster::{Cluster, Program, machine};
use vfleet_tests::drain::log::BusyLog;
use vfleet_tests::plane::Plane;

const PF: &str = "enp1s0";
/// Another replica works at the latest so long after the leader was killed.
const TAKE_OVER: Duration = Duration::from_secs(45);

fn replica(cluster: &Cluster, name: &str) -> Program {
    cluster.operator_with(&[("POD_NAME", name)])
}

async fn leads(cluster: &Cluster, name: &str) -> Lease {
    let is_it = |lease: &Lease| {
        let spec = lease.spec.clone().unwrap_or_default();
        spec.holder_identity.as_deref() == Some(name)
    };
    cluster.wait_for("vfleet-operator", &format!("held by {name}"), is_it).await
}

/// Whether the lease went from hand to hand, rather than being taken from somebody who was silent for too long.
fn taken_before_it_ran_out(held: &Lease, taken: &Lease) -> bool {
    let (held, taken) = (held.spec.as_ref().unwrap(), taken.spec.as_ref().unwrap());
    let seconds = held.lease_duration_seconds.unwrap();
    let run_out = held.renew_time.as_ref().unwrap().0 + SignedDuration::from_secs(seconds.into());
    taken.acquire_time.as_ref().unwrap().0 < run_out
}

#[tokio::test]
async fn a_replica_that_stops_hands_over_at_once() {
    let cluster = Cluster::new("graceful", Plane::Fleet).await;
    let mut first = replica(&cluster, "first");
    leads(&cluster, "first").await;
    let _second = replica(&cluster, "second");
    let _agent = cluster.agent("graceful-1", &machine()).await;
    cluster.make_vfs("graceful-1", PF, 2).await;

    let held: Lease = cluster.api().get("vfleet-operator").await.unwrap();
    first.signal("TERM");
    assert!(first.wait().success());
    let taken = leads(&cluster, "second").await;
    assert!(taken_before_it_ran_out(&held, &taken), "{held:?} {taken:?}");
    cluster.make_vfs("graceful-1", PF, 3).await;
}

/// How often it went from hand to hand is a number that anybody can write.
#[tokio::test]
async fn a_lease_that_cannot_count_any_further_is_taken_all_the_same() {
    let cluster = Cluster::new("counted", Plane::Fleet).await;
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": "vfleet-operator" },
        "spec": { "holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": i32::MAX },
    });
    cluster.apply_file(&cluster.file("lease.json", &lease.to_string()));
    let _operator = replica(&cluster, "first");
    let taken = leads(&cluster, "first").await;
    assert_eq!(taken.spec.unwrap().lease_transitions, Some(i32::MAX));
}

#[tokio::test]
async fn a_replica_that_is_killed_is_followed_by_the_other() {
    let cluster = Cluster::new("crash", Plane::Fleet).await;
    let first = replica(&cluster, "first");
    leads(&cluster, "first").await;
    let _second = replica(&cluster, "second");
    let _agent = cluster.agent("crash-1", &machine()).await;
    cluster.make_vfs("crash-1", PF, 2).await;

    let held: Lease = cluster.api().get("vfleet-operator").await.unwrap();
    first.kill();
    let killed = Instant::now();
    let taken = leads(&cluster, "second").await;
    assert!(killed.elapsed() < TAKE_OVER, "{:?}", killed.elapsed());
    assert!(!taken_before_it_ran_out(&held, &taken), "it might still have led: {held:?} {taken:?}");
    cluster.make_vfs("crash-1", PF, 3).await;
}

#[tokio::test]
async fn a_drain_under_way_is_finished_by_the_other() {
    let cluster = Cluster::new("heir", Plane::Fleet).await;
    let first = replica(&cluster, "first");
    leads(&cluster, "first").await;
    let _second = replica(&cluster, "second");
    let nodes = ["heir-1", "heir-2"];
    cluster.workers(&nodes).await;
    cluster.pool("p", &nodes, json!({ "drainConfig": { "maxParallelNodeConfiguration": 1 } })).await;
    cluster.stubborn_pod("web", "heir-1").await;
    let log = BusyLog::begin(&cluster);
    cluster.ask("heir-1", "Partial").await;
    cluster.expect_blocked("heir-1", "EvictionRefused").await;
    cluster.ask("heir-2", "Partial").await;
    let mark_before = cluster.nodes().get("heir-1").await.unwrap().metadata.annotations;
    first.kill();
    let killed = Instant::now();
    cluster.kubectl(&["delete", "pdb", "web-budget"]);
    cluster.expect_drain("heir-1", DrainingComplete).await;
    assert!(killed.elapsed() < TAKE_OVER, "{:?}", killed.elapsed());
    leads(&cluster, "second").await;
    assert!(!cluster.has_pod("web").await);
    let mark_after = cluster.nodes().get("heir-1").await.unwrap().metadata.annotations;
    assert_eq!(mark_after, mark_before, "it is the same drain");
    assert_eq!(cluster.slots("p").await, ["heir-1"]);
    cluster.be_idle("heir-1").await;
    cluster.expect_at_rest("heir-1").await;
    cluster.expect_drain("heir-2", DrainingComplete).await;
    assert_eq!(log.most_at_once(&nodes.map(str::to_owned)), 1);
}

#[tokio::test]
async fn the_same_replica_comes_back_at_once() {
    let cluster = Cluster::new("same", Plane::Fleet).await;
    let first = replica(&cluster, "first");
    leads(&cluster, "first").await;
    let before: Lease = cluster.api().get("vfleet-operator").await.unwrap();
    let _second = replica(&cluster, "second");
    first.kill();
    let _again = replica(&cluster, "first");
    let acquired = |lease: &Lease| lease.spec.clone().unwrap_or_default().acquire_time;
    let taken = |lease: &Lease| acquired(lease) != acquired(&before);
    let lease: Lease = cluster.wait_for("vfleet-operator", "taken again", taken).await;
    assert_eq!(lease.spec.as_ref().unwrap().holder_identity.as_deref(), Some("first"));
    assert!(taken_before_it_ran_out(&before, &lease), "{before:?} {lease:?}");
}

#[tokio::test]
async fn two_processes_with_one_name_do_not_both_lead() {
    let cluster = Cluster::new("namesakes", Plane::Fleet).await;
    let mut first = replica(&cluster, "namesake");
    leads(&cluster, "namesake").await;
    let _second = replica(&cluster, "namesake");
    let ended = tokio::task::spawn_blocking(move || first.wait()).await.unwrap();
    assert!(!ended.success());
    assert!(cluster.log().contains("POD_NAME"), "it says what to do:\n{}", cluster.log());
}

#[tokio::test]
async fn a_leader_that_was_asleep_does_no_harm_when_it_wakes() {
    let cluster = Cluster::new("asleep", Plane::Fleet).await;
    let first = replica(&cluster, "first");
    leads(&cluster, "first").await;
    let _second = replica(&cluster, "second");
    let _agent = cluster.agent("asleep-1", &machine()).await;
    cluster.make_vfs("asleep-1", PF, 2).await;

    first.signal("STOP");
    leads(&cluster, "second").await;
    cluster.make_vfs("asleep-1", PF, 5).await;
    let generation = |state: &vfleet_tests::cluster::State| state.generation();
    let before = cluster.wait("asleep-1", "settled", vfleet_tests::cluster::State::is_synced).await;
    first.signal("CONT");
    // It wakes with everything that happened in its sockets, tries to renew, and finds out.
    let said = |text: &str| cluster.log().contains(text);
    let woke = Instant::now();
    while !said("this replica leads no more") {
        assert!(woke.elapsed() < Duration::from_mins(1), "it never found out:\n{}", cluster.log());
        // The log is a file: nothing announces its next line but time. The API server is asked instead.
        leads(&cluster, "second").await;
    }
    let after = cluster.wait("asleep-1", "settled", vfleet_tests::cluster::State::is_synced).await;
    assert_eq!(generation(&before), generation(&after), "the sleeper wrote an old spec");
    assert_eq!(after.vfs(PF).len(), 5);
    leads(&cluster, "second").await;
}

/// One request over plain HTTP; gives the whole answer.
fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Where the operator says that it serves this.
fn served(cluster: &Cluster, what: &str) -> String {
    let log = cluster.log();
    let line =
        log.lines().find(|line| line.contains("serving") && line.contains(&format!("what=\"{what}\"")));
    let line = line.unwrap_or_else(|| panic!("{what} is not served:\n{log}"));
    line.split_whitespace().find_map(|word| word.strip_prefix("address=")).unwrap().to_owned()
}

#[tokio::test]
async fn metrics_and_probes_are_served() {
    let cluster = Cluster::new("served", Plane::Fleet).await;
    let _operator = cluster.operator_serving("127.0.0.1:0", &[]);
    let _agent = cluster.agent("served-1", &machine()).await;
    cluster.make_vfs("served-1", PF, 2).await;
    // What the operator says there, it has seen.
    cluster.kubectl(&["wait", "--for=condition=Ready", "--timeout=120s", "sriovnetworknodepolicy/p"]);
    let probes = served(&cluster, "probes");
    assert!(get(&probes, "/healthz").starts_with("HTTP/1.1 200"));
    assert!(get(&probes, "/readyz").starts_with("HTTP/1.1 200"));
    let metrics = get(&served(&cluster, "metrics"), "/metrics");
    for line in [
        "vfleet_leader 1",
        "vfleet_reconciles_total{controller=\"node-states\",result=\"success\"}",
        "vfleet_queue_depth{controller=\"node-states\"}",
        "vfleet_nodes{sync_status=\"Succeeded\"} 1\n",
        "vfleet_nodes_draining{drain_status=\"Idle\"}",
        "vfleet_plan_duration_seconds_bucket",
    ] {
        assert!(metrics.contains(line), "{line} is missing in:\n{metrics}");
    }
}
