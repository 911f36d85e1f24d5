//! What the agent tells the cluster: its node state's status, and events.

use kube::api::{Patch, PatchParams};
use kube::core::Resource;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Api, Client};
use serde_json::json;
use vfleet_api::keys::AGENT_FIELD_MANAGER;
use vfleet_api::{SriovNetworkNodeState, SriovNetworkNodeStateStatus};

/// Writes to the cluster.
pub(crate) struct Speaker {
    states: Api<SriovNetworkNodeState>,
    recorder: Recorder,
}

impl Speaker {
    pub(crate) fn new(client: &Client, namespace: &str, node: &str) -> Self {
        let reporter =
            Reporter { controller: AGENT_FIELD_MANAGER.to_owned(), instance: Some(node.to_owned()) };
        Self {
            states: Api::namespaced(client.clone(), namespace),
            recorder: Recorder::new(client.clone(), reporter),
        }
    }

    /// Writes the agent's part of the status. Gives the node state as it is then.
    pub(crate) async fn status(
        &self,
        node: &str,
        status: &SriovNetworkNodeStateStatus,
    ) -> Result<SriovNetworkNodeState, kube::Error> {
        let object = json!({
            "apiVersion": SriovNetworkNodeState::api_version(&()),
            "kind": SriovNetworkNodeState::kind(&()),
            "metadata": { "name": node },
            "status": status,
        });
        // Forced: what an earlier program (the Go daemon) wrote is taken over.
        let params = PatchParams::apply(AGENT_FIELD_MANAGER).force();
        self.states.patch_status(node, &params, &Patch::Apply(&object)).await
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
            // The API server refuses a longer one.
            note: Some(note.chars().take(1000).collect()),
            action: "Configure".to_owned(),
            secondary: None,
        };
        if let Err(error) = self.recorder.publish(&event, &state.object_ref(&())).await {
            tracing::warn!(%error, reason, "event not written");
        }
    }
}
