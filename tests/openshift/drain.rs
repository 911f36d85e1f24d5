//! Drains on OpenShift with paused machine config pools. The tests act as agents and as machine config operator with
//! its real CRDs.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::sync::MutexGuard;
use vfleet_api::SriovNetworkNodeState;
use vfleet_api::node_state::DrainStatus::{
    DrainRequired, Draining, DrainingComplete, DrainingMcpPaused, DrainingMcpPausing, Idle,
};
use vfleet_tests::cluster::{Cluster, Program};
use vfleet_tests::drain::history::{History, of};
use vfleet_tests::drain::{RESOURCE, cordon_mark, is_cordoned, status_of};
use vfleet_tests::openshift::describe_pause;
use vfleet_tests::plane::Plane;

use crate::ALONE;

const OWN: [(&str, &str); 1] = [("POD_NAME", "one")];

/// Cluster with one machine config pool and the operator.
struct Scene {
    cluster: Cluster,
    mcp: &'static str,
    operator: Option<Program>,
    _alone: MutexGuard<'static, ()>,
}

impl Scene {
    /// Starts with `nodes` in the machine config pool `name`, `most` of which may be drained at once.
    async fn new(name: &'static str, nodes: &[&str], most: u32) -> Self {
        let scene = Self::without_operator(name, nodes, most).await;
        scene.cluster.set_control_plane_topology("HighlyAvailable").await;
        scene.with_operator()
    }

    async fn without_operator(name: &'static str, nodes: &[&str], most: u32) -> Self {
        let alone = ALONE.lock().await;
        let cluster = Cluster::new(name, Plane::OpenShift).await;
        cluster.install_openshift_crds();
        for node in nodes {
            cluster.create_worker(node).await;
        }
        cluster.create_machine_config_pool(name, nodes).await;
        cluster.create_pool("p", nodes, limit(most)).await;
        Self { cluster, mcp: name, operator: None, _alone: alone }
    }

    fn with_operator(mut self) -> Self {
        self.start();
        self
    }

    fn start(&mut self) {
        self.operator = Some(self.cluster.start_operator_with(&OWN));
    }

    fn kill(&mut self) {
        self.operator.take().unwrap().kill();
    }

    /// Records all changes from now on.
    fn history(&self) -> History {
        let is_terminating = |pod: &Pod| pod.metadata.deletion_timestamp.is_some();
        History::default()
            .follow("state", self.cluster.states(), |state| status_of(state).as_str().to_owned())
            .follow("node", self.cluster.nodes(), |node| {
                if is_cordoned(node) { "cordoned" } else { "free" }.to_owned()
            })
            .follow("mcp", self.cluster.machine_config_pools(), describe_pause)
            .follow("pod", self.cluster.api::<Pod>(), move |pod| {
                if is_terminating(pod) { "terminating" } else { "running" }.to_owned()
            })
    }

    async fn pause(&self) -> String {
        describe_pause(&self.cluster.machine_config_pools().get(self.mcp).await.unwrap())
    }

    async fn wait_for_states(&self, nodes: &[&str]) {
        for node in nodes {
            self.cluster.wait_for::<SriovNetworkNodeState>(node, "is there", |_| true).await;
        }
    }
}

fn limit(most: u32) -> Value {
    json!({ "drainConfig": { "maxParallelNodeConfiguration": most } })
}

