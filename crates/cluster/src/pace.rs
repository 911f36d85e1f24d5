//! Rate limits for status that changes all the time: the first change is written at once, later ones at an interval
//! that readers and the API server can bear.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use futures::StreamExt;
use tokio::time::Instant;
use tokio_util::time::DelayQueue;

/// Shortest interval between changes of a text that people read.
pub const READABLE_INTERVAL: Duration = Duration::from_secs(1);

/// Returns the shortest interval between writes of a list. The cost of a write grows with the length of the list.
pub fn list_write_interval(length: usize) -> Duration {
    Duration::from_millis(u64::try_from(length).unwrap_or(u64::MAX))
}

/// Returns the shortest interval between runs of a computation that lasted `elapsed`, so that it uses at most 2 % of
/// the time of its task.
pub fn interval_after_work(elapsed: Duration) -> Duration {
    elapsed.saturating_mul(50)
}

/// Queue that returns each key at most once per interval.
#[derive(Debug)]
pub struct PacedQueue<K> {
    /// Time at which a key was last returned, or will be returned.
    turns: HashMap<K, Instant>,
    queue: DelayQueue<K>,
}

impl<K> Default for PacedQueue<K> {
    fn default() -> Self {
        Self { turns: HashMap::new(), queue: DelayQueue::new() }
    }
}

impl<K: Clone + Eq + Hash> PacedQueue<K> {
    /// Adds `key`. It is returned at once, or `interval` after it was last returned.
    pub fn add(&mut self, key: K, interval: Duration) {
        let now = Instant::now();
        let turn = match self.turns.get(&key) {
            Some(planned) if *planned > now => return,
            Some(last) => now.max(*last + interval),
            None => now,
        };
        self.queue.insert_at(key.clone(), turn);
        self.turns.insert(key, turn);
    }

    /// Frees the memory for `key`, unless it waits for its turn.
    pub fn forget(&mut self, key: &K) {
        if self.turns.get(key).is_some_and(|turn| *turn <= Instant::now()) {
            self.turns.remove(key);
        }
    }

    /// Waits for the next key whose turn has come. Pending forever when the queue is empty; cancel safe.
    pub async fn next(&mut self) -> K {
        match self.queue.next().await {
            Some(due) => due.into_inner(),
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_first_change_is_returned_at_once_and_later_ones_together() {
        let mut queue = PacedQueue::default();
        let start = Instant::now();
        queue.add("a".to_owned(), READABLE_INTERVAL);
        assert_eq!(queue.next().await, "a");
        assert!(start.elapsed() < READABLE_INTERVAL / 10);
        for _ in 0..5 {
            queue.add("a".to_owned(), READABLE_INTERVAL);
        }
        assert_eq!(queue.next().await, "a");
        assert!(start.elapsed() >= READABLE_INTERVAL);
        assert!(timeout(READABLE_INTERVAL * 3, queue.next()).await.is_err(), "five changes are one report");
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_did_not_change_for_long_is_returned_at_once() {
        let mut queue = PacedQueue::default();
        queue.add("a".to_owned(), READABLE_INTERVAL);
        queue.next().await;
        tokio::time::advance(READABLE_INTERVAL * 2).await;
        let start = Instant::now();
        queue.add("a".to_owned(), READABLE_INTERVAL);
        queue.next().await;
        assert!(start.elapsed() < READABLE_INTERVAL / 10);
    }
}
