//! Controller of the separate (Go) device plugin: its ConfigMap, the node label that lets it run, and its restart on
//! nodes whose config or VFs changed.

mod clean_up;
mod config_map;
mod index;
mod nic_ids;

use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Api;
use kube::api::{ObjectMeta, Patch};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{self, Event};
use serde_json::json;
use tokio::sync::{mpsc, watch as channel};
use tokio_util::sync::CancellationToken;
use vfleet_api::keys::{
    DEVICE_PLUGIN_CONFIG_MAP, DEVICE_PLUGIN_DAEMON_SET, DEVICE_PLUGIN_LABEL, DEVICE_PLUGIN_STARTED_WITH,
};
use vfleet_cluster::guarded::Guarded;
use vfleet_cluster::pace::{PacedQueue, READABLE_INTERVAL};
use vfleet_cluster::queue::WorkQueue;
use vfleet_cluster::watch;
use vfleet_cluster::write::{WriteError, Writer};
use vfleet_plan::PluginAction;

use crate::OperatorError;
use crate::components::config_watch::{OperatorConfigReceiver, OperatorConfigState, owner_reference};
use crate::replica::context::Context;

pub(crate) use self::clean_up::run as clean_up;
pub(crate) use self::nic_ids::watch_nic_ids;

use self::config_map::ConfigMapChange;
use self::index::{LabelChange, PluginIndex, PluginKey, PluginPodState};

const MAX_WRITES: usize = 16;

/// Desired state of the plugin on one node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum DesiredNodePlugin {
    /// The plugin has this configuration.
    Plugin(DesiredPlugin),
    /// The node runs no agent any more, and the label that lets the plugin run must be removed.
    NoLabel,
    /// The node reports no card, although its spec has interfaces: keep the current config of the plugin.
    Unchanged,
}

/// Desired configuration of the plugin on one node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DesiredPlugin {
    /// Content of the ConfigMap for the node.
    pub(crate) config: String,
    /// True if `config` has resources.
    pub(crate) has_resources: bool,
    /// Fingerprint of the VFs of the node.
    pub(crate) vfs: String,
    /// True if the agent has finished, with success or with a failure.
    pub(crate) is_settled: bool,
    /// Current label of the node.
    pub(crate) label: Option<String>,
}

/// Update from the fleet controller.
#[derive(Debug)]
pub(crate) enum PluginUpdate {
    /// New desired state of a node; `None` removes the node.
    Node(String, Option<DesiredNodePlugin>),
    /// All nodes were sent once.
    Complete,
}

/// Reason why the ConfigMap cannot be written; `None` if it can.
pub(crate) type ConfigMapProblem = Option<String>;

/// Input event of the controller.
enum PluginChange {
    Update(PluginUpdate),
    ConfigMap(Box<Event<Guarded<ConfigMap>>>),
    Pod(Box<Event<Guarded<Pod>>>),
    Config(Box<OperatorConfigState>),
}

/// Runs the controller until `stop`.
pub(crate) async fn run(
    context: Context,
    settings: OperatorConfigReceiver,
    updates: mpsc::UnboundedReceiver<PluginUpdate>,
    problem: channel::Sender<ConfigMapProblem>,
    stop: CancellationToken,
) -> Result<(), OperatorError> {
    let mut changes = pin!(merge_changes(&context, settings, updates));
    let mut controller = PluginController {
        config_maps: Api::namespaced(context.client.clone(), &context.config.namespace),
        nodes: Api::all(context.client.clone()),
        pods: Api::namespaced(context.client.clone(), &context.config.namespace),
        writer: Writer::new(context.leadership.clone()),
        owner: None,
        index: PluginIndex::default(),
        work: WorkQueue::new("device-plugin", MAX_WRITES, Arc::clone(&context.metrics)),
        paced_writes: PacedQueue::default(),
        problem,
    };
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            change = changes.next() => controller.apply(change.ok_or(OperatorError::WatchEnded)?),
            () = controller.work.wait_for_progress() => {}
            key = controller.paced_writes.next() => controller.work.add([key]),
        }
        controller.reconcile();
    }
    controller.work.finish().await;
    Ok(())
}

fn merge_changes(
    context: &Context,
    settings: OperatorConfigReceiver,
    updates: mpsc::UnboundedReceiver<PluginUpdate>,
) -> impl futures::Stream<Item = PluginChange> + use<> {
    let (client, namespace) = (&context.client, context.config.namespace.as_str());
    let by_name = watch::select_name(DEVICE_PLUGIN_CONFIG_MAP);
    let config_maps = watch::watch_objects(Api::namespaced(client.clone(), namespace), by_name);
    let by_label = watcher::Config::default().labels(&format!("app={DEVICE_PLUGIN_DAEMON_SET}"));
    let pods = watch::watch_objects(Api::namespaced(client.clone(), namespace), by_label);
    let updates = futures::stream::unfold(updates, async |mut updates| {
        updates.recv().await.map(|next| (next, updates))
    });
    futures::stream::select_all([
        // If the fleet controller ends, it reports the reason itself: this stream just becomes pending.
        updates.map(PluginChange::Update).chain(futures::stream::pending()).boxed(),
        config_maps.map(|event| PluginChange::ConfigMap(Box::new(event))).boxed(),
        pods.map(|event| PluginChange::Pod(Box::new(event))).boxed(),
        watch::stream_values(settings).map(|config| PluginChange::Config(Box::new(config))).boxed(),
    ])
}

