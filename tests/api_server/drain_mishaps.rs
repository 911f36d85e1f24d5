//! What others do in the middle of a drain, on the real API server. The tests play the agents.

use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use vfleet_api::SriovNetworkPoolConfig;
use vfleet_api::node_state::DrainStatus::{DrainRequired, Draining, DrainingComplete};
use vfleet_tests::cluster::{Cluster, Program};
use vfleet_tests::drain::log::BusyLog;
use vfleet_tests::drain::{is_cordoned, mark};
use vfleet_tests::plane::Plane;

fn limit(most: u32) -> Value {
    json!({ "drainConfig": { "maxParallelNodeConfiguration": most } })
}

fn owned<const N: usize>(nodes: [&str; N]) -> [String; N] {
    nodes.map(str::to_owned)
}

/// As `kubectl uncordon` does it.
async fn uncordon(cluster: &Cluster, node: &str) {
    let patch = Patch::Merge(json!({ "spec": { "unschedulable": null } }));
    let node = cluster.nodes().patch(node, &PatchParams::default(), &patch).await.unwrap();
    assert!(!is_cordoned(&node));
}

#[tokio::test]
async fn somebody_who_uncordons_a_node_that_is_worked_on_does_not_succeed() {
    let cluster = Cluster::new("early", Plane::Drains).await;
    let _operator = cluster.operator();
    let nodes = ["early-1", "early-2"];
    cluster.workers(&nodes).await;
    cluster.pool("p", &nodes, limit(2)).await;
    cluster.kubectl(&["cordon", "early-2"]);
    for (node, whose) in [("early-1", "ours"), ("early-2", "found")] {
        cluster.ask(node, "Partial").await;
        cluster.expect_drain(node, DrainingComplete).await;
        assert_eq!(mark(&cluster.nodes().get(node).await.unwrap()), Some(whose));
        uncordon(&cluster, node).await;
        let again = cluster.expect_node(node, "cordoned again", is_cordoned).await;
        assert_eq!(mark(&again), Some("ours"), "whoever cordoned it took that back");
        assert_eq!(cluster.drain_status(node).await, DrainingComplete);
        cluster.be_idle(node).await;
        cluster.expect_at_rest(node).await;
    }
}

/// A Node is deleted and registered again while it is drained, or was. Another one waits for the only slot.
struct Remade {
    cluster: Cluster,
    operator: Program,
    log: BusyLog,
    node: &'static str,
    other: &'static str,
}

impl Remade {
    async fn set(node: &'static str, other: &'static str) -> Self {
        let cluster = Cluster::new(node, Plane::Drains).await;
        let operator = cluster.operator();
        cluster.workers(&[node, other]).await;
        cluster.pool("p", &[node, other], limit(1)).await;
        let log = BusyLog::begin(&cluster);
        Self { cluster, operator, log, node, other }
    }

    /// Its pods are gone, its agent at work.
    async fn drained(&self) {
        self.cluster.ask(self.node, "Partial").await;
        self.cluster.expect_drain(self.node, DrainingComplete).await;
        self.cluster.ask(self.other, "Partial").await;
    }

    /// One of its pods does not go.
    async fn in_the_middle(&self) {
        self.cluster.stubborn_pod("old", self.node).await;
        self.cluster.ask(self.node, "Partial").await;
        self.cluster.expect_blocked(self.node, "EvictionRefused").await;
        self.cluster.ask(self.other, "Partial").await;
    }

    async fn delete(&self) {
        self.cluster.nodes().delete(self.node, &DeleteParams::default()).await.unwrap();
    }

    /// Deletes it and registers it again so quickly that the operator sees both at once; meanwhile `happens`.
    async fn make_anew_at_once(&self, happens: impl Future<Output = ()>) {
        self.operator.signal("STOP");
        self.delete().await;
        self.cluster.create_worker(self.node).await;
        happens.await;
        self.operator.signal("CONT");
    }

    /// The new Node is drained, whatever was done on the old one.
    async fn expect_drained_anew(self, pod: &str) {
        let Self { cluster, log, node, other, operator: _operator } = self;
        let is_taken = |node: &Node| is_cordoned(node) && mark(node) == Some("ours");
        cluster.expect_node(node, "cordoned, with our mark", is_taken).await;
        cluster.expect_drain(node, Draining).await;
        cluster.expect_blocked(node, "EvictionRefused").await;
        cluster.kubectl(&["delete", "pdb", &format!("{pod}-budget")]);
        cluster.expect_drain(node, DrainingComplete).await;
        assert!(!cluster.has_pod(pod).await, "the pod is gone first");
        cluster.be_idle(node).await;
        cluster.expect_at_rest(node).await;
        if cluster.drain_status(other).await != vfleet_api::node_state::DrainStatus::Idle {
            cluster.expect_drain(other, DrainingComplete).await;
            cluster.be_idle(other).await;
        }
        cluster.expect_at_rest(other).await;
        cluster.expect_slots("p", &[]).await;
        assert_eq!(log.most_at_once(&owned([node, other])), 1);
    }

    /// The Node stays away until the other one has the slot. Then it comes back, and waits for its turn.
    async fn make_anew_later(&self, pod: &str) {
        self.delete().await;
        self.cluster.expect_drain(self.node, DrainRequired).await;
        self.cluster.expect_drain(self.other, DrainingComplete).await;
        self.cluster.create_worker(self.node).await;
        if self.cluster.has_pod(pod).await {
            self.cluster.expect_running(pod).await;
        } else {
            self.cluster.stubborn_pod(pod, self.node).await;
        }
        assert_eq!(self.cluster.drain_status(self.node).await, DrainRequired);
        self.cluster.be_idle(self.other).await;
    }
}

