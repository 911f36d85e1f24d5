use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};
use tokio::time::Instant;
use vfleet_api::conditions::BRIDGE_RESOURCES;
use vfleet_host::SimHost;
use vfleet_host::sim::Machine;
use vfleet_plan::{HostFacts, OvsBridgeFacts, OvsDatabase, OvsFacts};

use super::*;

fn resource(bridge: &str) -> String {
    format!("ovs-cni.network.kubevirt.io/{bridge}")
}

type Answer = fn(&CapacityChange) -> Result<Option<NodeCapacity>, ClusterWriteError>;

/// API server that counts writes.
struct Server {
    answer: Answer,
    writes: AtomicUsize,
}

impl WriteCapacity for Server {
    async fn write(&self, change: &CapacityChange) -> Result<Option<NodeCapacity>, ClusterWriteError> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        (self.answer)(change)
    }
}

/// Reporter of a node, with the part of the agent that it talks to.
struct Scene {
    config: Config,
    reporter: BridgeResourceReporter,
}

impl Scene {
    fn new(mode: BridgeResourceMode, capacity: &[&str]) -> Self {
        let host = Arc::new(SimHost::new(&Machine::lab(), "node").unwrap());
        let mut config = Config::new("node".to_owned(), "home".to_owned(), host);
        config.bridge_resources = mode;
        let mut reporter = BridgeResourceReporter::new(&config).unwrap();
        reporter.set_capacity(node(1, &names(capacity)));
        Self { config, reporter }
    }

    fn set_ovs(&self, ovs: OvsFacts) {
        let mut facts = HostFacts::default();
        facts.bridges.ovs = ovs;
        self.config.snapshots.send_replace(Arc::new(NodeSnapshot { facts, ..NodeSnapshot::default() }));
    }

    fn set_bridges(&self, names: &[&str]) {
        let bridge = |name: &&str| OvsBridgeFacts { name: (*name).to_owned(), ..OvsBridgeFacts::default() };
        let bridges = names.iter().map(bridge).collect();
        self.set_ovs(OvsFacts::Database(OvsDatabase { bridges, ..OvsDatabase::default() }));
    }

    /// Returns reason and message of the condition.
    fn condition(&self) -> Option<(&'static str, String)> {
        let conditions = self.config.process_conditions.borrow();
        conditions.get(BRIDGE_RESOURCES).map(|condition| (condition.reason, condition.message.clone()))
    }

    fn metric(&self, name: &str) -> u64 {
        let text = self.config.metrics.encode().unwrap();
        let start = format!("vfleet_agent_{name} ");
        text.lines().find_map(|line| line.strip_prefix(&start)).unwrap().parse().unwrap()
    }

    /// Reconciles with an API server that stores every write. Returns the reasons of Events and the number of writes.
    async fn reconcile(&mut self) -> (Vec<&'static str>, usize) {
        self.reconcile_with(|change| {
            let CapacityChange::Apply(resources) = change else { panic!("nothing of others: {change:?}") };
            Ok(node(7, resources))
        })
        .await
    }

    /// Reconciles with an API server that answers each write with `answer`.
    async fn reconcile_with(&mut self, answer: Answer) -> (Vec<&'static str>, usize) {
        let server = Server { answer, writes: AtomicUsize::new(0) };
        let notices = self.reporter.reconcile(&server).await;
        (notices.iter().map(|notice| notice.reason).collect(), server.writes.into_inner())
    }

    /// Returns the time until the next attempt that no event announces.
    async fn pause(&self) -> Duration {
        let start = Instant::now();
        self.reporter.timer.wait().await;
        start.elapsed()
    }
}

fn names(bridges: &[&str]) -> BTreeSet<String> {
    bridges.iter().map(|bridge| resource(bridge)).collect()
}

/// Returns the capacity of a Node on which the agent applied these resources.
fn node(version: u32, resources: &BTreeSet<String>) -> Option<NodeCapacity> {
    let map = |value: &dyn Fn(&String) -> (String, Value)| -> Value {
        Value::Object(resources.iter().map(value).collect())
    };
    let fields = map(&|name| (format!("f:{name}"), json!({})));
    let mut capacity = map(&|name| (name.clone(), json!("1k")));
    capacity["cpu"] = json!("8");
    let node: Node = serde_json::from_value(json!({
        "metadata": {
            "resourceVersion": version.to_string(),
            "managedFields": [{
                "manager": "vfleet-agent", "operation": "Apply", "subresource": "status",
                "fieldsV1": { "f:status": { "f:capacity": fields } },
            }],
        },
        "status": { "capacity": capacity },
    }))
    .unwrap();
    NodeCapacity::of(&node)
}

fn refused(code: u16) -> ClusterWriteError {
    let status = json!({ "status": "Failure", "message": "refused", "reason": "Test", "code": code });
    let error = kube::Error::Api(serde_json::from_value(status).unwrap());
    if code == 403 { ClusterWriteError::CapacityForbidden(error) } else { ClusterWriteError::Api(error) }
}

