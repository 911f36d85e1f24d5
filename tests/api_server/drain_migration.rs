//! Drains that did not begin as ours: those of the Go operator, told in annotations, which become ours; and those of an
//! external drainer, which stay its own. What a node is annotated with is there for every operator of the cluster: only
//! one test runs at a time. The tests play agents and drainers.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::sync::Mutex;
use vfleet_api::SriovNetworkNodeState;
use vfleet_api::keys::{
    CURRENT_DRAIN_STATE, DESIRED_DRAIN_STATE, GO_DRAIN_LEASE, NODE_DRAIN_STATE, USE_EXTERNAL_DRAINER,
};
use vfleet_api::node_state::DrainStatus::{DrainingComplete, Idle};
use vfleet_tests::cluster::{Cluster, State, machine};
use vfleet_tests::drain::history::{History, of};
use vfleet_tests::drain::log::BusyLog;
use vfleet_tests::drain::{RESOURCE, is_cordoned, mark, status_of};
use vfleet_tests::plane::Plane;

const OWN: [(&str, &str); 1] = [("POD_NAME", "one")];
const PF: &str = "enp1s0";

static ALONE: Mutex<()> = Mutex::const_new(());

/// A node as the Go operator may leave it. The annotations are set by the test: that operator's own daemon, which asks
/// for drains, needs a machine.
struct Left {
    name: &'static str,
    /// The node's annotation, and the two of the node state; an empty one is not there.
    annotations: [&'static str; 3],
    is_cordoned: bool,
    /// Whether its pods are still there: one with VFs and one without.
    has_pods: bool,
    /// What becomes of its drain status, up to where the agent has something to do.
    becomes: &'static [&'static str],
    /// What is left of the pods then.
    keeps_pods: [bool; 2],
}

const REQUIRED: &[&str] = &["Drain_Required", "Draining", "Draining_Complete"];
const DRAINING: &[&str] = &["Draining", "Draining_Complete"];
const COMPLETE: &[&str] = &["Draining_Complete"];
const NOTHING: &[&str] = &[];

const ALL: [Left; 11] = [
    left("drain-idle", ["Drain_Required", "Drain_Required", "Idle"], false, REQUIRED, [false, true]),
    left("reboot-idle", ["Reboot_Required", "Reboot_Required", "Idle"], false, REQUIRED, [false, false]),
    left("drain-draining", ["Drain_Required", "Drain_Required", "Draining"], true, DRAINING, [false, true]),
    left(
        "reboot-draining",
        ["Reboot_Required", "Reboot_Required", "Draining"],
        true,
        DRAINING,
        [false, false],
    ),
    // The slot was taken, and then the operator ended.
    left("drain-begun", ["Drain_Required", "Drain_Required", "Draining"], false, DRAINING, [false, true]),
    without_pods("drain-complete", ["Drain_Required", "Drain_Required", "DrainComplete"], COMPLETE),
    without_pods("reboot-complete", ["Reboot_Required", "Reboot_Required", "DrainComplete"], COMPLETE),
    // Their agents were done.
    without_pods("done", ["Idle", "Idle", "DrainComplete"], NOTHING),
    without_pods("withdrawn", ["Idle", "Idle", "Draining"], NOTHING),
    // Old versions.
    left("old-draining", ["Draining", "", ""], true, DRAINING, [false, true]),
    left("old-paused", ["Draining_MCP_Paused", "", ""], true, DRAINING, [false, true]),
];

const fn left(
    name: &'static str,
    annotations: [&'static str; 3],
    is_cordoned: bool,
    becomes: &'static [&'static str],
    keeps_pods: [bool; 2],
) -> Left {
    Left { name, annotations, is_cordoned, has_pods: true, becomes, keeps_pods }
}

const fn without_pods(
    name: &'static str,
    annotations: [&'static str; 3],
    becomes: &'static [&'static str],
) -> Left {
    Left { name, annotations, is_cordoned: true, has_pods: false, becomes, keeps_pods: [false, false] }
}

fn annotations(list: &[(&str, &str)]) -> Value {
    list.iter().filter(|(_, value)| !value.is_empty()).map(|(key, value)| (*key, json!(value))).collect()
}

