//! Status of policies and pools, with the real operator and agents on a real API server.

use serde_json::{Value, json};
use vfleet_api::{SriovNetworkNodePolicy, SriovNetworkNodeState, SriovNetworkPoolConfig};
use vfleet_tests::cluster::{Cluster, machine};
use vfleet_tests::objects::condition;
use vfleet_tests::plane::Plane;

/// PF with at most seven VFs.
const PF: &str = "enp1s0";

/// Returns the spec of a policy for one node, because all tests share the nodes of a control plane.
fn for_node(node: &str, num_vfs: i64, pf: &str) -> Value {
    json!({
        "resourceName": "nics", "nodeSelector": { "kubernetes.io/hostname": node }, "numVfs": num_vfs,
        "nicSelector": { "pfNames": [pf] },
    })
}

async fn apply_policy(cluster: &Cluster, name: &str, spec: &Value) {
    cluster.apply("SriovNetworkNodePolicy", "sriovnetworknodepolicies", name, spec).await;
}

/// Waits until a condition of the policy has this status and reason; returns its message.
async fn expect_condition(
    cluster: &Cluster,
    policy: &str,
    type_: &str,
    status: &str,
    reason: &str,
) -> String {
    expect_message(cluster, policy, type_, status, reason, "").await
}

/// Same as [`expect_condition`], with `part` in the message, for conditions that had the same reason before.
async fn expect_message(
    cluster: &Cluster,
    policy: &str,
    type_: &str,
    status: &str,
    reason: &str,
    part: &str,
) -> String {
    let matches = |policy: &SriovNetworkNodePolicy| {
        let conditions = policy.status.as_ref().and_then(|status| status.conditions.as_ref());
        let (found_status, found_reason, message) = condition(conditions, type_);
        found_status == status && found_reason == reason && message.contains(part)
    };
    let found: SriovNetworkNodePolicy =
        cluster.wait_for(policy, &format!("{type_} {status} {reason} {part}"), matches).await;
    condition(found.status.unwrap().conditions.as_ref(), type_).2
}

fn counts(policy: &SriovNetworkNodePolicy) -> [Option<i64>; 3] {
    let status = policy.status.clone().unwrap_or_default();
    [status.matched_node_count, status.ready_node_count, status.failed_node_count]
}

#[tokio::test]
async fn a_policy_counts_its_nodes_and_becomes_ready() {
    let cluster = Cluster::new("counts", Plane::Fleet).await;
    let _operator = cluster.start_operator();
    let _agent = cluster.start_agent("counts-1", &machine()).await;
    apply_policy(&cluster, "p", &for_node("counts-1", 3, PF)).await;
    // With kubectl, as users do.
    cluster.kubectl(&["wait", "--for=condition=Ready", "--timeout=120s", "sriovnetworknodepolicy/p"]);
    cluster.kubectl(&["wait", "--for=condition=Ready", "--timeout=120s", "sriovnetworknodestate/counts-1"]);
    let policy: SriovNetworkNodePolicy = cluster.api().get("p").await.unwrap();
    assert_eq!(counts(&policy), [Some(1), Some(1), Some(0)]);
    let row = cluster.kubectl(&["get", "sriovnetworknodepolicies", "--no-headers"]);
    let columns: Vec<_> = row.split_whitespace().collect();
    assert_eq!(columns[..6], ["p", "nics", "3", "1", "1", "0"], "{row}");
    cluster.expect_event("p", "Normal", "Configured").await;
}

#[tokio::test]
async fn invalid_input_is_reported_in_a_condition_of_the_policy() {
    let cluster = Cluster::new("bad-input", Plane::Fleet).await;
    let _operator = cluster.start_operator();
    let _agent = cluster.start_agent("bad-input-1", &machine()).await;
    let policies = [
        ("good", for_node("bad-input-1", 2, "enp2s0")),
        ("enormous", for_node("bad-input-1", 4_000_000, PF)),
        ("nowhere", for_node("no-such-node", 2, PF)),
        ("no-pf", for_node("bad-input-1", 2, "eth99")),
    ];
    for (name, spec) in &policies {
        apply_policy(&cluster, name, spec).await;
    }
    expect_condition(&cluster, "good", "Ready", "True", "Configured").await;
    let text = expect_condition(&cluster, "enormous", "Degraded", "True", "TooManyVfs").await;
    assert!(text.contains("bad-input-1") && text.contains("lower numVfs"), "{text}");
    expect_condition(&cluster, "nowhere", "Ready", "False", "NoMatchingNode").await;
    let text = expect_condition(&cluster, "no-pf", "Degraded", "True", "NoMatchingPf").await;
    assert!(text.contains("eth99") && text.contains(PF), "the PF or the selector is missing: {text}");
    cluster.expect_event("enormous", "Warning", "TooManyVfs").await;
}

#[tokio::test]
async fn a_failure_of_a_node_is_reported_in_its_policy() {
    let cluster = Cluster::new("cannot", Plane::Fleet).await;
    let _operator = cluster.start_operator();
    let _agent = cluster.start_agent("cannot-1", &machine()).await;
    apply_policy(&cluster, "too-many", &for_node("cannot-1", 8, PF)).await;
    let mut other = for_node("cannot-1", 2, "enp2s0");
    other["resourceName"] = json!("others");
    apply_policy(&cluster, "other-card", &other).await;
    let text = expect_condition(&cluster, "too-many", "Degraded", "True", "NodesFailed").await;
    assert!(text.contains("cannot-1") && text.contains("at most 7"), "{text}");
    expect_condition(&cluster, "other-card", "Ready", "True", "Configured").await;
    let has_failed = |policy: &SriovNetworkNodePolicy| counts(policy) == [Some(1), Some(0), Some(1)];
    cluster.wait_for("too-many", "1 matched, 0 configured, 1 failed", has_failed).await;
}

