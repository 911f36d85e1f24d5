//! Drains that another program started: unfinished drains of the Go operator, which are migrated, and those of an
//! external drainer, which are left alone. All operators of the cluster read the annotations of nodes, so only one test
//! runs at a time. The tests act as agents and drainers.

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
use vfleet_tests::cluster::{Cluster, NodeStateView, machine};
use vfleet_tests::drain::history::{History, of};
use vfleet_tests::drain::log::DrainLog;
use vfleet_tests::drain::{RESOURCE, cordon_mark, is_cordoned, status_of};
use vfleet_tests::plane::Plane;

const OWN: [(&str, &str); 1] = [("POD_NAME", "one")];
const PF: &str = "enp1s0";

static ALONE: Mutex<()> = Mutex::const_new(());

/// Node with a drain of the Go operator. The test writes the annotations, because the Go daemon needs a machine.
struct GoDrain {
    name: &'static str,
    /// Annotation of the Node and the two of the node state; an empty one is absent.
    annotations: [&'static str; 3],
    is_cordoned: bool,
    /// Two pods are left on the node: one with VFs and one without.
    has_pods: bool,
    /// Expected drain statuses until the agent has to act.
    statuses: &'static [&'static str],
    /// Expected existence of the two pods after the drain.
    kept_pods: [bool; 2],
}

const REQUIRED: &[&str] = &["Drain_Required", "Draining", "Draining_Complete"];
const DRAINING: &[&str] = &["Draining", "Draining_Complete"];
const COMPLETE: &[&str] = &["Draining_Complete"];
const NOTHING: &[&str] = &[];

const ALL: [GoDrain; 11] = [
    with_pods("drain-idle", ["Drain_Required", "Drain_Required", "Idle"], false, REQUIRED, [false, true]),
    with_pods("reboot-idle", ["Reboot_Required", "Reboot_Required", "Idle"], false, REQUIRED, [false, false]),
    with_pods(
        "drain-draining",
        ["Drain_Required", "Drain_Required", "Draining"],
        true,
        DRAINING,
        [false, true],
    ),
    with_pods(
        "reboot-draining",
        ["Reboot_Required", "Reboot_Required", "Draining"],
        true,
        DRAINING,
        [false, false],
    ),
    // The Go operator ended before the cordon.
    with_pods(
        "drain-begun",
        ["Drain_Required", "Drain_Required", "Draining"],
        false,
        DRAINING,
        [false, true],
    ),
    without_pods("drain-complete", ["Drain_Required", "Drain_Required", "DrainComplete"], COMPLETE),
    without_pods("reboot-complete", ["Reboot_Required", "Reboot_Required", "DrainComplete"], COMPLETE),
    // The agents had finished.
    without_pods("done", ["Idle", "Idle", "DrainComplete"], NOTHING),
    without_pods("withdrawn", ["Idle", "Idle", "Draining"], NOTHING),
    // Old versions.
    with_pods("old-draining", ["Draining", "", ""], true, DRAINING, [false, true]),
    with_pods("old-paused", ["Draining_MCP_Paused", "", ""], true, DRAINING, [false, true]),
];

const fn with_pods(
    name: &'static str,
    annotations: [&'static str; 3],
    is_cordoned: bool,
    statuses: &'static [&'static str],
    kept_pods: [bool; 2],
) -> GoDrain {
    GoDrain { name, annotations, is_cordoned, has_pods: true, statuses, kept_pods }
}

const fn without_pods(
    name: &'static str,
    annotations: [&'static str; 3],
    statuses: &'static [&'static str],
) -> GoDrain {
    GoDrain { name, annotations, is_cordoned: true, has_pods: false, statuses, kept_pods: [false, false] }
}

fn annotations(list: &[(&str, &str)]) -> Value {
    list.iter().filter(|(_, value)| !value.is_empty()).map(|(key, value)| (*key, json!(value))).collect()
}

