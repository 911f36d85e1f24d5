//! Events on the node state from tasks that run beside the attempts of the agent.

use kube::Client;
use kube::runtime::events::EventType;
use vfleet_host::format_error_chain;

use crate::cluster_writer::ClusterWriter;

/// Content of an Event.
#[derive(Clone, Debug)]
pub(crate) struct Notice {
    pub(crate) type_: EventType,
    pub(crate) reason: &'static str,
    pub(crate) note: String,
}

/// Writer of Events on the node state.
pub(crate) struct EventSink {
    writer: ClusterWriter,
    node: String,
}

impl EventSink {
    pub(crate) fn new(client: &Client, namespace: &str, node: &str) -> Self {
        Self { writer: ClusterWriter::new(client, namespace, node), node: node.to_owned() }
    }

    /// Emits an Event for each notice. What is in the log already is not repeated later if that fails.
    pub(crate) async fn emit(&self, notices: &[Notice]) {
        if notices.is_empty() {
            return;
        }
        match self.writer.read_node_state(&self.node).await {
            Ok(state) => {
                for Notice { type_, reason, note } in notices {
                    self.writer.emit_event(&state, *type_, reason, note).await;
                }
            }
            Err(error) => {
                let reasons: Vec<_> = notices.iter().map(|notice| notice.reason).collect();
                let (reasons, error) = (reasons.join(","), format_error_chain(&error));
                tracing::warn!(node = self.node, error, reasons, "cannot write Events");
            }
        }
    }
}
