//! Handles of tasks that run in their own threads.

use std::fmt;
use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::thread_error;
use crate::HostError;

type Callback = Box<dyn FnOnce() + Send>;

/// Handle of a step or read that was started. Dropping it does not end the task; nothing can.
pub struct TaskHandle<T> {
    attempt: String,
    started: Instant,
    limit: Duration,
    result: Receiver<Result<T, HostError>>,
    state: Arc<Mutex<TaskState>>,
}

/// State of a task.
enum TaskState {
    /// Still running, with the callback for its end.
    Running(Option<Callback>),
    Ended,
}

impl<T> TaskHandle<T> {
    /// Returns the handle of a task that has already ended with `result`.
    pub fn completed(attempt: impl Into<String>, result: Result<T, HostError>) -> Self {
        let (completion, running) = completion(attempt.into(), Instant::now(), Duration::MAX);
        completion.complete(result);
        running
    }

    /// Waits for the result until the deadline. An overdue task goes on, and its target stays fenced until it ends.
    pub fn wait(self) -> Result<T, HostError> {
        self.wait_for(self.limit).unwrap_or_else(|| Err(self.overdue_error()))
    }

    /// Waits for the result for `timeout`, but not beyond the deadline. Returns `None` if the task is still running in
    /// time. The result is returned only once.
    pub fn wait_for(&self, timeout: Duration) -> Option<Result<T, HostError>> {
        let remaining = self.limit.saturating_sub(self.started.elapsed());
        match self.result.recv_timeout(timeout.min(remaining)) {
            Ok(result) => Some(result),
            Err(RecvTimeoutError::Timeout) if self.started.elapsed() >= self.limit => {
                Some(Err(self.overdue_error()))
            }
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                Some(Err(thread_error(io::Error::other("the thread of the task panicked"))))
            }
        }
    }

    /// Returns the time at which the task becomes overdue; `None` if it has no deadline.
    pub fn deadline(&self) -> Option<Instant> {
        self.started.checked_add(self.limit)
    }

    /// Returns whether the task has ended.
    pub fn has_ended(&self) -> bool {
        matches!(*lock(&self.state), TaskState::Ended)
    }

    /// Returns whether the task is running and not overdue.
    pub fn is_in_time(&self) -> bool {
        !self.has_ended() && self.started.elapsed() < self.limit
    }

    /// Calls `callback` when the task has ended and its result is available, immediately if it has already ended.
    /// Replaces an earlier callback.
    pub fn on_end(&self, callback: impl FnOnce() + Send + 'static) {
        let mut state = lock(&self.state);
        match &mut *state {
            TaskState::Running(slot) => *slot = Some(Box::new(callback)),
            TaskState::Ended => {
                drop(state);
                callback();
            }
        }
    }

    fn overdue_error(&self) -> HostError {
        HostError::DeadlineExceeded { attempt: self.attempt.clone(), after: self.limit }
    }
}

impl<T> fmt::Debug for TaskHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskHandle")
            .field("attempt", &self.attempt)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

/// Sender of the result of a task, owned by its thread.
pub(super) struct Completion<T> {
    /// Taken when the task ends.
    result: Option<Sender<Result<T, HostError>>>,
    state: Arc<Mutex<TaskState>>,
}

/// Returns the sender of the result and the handle of a task that is about to start.
pub(super) fn completion<T>(
    attempt: String,
    started: Instant,
    limit: Duration,
) -> (Completion<T>, TaskHandle<T>) {
    let (sender, receiver) = mpsc::channel();
    let state = Arc::new(Mutex::new(TaskState::Running(None)));
    let completion = Completion { result: Some(sender), state: Arc::clone(&state) };
    (completion, TaskHandle { attempt, started, limit, result: receiver, state })
}

impl<T> Completion<T> {
    /// Sends the result and marks the task as ended.
    pub(super) fn complete(mut self, result: Result<T, HostError>) {
        if let Some(sender) = self.result.take() {
            // The handle may have been dropped.
            let _ = sender.send(result);
        }
    }
}

impl<T> Drop for Completion<T> {
    fn drop(&mut self) {
        // Before the callback: a thread that panicked leaves a closed channel without a result.
        self.result = None;
        let previous = std::mem::replace(&mut *lock(&self.state), TaskState::Ended);
        if let TaskState::Running(Some(callback)) = previous {
            callback();
        }
    }
}

fn lock(state: &Mutex<TaskState>) -> MutexGuard<'_, TaskState> {
    // Safe after a panic: the state is replaced as a whole.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
