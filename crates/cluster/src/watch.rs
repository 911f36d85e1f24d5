//! Following the objects of one kind, over interruptions.

use std::borrow::Cow;
use std::fmt::Debug;

use futures::{Stream, StreamExt};
use kube::core::{PartialObjectMeta, Resource};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Api, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::sync::watch::Sender;

use crate::guarded::Guarded;

/// The changes of all objects behind `api`. Objects are guarded: one that cannot be read must not blind us to all
/// others. An interruption is logged, and the watch goes on.
pub fn changes<K>(
    api: Api<Guarded<K>>,
    config: watcher::Config,
) -> impl Stream<Item = Event<Guarded<K>>> + Send
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    uninterrupted(K::kind(&()), watch(api, config))
}

/// The same, of names, labels and the like only: all that the API server sends then.
pub fn metadata_changes<K>(
    api: Api<PartialObjectMeta<K>>,
) -> impl Stream<Item = Event<PartialObjectMeta<K>>> + Send
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    uninterrupted(K::kind(&()), watch(api, watcher::Config::default()))
}

/// The changes of `watch`. An interruption is logged, and it goes on.
pub fn uninterrupted<T: Send>(
    kind: Cow<'static, str>,
    watch: impl Stream<Item = Result<Event<T>, watcher::Error>> + Send,
) -> impl Stream<Item = Event<T>> + Send {
    watch.default_backoff().filter_map(move |change| {
        let change =
            change.inspect_err(|error| tracing::warn!(%kind, %error, "watching is interrupted, will go on"));
        std::future::ready(change.ok())
    })
}

/// The one object of a watch that is narrowed to its name. That it went while nobody watched shows only in the next
/// list, which does not have it.
pub struct Single<K> {
    listed: Option<Guarded<K>>,
}

/// What an event says about the one object.
pub enum Sight<K> {
    /// Nothing yet: the list is not complete.
    Nothing,
    /// It is not there.
    Gone,
    /// It is there, and so.
    There(Box<Guarded<K>>),
}

impl<K> Default for Single<K> {
    fn default() -> Self {
        Self { listed: None }
    }
}

impl<K> Single<K> {
    /// Takes in an event of the watch.
    pub fn take(&mut self, event: Event<Guarded<K>>) -> Sight<K> {
        match event {
            Event::Init => {
                self.listed = None;
                Sight::Nothing
            }
            Event::InitApply(object) => {
                self.listed = Some(object);
                Sight::Nothing
            }
            Event::InitDone => {
                self.listed.take().map_or(Sight::Gone, |object| Sight::There(Box::new(object)))
            }
            Event::Apply(object) => Sight::There(Box::new(object)),
            Event::Delete(_) => Sight::Gone,
        }
    }
}

/// Narrows a watch to the object of this name.
pub fn only(name: &str) -> watcher::Config {
    watcher::Config::default().fields(&format!("metadata.name={name}"))
}

/// Tells the others, if it is news to them.
pub fn publish<T: PartialEq>(channel: &Sender<T>, new: T) {
    channel.send_if_modified(|known| {
        let news = *known != new;
        *known = new;
        news
    });
}

/// The object, if it can be read. One that another version wrote may not be.
pub fn readable<K: Resource>(guarded: Guarded<K>) -> Option<K> {
    let name = guarded.name_any();
    guarded
        .0
        .inspect_err(|bad| {
            tracing::warn!(name, error = bad.error, "an object cannot be read; its last state counts");
        })
        .ok()
}

/// A channel whose other end is a stream. It ends when nobody can send any more.
pub fn channel<T: Send>() -> (mpsc::UnboundedSender<T>, impl Stream<Item = T> + Send) {
    let (send, mut receive) = mpsc::unbounded_channel();
    (send, futures::stream::poll_fn(move |context| receive.poll_recv(context)))
}

/// The values of a channel, from the one that it holds now.
pub fn values<T: Clone + Send + Sync + 'static>(
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
