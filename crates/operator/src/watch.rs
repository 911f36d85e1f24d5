//! Following the objects of one kind, over interruptions.

use std::fmt::Debug;

use futures::{Stream, StreamExt};
use kube::core::{DeserializeGuard, PartialObjectMeta, Resource};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Api, ResourceExt};
use serde::de::DeserializeOwned;

/// The changes of all objects behind `api`. Objects are guarded: one that cannot be read must not blind us to all
/// others. An interruption is logged, and the watch goes on.
pub(crate) fn changes<K>(
    api: Api<DeserializeGuard<K>>,
    config: watcher::Config,
) -> impl Stream<Item = Event<DeserializeGuard<K>>> + Send
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let kind = K::kind(&());
    watch(api, config).default_backoff().filter_map(move |change| {
        let change =
            change.inspect_err(|error| tracing::warn!(%kind, %error, "watching is interrupted, will go on"));
        std::future::ready(change.ok())
    })
}

/// The same, of names, labels and the like only: all that the API server sends then.
pub(crate) fn metadata_changes<K>(
    api: Api<PartialObjectMeta<K>>,
) -> impl Stream<Item = Event<PartialObjectMeta<K>>> + Send
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let kind = K::kind(&());
    watch(api, watcher::Config::default()).default_backoff().filter_map(move |change| {
        let change =
            change.inspect_err(|error| tracing::warn!(%kind, %error, "watching is interrupted, will go on"));
        std::future::ready(change.ok())
    })
}

/// The object, if it can be read. One that another version wrote may not be.
pub(crate) fn readable<K: Resource>(guarded: DeserializeGuard<K>) -> Option<K> {
    let name = guarded.name_any();
    guarded
        .0
        .inspect_err(|error| tracing::warn!(name, %error, "an object cannot be read; its last state counts"))
        .ok()
}

/// The values of a channel, from the one that it holds now.
pub(crate) fn values<T: Clone + Send + Sync + 'static>(
    receiver: tokio::sync::watch::Receiver<T>,
) -> impl Stream<Item = T> + Send {
    futures::stream::unfold((receiver, true), async |(mut receiver, is_first)| {
        if !is_first {
            receiver.changed().await.ok()?;
        }
        let value = receiver.borrow_and_update().clone();
        Some((value, (receiver, false)))
    })
}
