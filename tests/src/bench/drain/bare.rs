//! The writes and evictions of all drains, Events among them, and nothing else.

use std::time::{Duration, Instant};

use anyhow::Result;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Node, ObjectReference, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{EvictParams, Patch, PatchParams, PostParams};
use kube::runtime::events::{Event, EventType, Recorder};
use kube::{Api, Client, Resource};
use serde_json::{Value, json};
use vfleet_api::SriovNetworkNodeState;
use vfleet_api::keys::{AGENT_FIELD_MANAGER, CORDON, DRAIN_REQUEST, LAST_DRAIN, OPERATOR_FIELD_MANAGER};

use super::super::fleet::{self, for_each, states};
use super::sim::make_pods;
use super::{BARE, Scene};

/// As many nodes as the operator works on.
const AT_ONCE: usize = 64;

/// Nodes without agents, and without an operator that looks at them.
pub(super) struct BareDrain {
    /// Whose requests count.
    api: Client,
    /// Who prepares it.
    administrator: Client,
    nodes: usize,
}

/// What the node states look like before and after a change.
pub(super) struct Examples<'a> {
    pub(super) before: &'a SriovNetworkNodeState,
    pub(super) after: &'a SriovNetworkNodeState,
}

impl BareDrain {
    /// `example`: what their node states look like.
    pub(super) async fn new(scene: &Scene<'_>, example: &SriovNetworkNodeState) -> Result<Self> {
        let nodes: Api<Node> = Api::all(scene.client.clone());
        let states = states(scene.client, BARE);
        let bare =
            Self { api: scene.bare_loop.clone(), administrator: scene.client.clone(), nodes: scene.nodes };
        for_each(bare.names(), async |name| {
            let node = fleet::object("v1", "Node", &name);
            nodes.create(&PostParams::default(), &serde_json::from_value(node)?).await?;
            let mut state = fleet::object("sriovnetwork.openshift.io/v1", "SriovNetworkNodeState", &name);
            state["spec"] = json!({});
            states.create(&PostParams::default(), &serde_json::from_value(state)?).await?;
            Ok(())
        })
        .await?;
        // What is there before the first time is there before the others.
        bare.run(&Examples { before: example, after: example }).await?;
        Ok(bare)
    }

    fn names(&self) -> impl Iterator<Item = String> + use<> {
        (1..=self.nodes).map(|number| format!("bare-{number}"))
    }

    /// Drains all nodes, each with a pod, and writes of them what the agents write.
    pub(super) async fn run(&self, examples: &Examples<'_>) -> Result<Duration> {
        make_pods(&self.administrator, BARE, self.names()).await?;
        let hand = Hand::new(self, examples);
        let started = Instant::now();
        // Each node is a task of its own, as the operator's are: all cores take part.
        let drains = stream::iter(self.names()).map(|name| tokio::spawn(hand.clone().drain(name)));
        drains.buffer_unordered(AT_ONCE).map(|drained| drained?).try_collect::<()>().await?;
        Ok(started.elapsed())
    }
}

/// Who does it all.
#[derive(Clone)]
struct Hand {
    states: Api<SriovNetworkNodeState>,
    nodes: Api<Node>,
    pods: Api<Pod>,
    recorder: Recorder,
    spec: Value,
    /// Before and after the change.
    statuses: [Value; 2],
}

impl Hand {
    fn new(bare: &BareDrain, examples: &Examples<'_>) -> Self {
        Self {
            states: states(&bare.api, BARE),
            nodes: Api::all(bare.api.clone()),
            pods: Api::namespaced(bare.api.clone(), BARE),
            recorder: Recorder::new(bare.api.clone(), "bare-loop".into()),
            spec: json!(examples.after.spec),
            statuses: [examples.before, examples.after].map(written_by_agents),
        }
    }

