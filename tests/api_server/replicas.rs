//! Several replicas of the operator, one of which leads: real processes, a real API server and real signals.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::SignedDuration;
use serde_json::json;
use vfleet_api::node_state::DrainStatus::DrainingComplete;
use vfleet_tests::cluster::{Cluster, Program, machine};
use vfleet_tests::drain::log::DrainLog;
use vfleet_tests::plane::Plane;

const PF: &str = "enp1s0";
/// Deadline for another replica to lead after the leader was killed.
const TAKE_OVER: Duration = Duration::from_secs(45);

fn start_replica(cluster: &Cluster, name: &str) -> Program {
    cluster.start_operator_with(&[("POD_NAME", name)])
}

async fn wait_for_leader(cluster: &Cluster, name: &str) -> Lease {
    let matches = |lease: &Lease| {
        let spec = lease.spec.clone().unwrap_or_default();
        spec.holder_identity.as_deref() == Some(name)
    };
    cluster.wait_for("vfleet-operator", &format!("held by {name}"), matches).await
}

/// Returns whether the lease was taken before it expired.
fn was_taken_before_expiry(held: &Lease, taken: &Lease) -> bool {
    let (held, taken) = (held.spec.as_ref().unwrap(), taken.spec.as_ref().unwrap());
    let seconds = held.lease_duration_seconds.unwrap();
    let expiry = held.renew_time.as_ref().unwrap().0 + SignedDuration::from_secs(seconds.into());
    taken.acquire_time.as_ref().unwrap().0 < expiry
}

#[tokio::test]
async fn a_replica_that_stops_hands_over_immediately() {
    let cluster = Cluster::new("graceful", Plane::Fleet).await;
    let mut first = start_replica(&cluster, "first");
    wait_for_leader(&cluster, "first").await;
    let _second = start_replica(&cluster, "second");
    let _agent = cluster.start_agent("graceful-1", &machine()).await;
    cluster.create_vfs("graceful-1", PF, 2).await;

    let held: Lease = cluster.api().get("vfleet-operator").await.unwrap();
    first.signal("TERM");
    assert!(first.wait().success());
    let taken = wait_for_leader(&cluster, "second").await;
    assert!(was_taken_before_expiry(&held, &taken), "{held:?} {taken:?}");
    cluster.create_vfs("graceful-1", PF, 3).await;
}

/// Any user with access can write the number of transitions.
#[tokio::test]
async fn a_lease_with_the_maximum_number_of_transitions_can_be_taken() {
    let cluster = Cluster::new("counted", Plane::Fleet).await;
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": "vfleet-operator" },
        "spec": { "holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": i32::MAX },
    });
    cluster.apply_file(&cluster.write_file("lease.json", &lease.to_string()));
    let _operator = start_replica(&cluster, "first");
    let taken = wait_for_leader(&cluster, "first").await;
    assert_eq!(taken.spec.unwrap().lease_transitions, Some(i32::MAX));
}

#[tokio::test]
async fn another_replica_leads_after_the_leader_is_killed() {
    let cluster = Cluster::new("crash", Plane::Fleet).await;
    let first = start_replica(&cluster, "first");
    wait_for_leader(&cluster, "first").await;
    let _second = start_replica(&cluster, "second");
    let _agent = cluster.start_agent("crash-1", &machine()).await;
    cluster.create_vfs("crash-1", PF, 2).await;

    let held: Lease = cluster.api().get("vfleet-operator").await.unwrap();
    first.kill();
    let killed = Instant::now();
    let taken = wait_for_leader(&cluster, "second").await;
    assert!(killed.elapsed() < TAKE_OVER, "{:?}", killed.elapsed());
    assert!(!was_taken_before_expiry(&held, &taken), "the lease was taken too early: {held:?} {taken:?}");
    cluster.create_vfs("crash-1", PF, 3).await;
}

#[tokio::test]
async fn a_running_drain_is_completed_by_the_next_leader() {
    let cluster = Cluster::new("heir", Plane::Fleet).await;
    let first = start_replica(&cluster, "first");
    wait_for_leader(&cluster, "first").await;
    let _second = start_replica(&cluster, "second");
    let nodes = ["heir-1", "heir-2"];
    cluster.create_workers(&nodes).await;
    cluster.create_pool("p", &nodes, json!({ "drainConfig": { "maxParallelNodeConfiguration": 1 } })).await;
    cluster.create_protected_pod("web", "heir-1").await;
    let log = DrainLog::start(&cluster);
    cluster.request_drain("heir-1", "Partial").await;
    cluster.expect_blocked("heir-1", "EvictionRefused").await;
    cluster.request_drain("heir-2", "Partial").await;
    let mark_before = cluster.nodes().get("heir-1").await.unwrap().metadata.annotations;
    first.kill();
    let killed = Instant::now();
    cluster.kubectl(&["delete", "pdb", "web-budget"]);
    cluster.expect_drain("heir-1", DrainingComplete).await;
    assert!(killed.elapsed() < TAKE_OVER, "{:?}", killed.elapsed());
    wait_for_leader(&cluster, "second").await;
    assert!(!cluster.has_pod("web").await);
    let mark_after = cluster.nodes().get("heir-1").await.unwrap().metadata.annotations;
    assert_eq!(mark_after, mark_before, "another drain was started");
    assert_eq!(cluster.slots("p").await, ["heir-1"]);
    cluster.set_idle("heir-1").await;
    cluster.expect_uncordoned("heir-1").await;
    cluster.expect_drain("heir-2", DrainingComplete).await;
    assert_eq!(log.max_busy_nodes(&nodes.map(str::to_owned)), 1);
}

