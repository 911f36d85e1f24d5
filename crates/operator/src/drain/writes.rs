//! How draining is written: every write on top of the version of the object that it was decided on. Who was too late
//! looks at the object again, and decides again.

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
use vfleet_plan::drain::{Mark, Moment, Retry, Slot};

use super::objects::{SeenNode, Version};
use crate::replica::context::Context;

/// Writers who come in between again and again do not hold us up for long.
const TRIES_ON_TOP: usize = 10;

/// An object as the API server has it, or had it a moment ago.
#[derive(Debug)]
pub(super) enum Fresh {
    Node(Option<Box<Node>>),
    State(Option<Box<SriovNetworkNodeState>>),
    Pool(Option<Box<SriovNetworkPoolConfig>>),
    /// Both objects of the node were read, first the Node, and came before this.
    Verified,
}

/// Writes what was decided. Whatever it sees of objects goes to the index.
#[derive(Clone)]
pub(super) struct DrainWriter {
    nodes: Api<Node>,
    states: Api<SriovNetworkNodeState>,
    pools: Api<SriovNetworkPoolConfig>,
    writer: Writer,
    pub(super) namespace: String,
    seen: mpsc::UnboundedSender<(String, Fresh)>,
}

/// A new drain status.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewStatus {
    pub(super) status: DrainStatus,
    pub(super) request: Option<Moment>,
    pub(super) retry: Option<Retry>,
}

impl DrainWriter {
    pub(super) fn new(context: &Context, seen: mpsc::UnboundedSender<(String, Fresh)>) -> Self {
        let (client, namespace) = (&context.client, context.config.namespace.as_str());
        Self {
            nodes: Api::all(client.clone()),
            states: Api::namespaced(client.clone(), namespace),
            pools: Api::namespaced(client.clone(), namespace),
            writer: Writer::new(context.leadership.clone()),
            namespace: namespace.to_owned(),
            seen,
        }
    }

    /// Writes a new drain status. Tells whether it was written.
    pub(super) async fn set_status(
        &self,
        node: &str,
        version: &Version,
        new: NewStatus,
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

    /// Tells whether it was written.
    pub(super) async fn patch_status(&self, node: &str, patch: Value) -> Result<bool, WriteError> {
        let written = self.writer.patch_status(&self.states, node, &Patch::Merge(patch)).await;
        self.took(node, &self.states, written, |state| Fresh::State(state.map(Box::new))).await
    }

    /// Changes annotations of the node state. Tells whether it was written.
    pub(super) async fn annotate_state(
        &self,
        node: &str,
        version: &Version,
        annotations: Value,
    ) -> Result<bool, WriteError> {
        let patch =
            json!({ "metadata": { "resourceVersion": version.as_str(), "annotations": annotations } });
        let written = self.writer.patch(&self.states, node, &Patch::Merge(patch)).await;
        self.took(node, &self.states, written, |state| Fresh::State(state.map(Box::new))).await
    }

    /// Cordons the node and marks it, in one write. Tells whether it was written.
    pub(super) async fn cordon(&self, node: &str, version: &Version, mark: Mark) -> Result<bool, WriteError> {
        let annotations =
            json!({ CORDON: mark.cordon.text(), DRAIN_REQUEST: mark.request_text(&self.namespace) });
        self.patch_node(node, version, annotations, Some(json!({ "unschedulable": true }))).await
    }

    /// Takes the mark off, the cordon with it unless it stays, and notes that the request is over, in one write. Tells
    /// whether it was written. If the Node is not as it was decided on, on top of whatever it is now, as long as it is
    /// marked for this request: what comes before it may take a while, and must not be done twice.
    pub(super) async fn uncordon(
        &self,
        node: &str,
        version: &Version,
        request: Moment,
        stays_cordoned: bool,
    ) -> Result<bool, WriteError> {
        let annotations = json!({ CORDON: null, DRAIN_REQUEST: null, LAST_DRAIN: request.text() });
        let spec = (!stays_cordoned).then(|| json!({ "unschedulable": null }));
        if self.patch_node(node, version, annotations.clone(), spec.clone()).await? {
            return Ok(true);
        }
        for _ in 0..TRIES_ON_TOP {
            let Some(found) = self.writer.read(&self.nodes, node).await? else {
                self.saw(node, Fresh::Node(None));
                return Ok(false);
            };
            let seen = SeenNode::of(found.clone(), &self.namespace);
            if seen.facts.mark.map(|mark| mark.request) != Some(request) {
                self.saw(node, Fresh::Node(Some(Box::new(found))));
                return Ok(false);
            }
            if self.patch_node(node, &seen.version, annotations.clone(), spec.clone()).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Notes on the node that the request is over.
    pub(super) async fn conclude(
        &self,
        node: &str,
        version: &Version,
        request: Moment,
    ) -> Result<bool, WriteError> {
        self.patch_node(node, version, json!({ LAST_DRAIN: request.text() }), None).await
    }

    pub(super) async fn patch_node(
        &self,
        node: &str,
        version: &Version,
        annotations: Value,
        spec: Option<Value>,
    ) -> Result<bool, WriteError> {
        let metadata = json!({ "resourceVersion": version.as_str(), "annotations": annotations });
        let mut patch = json!({ "metadata": metadata });
        if let Some(spec) = spec {
            patch["spec"] = spec;
        }
        let written = self.writer.patch(&self.nodes, node, &Patch::Merge(patch)).await;
        self.took(node, &self.nodes, written, |node| Fresh::Node(node.map(Box::new))).await
    }

    /// Writes the pool's list of slots. Tells whether it was written.
    pub(super) async fn set_slots(
        &self,
        pool: &str,
        version: &Version,
        slots: &[Slot],
    ) -> Result<bool, WriteError> {
        let slot = |slot: &Slot| json!({ "node": slot.node, "requestedAt": slot.request.to_time() });
        let slots: Vec<_> = slots.iter().map(slot).collect();
        let patch =
            json!({ "metadata": { "resourceVersion": version.as_str() }, "status": { "slots": slots } });
        let written = self.writer.patch_status(&self.pools, pool, &Patch::Merge(patch)).await;
        self.took(pool, &self.pools, written, |pool| Fresh::Pool(pool.map(Box::new))).await
    }

    /// Reads both objects of the node: first the Node, so that the node state is not the older one.
    pub(super) async fn verify(&self, node: &str) -> Result<(), WriteError> {
        let found = self.writer.read(&self.nodes, node).await?;
        self.saw(node, Fresh::Node(found.map(Box::new)));
        let found = self.writer.read(&self.states, node).await?;
        self.saw(node, Fresh::State(found.map(Box::new)));
        self.saw(node, Fresh::Verified);
        Ok(())
    }

    /// The answer to a write goes to the index; after a conflict, the object as it is now.
    async fn took<K>(
        &self,
        name: &str,
        api: &Api<K>,
        written: Result<K, WriteError>,
        fresh: impl FnOnce(Option<K>) -> Fresh,
    ) -> Result<bool, WriteError>
    where
        K: Clone + DeserializeOwned + std::fmt::Debug,
    {
        match written {
            Ok(object) => {
                self.saw(name, fresh(Some(object)));
                Ok(true)
            }
            Err(error) if error.is_conflict() || error.is_not_found() => {
                tracing::debug!(name, %error, "not as it was decided on; looking again");
                let now = self.writer.read(api, name).await?;
                self.saw(name, fresh(now));
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// The controller outlives its writers.
    fn saw(&self, name: &str, fresh: Fresh) {
        let _ = self.seen.send((name.to_owned(), fresh));
    }
}

/// What was read, as an event of a watch.
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