#[tokio::test]
async fn a_node_that_was_drained_and_is_made_anew_at_once_is_drained_again() {
    let scene = Remade::set("anew-a1", "anew-a2").await;
    scene.drained().await;
    scene.make_anew_at_once(scene.cluster.stubborn_pod("new", scene.node)).await;
    scene.expect_drained_anew("new").await;
}

#[tokio::test]
async fn a_node_that_was_drained_and_is_made_anew_later_is_drained_again() {
    let scene = Remade::set("anew-b1", "anew-b2").await;
    scene.drained().await;
    scene.make_anew_later("new").await;
    scene.expect_drained_anew("new").await;
}

#[tokio::test]
async fn a_node_that_is_made_anew_at_once_in_the_middle_of_its_drain_is_drained() {
    let scene = Remade::set("anew-c1", "anew-c2").await;
    scene.in_the_middle().await;
    scene.make_anew_at_once(async {}).await;
    scene.expect_drained_anew("old").await;
}

#[tokio::test]
async fn a_node_that_is_made_anew_later_in_the_middle_of_its_drain_is_drained() {
    let scene = Remade::set("anew-d1", "anew-d2").await;
    scene.in_the_middle().await;
    scene.make_anew_later("old").await;
    scene.expect_drained_anew("old").await;
}

/// Slots for three, none of which is begun with, and then the limit is one.
async fn lower_the_limit(name: &str, nodes: [&str; 3], restarts: bool) {
    let cluster = Cluster::new(name, Plane::Drains).await;
    let mut operator = cluster.operator();
    cluster.workers(&nodes).await;
    cluster.pool("p", &nodes, limit(3)).await;
    let log = BusyLog::begin(&cluster);
    for node in nodes {
        cluster.refuse_status(node, Draining).await;
        cluster.ask(node, "Partial").await;
    }
    cluster.expect_slots("p", &nodes).await;
    if restarts {
        operator.kill();
        cluster.pool("p", &nodes, limit(1)).await;
        operator = cluster.operator();
    } else {
        cluster.pool("p", &nodes, limit(1)).await;
        cluster.expect_slots("p", &nodes[..1]).await;
    }
    for node in nodes {
        cluster.refuse_no_more(node, Draining).await;
    }
    let mut left = owned(nodes).to_vec();
    while !left.is_empty() {
        let next = cluster.expect_one_drain(&left, DrainingComplete).await;
        cluster.be_idle(&next).await;
        cluster.expect_at_rest(&next).await;
        left.retain(|node| *node != next);
    }
    cluster.expect_slots("p", &[]).await;
    assert_eq!(log.most_at_once(&owned(nodes)), 1);
    drop(operator);
}

#[tokio::test]
async fn a_limit_that_is_lowered_counts_for_slots_that_are_given_and_not_begun_with() {
    lower_the_limit("lowered", ["lowered-1", "lowered-2", "lowered-3"], false).await;
}

#[tokio::test]
async fn it_does_also_for_an_operator_that_was_not_there_when_it_was_lowered() {
    lower_the_limit("absent", ["absent-1", "absent-2", "absent-3"], true).await;
}

/// A pool that drains two nodes is deleted, so that they count in one that takes one at a time.
async fn delete_the_pool(name: &str, nodes: [&'static str; 3], restarts: bool) {
    let cluster = Cluster::new(name, Plane::Drains).await;
    let mut operator = cluster.operator();
    let [stuck, drained, waiting] = nodes;
    cluster.workers(&nodes).await;
    cluster
        .pool("old", &[stuck, drained], {
            let mut spec = limit(2);
            spec["priority"] = json!(1);
            spec
        })
        .await;
    cluster.pool("next", &nodes, limit(1)).await;
    cluster.stubborn_pod("web", stuck).await;
    let log = BusyLog::begin(&cluster);
    cluster.ask(stuck, "Partial").await;
    cluster.ask(drained, "Partial").await;
    cluster.expect_blocked(stuck, "EvictionRefused").await;
    cluster.expect_drain(drained, DrainingComplete).await;

    let pools = cluster.api::<SriovNetworkPoolConfig>();
    if restarts {
        operator.kill();
        pools.delete("old", &DeleteParams::default()).await.unwrap();
        cluster.ask(waiting, "Partial").await;
        operator = cluster.operator();
    } else {
        pools.delete("old", &DeleteParams::default()).await.unwrap();
        cluster.expect_slots("next", &[stuck, drained]).await;
        cluster.ask(waiting, "Partial").await;
    }
    // One less is still as many as there may be.
    cluster.be_idle(drained).await;
    cluster.expect_at_rest(drained).await;
    cluster.expect_slots("next", &[stuck]).await;
    assert_eq!(cluster.drain_status(waiting).await, DrainRequired);
    cluster.kubectl(&["delete", "pdb", "web-budget"]);
    cluster.expect_drain(stuck, DrainingComplete).await;
    cluster.be_idle(stuck).await;
    cluster.expect_drain(waiting, DrainingComplete).await;
    cluster.be_idle(waiting).await;
    for node in nodes {
        cluster.expect_at_rest(node).await;
    }
    cluster.expect_slots("next", &[]).await;
    for other in [stuck, drained] {
        assert_eq!(log.most_at_once(&owned([other, waiting])), 1, "{other} and {waiting}");
    }
    drop(operator);
}

#[tokio::test]
async fn nodes_of_a_pool_that_is_deleted_count_in_the_next_one() {
    delete_the_pool("orphans", ["orphans-1", "orphans-2", "orphans-3"], false).await;
}

#[tokio::test]
async fn they_do_also_for_an_operator_that_was_not_there_when_it_was_deleted() {
    delete_the_pool("unseen", ["unseen-1", "unseen-2", "unseen-3"], true).await;
}
