//! When the separate device plugin is not deployed any more: what was written for it goes.
//!
//! Its DaemonSet goes with all that is no longer wanted. Here go the nodes' labels and then the ConfigMap, which so says
//! until the end that there is something to do. A plugin that the Go operator deployed, and all that it needs, stays.

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use kube::{Api, ResourceExt};
use tokio_util::sync::CancellationToken;
use vfleet_api::keys::{
    DEVICE_PLUGIN_CONFIG_MAP, DEVICE_PLUGIN_DAEMON_SET, DEVICE_PLUGIN_LABEL, MANAGED_BY_LABEL,
    OPERATOR_FIELD_MANAGER,
};
use vfleet_cluster::queue::Work;
use vfleet_cluster::write::{WriteError, Writer};

use super::index::LabelChange;
use super::{WRITES_AT_ONCE, label_node};
use crate::OperatorError;
use crate::components::settings::Settings;
use crate::replica::context::Context;

const LEFT_OVERS: &str = "left-overs";

/// Cleans up once, when the operator config is known; runs until `stop`.
pub(crate) async fn run(
    context: Context,
    settings: Settings,
    stop: CancellationToken,
) -> Result<(), OperatorError> {
    let Some(Some(owner)) = stop.run_until_cancelled(owner(settings)).await else { return Ok(()) };
    let mut work = Work::new("device-plugin", 1, Arc::clone(&context.metrics));
    work.touch([LEFT_OVERS]);
    loop {
        if let Some(key) = work.next_touched() {
            work.start(key, clean_up(context.clone(), owner.clone()));
        }
        tokio::select! {
            () = stop.cancelled() => break,
            () = work.progress() => {}
        }
    }
    work.finish().await;
    Ok(())
}

/// The uid of the operator config, once there is one; `None` when nobody follows it any more.
async fn owner(mut settings: Settings) -> Option<String> {
    settings.wait_for(|seen| seen.config().is_some()).await.ok()?.config()?.uid()
}

fn named(name: &str) -> ListParams {
    ListParams::default().fields(&format!("metadata.name={name}"))
}

async fn clean_up(context: Context, owner: String) -> Result<(), WriteError> {
    let (client, namespace) = (&context.client, context.config.namespace.as_str());
    let writer = Writer::new(context.leadership.clone());
    let config_maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let found = writer.list(&config_maps, &named(DEVICE_PLUGIN_CONFIG_MAP)).await?;
    let Some(found) = found.into_iter().next() else { return Ok(()) };
    let daemon_sets: Api<DaemonSet> = Api::namespaced(client.clone(), namespace);
    let daemon_sets = writer.list(&daemon_sets, &named(DEVICE_PLUGIN_DAEMON_SET)).await?;
    if !is_ours(&found, &owner) || daemon_sets.iter().any(is_foreign) {
        return Ok(());
    }
    let nodes: Api<PartialObjectMeta<Node>> = Api::all(client.clone());
    let labelled = writer.list(&nodes, &ListParams::default().labels(DEVICE_PLUGIN_LABEL)).await?;
    futures::stream::iter(labelled.into_iter().map(|node| node.name_any()))
        .map(async |node| label_node(&writer, &nodes, &node, LabelChange::TakeOff).await)
        .buffer_unordered(WRITES_AT_ONCE)
        .try_collect::<()>()
        .await?;
    writer.delete(&config_maps, &found).await?;
    tracing::info!(
        "the separate device plugin is not deployed any more: its config and the nodes' labels are gone"
    );
    Ok(())
}

/// Whether we have written it, for this operator config: the Go operator's has the same owner.
fn is_ours(found: &ConfigMap, owner: &str) -> bool {
    found.owner_references().iter().any(|its| its.controller == Some(true) && its.uid == owner)
        && found.managed_fields().iter().any(|entry| entry.manager.as_deref() == Some(OPERATOR_FIELD_MANAGER))
}

/// Whether the Go operator deployed it, perhaps after us.
fn is_foreign(plugin: &DaemonSet) -> bool {
    plugin.labels().get(MANAGED_BY_LABEL).map(String::as_str) != Some(OPERATOR_FIELD_MANAGER)
}
