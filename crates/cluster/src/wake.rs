//! Keys that are due at a given time.

use std::collections::HashMap;
use std::hash::Hash;

use futures::StreamExt;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use tokio_util::time::{DelayQueue, delay_queue};

/// `DelayQueue` panics for delays of years. A key that is returned too early is set again by its user.
const LONGEST_DELAY: SignedDuration = SignedDuration::from_hours(24);

/// Queue that returns each key once, when its time has come.
#[derive(Debug)]
pub struct WakeQueue<K> {
    queue: DelayQueue<K>,
    entries: HashMap<K, delay_queue::Key>,
}

impl<K> Default for WakeQueue<K> {
    fn default() -> Self {
        Self { queue: DelayQueue::new(), entries: HashMap::new() }
    }
}

impl<K: Clone + Eq + Hash> WakeQueue<K> {
    /// Sets the time at which `key` is due; `None` removes it. A time in the past means now. A key may be returned
    /// early if its time is more than a day away.
    pub fn set(&mut self, key: &K, time: Option<Timestamp>) {
        let Some(time) = time else {
            if let Some(entry) = self.entries.remove(key) {
                self.queue.remove(&entry);
            }
            return;
        };
        let delay =
            time.duration_since(Timestamp::now()).clamp(SignedDuration::ZERO, LONGEST_DELAY).unsigned_abs();
        if let Some(entry) = self.entries.get(key) {
            self.queue.reset(entry, delay);
        } else {
            let entry = self.queue.insert(key.clone(), delay);
            self.entries.insert(key.clone(), entry);
        }
    }

    /// Waits for the next key that is due. Pending forever when the queue is empty; cancel safe.
    pub async fn next(&mut self) -> K {
        let Some(due) = self.queue.next().await else { return std::future::pending().await };
        let key = due.into_inner();
        self.entries.remove(&key);
        key
    }
}
