//! Work queues of controllers: at most one task per key, a limited number of tasks in all, and retries after failures.

use std::collections::{BTreeSet, HashMap};
use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{self, JoinSet};

use crate::retry::RetryQueue;
use crate::write::WriteError;

/// Time for running writes to end after the lease was lost.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);

/// Metrics of work queues.
pub trait QueueMetrics: Send + Sync {
    /// Counts a task of `controller` that ended, with the reason of its error.
    fn count_result(&self, controller: &'static str, error: Option<&'static str>);

    /// Sets the number of keys that wait or whose task runs.
    fn set_queue_depth(&self, controller: &'static str, depth: usize);
}

/// Work queue of one controller.
pub struct WorkQueue<K> {
    /// Name in logs and metrics.
    controller: &'static str,
    max_tasks: usize,
    metrics: Arc<dyn QueueMetrics>,
    /// Keys to reconcile. A key may also be in `running`: it is reconciled again when its task has ended.
    pending: BTreeSet<K>,
    running: HashMap<task::Id, K>,
    running_keys: BTreeSet<K>,
    tasks: JoinSet<Result<(), WriteError>>,
    retries: RetryQueue<K>,
    /// Last failures of keys that have not succeeded since.
    failures: HashMap<K, WorkFailure>,
}

/// Failure of the task of a key.
#[derive(Clone, Debug)]
pub struct WorkFailure {
    /// Number of failures in a row.
    pub times: u32,
    /// Text of the last error.
    pub text: String,
}

impl<K: Clone + Ord + Hash + Debug + Display + Send + 'static> WorkQueue<K> {
    /// Creates the queue of `controller`, which runs up to `max_tasks` tasks at once.
    pub fn new(
        controller: &'static str,
        max_tasks: usize,
        metrics: Arc<impl QueueMetrics + 'static>,
    ) -> Self {
        Self {
            controller,
            max_tasks,
            metrics,
            pending: BTreeSet::new(),
            running: HashMap::new(),
            running_keys: BTreeSet::new(),
            tasks: JoinSet::new(),
            retries: RetryQueue::default(),
            failures: HashMap::new(),
        }
    }

    /// Adds keys to reconcile.
    pub fn add(&mut self, keys: impl IntoIterator<Item = K>) {
        self.pending.extend(keys);
        self.report_depth();
    }

    /// Takes the next key that can be reconciled now. Returns `None` when there is none, or when the maximum of tasks
    /// runs.
    pub fn take_next(&mut self) -> Option<K> {
        if self.tasks.len() >= self.max_tasks {
            return None;
        }
        let key = self.pending.iter().find(|key| !self.running_keys.contains(*key)).cloned()?;
        self.pending.remove(&key);
        self.report_depth();
        Some(key)
    }

    /// Returns whether no task runs.
    pub fn is_idle(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Marks `key` as reconciled without a task, which ends its retries.
    pub fn mark_done(&mut self, key: &K) {
        self.retries.forget(key);
        self.failures.remove(key);
    }

    /// Returns the last failure of `key`, if it has not succeeded since.
    pub fn failure(&self, key: &K) -> Option<&WorkFailure> {
        self.failures.get(key)
    }

    /// Returns the failures of all keys.
    pub fn failures(&self) -> impl Iterator<Item = (&K, &WorkFailure)> {
        self.failures.iter()
    }

    /// Starts the task of `key`. The key is not returned by [`Self::take_next`] before the task has ended.
    pub fn start(&mut self, key: K, task: impl Future<Output = Result<(), WriteError>> + Send + 'static) {
        let handle = self.tasks.spawn(task);
        self.running_keys.insert(key.clone());
        self.running.insert(handle.id(), key);
        self.report_depth();
    }

    /// Waits until a task has ended or a retry is due. Pending forever when neither can happen; cancel safe.
    pub async fn wait_for_progress(&mut self) {
        tokio::select! {
            Some(ended) = self.tasks.join_next_with_id() => self.handle_result(ended),
            key = self.retries.next() => { self.pending.insert(key); }
        }
        self.report_depth();
    }

    /// Waits a short time for running tasks and aborts the rest, because another replica waits to lead. That replica
    /// repeats the aborted writes, as after a crash.
    pub async fn finish(&mut self) {
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(SHUTDOWN_TIMEOUT, ended).await.is_err() {
            tracing::warn!(controller = self.controller, "writes still running at shutdown were aborted");
            self.tasks.shutdown().await;
        }
    }

    fn handle_result(&mut self, ended: Result<(task::Id, Result<(), WriteError>), task::JoinError>) {
        let (id, result) = match ended {
            Ok((id, result)) => (id, result),
            Err(error) => (error.id(), Err(WriteError::Task(error))),
        };
        let Some(key) = self.running.remove(&id) else { return };
        self.running_keys.remove(&key);
        self.metrics.count_result(self.controller, result.as_ref().err().map(WriteError::reason));
        match result {
            Ok(()) => {
                self.retries.forget(&key);
                self.failures.remove(&key);
            }
            // Expected: the watch will soon deliver the change that caused the conflict.
            Err(error) if error.is_conflict() => {
                tracing::debug!(controller = self.controller, %key, %error, "write conflict: retrying");
                self.retries.schedule(key);
            }
            Err(error) => {
                let (controller, reason) = (self.controller, error.reason());
                tracing::warn!(controller, %key, reason, %error, "write failed: retrying");
                let failure = self
                    .failures
                    .entry(key.clone())
                    .or_insert_with(|| WorkFailure { times: 0, text: String::new() });
                failure.times = failure.times.saturating_add(1);
                failure.text = error.to_string();
                self.retries.schedule(key);
            }
        }
    }

    fn report_depth(&self) {
        self.metrics.set_queue_depth(self.controller, self.pending.len() + self.running.len());
    }
}
