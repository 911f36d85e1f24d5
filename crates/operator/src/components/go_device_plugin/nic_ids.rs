//! The ConfigMap `supported-nic-ids`, in which administrators say which devices the VFs of which cards are.

use std::pin::pin;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::runtime::watcher::Event;
use tokio::sync::watch as channel;
use vfleet_api::keys::SUPPORTED_NIC_IDS;
use vfleet_cluster::guarded::Guarded;
use vfleet_cluster::watch::{Sight, Single, changes, only, publish, readable};
use vfleet_plan::NicIds;

use crate::OperatorError;
use crate::replica::context::Context;

/// What it says; `None` until it was looked for.
type Said = channel::Sender<Option<NicIds>>;

/// Follows it and publishes what it says: nothing, while there is none.
pub(crate) async fn follow(context: Context, nic_ids: Said) -> Result<(), OperatorError> {
    let api = Api::namespaced(context.client.clone(), &context.config.namespace);
    let mut changes = pin!(changes::<ConfigMap>(api, only(SUPPORTED_NIC_IDS)));
    let mut map = Single::default();
    while let Some(event) = changes.next().await {
        take(&nic_ids, &mut map, event);
    }
    Err(OperatorError::WatchEnded)
}

fn take(nic_ids: &Said, map: &mut Single<ConfigMap>, event: Event<Guarded<ConfigMap>>) {
    match map.take(event) {
        Sight::Nothing => {}
        Sight::Gone => publish(nic_ids, Some(NicIds::default())),
        Sight::There(found) => publish_readable(nic_ids, *found),
    }
}

/// When it cannot be read its last state counts.
fn publish_readable(nic_ids: &Said, found: Guarded<ConfigMap>) {
    let Some(found) = readable(found) else {
        let last = nic_ids.borrow().clone().unwrap_or_default();
        return publish(nic_ids, Some(last));
    };
    let (new, bad) = NicIds::parse(&found.data.unwrap_or_default());
    for entry in bad {
        tracing::warn!(%entry, "an entry of {SUPPORTED_NIC_IDS} is not used");
    }
    publish(nic_ids, Some(new));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_not_known_before_it_was_looked_for_and_forgotten_when_it_went_unseen() {
        let (said, seen) = channel::channel(None);
        let mut single = Single::default();
        let mut take = |event| take(&said, &mut single, event);
        let data = [("igb".to_owned(), "8086 10c9 10ca".to_owned())].into();
        let map = || Guarded(Ok(ConfigMap { data: Some(data), ..Default::default() }));
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