#[tokio::test]
async fn a_machine_config_pool_is_paused_before_anything_else() {
    let scene = Scene::new("order", &["order-1"], 1).await;
    let cluster = &scene.cluster;
    scene.wait_for_states(&["order-1"]).await;
    cluster.create_pod("web", "order-1", json!({}), Some(RESOURCE)).await;
    cluster.expect_running("web").await;
    let history = scene.history();
    let starts = ["node order-1", "mcp order", "pod web", "state order-1"];
    history
        .until("all recorded", |lines| starts.iter().all(|it| lines.iter().any(|(object, _)| object == it)))
        .await;

    cluster.request_drain("order-1", "Partial").await;
    cluster.expect_drain("order-1", DrainingComplete).await;
    assert_eq!(scene.pause().await, "paused Paused");
    cluster.set_idle("order-1").await;
    cluster.expect_uncordoned("order-1").await;
    let is_over = |lines: &[(String, String)]| {
        ["mcp order active Idle", "node order-1 free"].iter().all(|expected| {
            let line = |(object, text): &(String, String)| format!("{object} {text}") == *expected;
            let cordoned = lines.iter().position(|(_, text)| text == "cordoned");
            cordoned.is_some_and(|at| lines[at..].iter().any(line))
        })
    };
    let lines = history.until("an end", is_over).await;
    let mut lines: Vec<_> = lines.iter().map(|(object, text)| format!("{object}: {text}")).collect();
    lines.drain(..lines.iter().position(|line| line == "state order-1: Drain_Required").unwrap());
    assert_eq!(
        lines,
        [
            "state order-1: Drain_Required",
            "state order-1: Draining_MCP_Pausing",
            "mcp order: paused Paused",
            "state order-1: Draining_MCP_Paused",
            "state order-1: Draining",
            "node order-1: cordoned",
            "pod web: terminating",
            "state order-1: Draining_Complete",
            "state order-1: Idle",
            "node order-1: free",
            "mcp order: active Idle",
        ]
    );
}

/// Returns whether the operator has unpaused this machine config pool. Those of other tests are recorded too.
fn is_unpaused(lines: &[(String, String)], mcp: &str) -> bool {
    lines.iter().any(|(object, text)| object == mcp && text == "active Idle")
}

#[tokio::test]
async fn the_last_drained_node_unpauses_the_machine_config_pool() {
    let nodes = ["last-1", "last-2", "last-3"];
    let scene = Scene::new("last", &nodes, 2).await;
    let cluster = &scene.cluster;
    scene.wait_for_states(&nodes).await;
    let history = scene.history();
    history.until("the pool recorded", |lines| lines.iter().any(|(object, _)| object == "mcp last")).await;
    for node in ["last-1", "last-2"] {
        cluster.request_drain(node, "Partial").await;
        cluster.expect_drain(node, DrainingComplete).await;
    }
    // The third node gets the slot of the first.
    cluster.request_drain("last-3", "Partial").await;
    cluster.set_idle("last-1").await;
    cluster.expect_uncordoned("last-1").await;
    cluster.expect_drain("last-3", DrainingComplete).await;
    cluster.set_idle("last-2").await;
    cluster.expect_uncordoned("last-2").await;
    assert_eq!(scene.pause().await, "paused Paused");
    cluster.set_idle("last-3").await;
    cluster.wait_for_pause("last", false).await;
    cluster.expect_uncordoned("last-3").await;
    history.until("an end", |lines| is_unpaused(lines, "mcp last")).await;
    assert_eq!(history.of("mcp last"), ["active", "paused Paused", "active Idle"]);
}