#[tokio::test]
async fn a_restarted_replica_leads_again_immediately() {
    let cluster = Cluster::new("same", Plane::Fleet).await;
    let first = start_replica(&cluster, "first");
    wait_for_leader(&cluster, "first").await;
    let before: Lease = cluster.api().get("vfleet-operator").await.unwrap();
    let _second = start_replica(&cluster, "second");
    first.kill();
    let _again = start_replica(&cluster, "first");
    let acquired = |lease: &Lease| lease.spec.clone().unwrap_or_default().acquire_time;
    let is_taken_again = |lease: &Lease| acquired(lease) != acquired(&before);
    let lease: Lease = cluster.wait_for("vfleet-operator", "taken again", is_taken_again).await;
    assert_eq!(lease.spec.as_ref().unwrap().holder_identity.as_deref(), Some("first"));
    assert!(was_taken_before_expiry(&before, &lease), "{before:?} {lease:?}");
}

#[tokio::test]
async fn two_replicas_with_the_same_name_do_not_both_lead() {
    let cluster = Cluster::new("namesakes", Plane::Fleet).await;
    let mut first = start_replica(&cluster, "namesake");
    wait_for_leader(&cluster, "namesake").await;
    let _second = start_replica(&cluster, "namesake");
    let ended = tokio::task::spawn_blocking(move || first.wait()).await.unwrap();
    assert!(!ended.success());
    assert!(cluster.log().contains("POD_NAME"), "the log does not contain the remedy:\n{}", cluster.log());
}

#[tokio::test]
async fn a_leader_that_was_suspended_writes_nothing_when_it_resumes() {
    let cluster = Cluster::new("asleep", Plane::Fleet).await;
    let first = start_replica(&cluster, "first");
    wait_for_leader(&cluster, "first").await;
    let _second = start_replica(&cluster, "second");
    let _agent = cluster.start_agent("asleep-1", &machine()).await;
    cluster.create_vfs("asleep-1", PF, 2).await;

    first.signal("STOP");
    wait_for_leader(&cluster, "second").await;
    cluster.create_vfs("asleep-1", PF, 5).await;
    let generation = |state: &vfleet_tests::cluster::NodeStateView| state.generation();
    let before = cluster.wait("asleep-1", "settled", vfleet_tests::cluster::NodeStateView::is_synced).await;
    first.signal("CONT");
    // The replica resumes with pending events in its sockets, tries to renew the lease, and notices the loss.
    let has_logged = |text: &str| cluster.log().contains(text);
    let resumed = Instant::now();
    while !has_logged("lost leadership") {
        assert!(resumed.elapsed() < Duration::from_mins(1), "the loss was not noticed:\n{}", cluster.log());
        // The log is a file without events: use a request to the API server as delay.
        wait_for_leader(&cluster, "second").await;
    }
    let after = cluster.wait("asleep-1", "settled", vfleet_tests::cluster::NodeStateView::is_synced).await;
    assert_eq!(generation(&before), generation(&after), "the suspended replica wrote an outdated spec");
    assert_eq!(after.vfs(PF).len(), 5);
    wait_for_leader(&cluster, "second").await;
}

/// Sends a request over plain HTTP; returns the whole response.
fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Returns the address of a server of the operator, from the log.
fn find_address(cluster: &Cluster, what: &str) -> String {
    let log = cluster.log();
    let line =
        log.lines().find(|line| line.contains("listening") && line.contains(&format!("server=\"{what}\"")));
    let line = line.unwrap_or_else(|| panic!("no address of {what} in the log:\n{log}"));
    line.split_whitespace().find_map(|word| word.strip_prefix("address=")).unwrap().to_owned()
}

#[tokio::test]
async fn metrics_and_probes_are_served() {
    let cluster = Cluster::new("served", Plane::Fleet).await;
    let _operator = cluster.start_operator_at("127.0.0.1:0", &[]);
    let _agent = cluster.start_agent("served-1", &machine()).await;
    cluster.create_vfs("served-1", PF, 2).await;
    // The operator has handled the node state then.
    cluster.kubectl(&["wait", "--for=condition=Ready", "--timeout=120s", "sriovnetworknodepolicy/p"]);
    let probes = find_address(&cluster, "probes");
    assert!(get(&probes, "/healthz").starts_with("HTTP/1.1 200"));
    assert!(get(&probes, "/readyz").starts_with("HTTP/1.1 200"));
    let metrics = get(&find_address(&cluster, "metrics"), "/metrics");
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
