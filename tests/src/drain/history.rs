//! History of objects in the order of their resource versions, recorded from watches.

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

/// Object with the description of one of its versions.
pub type Line = (String, String);

/// Recorder of the versions of objects.
pub struct History {
    /// Lines by resource version, which is unique across kinds.
    lines: watch::Sender<BTreeMap<u64, Line>>,
    follow: Vec<AbortOnDropHandle<()>>,
}

impl Default for History {
    fn default() -> Self {
        Self { lines: watch::Sender::new(BTreeMap::new()), follow: Vec::new() }
    }
}

impl History {
    /// Records objects from their current version on. `describe` returns the description of a version.
    #[must_use]
    pub fn follow<K>(
        mut self,
        kind: &'static str,
        api: Api<K>,
        describe: impl Fn(&K) -> String + Send + 'static,
    ) -> Self
    where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
        K::DynamicType: Clone,
    {
        let lines = self.lines.clone();
        self.follow.push(AbortOnDropHandle::new(tokio::spawn(async move {
            let objects = watcher(api, watcher::Config::default()).default_backoff().touched_objects();
            let mut objects = objects.boxed();
            while let Some(result) = objects.next().await {
                let Ok(object) = result else { continue };
                let version = object.resource_version().and_then(|version| version.parse().ok());
                let line = (format!("{kind} {}", object.name_any()), describe(&object));
                lines.send_modify(|lines| drop(lines.insert(version.unwrap_or_default(), line)));
            }
        })));
        self
    }

    /// Waits until the history meets `condition`; returns it. Repeated descriptions of an object are merged.
    ///
    /// # Panics
    /// If the deadline passes.
    pub async fn until(&self, what: &str, condition: impl Fn(&[Line]) -> bool) -> Vec<Line> {
        let mut lines = self.lines.subscribe();
        let waited =
            tokio::time::timeout(DEADLINE, lines.wait_for(|lines| condition(&without_repetitions(lines))))
                .await;
        let Ok(Ok(found)) = waited else {
            panic!(
                "timed out waiting for: {what}; history: {:#?}",
                without_repetitions(&self.lines.borrow())
            );
        };
        without_repetitions(&found)
    }

    /// Returns the descriptions of an object so far.
    pub fn of(&self, object: &str) -> Vec<String> {
        of(&without_repetitions(&self.lines.borrow()), object)
    }
}

/// Returns the descriptions of an object.
pub fn of(lines: &[Line], object: &str) -> Vec<String> {
    lines.iter().filter(|(name, _)| name == object).map(|(_, text)| text.clone()).collect()
}

fn without_repetitions(lines: &BTreeMap<u64, Line>) -> Vec<Line> {
    let mut last: BTreeMap<&str, &str> = BTreeMap::new();
    let mut changes = Vec::new();
    for line in lines.values() {
        if last.insert(&line.0, &line.1) != Some(&line.1) {
            changes.push(line.clone());
        }
    }
    changes
}