#[tokio::test]
async fn a_drain_waits_for_a_rollout_and_keeps_its_slot() {
    let nodes = ["rolls-1", "rolls-2"];
    let scene = Scene::new("rolls", &nodes, 1).await;
    let cluster = &scene.cluster;
    scene.wait_for_states(&nodes).await;
    cluster.begin_rollout("rolls", 2).await;
    cluster.request_drain("rolls-1", "Partial").await;
    let message = cluster.expect_blocked("rolls-1", "MachineConfigPoolUpdating").await;
    assert!(message.contains("MachineConfigPool rolls"), "{message}");
    cluster.expect_event("rolls-1", "Warning", "MachineConfigPoolUpdating").await;
    assert_eq!(cluster.drain_status("rolls-1").await, DrainingMcpPausing);
    cluster.request_drain("rolls-2", "Partial").await;
    assert_eq!(cluster.slots("p").await, ["rolls-1"]);
    assert_eq!(scene.pause().await, "active");
    assert!(!is_cordoned(&cluster.nodes().get("rolls-1").await.unwrap()));

    cluster.finish_rollout("rolls", 2).await;
    cluster.expect_drain("rolls-1", DrainingComplete).await;
    assert_eq!(cluster.drain_status("rolls-2").await, DrainRequired);
    // A new rollout waits for the end of the pause and does not end the drain.
    cluster.begin_rollout("rolls", 3).await;
    cluster.set_idle("rolls-1").await;
    cluster.expect_uncordoned("rolls-1").await;
    cluster.finish_rollout("rolls", 3).await;
    cluster.expect_drain("rolls-2", DrainingComplete).await;
    cluster.set_idle("rolls-2").await;
    cluster.wait_for_pause("rolls", false).await;
}

#[tokio::test]
async fn a_withdrawal_undoes_the_pause() {
    let scene = Scene::new("undo", &["undo-1"], 1).await;
    let cluster = &scene.cluster;
    scene.wait_for_states(&["undo-1"]).await;
    // During a rollout nothing is paused yet.
    cluster.begin_rollout("undo", 2).await;
    cluster.request_drain("undo-1", "Partial").await;
    cluster.expect_blocked("undo-1", "MachineConfigPoolUpdating").await;
    cluster.set_idle("undo-1").await;
    expect_no_slot(cluster).await;
    assert_eq!(scene.pause().await, "active");
    cluster.finish_rollout("undo", 2).await;

    // Paused before the node state says so, after it does, and while pods are evicted.
    for (held, next) in [(DrainingMcpPausing, DrainingMcpPaused), (DrainingMcpPaused, Draining)] {
        cluster.refuse_status("undo-1", next).await;
        cluster.request_drain("undo-1", "Partial").await;
        cluster.expect_drain("undo-1", held).await;
        cluster.wait_for_pause("undo", true).await;
        cluster.set_idle("undo-1").await;
        cluster.wait_for_pause("undo", false).await;
        expect_no_slot(cluster).await;
        cluster.accept_status_again("undo-1", next).await;
    }
    cluster.create_protected_pod("web", "undo-1").await;
    cluster.request_drain("undo-1", "Partial").await;
    cluster.expect_blocked("undo-1", "EvictionRefused").await;
    assert_eq!(scene.pause().await, "paused Paused");
    cluster.set_idle("undo-1").await;
    cluster.wait_for_pause("undo", false).await;
    cluster.expect_uncordoned("undo-1").await;
    assert!(cluster.has_pod("web").await);
}

async fn expect_no_slot(cluster: &Cluster) {
    let is_free = |pool: &vfleet_api::SriovNetworkPoolConfig| {
        pool.status.as_ref().and_then(|status| status.slots.as_ref()).is_none_or(Vec::is_empty)
    };
    cluster.wait_for("p", "no slot is held", is_free).await;
}

#[tokio::test]
async fn an_administrators_pause_stays() {
    let scene = Scene::new("kept", &["kept-1"], 1).await;
    let cluster = &scene.cluster;
    scene.wait_for_states(&["kept-1"]).await;
    let history = scene.history();
    history.until("the pool recorded", |lines| lines.iter().any(|(object, _)| object == "mcp kept")).await;
    cluster.set_paused_by_administrator("kept", true).await;
    // A rollout also waits for the end of the pause.
    cluster.begin_rollout("kept", 2).await;
    cluster.request_drain("kept-1", "Partial").await;
    cluster.expect_drain("kept-1", DrainingComplete).await;
    cluster.set_idle("kept-1").await;
    cluster.expect_uncordoned("kept-1").await;
    expect_no_slot(cluster).await;
    // The next request is served without changing the pause.
    cluster.request_drain("kept-1", "Partial").await;
    cluster.expect_drain("kept-1", DrainingComplete).await;
    cluster.set_paused_by_administrator("kept", false).await;
    cluster.set_idle("kept-1").await;
    cluster.expect_uncordoned("kept-1").await;
    history
        .until("both changes", |lines| {
            lines.iter().filter(|(object, text)| object == "mcp kept" && text == "active").count() == 2
        })
        .await;
    assert_eq!(history.of("mcp kept"), ["active", "paused", "active"], "the operator did not write it");
}

