//! Drains on OpenShift: machine config pools are paused around them. The tests play the agents, and the machine config
//! operator with its real definitions.

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
use vfleet_tests::drain::{RESOURCE, is_cordoned, mark, status_of};
use vfleet_tests::openshift::pause_of;
use vfleet_tests::plane::Plane;

use crate::ALONE;

const OWN: [(&str, &str); 1] = [("POD_NAME", "one")];

/// A cluster with one machine config pool, and the operator.
struct Scene {
    cluster: Cluster,
    mcp: &'static str,
    operator: Option<Program>,
    _alone: MutexGuard<'static, ()>,
}

impl Scene {
    /// `nodes` belong to the machine config pool `name`; so many of them may be drained at once.
    async fn set(name: &'static str, nodes: &[&str], most: u32) -> Self {
        let scene = Self::before_the_operator(name, nodes, most).await;
        scene.cluster.control_plane_is("HighlyAvailable").await;
        scene.with_operator()
    }

    async fn before_the_operator(name: &'static str, nodes: &[&str], most: u32) -> Self {
        let alone = ALONE.lock().await;
        let cluster = Cluster::new(name, Plane::OpenShift).await;
        cluster.become_openshift();
        for node in nodes {
            cluster.create_worker(node).await;
        }
        cluster.make_machine_config_pool(name, nodes).await;
        cluster.pool("p", nodes, limit(most)).await;
        Self { cluster, mcp: name, operator: None, _alone: alone }
    }

    fn with_operator(mut self) -> Self {
        self.start();
        self
    }

    fn start(&mut self) {
        self.operator = Some(self.cluster.operator_with(&OWN));
    }

    fn kill(&mut self) {
        self.operator.take().unwrap().kill();
    }

    /// All that happens from now on.
    fn history(&self) -> History {
        let leaves = |pod: &Pod| pod.metadata.deletion_timestamp.is_some();
        History::default()
            .follow("state", self.cluster.states(), |state| status_of(state).as_str().to_owned())
            .follow("node", self.cluster.nodes(), |node| {
                if is_cordoned(node) { "cordoned" } else { "free" }.to_owned()
            })
            .follow("mcp", self.cluster.machine_config_pools(), pause_of)
            .follow("pod", self.cluster.api::<Pod>(), move |pod| {
                if leaves(pod) { "leaves" } else { "there" }.to_owned()
            })
    }

