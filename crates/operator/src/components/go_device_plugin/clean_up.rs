//! Clean-up after the separate device plugin is no longer deployed.
//!
//! The operator config controller deletes the DaemonSet. This module removes the labels of nodes and then the
//! ConfigMap, whose existence thus means that the clean-up is not complete. A plugin of the Go operator, and all that
//! it needs, stays.

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
use vfleet_cluster::queue::WorkQueue;
use vfleet_cluster::write::{WriteError, Writer};

use super::index::LabelChange;
use super::{MAX_WRITES, label_node};
use crate::OperatorError;
use crate::components::config_watch::OperatorConfigReceiver;
use crate::replica::context::Context;

const CLEAN_UP: &str = "clean-up";

/// Cleans up once the operator config is known; runs until `stop`.
pub(crate) async fn run(
    context: Context,
    settings: OperatorConfigReceiver,
    stop: CancellationToken,
) -> Result<(), OperatorError> {
    let Some(Some(owner)) = stop.run_until_cancelled(wait_for_owner(settings)).await else { return Ok(()) };
    let mut work = WorkQueue::new("device-plugin", 1, Arc::clone(&context.metrics));
    work.add([CLEAN_UP]);
    loop {
        if let Some(key) = work.take_next() {
            work.start(key, clean_up(context.clone(), owner.clone()));
        }
        tokio::select! {
            () = stop.cancelled() => break,
            () = work.wait_for_progress() => {}
        }
    }
    work.finish().await;
    Ok(())
}

/// Waits for the operator config and returns its UID; `None` if its watch ended.
async fn wait_for_owner(mut settings: OperatorConfigReceiver) -> Option<String> {
    settings.wait_for(|config| config.existing().is_some()).await.ok()?.existing()?.uid()
}

fn select_name(name: &str) -> ListParams {
    ListParams::default().fields(&format!("metadata.name={name}"))
}

async fn clean_up(context: Context, owner: String) -> Result<(), WriteError> {
    let (client, namespace) = (&context.client, context.config.namespace.as_str());
    let writer = Writer::new(context.leadership.clone());
    let config_maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let listed = writer.list(&config_maps, &select_name(DEVICE_PLUGIN_CONFIG_MAP)).await?;
    let Some(config_map) = listed.into_iter().next() else { return Ok(()) };
    let daemon_sets: Api<DaemonSet> = Api::namespaced(client.clone(), namespace);
    let daemon_sets = writer.list(&daemon_sets, &select_name(DEVICE_PLUGIN_DAEMON_SET)).await?;
    if !is_own(&config_map, &owner) || daemon_sets.iter().any(is_foreign) {
        return Ok(());
    }
    let nodes: Api<PartialObjectMeta<Node>> = Api::all(client.clone());
    let labeled = writer.list(&nodes, &ListParams::default().labels(DEVICE_PLUGIN_LABEL)).await?;
    futures::stream::iter(labeled.into_iter().map(|node| node.name_any()))
        .map(async |node| label_node(&writer, &nodes, &node, LabelChange::Remove).await)
        .buffer_unordered(MAX_WRITES)
        .try_collect::<()>()
        .await?;
    writer.delete(&config_maps, &config_map).await?;
    tracing::info!(
        "separate device plugin is no longer deployed: deleted its ConfigMap and removed the labels of its nodes"
    );
    Ok(())
}

/// Returns whether this operator wrote the ConfigMap. The one of the Go operator has the same owner, but another field
/// manager.
fn is_own(config_map: &ConfigMap, owner: &str) -> bool {
    config_map
        .owner_references()
        .iter()
        .any(|reference| reference.controller == Some(true) && reference.uid == owner)
        && config_map
            .managed_fields()
            .iter()
            .any(|entry| entry.manager.as_deref() == Some(OPERATOR_FIELD_MANAGER))
}

/// Returns whether the Go operator deployed the plugin.
fn is_foreign(plugin: &DaemonSet) -> bool {
    plugin.labels().get(MANAGED_BY_LABEL).map(String::as_str) != Some(OPERATOR_FIELD_MANAGER)
}