#[tokio::test]
async fn a_pause_that_an_administrator_ends_is_renewed_before_the_drain() {
    let scene = Scene::new("ended", &["ended-1"], 1).await;
    let cluster = &scene.cluster;
    scene.wait_for_states(&["ended-1"]).await;
    cluster.refuse_status("ended-1", Draining).await;
    cluster.request_drain("ended-1", "Partial").await;
    cluster.expect_drain("ended-1", DrainingMcpPaused).await;
    cluster.set_paused_by_administrator("ended", false).await;
    cluster.wait_for_pause("ended", true).await;
    cluster.accept_status_again("ended-1", Draining).await;
    cluster.expect_drain("ended-1", DrainingComplete).await;
    assert_eq!(scene.pause().await, "paused Paused");
    cluster.set_idle("ended-1").await;
    cluster.wait_for_pause("ended", false).await;
}

#[tokio::test]
async fn a_drain_continues_after_a_kill_between_pause_and_drain() {
    let mut scene = Scene::new("killed", &["killed-1"], 1).await;
    scene.wait_for_states(&["killed-1"]).await;
    for (held, next) in [(DrainingMcpPausing, DrainingMcpPaused), (DrainingMcpPaused, Draining)] {
        scene.cluster.refuse_status("killed-1", next).await;
        scene.cluster.request_drain("killed-1", "Partial").await;
        scene.cluster.wait_for_pause("killed", true).await;
        scene.cluster.expect_drain("killed-1", held).await;
        scene.kill();
        scene.cluster.accept_status_again("killed-1", next).await;
        assert_eq!(scene.cluster.drain_status("killed-1").await, held);
        scene.start();
        scene.cluster.expect_drain("killed-1", DrainingComplete).await;
        scene.cluster.set_idle("killed-1").await;
        scene.cluster.wait_for_pause("killed", false).await;

        // Withdrawn while no operator runs.
        scene.cluster.refuse_status("killed-1", next).await;
        scene.cluster.request_drain("killed-1", "Partial").await;
        scene.cluster.wait_for_pause("killed", true).await;
        scene.cluster.expect_drain("killed-1", held).await;
        scene.kill();
        scene.cluster.set_idle("killed-1").await;
        scene.cluster.accept_status_again("killed-1", next).await;
        scene.start();
        scene.cluster.wait_for_pause("killed", false).await;
        expect_no_slot(&scene.cluster).await;
        assert_eq!(scene.cluster.drain_status("killed-1").await, Idle);
    }
}

#[tokio::test]
async fn with_an_external_control_plane_nothing_is_paused() {
    let scene = Scene::without_operator("hosted", &["hosted-1"], 1).await;
    scene.cluster.set_control_plane_topology("External").await;
    let scene = scene.with_operator();
    let cluster = &scene.cluster;
    scene.wait_for_states(&["hosted-1"]).await;
    // A pause would have to wait for this rollout.
    cluster.begin_rollout("hosted", 2).await;
    let history = scene.history();
    history
        .until("the pool recorded", |lines| lines.iter().any(|(object, _)| object == "state hosted-1"))
        .await;
    cluster.request_drain("hosted-1", "Partial").await;
    cluster.expect_drain("hosted-1", DrainingComplete).await;
    cluster.set_idle("hosted-1").await;
    cluster.expect_uncordoned("hosted-1").await;
    let lines = history
        .until("an end", |lines| {
            lines.iter().rfind(|(object, _)| object == "state hosted-1").is_some_and(|(_, it)| it == "Idle")
                && lines.len() > 3
        })
        .await;
    let states = of(&lines, "state hosted-1");
    assert_eq!(states, ["Idle", "Drain_Required", "Draining", "Draining_Complete", "Idle"]);
    assert_eq!(scene.pause().await, "active");
}

