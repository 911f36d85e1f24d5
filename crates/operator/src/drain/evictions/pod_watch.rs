//! Watch of the metadata of all pods, shared by the whole process and open while there are subscriptions. It stores
//! nothing and only forwards changes of subscribed pods. A watch per node would need a connection per node.
//!
//! No deletion is missed: a task waits for a pod only if the pod existed (in a list, or by an accepted eviction) after
//! the subscription and after [`PodNotification::WatchStarted`]. The watch starts at a resource version from before
//! `WatchStarted`, so it delivers the later deletion of the pod. Changes between the end of a watch and the start of
//! the next one are lost, so every `WatchStarted` requires a new list.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, ObjectMeta, WatchEvent, WatchParams};
use kube::core::{PartialObjectMeta, Status};
use kube::{Api, Client};
use thiserror::Error;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use vfleet_cluster::retry::RetryQueue;

/// Timeout of a request.
const DEADLINE: Duration = Duration::from_secs(30);
/// Duration after which the API server ends a watch.
const WATCH_SECONDS: u32 = 240;
/// Timeout that detects broken connections.
const WATCH_DEADLINE: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 15);

/// Notification of a subscription.
#[derive(Debug)]
pub(super) enum PodNotification {
    /// A watch started: no later change is missed, earlier changes may be.
    WatchStarted,
    /// The watch could not be started, with the error.
    WatchFailed(String),
    /// A subscribed pod changed.
    Changed(Box<ObjectMeta>),
    /// A subscribed pod was deleted, with its uid.
    Deleted(String),
}

