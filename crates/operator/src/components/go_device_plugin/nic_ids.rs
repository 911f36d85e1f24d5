//! Watch of the ConfigMap `supported-nic-ids`, in which administrators list device IDs of cards and their VFs.

use std::pin::pin;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::runtime::watcher::Event;
use tokio::sync::watch as channel;
use vfleet_api::keys::SUPPORTED_NIC_IDS;
use vfleet_cluster::guarded::Guarded;
use vfleet_cluster::watch::{
    SingleObject, SingleObjectState, into_readable, publish_if_changed, select_name, watch_objects,
};
use vfleet_plan::NicIds;

use crate::OperatorError;
use crate::replica::context::Context;

/// Sender of the NIC IDs; `None` until the ConfigMap was looked up.
type NicIdsSender = channel::Sender<Option<NicIds>>;

/// Watches the ConfigMap and publishes its content, which is empty if the ConfigMap does not exist.
pub(crate) async fn watch_nic_ids(context: Context, nic_ids: NicIdsSender) -> Result<(), OperatorError> {
    let api = Api::namespaced(context.client.clone(), &context.config.namespace);
    let mut events = pin!(watch_objects::<ConfigMap>(api, select_name(SUPPORTED_NIC_IDS)));
    let mut map = SingleObject::default();
    while let Some(event) = events.next().await {
        apply_event(&nic_ids, &mut map, event);
    }
    Err(OperatorError::WatchEnded)
}

fn apply_event(nic_ids: &NicIdsSender, map: &mut SingleObject<ConfigMap>, event: Event<Guarded<ConfigMap>>) {
    match map.update(event) {
        SingleObjectState::Listing => {}
        SingleObjectState::Absent => publish_if_changed(nic_ids, Some(NicIds::default())),
        SingleObjectState::Present(config_map) => publish_content(nic_ids, *config_map),
    }
}

/// Publishes the content. An unreadable version is ignored: the last one stays in effect.
fn publish_content(nic_ids: &NicIdsSender, config_map: Guarded<ConfigMap>) {
    let Some(config_map) = into_readable(config_map) else {
        let last = nic_ids.borrow().clone().unwrap_or_default();
        return publish_if_changed(nic_ids, Some(last));
    };
    let (new, invalid) = NicIds::parse(&config_map.data.unwrap_or_default());
    for entry in invalid {
        tracing::warn!(%entry, config_map = SUPPORTED_NIC_IDS, "ignoring an invalid entry");
    }
    publish_if_changed(nic_ids, Some(new));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nic_ids_are_unknown_until_listed_and_empty_after_a_missed_deletion() {
        let (sender, receiver) = channel::channel(None);
        let mut single = SingleObject::default();
        let mut apply = |event| apply_event(&sender, &mut single, event);
        let data = [("igb".to_owned(), "8086 10c9 10ca".to_owned())].into();
        let map = || Guarded(Ok(ConfigMap { data: Some(data), ..Default::default() }));
        apply(Event::Init);
        assert_eq!(*receiver.borrow(), None);
        apply(Event::InitApply(map()));
        assert_eq!(*receiver.borrow(), None);
        apply(Event::InitDone);
        assert!(receiver.borrow().as_ref().is_some_and(|ids| *ids != NicIds::default()));
        apply(Event::Init);
        apply(Event::InitDone);
        assert_eq!(*receiver.borrow(), Some(NicIds::default()));
    }
}