/// Creates a worker and its node state with these annotations.
async fn create_node(cluster: &Cluster, node: &str, on_node: Value, is_cordoned: bool, on_state: Value) {
    cluster.create_worker(node).await;
    let patch = json!({ "metadata": { "annotations": on_node }, "spec": { "unschedulable": is_cordoned } });
    cluster.nodes().patch(node, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    let state = json!({
        "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovNetworkNodeState",
        "metadata": { "name": node, "annotations": on_state }, "spec": {},
    });
    cluster.states().create(&PostParams::default(), &serde_json::from_value(state).unwrap()).await.unwrap();
}

/// Returns whether an object has no drain annotation of the Go operator.
fn is_clean<K: ResourceExt>(object: &K) -> bool {
    [NODE_DRAIN_STATE, DESIRED_DRAIN_STATE, CURRENT_DRAIN_STATE]
        .iter()
        .all(|key| !object.annotations().contains_key(*key))
}

impl GoDrain {
    fn node(&self, cluster: &Cluster) -> String {
        format!("{}-{}", cluster.namespace(), self.name)
    }

    fn pods(&self) -> [String; 2] {
        [format!("{}-vf", self.name), format!("{}-plain", self.name)]
    }

    async fn create(&self, cluster: &Cluster) {
        let [on_node, desired, current] = self.annotations;
        let node = self.node(cluster);
        create_node(
            cluster,
            &node,
            annotations(&[(NODE_DRAIN_STATE, on_node)]),
            self.is_cordoned,
            annotations(&[(DESIRED_DRAIN_STATE, desired), (CURRENT_DRAIN_STATE, current)]),
        )
        .await;
        if self.has_pods {
            let [with_vf, plain] = self.pods();
            cluster.create_pod(&with_vf, &node, json!({}), Some(RESOURCE)).await;
            cluster.create_pod(&plain, &node, json!({}), None).await;
            cluster.expect_running(&with_vf).await;
            cluster.expect_running(&plain).await;
        }
    }

    /// Waits until the drain is migrated and complete, acts as agent, and waits for the end.
    async fn finish(&self, cluster: &Cluster) {
        let node = self.node(cluster);
        let is_in_flight = !self.statuses.is_empty();
        if is_in_flight {
            cluster.expect_drain(&node, DrainingComplete).await;
            for (pod, is_kept) in self.pods().iter().zip(self.kept_pods) {
                assert_eq!(cluster.has_pod(pod).await, is_kept, "{pod}");
            }
            let is_ours =
                |node: &Node| is_clean(node) && is_cordoned(node) && cordon_mark(node) == Some("ours");
            cluster.expect_node(&node, "marked as ours", is_ours).await;
            cluster.set_idle(&node).await;
        }
        cluster.expect_uncordoned(&node).await;
        cluster.expect_node(&node, "without annotations", is_clean).await;
        let is_idle = |state: &SriovNetworkNodeState| is_clean(state) && status_of(state) == Idle;
        cluster.wait_for(&node, "idle, without annotations", is_idle).await;
    }
}

/// Creates all nodes, in a pool without a limit.
async fn create_all(cluster: &Cluster) {
    futures::future::join_all(ALL.iter().map(|drain| drain.create(cluster))).await;
    let nodes: Vec<_> = ALL.iter().map(|drain| drain.node(cluster)).collect();
    let nodes: Vec<_> = nodes.iter().map(String::as_str).collect();
    cluster.create_pool("p", &nodes, json!({ "drainConfig": { "maxParallelNodeConfiguration": 0 } })).await;
}

#[tokio::test]
async fn unfinished_drains_are_migrated_and_finished() {
    let _alone = ALONE.lock().await;
    let cluster = Cluster::new("shift", Plane::DrainMigration).await;
    create_all(&cluster).await;
    let admins = format!("{}-admins", cluster.namespace());
    let idle = json!({ DESIRED_DRAIN_STATE: "Idle", CURRENT_DRAIN_STATE: "Idle" });
    create_node(&cluster, &admins, json!({ NODE_DRAIN_STATE: "Idle" }), true, idle).await;
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

    let _operator = cluster.start_operator_with(&OWN);
    futures::future::join_all(ALL.iter().map(|drain| drain.finish(&cluster))).await;
    for drain in &ALL {
        let object = format!("state {}", drain.node(&cluster));
        let states = ["Idle"]
            .iter()
            .chain(drain.statuses)
            .chain(["Idle"].iter().filter(|_| !drain.statuses.is_empty()));
        let states: Vec<_> = states.copied().collect();
        let is_over = |lines: &[(String, String)]| of(lines, &object).len() >= states.len();
        history.until("an end", is_over).await;
        assert_eq!(history.of(&object), states, "{object}");
    }
    // The node that an administrator cordoned stays cordoned.
    let node = cluster.expect_node(&admins, "without annotations", is_clean).await;
    assert!(is_cordoned(&node) && cordon_mark(&node).is_none());
    cluster.wait_for(&admins, "without annotations", is_clean::<SriovNetworkNodeState>).await;
    cluster.kubectl(&["wait", "--for=delete", "--timeout=60s", &format!("lease/{GO_DRAIN_LEASE}")]);
}

#[tokio::test]
async fn a_migration_survives_repeated_kills_of_the_operator() {
    let _alone = ALONE.lock().await;
    let cluster = Cluster::new("mortal", Plane::DrainMigration).await;
    create_all(&cluster).await;
    let history = History::default()
        .follow("state", cluster.states(), |state| {
            format!("{} {}", status_of(state).as_str(), is_clean(state))
        })
        .follow("node", cluster.nodes(), |node| format!("{} {:?}", is_clean(node), cordon_mark(node)));
    let in_view = |lines: &[(String, String)]| lines.len() >= 2 * ALL.len();
    let mut observed = history.until("all in view", in_view).await.len();
    let is_settled = |lines: &[(String, String)]| {
        let waits_for_agent = |drain: &GoDrain| {
            let statuses = of(lines, &format!("state {}", drain.node(&cluster)));
            drain.statuses.is_empty() || statuses.last().is_some_and(|last| last == "Draining_Complete true")
        };
        ALL.iter().all(waits_for_agent)
    };
    // Each operator is killed between its writes, after this number of new ones.
    let mut kills = 0;
    for writes in [1, 1, 2, 1, 3, 1, 2, 5, 1, 1] {
        let operator = cluster.start_operator_with(&OWN);
        let has_written = |lines: &[(String, String)]| lines.len() >= observed + writes || is_settled(lines);
        let lines = history.until("something new", has_written).await;
        operator.kill();
        if is_settled(&lines) {
            break;
        }
        kills += 1;
        observed = history.until("all writes", |_| true).await.len();
    }
    assert!(kills > 2, "only {kills} operators were killed during the migration");
    let _operator = cluster.start_operator_with(&OWN);
    futures::future::join_all(ALL.iter().map(|drain| drain.finish(&cluster))).await;
}

#[tokio::test]
async fn an_unknown_annotation_value_stays_and_does_not_stop_drains() {
    let _alone = ALONE.lock().await;
    let cluster = Cluster::new("odd", Plane::DrainMigration).await;
    create_node(&cluster, "odd-1", json!({ NODE_DRAIN_STATE: "Sleeping" }), false, json!({})).await;
    create_node(&cluster, "odd-2", json!({}), false, json!({ CURRENT_DRAIN_STATE: "Sleeping" })).await;
    cluster.create_pool("p", &["odd-1", "odd-2"], json!({ "maxUnavailable": 2 })).await;
    cluster.create_pod("web", "odd-1", json!({}), Some(RESOURCE)).await;
    cluster.expect_running("web").await;
    let _operator = cluster.start_operator_with(&OWN);
    for node in ["odd-1", "odd-2"] {
        cluster.expect_event(node, "Warning", "UnknownDrainState").await;
        cluster.request_drain(node, "Partial").await;
        cluster.expect_drain(node, DrainingComplete).await;
        assert!(!cluster.has_pod("web").await);
        cluster.set_idle(node).await;
        cluster.expect_uncordoned(node).await;
    }
    let node = cluster.nodes().get("odd-1").await.unwrap();
    assert_eq!(node.annotations()[NODE_DRAIN_STATE], "Sleeping");
    assert_eq!(cluster.states().get("odd-2").await.unwrap().annotations()[CURRENT_DRAIN_STATE], "Sleeping");
    // An administrator corrects the value.
    cluster.kubectl(&["annotate", "node", "odd-1", "--overwrite", &format!("{NODE_DRAIN_STATE}=Idle")]);
    cluster.expect_node("odd-1", "without annotations", is_clean).await;
}

#[tokio::test]
async fn drains_of_an_external_drainer_are_not_migrated() {
    let _alone = ALONE.lock().await;
    let cluster = Cluster::new("theirs", Plane::DrainMigration).await;
    let on_state = json!({
        DESIRED_DRAIN_STATE: "Drain_Required", CURRENT_DRAIN_STATE: "Draining", USE_EXTERNAL_DRAINER: "true",
    });
    create_node(&cluster, "theirs-1", json!({ NODE_DRAIN_STATE: "Drain_Required" }), true, on_state.clone())
        .await;
    let idle = json!({ DESIRED_DRAIN_STATE: "Idle", CURRENT_DRAIN_STATE: "Idle" });
    create_node(&cluster, "theirs-2", json!({ NODE_DRAIN_STATE: "Idle" }), false, idle).await;
    cluster.create_pool("p", &["theirs-1", "theirs-2"], json!({ "maxUnavailable": 2 })).await;
    cluster.create_pod("web", "theirs-1", json!({}), Some(RESOURCE)).await;
    cluster.expect_running("web").await;
    let log = DrainLog::start(&cluster);
    let _operator = cluster.start_operator_with(&OWN);
    // The operator has processed the first node by then, and again when it owns the node state.
    cluster.expect_node("theirs-2", "without annotations", is_clean).await;
    let is_owned = |state: &SriovNetworkNodeState| !state.owner_references().is_empty();
    let state = cluster.wait_for("theirs-1", "owned", is_owned).await;
    for (key, value) in on_state.as_object().unwrap() {
        assert_eq!(state.annotations().get(key).map(String::as_str), value.as_str(), "{key}");
    }
    let node = cluster.nodes().get("theirs-1").await.unwrap();
    assert_eq!(node.annotations()[NODE_DRAIN_STATE], "Drain_Required");
    assert!(is_cordoned(&node) && cluster.has_pod("web").await);
    // Without the external drainer the operator migrates the drain.
    cluster.kubectl(&["annotate", "sriovnetworknodestates", "theirs-1", &format!("{USE_EXTERNAL_DRAINER}-")]);
    assert_eq!(log.max_busy_nodes(&["theirs-1".to_owned()]), 0);
    cluster.expect_drain("theirs-1", DrainingComplete).await;
    cluster.set_idle("theirs-1").await;
    cluster.expect_uncordoned("theirs-1").await;
}

#[tokio::test]
async fn an_external_drainer_drains_for_the_agent_without_the_operator() {
    let _alone = ALONE.lock().await;
    let cluster = Cluster::new("outside", Plane::DrainMigration).await;
    cluster.allow_external_drainer();
    let node = "outside-1";
    let _operator = cluster.start_operator_with(&OWN);
    let file = cluster.write_file("machine.yaml", &machine());
    let external = [("USE_EXTERNAL_DRAINER", "true")];
    let _agent = cluster.start_agent_with(node, &["--sim", &file], &external).await;
    cluster.create_pool("p", &[node], json!({ "maxUnavailable": 1 })).await;
    cluster.create_vfs(node, PF, 2).await;
    cluster.create_pod("web", node, json!({}), Some(RESOURCE)).await;
    cluster.expect_running("web").await;
    let log = DrainLog::start(&cluster);

    cluster.apply_policy("p", json!({ "numVfs": 3, "nicSelector": { "pfNames": [PF] } })).await;
    let has = |key: &'static str, value: &'static str| {
        move |state: &SriovNetworkNodeState| state.annotations().get(key).is_some_and(|found| found == value)
    };
    let requested = cluster.wait_for(node, "a request", has(DESIRED_DRAIN_STATE, "Drain_Required")).await;
    assert_eq!(status_of(&requested).as_str(), "Drain_Required");
    let is_requested = |node: &Node| {
        let has = |key: &str| node.annotations().get(key).is_some_and(|value| value == "Drain_Required");
        has(NODE_DRAIN_STATE) && has(DESIRED_DRAIN_STATE)
    };
    cluster.expect_node(node, "a request", is_requested).await;
    for answer in ["Draining", "DrainComplete"] {
        assert_eq!(cluster.slots("p").await, Vec::<String>::new());
        assert!(cluster.has_pod("web").await, "only the drainer evicts");
        let answer = format!("{CURRENT_DRAIN_STATE}={answer}");
        cluster.kubectl(&["annotate", "sriovnetworknodestates", node, "--overwrite", &answer]);
    }
    let is_done = |state: &NodeStateView| state.is_synced() && state.vfs(PF).len() == 3;
    cluster.wait(node, "3 VFs", is_done).await;
    cluster.wait_for(node, "no request", has(DESIRED_DRAIN_STATE, "Idle")).await;
    let idle = format!("{CURRENT_DRAIN_STATE}=Idle");
    cluster.kubectl(&["annotate", "sriovnetworknodestates", node, "--overwrite", &idle]);
    // With a second request the operator has processed all of the first one.
    cluster.apply_policy("p", json!({ "numVfs": 4, "nicSelector": { "pfNames": [PF] } })).await;
    cluster.wait_for(node, "another request", has(DESIRED_DRAIN_STATE, "Drain_Required")).await;
    let complete = format!("{CURRENT_DRAIN_STATE}=DrainComplete");
    cluster.kubectl(&["annotate", "sriovnetworknodestates", node, "--overwrite", &complete]);
    cluster.wait(node, "4 VFs", |state| state.is_synced() && state.vfs(PF).len() == 4).await;
    assert_eq!(log.max_busy_nodes(&[node.to_owned()]), 0, "not drained by the operator");
    let node = cluster.nodes().get(node).await.unwrap();
    assert!(!is_cordoned(&node) && cordon_mark(&node).is_none());
    assert!(cluster.has_pod("web").await);
}
