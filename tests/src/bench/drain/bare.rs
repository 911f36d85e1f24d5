//! Bare loop of drains: the writes, Events and evictions, and nothing else.

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
use super::sim::create_pods;
use super::{BARE, DrainSetup};

/// Number of nodes in parallel; the same as in the operator.
const CONCURRENT_NODES: usize = 64;

/// Nodes without agents and without an operator.
pub(super) struct BareDrain {
    /// Client whose requests are measured.
    api: Client,
    /// Client for preparations.
    administrator: Client,
    nodes: usize,
}

/// Node states before and after a change.
pub(super) struct Examples<'a> {
    pub(super) before: &'a SriovNetworkNodeState,
    pub(super) after: &'a SriovNetworkNodeState,
}

impl BareDrain {
    /// Creates the nodes, with node states like `example`.
    pub(super) async fn new(setup: &DrainSetup<'_>, example: &SriovNetworkNodeState) -> Result<Self> {
        let nodes: Api<Node> = Api::all(setup.client.clone());
        let states = states(setup.client, BARE);
        let bare =
            Self { api: setup.bare_loop.clone(), administrator: setup.client.clone(), nodes: setup.nodes };
        for_each(bare.names(), async |name| {
            let node = fleet::object("v1", "Node", &name);
            nodes.create(&PostParams::default(), &serde_json::from_value(node)?).await?;
            let mut state = fleet::object("sriovnetwork.openshift.io/v1", "SriovNetworkNodeState", &name);
            state["spec"] = json!({});
            states.create(&PostParams::default(), &serde_json::from_value(state)?).await?;
            Ok(())
        })
        .await?;
        // Run once, so that the first measured run finds the same objects as the others.
        bare.run(&Examples { before: example, after: example }).await?;
        Ok(bare)
    }

    fn names(&self) -> impl Iterator<Item = String> + use<> {
        (1..=self.nodes).map(|number| format!("bare-{number}"))
    }

    /// Drains all nodes with a pod each, and writes the status that agents write.
    pub(super) async fn run(&self, examples: &Examples<'_>) -> Result<Duration> {
        create_pods(&self.administrator, BARE, self.names()).await?;
        let worker = DrainWorker::new(self, examples);
        let started = Instant::now();
        // Each node has its own task, as in the operator, so that all cores are used.
        let drains = stream::iter(self.names()).map(|name| tokio::spawn(worker.clone().drain(name)));
        drains.buffer_unordered(CONCURRENT_NODES).map(|drained| drained?).try_collect::<()>().await?;
        Ok(started.elapsed())
    }
}

/// Worker that drains one node.
#[derive(Clone)]
struct DrainWorker {
    states: Api<SriovNetworkNodeState>,
    nodes: Api<Node>,
    pods: Api<Pod>,
    recorder: Recorder,
    spec: Value,
    /// Status before and after the change.
    statuses: [Value; 2],
}

impl DrainWorker {
    fn new(bare: &BareDrain, examples: &Examples<'_>) -> Self {
        Self {
            states: states(&bare.api, BARE),
            nodes: Api::all(bare.api.clone()),
            pods: Api::namespaced(bare.api.clone(), BARE),
            recorder: Recorder::new(bare.api.clone(), "bare-loop".into()),
            spec: json!(examples.after.spec),
            statuses: [examples.before, examples.after].map(agent_status),
        }
    }

