//! Writes of the drain controller. Every write carries the resource version of the object that the decision is based
//! on; after a conflict the object is read again for a new decision.

use k8s_openapi::api::core::v1::Node;
use kube::api::Patch;
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use vfleet_api::keys::{CORDON, DRAIN_REQUEST, LAST_DRAIN};
use vfleet_api::node_state::DrainStatus;
use vfleet_api::{SriovNetworkNodeState, SriovNetworkPoolConfig};
use vfleet_cluster::guarded::Guarded;
use vfleet_cluster::write::{WriteError, Writer};
use vfleet_plan::drain::{CordonMark, Moment, RetryState, Slot};

use super::objects::{ResourceVersion, StoredNode};
use crate::replica::context::Context;

/// Tries of an uncordon after conflicts.
const UNCORDON_TRIES: usize = 10;

/// Object that was just read from the API server; `None` if it does not exist.
#[derive(Debug)]
pub(super) enum FreshObject {
    Node(Option<Box<Node>>),
    State(Option<Box<SriovNetworkNodeState>>),
    Pool(Option<Box<SriovNetworkPoolConfig>>),
    /// Node and node state of a node were read in this order, and sent before this message.
    Verified,
}

/// Client for the writes of drain decisions. Sends every object that it reads to the index.
#[derive(Clone)]
pub(super) struct DrainWriter {
    nodes: Api<Node>,
    states: Api<SriovNetworkNodeState>,
    pools: Api<SriovNetworkPoolConfig>,
    writer: Writer,
    pub(super) namespace: String,
    fresh: mpsc::UnboundedSender<(String, FreshObject)>,
}

/// New drain status of a node state.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewDrainStatus {
    pub(super) status: DrainStatus,
    pub(super) request: Option<Moment>,
    pub(super) retry: Option<RetryState>,
}

impl DrainWriter {
    pub(super) fn new(context: &Context, fresh: mpsc::UnboundedSender<(String, FreshObject)>) -> Self {
        let (client, namespace) = (&context.client, context.config.namespace.as_str());
        Self {
            nodes: Api::all(client.clone()),
            states: Api::namespaced(client.clone(), namespace),
            pools: Api::namespaced(client.clone(), namespace),
            writer: Writer::new(context.leadership.clone()),
            namespace: namespace.to_owned(),
            fresh,
        }
    }

    /// Writes a new drain status. Returns false after a conflict.
    pub(super) async fn set_status(
        &self,
        node: &str,
        version: &ResourceVersion,
        new: NewDrainStatus,
        now: Moment,
    ) -> Result<bool, WriteError> {
        let retry =
            new.retry.map(|retry| json!({ "times": retry.times, "notBefore": retry.not_before.to_time() }));
        let mut status = json!({
            "drainStatus": new.status,
            "drainRequestedAt": new.request.map(Moment::to_time),
            "drainRetry": retry,
        });
        match new.status {
            DrainStatus::Draining => status["drainingSince"] = json!(now.to_time()),
            DrainStatus::DrainingComplete => status["drainCompletedAt"] = json!(now.to_time()),
            _ => {}
        }
        self.patch_status(
            node,
            json!({ "metadata": { "resourceVersion": version.as_str() }, "status": status }),
        )
        .await
    }

    /// Patches the status of a node state. Returns false after a conflict.
    pub(super) async fn patch_status(&self, node: &str, patch: Value) -> Result<bool, WriteError> {
        let written = self.writer.patch_status(&self.states, node, &Patch::Merge(patch)).await;
        self.send_result(node, &self.states, written, |state| FreshObject::State(state.map(Box::new))).await
    }

    /// Changes annotations of a node state. Returns false after a conflict.
    pub(super) async fn annotate_state(
        &self,
        node: &str,
        version: &ResourceVersion,
        annotations: Value,
    ) -> Result<bool, WriteError> {
        let patch =
            json!({ "metadata": { "resourceVersion": version.as_str(), "annotations": annotations } });
        let written = self.writer.patch(&self.states, node, &Patch::Merge(patch)).await;
        self.send_result(node, &self.states, written, |state| FreshObject::State(state.map(Box::new))).await
    }

    /// Cordons and marks a node in one write. Returns false after a conflict.
    pub(super) async fn cordon(
        &self,
        node: &str,
        version: &ResourceVersion,
        mark: CordonMark,
    ) -> Result<bool, WriteError> {
        let annotations =
            json!({ CORDON: mark.cordon.text(), DRAIN_REQUEST: mark.request_text(&self.namespace) });
        self.patch_node(node, version, annotations, Some(json!({ "unschedulable": true }))).await
    }

