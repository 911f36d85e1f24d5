//! One watch of all pods' metadata for the whole process, open while somebody follows pods. It keeps nothing: it only
//! passes on what happens to the pods that are followed. A watch for each node would be a connection for each node.
//!
//! Why no deletion is missed: a pod is waited for only when it was seen (in a list, or by an eviction that was accepted)
//! after it was followed here, and after [`News::Begun`]. The watch begins at a version from before `Begun`, so it still
//! brings the pod's deletion, which comes later, and by then the pod is followed. When a watch ends, what happens before
//! the next one begins is lost; so every `Begun` means: list again.

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
use vfleet_cluster::retry::Retries;

/// An API server that does not answer is asked again.
const DEADLINE: Duration = Duration::from_secs(30);
/// The API server ends a watch after this.
const WATCH_SECONDS: u32 = 240;
/// A connection that broke without a word is noticed by this.
const LONGEST_WATCH: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 15);

/// What a follower is told.
#[derive(Debug)]
pub(super) enum News {
    /// From now on nothing is missed; what was before may have been. One too many costs a list, and no more.
    Begun,
    /// The watch cannot be begun, and why.
    Blind(String),
    /// A followed pod changed.
    Changed(Box<ObjectMeta>),
    /// A followed pod, given by its uid, is gone.
    Gone(String),
}

#[derive(Debug, Error)]
enum FeedError {
    #[error("the API server refused it: {0}")]
    Api(#[from] kube::Error),
    #[error("the API server did not answer in time")]
    Deadline(#[from] tokio::time::error::Elapsed),
    #[error("the API server broke the watch off: {}", .0.message)]
    BrokenOff(Box<Status>),
    #[error("the API server's list has no version")]
    NoVersion,
}

/// The watch, for those who want to follow pods.
#[derive(Clone)]
pub(super) struct Feed {
    pods: Api<PartialObjectMeta<Pod>>,
    routes: Arc<Mutex<Routes>>,
}

/// Who is told what.
#[derive(Default)]
struct Routes {
    last_id: u64,
    followers: HashMap<u64, mpsc::UnboundedSender<News>>,
    /// Followers of a pod, by its uid.
    followed: HashMap<String, Vec<u64>>,
    is_begun: bool,
    watch: Option<AbortHandle>,
}

/// One who follows pods, until it is dropped.
pub(super) struct Follower {
    id: u64,
    routes: Arc<Mutex<Routes>>,
    news: mpsc::UnboundedReceiver<News>,
    uids: Vec<String>,
}

impl Feed {
    pub(super) fn new(client: &Client) -> Self {
        Self { pods: Api::all(client.clone()), routes: Arc::default() }
    }

    /// A new follower, of no pods yet. The first opens the watch, and the last that leaves closes it.
    pub(super) fn join(&self) -> Follower {
        let (tell, news) = mpsc::unbounded_channel();
        let mut routes = lock(&self.routes);
        routes.last_id += 1;
        let id = routes.last_id;
        if routes.is_begun {
            // Cannot fail: we have the other end.
            let _ = tell.send(News::Begun);
        }
        routes.followers.insert(id, tell);
        if routes.watch.is_none() {
            routes.watch = Some(tokio::spawn(self.clone().run()).abort_handle());
        }
        Follower { id, routes: Arc::clone(&self.routes), news, uids: Vec::new() }
    }

    #[cfg(test)]
    pub(super) fn is_open(&self) -> bool {
        lock(&self.routes).watch.is_some()
    }

    /// Watches, over interruptions, until it is aborted.
    async fn run(self) {
        let mut retries = Retries::default();
        loop {
            let ended = self.watch(&mut retries).await;
            let had_begun = std::mem::take(&mut lock(&self.routes).is_begun);
            if let Err(error) = ended {
                tracing::warn!(%error, "watching pods is interrupted, will go on");
                if !had_begun {
                    lock(&self.routes).tell_all(|| News::Blind(error.to_string()));
                }
            }
            retries.later(());
            retries.next().await;
        }
    }

    /// One watch, from its begin to its end.
    async fn watch(&self, retries: &mut Retries<()>) -> Result<(), FeedError> {
        let newest = timeout(DEADLINE, self.pods.list(&ListParams::default().limit(1))).await??;
        let version = newest.metadata.resource_version.ok_or(FeedError::NoVersion)?;
        let params = WatchParams::default().timeout(WATCH_SECONDS);
        let events = timeout(DEADLINE, self.pods.watch(&params, &version)).await??;
        retries.forget(&());
        lock(&self.routes).begin();
        let mut events = pin!(events);
        let until_its_end = async {
            while let Some(event) = events.next().await {
                self.pass_on(event?)?;
            }
            Ok(())
        };
        timeout(LONGEST_WATCH, until_its_end).await?
    }

    fn pass_on(&self, event: WatchEvent<PartialObjectMeta<Pod>>) -> Result<(), FeedError> {
        match event {
            WatchEvent::Added(_) | WatchEvent::Bookmark(_) => {}
            WatchEvent::Modified(pod) => lock(&self.routes).changed(&pod.metadata),
            WatchEvent::Deleted(pod) => lock(&self.routes).gone(pod.metadata.uid.as_deref()),
            WatchEvent::Error(status) => return Err(FeedError::BrokenOff(status)),
        }
        Ok(())
    }
}

impl Routes {
    fn begin(&mut self) {
        self.is_begun = true;
        self.tell_all(|| News::Begun);
    }

    fn changed(&self, pod: &ObjectMeta) {
        self.tell_followers(pod.uid.as_deref(), || News::Changed(Box::new(pod.clone())));
    }

    fn gone(&self, uid: Option<&str>) {
        self.tell_followers(uid, || News::Gone(uid.unwrap_or_default().to_owned()));
    }

    fn tell_followers(&self, uid: Option<&str>, news: impl Fn() -> News) {
        let followers = uid.and_then(|uid| self.followed.get(uid));
        for follower in followers.into_iter().flatten().filter_map(|id| self.followers.get(id)) {
            // One that is just being dropped needs no news.
            let _ = follower.send(news());
        }
    }

    fn tell_all(&self, news: impl Fn() -> News) {
        for follower in self.followers.values() {
            let _ = follower.send(news());
        }
    }

    fn unfollow(&mut self, id: u64, uid: &str) {
        if let Some(followers) = self.followed.get_mut(uid) {
            followers.retain(|follower| *follower != id);
            if followers.is_empty() {
                self.followed.remove(uid);
            }
        }
    }
}

impl Follower {
    /// From now on there is news about this pod.
    pub(super) fn follow(&mut self, uid: &str) {
        lock(&self.routes).followed.entry(uid.to_owned()).or_default().push(self.id);
        self.uids.push(uid.to_owned());
    }

    /// The next news. May be dropped at any time without losing any.
    pub(super) async fn next(&mut self) -> News {
        match self.news.recv().await {
            Some(news) => news,
            // The other end goes when we are dropped, not earlier.
            None => std::future::pending().await,
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let mut routes = lock(&self.routes);
        routes.followers.remove(&self.id);
        for uid in &self.uids {
            routes.unfollow(self.id, uid);
        }
        if routes.followers.is_empty() {
            routes.is_begun = false;
            if let Some(watch) = routes.watch.take() {
                watch.abort();
            }
        }
    }
}

fn lock(routes: &Mutex<Routes>) -> MutexGuard<'_, Routes> {
    // Nothing that is done under the lock can leave it half done.
    routes.lock().unwrap_or_else(PoisonError::into_inner)
}