    async fn drain(self, name: String) -> Result<()> {
        let request = Timestamp::now().to_string();
        self.write_spec(&name, &request).await?;
        let request_status = json!({
            "drainStatus": "Drain_Required", "drainScope": "Partial", "drainRequestedAt": request, "drainRetry": null,
        });
        let [before, after] = &self.statuses;
        self.report(&name, before, "InProgress", "waiting").await?;
        self.write_status(&name, AGENT_FIELD_MANAGER, request_status).await?;
        let now = Timestamp::now().to_string();
        self.write_status(
            &name,
            OPERATOR_FIELD_MANAGER,
            json!({ "drainStatus": "Draining", "drainingSince": now }),
        )
        .await?;
        self.publish_event(&name, "Draining").await?;
        let mark = json!({ CORDON: "ours", DRAIN_REQUEST: request });
        self.write_mark(&name, mark, json!(true)).await?;
        self.pods.evict(&name, &EvictParams::default()).await?;
        let now = Timestamp::now().to_string();
        let complete = json!({ "drainStatus": "Draining_Complete", "drainCompletedAt": now });
        self.write_status(&name, OPERATOR_FIELD_MANAGER, complete).await?;
        self.publish_event(&name, "Drained").await?;
        self.report(&name, before, "InProgress", "applying").await?;
        self.publish_event(&name, "Configuring").await?;
        self.report(&name, after, "Succeeded", "done").await?;
        self.publish_event(&name, "Succeeded").await?;
        self.write_status(&name, AGENT_FIELD_MANAGER, json!({ "drainStatus": "Idle" })).await?;
        let mark = json!({ CORDON: null, DRAIN_REQUEST: null, LAST_DRAIN: request });
        self.write_mark(&name, mark, Value::Null).await?;
        self.publish_event(&name, "Uncordoned").await
    }

    async fn publish_event(&self, name: &str, reason: &str) -> Result<()> {
        let event = Event {
            type_: EventType::Normal,
            reason: reason.to_owned(),
            note: Some("a note that is about as long as the notes of the operator".to_owned()),
            action: "Drain".to_owned(),
            secondary: None,
        };
        let regarding = ObjectReference {
            api_version: Some(SriovNetworkNodeState::api_version(&()).into_owned()),
            kind: Some(SriovNetworkNodeState::kind(&()).into_owned()),
            namespace: Some(BARE.to_owned()),
            name: Some(name.to_owned()),
            // A different UID each time, because repeated Events are merged.
            uid: Some(Timestamp::now().to_string()),
            ..Default::default()
        };
        Ok(self.recorder.publish(&event, &regarding).await?)
    }

    /// Writes the spec of the node state, which differs each time.
    async fn write_spec(&self, name: &str, request: &str) -> Result<()> {
        let mut state = fleet::object("sriovnetwork.openshift.io/v1", "SriovNetworkNodeState", name);
        state["spec"] = self.spec.clone();
        state["spec"]["interfaces"][0]["vfGroups"][0]["policyName"] = json!(request);
        let params = PatchParams::apply(OPERATOR_FIELD_MANAGER).force();
        self.states.patch(name, &params, &Patch::Apply(&state)).await?;
        Ok(())
    }

    async fn write_status(&self, name: &str, field_manager: &str, status: Value) -> Result<()> {
        let params = PatchParams { field_manager: Some(field_manager.to_owned()), ..Default::default() };
        self.states.patch_status(name, &params, &Patch::Merge(json!({ "status": status }))).await?;
        Ok(())
    }

    /// Applies the whole status of the agent.
    async fn report(&self, name: &str, status: &Value, sync_status: &str, error: &str) -> Result<()> {
        let mut state = fleet::object("sriovnetwork.openshift.io/v1", "SriovNetworkNodeState", name);
        state["status"] = status.clone();
        state["status"]["syncStatus"] = json!(sync_status);
        state["status"]["lastSyncError"] = json!(error);
        let params = PatchParams::apply(AGENT_FIELD_MANAGER).force();
        self.states.patch_status(name, &params, &Patch::Apply(&state)).await?;
        Ok(())
    }

    async fn write_mark(&self, name: &str, annotations: Value, unschedulable: Value) -> Result<()> {
        let params =
            PatchParams { field_manager: Some(OPERATOR_FIELD_MANAGER.to_owned()), ..Default::default() };
        let patch =
            json!({ "metadata": { "annotations": annotations }, "spec": { "unschedulable": unschedulable } });
        self.nodes.patch(name, &params, &Patch::Merge(patch)).await?;
        Ok(())
    }
}

/// Returns the part of a status that agents apply as a whole.
fn agent_status(state: &SriovNetworkNodeState) -> Value {
    let mut status = json!(state.status);
    for field in ["drainStatus", "drainScope", "drainRequestedAt", "drainingSince", "drainCompletedAt"] {
        status[field] = Value::Null;
    }
    if let Some(fields) = status.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    status
}
