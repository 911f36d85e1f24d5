//! The ConfigMap `supported-nic-ids`, in which administrators say which devices the VFs of which cards are.

use std::pin::pin;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::runtime::watcher::{self, Event};
use tokio::sync::watch as channel;
use vfleet_api::keys::SUPPORTED_NIC_IDS;
use vfleet_plan::NicIds;

use crate::OperatorError;
use crate::context::Context;
use crate::watch::{changes, readable};

/// Follows it and publishes what it says.
pub(crate) async fn follow(context: Context, nic_ids: channel::Sender<NicIds>) -> Result<(), OperatorError> {
    let api = Api::namespaced(context.client.clone(), &context.config.namespace);
    let only_it = watcher::Config::default().fields(&format!("metadata.name={SUPPORTED_NIC_IDS}"));
    let mut changes = pin!(changes::<ConfigMap>(api, only_it));
    while let Some(event) = changes.next().await {
        match event {
            Event::Init | Event::InitDone => {}
            Event::InitApply(found) | Event::Apply(found) => {
                if let Some(found) = readable(found) {
                    publish(&nic_ids, &found);
                }
            }
            Event::Delete(_) => {
                nic_ids.send_replace(NicIds::default());
            }
        }
    }
    Err(OperatorError::WatchEnded)
}

fn publish(nic_ids: &channel::Sender<NicIds>, found: &ConfigMap) {
    let (new, bad) = NicIds::parse(found.data.as_ref().unwrap_or(&std::collections::BTreeMap::new()));
    for entry in bad {
        tracing::warn!(%entry, "an entry of {SUPPORTED_NIC_IDS} is not used");
    }
    nic_ids.send_if_modified(|known| {
        let news = *known != new;
        *known = new;
        news
    });
}
