//! Agent with changes that need a drain, with a real API server. The tests act as operator.

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
use vfleet_host::{ChangeCallback, Host, HostError, SimHost, TaskHandle, WatchGuard};
use vfleet_plan::drain::{StateFacts, StatusWriter};
use vfleet_plan::{BootLoader, HostFacts, Processor, Step};
use vfleet_tests::agent::{Agent, lab};
use vfleet_tests::cluster::Cluster;
use vfleet_tests::plane::Plane;

/// Longer than any wait of a test.
const LONG: Duration = Duration::from_mins(4);

type State = SriovNetworkNodeState;

/// Node with its node state, for which the test acts as operator.
struct Scene {
    cluster: Cluster,
    node: &'static str,
    states: Api<State>,
}

fn address(card: usize) -> PciAddress {
    Machine::lab().pfs[card].address
}

fn spec(first: u16, device_type: &str) -> Value {
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

fn is(expected: DrainStatus) -> impl Fn(&State) -> bool {
    move |state| status(state).drain_status == Some(expected)
}

/// Returns whether the node is configured with this number of VFs on the first card, and not drained.
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
    let waiting = conditions.into_iter().find(|condition| {
        condition.type_ == "Progressing"
            && condition.reason == "WaitingForDrain"
            && condition.observed_generation == state.metadata.generation
    });
    waiting.map(|condition| condition.message)
}

/// Returns whether a drain is requested and reported in the condition.
fn has_request(state: &State) -> bool {
    is(DrainStatus::DrainRequired)(state) && waiting_text(state).is_some()
}

impl Scene {
    async fn new(node: &'static str) -> Self {
        let cluster = Cluster::new(node, Plane::Drains).await;
        cluster.create_worker(node).await;
        let states: Api<State> = Api::namespaced(cluster.admin_client(), cluster.namespace());
        let state = json!({
            "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovNetworkNodeState",
            "metadata": { "name": node }, "spec": {},
        });
        states.create(&PostParams::default(), &serde_json::from_value(state).unwrap()).await.unwrap();
        Self { cluster, node, states }
    }

    /// Starts with two VFs on each card, which needed no drain.
    async fn with_vfs(node: &'static str, host: &Arc<SimHost>) -> (Self, Agent) {
        let scene = Self::new(node).await;
        let agent = scene.start(host, |_| {}).await;
        scene.wait("idle from the beginning", is(DrainStatus::Idle)).await;
        scene.apply_spec(spec(2, "netdevice")).await;
        let state = scene.wait("first VFs", |state| is_done(state, 2)).await;
        assert_eq!(status(&state).drain_requested_at, None, "no drain was needed");
        (scene, agent)
    }

    async fn start(&self, host: &Arc<SimHost>, set: impl FnOnce(&mut vfleet_agent::Config)) -> Agent {
        Agent::start(&self.cluster, self.node, Arc::clone(host), set).await
    }

    async fn wait(&self, what: &str, like: impl Fn(&State) -> bool) -> State {
        self.cluster.wait_for(self.node, what, like).await
    }

