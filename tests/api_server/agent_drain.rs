//! An agent whose work needs a drain, beside a real API server. The test plays the operator's part.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tokio::runtime::Handle;
use vfleet_api::keys::{
    CURRENT_DRAIN_STATE, DESIRED_DRAIN_STATE, LAST_DRAIN, NODE_DRAIN_STATE, OPERATOR_FIELD_MANAGER,
    USE_EXTERNAL_DRAINER,
};
use vfleet_api::node_state::{DrainScope, DrainStatus};
use vfleet_api::{PciAddress, SriovNetworkNodeState, SriovNetworkNodeStateStatus};
use vfleet_host::sim::Machine;
use vfleet_host::{Host, HostError, Running, SimHost, Wake, Watch};
use vfleet_plan::drain::{StateFacts, Writer};
use vfleet_plan::{BootLoader, HostFacts, Processor, Step};
use vfleet_tests::agent::{Agent, lab};
use vfleet_tests::cluster::Cluster;
use vfleet_tests::plane::Plane;

/// Longer than any test waits.
const LONG: Duration = Duration::from_mins(4);

type State = SriovNetworkNodeState;

/// A node with its node state, of which the test is the operator.
struct Scene {
    cluster: Cluster,
    node: &'static str,
    states: Api<State>,
}

fn address(card: usize) -> PciAddress {
    Machine::lab().pfs[card].address
}

fn wish(first: u16, device_type: &str) -> Value {
    let pf = |card: usize, count: u16, kind: &str, resource: &str| {
        let groups =
            json!([{ "vfRange": format!("0-{}", count - 1), "deviceType": kind, "resourceName": resource }]);
        json!({ "pciAddress": address(card), "numVfs": count, "vfGroups": groups })
    };
    json!({ "interfaces": [pf(0, first, device_type, "one"), pf(1, 2, "netdevice", "other")] })
}

fn status(state: &State) -> SriovNetworkNodeStateStatus {
    state.status.clone().unwrap_or_default()
}

fn is(wanted: DrainStatus) -> impl Fn(&State) -> bool {
    move |state| status(state).drain_status == Some(wanted)
}

/// As wanted, with so many VFs on the first card, and no drain.
fn is_done(state: &State, vfs: i64) -> bool {
    let conditions = status(state).conditions.unwrap_or_default();
    let is_ready = conditions.iter().any(|condition| {
        condition.type_ == "Ready"
            && condition.status == "True"
            && condition.observed_generation == state.metadata.generation
    });
    let cards = status(state).interfaces.unwrap_or_default();
    let first = cards.iter().find(|card| card.pci_address.value() == Ok(&address(0)));
    is_ready && is(DrainStatus::Idle)(state) && first.and_then(|card| card.num_vfs) == Some(vfs)
}

fn waiting_text(state: &State) -> Option<String> {
    let conditions = status(state).conditions.unwrap_or_default();
    let waits = conditions.into_iter().find(|condition| {
        condition.type_ == "Progressing"
            && condition.reason == "WaitingForDrain"
            && condition.observed_generation == state.metadata.generation
    });
    waits.map(|condition| condition.message)
}

/// Asked for, and said so.
fn asks(state: &State) -> bool {
    is(DrainStatus::DrainRequired)(state) && waiting_text(state).is_some()
}

impl Scene {
    async fn set(node: &'static str) -> Self {
        let cluster = Cluster::new(node, Plane::Drains).await;
        cluster.create_worker(node).await;
        let states: Api<State> = Api::namespaced(cluster.administrator(), cluster.namespace());
        let state = json!({
            "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovNetworkNodeState",
            "metadata": { "name": node }, "spec": {},
        });
        states.create(&PostParams::default(), &serde_json::from_value(state).unwrap()).await.unwrap();
        Self { cluster, node, states }
    }

    /// A node with two VFs on each card, which took no drain.
    async fn with_vfs(node: &'static str, host: &Arc<SimHost>) -> (Self, Agent) {
        let scene = Self::set(node).await;
        let agent = scene.start(host, |_| {}).await;
        scene.wait("idle from the beginning", is(DrainStatus::Idle)).await;
        scene.want(wish(2, "netdevice")).await;
        let state = scene.wait("first VFs", |state| is_done(state, 2)).await;
        assert_eq!(status(&state).drain_requested_at, None, "nobody was disturbed");
        (scene, agent)
    }

