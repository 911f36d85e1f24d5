//! Reports that others change all the time: the first one at once, the next ones not more often than people can read.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use futures::StreamExt;
use tokio::time::Instant;
use tokio_util::time::DelayQueue;

/// Each key comes at once, and then at most once in this time.
const PACE: Duration = Duration::from_secs(1);

/// Keys that are to be reported on.
#[derive(Debug)]
pub(crate) struct Paced<K> {
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
    /// There is news about `key`.
    pub(crate) fn touch(&mut self, key: K) {
        let now = Instant::now();
        let turn = match self.turns.get(&key) {
            Some(coming) if *coming > now => return,
            Some(last) => now.max(*last + PACE),
            None => now,
        };
        self.queue.insert_at(key.clone(), turn);
        self.turns.insert(key, turn);
    }

    /// There is nothing to say about `key` any more.
    pub(crate) fn forget(&mut self, key: &K) {
        if self.turns.get(key).is_some_and(|turn| *turn <= Instant::now()) {
            self.turns.remove(key);
        }
    }

    /// The next one whose turn it is. Never ends when none waits. May be dropped at any time.
    pub(crate) async fn next(&mut self) -> K {
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
        paced.touch("a".to_owned());
        assert_eq!(paced.next().await, "a");
        assert!(start.elapsed() < PACE / 10);
        for _ in 0..5 {
            paced.touch("a".to_owned());
        }
        assert_eq!(paced.next().await, "a");
        assert!(start.elapsed() >= PACE);
        assert!(timeout(PACE * 3, paced.next()).await.is_err(), "five changes are one report");
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_rested_comes_at_once_again() {
        let mut paced = Paced::default();
        paced.touch("a".to_owned());
        paced.next().await;
        tokio::time::advance(PACE * 2).await;
        let start = Instant::now();
        paced.touch("a".to_owned());
        paced.next().await;
        assert!(start.elapsed() < PACE / 10);
    }
}