/// A worker and its node state with these annotations.
async fn make_node(cluster: &Cluster, node: &str, on_node: Value, is_cordoned: bool, on_state: Value) {
    cluster.create_worker(node).await;
    let patch = json!({ "metadata": { "annotations": on_node }, "spec": { "unschedulable": is_cordoned } });
    cluster.nodes().patch(node, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    let state = json!({
        "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovNetworkNodeState",
        "metadata": { "name": node, "annotations": on_state }, "spec": {},
    });
    cluster.states().create(&PostParams::default(), &serde_json::from_value(state).unwrap()).await.unwrap();
}

/// Whether nothing of the Go operator's drains is left on an object.
fn is_clean<K: ResourceExt>(object: &K) -> bool {
    [NODE_DRAIN_STATE, DESIRED_DRAIN_STATE, CURRENT_DRAIN_STATE]
        .iter()
        .all(|key| !object.annotations().contains_key(*key))
}

impl Left {
    fn node(&self, cluster: &Cluster) -> String {
        format!("{}-{}", cluster.namespace(), self.name)
    }

    fn pods(&self) -> [String; 2] {
        [format!("{}-vf", self.name), format!("{}-plain", self.name)]
    }

    async fn make(&self, cluster: &Cluster) {
        let [on_node, desired, current] = self.annotations;
        let node = self.node(cluster);
        make_node(
            cluster,
            &node,
            annotations(&[(NODE_DRAIN_STATE, on_node)]),
            self.is_cordoned,
            annotations(&[(DESIRED_DRAIN_STATE, desired), (CURRENT_DRAIN_STATE, current)]),
        )
        .await;
        if self.has_pods {
            let [with_vf, plain] = self.pods();
            cluster.pod(&with_vf, &node, json!({}), Some(RESOURCE)).await;
            cluster.pod(&plain, &node, json!({}), None).await;
            cluster.expect_running(&with_vf).await;
            cluster.expect_running(&plain).await;
        }
    }

    /// Waits until the drain is ours and as far as it gets alone, plays the agent, and waits for the end.
    async fn finish(&self, cluster: &Cluster) {
        let node = self.node(cluster);
        let is_in_flight = !self.becomes.is_empty();
        if is_in_flight {
            cluster.expect_drain(&node, DrainingComplete).await;
            for (pod, is_kept) in self.pods().iter().zip(self.keeps_pods) {
                assert_eq!(cluster.has_pod(pod).await, is_kept, "{pod}");
            }
            let is_ours = |node: &Node| is_clean(node) && is_cordoned(node) && mark(node) == Some("ours");
            cluster.expect_node(&node, "ours", is_ours).await;
            cluster.be_idle(&node).await;
        }
        cluster.expect_at_rest(&node).await;
        cluster.expect_node(&node, "without annotations", is_clean).await;
        let is_idle = |state: &SriovNetworkNodeState| is_clean(state) && status_of(state) == Idle;
        cluster.wait_for(&node, "idle, without annotations", is_idle).await;
    }
}

/// As the Go operator left it, in a pool without a limit.
async fn leave_all(cluster: &Cluster) {
    futures::future::join_all(ALL.iter().map(|left| left.make(cluster))).await;
    let nodes: Vec<_> = ALL.iter().map(|left| left.node(cluster)).collect();
    let nodes: Vec<_> = nodes.iter().map(String::as_str).collect();
    cluster.pool("p", &nodes, json!({ "drainConfig": { "maxParallelNodeConfiguration": 0 } })).await;
}

#[tokio::test]
async fn drains_under_way_become_ours_and_end() {
    let _alone = ALONE.lock().await;
    let cluster = Cluster::new("shift", Plane::DrainMigration).await;
    leave_all(&cluster).await;
    let admins = format!("{}-admins", cluster.namespace());
    let idle = json!({ DESIRED_DRAIN_STATE: "Idle", CURRENT_DRAIN_STATE: "Idle" });
    make_node(&cluster, &admins, json!({ NODE_DRAIN_STATE: "Idle" }), true, idle).await;
    let lease: Lease = serde_json::from_value(json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": GO_DRAIN_LEASE },
        "spec": { "holderIdentity": "somebody" },
    }))
    .unwrap();
    cluster.api::<Lease>().create(&PostParams::default(), &lease).await.unwrap();
    let history =
        History::default().follow("state", cluster.states(), |state| status_of(state).as_str().to_owned());
    let count = ALL.len() + 1;
    history.until("all in view", |lines| lines.len() == count).await;

    let _operator = cluster.operator_with(&OWN);
    futures::future::join_all(ALL.iter().map(|left| left.finish(&cluster))).await;
    for left in &ALL {
        let object = format!("state {}", left.node(&cluster));
        let states =
            ["Idle"].iter().chain(left.becomes).chain(["Idle"].iter().filter(|_| !left.becomes.is_empty()));
        let states: Vec<_> = states.copied().collect();
        let is_over = |lines: &[(String, String)]| of(lines, &object).len() >= states.len();
        history.until("an end", is_over).await;
        assert_eq!(history.of(&object), states, "{object}");
    }
    // What an administrator had cordoned stays so.
    let node = cluster.expect_node(&admins, "without annotations", is_clean).await;
    assert!(is_cordoned(&node) && mark(&node).is_none());
    cluster.wait_for(&admins, "without annotations", is_clean::<SriovNetworkNodeState>).await;
    cluster.kubectl(&["wait", "--for=delete", "--timeout=60s", &format!("lease/{GO_DRAIN_LEASE}")]);
}

