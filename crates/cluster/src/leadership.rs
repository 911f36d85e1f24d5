//! Whether this process may write: only one of several replicas may, the one that holds the lease.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Instant;

/// The right to write, for a while. Cloned into every writer, who asks it right before each write: a process that was
/// asleep finds out here that its time is over, before it does harm.
#[derive(Clone, Debug)]
pub struct Leadership {
    until: Arc<watch::Sender<Option<Instant>>>,
}

impl Leadership {
    /// Nobody's yet.
    pub fn none() -> Self {
        Self { until: Arc::new(watch::Sender::new(None)) }
    }

    /// It is ours until then.
    pub fn extend(&self, until: Instant) {
        self.until.send_replace(Some(until));
    }

    /// It is ours no more.
    pub fn end(&self) {
        self.until.send_replace(None);
    }

    /// Whether it is ours now.
    pub fn holds(&self) -> bool {
        self.until.borrow().is_some_and(|until| Instant::now() < until)
    }
}
