//! The external Go device plugin, where it is deployed: its ConfigMap, the node label that lets it run, and its restart
//! where, and only where, its content or the node's VFs changed.

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
use vfleet_cluster::pace::{Paced, READABLE};
use vfleet_cluster::queue::Work;
use vfleet_cluster::watch;
use vfleet_cluster::write::{WriteError, Writer};
use vfleet_plan::PluginAction;

use crate::OperatorError;
use crate::components::settings::{Seen, Settings, owner_reference};
use crate::replica::context::Context;

pub(crate) use self::clean_up::run as clean_up;
use self::config_map::Change as ConfigMapChange;
pub(crate) use self::nic_ids::follow as follow_nic_ids;

use self::index::{Index, Key, LabelChange, PodSeen};

const WRITES_AT_ONCE: usize = 16;

/// What is wanted for one node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum NodeWish {
    /// This of its plugin.
    Plugin(PluginWish),
    /// It runs no agent any more and still has the label that lets the plugin run.
    NoLabel,
    /// It reports no card, although something was decided for its cards: its plugin is told what it was told before.
    Unchanged,
}

/// What one node's plugin shall be told.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PluginWish {
    /// Its config, as it stands in the ConfigMap.
    pub(crate) config: String,
    /// Whether there is anything in it.
    pub(crate) has_resources: bool,
    /// A fingerprint of the node's VFs.
    pub(crate) vfs: String,
    /// Whether the node is as wanted, or as near to it as it gets.
    pub(crate) is_settled: bool,
    /// The node's label, as it is.
    pub(crate) label: Option<String>,
}

/// What the controller of the fleet tells.
#[derive(Debug)]
pub(crate) enum News {
    /// This is wanted for a node; `None`: nothing any more.
    Node(String, Option<NodeWish>),
    /// Every node was told once.
    Complete,
}

/// Why the ConfigMap is not written, if it is not.
pub(crate) type Problem = Option<String>;

enum Change {
    News(News),
    ConfigMap(Box<Event<Guarded<ConfigMap>>>),
    Pod(Box<Event<Guarded<Pod>>>),
    Settings(Box<Seen>),
}

/// Runs the controller until `stop`.
pub(crate) async fn run(
    context: Context,
    settings: Settings,
    news: mpsc::UnboundedReceiver<News>,
    problem: channel::Sender<Problem>,
    stop: CancellationToken,
) -> Result<(), OperatorError> {
    let mut changes = pin!(changes(&context, settings, news));
    let mut controller = Controller {
        config_maps: Api::namespaced(context.client.clone(), &context.config.namespace),
        nodes: Api::all(context.client.clone()),
        pods: Api::namespaced(context.client.clone(), &context.config.namespace),
        writer: Writer::new(context.leadership.clone()),
        owner: None,
        index: Index::default(),
        work: Work::new("device-plugin", WRITES_AT_ONCE, Arc::clone(&context.metrics)),
        rewrite: Paced::default(),
        problem,
    };
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            change = changes.next() => controller.take(change.ok_or(OperatorError::WatchEnded)?),
            () = controller.work.progress() => {}
            key = controller.rewrite.next() => controller.work.touch([key]),
        }
        controller.go_on();
    }
    controller.work.finish().await;
    Ok(())
}

fn changes(
    context: &Context,
    settings: Settings,
    news: mpsc::UnboundedReceiver<News>,
) -> impl futures::Stream<Item = Change> + use<> {
    let (client, namespace) = (&context.client, context.config.namespace.as_str());
    let only_ours = watch::only(DEVICE_PLUGIN_CONFIG_MAP);
    let config_maps = watch::changes(Api::namespaced(client.clone(), namespace), only_ours);
    let only_plugins = watcher::Config::default().labels(&format!("app={DEVICE_PLUGIN_DAEMON_SET}"));
    let pods = watch::changes(Api::namespaced(client.clone(), namespace), only_plugins);
    let news = futures::stream::unfold(news, async |mut news| news.recv().await.map(|next| (next, news)));
    futures::stream::select_all([
        // A sender that is gone ends its stream and nothing else: the fleet's controller says why it ended.
        news.map(Change::News).chain(futures::stream::pending()).boxed(),
        config_maps.map(|event| Change::ConfigMap(Box::new(event))).boxed(),
        pods.map(|event| Change::Pod(Box::new(event))).boxed(),
        watch::values(settings).map(|seen| Change::Settings(Box::new(seen))).boxed(),
    ])
}

