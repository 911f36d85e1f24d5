//! The ConfigMap `supported-nic-ids`, by which administrators narrow the kinds of cards that are reported.

use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Api, Client};
use vfleet_api::keys::SUPPORTED_NIC_IDS;
use vfleet_plan::NicIds;

/// What it says, whenever that may be something else: `None` while there is none, which narrows nothing.
pub(crate) fn changes(client: &Client, namespace: &str) -> impl Stream<Item = Option<NicIds>> + Send + use<> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let only_it = watcher::Config::default().fields(&format!("metadata.name={SUPPORTED_NIC_IDS}"));
    let mut listed = None;
    watch(maps, only_it).default_backoff().filter_map(move |change| {
        let said = match change {
            Ok(event) => take(&mut listed, event).map(|map| map.map(read)),
            Err(error) => {
                tracing::warn!(%error, "watching {SUPPORTED_NIC_IDS} is interrupted, will go on");
                // Who may not read it is not narrowed by it.
                is_forbidden(&error).then_some(None)
            }
        };
        std::future::ready(said)
    })
}

/// The ConfigMap after this event. That it went while nobody watched shows only in the next list, which does not have it.
#[expect(clippy::option_option, reason = "not known yet is something else than not there")]
fn take(listed: &mut Option<ConfigMap>, event: Event<ConfigMap>) -> Option<Option<ConfigMap>> {
    match event {
        Event::Init => {
            *listed = None;
            None
        }
        Event::InitApply(map) => {
            *listed = Some(map);
            None
        }
        Event::InitDone => Some(listed.take()),
        Event::Apply(map) => Some(Some(map)),
        Event::Delete(_) => Some(None),
    }
}

fn read(map: ConfigMap) -> NicIds {
    let (ids, bad) = NicIds::parse(&map.data.unwrap_or_default());
    for entry in bad {
        tracing::warn!(%entry, "an entry of {SUPPORTED_NIC_IDS} is not used");
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
    use super::*;

    #[test]
    fn it_is_known_when_the_list_is_complete_and_narrows_nothing_when_it_is_gone() {
        let map = || {
            let data = [("igb", "8086 10c9 10ca"), ("bad", "only two")];
            let data = data.map(|(key, value)| (key.to_owned(), value.to_owned()));
            ConfigMap { data: Some(data.into()), ..Default::default() }
        };
        let mut listed = None;
        assert_eq!(take(&mut listed, Event::Init), None);
        assert_eq!(take(&mut listed, Event::InitApply(map())), None);
        let said = read(take(&mut listed, Event::InitDone).flatten().unwrap());
        assert!(said.lists(0x8086, 0x10c9) && !said.lists(0x8086, 0x1572));
        assert_eq!(take(&mut listed, Event::Init), None);
        assert_eq!(take(&mut listed, Event::InitDone), Some(None));
        assert!(take(&mut listed, Event::Apply(map())).flatten().is_some());
        assert_eq!(take(&mut listed, Event::Delete(map())), Some(None));
    }
}
