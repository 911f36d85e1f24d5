//! Nodes whose write failed come again later, each time a little later.

use std::collections::HashMap;
use std::time::Duration;

use futures::StreamExt;
use tokio_util::time::DelayQueue;

const FIRST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_mins(1);

/// Nodes that wait for another try.
#[derive(Debug, Default)]
pub(crate) struct Retries {
    failures: HashMap<String, u32>,
    queue: DelayQueue<String>,
}

impl Retries {
    /// `node` failed: it comes again.
    pub(crate) fn later(&mut self, node: String) {
        let failures = self.failures.entry(node.clone()).or_default();
        let delay = FIRST.saturating_mul(1 << (*failures).min(16)).min(LONGEST);
        *failures += 1;
        self.queue.insert(node, delay);
    }

    /// `node` succeeded: its next failure is its first again.
    pub(crate) fn forget(&mut self, node: &str) {
        self.failures.remove(node);
    }

    /// The next node whose time has come. Never ends when none waits.
    pub(crate) async fn next(&mut self) -> String {
        match self.queue.next().await {
            Some(expired) => expired.into_inner(),
            None => std::future::pending().await,
        }
    }
}
