//! Handles of work that runs in a thread of its own.

use std::fmt;
use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::no_thread;
use crate::HostError;

type Callback = Box<dyn FnOnce() + Send>;

/// Handle of a step or a read that was started. Dropping it does not end the work, and nothing else can either.
pub struct Running<T> {
    attempt: String,
    started: Instant,
    limit: Duration,
    result: Receiver<Result<T, HostError>>,
    end: Arc<Mutex<End>>,
}

/// The end of the work.
enum End {
    /// Still to come. The callback is called then.
    Ahead(Option<Callback>),
    Reached,
}

impl<T> Running<T> {
    /// Returns the handle of work that is complete already.
    pub fn completed(attempt: impl Into<String>, result: Result<T, HostError>) -> Self {
        let (completion, running) = completion(attempt.into(), Instant::now(), Duration::MAX);
        completion.complete(result);
        running
    }

    /// Waits for the result until the deadline. After it the work may go on, and its target stays fenced until it ends.
    pub fn wait(self) -> Result<T, HostError> {
        self.wait_for(self.limit).unwrap_or_else(|| Err(self.overdue()))
    }

    /// Waits for the result for `timeout`, and until the deadline at the longest; `None` while the work goes on in time.
    /// Hands the result over once.
    pub fn wait_for(&self, timeout: Duration) -> Option<Result<T, HostError>> {
        let left = self.limit.saturating_sub(self.started.elapsed());
        match self.result.recv_timeout(timeout.min(left)) {
            Ok(result) => Some(result),
            Err(RecvTimeoutError::Timeout) if self.started.elapsed() >= self.limit => {
                Some(Err(self.overdue()))
            }
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Err(no_thread(io::Error::other("one ended early")))),
        }
    }

    /// Returns when the work becomes overdue; `None` when it never does.
    pub fn deadline(&self) -> Option<Instant> {
        self.started.checked_add(self.limit)
    }

    /// Returns whether the work has ended.
    pub fn has_ended(&self) -> bool {
        matches!(*lock(&self.end), End::Reached)
    }

    /// Returns whether the work has neither ended nor become overdue.
    pub fn is_in_time(&self) -> bool {
        !self.has_ended() && self.started.elapsed() < self.limit
    }

    /// Calls `callback` when the work has ended and its result is known, at once if that is so already. Replaces an
    /// earlier callback.
    pub fn on_end(&self, callback: impl FnOnce() + Send + 'static) {
        let mut end = lock(&self.end);
        match &mut *end {
            End::Ahead(slot) => *slot = Some(Box::new(callback)),
            End::Reached => {
                drop(end);
                callback();
            }
        }
    }

    fn overdue(&self) -> HostError {
        HostError::Deadline { attempt: self.attempt.clone(), after: self.limit }
    }
}

impl<T> fmt::Debug for Running<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running")
            .field("attempt", &self.attempt)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

/// The worker's side of a [`Running`].
pub(super) struct Completion<T> {
    /// Taken when the work is complete.
    result: Option<Sender<Result<T, HostError>>>,
    end: Arc<Mutex<End>>,
}

/// Returns both sides of work that is about to start.
pub(super) fn completion<T>(
    attempt: String,
    started: Instant,
    limit: Duration,
) -> (Completion<T>, Running<T>) {
    let (sender, receiver) = mpsc::channel();
    let end = Arc::new(Mutex::new(End::Ahead(None)));
    let completion = Completion { result: Some(sender), end: Arc::clone(&end) };
    (completion, Running { attempt, started, limit, result: receiver, end })
}

impl<T> Completion<T> {
    /// Hands the result over and reports the end.
    pub(super) fn complete(mut self, result: Result<T, HostError>) {
        if let Some(sender) = self.result.take() {
            // Nobody may be waiting for it any more.
            let _ = sender.send(result);
        }
    }
}

impl<T> Drop for Completion<T> {
    fn drop(&mut self) {
        // Before the end is reported: a worker that panicked leaves a channel without a result.
        self.result = None;
        let end = std::mem::replace(&mut *lock(&self.end), End::Reached);
        if let End::Ahead(Some(callback)) = end {
            callback();
        }
    }
}

fn lock(end: &Mutex<End>) -> MutexGuard<'_, End> {
    // It is replaced as a whole.
    end.lock().unwrap_or_else(PoisonError::into_inner)
}
