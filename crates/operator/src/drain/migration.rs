//! Drains of the Go operator that are under way become ours: annotations move to the node state's status.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::api::Patch;
use kube::runtime::events::EventType;
use kube::{Api, Resource, ResourceExt};
use serde_json::{Value, json};
use vfleet_api::SriovNetworkNodeState;
use vfleet_api::keys::{
    CORDON, CURRENT_DRAIN_STATE, DESIRED_DRAIN_STATE, DRAIN_REQUEST, GO_DRAIN_LEASE, NODE_DRAIN_STATE,
};
use vfleet_api::node_state::DrainStatus;
use vfleet_plan::drain::{Leftover, Migration, Moment, MovedStatus, NodeFacts, StateFacts, plan_migration};

use crate::context::Context;
use crate::patch::{WriteError, Writer};

/// Moves what the Go operator left. Asked for a node when it or its node state changed, before anything is planned for it.
#[derive(Clone)]
pub(crate) struct Migrations {
    context: Context,
    nodes: Api<Node>,
    states: Api<SriovNetworkNodeState>,
    writer: Writer,
    /// What was said about values that mean nothing to us, by node.
    said: Arc<Mutex<HashMap<String, String>>>,
}

impl Migrations {
    pub(crate) fn new(context: &Context) -> Self {
        Self {
            nodes: Api::all(context.client.clone()),
            states: Api::namespaced(context.client.clone(), &context.config.namespace),
            writer: Writer::new(context.leadership.clone()),
            said: Arc::default(),
            context: context.clone(),
        }
    }

    /// What comes next for a node, if the Go operator left something there.
    pub(crate) fn next(
        node: &Node,
        facts: NodeFacts,
        state: &SriovNetworkNodeState,
        has_mcp: bool,
    ) -> Option<Migration> {
        let leftover = Leftover {
            node_annotations: node.annotations(),
            node: facts,
            state_annotations: state.annotations(),
            state: StateFacts::of(state),
            has_mcp,
        };
        plan_migration(&leftover, Moment::from(Timestamp::now()))
    }

    /// Does that. What comes after it shows when the write is seen.
    pub(crate) async fn migrate(
        &self,
        node: &Node,
        state: &SriovNetworkNodeState,
        migration: Migration,
    ) -> Result<(), WriteError> {
        let name = node.name_any();
        match migration {
            Migration::Status(moved) => {
                let patch = status_patch(
                    moved,
                    state.metadata.resource_version.as_deref(),
                    Moment::from(Timestamp::now()),
                );
                self.writer.patch_status(&self.states, &name, &Patch::Merge(patch)).await?;
                tracing::info!(
                    node = name,
                    status = moved.status.as_str(),
                    "a drain of the Go operator goes on"
                );
            }
            Migration::Node(mark) => {
                let mut annotations = json!({ NODE_DRAIN_STATE: null, DESIRED_DRAIN_STATE: null });
                if let Some(mark) = mark {
                    annotations[CORDON] = json!(mark.cordon.text());
                    annotations[DRAIN_REQUEST] = json!(mark.request.text());
                }
                let patch = on_top(node.metadata.resource_version.as_deref(), &annotations);
                self.writer.patch(&self.nodes, &name, &Patch::Merge(patch)).await?;
            }
            Migration::State => {
                let annotations = json!({ DESIRED_DRAIN_STATE: null, CURRENT_DRAIN_STATE: null });
                let patch = on_top(state.metadata.resource_version.as_deref(), &annotations);
                self.writer.patch(&self.states, &name, &Patch::Merge(patch)).await?;
            }
            Migration::Unknown { key, value } => self.tell(state, key, value).await,
        }
        Ok(())
    }

    /// Once for each value.
    async fn tell(&self, state: &SriovNetworkNodeState, key: &str, value: String) {
        let text = format!(
            "annotation {key} says {value:?}, which means nothing here, and stays: remove it, or set it to Idle, once the node is as it shall be"
        );
        let is_told = {
            // Whatever is left there was said.
            let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
            said.insert(state.name_any(), value.clone()) == Some(value)
        };
        if !is_told {
            let about = state.object_ref(&());
            let (type_, reason) = (EventType::Warning, "UnknownDrainState");
            self.context.announcer.announce(&about, type_, "Migrate", reason, &text).await;
        }
    }

    /// Old versions of the Go operator let one node drain at a time, whoever held this lease.
    pub(crate) async fn remove_lease(&self) -> Result<(), WriteError> {
        let leases: Api<Lease> = Api::namespaced(self.context.client.clone(), &self.context.config.namespace);
        match self.writer.read(&leases, GO_DRAIN_LEASE).await? {
            Some(lease) => self.writer.delete(&leases, &lease).await,
            None => Ok(()),
        }
    }
}

fn status_patch(moved: MovedStatus, version: Option<&str>, now: Moment) -> Value {
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
    json!({ "metadata": { "resourceVersion": version }, "status": status })
}

fn on_top(version: Option<&str>, annotations: &Value) -> Value {
    json!({ "metadata": { "resourceVersion": version, "annotations": annotations } })
}

#[cfg(test)]
mod tests {
    use vfleet_api::node_state::DrainScope;

    use super::*;

    #[test]
    fn a_moved_status_can_be_read_back() {
        let (request, now) = (Moment(1_000_001), Moment(2_000_002));
        for status in [DrainStatus::DrainRequired, DrainStatus::Draining, DrainStatus::DrainingComplete] {
            let moved = MovedStatus { status, scope: DrainScope::Full, request };
            let mut object = status_patch(moved, Some("7"), now);
            assert_eq!(object["metadata"]["resourceVersion"], "7");
            object["spec"] = json!({});
            let facts = StateFacts::of(&serde_json::from_value(object).unwrap());
            assert_eq!((facts.status, facts.scope, facts.request), (status, DrainScope::Full, Some(request)));
            assert_eq!(facts.draining_since.is_some(), status == DrainStatus::Draining);
            assert_eq!(facts.completed_at.is_some(), status == DrainStatus::DrainingComplete);
        }
    }
}
