//! Permission to write: only the replica that holds the lease has it.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Instant;

/// Permission to write until a deadline. Every writer has a clone and checks it right before each write, so that a
/// process that was suspended notices the end of its lease before it writes.
#[derive(Clone, Debug)]
pub struct Leadership {
    until: Arc<watch::Sender<Option<Instant>>>,
}

impl Leadership {
    /// Creates a permission that is not held yet.
    pub fn not_held() -> Self {
        Self { until: Arc::new(watch::Sender::new(None)) }
    }

    /// Extends the permission until `until`.
    pub fn extend(&self, until: Instant) {
        self.until.send_replace(Some(until));
    }

    /// Ends the permission at once.
    pub fn end(&self) {
        self.until.send_replace(None);
    }

    /// Returns whether this process may write now.
    pub fn is_held(&self) -> bool {
        self.until.borrow().is_some_and(|until| Instant::now() < until)
    }
}
