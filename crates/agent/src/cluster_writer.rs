//! Writes of the agent to the cluster: status and annotations of its node state, and Events.

use std::collections::BTreeMap;
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
use vfleet_api::bridge::Bridges;
use vfleet_api::keys::{AGENT_FIELD_MANAGER, DESIRED_DRAIN_STATE, LAST_DRAIN, NODE_DRAIN_STATE};
use vfleet_api::{SriovNetworkNodeState, SriovNetworkNodeStateStatus};
use vfleet_host::format_error_chain;
use vfleet_plan::bridge_resources::{BRIDGE_QUANTITY, CapacityChange};
use vfleet_plan::drain::Moment;

/// Longest time that a request may take. An API server that does not respond must not keep the agent from its machine.
const DEADLINE: Duration = Duration::from_secs(30);
/// Length of an Event's note. The API server rejects notes of more than 1,024 characters.
const MAX_NOTE_LENGTH: usize = 1000;

/// Error of a write to the cluster.
#[derive(Debug, Error)]
pub(crate) enum ClusterWriteError {
    #[error("the API server rejected the request")]
    Api(#[from] kube::Error),
    #[error("the API server did not respond within {} s", DEADLINE.as_secs())]
    Deadline(#[from] tokio::time::error::Elapsed),
    #[error(
        "cannot write the drain status: another client changed the node state before every attempt to write it"
    )]
    Contended,
    #[error(
        "cannot write the capacity of the Node: the agents' role does not allow it; apply \
         deploy/ovs-bridge-resources.yaml (`vfleet manifests --dir` writes it)"
    )]
    CapacityForbidden(#[source] kube::Error),
    #[error(
        "cannot annotate objects for the external drainer: the agents' role does not allow it; apply \
         deploy/external-drainer.yaml (`vfleet manifests --dir` writes it)"
    )]
    DrainerForbidden(#[source] kube::Error),
}

impl ClusterWriteError {
    /// Returns whether another client changed the object meanwhile.
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self, Self::Api(kube::Error::Api(status)) if status.is_conflict())
    }

    /// Returns the error of a write for an external drainer.
    fn of_drainer_write(error: kube::Error) -> Self {
        match &error {
            kube::Error::Api(status) if status.is_forbidden() => Self::DrainerForbidden(error),
            _ => Self::Api(error),
        }
    }
}

/// Writer of everything that the agent reports to the cluster.
pub(crate) struct ClusterWriter {
    client: Client,
    states: Api<SriovNetworkNodeState>,
    nodes: Api<Node>,
    reporter: Reporter,
}

impl ClusterWriter {
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

    /// Writes the agent's part of the status. Returns the node state after the write.
    pub(crate) async fn write_status(
        &self,
        node: &str,
        status: &SriovNetworkNodeStateStatus,
    ) -> Result<SriovNetworkNodeState, ClusterWriteError> {
        let object = json!({
            "apiVersion": SriovNetworkNodeState::api_version(&()),
            "kind": SriovNetworkNodeState::kind(&()),
            "metadata": { "name": node },
            "status": status,
        });
        // Forced: fields of an earlier program (the Go daemon) are taken over.
        let params = PatchParams::apply(AGENT_FIELD_MANAGER).force();
        let written = self.patch_status(node, &params, &Patch::Apply(&object)).await?;
        // Apply removes an omitted field only if no other manager owns it, and the Go daemon may own it.
        let found = written.status.as_ref();
        let mut stale = serde_json::Map::new();
        if status.system.is_none() && found.is_some_and(|found| found.system.is_some()) {
            stale.insert("system".to_owned(), Value::Null);
        }
        let bridges = stale_bridges(found.and_then(|found| found.bridges.as_ref()), status.bridges.as_ref());
        if let Some(bridges) = bridges {
            stale.insert("bridges".to_owned(), bridges);
        }
        if stale.is_empty() {
            return Ok(written);
        }
        let without = Patch::Merge(json!({ "status": stale }));
        self.patch_status(node, &PatchParams::default(), &without).await
    }

    /// Writes the drain fields of the status, unless another client changed `state` meanwhile.
    pub(crate) async fn write_drain(
        &self,
        state: &SriovNetworkNodeState,
        fields: &Value,
    ) -> Result<SriovNetworkNodeState, ClusterWriteError> {
        let version = &state.metadata.resource_version;
        let patch = Patch::Merge(json!({ "metadata": { "resourceVersion": version }, "status": fields }));
        self.patch_status(&state.name_any(), &as_agent(), &patch).await
    }

    /// Writes annotations of the node state for an external drainer, unless another client changed `state` meanwhile.
    pub(crate) async fn annotate(
        &self,
        state: &SriovNetworkNodeState,
        annotations: &Value,
    ) -> Result<SriovNetworkNodeState, ClusterWriteError> {
        let version = &state.metadata.resource_version;
        let metadata = json!({ "resourceVersion": version, "annotations": annotations });
        let (name, patch) = (state.name_any(), Patch::Merge(json!({ "metadata": metadata })));
        let written = tokio::time::timeout(DEADLINE, self.states.patch(&name, &as_agent(), &patch)).await?;
        written.map_err(ClusterWriteError::of_drainer_write)
    }