#[tokio::test]
async fn without_access_to_machine_config_pools_only_started_drains_continue() {
    let nodes = ["unseen-1", "unseen-2"];
    let mut scene = Scene::new("unseen", &nodes, 2).await;
    scene.wait_for_states(&nodes).await;
    scene.cluster.request_drain("unseen-1", "Partial").await;
    scene.cluster.expect_drain("unseen-1", DrainingComplete).await;
    scene.kill();
    scene.cluster.revoke_operator_access("machineconfigpools").await;
    scene.start();
    let cluster = &scene.cluster;
    cluster.request_drain("unseen-2", "Partial").await;
    let message = cluster.expect_blocked("unseen-2", "MachineConfigPoolUnknown").await;
    assert!(message.contains("forbidden") && message.contains("deploy/rbac.yaml"), "{message}");
    assert_eq!(cluster.drain_status("unseen-2").await, DrainingMcpPausing);
    cluster.set_idle("unseen-1").await;
    cluster.expect_uncordoned("unseen-1").await;

    cluster.install().unwrap();
    cluster.expect_drain("unseen-2", DrainingComplete).await;
    cluster.set_idle("unseen-2").await;
    cluster.expect_uncordoned("unseen-2").await;
    cluster.wait_for_pause("unseen", false).await;
}

/// State that old versions of the Go operator leave when they are replaced during a drain.
#[tokio::test]
async fn a_pause_of_the_go_operator_becomes_ours() {
    let scene = Scene::without_operator("taken", &["taken-1"], 1).await;
    scene.cluster.set_control_plane_topology("HighlyAvailable").await;
    let state = "sriovnetwork.openshift.io/state";
    let pause = json!({ "metadata": { "annotations": { state: "Paused" } }, "spec": { "paused": true } });
    let params = PatchParams::default();
    let pools = scene.cluster.machine_config_pools();
    pools.patch("taken", &params, &Patch::Merge(pause)).await.unwrap();
    let drained = json!({
        "metadata": { "annotations": { state: "Draining_MCP_Paused" } }, "spec": { "unschedulable": true },
    });
    scene.cluster.nodes().patch("taken-1", &params, &Patch::Merge(drained)).await.unwrap();
    scene.cluster.create_pod("web", "taken-1", json!({}), Some(RESOURCE)).await;
    scene.cluster.expect_running("web").await;
    let history = scene.history();
    history.until("the pool recorded", |lines| lines.iter().any(|(object, _)| object == "mcp taken")).await;

    let scene = scene.with_operator();
    let cluster = &scene.cluster;
    cluster.expect_drain("taken-1", DrainingComplete).await;
    assert!(!cluster.has_pod("web").await);
    let is_migrated = |node: &Node| {
        cordon_mark(node) == Some("ours")
            && !node.metadata.annotations.clone().unwrap_or_default().contains_key(state)
    };
    cluster.expect_node("taken-1", "migrated", is_migrated).await;
    assert_eq!(scene.pause().await, "paused Paused");
    cluster.set_idle("taken-1").await;
    cluster.expect_uncordoned("taken-1").await;
    cluster.wait_for_pause("taken", false).await;
    history.until("an end", |lines| is_unpaused(lines, "mcp taken")).await;
    assert_eq!(
        history.of("mcp taken"),
        ["paused Paused", "active Idle"],
        "the pool was never unpaused in between: {:?}",
        history.of("state taken-1")
    );
    let states = history.of("state taken-1");
    assert!(states.contains(&"Draining_MCP_Paused".to_owned()), "{states:?}");
}
