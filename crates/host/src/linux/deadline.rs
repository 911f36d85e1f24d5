//! Work that the kernel may never finish.
//!
//! A driver that hangs keeps the thread that called it, and nothing can end that thread. So every call that
//! reaches a driver has a thread of its own, and who waits for it gives up at a deadline.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{io, thread};

use vfleet_api::PciAddress;

use crate::HostError;

/// The changes under way, at most one for each PF.
#[derive(Clone, Debug, Default)]
pub(super) struct Workers(Arc<Mutex<BTreeMap<Option<PciAddress>, Change>>>);

#[derive(Debug)]
struct Change {
    attempt: String,
    is_overdue: bool,
}

impl Workers {
    /// Does `work` on a PF. While an earlier change of the same PF is under way, that is the answer.
    pub(super) fn change(
        &self,
        pf: Option<PciAddress>,
        attempt: &str,
        limit: Duration,
        work: impl FnOnce() -> Result<(), HostError> + Send + 'static,
    ) -> Result<(), HostError> {
        let under_way = UnderWay::begin(self, pf, attempt)?;
        let done = within(limit, attempt, move || {
            let _until_it_ends = under_way;
            work()
        });
        if matches!(done, Err(HostError::Deadline { .. }))
            && let Some(change) = self.lock().get_mut(&pf)
        {
            change.is_overdue = true;
        }
        done
    }

    /// Does `look`, which reads all devices. One that hangs in a change would make it hang too, so it is not even
    /// begun then.
    pub(super) fn look<T: Send + 'static>(
        &self,
        limit: Duration,
        look: impl FnOnce() -> Result<T, HostError> + Send + 'static,
    ) -> Result<T, HostError> {
        if let Some(change) = self.lock().values().find(|change| change.is_overdue) {
            return Err(HostError::StillRunning { attempt: change.attempt.clone() });
        }
        within(limit, "answer questions about its network cards", look)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Option<PciAddress>, Change>> {
        // A map is never left half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A change in the list of those under way.
struct UnderWay {
    workers: Workers,
    pf: Option<PciAddress>,
}

impl UnderWay {
    fn begin(workers: &Workers, pf: Option<PciAddress>, attempt: &str) -> Result<Self, HostError> {
        let mut changes = workers.lock();
        if let Some(earlier) = changes.get(&pf) {
            return Err(HostError::StillRunning { attempt: earlier.attempt.clone() });
        }
        changes.insert(pf, Change { attempt: attempt.to_owned(), is_overdue: false });
        Ok(Self { workers: workers.clone(), pf })
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.workers.lock().remove(&self.pf);
    }
}

fn within<T: Send + 'static>(
    limit: Duration,
    attempt: &str,
    work: impl FnOnce() -> Result<T, HostError> + Send + 'static,
) -> Result<T, HostError> {
    let (sender, receiver) = mpsc::channel();
    let run = move || {
        let result = work();
        // Nobody listens any more after the deadline.
        let _ = sender.send(result);
    };
    let no_thread = |source| HostError::System { what: "thread", source };
    thread::Builder::new().name("host".to_owned()).spawn(run).map_err(no_thread)?;
    match receiver.recv_timeout(limit) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => {
            Err(HostError::Deadline { attempt: attempt.to_owned(), after: limit })
        }
        Err(RecvTimeoutError::Disconnected) => Err(no_thread(io::Error::other("one ended early"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pf() -> Option<PciAddress> {
        "0000:01:00.0".parse().ok()
    }

    fn reason(result: &Result<(), HostError>) -> &str {
        result.as_ref().map_or_else(HostError::reason, |()| "Ok")
    }

    #[test]
    fn a_change_that_hangs_is_given_up_and_remembered_until_it_ends() {
        let workers = Workers::default();
        let (let_go, hang) = mpsc::channel::<()>();
        let (ended, has_ended) = mpsc::channel::<()>();
        let soon = Duration::from_millis(20);
        let stuck = workers.change(pf(), "set x numvfs 4", soon, move || {
            let _ended = ended;
            let _ = hang.recv();
            Ok(())
        });
        assert_eq!(reason(&stuck), "DeadlineExceeded");

        let again = workers.change(pf(), "set x up", soon, || Ok(()));
        assert_eq!(reason(&again), "StepStillRunning");
        assert!(again.unwrap_err().to_string().contains("set x numvfs 4"));
        assert_eq!(reason(&workers.look(soon, || Ok(()))), "StepStillRunning");
        let minute = Duration::from_mins(1);
        let other = workers.change("0000:02:00.0".parse().ok(), "set y up", minute, || Ok(()));
        assert_eq!(reason(&other), "Ok");

        drop(let_go);
        let _ = has_ended.recv();
        // The list is cleaned right after the work has ended.
        while !workers.lock().is_empty() {
            thread::yield_now();
        }
        assert_eq!(reason(&workers.change(pf(), "set x up", minute, || Ok(()))), "Ok");
        assert_eq!(reason(&workers.look(minute, || Ok(()))), "Ok");
    }

    #[test]
    fn a_look_during_a_change_in_time_is_possible() {
        let workers = Workers::default();
        let inner = workers.clone();
        let minute = Duration::from_mins(1);
        let done = workers.change(pf(), "set x up", minute, move || inner.look(minute, || Ok(())));
        assert_eq!(reason(&done), "Ok");
    }
}