    /// Writes the request to an external drainer into annotations of the Node object.
    pub(crate) async fn annotate_node(&self, node: &str, request: &str) -> Result<(), ClusterWriteError> {
        let annotations = json!({ NODE_DRAIN_STATE: request, DESIRED_DRAIN_STATE: request });
        let patch = Patch::Merge(json!({ "metadata": { "annotations": annotations } }));
        let written =
            tokio::time::timeout(DEADLINE, self.nodes.patch_metadata(node, &as_agent(), &patch)).await?;
        written.map(drop).map_err(ClusterWriteError::of_drainer_write)
    }

    /// Writes resources of bridges in the capacity of the Node. Returns the Node after the write.
    pub(crate) async fn write_capacity(
        &self,
        node: &str,
        change: &CapacityChange,
    ) -> Result<Node, ClusterWriteError> {
        let written = match change {
            CapacityChange::Apply(resources) => {
                let capacity: BTreeMap<_, _> = resources.iter().map(|name| (name, BRIDGE_QUANTITY)).collect();
                let object = json!({
                    "apiVersion": Node::api_version(&()),
                    "kind": Node::kind(&()),
                    "metadata": { "name": node },
                    "status": { "capacity": capacity },
                });
                // Forced: the kubelet owns a quantity that it reset.
                let params = PatchParams::apply(AGENT_FIELD_MANAGER).force();
                self.patch_node_status(node, &params, &Patch::Apply(&object)).await
            }
            CapacityChange::Remove(resources) => {
                let capacity: BTreeMap<_, _> = resources.iter().map(|name| (name, Value::Null)).collect();
                let without = Patch::Merge(json!({ "status": { "capacity": capacity } }));
                self.patch_node_status(node, &as_agent(), &without).await
            }
        };
        written.map_err(|error| match error {
            ClusterWriteError::Api(kube::Error::Api(status)) if status.is_forbidden() => {
                ClusterWriteError::CapacityForbidden(kube::Error::Api(status))
            }
            error => error,
        })
    }

    async fn patch_node_status<P: Serialize + Debug + Sync>(
        &self,
        node: &str,
        params: &PatchParams,
        patch: &Patch<P>,
    ) -> Result<Node, ClusterWriteError> {
        Ok(tokio::time::timeout(DEADLINE, self.nodes.patch_status(node, params, patch)).await??)
    }

    /// Reads the node state.
    pub(crate) async fn read_node_state(
        &self,
        node: &str,
    ) -> Result<SriovNetworkNodeState, ClusterWriteError> {
        Ok(tokio::time::timeout(DEADLINE, self.states.get(node)).await??)
    }

    /// Reads the request of the node's last drain that is over.
    pub(crate) async fn read_last_drain(&self, node: &str) -> Result<Option<Moment>, ClusterWriteError> {
        let node = tokio::time::timeout(DEADLINE, self.nodes.get_metadata(node)).await??;
        Ok(node.annotations().get(LAST_DRAIN).and_then(|text| Moment::parse(text)))
    }

    async fn patch_status<P: Serialize + Debug + Sync>(
        &self,
        node: &str,
        params: &PatchParams,
        patch: &Patch<P>,
    ) -> Result<SriovNetworkNodeState, ClusterWriteError> {
        Ok(tokio::time::timeout(DEADLINE, self.states.patch_status(node, params, patch)).await??)
    }

    /// Emits an Event about the node state. An Event that cannot be written must not stop the attempt.
    pub(crate) async fn emit_event(
        &self,
        state: &SriovNetworkNodeState,
        type_: EventType,
        reason: &str,
        note: &str,
    ) {
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: Some(note.chars().take(MAX_NOTE_LENGTH).collect()),
            action: "Configure".to_owned(),
            secondary: None,
        };
        // A new recorder each time: a recorder repeats the note of an earlier Event with the same reason.
        let recorder = Recorder::new(self.client.clone(), self.reporter.clone());
        let object = state.object_ref(&());
        match tokio::time::timeout(DEADLINE, recorder.publish(&event, &object)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                let error = format_error_chain(&error);
                tracing::warn!(error, reason, "cannot write an Event");
            }
            Err(_) => tracing::warn!(reason, "cannot write an Event: the API server does not respond"),
        }
    }
}

/// Returns the merge patch that removes bridges which `new` does not have; `None` if there are none.
fn stale_bridges(found: Option<&Bridges>, new: Option<&Bridges>) -> Option<Value> {
    let (found, Some(new)) = (found?, new) else { return Some(Value::Null) };
    let ovs = (found.ovs.is_some() && new.ovs.is_none()).then_some("ovs");
    let linux = (found.linux.is_some() && new.linux.is_none()).then_some("linux");
    let kinds: serde_json::Map<_, _> =
        ovs.into_iter().chain(linux).map(|kind| (kind.to_owned(), Value::Null)).collect();
    (!kinds.is_empty()).then_some(Value::Object(kinds))
}

/// Returns parameters of a merge patch by the agent. Not server-side apply: other clients write the same fields.
fn as_agent() -> PatchParams {
    PatchParams { field_manager: Some(AGENT_FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}
