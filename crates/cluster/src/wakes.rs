//! Keys that something is due for at a time.

use std::collections::HashMap;
use std::hash::Hash;

use futures::StreamExt;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use tokio_util::time::{DelayQueue, delay_queue};

/// The queue takes no wait of years: what comes too early is looked at and waits again.
const LONGEST_WAIT: SignedDuration = SignedDuration::from_hours(24);

/// Each key comes when its time has come, once.
#[derive(Debug)]
pub struct Wakes<K> {
    queue: DelayQueue<K>,
    places: HashMap<K, delay_queue::Key>,
}

impl<K> Default for Wakes<K> {
    fn default() -> Self {
        Self { queue: DelayQueue::new(), places: HashMap::new() }
    }
}

impl<K: Clone + Eq + Hash> Wakes<K> {
    /// `key` comes at `time` and at no other, or not at all. A time that is over is now; one that is far away may be
    /// earlier.
    pub fn set(&mut self, key: &K, time: Option<Timestamp>) {
        let Some(time) = time else {
            if let Some(place) = self.places.remove(key) {
                self.queue.remove(&place);
            }
            return;
        };
        let wait =
            time.duration_since(Timestamp::now()).clamp(SignedDuration::ZERO, LONGEST_WAIT).unsigned_abs();
        if let Some(place) = self.places.get(key) {
            self.queue.reset(place, wait);
        } else {
            let place = self.queue.insert(key.clone(), wait);
            self.places.insert(key.clone(), place);
        }
    }

    /// The next one whose time has come. Never ends when none waits. May be dropped at any time.
    pub async fn next(&mut self) -> K {
        let Some(due) = self.queue.next().await else { return std::future::pending().await };
        let key = due.into_inner();
        self.places.remove(&key);
        key
    }
}