/// Controller of the external Go device plugin, with its queue.
struct PluginController {
    config_maps: Api<ConfigMap>,
    nodes: Api<PartialObjectMeta<Node>>,
    pods: Api<Pod>,
    writer: Writer,
    /// Reference to the operator config.
    owner: Option<OwnerReference>,
    index: PluginIndex,
    work: WorkQueue<PluginKey>,
    /// Limits the rate of writes of the ConfigMap when thousands of nodes change.
    paced_writes: PacedQueue<PluginKey>,
    problem: channel::Sender<ConfigMapProblem>,
}

impl PluginController {
    fn apply(&mut self, change: PluginChange) {
        let affected = match change {
            PluginChange::Update(PluginUpdate::Complete) => self.index.set_complete(),
            PluginChange::Update(PluginUpdate::Node(node, desired)) => self.index.set_desired(node, desired),
            PluginChange::ConfigMap(event) => self.index.apply_config_map(*event),
            PluginChange::Pod(event) => self.index.apply_pod(*event),
            PluginChange::Config(config) => {
                self.owner = config.existing().and_then(owner_reference);
                Vec::new()
            }
        };
        for key in affected {
            match key {
                PluginKey::ConfigMap => self.paced_writes.add(key, READABLE_INTERVAL),
                PluginKey::Node(_) => self.work.add([key]),
            }
        }
    }

    fn reconcile(&mut self) {
        if !self.index.is_complete() || self.owner.is_none() {
            return;
        }
        while let Some(key) = self.work.take_next() {
            match key.clone() {
                PluginKey::ConfigMap => self.write_config_map(key),
                PluginKey::Node(node) => self.reconcile_node(key, node),
            }
        }
    }

    fn write_config_map(&mut self, key: PluginKey) {
        let change = self.index.plan_config_map();
        let problem = match &change {
            ConfigMapChange::TooLarge(problem) => Some(problem.clone()),
            _ => None,
        };
        watch::publish_if_changed(&self.problem, problem);
        let (writer, api, owner) = (self.writer.clone(), self.config_maps.clone(), self.owner.clone());
        match change {
            ConfigMapChange::None | ConfigMapChange::TooLarge(_) => self.work.mark_done(&key),
            ConfigMapChange::Write(write) => {
                self.work.start(key, async move { write.execute(&writer, &api, owner).await });
            }
        }
    }

    fn reconcile_node(&mut self, key: PluginKey, node: String) {
        let label = self.index.plan_label(&node);
        let action = self.index.plan_pod(&node);
        if label.is_none() && matches!(action, None | Some((_, PluginAction::Nothing))) {
            return self.work.mark_done(&key);
        }
        let (writer, nodes, pods) = (self.writer.clone(), self.nodes.clone(), self.pods.clone());
        self.work.start(key, async move {
            if let Some(change) = label {
                label_node(&writer, &nodes, &node, change).await?;
            }
            match action {
                None | Some((_, PluginAction::Nothing)) => Ok(()),
                Some((pod, PluginAction::StoreFingerprint(text))) => {
                    annotate_pod(&writer, &pods, &pod, &text).await
                }
                Some((pod, PluginAction::Restart)) => {
                    tracing::info!(
                        node,
                        "restarting the device plugin, because its config or the VFs of the node changed"
                    );
                    let metadata = ObjectMeta { name: Some(pod.name), uid: pod.uid, ..Default::default() };
                    writer.delete(&pods, &Pod { metadata, ..Default::default() }).await
                }
            }
        });
    }
}

/// Sets or removes the label that lets the plugin run. A deleted node is ignored.
async fn label_node(
    writer: &Writer,
    nodes: &Api<PartialObjectMeta<Node>>,
    node: &str,
    change: LabelChange,
) -> Result<(), WriteError> {
    let value = match change {
        LabelChange::Set(value) => Some(value),
        LabelChange::Remove => None,
    };
    let patch = json!({ "metadata": { "labels": { DEVICE_PLUGIN_LABEL: value } } });
    match writer.patch(nodes, node, &Patch::Merge(patch)).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(error),
    }
}

/// Records on the pod with this UID the fingerprint that it started with.
async fn annotate_pod(
    writer: &Writer,
    pods: &Api<Pod>,
    pod: &PluginPodState,
    text: &str,
) -> Result<(), WriteError> {
    let annotations = json!({ DEVICE_PLUGIN_STARTED_WITH: text });
    let patch = json!({ "metadata": { "uid": pod.uid, "annotations": annotations } });
    match writer.patch(pods, &pod.name, &Patch::Merge(patch)).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(error),
    }
}
