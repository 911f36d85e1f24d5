//! Changes by administrators and other controllers during a drain, with a real API server. The tests act as agents.

use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use vfleet_api::SriovNetworkPoolConfig;
use vfleet_api::node_state::DrainStatus::{DrainRequired, Draining, DrainingComplete};
use vfleet_tests::cluster::{Cluster, Program};
use vfleet_tests::drain::log::DrainLog;
use vfleet_tests::drain::{cordon_mark, is_cordoned};
use vfleet_tests::plane::Plane;

fn limit(most: u32) -> Value {
    json!({ "drainConfig": { "maxParallelNodeConfiguration": most } })
}

fn owned<const N: usize>(nodes: [&str; N]) -> [String; N] {
    nodes.map(str::to_owned)
}

/// Uncordons a node like `kubectl uncordon`.
async fn uncordon(cluster: &Cluster, node: &str) {
    let patch = Patch::Merge(json!({ "spec": { "unschedulable": null } }));
    let node = cluster.nodes().patch(node, &PatchParams::default(), &patch).await.unwrap();
    assert!(!is_cordoned(&node));
}

#[tokio::test]
async fn a_drained_node_that_an_administrator_uncordons_is_cordoned_again() {
    let cluster = Cluster::new("early", Plane::Drains).await;
    let _operator = cluster.start_operator();
    let nodes = ["early-1", "early-2"];
    cluster.create_workers(&nodes).await;
    cluster.create_pool("p", &nodes, limit(2)).await;
    cluster.kubectl(&["cordon", "early-2"]);
    for (node, origin) in [("early-1", "ours"), ("early-2", "found")] {
        cluster.request_drain(node, "Partial").await;
        cluster.expect_drain(node, DrainingComplete).await;
        assert_eq!(cordon_mark(&cluster.nodes().get(node).await.unwrap()), Some(origin));
        uncordon(&cluster, node).await;
        let again = cluster.expect_node(node, "cordoned again", is_cordoned).await;
        assert_eq!(cordon_mark(&again), Some("ours"), "the preexisting cordon was removed");
        assert_eq!(cluster.drain_status(node).await, DrainingComplete);
        cluster.set_idle(node).await;
        cluster.expect_uncordoned(node).await;
    }
}

/// Node that is deleted and registered again during or after its eviction, while another node waits for the only slot.
struct RecreatedNode {
    cluster: Cluster,
    operator: Program,
    log: DrainLog,
    node: &'static str,
    other: &'static str,
}

impl RecreatedNode {
    async fn new(node: &'static str, other: &'static str) -> Self {
        let cluster = Cluster::new(node, Plane::Drains).await;
        let operator = cluster.start_operator();
        cluster.create_workers(&[node, other]).await;
        cluster.create_pool("p", &[node, other], limit(1)).await;
        let log = DrainLog::start(&cluster);
        Self { cluster, operator, log, node, other }
    }

    /// Drains the node completely.
    async fn drain(&self) {
        self.cluster.request_drain(self.node, "Partial").await;
        self.cluster.expect_drain(self.node, DrainingComplete).await;
        self.cluster.request_drain(self.other, "Partial").await;
    }

    /// Starts a drain that a pod blocks.
    async fn drain_partly(&self) {
        self.cluster.create_protected_pod("old", self.node).await;
        self.cluster.request_drain(self.node, "Partial").await;
        self.cluster.expect_blocked(self.node, "EvictionRefused").await;
        self.cluster.request_drain(self.other, "Partial").await;
    }

    async fn delete(&self) {
        self.cluster.nodes().delete(self.node, &DeleteParams::default()).await.unwrap();
    }

    /// Deletes the Node and registers it again while the operator is stopped; runs `meanwhile` before it continues.
    async fn recreate_at_once(&self, meanwhile: impl Future<Output = ()>) {
        self.operator.signal("STOP");
        self.delete().await;
        self.cluster.create_worker(self.node).await;
        meanwhile.await;
        self.operator.signal("CONT");
    }

