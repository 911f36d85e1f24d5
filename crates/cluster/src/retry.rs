//! Retries with exponential backoff.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use futures::StreamExt;
use tokio_util::time::DelayQueue;
use tokio_util::time::delay_queue::Key;

const FIRST_DELAY: Duration = Duration::from_millis(200);
const LONGEST_DELAY: Duration = Duration::from_mins(1);

/// Keys that wait for their next attempt.
#[derive(Debug)]
pub struct RetryQueue<K> {
    failures: HashMap<K, Failures>,
    queue: DelayQueue<K>,
}

impl<K> Default for RetryQueue<K> {
    fn default() -> Self {
        Self { failures: HashMap::new(), queue: DelayQueue::new() }
    }
}

/// Failures of one key since its last success.
#[derive(Debug, Default)]
struct Failures {
    in_a_row: u32,
    /// Entry in the queue, while the key waits.
    entry: Option<Key>,
}

impl<K: Clone + Eq + Hash> RetryQueue<K> {
    /// Schedules the next attempt for `key`. The delay doubles with each failure in a row.
    pub fn schedule(&mut self, key: K) {
        let failures = self.failures.entry(key.clone()).or_default();
        let delay = FIRST_DELAY.saturating_mul(1 << failures.in_a_row.min(16)).min(LONGEST_DELAY);
        failures.in_a_row = failures.in_a_row.saturating_add(1);
        match &failures.entry {
            Some(entry) => self.queue.reset(entry, delay),
            None => failures.entry = Some(self.queue.insert(key, delay)),
        }
    }

    /// Removes `key` and resets its delay, because an attempt succeeded.
    pub fn forget(&mut self, key: &K) {
        if let Some(Failures { entry: Some(entry), .. }) = self.failures.remove(key) {
            self.queue.try_remove(&entry);
        }
    }

    /// Waits for the next key whose delay is over. Pending forever when the queue is empty.
    pub async fn next(&mut self) -> K {
        let Some(expired) = self.queue.next().await else { return std::future::pending().await };
        let key = expired.into_inner();
        if let Some(failures) = self.failures.get_mut(&key) {
            failures.entry = None;
        }
        key
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_key_is_returned_once_and_its_delay_doubles() {
        let mut retries = RetryQueue::default();
        let mut waits = Vec::new();
        for _ in 0..4 {
            retries.schedule("a".to_owned());
            let start = Instant::now();
            assert_eq!(retries.next().await, "a");
            waits.push(start.elapsed().as_millis() / 100);
        }
        assert_eq!(waits, [2, 4, 8, 16]);
        assert!(timeout(LONGEST_DELAY * 2, retries.next()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_fails_twice_waits_once() {
        let mut retries = RetryQueue::default();
        retries.schedule("a".to_owned());
        retries.schedule("a".to_owned());
        assert_eq!(retries.next().await, "a");
        assert!(timeout(LONGEST_DELAY * 2, retries.next()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_succeeded_is_not_returned() {
        let mut retries = RetryQueue::default();
        retries.schedule("a".to_owned());
        retries.forget(&"a".to_owned());
        assert!(timeout(LONGEST_DELAY * 2, retries.next()).await.is_err());
    }
}
