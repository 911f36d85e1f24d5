//! What others change all the time is written at once for the first time, and then not more often than is good for its
//! readers and for the API server.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use futures::StreamExt;
use tokio::time::Instant;
use tokio_util::time::DelayQueue;

/// As often as people can read.
pub const READABLE: Duration = Duration::from_secs(1);

/// How often a list of `length` may be written: what a write costs the API server grows with the list, so that a long one
/// which changes all the time would keep it busy.
pub fn of_list(length: usize) -> Duration {
    Duration::from_millis(u64::try_from(length).unwrap_or(u64::MAX))
}

/// How often something may be done that takes so long: it must not keep from their turn those who wait for answers.
pub fn of_work(took: Duration) -> Duration {
    took.saturating_mul(50)
}

/// Keys that are to be written about.
#[derive(Debug)]
pub struct Paced<K> {
    /// When a key last came, or is to come.
    turns: HashMap<K, Instant>,
    queue: DelayQueue<K>,
}

impl<K> Default for Paced<K> {
    fn default() -> Self {
        Self { turns: HashMap::new(), queue: DelayQueue::new() }
    }
}

impl<K: Clone + Eq + Hash> Paced<K> {
    /// There is news about `key`, which comes at once, or `pace` after it last came.
    pub fn touch(&mut self, key: K, pace: Duration) {
        let now = Instant::now();
        let turn = match self.turns.get(&key) {
            Some(coming) if *coming > now => return,
            Some(last) => now.max(*last + pace),
            None => now,
        };
        self.queue.insert_at(key.clone(), turn);
        self.turns.insert(key, turn);
    }

    /// There is nothing to say about `key` any more.
    pub fn forget(&mut self, key: &K) {
        if self.turns.get(key).is_some_and(|turn| *turn <= Instant::now()) {
            self.turns.remove(key);
        }
    }

    /// The next one whose turn it is. Never ends when none waits. May be dropped at any time.
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
    async fn the_first_comes_at_once_and_the_others_together_later() {
        let mut paced = Paced::default();
        let start = Instant::now();
        paced.touch("a".to_owned(), READABLE);
        assert_eq!(paced.next().await, "a");
        assert!(start.elapsed() < READABLE / 10);
        for _ in 0..5 {
            paced.touch("a".to_owned(), READABLE);
        }
        assert_eq!(paced.next().await, "a");
        assert!(start.elapsed() >= READABLE);
        assert!(timeout(READABLE * 3, paced.next()).await.is_err(), "five changes are one report");
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_rested_comes_at_once_again() {
        let mut paced = Paced::default();
        paced.touch("a".to_owned(), READABLE);
        paced.next().await;
        tokio::time::advance(READABLE * 2).await;
        let start = Instant::now();
        paced.touch("a".to_owned(), READABLE);
        paced.next().await;
        assert!(start.elapsed() < READABLE / 10);
    }
}