    async fn apply_spec(&self, spec: Value) {
        let patch = Patch::Merge(json!({ "spec": spec }));
        self.states.patch(self.node, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Writes the status as operator.
    async fn write_status(&self, fields: Value) {
        let by = PatchParams { field_manager: Some(OPERATOR_FIELD_MANAGER.to_owned()), ..Default::default() };
        let patch = Patch::Merge(json!({ "status": fields }));
        self.states.patch_status(self.node, &by, &patch).await.unwrap();
    }

    async fn set_drain(&self, status: DrainStatus) {
        self.write_status(json!({ "drainStatus": status })).await;
    }

    /// Writes condition `Blocked` as operator.
    async fn block(&self, message: &str) {
        let condition = json!({
            "type": "Blocked", "status": "True", "reason": "Test", "message": message,
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
        Api::all(self.cluster.admin_client())
    }

    async fn node_annotations(&self) -> [Option<String>; 2] {
        let node = self.nodes().get(self.node).await.unwrap();
        [NODE_DRAIN_STATE, DESIRED_DRAIN_STATE].map(|key| node.annotations().get(key).cloned())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_requests_a_drain_waits_and_applies_its_plan() {
    let host = lab();
    let (scene, agent) = Scene::with_vfs("asks-1", &host).await;
    let before = host.executed_steps();
    scene.apply_spec(spec(3, "netdevice")).await;
    let requested = scene.wait("a request", has_request).await;
    assert_eq!(status(&requested).drain_scope, Some(DrainScope::Partial));
    assert_eq!(StateFacts::of(&requested).writer, StatusWriter::Agent);
    assert_eq!(status(&requested).sync_status.as_deref(), Some("InProgress"));
    let text = waiting_text(&requested).unwrap();
    assert!(text.contains("waiting for the operator to drain the node: pods must leave before"), "{text}");

    // No step runs before the drain is complete.
    scene.set_drain(DrainStatus::Draining).await;
    scene.block("pod a/b may not be evicted").await;
    let is_blocked = |state: &State| waiting_text(state).is_some_and(|text| text.contains("pod a/b may not"));
    scene.wait("the reason in the condition", is_blocked).await;
    assert_eq!(host.executed_steps(), before);

    scene.set_drain(DrainStatus::DrainingComplete).await;
    let done = scene.wait("the work done", |state| is_done(state, 3)).await;
    assert_eq!(status(&done).kept_resources, Some(vec!["other".to_owned()]));
    assert_eq!(StateFacts::of(&done).writer, StatusWriter::Agent);

    // The node is not uncordoned yet: changed resources stay changed.
    scene.apply_spec(spec(2, "netdevice")).await;
    let again = scene.wait("another request", has_request).await;
    assert!(StateFacts::of(&again).request > StateFacts::of(&requested).request);
    assert_eq!(status(&again).kept_resources, Some(vec!["other".to_owned()]));
    scene.set_drain(DrainStatus::DrainDisabled).await;
    scene.wait("done without a drain", |state| is_done(state, 2)).await;

    // The last drain is finished now.
    let last = StateFacts::of(&again).request.unwrap().text();
    let finished = Patch::Merge(json!({ "metadata": { "annotations": { LAST_DRAIN: last } } }));
    scene.nodes().patch(scene.node, &PatchParams::default(), &finished).await.unwrap();
    scene.apply_spec(spec(4, "netdevice")).await;
    let third = scene.wait("a third request", has_request).await;
    assert_eq!(status(&third).kept_resources, None);
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unneeded_request_is_withdrawn() {
    let host = lab();
    let (scene, agent) = Scene::with_vfs("withdraws-1", &host).await;
    let before = host.executed_steps();
    for drain in [DrainStatus::DrainRequired, DrainStatus::Draining] {
        scene.apply_spec(spec(3, "netdevice")).await;
        scene.wait("a request", has_request).await;
        scene.set_drain(drain).await;
        scene.apply_spec(spec(2, "netdevice")).await;
        let idle = scene.wait("idle", |state| is_done(state, 2)).await;
        assert_eq!(status(&idle).kept_resources, Some(vec!["one".to_owned(), "other".to_owned()]));
    }
    assert_eq!(host.executed_steps(), before);
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
async fn a_wider_scope_is_requested_again_and_a_reboot_belongs_to_the_drain() {
    let host = machine_that_must_restart_for_vfio();
    let (scene, agent) = Scene::with_vfs("escalates-1", &host).await;
    let before = host.executed_steps();
    scene.apply_spec(spec(3, "netdevice")).await;
    let partial = scene.wait("a request", has_request).await;
    scene.apply_spec(spec(3, "vfio-pci")).await;
    let is_full = |state: &State| has_request(state) && status(state).drain_scope == Some(DrainScope::Full);
    let full = scene.wait("a request for more", is_full).await;
    assert!(StateFacts::of(&full).request > StateFacts::of(&partial).request);
    assert_eq!(host.executed_steps(), before);

    scene.set_drain(DrainStatus::DrainingComplete).await;
    let gone = async {
        while host.facts().is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), gone).await.expect("the machine restarts");
    agent.end().await;
    scene.wait("drained while it restarts", is(DrainStatus::DrainingComplete)).await;
    let agent = scene.start(&Arc::new(host.new_process()), |_| {}).await;
    let done = scene.wait("the rest done", |state| is_done(state, 3)).await;
    assert_eq!(status(&done).kept_resources, None, "unknown after a reboot");
    assert_eq!(status(&done).drain_requested_at, status(&full).drain_requested_at, "in the same drain");
    agent.end().await;
}

/// Host that runs a hook when its facts are read.
struct HookedHost {
    host: Arc<SimHost>,
    was_read: AtomicBool,
    is_armed: AtomicBool,
    hook: Box<dyn Fn() + Send + Sync>,
}

impl HookedHost {
    fn new(host: &Arc<SimHost>, hook: impl Fn(&Handle) + Send + Sync + 'static) -> Arc<Self> {
        let runtime = Handle::current();
        Arc::new(Self {
            host: Arc::clone(host),
            was_read: AtomicBool::new(false),
            is_armed: AtomicBool::new(false),
            hook: Box::new(move || hook(&runtime)),
        })
    }

    /// Arms the hook for the next read after the first one.
    async fn arm(&self) {
        let first = async {
            while !self.was_read.load(Ordering::SeqCst) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(LONG, first).await.expect("a first read");
        self.is_armed.store(true, Ordering::SeqCst);
    }
}

impl Host for HookedHost {
    fn facts(&self) -> Result<HostFacts, HostError> {
        if self.is_armed.swap(false, Ordering::SeqCst) {
            (self.hook)();
        }
        self.was_read.store(true, Ordering::SeqCst);
        self.host.facts()
    }

    fn start(&self, step: &Step) -> Result<TaskHandle<()>, HostError> {
        self.host.start(step)
    }

    fn on_change(&self, wake: ChangeCallback) -> Result<WatchGuard, HostError> {
        self.host.on_change(wake)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_of_the_operator_is_not_overwritten_by_an_older_decision() {
    let host = machine_that_must_restart_for_vfio();
    let (scene, agent) = Scene::with_vfs("conflict-1", &host).await;
    agent.end().await;
    let scene = Arc::new(scene);
    let then = Arc::clone(&scene);
    let hooked =
        HookedHost::new(&host, move |runtime| runtime.block_on(then.set_drain(DrainStatus::DrainDisabled)));
    let agent = scene.start(&host, |config| config.host = Arc::clone(&hooked) as _).await;
    scene.apply_spec(spec(3, "netdevice")).await;
    let requested = scene.wait("a request", has_request).await;
    hooked.arm().await;
    // The agent would request a wider scope, but the operator disables the drain in the meantime.
    scene.apply_spec(spec(3, "vfio-pci")).await;
    let gone = async {
        while host.facts().is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), gone).await.expect("the agent does not reboot the machine");
    let state = scene.wait("the status of the operator", is(DrainStatus::DrainDisabled)).await;
    assert_eq!(status(&state).drain_requested_at, status(&requested).drain_requested_at);
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_spec_during_a_request_is_not_missed() {
    let host = lab();
    let (scene, agent) = Scene::with_vfs("between-1", &host).await;
    agent.end().await;
    let scene = Arc::new(scene);
    let then = Arc::clone(&scene);
    let hooked =
        HookedHost::new(&host, move |runtime| runtime.block_on(then.apply_spec(spec(4, "netdevice"))));
    let agent = scene.start(&host, |config| config.host = Arc::clone(&hooked) as _).await;
    hooked.arm().await;
    scene.apply_spec(spec(3, "netdevice")).await;
    scene
        .wait("a request for the new spec", |state| {
            state.metadata.generation >= Some(4) && has_request(state)
        })
        .await;
    scene.set_drain(DrainStatus::DrainingComplete).await;
    scene.wait("the new spec applied", |state| is_done(state, 4)).await;
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_continues_after_a_kill() {
    let host = lab();
    let (scene, agent) = Scene::with_vfs("killed-1", &host).await;
    scene.apply_spec(spec(3, "netdevice")).await;
    let requested = scene.wait("a request", has_request).await;
    agent.kill();

    // Killed while waiting: the request is the same, and all changes of this drain are known.
    let (release, blocked_step) = mpsc::channel::<()>();
    let blocked_step = Mutex::new(blocked_step);
    let (step_sender, step_started) = mpsc::channel::<()>();
    let second = Arc::new(host.new_process());
    second.set_step_hook(move |step| {
        if matches!(step, Step::SetNumVfs { .. }) {
            let _ = step_sender.send(());
            let _ = blocked_step.lock().unwrap().recv_timeout(LONG);
        }
    });
    let agent = scene.start(&second, |_| {}).await;
    scene.block("marker of this test").await;
    let is_running = |state: &State| waiting_text(state).is_some_and(|text| text.contains("marker of this"));
    let waiting = scene.wait("the second agent", is_running).await;
    assert_eq!(status(&waiting).drain_requested_at, status(&requested).drain_requested_at);
    scene.set_drain(DrainStatus::DrainingComplete).await;

    // Killed during a step: the third agent does not know what was changed.
    tokio::task::spawn_blocking(move || step_started.recv_timeout(LONG).unwrap()).await.unwrap();
    agent.kill();
    drop(release);
    let third = Arc::new(second.new_process());
    let agent = scene.start(&third, |_| {}).await;
    let done = scene.wait("done by the third", |state| is_done(state, 3)).await;
    assert_eq!(status(&done).kept_resources, None);
    assert_eq!(status(&done).drain_requested_at, status(&requested).drain_requested_at);
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_external_drainer_gets_requests_by_annotations() {
    let host = lab();
    let scene = Scene::new("external-1").await;
    scene.cluster.allow_external_drainer();
    let agent = scene.start(&host, |config| config.uses_external_drainer = true).await;
    let has = |key: &'static str, value: Option<&'static str>| {
        move |state: &State| state.annotations().get(key).map(String::as_str) == value
    };
    scene.wait("its mark", has(USE_EXTERNAL_DRAINER, Some("true"))).await;
    scene.apply_spec(spec(2, "netdevice")).await;
    scene.wait("first VFs", |state| is_done(state, 2)).await;

    // An answer without a request is ignored.
    scene.annotate(CURRENT_DRAIN_STATE, Some("DrainComplete")).await;
    let before = host.executed_steps();
    scene.apply_spec(spec(3, "netdevice")).await;
    let waits = |state: &State| waiting_text(state).is_some_and(|text| text.contains("the previous drain"));
    scene.wait("that it waits for the last drain", waits).await;
    scene.annotate(CURRENT_DRAIN_STATE, Some("Idle")).await;
    let requested = has(DESIRED_DRAIN_STATE, Some("Drain_Required"));
    scene.wait("a request", |state| requested(state) && has_request(state)).await;
    assert_eq!(
        scene.node_annotations().await,
        [Some("Drain_Required".into()), Some("Drain_Required".into())]
    );
    scene.annotate(CURRENT_DRAIN_STATE, Some("Draining")).await;
    assert_eq!(host.executed_steps(), before);

    scene.annotate(CURRENT_DRAIN_STATE, Some("DrainComplete")).await;
    let idle = has(DESIRED_DRAIN_STATE, Some("Idle"));
    scene.wait("the work done", |state| idle(state) && is_done(state, 3)).await;
    assert_eq!(scene.node_annotations().await, [Some("Idle".into()), Some("Idle".into())]);
    agent.end().await;

    // The operator drains again as soon as the external drainer has finished.
    let agent = scene.start(&Arc::new(host.new_process()), |_| {}).await;
    scene.apply_spec(spec(4, "netdevice")).await;
    scene.wait("that it waits for the last drain", waits).await;
    scene.annotate(CURRENT_DRAIN_STATE, None).await;
    let unmarked = has(USE_EXTERNAL_DRAINER, None);
    scene
        .wait("a request to the operator", |state| unmarked(state) && idle(state) && has_request(state))
        .await;
    scene.set_drain(DrainStatus::DrainingComplete).await;
    scene.wait("the work done", |state| is_done(state, 4)).await;
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_access_to_the_annotations_of_the_drainer_is_reported() {
    const REMEDY: &str = "apply deploy/external-drainer.yaml";
    let host = lab();
    let scene = Scene::new("unheard-1").await;
    let agent = scene.start(&host, |config| config.uses_external_drainer = true).await;
    // Steps without a drain run anyway.
    scene.apply_spec(spec(2, "netdevice")).await;
    let has_vfs = |state: &State| {
        let cards = status(state).interfaces.unwrap_or_default();
        cards.iter().any(|card| card.num_vfs == Some(2))
    };
    let is_failed = |state: &State| {
        status(state).last_sync_error.is_some_and(|error| error.contains(REMEDY)) && has_vfs(state)
    };
    let refused = scene.wait("VFs, and an error", is_failed).await;
    assert_eq!(status(&refused).sync_status.as_deref(), Some("Failed"));
    let error = status(&refused).last_sync_error.unwrap();
    assert!(error.contains("cannot patch resource"), "no message of the API server: {error}");
    scene.cluster.expect_event(scene.node, "Warning", "DrainerNotNotified").await;

    // Steps that need a drain wait, and the operator gets no request.
    let before = host.executed_steps();
    scene.apply_spec(spec(3, "netdevice")).await;
    let has = |state: &State| waiting_text(state).is_some_and(|text| text.contains(REMEDY));
    let waits = scene.wait("the remedy", has).await;
    assert_ne!(status(&waits).drain_status, Some(DrainStatus::DrainRequired));
    assert_eq!(host.executed_steps(), before);

    scene.cluster.allow_external_drainer();
    let is_annotated =
        |state: &State| state.annotations().get(DESIRED_DRAIN_STATE).is_some_and(|it| it != "Idle");
    scene.wait("a request", |state| has_request(state) && is_annotated(state)).await;
    scene.annotate(CURRENT_DRAIN_STATE, Some("DrainComplete")).await;
    let done = scene.wait("the work done", |state| is_done(state, 3)).await;
    assert_eq!(status(&done).last_sync_error.as_deref(), Some(""));
    agent.end().await;
}
