//! The operator config says how much operator and agents log, also while they run.

use std::pin::pin;

use futures::StreamExt;
use kube::core::DeserializeGuard;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use vfleet_api::SriovOperatorConfig;
use vfleet_api::keys::OPERATOR_CONFIG;

use crate::log::LevelSwitch;

/// Sets the log level whenever the operator config changes it. Never ends.
pub(crate) async fn follow(client: Client, namespace: &str, switch: &LevelSwitch) {
    let configs: Api<DeserializeGuard<SriovOperatorConfig>> = Api::namespaced(client, namespace);
    let only_default = watcher::Config::default().fields(&format!("metadata.name={OPERATOR_CONFIG}"));
    let mut configs = pin!(watcher(configs, only_default).default_backoff().applied_objects());
    let mut level = 0;
    while let Some(config) = configs.next().await {
        // Without the config, or with one that cannot be read, the level stays as it is.
        let Ok(DeserializeGuard(Ok(config))) = config else { continue };
        let wanted = config.spec.log_level.unwrap_or_default();
        if wanted != level {
            switch.set(wanted);
            level = wanted;
        }
    }
    std::future::pending::<()>().await;
}
