//! Kubernetes Events.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use vfleet_api::keys::OPERATOR_FIELD_MANAGER;

/// Limit for one request, so that an API server that does not answer does not block reconciliation.
const DEADLINE: Duration = Duration::from_secs(30);
/// The API server rejects longer notes (1 KiB).
const MAX_NOTE_LENGTH: usize = 1000;

/// Writer of Events about objects.
#[derive(Clone)]
pub struct EventRecorder {
    client: Client,
    reporter: Reporter,
}

impl EventRecorder {
    /// Creates a recorder that reports as replica `identity` of the operator.
    pub fn new(client: Client, identity: &str) -> Self {
        let reporter =
            Reporter { controller: OPERATOR_FIELD_MANAGER.to_owned(), instance: Some(identity.to_owned()) };
        Self { client, reporter }
    }

    /// Writes an Event about `object`. A failure is only logged, because Events are not worth a retry.
    pub async fn record(
        &self,
        object: &ObjectReference,
        type_: EventType,
        action: &str,
        reason: &str,
        note: &str,
    ) {
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: Some(note.chars().take(MAX_NOTE_LENGTH).collect()),
            action: action.to_owned(),
            secondary: None,
        };
        // A recorder that has written an Event with the same reason would repeat its old note: use a new one each time.
        let recorder = Recorder::new(self.client.clone(), self.reporter.clone());
        match tokio::time::timeout(DEADLINE, recorder.publish(&event, object)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, reason, "Event not written"),
            Err(error) => tracing::warn!(%error, reason, "Event not written"),
        }
    }
}
