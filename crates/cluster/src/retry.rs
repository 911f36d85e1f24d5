//! What failed comes again later, each time a little later.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use futures::StreamExt;
use tokio_util::time::DelayQueue;
use tokio_util::time::delay_queue::Key;

const FIRST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_mins(1);

/// Keys of objects that wait for another try.
#[derive(Debug)]
pub struct Retries<K> {
    failures: HashMap<K, Failures>,
    queue: DelayQueue<K>,
}

impl<K> Default for Retries<K> {
    fn default() -> Self {
        Self { failures: HashMap::new(), queue: DelayQueue::new() }
    }
}

#[derive(Debug, Default)]
struct Failures {
    in_a_row: u32,
    /// Its place in the queue, while it is in there.
    waiting: Option<Key>,
}

impl<K: Clone + Eq + Hash> Retries<K> {
    /// `key` failed: it comes again, once.
    pub fn later(&mut self, key: K) {
        let failures = self.failures.entry(key.clone()).or_default();
        let delay = FIRST.saturating_mul(1 << failures.in_a_row.min(16)).min(LONGEST);
        failures.in_a_row = failures.in_a_row.saturating_add(1);
        match &failures.waiting {
            Some(place) => self.queue.reset(place, delay),
            None => failures.waiting = Some(self.queue.insert(key, delay)),
        }
    }

    /// `key` succeeded: its next failure is its first again.
    pub fn forget(&mut self, key: &K) {
        if let Some(Failures { waiting: Some(place), .. }) = self.failures.remove(key) {
            self.queue.try_remove(&place);
        }
    }

    /// The next one whose time has come. Never ends when none waits.
    pub async fn next(&mut self) -> K {
        let Some(expired) = self.queue.next().await else { return std::future::pending().await };
        let key = expired.into_inner();
        if let Some(failures) = self.failures.get_mut(&key) {
            failures.waiting = None;
        }
        key
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
        retries.forget(&"a".to_owned());
        assert!(timeout(LONGEST * 2, retries.next()).await.is_err());
    }
}