#[tokio::test]
async fn a_conflict_of_policies_is_reported_with_the_winner() {
    let cluster = Cluster::new("fight", Plane::Fleet).await;
    let _operator = cluster.start_operator();
    let _agent = cluster.start_agent("fight-1", &machine()).await;
    for (name, resource) in [("a", "ra"), ("b", "rb")] {
        let mut spec = for_node("fight-1", 4, PF);
        spec["resourceName"] = json!(resource);
        apply_policy(&cluster, name, &spec).await;
    }
    let text = expect_condition(&cluster, "a", "Degraded", "True", "PolicyConflict").await;
    assert!(text.contains("policy b") && text.contains("priorit"), "{text}");
    expect_condition(&cluster, "b", "Ready", "True", "Configured").await;
    // A priority resolves the conflict: the other policy loses intentionally.
    let mut spec = for_node("fight-1", 4, PF);
    spec["resourceName"] = json!("ra");
    spec["priority"] = json!(10);
    apply_policy(&cluster, "a", &spec).await;
    expect_condition(&cluster, "a", "Ready", "True", "Configured").await;
    // The policy was ready before as well.
    expect_message(&cluster, "b", "Ready", "True", "Configured", "policy a").await;
}

#[tokio::test]
async fn a_pool_counts_its_nodes() {
    let cluster = Cluster::new("pools", Plane::Fleet).await;
    let _operator = cluster.start_operator();
    let _agent = cluster.start_agent("pools-1", &machine()).await;
    let selector = json!({ "matchLabels": { "kubernetes.io/hostname": "pools-1" } });
    cluster
        .apply(
            "SriovNetworkPoolConfig",
            "sriovnetworkpoolconfigs",
            "mine",
            &json!({ "nodeSelector": selector }),
        )
        .await;
    let is_done = |pool: &SriovNetworkPoolConfig| {
        let nodes = pool.status.as_ref().and_then(|status| status.nodes.clone()).unwrap_or_default();
        (nodes.total, nodes.done, nodes.waiting) == (Some(1), Some(1), Some(0))
    };
    cluster.wait_for("mine", "one node, done", is_done).await;
    cluster.kubectl(&["wait", "--for=condition=Ready", "--timeout=120s", "sriovnetworkpoolconfig/mine"]);

    let bad = json!({ "nodeSelectorTerms": [{ "matchExpressions": [{ "key": "x", "operator": "Near" }] }] });
    cluster.apply("SriovNetworkPoolConfig", "sriovnetworkpoolconfigs", "bad", &bad).await;
    let is_degraded = |pool: &SriovNetworkPoolConfig| {
        let conditions = pool.status.as_ref().and_then(|status| status.conditions.as_ref());
        condition(conditions, "Degraded").1 == "InvalidSelector"
    };
    cluster.wait_for("bad", "Degraded", is_degraded).await;
}

#[tokio::test]
async fn a_deleted_node_state_is_created_again_without_resetting_the_node() {
    let cluster = Cluster::new("deleted-state", Plane::Fleet).await;
    let _operator = cluster.start_operator();
    let _agent = cluster.start_agent("deleted-state-1", &machine()).await;
    apply_policy(&cluster, "p", &for_node("deleted-state-1", 3, PF)).await;
    let before =
        cluster.wait("deleted-state-1", "3 VFs", |state| state.is_synced() && state.vfs(PF).len() == 3).await;
    let api = cluster.api::<SriovNetworkNodeState>();
    api.delete("deleted-state-1", &kube::api::DeleteParams::default()).await.unwrap();
    let after = cluster
        .wait("deleted-state-1", "3 VFs again", |state| {
            state.uid() != before.uid() && state.is_synced() && state.vfs(PF).len() == 3
        })
        .await;
    assert_eq!(after.vfs(PF), before.vfs(PF), "the VFs changed");
    let log = cluster.log();
    assert_eq!(log.matches("numvfs").count(), 1, "VFs were created or removed again:\n{log}");
}

#[tokio::test]
async fn a_node_that_is_not_a_worker_any_more_keeps_its_node_state_for_some_time() {
    let cluster = Cluster::new("leaves", Plane::Fleet).await;
    let _operator = cluster.start_operator();
    cluster.create_worker("leaves-1").await;
    cluster.wait("leaves-1", "a node state", |_| true).await;
    cluster.kubectl(&["label", "node", "leaves-1", "node-role.kubernetes.io/worker-"]);
    let expires = |state: &SriovNetworkNodeState| {
        let annotations = state.metadata.annotations.clone().unwrap_or_default();
        annotations.contains_key("sriovnetwork.openshift.io/keep-state-until")
    };
    cluster.wait_for("leaves-1", "with an expiry time", expires).await;
    cluster.kubectl(&["label", "node", "leaves-1", "node-role.kubernetes.io/worker="]);
    cluster.wait_for("leaves-1", "without an expiry time", |state| !expires(state)).await;
}