    /// Removes mark and cordon, unless the cordon stays, and records the finished request, in one write. Returns
    /// whether it was written. After a conflict it tries again as long as the Node is marked for this request, so that
    /// the restart of DaemonSet pods before it is not repeated.
    pub(super) async fn uncordon(
        &self,
        node: &str,
        version: &ResourceVersion,
        request: Moment,
        stays_cordoned: bool,
    ) -> Result<bool, WriteError> {
        let annotations = json!({ CORDON: null, DRAIN_REQUEST: null, LAST_DRAIN: request.text() });
        let spec = (!stays_cordoned).then(|| json!({ "unschedulable": null }));
        if self.patch_node(node, version, annotations.clone(), spec.clone()).await? {
            return Ok(true);
        }
        for _ in 0..UNCORDON_TRIES {
            let Some(found) = self.writer.read(&self.nodes, node).await? else {
                self.send(node, FreshObject::Node(None));
                return Ok(false);
            };
            let stored = StoredNode::of(found.clone(), &self.namespace);
            if stored.facts.mark.map(|mark| mark.request) != Some(request) {
                self.send(node, FreshObject::Node(Some(Box::new(found))));
                return Ok(false);
            }
            if self.patch_node(node, &stored.version, annotations.clone(), spec.clone()).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Records on the Node that the request is finished.
    pub(super) async fn record_finish(
        &self,
        node: &str,
        version: &ResourceVersion,
        request: Moment,
    ) -> Result<bool, WriteError> {
        self.patch_node(node, version, json!({ LAST_DRAIN: request.text() }), None).await
    }

    pub(super) async fn patch_node(
        &self,
        node: &str,
        version: &ResourceVersion,
        annotations: Value,
        spec: Option<Value>,
    ) -> Result<bool, WriteError> {
        let metadata = json!({ "resourceVersion": version.as_str(), "annotations": annotations });
        let mut patch = json!({ "metadata": metadata });
        if let Some(spec) = spec {
            patch["spec"] = spec;
        }
        let written = self.writer.patch(&self.nodes, node, &Patch::Merge(patch)).await;
        self.send_result(node, &self.nodes, written, |node| FreshObject::Node(node.map(Box::new))).await
    }

    /// Writes the slots of a pool. Returns false after a conflict.
    pub(super) async fn set_slots(
        &self,
        pool: &str,
        version: &ResourceVersion,
        slots: &[Slot],
    ) -> Result<bool, WriteError> {
        let slot = |slot: &Slot| json!({ "node": slot.node, "requestedAt": slot.request.to_time() });
        let slots: Vec<_> = slots.iter().map(slot).collect();
        let patch =
            json!({ "metadata": { "resourceVersion": version.as_str() }, "status": { "slots": slots } });
        let written = self.writer.patch_status(&self.pools, pool, &Patch::Merge(patch)).await;
        self.send_result(pool, &self.pools, written, |pool| FreshObject::Pool(pool.map(Box::new))).await
    }

    /// Reads the Node and then the node state, so that the node state is not older.
    pub(super) async fn verify(&self, node: &str) -> Result<(), WriteError> {
        let found = self.writer.read(&self.nodes, node).await?;
        self.send(node, FreshObject::Node(found.map(Box::new)));
        let found = self.writer.read(&self.states, node).await?;
        self.send(node, FreshObject::State(found.map(Box::new)));
        self.send(node, FreshObject::Verified);
        Ok(())
    }

    /// Sends the result of a write to the index; after a conflict, the current object.
    async fn send_result<K>(
        &self,
        name: &str,
        api: &Api<K>,
        written: Result<K, WriteError>,
        fresh: impl FnOnce(Option<K>) -> FreshObject,
    ) -> Result<bool, WriteError>
    where
        K: Clone + DeserializeOwned + std::fmt::Debug,
    {
        match written {
            Ok(object) => {
                self.send(name, fresh(Some(object)));
                Ok(true)
            }
            Err(error) if error.is_conflict() || error.is_not_found() => {
                tracing::debug!(name, %error, "object changed since the decision, reading it again");
                let now = self.writer.read(api, name).await?;
                self.send(name, fresh(now));
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn send(&self, name: &str, fresh: FreshObject) {
        // Fails only while the controller stops.
        let _ = self.fresh.send((name.to_owned(), fresh));
    }
}

/// Converts an object that was read to a watch event.
pub(super) fn as_event<K>(name: &str, found: Option<Box<K>>) -> kube::runtime::watcher::Event<Guarded<K>>
where
    K: Resource<DynamicType = ()> + ResourceExt + Default,
{
    use kube::runtime::watcher::Event;
    if let Some(object) = found {
        return Event::Apply(Guarded(Ok(*object)));
    }
    let mut gone = K::default();
    gone.meta_mut().name = Some(name.to_owned());
    Event::Delete(Guarded(Ok(gone)))
}
