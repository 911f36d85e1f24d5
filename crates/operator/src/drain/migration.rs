//! Drains of the Go operator that are under way become ours: annotations move to the node state's status.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use serde_json::{Value, json};
use vfleet_api::keys::{
    CORDON, CURRENT_DRAIN_STATE, DESIRED_DRAIN_STATE, DRAIN_REQUEST, GO_DRAIN_LEASE, NODE_DRAIN_STATE,
};
use vfleet_api::node_state::DrainStatus;
use vfleet_cluster::write::{WriteError, Writer};
use vfleet_plan::drain::{Migration, Moment, MovedStatus};

use super::objects::Version;
use super::writes::DrainWriter;
use crate::replica::context::Context;

/// What the migration of a node was decided on.
pub(super) struct Place<'a> {
    pub(super) name: &'a str,
    pub(super) node: &'a Version,
    pub(super) state: &'a Version,
}

impl DrainWriter {
    /// Takes the next step of a node's migration; what comes after it shows when the write is seen.
    pub(super) async fn migrate(&self, at: Place<'_>, migration: &Migration) -> Result<(), WriteError> {
        match migration {
            Migration::Status(moved) => {
                let patch = status_patch(*moved, at.state, Moment::from(Timestamp::now()));
                if self.patch_status(at.name, patch).await? {
                    let status = moved.status.as_str();
                    tracing::info!(node = at.name, status, "a drain of the Go operator goes on");
                }
            }
            Migration::Node(mark) => {
                let mut annotations = json!({ NODE_DRAIN_STATE: null, DESIRED_DRAIN_STATE: null });
                if let Some(mark) = mark {
                    annotations[CORDON] = json!(mark.cordon.text());
                    annotations[DRAIN_REQUEST] = json!(mark.request_text(&self.namespace));
                }
                self.patch_node(at.name, at.node, annotations, None).await?;
            }
            Migration::State => {
                let annotations = json!({ DESIRED_DRAIN_STATE: null, CURRENT_DRAIN_STATE: null });
                self.annotate_state(at.name, at.state, annotations).await?;
            }
            Migration::Unknown { .. } => {}
        }
        Ok(())
    }
}

/// What is said about a value that means nothing to us.
pub(super) fn unknown_text(key: &str, value: &str) -> String {
    format!(
        "annotation {key} says {value:?}, which means nothing here, and stays: remove it, or set it to Idle, once the \
         node is as it shall be"
    )
}

/// Old versions of the Go operator let one node drain at a time, whoever held this lease.
pub(super) async fn remove_lease(context: Context) -> Result<(), WriteError> {
    let writer = Writer::new(context.leadership.clone());
    let leases: Api<Lease> = Api::namespaced(context.client.clone(), &context.config.namespace);
    match writer.read(&leases, GO_DRAIN_LEASE).await? {
        Some(lease) => writer.delete(&leases, &lease).await,
        None => Ok(()),
    }
}

fn status_patch(moved: MovedStatus, version: &Version, now: Moment) -> Value {
    let mut status = json!({
        "drainStatus": moved.status,
        "drainScope": moved.scope,
        "drainRequestedAt": moved.request.to_time(),
    });
    match moved.status {
        DrainStatus::Draining => status["drainingSince"] = json!(now.to_time()),
        DrainStatus::DrainingComplete => status["drainCompletedAt"] = json!(now.to_time()),
        _ => {}
    }
    json!({ "metadata": { "resourceVersion": version.as_str() }, "status": status })
}

#[cfg(test)]
mod tests {
    use vfleet_api::SriovNetworkNodeState;
    use vfleet_api::node_state::DrainScope;
    use vfleet_plan::drain::StateFacts;

    use super::*;

    #[test]
    fn a_moved_status_can_be_read_back() {
        let (request, now) = (Moment(1_000_001), Moment(2_000_002));
        for status in [DrainStatus::DrainRequired, DrainStatus::Draining, DrainStatus::DrainingComplete] {
            let moved = MovedStatus { status, scope: DrainScope::Full, request };
            let mut object = status_patch(moved, &Version::from("7"), now);
            assert_eq!(object["metadata"]["resourceVersion"], "7");
            object["spec"] = json!({});
            let facts = StateFacts::of(&serde_json::from_value::<SriovNetworkNodeState>(object).unwrap());
            assert_eq!((facts.status, facts.scope, facts.request), (status, DrainScope::Full, Some(request)));
            assert_eq!(facts.draining_since.is_some(), status == DrainStatus::Draining);
            assert_eq!(facts.completed_at.is_some(), status == DrainStatus::DrainingComplete);
        }
    }
}