    async fn start(&self, host: &Arc<SimHost>, set: impl FnOnce(&mut vfleet_agent::Config)) -> Agent {
        Agent::start(&self.cluster, self.node, Arc::clone(host), set).await
    }

    async fn wait(&self, what: &str, like: impl Fn(&State) -> bool) -> State {
        self.cluster.wait_for(self.node, what, like).await
    }

    async fn want(&self, spec: Value) {
        let patch = Patch::Merge(json!({ "spec": spec }));
        self.states.patch(self.node, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Writes the status as the operator does.
    async fn say(&self, fields: Value) {
        let by = PatchParams { field_manager: Some(OPERATOR_FIELD_MANAGER.to_owned()), ..Default::default() };
        let patch = Patch::Merge(json!({ "status": fields }));
        self.states.patch_status(self.node, &by, &patch).await.unwrap();
    }

    async fn drain_is(&self, status: DrainStatus) {
        self.say(json!({ "drainStatus": status })).await;
    }

    /// Says why the drain does not go on.
    async fn block(&self, why: &str) {
        let condition = json!({
            "type": "Blocked", "status": "True", "reason": "Test", "message": why,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let object = json!({
            "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovNetworkNodeState",
            "metadata": { "name": self.node }, "status": { "conditions": [condition] },
        });
        let by = PatchParams::apply(OPERATOR_FIELD_MANAGER);
        self.states.patch_status(self.node, &by, &Patch::Apply(object)).await.unwrap();
    }

    async fn annotate(&self, key: &str, value: Option<&str>) {
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { key: value } } }));
        self.states.patch(self.node, &PatchParams::default(), &patch).await.unwrap();
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.cluster.administrator())
    }

    async fn node_annotations(&self) -> [Option<String>; 2] {
        let node = self.nodes().get(self.node).await.unwrap();
        [NODE_DRAIN_STATE, DESIRED_DRAIN_STATE].map(|key| node.annotations().get(key).cloned())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_asks_waits_works_and_is_idle_again() {
    let host = lab();
    let (scene, agent) = Scene::with_vfs("asks-1", &host).await;
    let before = host.executed();
    scene.want(wish(3, "netdevice")).await;
    let asked = scene.wait("a request", asks).await;
    assert_eq!(status(&asked).drain_scope, Some(DrainScope::Partial));
    assert_eq!(StateFacts::of(&asked).writer, Writer::Agent);
    assert_eq!(status(&asked).sync_status.as_deref(), Some("InProgress"));
    let text = waiting_text(&asked).unwrap();
    assert!(text.contains("waits until the node is drained"), "{text}");
    assert!(text.contains("disruption Drain"), "{text}");

    // Nothing is done in between, also when it looks again.
    scene.drain_is(DrainStatus::Draining).await;
    scene.block("pod a/b may not be evicted").await;
    let is_blocked = |state: &State| waiting_text(state).is_some_and(|text| text.contains("pod a/b may not"));
    scene.wait("the reason in its words", is_blocked).await;
    assert_eq!(host.executed(), before);

    scene.drain_is(DrainStatus::DrainingComplete).await;
    let done = scene.wait("the work done", |state| is_done(state, 3)).await;
    assert_eq!(status(&done).kept_resources, Some(vec!["other".to_owned()]));
    assert_eq!(StateFacts::of(&done).writer, Writer::Agent);

    // The node was not uncordoned yet: what was changed stays changed.
    scene.want(wish(2, "netdevice")).await;
    let again = scene.wait("another request", asks).await;
    assert!(StateFacts::of(&again).request > StateFacts::of(&asked).request);
    assert_eq!(status(&again).kept_resources, Some(vec!["other".to_owned()]));
    scene.drain_is(DrainStatus::DrainDisabled).await;
    scene.wait("done without a drain", |state| is_done(state, 2)).await;

    // Now it was.
    let last = StateFacts::of(&again).request.unwrap().text();
    let over = Patch::Merge(json!({ "metadata": { "annotations": { LAST_DRAIN: last } } }));
    scene.nodes().patch(scene.node, &PatchParams::default(), &over).await.unwrap();
    scene.want(wish(4, "netdevice")).await;
    let fresh = scene.wait("a third request", asks).await;
    assert_eq!(status(&fresh).kept_resources, None);
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_needed_any_more_is_withdrawn() {
    let host = lab();
    let (scene, agent) = Scene::with_vfs("withdraws-1", &host).await;
    let before = host.executed();
    for drain in [DrainStatus::DrainRequired, DrainStatus::Draining] {
        scene.want(wish(3, "netdevice")).await;
        scene.wait("a request", asks).await;
        scene.drain_is(drain).await;
        scene.want(wish(2, "netdevice")).await;
        let idle = scene.wait("idle", |state| is_done(state, 2)).await;
        assert_eq!(status(&idle).kept_resources, Some(vec!["one".to_owned(), "other".to_owned()]));
    }
    assert_eq!(host.executed(), before);
    agent.end().await;
}

fn machine_that_must_restart_for_vfio() -> Arc<SimHost> {
    let mut machine = Machine::lab();
    machine.kernel.processor = Processor::Intel;
    machine.kernel.boot_loader = Some(BootLoader::Grubby);
    machine.kernel.iommu = false;
    Arc::new(SimHost::new(&machine, "restarts").unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn more_is_asked_for_anew_and_a_restart_belongs_to_the_drain() {
    let host = machine_that_must_restart_for_vfio();
    let (scene, agent) = Scene::with_vfs("escalates-1", &host).await;
    let before = host.executed();
    scene.want(wish(3, "netdevice")).await;
    let partial = scene.wait("a request", asks).await;
    scene.want(wish(3, "vfio-pci")).await;
    let is_full = |state: &State| asks(state) && status(state).drain_scope == Some(DrainScope::Full);
    let full = scene.wait("a request for more", is_full).await;
    assert!(StateFacts::of(&full).request > StateFacts::of(&partial).request);
    assert_eq!(host.executed(), before);

    scene.drain_is(DrainStatus::DrainingComplete).await;
    let gone = async {
        while host.facts().is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), gone).await.expect("the machine restarts");
    agent.end().await;
    scene.wait("drained while it restarts", is(DrainStatus::DrainingComplete)).await;
    let agent = scene.start(&Arc::new(host.another()), |_| {}).await;
    let done = scene.wait("the rest done", |state| is_done(state, 3)).await;
    assert_eq!(status(&done).kept_resources, None, "nobody knows");
    assert_eq!(status(&done).drain_requested_at, status(&full).drain_requested_at, "in the same drain");
    agent.end().await;
}

/// A machine at which something happens in the cluster while it is looked at.
struct Looked {
    host: Arc<SimHost>,
    was_looked_at: AtomicBool,
    is_armed: AtomicBool,
    happens: Box<dyn Fn() + Send + Sync>,
}

impl Looked {
    fn new(host: &Arc<SimHost>, happens: impl Fn(&Handle) + Send + Sync + 'static) -> Arc<Self> {
        let runtime = Handle::current();
        Arc::new(Self {
            host: Arc::clone(host),
            was_looked_at: AtomicBool::new(false),
            is_armed: AtomicBool::new(false),
            happens: Box::new(move || happens(&runtime)),
        })
    }

    /// At the next look, not at the first one.
    async fn arm(&self) {
        let first = async {
            while !self.was_looked_at.load(Ordering::SeqCst) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(LONG, first).await.expect("a first look");
        self.is_armed.store(true, Ordering::SeqCst);
    }
}

impl Host for Looked {
    fn facts(&self) -> Result<HostFacts, HostError> {
        if self.is_armed.swap(false, Ordering::SeqCst) {
            (self.happens)();
        }
        self.was_looked_at.store(true, Ordering::SeqCst);
        self.host.facts()
    }

    fn start(&self, step: &Step) -> Result<Running<()>, HostError> {
        self.host.start(step)
    }

    fn on_change(&self, wake: Wake) -> Result<Watch, HostError> {
        self.host.on_change(wake)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operators_word_is_not_overwritten_by_an_older_decision() {
    let host = machine_that_must_restart_for_vfio();
    let (scene, agent) = Scene::with_vfs("conflict-1", &host).await;
    agent.end().await;
    let scene = Arc::new(scene);
    let then = Arc::clone(&scene);
    let looked =
        Looked::new(&host, move |runtime| runtime.block_on(then.drain_is(DrainStatus::DrainDisabled)));
    let agent = scene.start(&host, |config| config.host = Arc::clone(&looked) as _).await;
    scene.want(wish(3, "netdevice")).await;
    let asked = scene.wait("a request", asks).await;
    looked.arm().await;
    // It would ask for more, but is told to go on meanwhile.
    scene.want(wish(3, "vfio-pci")).await;
    let gone = async {
        while host.facts().is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), gone).await.expect("it goes on, and restarts the machine");
    let state = scene.wait("the operator's word", is(DrainStatus::DrainDisabled)).await;
    assert_eq!(status(&state).drain_requested_at, status(&asked).drain_requested_at);
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wish_that_comes_while_it_asks_is_not_missed() {
    let host = lab();
    let (scene, agent) = Scene::with_vfs("between-1", &host).await;
    agent.end().await;
    let scene = Arc::new(scene);
    let then = Arc::clone(&scene);
    let looked = Looked::new(&host, move |runtime| runtime.block_on(then.want(wish(4, "netdevice"))));
    let agent = scene.start(&host, |config| config.host = Arc::clone(&looked) as _).await;
    looked.arm().await;
    scene.want(wish(3, "netdevice")).await;
    scene
        .wait("a request for the newer wish", |state| state.metadata.generation >= Some(4) && asks(state))
        .await;
    scene.drain_is(DrainStatus::DrainingComplete).await;
    scene.wait("the newer wish", |state| is_done(state, 4)).await;
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_killed_goes_on_where_it_was() {
    let host = lab();
    let (scene, agent) = Scene::with_vfs("killed-1", &host).await;
    scene.want(wish(3, "netdevice")).await;
    let asked = scene.wait("a request", asks).await;
    agent.kill();

    // While it waited: the request is still the same, and all that happens in this drain is known.
    let (let_go, hangs) = mpsc::channel::<()>();
    let hangs = Mutex::new(hangs);
    let (begun, begins) = mpsc::channel::<()>();
    let second = Arc::new(host.another());
    second.before_each_step(move |step| {
        if matches!(step, Step::SetNumVfs { .. }) {
            let _ = begun.send(());
            let _ = hangs.lock().unwrap().recv_timeout(LONG);
        }
    });
    let agent = scene.start(&second, |_| {}).await;
    scene.block("to see that it is there").await;
    let is_there = |state: &State| waiting_text(state).is_some_and(|text| text.contains("to see that"));
    let waits = scene.wait("the second agent", is_there).await;
    assert_eq!(status(&waits).drain_requested_at, status(&asked).drain_requested_at);
    scene.drain_is(DrainStatus::DrainingComplete).await;

    // While it worked: the third knows only that there was something.
    tokio::task::spawn_blocking(move || begins.recv_timeout(LONG).unwrap()).await.unwrap();
    agent.kill();
    drop(let_go);
    let third = Arc::new(second.another());
    let agent = scene.start(&third, |_| {}).await;
    let done = scene.wait("done by the third", |state| is_done(state, 3)).await;
    assert_eq!(status(&done).kept_resources, None);
    assert_eq!(status(&done).drain_requested_at, status(&asked).drain_requested_at);
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_external_drainer_is_asked_by_annotations() {
    let host = lab();
    let scene = Scene::set("external-1").await;
    scene.cluster.allow_external_drainer();
    let agent = scene.start(&host, |config| config.uses_external_drainer = true).await;
    let says = |key: &'static str, value: Option<&'static str>| {
        move |state: &State| state.annotations().get(key).map(String::as_str) == value
    };
    scene.wait("its mark", says(USE_EXTERNAL_DRAINER, Some("true"))).await;
    scene.want(wish(2, "netdevice")).await;
    scene.wait("first VFs", |state| is_done(state, 2)).await;

    // An answer that nobody asked for is none.
    scene.annotate(CURRENT_DRAIN_STATE, Some("DrainComplete")).await;
    let before = host.executed();
    scene.want(wish(3, "netdevice")).await;
    let waits = |state: &State| waiting_text(state).is_some_and(|text| text.contains("the last drain"));
    scene.wait("that it waits for the last drain", waits).await;
    scene.annotate(CURRENT_DRAIN_STATE, Some("Idle")).await;
    let asked = says(DESIRED_DRAIN_STATE, Some("Drain_Required"));
    scene.wait("a request", |state| asked(state) && asks(state)).await;
    assert_eq!(
        scene.node_annotations().await,
        [Some("Drain_Required".into()), Some("Drain_Required".into())]
    );
    scene.annotate(CURRENT_DRAIN_STATE, Some("Draining")).await;
    assert_eq!(host.executed(), before);

    scene.annotate(CURRENT_DRAIN_STATE, Some("DrainComplete")).await;
    let idle = says(DESIRED_DRAIN_STATE, Some("Idle"));
    scene.wait("the work done", |state| idle(state) && is_done(state, 3)).await;
    assert_eq!(scene.node_annotations().await, [Some("Idle".into()), Some("Idle".into())]);
    agent.end().await;

    // Somebody else drains no more: that counts when the drainer is done, too.
    let agent = scene.start(&Arc::new(host.another()), |_| {}).await;
    scene.want(wish(4, "netdevice")).await;
    scene.wait("that it waits for the last drain", waits).await;
    scene.annotate(CURRENT_DRAIN_STATE, None).await;
    let unmarked = says(USE_EXTERNAL_DRAINER, None);
    scene.wait("a request to the operator", |state| unmarked(state) && idle(state) && asks(state)).await;
    scene.drain_is(DrainStatus::DrainingComplete).await;
    scene.wait("the work done", |state| is_done(state, 4)).await;
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_external_drainer_that_may_not_be_told_is_complained_about() {
    const WHAT_TO_DO: &str = "apply deploy/external-drainer.yaml";
    let host = lab();
    let scene = Scene::set("unheard-1").await;
    let agent = scene.start(&host, |config| config.uses_external_drainer = true).await;
    // What disturbs nobody is done all the same.
    scene.want(wish(2, "netdevice")).await;
    let has_vfs = |state: &State| {
        let cards = status(state).interfaces.unwrap_or_default();
        cards.iter().any(|card| card.num_vfs == Some(2))
    };
    let complains = |state: &State| {
        status(state).last_sync_error.is_some_and(|error| error.contains(WHAT_TO_DO)) && has_vfs(state)
    };
    let refused = scene.wait("VFs, and a complaint", complains).await;
    assert_eq!(status(&refused).sync_status.as_deref(), Some("Failed"));
    let error = status(&refused).last_sync_error.unwrap();
    assert!(error.contains("cannot patch resource"), "the API server's words: {error}");
    scene.cluster.expect_event(scene.node, "Warning", "DrainerNotTold").await;

    // What needs a drain waits, and nobody else is asked for it.
    let before = host.executed();
    scene.want(wish(3, "netdevice")).await;
    let says = |state: &State| waiting_text(state).is_some_and(|text| text.contains(WHAT_TO_DO));
    let waits = scene.wait("that nobody could be asked", says).await;
    assert_ne!(status(&waits).drain_status, Some(DrainStatus::DrainRequired));
    assert_eq!(host.executed(), before);

    scene.cluster.allow_external_drainer();
    let is_told = |state: &State| state.annotations().get(DESIRED_DRAIN_STATE).is_some_and(|it| it != "Idle");
    scene.wait("a request", |state| asks(state) && is_told(state)).await;
    scene.annotate(CURRENT_DRAIN_STATE, Some("DrainComplete")).await;
    let done = scene.wait("the work done", |state| is_done(state, 3)).await;
    assert_eq!(status(&done).last_sync_error.as_deref(), Some(""));
    agent.end().await;
}