#[tokio::test]
async fn an_operator_that_is_killed_again_and_again_ends_the_same() {
    let _alone = ALONE.lock().await;
    let cluster = Cluster::new("mortal", Plane::DrainMigration).await;
    leave_all(&cluster).await;
    let history = History::default()
        .follow("state", cluster.states(), |state| {
            format!("{} {}", status_of(state).as_str(), is_clean(state))
        })
        .follow("node", cluster.nodes(), |node| format!("{} {:?}", is_clean(node), mark(node)));
    let in_view = |lines: &[(String, String)]| lines.len() >= 2 * ALL.len();
    let mut seen = history.until("all in view", in_view).await.len();
    let is_settled = |lines: &[(String, String)]| {
        let waits_for_its_agent = |left: &Left| {
            let said = of(lines, &format!("state {}", left.node(&cluster)));
            left.becomes.is_empty() || said.last().is_some_and(|last| last == "Draining_Complete true")
        };
        ALL.iter().all(waits_for_its_agent)
    };
    // Each dies in the middle of its writes: as soon as so many more were seen.
    let mut deaths = 0;
    for writes in [1, 1, 2, 1, 3, 1, 2, 5, 1, 1] {
        let operator = cluster.operator_with(&OWN);
        let has_written = |lines: &[(String, String)]| lines.len() >= seen + writes || is_settled(lines);
        let lines = history.until("something new", has_written).await;
        operator.kill();
        if is_settled(&lines) {
            break;
        }
        deaths += 1;
        seen = history.until("what it has done", |_| true).await.len();
    }
    assert!(deaths > 2, "only {deaths} died with the work half done");
    let _operator = cluster.operator_with(&OWN);
    futures::future::join_all(ALL.iter().map(|left| left.finish(&cluster))).await;
}

#[tokio::test]
async fn a_value_that_means_nothing_stays_and_is_in_nobodys_way() {
    let _alone = ALONE.lock().await;
    let cluster = Cluster::new("odd", Plane::DrainMigration).await;
    make_node(&cluster, "odd-1", json!({ NODE_DRAIN_STATE: "Sleeping" }), false, json!({})).await;
    make_node(&cluster, "odd-2", json!({}), false, json!({ CURRENT_DRAIN_STATE: "Sleeping" })).await;
    cluster.pool("p", &["odd-1", "odd-2"], json!({ "maxUnavailable": 2 })).await;
    cluster.pod("web", "odd-1", json!({}), Some(RESOURCE)).await;
    cluster.expect_running("web").await;
    let _operator = cluster.operator_with(&OWN);
    for node in ["odd-1", "odd-2"] {
        cluster.expect_event(node, "Warning", "UnknownDrainState").await;
        cluster.ask(node, "Partial").await;
        cluster.expect_drain(node, DrainingComplete).await;
        assert!(!cluster.has_pod("web").await);
        cluster.be_idle(node).await;
        cluster.expect_at_rest(node).await;
    }
    let node = cluster.nodes().get("odd-1").await.unwrap();
    assert_eq!(node.annotations()[NODE_DRAIN_STATE], "Sleeping");
    assert_eq!(cluster.states().get("odd-2").await.unwrap().annotations()[CURRENT_DRAIN_STATE], "Sleeping");
    // Whoever knows better says so.
    cluster.kubectl(&["annotate", "node", "odd-1", "--overwrite", &format!("{NODE_DRAIN_STATE}=Idle")]);
    cluster.expect_node("odd-1", "without annotations", is_clean).await;
}

