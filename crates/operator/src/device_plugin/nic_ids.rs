//! The ConfigMap `supported-nic-ids`, in which administrators say which devices the VFs of which cards are.

use std::pin::pin;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::core::DeserializeGuard;
use kube::runtime::watcher::{self, Event};
use tokio::sync::watch as channel;
use vfleet_api::keys::SUPPORTED_NIC_IDS;
use vfleet_plan::NicIds;

use crate::OperatorError;
use crate::context::Context;
use crate::watch::{changes, readable};

/// What it says; `None` until it was looked for.
type Said = channel::Sender<Option<NicIds>>;

/// Follows it and publishes what it says: nothing, while there is none.
pub(crate) async fn follow(context: Context, nic_ids: Said) -> Result<(), OperatorError> {
    let api = Api::namespaced(context.client.clone(), &context.config.namespace);
    let only_it = watcher::Config::default().fields(&format!("metadata.name={SUPPORTED_NIC_IDS}"));
    let mut changes = pin!(changes::<ConfigMap>(api, only_it));
    let mut listed = None;
    while let Some(event) = changes.next().await {
        take(&nic_ids, &mut listed, event);
    }
    Err(OperatorError::WatchEnded)
}

/// One that went while nobody watched is only missing from the next list.
fn take(
    nic_ids: &Said,
    listed: &mut Option<DeserializeGuard<ConfigMap>>,
    event: Event<DeserializeGuard<ConfigMap>>,
) {
    match event {
        Event::Init => *listed = None,
        Event::InitApply(found) => *listed = Some(found),
        Event::InitDone => match listed.take() {
            Some(found) => publish_readable(nic_ids, found),
            None => publish(nic_ids, NicIds::default()),
        },
        Event::Apply(found) => publish_readable(nic_ids, found),
        Event::Delete(_) => publish(nic_ids, NicIds::default()),
    }
}

/// When it cannot be read its last state counts.
fn publish_readable(nic_ids: &Said, found: DeserializeGuard<ConfigMap>) {
    let Some(found) = readable(found) else {
        let last = nic_ids.borrow().clone().unwrap_or_default();
        return publish(nic_ids, last);
    };
    let (new, bad) = NicIds::parse(&found.data.unwrap_or_default());
    for entry in bad {
        tracing::warn!(%entry, "an entry of {SUPPORTED_NIC_IDS} is not used");
    }
    publish(nic_ids, new);
}

fn publish(nic_ids: &Said, new: NicIds) {
    let new = Some(new);
    nic_ids.send_if_modified(|known| {
        let news = *known != new;
        *known = new;
        news
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_not_known_before_it_was_looked_for_and_forgotten_when_it_went_unseen() {
        let (said, seen) = channel::channel(None);
        let mut listed = None;
        let mut take = |event| take(&said, &mut listed, event);
        let data = [("igb".to_owned(), "8086 10c9 10ca".to_owned())].into();
        let map = || DeserializeGuard(Ok(ConfigMap { data: Some(data), ..Default::default() }));
        take(Event::Init);
        assert_eq!(*seen.borrow(), None);
        take(Event::InitApply(map()));
        assert_eq!(*seen.borrow(), None);
        take(Event::InitDone);
        assert!(seen.borrow().as_ref().is_some_and(|ids| *ids != NicIds::default()));
        take(Event::Init);
        take(Event::InitDone);
        assert_eq!(*seen.borrow(), Some(NicIds::default()));
    }
}