    /// Expects that the new Node is drained.
    async fn expect_drained_again(self, pod: &str) {
        let Self { cluster, log, node, other, operator: _operator } = self;
        let is_marked = |node: &Node| is_cordoned(node) && cordon_mark(node) == Some("ours");
        cluster.expect_node(node, "cordoned and marked", is_marked).await;
        cluster.expect_drain(node, Draining).await;
        cluster.expect_blocked(node, "EvictionRefused").await;
        cluster.kubectl(&["delete", "pdb", &format!("{pod}-budget")]);
        cluster.expect_drain(node, DrainingComplete).await;
        assert!(!cluster.has_pod(pod).await, "the pod is gone first");
        cluster.set_idle(node).await;
        cluster.expect_uncordoned(node).await;
        if cluster.drain_status(other).await != vfleet_api::node_state::DrainStatus::Idle {
            cluster.expect_drain(other, DrainingComplete).await;
            cluster.set_idle(other).await;
        }
        cluster.expect_uncordoned(other).await;
        cluster.expect_slots("p", &[]).await;
        assert_eq!(log.max_busy_nodes(&owned([node, other])), 1);
    }

    /// Deletes the Node and registers it again when the other one has the slot.
    async fn recreate_later(&self, pod: &str) {
        self.delete().await;
        self.cluster.expect_drain(self.node, DrainRequired).await;
        self.cluster.expect_drain(self.other, DrainingComplete).await;
        self.cluster.create_worker(self.node).await;
        if self.cluster.has_pod(pod).await {
            self.cluster.expect_running(pod).await;
        } else {
            self.cluster.create_protected_pod(pod, self.node).await;
        }
        assert_eq!(self.cluster.drain_status(self.node).await, DrainRequired);
        self.cluster.set_idle(self.other).await;
    }
}

#[tokio::test]
async fn a_drained_node_that_is_recreated_at_once_is_drained_again() {
    let scene = RecreatedNode::new("anew-a1", "anew-a2").await;
    scene.drain().await;
    scene.recreate_at_once(scene.cluster.create_protected_pod("new", scene.node)).await;
    scene.expect_drained_again("new").await;
}

#[tokio::test]
async fn a_drained_node_that_is_recreated_later_is_drained_again() {
    let scene = RecreatedNode::new("anew-b1", "anew-b2").await;
    scene.drain().await;
    scene.recreate_later("new").await;
    scene.expect_drained_again("new").await;
}

#[tokio::test]
async fn a_node_that_is_recreated_at_once_during_its_drain_is_drained() {
    let scene = RecreatedNode::new("anew-c1", "anew-c2").await;
    scene.drain_partly().await;
    scene.recreate_at_once(async {}).await;
    scene.expect_drained_again("old").await;
}

#[tokio::test]
async fn a_node_that_is_recreated_later_during_its_drain_is_drained() {
    let scene = RecreatedNode::new("anew-d1", "anew-d2").await;
    scene.drain_partly().await;
    scene.recreate_later("old").await;
    scene.expect_drained_again("old").await;
}

/// Grants slots to three nodes, and lowers the limit to one before any drain starts.
async fn lower_the_limit(name: &str, nodes: [&str; 3], restarts: bool) {
    let cluster = Cluster::new(name, Plane::Drains).await;
    let mut operator = cluster.start_operator();
    cluster.create_workers(&nodes).await;
    cluster.create_pool("p", &nodes, limit(3)).await;
    let log = DrainLog::start(&cluster);
    for node in nodes {
        cluster.refuse_status(node, Draining).await;
        cluster.request_drain(node, "Partial").await;
    }
    cluster.expect_slots("p", &nodes).await;
    if restarts {
        operator.kill();
        cluster.create_pool("p", &nodes, limit(1)).await;
        operator = cluster.start_operator();
    } else {
        cluster.create_pool("p", &nodes, limit(1)).await;
        cluster.expect_slots("p", &nodes[..1]).await;
    }
    for node in nodes {
        cluster.accept_status_again(node, Draining).await;
    }
    let mut left = owned(nodes).to_vec();
    while !left.is_empty() {
        let next = cluster.expect_one_drain(&left, DrainingComplete).await;
        cluster.set_idle(&next).await;
        cluster.expect_uncordoned(&next).await;
        left.retain(|node| *node != next);
    }
    cluster.expect_slots("p", &[]).await;
    assert_eq!(log.max_busy_nodes(&owned(nodes)), 1);
    drop(operator);
}

