//! Watches that continue after errors, and channels as streams.

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

/// Watches the objects of `api`. An error is logged and the watch continues; an object that cannot be parsed does not
/// end the watch.
pub fn watch_objects<K>(
    api: Api<Guarded<K>>,
    config: watcher::Config,
) -> impl Stream<Item = Event<Guarded<K>>> + Send
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    resume_after_errors(K::kind(&()), watch(api, config))
}

/// Watches only the metadata of the objects of `api`, which makes the API server send less.
pub fn watch_metadata<K>(
    api: Api<PartialObjectMeta<K>>,
) -> impl Stream<Item = Event<PartialObjectMeta<K>>> + Send
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    resume_after_errors(K::kind(&()), watch(api, watcher::Config::default()))
}

/// Returns the events of `watch`. Errors are logged, and the watch is resumed with backoff.
pub fn resume_after_errors<T: Send>(
    kind: Cow<'static, str>,
    watch: impl Stream<Item = Result<Event<T>, watcher::Error>> + Send,
) -> impl Stream<Item = Event<T>> + Send {
    watch.default_backoff().filter_map(move |event| {
        let event = event.inspect_err(|error| tracing::warn!(%kind, %error, "watch interrupted: retrying"));
        std::future::ready(event.ok())
    })
}

/// State of a watch that [`select_name`] limits to one object. A deletion during an interruption shows only in the next
/// list, which does not contain the object.
pub struct SingleObject<K> {
    listed: Option<Guarded<K>>,
}

/// State of the single object after an event.
pub enum SingleObjectState<K> {
    /// The list is not complete, so that the state is not known yet.
    Listing,
    /// The object does not exist.
    Absent,
    /// The object exists.
    Present(Box<Guarded<K>>),
}

impl<K> Default for SingleObject<K> {
    fn default() -> Self {
        Self { listed: None }
    }
}

impl<K> SingleObject<K> {
    /// Applies an event of the watch and returns the new state.
    pub fn update(&mut self, event: Event<Guarded<K>>) -> SingleObjectState<K> {
        match event {
            Event::Init => {
                self.listed = None;
                SingleObjectState::Listing
            }
            Event::InitApply(object) => {
                self.listed = Some(object);
                SingleObjectState::Listing
            }
            Event::InitDone => self
                .listed
                .take()
                .map_or(SingleObjectState::Absent, |object| SingleObjectState::Present(Box::new(object))),
            Event::Apply(object) => SingleObjectState::Present(Box::new(object)),
            Event::Delete(_) => SingleObjectState::Absent,
        }
    }
}

/// Returns a watch configuration that selects the object `name`.
pub fn select_name(name: &str) -> watcher::Config {
    watcher::Config::default().fields(&format!("metadata.name={name}"))
}

/// Sends `new` to the receivers if it differs from the last value.
pub fn publish_if_changed<T: PartialEq>(channel: &Sender<T>, new: T) {
    channel.send_if_modified(|current| {
        let is_changed = *current != new;
        *current = new;
        is_changed
    });
}

/// Returns the object if it could be parsed; otherwise logs a warning.
pub fn into_readable<K: Resource>(guarded: Guarded<K>) -> Option<K> {
    let name = guarded.name_any();
    guarded
        .0
        .inspect_err(|unreadable| {
            tracing::warn!(
                name,
                error = unreadable.error,
                "object cannot be parsed: its last state stays in effect"
            );
        })
        .ok()
}

/// Creates a channel whose receiver is a stream. The stream ends when all senders are dropped.
pub fn stream_channel<T: Send>() -> (mpsc::UnboundedSender<T>, impl Stream<Item = T> + Send) {
    let (send, mut receive) = mpsc::unbounded_channel();
    (send, futures::stream::poll_fn(move |context| receive.poll_recv(context)))
}

/// Returns the values of a watch channel as a stream, starting with the current one.
pub fn stream_values<T: Clone + Send + Sync + 'static>(
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
