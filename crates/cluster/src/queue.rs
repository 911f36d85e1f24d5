//! Objects to work on, each by its key: one piece of work at a time for each, several at once in all, and again later
//! when it failed.

use std::collections::{BTreeSet, HashMap};
use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{self, JoinSet};

use crate::retry::Retries;
use crate::write::WriteError;

const TIME_TO_FINISH: Duration = Duration::from_secs(3);

/// Metrics of work queues.
pub trait QueueMetrics: Send + Sync {
    /// Counts work of `controller` that ended, with the reason of its error.
    fn worked(&self, controller: &'static str, error: Option<&'static str>);

    /// Sets the number of keys that wait or are worked on.
    fn queue_depth(&self, controller: &'static str, depth: usize);
}

/// The work of one controller.
pub struct Work<K> {
    /// The controller's name, in the log and in metrics.
    controller: &'static str,
    at_once: usize,
    metrics: Arc<dyn QueueMetrics>,
    touched: BTreeSet<K>,
    busy: HashMap<task::Id, K>,
    busy_keys: BTreeSet<K>,
    tasks: JoinSet<Result<(), WriteError>>,
    retries: Retries<K>,
    /// What failed, and was not done since.
    failures: HashMap<K, Failure>,
}

/// Work that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    pub times: u32,
    pub text: String,
}

impl<K: Clone + Ord + Hash + Debug + Display + Send + 'static> Work<K> {
    pub fn new(controller: &'static str, at_once: usize, metrics: Arc<impl QueueMetrics + 'static>) -> Self {
        Self {
            controller,
            at_once,
            metrics,
            touched: BTreeSet::new(),
            busy: HashMap::new(),
            busy_keys: BTreeSet::new(),
            tasks: JoinSet::new(),
            retries: Retries::default(),
            failures: HashMap::new(),
        }
    }

    /// These are to be looked at.
    pub fn touch(&mut self, keys: impl IntoIterator<Item = K>) {
        self.touched.extend(keys);
        self.show_depth();
    }

    /// The next one that can be looked at now; `None` when there is none, or when enough is under way.
    pub fn next_touched(&mut self) -> Option<K> {
        if self.tasks.len() >= self.at_once {
            return None;
        }
        let key = self.touched.iter().find(|key| !self.busy_keys.contains(*key)).cloned()?;
        self.touched.remove(&key);
        self.show_depth();
        Some(key)
    }

    /// Whether nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Nothing is to be done for `key`: all is as it shall be.
    pub fn nothing_to_do(&mut self, key: &K) {
        self.retries.forget(key);
        self.failures.remove(key);
    }

    /// How the work for `key` failed, if it did and was not done since.
    pub fn failure(&self, key: &K) -> Option<&Failure> {
        self.failures.get(key)
    }

    /// All of them.
    pub fn failures(&self) -> impl Iterator<Item = (&K, &Failure)> {
        self.failures.iter()
    }

    /// Does something for `key`. It is not looked at again before that is done.
    pub fn start(&mut self, key: K, work: impl Future<Output = Result<(), WriteError>> + Send + 'static) {
        let handle = self.tasks.spawn(work);
        self.busy_keys.insert(key.clone());
        self.busy.insert(handle.id(), key);
        self.show_depth();
    }

    /// Waits until something ended or its time to be tried again has come, and takes note. Never ends when nothing is
    /// under way. May be dropped at any time without losing anything.
    pub async fn progress(&mut self) {
        tokio::select! {
            Some(ended) = self.tasks.join_next_with_id() => self.ended(ended),
            key = self.retries.next() => { self.touched.insert(key); }
        }
        self.show_depth();
    }

    /// Lets what is under way end, for a moment: another replica waits for us. What is broken off then is done again
    /// by that one, as after a crash.
    pub async fn finish(&mut self) {
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(TIME_TO_FINISH, ended).await.is_err() {
            tracing::warn!(controller = self.controller, "writes that take long are broken off");
            self.tasks.shutdown().await;
        }
    }

    fn ended(&mut self, ended: Result<(task::Id, Result<(), WriteError>), task::JoinError>) {
        let (id, result) = match ended {
            Ok((id, result)) => (id, result),
            Err(error) => (error.id(), Err(WriteError::Thread(error))),
        };
        let Some(key) = self.busy.remove(&id) else { return };
        self.busy_keys.remove(&key);
        self.metrics.worked(self.controller, result.as_ref().err().map(WriteError::reason));
        match result {
            Ok(()) => {
                self.retries.forget(&key);
                self.failures.remove(&key);
            }
            // Not worth a line: the change that we had not seen yet is on its way to us.
            Err(error) if error.is_conflict() => {
                tracing::debug!(controller = self.controller, %key, %error, "somebody else was quicker");
                self.retries.later(key);
            }
            Err(error) => {
                let (controller, reason) = (self.controller, error.reason());
                tracing::warn!(controller, %key, reason, %error, "not written, will try again");
                let failure = self
                    .failures
                    .entry(key.clone())
                    .or_insert_with(|| Failure { times: 0, text: String::new() });
                failure.times = failure.times.saturating_add(1);
                failure.text = error.to_string();
                self.retries.later(key);
            }
        }
    }

    fn show_depth(&self) {
        self.metrics.queue_depth(self.controller, self.touched.len() + self.busy.len());
    }
}
