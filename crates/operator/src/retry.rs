//! Nodes whose write failed come again later, each time a little later.

use std::collections::HashMap;
use std::time::Duration;

use futures::StreamExt;
use tokio_util::time::DelayQueue;
use tokio_util::time::delay_queue::Key;

const FIRST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_mins(1);

/// Nodes that wait for another try.
#[derive(Debug, Default)]
pub(crate) struct Retries {
    failures: HashMap<String, Failures>,
    queue: DelayQueue<String>,
}

#[derive(Debug, Default)]
struct Failures {
    in_a_row: u32,
    /// Its place in the queue, while it is in there.
    waiting: Option<Key>,
}

impl Retries {
    /// `node` failed: it comes again, once.
    pub(crate) fn later(&mut self, node: String) {
        let failures = self.failures.entry(node.clone()).or_default();
        let delay = FIRST.saturating_mul(1 << failures.in_a_row.min(16)).min(LONGEST);
        failures.in_a_row = failures.in_a_row.saturating_add(1);
        match &failures.waiting {
            Some(key) => self.queue.reset(key, delay),
            None => failures.waiting = Some(self.queue.insert(node, delay)),
        }
    }

    /// `node` succeeded: its next failure is its first again.
    pub(crate) fn forget(&mut self, node: &str) {
        if let Some(Failures { waiting: Some(key), .. }) = self.failures.remove(node) {
            self.queue.try_remove(&key);
        }
    }

    /// The next node whose time has come. Never ends when none waits.
    pub(crate) async fn next(&mut self) -> String {
        let Some(expired) = self.queue.next().await else { return std::future::pending().await };
        let node = expired.into_inner();
        if let Some(failures) = self.failures.get_mut(&node) {
            failures.waiting = None;
        }
        node
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_node_comes_once_and_each_time_later() {
        let mut retries = Retries::default();
        let mut waits = Vec::new();
        for _ in 0..4 {
            retries.later("a".to_owned());
            let start = Instant::now();
            assert_eq!(retries.next().await, "a");
            waits.push(start.elapsed().as_millis() / 100);
        }
        assert_eq!(waits, [2, 4, 8, 16]);
        assert!(timeout(LONGEST * 2, retries.next()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn failing_twice_while_it_waits_is_waiting_once() {
        let mut retries = Retries::default();
        retries.later("a".to_owned());
        retries.later("a".to_owned());
        assert_eq!(retries.next().await, "a");
        assert!(timeout(LONGEST * 2, retries.next()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_succeeded_does_not_come() {
        let mut retries = Retries::default();
        retries.later("a".to_owned());
        retries.forget("a");
        assert!(timeout(LONGEST * 2, retries.next()).await.is_err());
    }
}
