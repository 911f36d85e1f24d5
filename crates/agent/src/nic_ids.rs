//! ConfigMap `supported-nic-ids`, by which administrators restrict the kinds of cards that are reported.

use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher;
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Api, Client};
use vfleet_api::keys::SUPPORTED_NIC_IDS;
use vfleet_plan::NicIds;

use crate::single_object::apply_event;
use crate::watch_log::WatchLog;

/// Watches the ConfigMap. Yields its ids whenever they may have changed; `None` while it does not exist.
pub(crate) fn watch_nic_ids(
    client: &Client,
    namespace: &str,
) -> impl Stream<Item = Option<NicIds>> + Send + use<> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let selection = watcher::Config::default().fields(&format!("metadata.name={SUPPORTED_NIC_IDS}"));
    let mut listed = None;
    let mut watch_log = WatchLog::new(format!("ConfigMap {SUPPORTED_NIC_IDS}"));
    watch(maps, selection).default_backoff().filter_map(move |change| {
        let update = match change {
            Ok(event) => {
                watch_log.received(&event);
                apply_event(&mut listed, event).map(|map| map.map(parse_ids))
            }
            Err(error) => {
                watch_log.failed(&error);
                // Without permission to read it, all cards are reported.
                is_forbidden(&error).then_some(None)
            }
        };
        std::future::ready(update)
    })
}

fn parse_ids(map: ConfigMap) -> NicIds {
    let (ids, bad) = NicIds::parse(&map.data.unwrap_or_default());
    for entry in bad {
        tracing::warn!(%entry, "ignoring an invalid entry of ConfigMap {SUPPORTED_NIC_IDS}");
    }
    ids
}

fn is_forbidden(error: &watcher::Error) -> bool {
    let (watcher::Error::InitialListFailed(kube::Error::Api(status))
    | watcher::Error::WatchStartFailed(kube::Error::Api(status))
    | watcher::Error::WatchError(status)) = error
    else {
        return false;
    };
    status.is_forbidden()
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;

    use super::*;

    #[test]
    fn the_ids_are_known_when_the_list_is_complete_and_none_when_the_config_map_is_deleted() {
        let map = || {
            let data = [("igb", "8086 10c9 10ca"), ("bad", "only two")];
            let data = data.map(|(key, value)| (key.to_owned(), value.to_owned()));
            ConfigMap { data: Some(data.into()), ..Default::default() }
        };
        let mut listed = None;
        assert_eq!(apply_event(&mut listed, Event::Init), None);
        assert_eq!(apply_event(&mut listed, Event::InitApply(map())), None);
        let ids = parse_ids(apply_event(&mut listed, Event::InitDone).flatten().unwrap());
        assert!(ids.lists(0x8086, 0x10c9) && !ids.lists(0x8086, 0x1572));
        assert_eq!(apply_event(&mut listed, Event::Init), None);
        assert_eq!(apply_event(&mut listed, Event::InitDone), Some(None));
        assert!(apply_event(&mut listed, Event::Apply(map())).flatten().is_some());
        assert_eq!(apply_event(&mut listed, Event::Delete(map())), Some(None));
    }
}