    async fn pause(&self) -> String {
        pause_of(&self.cluster.machine_config_pools().get(self.mcp).await.unwrap())
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
    let scene = Scene::set("order", &["order-1"], 1).await;
    let cluster = &scene.cluster;
    scene.wait_for_states(&["order-1"]).await;
    cluster.pod("web", "order-1", json!({}), Some(RESOURCE)).await;
    cluster.expect_running("web").await;
    let history = scene.history();
    let starts = ["node order-1", "mcp order", "pod web", "state order-1"];
    history
        .until("all in view", |lines| starts.iter().all(|it| lines.iter().any(|(object, _)| object == it)))
        .await;

    cluster.ask("order-1", "Partial").await;
    cluster.expect_drain("order-1", DrainingComplete).await;
    assert_eq!(scene.pause().await, "paused Paused");
    cluster.be_idle("order-1").await;
    cluster.expect_at_rest("order-1").await;
    let is_over = |lines: &[(String, String)]| {
        ["mcp order goes on Idle", "node order-1 free"].iter().all(|wanted| {
            let line = |(object, text): &(String, String)| format!("{object} {text}") == *wanted;
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
            "pod web: leaves",
            "state order-1: Draining_Complete",
            "state order-1: Idle",
            "node order-1: free",
            "mcp order: goes on Idle",
        ]
    );
}

/// Whether we have let the machine config pool go on. Those of other tests are in view, too.
fn goes_on(lines: &[(String, String)], mcp: &str) -> bool {
    lines.iter().any(|(object, text)| object == mcp && text == "goes on Idle")
}

#[tokio::test]
async fn the_last_of_its_nodes_lets_it_go_on() {
    let nodes = ["last-1", "last-2", "last-3"];
    let scene = Scene::set("last", &nodes, 2).await;
    let cluster = &scene.cluster;
    scene.wait_for_states(&nodes).await;
    let history = scene.history();
    history.until("it in view", |lines| lines.iter().any(|(object, _)| object == "mcp last")).await;
    for node in ["last-1", "last-2"] {
        cluster.ask(node, "Partial").await;
        cluster.expect_drain(node, DrainingComplete).await;
    }
    // The third is drained in the place of the first.
    cluster.ask("last-3", "Partial").await;
    cluster.be_idle("last-1").await;
    cluster.expect_at_rest("last-1").await;
    cluster.expect_drain("last-3", DrainingComplete).await;
    cluster.be_idle("last-2").await;
    cluster.expect_at_rest("last-2").await;
    assert_eq!(scene.pause().await, "paused Paused");
    cluster.be_idle("last-3").await;
    cluster.wait_for_pause("last", false).await;
    cluster.expect_at_rest("last-3").await;
    history.until("an end", |lines| goes_on(lines, "mcp last")).await;
    assert_eq!(history.of("mcp last"), ["goes on", "paused Paused", "goes on Idle"]);
}

#[tokio::test]
async fn a_new_config_goes_first_and_the_slot_is_held() {
    let nodes = ["rolls-1", "rolls-2"];
    let scene = Scene::set("rolls", &nodes, 1).await;
    let cluster = &scene.cluster;
    scene.wait_for_states(&nodes).await;
    cluster.begin_rollout("rolls", 2).await;
    cluster.ask("rolls-1", "Partial").await;
    let message = cluster.expect_blocked("rolls-1", "MachineConfigPoolUpdates").await;
    assert!(message.contains("MachineConfigPool rolls"), "{message}");
    cluster.expect_event("rolls-1", "Warning", "MachineConfigPoolUpdates").await;
    assert_eq!(cluster.drain_status("rolls-1").await, DrainingMcpPausing);
    cluster.ask("rolls-2", "Partial").await;
    assert_eq!(cluster.slots("p").await, ["rolls-1"]);
    assert_eq!(scene.pause().await, "goes on");
    assert!(!is_cordoned(&cluster.nodes().get("rolls-1").await.unwrap()));

    cluster.finish_rollout("rolls", 2).await;
    cluster.expect_drain("rolls-1", DrainingComplete).await;
    assert_eq!(cluster.drain_status("rolls-2").await, DrainRequired);
    // One that comes now waits for the end of the pause, and ends no drain.
    cluster.begin_rollout("rolls", 3).await;
    cluster.be_idle("rolls-1").await;
    cluster.expect_at_rest("rolls-1").await;
    cluster.finish_rollout("rolls", 3).await;
    cluster.expect_drain("rolls-2", DrainingComplete).await;
    cluster.be_idle("rolls-2").await;
    cluster.wait_for_pause("rolls", false).await;
}

#[tokio::test]
async fn a_withdrawal_undoes_the_pause() {
    let scene = Scene::set("undo", &["undo-1"], 1).await;
    let cluster = &scene.cluster;
    scene.wait_for_states(&["undo-1"]).await;
    // While another is at work: nothing was paused yet.
    cluster.begin_rollout("undo", 2).await;
    cluster.ask("undo-1", "Partial").await;
    cluster.expect_blocked("undo-1", "MachineConfigPoolUpdates").await;
    cluster.be_idle("undo-1").await;
    slot_is_free(cluster).await;
    assert_eq!(scene.pause().await, "goes on");
    cluster.finish_rollout("undo", 2).await;

    // While it is paused, but the node state does not say so; while it does; while pods are evicted.
    for (held, next) in [(DrainingMcpPausing, DrainingMcpPaused), (DrainingMcpPaused, Draining)] {
        cluster.refuse_status("undo-1", next).await;
        cluster.ask("undo-1", "Partial").await;
        cluster.expect_drain("undo-1", held).await;
        cluster.wait_for_pause("undo", true).await;
        cluster.be_idle("undo-1").await;
        cluster.wait_for_pause("undo", false).await;
        slot_is_free(cluster).await;
        cluster.refuse_no_more("undo-1", next).await;
    }
    cluster.stubborn_pod("web", "undo-1").await;
    cluster.ask("undo-1", "Partial").await;
    cluster.expect_blocked("undo-1", "EvictionRefused").await;
    assert_eq!(scene.pause().await, "paused Paused");
    cluster.be_idle("undo-1").await;
    cluster.wait_for_pause("undo", false).await;
    cluster.expect_at_rest("undo-1").await;
    assert!(cluster.has_pod("web").await);
}

async fn slot_is_free(cluster: &Cluster) {
    let is_free = |pool: &vfleet_api::SriovNetworkPoolConfig| {
        pool.status.as_ref().and_then(|status| status.slots.as_ref()).is_none_or(Vec::is_empty)
    };
    cluster.wait_for("p", "no slot is held", is_free).await;
}

#[tokio::test]
async fn an_administrators_pause_stays() {
    let scene = Scene::set("kept", &["kept-1"], 1).await;
    let cluster = &scene.cluster;
    scene.wait_for_states(&["kept-1"]).await;
    let history = scene.history();
    history.until("it in view", |lines| lines.iter().any(|(object, _)| object == "mcp kept")).await;
    cluster.administrator_pauses("kept", true).await;
    // With a config that waits for the end of it, too.
    cluster.begin_rollout("kept", 2).await;
    cluster.ask("kept-1", "Partial").await;
    cluster.expect_drain("kept-1", DrainingComplete).await;
    cluster.be_idle("kept-1").await;
    cluster.expect_at_rest("kept-1").await;
    slot_is_free(cluster).await;
    // The next request is served with the pool as it was found.
    cluster.ask("kept-1", "Partial").await;
    cluster.expect_drain("kept-1", DrainingComplete).await;
    cluster.administrator_pauses("kept", false).await;
    cluster.be_idle("kept-1").await;
    cluster.expect_at_rest("kept-1").await;
    history
        .until("both changes", |lines| {
            lines.iter().filter(|(object, text)| object == "mcp kept" && text == "goes on").count() == 2
        })
        .await;
    assert_eq!(history.of("mcp kept"), ["goes on", "paused", "goes on"], "nobody else wrote it");
}

#[tokio::test]
async fn a_pause_that_somebody_ends_is_made_again_before_the_drain() {
    let scene = Scene::set("ended", &["ended-1"], 1).await;
    let cluster = &scene.cluster;
    scene.wait_for_states(&["ended-1"]).await;
    cluster.refuse_status("ended-1", Draining).await;
    cluster.ask("ended-1", "Partial").await;
    cluster.expect_drain("ended-1", DrainingMcpPaused).await;
    cluster.administrator_pauses("ended", false).await;
    cluster.wait_for_pause("ended", true).await;
    cluster.refuse_no_more("ended-1", Draining).await;
    cluster.expect_drain("ended-1", DrainingComplete).await;
    assert_eq!(scene.pause().await, "paused Paused");
    cluster.be_idle("ended-1").await;
    cluster.wait_for_pause("ended", false).await;
}

#[tokio::test]
async fn an_operator_that_is_killed_between_pause_and_drain_goes_on() {
    let mut scene = Scene::set("killed", &["killed-1"], 1).await;
    scene.wait_for_states(&["killed-1"]).await;
    for (held, next) in [(DrainingMcpPausing, DrainingMcpPaused), (DrainingMcpPaused, Draining)] {
        scene.cluster.refuse_status("killed-1", next).await;
        scene.cluster.ask("killed-1", "Partial").await;
        scene.cluster.wait_for_pause("killed", true).await;
        scene.cluster.expect_drain("killed-1", held).await;
        scene.kill();
        scene.cluster.refuse_no_more("killed-1", next).await;
        assert_eq!(scene.cluster.drain_status("killed-1").await, held);
        scene.start();
        scene.cluster.expect_drain("killed-1", DrainingComplete).await;
        scene.cluster.be_idle("killed-1").await;
        scene.cluster.wait_for_pause("killed", false).await;

        // Withdrawn while nobody was there.
        scene.cluster.refuse_status("killed-1", next).await;
        scene.cluster.ask("killed-1", "Partial").await;
        scene.cluster.wait_for_pause("killed", true).await;
        scene.cluster.expect_drain("killed-1", held).await;
        scene.kill();
        scene.cluster.be_idle("killed-1").await;
        scene.cluster.refuse_no_more("killed-1", next).await;
        scene.start();
        scene.cluster.wait_for_pause("killed", false).await;
        slot_is_free(&scene.cluster).await;
        assert_eq!(scene.cluster.drain_status("killed-1").await, Idle);
    }
}

#[tokio::test]
async fn where_the_control_plane_is_elsewhere_nothing_is_paused() {
    let scene = Scene::before_the_operator("hosted", &["hosted-1"], 1).await;
    scene.cluster.control_plane_is("External").await;
    let scene = scene.with_operator();
    let cluster = &scene.cluster;
    scene.wait_for_states(&["hosted-1"]).await;
    // It would have to wait.
    cluster.begin_rollout("hosted", 2).await;
    let history = scene.history();
    history.until("it in view", |lines| lines.iter().any(|(object, _)| object == "state hosted-1")).await;
    cluster.ask("hosted-1", "Partial").await;
    cluster.expect_drain("hosted-1", DrainingComplete).await;
    cluster.be_idle("hosted-1").await;
    cluster.expect_at_rest("hosted-1").await;
    let lines = history
        .until("an end", |lines| {
            lines.iter().rfind(|(object, _)| object == "state hosted-1").is_some_and(|(_, it)| it == "Idle")
                && lines.len() > 3
        })
        .await;
    let states = of(&lines, "state hosted-1");
    assert_eq!(states, ["Idle", "Drain_Required", "Draining", "Draining_Complete", "Idle"]);
    assert_eq!(scene.pause().await, "goes on");
}

#[tokio::test]
async fn an_operator_that_may_not_see_machine_config_pools_says_so_and_ends_what_it_began() {
    let nodes = ["unseen-1", "unseen-2"];
    let mut scene = Scene::set("unseen", &nodes, 2).await;
    scene.wait_for_states(&nodes).await;
    scene.cluster.ask("unseen-1", "Partial").await;
    scene.cluster.expect_drain("unseen-1", DrainingComplete).await;
    scene.kill();
    scene.cluster.take_right_away("machineconfigpools").await;
    scene.start();
    let cluster = &scene.cluster;
    cluster.ask("unseen-2", "Partial").await;
    let message = cluster.expect_blocked("unseen-2", "MachineConfigPoolUnknown").await;
    assert!(message.contains("forbidden") && message.contains("deploy/rbac.yaml"), "{message}");
    assert_eq!(cluster.drain_status("unseen-2").await, DrainingMcpPausing);
    cluster.be_idle("unseen-1").await;
    cluster.expect_at_rest("unseen-1").await;

    cluster.install().unwrap();
    cluster.expect_drain("unseen-2", DrainingComplete).await;
    cluster.be_idle("unseen-2").await;
    cluster.expect_at_rest("unseen-2").await;
    cluster.wait_for_pause("unseen", false).await;
}

/// What old versions of the Go operator leave when they are replaced in the middle of a drain.
#[tokio::test]
async fn a_pause_of_the_go_operator_becomes_ours() {
    let scene = Scene::before_the_operator("taken", &["taken-1"], 1).await;
    scene.cluster.control_plane_is("HighlyAvailable").await;
    let state = "sriovnetwork.openshift.io/state";
    let pause = json!({ "metadata": { "annotations": { state: "Paused" } }, "spec": { "paused": true } });
    let params = PatchParams::default();
    let pools = scene.cluster.machine_config_pools();
    pools.patch("taken", &params, &Patch::Merge(pause)).await.unwrap();
    let drained = json!({
        "metadata": { "annotations": { state: "Draining_MCP_Paused" } }, "spec": { "unschedulable": true },
    });
    scene.cluster.nodes().patch("taken-1", &params, &Patch::Merge(drained)).await.unwrap();
    scene.cluster.pod("web", "taken-1", json!({}), Some(RESOURCE)).await;
    scene.cluster.expect_running("web").await;
    let history = scene.history();
    history.until("it in view", |lines| lines.iter().any(|(object, _)| object == "mcp taken")).await;

    let scene = scene.with_operator();
    let cluster = &scene.cluster;
    cluster.expect_drain("taken-1", DrainingComplete).await;
    assert!(!cluster.has_pod("web").await);
    let moved = |node: &Node| {
        mark(node) == Some("ours")
            && !node.metadata.annotations.clone().unwrap_or_default().contains_key(state)
    };
    cluster.expect_node("taken-1", "moved", moved).await;
    assert_eq!(scene.pause().await, "paused Paused");
    cluster.be_idle("taken-1").await;
    cluster.expect_at_rest("taken-1").await;
    cluster.wait_for_pause("taken", false).await;
    history.until("an end", |lines| goes_on(lines, "mcp taken")).await;
    assert_eq!(
        history.of("mcp taken"),
        ["paused Paused", "goes on Idle"],
        "it was never let go in between: {:?}",
        history.of("state taken-1")
    );
    let states = history.of("state taken-1");
    assert!(states.contains(&"Draining_MCP_Paused".to_owned()), "{states:?}");
}