#[tokio::test]
async fn what_an_external_drainer_does_is_not_moved() {
    let _alone = ALONE.lock().await;
    let cluster = Cluster::new("theirs", Plane::DrainMigration).await;
    let on_state = json!({
        DESIRED_DRAIN_STATE: "Drain_Required", CURRENT_DRAIN_STATE: "Draining", USE_EXTERNAL_DRAINER: "true",
    });
    make_node(&cluster, "theirs-1", json!({ NODE_DRAIN_STATE: "Drain_Required" }), true, on_state.clone())
        .await;
    let idle = json!({ DESIRED_DRAIN_STATE: "Idle", CURRENT_DRAIN_STATE: "Idle" });
    make_node(&cluster, "theirs-2", json!({ NODE_DRAIN_STATE: "Idle" }), false, idle).await;
    cluster.pool("p", &["theirs-1", "theirs-2"], json!({ "maxUnavailable": 2 })).await;
    cluster.pod("web", "theirs-1", json!({}), Some(RESOURCE)).await;
    cluster.expect_running("web").await;
    let log = BusyLog::begin(&cluster);
    let _operator = cluster.operator_with(&OWN);
    // By then it has looked at the other, too; and again when that belongs to it.
    cluster.expect_node("theirs-2", "without annotations", is_clean).await;
    let is_owned = |state: &SriovNetworkNodeState| !state.owner_references().is_empty();
    let state = cluster.wait_for("theirs-1", "owned", is_owned).await;
    for (key, value) in on_state.as_object().unwrap() {
        assert_eq!(state.annotations().get(key).map(String::as_str), value.as_str(), "{key}");
    }
    let node = cluster.nodes().get("theirs-1").await.unwrap();
    assert_eq!(node.annotations()[NODE_DRAIN_STATE], "Drain_Required");
    assert!(is_cordoned(&node) && cluster.has_pod("web").await);
    // The drainer hands it back to us while it is under way: now it is ours.
    cluster.kubectl(&["annotate", "sriovnetworknodestates", "theirs-1", &format!("{USE_EXTERNAL_DRAINER}-")]);
    assert_eq!(log.most_at_once(&["theirs-1".to_owned()]), 0);
    cluster.expect_drain("theirs-1", DrainingComplete).await;
    cluster.be_idle("theirs-1").await;
    cluster.expect_at_rest("theirs-1").await;
}

#[tokio::test]
async fn an_external_drainer_serves_the_agent_and_the_operator_leaves_it_alone() {
    let _alone = ALONE.lock().await;
    let cluster = Cluster::new("outside", Plane::DrainMigration).await;
    cluster.allow_external_drainer();
    let node = "outside-1";
    let _operator = cluster.operator_with(&OWN);
    let file = cluster.file("machine.yaml", &machine());
    let external = [("USE_EXTERNAL_DRAINER", "true")];
    let _agent = cluster.agent_with(node, &["--sim", &file], &external).await;
    cluster.pool("p", &[node], json!({ "maxUnavailable": 1 })).await;
    cluster.make_vfs(node, PF, 2).await;
    cluster.pod("web", node, json!({}), Some(RESOURCE)).await;
    cluster.expect_running("web").await;
    let log = BusyLog::begin(&cluster);

    cluster.apply_policy("p", json!({ "numVfs": 3, "nicSelector": { "pfNames": [PF] } })).await;
    let says = |key: &'static str, value: &'static str| {
        move |state: &SriovNetworkNodeState| state.annotations().get(key).is_some_and(|found| found == value)
    };
    let asked = cluster.wait_for(node, "a request", says(DESIRED_DRAIN_STATE, "Drain_Required")).await;
    assert_eq!(status_of(&asked).as_str(), "Drain_Required");
    let is_asked = |node: &Node| {
        let says = |key: &str| node.annotations().get(key).is_some_and(|value| value == "Drain_Required");
        says(NODE_DRAIN_STATE) && says(DESIRED_DRAIN_STATE)
    };
    cluster.expect_node(node, "a request", is_asked).await;
    for answer in ["Draining", "DrainComplete"] {
        assert_eq!(cluster.slots("p").await, Vec::<String>::new());
        assert!(cluster.has_pod("web").await, "it is the drainer's to evict");
        let answer = format!("{CURRENT_DRAIN_STATE}={answer}");
        cluster.kubectl(&["annotate", "sriovnetworknodestates", node, "--overwrite", &answer]);
    }
    let is_done = |state: &State| state.is_synced() && state.vfs(PF).len() == 3;
    cluster.wait(node, "3 VFs", is_done).await;
    cluster.wait_for(node, "no request", says(DESIRED_DRAIN_STATE, "Idle")).await;
    let idle = format!("{CURRENT_DRAIN_STATE}=Idle");
    cluster.kubectl(&["annotate", "sriovnetworknodestates", node, "--overwrite", &idle]);
    // A second request, after the first: the operator has seen all of it by now.
    cluster.apply_policy("p", json!({ "numVfs": 4, "nicSelector": { "pfNames": [PF] } })).await;
    cluster.wait_for(node, "another request", says(DESIRED_DRAIN_STATE, "Drain_Required")).await;
    let complete = format!("{CURRENT_DRAIN_STATE}=DrainComplete");
    cluster.kubectl(&["annotate", "sriovnetworknodestates", node, "--overwrite", &complete]);
    cluster.wait(node, "4 VFs", |state| state.is_synced() && state.vfs(PF).len() == 4).await;
    assert_eq!(log.most_at_once(&[node.to_owned()]), 0, "neither marked nor in flight by us");
    let node = cluster.nodes().get(node).await.unwrap();
    assert!(!is_cordoned(&node) && mark(&node).is_none());
    assert!(cluster.has_pod("web").await);
}
