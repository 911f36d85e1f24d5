//! Events, for `kubectl describe`.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use vfleet_api::keys::OPERATOR_FIELD_MANAGER;

/// An API server that does not answer must not hold up the work.
const DEADLINE: Duration = Duration::from_secs(30);
/// The API server refuses a longer note.
const LONGEST_NOTE: usize = 1000;

/// Writes Events about objects.
#[derive(Clone)]
pub struct Announcer {
    client: Client,
    reporter: Reporter,
}

impl Announcer {
    pub fn new(client: Client, identity: &str) -> Self {
        let reporter =
            Reporter { controller: OPERATOR_FIELD_MANAGER.to_owned(), instance: Some(identity.to_owned()) };
        Self { client, reporter }
    }

    /// Tells what happened to `about`. An event that cannot be written must not stop the work.
    pub async fn announce(
        &self,
        about: &ObjectReference,
        type_: EventType,
        action: &str,
        reason: &str,
        note: &str,
    ) {
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: Some(note.chars().take(LONGEST_NOTE).collect()),
            action: action.to_owned(),
            secondary: None,
        };
        // A new recorder each time: one that knows an event of the same reason repeats its old note.
        let recorder = Recorder::new(self.client.clone(), self.reporter.clone());
        match tokio::time::timeout(DEADLINE, recorder.publish(&event, about)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, reason, "event not written"),
            Err(error) => tracing::warn!(%error, reason, "event not written"),
        }
    }
}