#[tokio::test]
async fn a_lowered_limit_revokes_slots_of_drains_that_have_not_started() {
    lower_the_limit("lowered", ["lowered-1", "lowered-2", "lowered-3"], false).await;
}

#[tokio::test]
async fn a_lowered_limit_revokes_slots_also_after_a_restart_of_the_operator() {
    lower_the_limit("absent", ["absent-1", "absent-2", "absent-3"], true).await;
}

/// Deletes a pool while two of its nodes are drained. They belong to a pool with limit 1 then.
async fn delete_the_pool(name: &str, nodes: [&'static str; 3], restarts: bool) {
    let cluster = Cluster::new(name, Plane::Drains).await;
    let mut operator = cluster.start_operator();
    let [stuck, drained, waiting] = nodes;
    cluster.create_workers(&nodes).await;
    cluster
        .create_pool("old", &[stuck, drained], {
            let mut spec = limit(2);
            spec["priority"] = json!(1);
            spec
        })
        .await;
    cluster.create_pool("next", &nodes, limit(1)).await;
    cluster.create_protected_pod("web", stuck).await;
    let log = DrainLog::start(&cluster);
    cluster.request_drain(stuck, "Partial").await;
    cluster.request_drain(drained, "Partial").await;
    cluster.expect_blocked(stuck, "EvictionRefused").await;
    cluster.expect_drain(drained, DrainingComplete).await;

    let pools = cluster.api::<SriovNetworkPoolConfig>();
    if restarts {
        operator.kill();
        pools.delete("old", &DeleteParams::default()).await.unwrap();
        cluster.request_drain(waiting, "Partial").await;
        operator = cluster.start_operator();
    } else {
        pools.delete("old", &DeleteParams::default()).await.unwrap();
        cluster.expect_slots("next", &[stuck, drained]).await;
        cluster.request_drain(waiting, "Partial").await;
    }
    // The limit is still reached with one node less.
    cluster.set_idle(drained).await;
    cluster.expect_uncordoned(drained).await;
    cluster.expect_slots("next", &[stuck]).await;
    assert_eq!(cluster.drain_status(waiting).await, DrainRequired);
    cluster.kubectl(&["delete", "pdb", "web-budget"]);
    cluster.expect_drain(stuck, DrainingComplete).await;
    cluster.set_idle(stuck).await;
    cluster.expect_drain(waiting, DrainingComplete).await;
    cluster.set_idle(waiting).await;
    for node in nodes {
        cluster.expect_uncordoned(node).await;
    }
    cluster.expect_slots("next", &[]).await;
    for other in [stuck, drained] {
        assert_eq!(log.max_busy_nodes(&owned([other, waiting])), 1, "{other} and {waiting}");
    }
    drop(operator);
}

#[tokio::test]
async fn nodes_of_a_deleted_pool_count_in_their_next_pool() {
    delete_the_pool("orphans", ["orphans-1", "orphans-2", "orphans-3"], false).await;
}

#[tokio::test]
async fn nodes_of_a_deleted_pool_count_in_their_next_pool_also_after_a_restart() {
    delete_the_pool("unseen", ["unseen-1", "unseen-2", "unseen-3"], true).await;
}
