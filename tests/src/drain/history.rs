//! What happened to some objects, in the order in which the API server wrote it: from watches, by resource versions.

#![allow(clippy::panic, reason = "in a test a failed expectation is the point")]

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use futures::StreamExt;
use kube::core::Resource;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

const DEADLINE: Duration = Duration::from_mins(2);

/// An object, and what was said about one version of it.
pub type Line = (String, String);

/// Follows objects until it is dropped.
pub struct History {
    /// By resource version. Every watch has one of its own, and all of them grow together.
    lines: watch::Sender<BTreeMap<u64, Line>>,
    follow: Vec<AbortOnDropHandle<()>>,
}

impl Default for History {
    fn default() -> Self {
        Self { lines: watch::Sender::new(BTreeMap::new()), follow: Vec::new() }
    }
}

impl History {
    /// From now on, and as they are now. What is said about an object comes under `kind` and its name.
    #[must_use]
    pub fn follow<K>(
        mut self,
        kind: &'static str,
        api: Api<K>,
        say: impl Fn(&K) -> String + Send + 'static,
    ) -> Self
    where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
        K::DynamicType: Clone,
    {
        let lines = self.lines.clone();
        self.follow.push(AbortOnDropHandle::new(tokio::spawn(async move {
            let objects = watcher(api, watcher::Config::default()).default_backoff().touched_objects();
            let mut objects = objects.boxed();
            while let Some(seen) = objects.next().await {
                let Ok(object) = seen else { continue };
                let version = object.resource_version().and_then(|version| version.parse().ok());
                let line = (format!("{kind} {}", object.name_any()), say(&object));
                lines.send_modify(|lines| drop(lines.insert(version.unwrap_or_default(), line)));
            }
        })));
        self
    }

    /// Waits until what happened so far is like this; gives it. What is said of an object twice in a row is there once.
    ///
    /// # Panics
    ///
    /// When it does not come to that.
    pub async fn until(&self, what: &str, like: impl Fn(&[Line]) -> bool) -> Vec<Line> {
        let mut lines = self.lines.subscribe();
        let waited = tokio::time::timeout(DEADLINE, lines.wait_for(|lines| like(&news(lines)))).await;
        let Ok(Ok(found)) = waited else {
            panic!("it never came to: {what}; what happened is {:#?}", news(&self.lines.borrow()));
        };
        news(&found)
    }

    /// What was said of this object so far.
    pub fn of(&self, object: &str) -> Vec<String> {
        of(&news(&self.lines.borrow()), object)
    }
}

/// What was said of this object.
pub fn of(lines: &[Line], object: &str) -> Vec<String> {
    lines.iter().filter(|(name, _)| name == object).map(|(_, text)| text.clone()).collect()
}

fn news(lines: &BTreeMap<u64, Line>) -> Vec<Line> {
    let mut last: BTreeMap<&str, &str> = BTreeMap::new();
    let mut news = Vec::new();
    for line in lines.values() {
        if last.insert(&line.0, &line.1) != Some(&line.1) {
            news.push(line.clone());
        }
    }
    news
}