#[tokio::test(start_paused = true)]
async fn the_node_gets_a_resource_for_each_bridge_once() {
    let mut scene = Scene::new(BridgeResourceMode::Reported, &[]);
    assert_eq!(scene.reconcile().await, (vec![], 0), "the machine was not read yet");
    scene.set_bridges(&["br0", "br1"]);
    assert_eq!(scene.reconcile().await, (vec!["BridgeResourcesChanged"], 1));
    assert_eq!(scene.metric("bridge_resources"), 2);
    assert_eq!(scene.reconcile().await, (vec![], 0));
    scene.set_bridges(&[]);
    assert_eq!(scene.reconcile().await, (vec!["BridgeResourcesChanged"], 1));
    assert_eq!((scene.metric("bridge_resources"), scene.condition()), (0, None));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_before_the_node_was_read() {
    let mut scene = Scene::new(BridgeResourceMode::Reported, &[]);
    scene.set_bridges(&["br0"]);
    scene.reporter.set_capacity(None);
    assert_eq!(scene.reconcile().await, (vec![], 0));
}

#[tokio::test(start_paused = true)]
async fn a_version_of_the_node_before_our_write_is_ignored() {
    let mut scene = Scene::new(BridgeResourceMode::Reported, &[]);
    scene.set_bridges(&["br0"]);
    assert_eq!(scene.reconcile().await.1, 1);
    scene.reporter.set_capacity(node(2, &names(&[])));
    assert_eq!(scene.reconcile().await.1, 0);
    scene.reporter.set_capacity(node(8, &names(&[])));
    assert_eq!(scene.reconcile().await.1, 1);
}

#[tokio::test(start_paused = true)]
async fn a_failed_write_is_reported_once_and_tried_again_with_growing_pauses() {
    let mut scene = Scene::new(BridgeResourceMode::Reported, &[]);
    scene.set_bridges(&["br0"]);
    assert_eq!(scene.reconcile_with(|_| Err(refused(403))).await, (vec!["WriteForbidden"], 1));
    let (reason, message) = scene.condition().unwrap();
    assert_eq!(reason, "WriteForbidden");
    assert!(
        message.contains("apply deploy/ovs-bridge-resources.yaml") && message.contains("refused"),
        "{message}"
    );
    let mut pauses = vec![scene.pause().await];
    for _ in 0..2 {
        assert_eq!(scene.reconcile_with(|_| Err(refused(403))).await, (vec![], 1), "the same error");
        pauses.push(scene.pause().await);
    }
    assert!(pauses.is_sorted() && pauses[0] > Duration::ZERO, "{pauses:?}");
    assert_eq!(scene.metric("bridge_resource_failures_total"), 3);
    assert_eq!(scene.reconcile_with(|_| Err(refused(409))).await, (vec!["WriteFailed"], 1));
    assert_eq!(scene.reconcile().await, (vec!["BridgeResourcesChanged"], 1));
    assert_eq!(scene.condition(), None);
}

#[tokio::test(start_paused = true)]
async fn a_write_without_effect_is_reported_and_tried_again() {
    let mut scene = Scene::new(BridgeResourceMode::Reported, &[]);
    scene.set_bridges(&["br0"]);
    let without_effect = scene.reconcile_with(|_| Ok(node(3, &names(&[])))).await;
    assert_eq!(without_effect, (vec!["NotVerified"], MOST_WRITES));
    assert_eq!(scene.condition().unwrap().0, "NotVerified");
    assert!(scene.pause().await > Duration::ZERO);
    assert_eq!(scene.reconcile().await.1, 1);
    assert_eq!(scene.condition(), None);
}

#[tokio::test(start_paused = true)]
async fn a_program_that_undoes_the_write_is_answered_less_and_less_often() {
    let mut scene = Scene::new(BridgeResourceMode::Reported, &[]);
    scene.set_bridges(&["br0"]);
    let mut pauses = Vec::new();
    for version in 10..14 {
        scene.reporter.set_capacity(node(version, &names(&[])));
        pauses.push(scene.pause().await);
        assert_eq!(scene.reconcile().await.1, 1);
    }
    assert!(
        pauses[0] < Duration::from_secs(1) && pauses[1] < pauses[2] && pauses[2] < pauses[3],
        "{pauses:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn bridges_that_are_unknown_keep_their_resources() {
    let mut scene = Scene::new(BridgeResourceMode::Reported, &["br0"]);
    scene.set_ovs(OvsFacts::NotRunning { socket: "/run/db.sock".to_owned() });
    assert_eq!(scene.reconcile().await, (vec!["OvsNotRunning"], 0));
    let (reason, message) = scene.condition().unwrap();
    assert!(reason == "OvsNotRunning" && message.contains("/run/db.sock"), "{message}");
    assert_eq!(scene.metric("bridge_resources"), 1);
    scene.set_bridges(&["br0"]);
    assert_eq!((scene.reconcile().await, scene.condition()), ((vec![], 0), None));
}

#[tokio::test(start_paused = true)]
async fn without_the_gate_the_agent_removes_its_resources_and_is_done() {
    let mut scene = Scene::new(BridgeResourceMode::Withdrawn, &["br0"]);
    assert!(!scene.reporter.is_done());
    assert_eq!(scene.reconcile_with(|_| Err(refused(500))).await, (vec!["WriteFailed"], 1));
    assert!(!scene.reporter.is_done());
    assert_eq!(scene.reconcile().await, (vec!["BridgeResourcesChanged"], 1));
    assert!(scene.reporter.is_done());
    let unwritten = Scene::new(BridgeResourceMode::Withdrawn, &[]);
    assert!(unwritten.reporter.is_done(), "there was nothing to remove");
}

#[test]
fn an_agent_without_a_machine_reports_nothing() {
    let host = Arc::new(SimHost::new(&Machine::lab(), "node").unwrap());
    let config = Config::new("node".to_owned(), "home".to_owned(), host);
    assert!(BridgeResourceReporter::new(&config).is_none());
}