    async fn drain(self, name: String) -> Result<()> {
        let request = Timestamp::now().to_string();
        self.plan(&name, &request).await?;
        let asks = json!({
            "drainStatus": "Drain_Required", "drainScope": "Partial", "drainRequestedAt": request, "drainRetry": null,
        });
        let [before, after] = &self.statuses;
        self.report(&name, before, "InProgress", "waits").await?;
        self.set(&name, AGENT_FIELD_MANAGER, asks).await?;
        let now = Timestamp::now().to_string();
        self.set(&name, OPERATOR_FIELD_MANAGER, json!({ "drainStatus": "Draining", "drainingSince": now }))
            .await?;
        self.tell(&name, "Draining").await?;
        let mark = json!({ CORDON: "ours", DRAIN_REQUEST: request });
        self.mark(&name, mark, json!(true)).await?;
        self.pods.evict(&name, &EvictParams::default()).await?;
        let now = Timestamp::now().to_string();
        let complete = json!({ "drainStatus": "Draining_Complete", "drainCompletedAt": now });
        self.set(&name, OPERATOR_FIELD_MANAGER, complete).await?;
        self.tell(&name, "Drained").await?;
        self.report(&name, before, "InProgress", "works").await?;
        self.tell(&name, "Configuring").await?;
        self.report(&name, after, "Succeeded", "is done").await?;
        self.tell(&name, "Succeeded").await?;
        self.set(&name, AGENT_FIELD_MANAGER, json!({ "drainStatus": "Idle" })).await?;
        let mark = json!({ CORDON: null, DRAIN_REQUEST: null, LAST_DRAIN: request });
        self.mark(&name, mark, Value::Null).await?;
        self.tell(&name, "Uncordoned").await
    }

    async fn tell(&self, name: &str, reason: &str) -> Result<()> {
        let event = Event {
            type_: EventType::Normal,
            reason: reason.to_owned(),
            note: Some("something to read, about as long as what is said otherwise".to_owned()),
            action: "Drain".to_owned(),
            secondary: None,
        };
        let about = ObjectReference {
            api_version: Some(SriovNetworkNodeState::api_version(&()).into_owned()),
            kind: Some(SriovNetworkNodeState::kind(&()).into_owned()),
            namespace: Some(BARE.to_owned()),
            name: Some(name.to_owned()),
            // Another one each time, or it would only be counted.
            uid: Some(Timestamp::now().to_string()),
            ..Default::default()
        };
        Ok(self.recorder.publish(&event, &about).await?)
    }

    /// What the operator wants of the node: something else each time.
    async fn plan(&self, name: &str, request: &str) -> Result<()> {
        let mut state = fleet::object("sriovnetwork.openshift.io/v1", "SriovNetworkNodeState", name);
        state["spec"] = self.spec.clone();
        state["spec"]["interfaces"][0]["vfGroups"][0]["policyName"] = json!(request);
        let params = PatchParams::apply(OPERATOR_FIELD_MANAGER).force();
        self.states.patch(name, &params, &Patch::Apply(&state)).await?;
        Ok(())
    }

    async fn set(&self, name: &str, writer: &str, status: Value) -> Result<()> {
        let params = PatchParams { field_manager: Some(writer.to_owned()), ..Default::default() };
        self.states.patch_status(name, &params, &Patch::Merge(json!({ "status": status }))).await?;
        Ok(())
    }

    /// The agent's whole status.
    async fn report(&self, name: &str, status: &Value, sync_status: &str, error: &str) -> Result<()> {
        let mut state = fleet::object("sriovnetwork.openshift.io/v1", "SriovNetworkNodeState", name);
        state["status"] = status.clone();
        state["status"]["syncStatus"] = json!(sync_status);
        state["status"]["lastSyncError"] = json!(error);
        let params = PatchParams::apply(AGENT_FIELD_MANAGER).force();
        self.states.patch_status(name, &params, &Patch::Apply(&state)).await?;
        Ok(())
    }

    async fn mark(&self, name: &str, annotations: Value, unschedulable: Value) -> Result<()> {
        let params =
            PatchParams { field_manager: Some(OPERATOR_FIELD_MANAGER.to_owned()), ..Default::default() };
        let patch =
            json!({ "metadata": { "annotations": annotations }, "spec": { "unschedulable": unschedulable } });
        self.nodes.patch(name, &params, &Patch::Merge(patch)).await?;
        Ok(())
    }
}

/// The part of a status that agents write as a whole.
fn written_by_agents(state: &SriovNetworkNodeState) -> Value {
    let mut status = json!(state.status);
    for field in ["drainStatus", "drainScope", "drainRequestedAt", "drainingSince", "drainCompletedAt"] {
        status[field] = Value::Null;
    }
    if let Some(fields) = status.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    status
}