struct Controller {
    config_maps: Api<ConfigMap>,
    nodes: Api<PartialObjectMeta<Node>>,
    pods: Api<Pod>,
    writer: Writer,
    /// The operator config.
    owner: Option<OwnerReference>,
    index: Index,
    work: Work<Key>,
    /// Thousands of nodes that change one after the other are not as many rewrites of the one ConfigMap.
    rewrite: Paced<Key>,
    problem: channel::Sender<Problem>,
}

impl Controller {
    fn take(&mut self, change: Change) {
        let touched = match change {
            Change::News(News::Complete) => self.index.complete(),
            Change::News(News::Node(node, wish)) => self.index.wish(node, wish),
            Change::ConfigMap(event) => self.index.config_map(*event),
            Change::Pod(event) => self.index.pod(*event),
            Change::Settings(seen) => {
                self.owner = seen.config().and_then(owner_reference);
                Vec::new()
            }
        };
        for key in touched {
            match key {
                Key::ConfigMap => self.rewrite.touch(key, READABLE),
                Key::Node(_) => self.work.touch([key]),
            }
        }
    }

    fn go_on(&mut self) {
        if !self.index.is_complete() || self.owner.is_none() {
            return;
        }
        while let Some(key) = self.work.next_touched() {
            match key.clone() {
                Key::ConfigMap => self.write_config_map(key),
                Key::Node(node) => self.look_after(key, node),
            }
        }
    }

    fn write_config_map(&mut self, key: Key) {
        let change = self.index.config_map_change();
        let problem = match &change {
            ConfigMapChange::TooLarge(problem) => Some(problem.clone()),
            _ => None,
        };
        watch::publish(&self.problem, problem);
        let (writer, api, owner) = (self.writer.clone(), self.config_maps.clone(), self.owner.clone());
        match change {
            ConfigMapChange::Nothing | ConfigMapChange::TooLarge(_) => self.work.nothing_to_do(&key),
            ConfigMapChange::Write(write) => {
                self.work.start(key, async move { write.carry_out(&writer, &api, owner).await });
            }
        }
    }

    fn look_after(&mut self, key: Key, node: String) {
        let label = self.index.wanted_label(&node);
        let action = self.index.pod_action(&node);
        if label.is_none() && matches!(action, None | Some((_, PluginAction::Nothing))) {
            return self.work.nothing_to_do(&key);
        }
        let (writer, nodes, pods) = (self.writer.clone(), self.nodes.clone(), self.pods.clone());
        self.work.start(key, async move {
            if let Some(change) = label {
                label_node(&writer, &nodes, &node, change).await?;
            }
            match action {
                None | Some((_, PluginAction::Nothing)) => Ok(()),
                Some((pod, PluginAction::Note(text))) => note(&writer, &pods, &pod, &text).await,
                Some((pod, PluginAction::Restart)) => {
                    tracing::info!(node, "the device plugin starts again, for what changed on this node");
                    let metadata = ObjectMeta { name: Some(pod.name), uid: pod.uid, ..Default::default() };
                    writer.delete(&pods, &Pod { metadata, ..Default::default() }).await
                }
            }
        });
    }
}

/// Lets the plugin run on the node, or not. A node that is gone needs no label.
async fn label_node(
    writer: &Writer,
    nodes: &Api<PartialObjectMeta<Node>>,
    node: &str,
    change: LabelChange,
) -> Result<(), WriteError> {
    let value = match change {
        LabelChange::Set(value) => Some(value),
        LabelChange::TakeOff => None,
    };
    let patch = json!({ "metadata": { "labels": { DEVICE_PLUGIN_LABEL: value } } });
    match writer.patch(nodes, node, &Patch::Merge(patch)).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(error),
    }
}

/// Notes on this very pod what it started with.
async fn note(writer: &Writer, pods: &Api<Pod>, pod: &PodSeen, text: &str) -> Result<(), WriteError> {
    let annotations = json!({ DEVICE_PLUGIN_STARTED_WITH: text });
    let patch = json!({ "metadata": { "uid": pod.uid, "annotations": annotations } });
    match writer.patch(pods, &pod.name, &Patch::Merge(patch)).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(error),
    }
}