/// Error of the watch of the pods on a node.
#[derive(Debug, Error)]
enum PodWatchError {
    #[error("request failed: {0}")]
    Api(#[from] kube::Error),
    #[error("request timed out")]
    Deadline(#[from] tokio::time::error::Elapsed),
    #[error("the API server ended the watch: {}", .0.message)]
    Ended(Box<Status>),
    #[error("the list of pods has no resource version")]
    NoVersion,
}

/// Shared watch of pods.
#[derive(Clone)]
pub(super) struct PodWatch {
    pods: Api<PartialObjectMeta<Pod>>,
    subscriptions: Arc<Mutex<Subscriptions>>,
}

/// Subscriptions of the watch.
#[derive(Default)]
struct Subscriptions {
    last_id: u64,
    senders: HashMap<u64, mpsc::UnboundedSender<PodNotification>>,
    /// Subscriptions of each pod, by its uid.
    by_uid: HashMap<String, Vec<u64>>,
    has_started: bool,
    watch: Option<AbortHandle>,
}

/// Subscription to changes of pods, until it is dropped.
pub(super) struct PodSubscription {
    id: u64,
    subscriptions: Arc<Mutex<Subscriptions>>,
    notifications: mpsc::UnboundedReceiver<PodNotification>,
    uids: Vec<String>,
}

impl PodWatch {
    pub(super) fn new(client: &Client) -> Self {
        Self { pods: Api::all(client.clone()), subscriptions: Arc::default() }
    }

    /// Creates a subscription without pods. The first one opens the watch, the last one closes it when dropped.
    pub(super) fn subscribe(&self) -> PodSubscription {
        let (sender, notifications) = mpsc::unbounded_channel();
        let mut subscriptions = lock(&self.subscriptions);
        subscriptions.last_id += 1;
        let id = subscriptions.last_id;
        if subscriptions.has_started {
            // Cannot fail: the receiver exists.
            let _ = sender.send(PodNotification::WatchStarted);
        }
        subscriptions.senders.insert(id, sender);
        if subscriptions.watch.is_none() {
            subscriptions.watch = Some(tokio::spawn(self.clone().run()).abort_handle());
        }
        PodSubscription {
            id,
            subscriptions: Arc::clone(&self.subscriptions),
            notifications,
            uids: Vec::new(),
        }
    }

    #[cfg(test)]
    pub(super) fn is_open(&self) -> bool {
        lock(&self.subscriptions).watch.is_some()
    }

    /// Watches pods and restarts the watch after interruptions, until the task is aborted.
    async fn run(self) {
        let mut retries = RetryQueue::default();
        loop {
            let result = self.watch(&mut retries).await;
            let had_started = std::mem::take(&mut lock(&self.subscriptions).has_started);
            if let Err(error) = result {
                tracing::warn!(%error, "watch of pods interrupted, retrying");
                if !had_started {
                    lock(&self.subscriptions).notify_all(|| PodNotification::WatchFailed(error.to_string()));
                }
            }
            retries.schedule(());
            retries.next().await;
        }
    }

    /// Runs one watch from start to end.
    async fn watch(&self, retries: &mut RetryQueue<()>) -> Result<(), PodWatchError> {
        let newest = timeout(DEADLINE, self.pods.list(&ListParams::default().limit(1))).await??;
        let version = newest.metadata.resource_version.ok_or(PodWatchError::NoVersion)?;
        let params = WatchParams::default().timeout(WATCH_SECONDS);
        let events = timeout(DEADLINE, self.pods.watch(&params, &version)).await??;
        retries.forget(&());
        lock(&self.subscriptions).start();
        let mut events = pin!(events);
        let forward_all = async {
            while let Some(event) = events.next().await {
                self.forward(event?)?;
            }
            Ok(())
        };
        timeout(WATCH_DEADLINE, forward_all).await?
    }

    fn forward(&self, event: WatchEvent<PartialObjectMeta<Pod>>) -> Result<(), PodWatchError> {
        match event {
            WatchEvent::Added(_) | WatchEvent::Bookmark(_) => {}
            WatchEvent::Modified(pod) => lock(&self.subscriptions).notify_changed(&pod.metadata),
            WatchEvent::Deleted(pod) => lock(&self.subscriptions).notify_deleted(pod.metadata.uid.as_deref()),
            WatchEvent::Error(status) => return Err(PodWatchError::Ended(status)),
        }
        Ok(())
    }
}

impl Subscriptions {
    fn start(&mut self) {
        self.has_started = true;
        self.notify_all(|| PodNotification::WatchStarted);
    }

    fn notify_changed(&self, pod: &ObjectMeta) {
        self.notify(pod.uid.as_deref(), || PodNotification::Changed(Box::new(pod.clone())));
    }

    fn notify_deleted(&self, uid: Option<&str>) {
        self.notify(uid, || PodNotification::Deleted(uid.unwrap_or_default().to_owned()));
    }

    fn notify(&self, uid: Option<&str>, notification: impl Fn() -> PodNotification) {
        let ids = uid.and_then(|uid| self.by_uid.get(uid));
        for sender in ids.into_iter().flatten().filter_map(|id| self.senders.get(id)) {
            // Fails only while the subscription is dropped.
            let _ = sender.send(notification());
        }
    }

    fn notify_all(&self, notification: impl Fn() -> PodNotification) {
        for sender in self.senders.values() {
            let _ = sender.send(notification());
        }
    }

    fn remove_pod(&mut self, id: u64, uid: &str) {
        if let Some(ids) = self.by_uid.get_mut(uid) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.by_uid.remove(uid);
            }
        }
    }
}

impl PodSubscription {
    /// Adds a pod to the subscription.
    pub(super) fn add_pod(&mut self, uid: &str) {
        lock(&self.subscriptions).by_uid.entry(uid.to_owned()).or_default().push(self.id);
        self.uids.push(uid.to_owned());
    }

    /// Returns the next notification. Cancel safe.
    pub(super) async fn next(&mut self) -> PodNotification {
        match self.notifications.recv().await {
            Some(notification) => notification,
            // Cannot happen: the sender is removed when the subscription is dropped.
            None => std::future::pending().await,
        }
    }
}

impl Drop for PodSubscription {
    fn drop(&mut self) {
        let mut subscriptions = lock(&self.subscriptions);
        subscriptions.senders.remove(&self.id);
        for uid in &self.uids {
            subscriptions.remove_pod(self.id, uid);
        }
        if subscriptions.senders.is_empty() {
            subscriptions.has_started = false;
            if let Some(watch) = subscriptions.watch.take() {
                watch.abort();
            }
        }
    }
}

fn lock(subscriptions: &Mutex<Subscriptions>) -> MutexGuard<'_, Subscriptions> {
    // A panic under the lock leaves the subscriptions consistent.
    subscriptions.lock().unwrap_or_else(PoisonError::into_inner)
}
