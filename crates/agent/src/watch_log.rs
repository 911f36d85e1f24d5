//! Log lines about interrupted watches: one when a problem starts and one when it ends, for all watches of the process.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::{Mutex, MutexGuard, PoisonError};

use kube::runtime::watcher::Event;

/// Longest pause of `kube::runtime` between two attempts to watch.
const LONGEST_RETRY_SECONDS: u32 = 30;

/// Number of interrupted watches, by error.
static INTERRUPTED: Mutex<BTreeMap<String, usize>> = Mutex::new(BTreeMap::new());

/// Log of one watch.
pub(crate) struct WatchLog {
    /// Watched object, for people.
    object: String,
    /// Error of the last event; `None` while the watch works.
    error: Option<String>,
}

impl WatchLog {
    pub(crate) fn new(object: String) -> Self {
        Self { object, error: None }
    }

    /// Logs an error, unless this or another watch logged the same one and did not recover since.
    pub(crate) fn failed(&mut self, error: &dyn Display) {
        let error = error.to_string();
        if self.error.as_ref() == Some(&error) {
            tracing::debug!(object = self.object, error, "watch still interrupted");
            return;
        }
        self.forget_error();
        let count = add(&mut interrupted(), &error);
        if count == 1 {
            tracing::warn!(
                object = self.object,
                error,
                "watch interrupted: retrying now and then at growing intervals up to {LONGEST_RETRY_SECONDS} s"
            );
        } else {
            tracing::debug!(object = self.object, error, "watch interrupted");
        }
        self.error = Some(error);
    }

    /// Notes an event of the watch. Logs that the watch works again if it was the last one with its error. The start of a
    /// list is no success, because a list that fails starts too.
    pub(crate) fn received<K>(&mut self, event: &Event<K>) {
        if !matches!(event, Event::Init) && self.forget_error() {
            tracing::info!(object = self.object, "watch resumed");
        }
    }

    /// Forgets the error of this watch. Returns whether no other watch has it.
    fn forget_error(&mut self) -> bool {
        self.error.take().is_some_and(|error| remove(&mut interrupted(), &error))
    }
}

impl Drop for WatchLog {
    fn drop(&mut self) {
        self.forget_error();
    }
}

fn interrupted() -> MutexGuard<'static, BTreeMap<String, usize>> {
    // A count is never half changed.
    INTERRUPTED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn add(counts: &mut BTreeMap<String, usize>, error: &str) -> usize {
    let count = counts.entry(error.to_owned()).or_default();
    *count += 1;
    *count
}

fn remove(counts: &mut BTreeMap<String, usize>, error: &str) -> bool {
    let Some(count) = counts.get_mut(error) else { return false };
    *count -= 1;
    let is_last = *count == 0;
    if is_last {
        counts.remove(error);
    }
    is_last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_many_watches_starts_once_and_ends_once() {
        let error = "a_test_error";
        let count = || interrupted().get(error).copied();
        let mut watches = [WatchLog::new("a".to_owned()), WatchLog::new("b".to_owned())];
        for watch in &mut watches {
            watch.failed(&error);
            watch.failed(&error);
        }
        assert_eq!(count(), Some(2));
        assert!(!watches[0].forget_error(), "the other watch is still interrupted");
        assert!(watches[1].forget_error());
        assert_eq!(count(), None);
        watches[0].failed(&error);
        watches[0].received::<()>(&Event::Init);
        assert_eq!(count(), Some(1), "a list was only started");
        watches[0].received::<()>(&Event::InitDone);
        assert_eq!(count(), None);
        watches[0].failed(&error);
        drop(watches);
        assert_eq!(count(), None);
    }
}
