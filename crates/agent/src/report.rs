//! What the agent tells the cluster: its node state's status, and events.

use std::fmt::Debug;
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::core::Resource;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Api, Client};
use serde::Serialize;
use serde_json::json;
use thiserror::Error;
use vfleet_api::keys::AGENT_FIELD_MANAGER;
use vfleet_api::{SriovNetworkNodeState, SriovNetworkNodeStateStatus};

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
}

/// Writes to the cluster.
pub(crate) struct Speaker {
    client: Client,
    states: Api<SriovNetworkNodeState>,
    reporter: Reporter,
}

impl Speaker {
    pub(crate) fn new(client: &Client, namespace: &str, node: &str) -> Self {
        let reporter =
            Reporter { controller: AGENT_FIELD_MANAGER.to_owned(), instance: Some(node.to_owned()) };
        Self { client: client.clone(), states: Api::namespaced(client.clone(), namespace), reporter }
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
