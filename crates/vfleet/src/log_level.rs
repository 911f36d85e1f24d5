//! Log level of operator and agents, which follows the operator config while they run.

use std::pin::pin;

use futures::StreamExt;
use kube::core::DeserializeGuard;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use vfleet_api::SriovOperatorConfig;
use vfleet_api::keys::OPERATOR_CONFIG;

use crate::log::LogLevelHandle;

/// Sets the log level whenever the operator config changes it. Never returns.
pub(crate) async fn watch_log_level(client: Client, namespace: &str, handle: &LogLevelHandle) {
    let configs: Api<DeserializeGuard<SriovOperatorConfig>> = Api::namespaced(client, namespace);
    let only_default = watcher::Config::default().fields(&format!("metadata.name={OPERATOR_CONFIG}"));
    let mut configs = pin!(watcher(configs, only_default).default_backoff().applied_objects());
    let mut level = 0;
    while let Some(config) = configs.next().await {
        // The level is kept without the config, or if the config cannot be read.
        let Ok(DeserializeGuard(Ok(config))) = config else { continue };
        let requested = config.spec.log_level.unwrap_or_default();
        if requested != level {
            handle.set(requested);
            level = requested;
        }
    }
    std::future::pending::<()>().await;
}
