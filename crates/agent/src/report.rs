//! What the agent tells the cluster: its node state's status, and events.

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::core::Resource;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Api, Client, ResourceExt};
use serde::Serialize;
use serde_json::{Value, json};
use thiserror::Error;
use vfleet_api::keys::{AGENT_FIELD_MANAGER, DESIRED_DRAIN_STATE, LAST_DRAIN, NODE_DRAIN_STATE};
use vfleet_api::{SriovNetworkNodeState, SriovNetworkNodeStateStatus};
use vfleet_plan::drain::Moment;

/// An API server that does not answer must not keep the agent from its machine.
const DEADLINE: Duration = Duration::from_secs(30);
/// The API server refuses a longer note.
const LONGEST_NOTE: usize = 1000;

/// Why something could not be told.
#[derive(Debug, Error)]
pub(crate) enum ReportError {
    #[error("the API server refused it")]
    Api(#[from] kube::Error),
    #[error("the API server did not answer within {DEADLINE:?}")]
    Deadline(#[from] tokio::time::error::Elapsed),
    #[error("others changed the node state each time before what is to be said about its drain was written")]
    Contended,
    #[error(
        "the external drainer cannot be told: agents need more rights for that; apply deploy/external-drainer.yaml \
         (`vfleet manifests --dir` writes it)"
    )]
    DrainerForbidden(#[source] kube::Error),
}

impl ReportError {
    /// Whether somebody else changed the object meanwhile.
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self, Self::Api(kube::Error::Api(status)) if status.is_conflict())
    }

    /// Why something for an external drainer could not be written.
    fn to_drainer(error: kube::Error) -> Self {
        match &error {
            kube::Error::Api(status) if status.is_forbidden() => Self::DrainerForbidden(error),
            _ => Self::Api(error),
        }
    }
}

/// Writes to the cluster.
pub(crate) struct Speaker {
    client: Client,
    states: Api<SriovNetworkNodeState>,
    nodes: Api<Node>,
    reporter: Reporter,
}

impl Speaker {
    pub(crate) fn new(client: &Client, namespace: &str, node: &str) -> Self {
        let reporter =
            Reporter { controller: AGENT_FIELD_MANAGER.to_owned(), instance: Some(node.to_owned()) };
        Self {
            client: client.clone(),
            states: Api::namespaced(client.clone(), namespace),
            nodes: Api::all(client.clone()),
            reporter,
        }
    }

    /// Writes the agent's part of the status. Gives the node state as it is then.
    pub(crate) async fn status(
        &self,
        node: &str,
        status: &SriovNetworkNodeStateStatus,
    ) -> Result<SriovNetworkNodeState, ReportError> {
        let object = json!({
            "apiVersion": SriovNetworkNodeState::api_version(&()),
            "kind": SriovNetworkNodeState::kind(&()),
            "metadata": { "name": node },
            "status": status,
        });
        // Forced: what an earlier program (the Go daemon) wrote is taken over.
        let params = PatchParams::apply(AGENT_FIELD_MANAGER).force();
        let written = self.patch_status(node, &params, &Patch::Apply(&object)).await?;
        // What is not said any more goes only where nobody else has said it: the Go daemon may have.
        let is_stale =
            status.system.is_none() && written.status.as_ref().is_some_and(|is| is.system.is_some());
        if !is_stale {
            return Ok(written);
        }
        let without = Patch::Merge(json!({ "status": { "system": null } }));
        self.patch_status(node, &PatchParams::default(), &without).await
    }

    /// Writes what is about the drain in the status, unless somebody changed `state` meanwhile.
    pub(crate) async fn drain(
        &self,
        state: &SriovNetworkNodeState,
        fields: &Value,
    ) -> Result<SriovNetworkNodeState, ReportError> {
        let version = &state.metadata.resource_version;
        let patch = Patch::Merge(json!({ "metadata": { "resourceVersion": version }, "status": fields }));
        self.patch_status(&state.name_any(), &by_us(), &patch).await
    }

    /// Writes annotations of the node state for an external drainer, unless somebody changed `state` meanwhile.
    pub(crate) async fn annotate(
        &self,
        state: &SriovNetworkNodeState,
        annotations: &Value,
    ) -> Result<SriovNetworkNodeState, ReportError> {
        let version = &state.metadata.resource_version;
        let metadata = json!({ "resourceVersion": version, "annotations": annotations });
        let (name, patch) = (state.name_any(), Patch::Merge(json!({ "metadata": metadata })));
        let written = tokio::time::timeout(DEADLINE, self.states.patch(&name, &by_us(), &patch)).await?;
        written.map_err(ReportError::to_drainer)
    }

    /// Writes on the node what an external drainer is asked for.
    pub(crate) async fn annotate_node(&self, node: &str, request: &str) -> Result<(), ReportError> {
        let annotations = json!({ NODE_DRAIN_STATE: request, DESIRED_DRAIN_STATE: request });
        let patch = Patch::Merge(json!({ "metadata": { "annotations": annotations } }));
        let written =
            tokio::time::timeout(DEADLINE, self.nodes.patch_metadata(node, &by_us(), &patch)).await?;
        written.map(drop).map_err(ReportError::to_drainer)
    }

    /// The node state as it is now.
    pub(crate) async fn node_state(&self, node: &str) -> Result<SriovNetworkNodeState, ReportError> {
        Ok(tokio::time::timeout(DEADLINE, self.states.get(node)).await??)
    }

    /// The last drain of the node that is over.
    pub(crate) async fn last_drain(&self, node: &str) -> Result<Option<Moment>, ReportError> {
        let node = tokio::time::timeout(DEADLINE, self.nodes.get_metadata(node)).await??;
        Ok(node.annotations().get(LAST_DRAIN).and_then(|text| Moment::parse(text)))
    }

    async fn patch_status<P: Serialize + Debug + Sync>(
        &self,
        node: &str,
        params: &PatchParams,
        patch: &Patch<P>,
    ) -> Result<SriovNetworkNodeState, ReportError> {
        Ok(tokio::time::timeout(DEADLINE, self.states.patch_status(node, params, patch)).await??)
    }

    /// Tells what happened, for `kubectl describe`. An event that cannot be written must not stop the work.
    pub(crate) async fn event(
        &self,
        state: &SriovNetworkNodeState,
        type_: EventType,
        reason: &str,
        note: &str,
    ) {
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: Some(note.chars().take(LONGEST_NOTE).collect()),
            action: "Configure".to_owned(),
            secondary: None,
        };
        // A new recorder each time: one that knows an event of the same reason repeats its old note.
        let recorder = Recorder::new(self.client.clone(), self.reporter.clone());
        let about = state.object_ref(&());
        match tokio::time::timeout(DEADLINE, recorder.publish(&event, &about)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, reason, "event not written"),
            Err(error) => tracing::warn!(%error, reason, "event not written"),
        }
    }
}

/// Not server-side apply: those fields are also others' to write, and each has the writer's name on it.
fn by_us() -> PatchParams {
    PatchParams { field_manager: Some(AGENT_FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}
