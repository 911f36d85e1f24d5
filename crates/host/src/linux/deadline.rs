//! Work that the kernel may never finish.
//!
//! A driver that hangs keeps the thread that called it, and nothing can end that thread. So every call that
//! reaches a driver has a thread of its own, and who waits for it gives up at a deadline. What it is about is not
//! touched again until the thread ends.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use vfleet_api::{PciAddress, VfRef};
use vfleet_plan::Step;

use crate::HostError;

/// What a change is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Machine,
    Pf(PciAddress),
    Vf(VfRef),
}

impl Target {
    /// What a step changes.
    pub(super) fn of(step: &Step) -> Self {
        match (step.vf(), step.pf()) {
            (Some(vf), _) => Self::Vf(vf),
            (None, Some(pf)) => Self::Pf(pf),
            (None, None) => Self::Machine,
        }
    }

    fn pf(self) -> Option<PciAddress> {
        match self {
            Self::Machine => None,
            Self::Pf(pf) => Some(pf),
            Self::Vf(vf) => Some(vf.pf),
        }
    }

    /// Whether two changes cannot be under way at once. Those of two VFs of one PF can.
    fn excludes(self, other: Self) -> bool {
        match (self, other) {
            (Self::Vf(one), Self::Vf(other)) => one == other,
            _ => self.pf() == other.pf(),
        }
    }
}

/// The work under way.
#[derive(Clone, Debug, Default)]
pub(super) struct Workers(Arc<Mutex<UnderWay>>);

#[derive(Debug, Default)]
struct UnderWay {
    next: u64,
    works: BTreeMap<u64, Work>,
}

#[derive(Debug)]
struct Work {
    target: Target,
    attempt: String,
    is_change: bool,
    is_overdue: bool,
}

impl Workers {
    /// Does `work`. While an earlier change of the same target is under way, that is the answer.
    pub(super) fn change(
        &self,
        target: Target,
        attempt: &str,
        limit: Duration,
        work: impl FnOnce() -> Result<(), HostError> + Send + 'static,
    ) -> Result<(), HostError> {
        let work_of = Work { target, attempt: attempt.to_owned(), is_change: true, is_overdue: false };
        let in_the_way = |other: &Work| other.is_change && other.target.excludes(target);
        self.begin(work_of, in_the_way, work)?.within(limit)
    }

    /// Begins `look`, which reads a PF with its VFs, or what is no card (`None`). What hangs would make it hang too, so
    /// it is not even begun then.
    pub(super) fn look<T: Send + 'static>(
        &self,
        pf: Option<PciAddress>,
        look: impl FnOnce() -> Result<T, HostError> + Send + 'static,
    ) -> Result<Begun<T>, HostError> {
        let (target, attempt) = match pf {
            Some(pf) => (Target::Pf(pf), format!("answer questions about {pf}")),
            None => (Target::Machine, "answer questions about its network".to_owned()),
        };
        // A change of the machine that hangs (a module that is not loaded...) keeps no question from being answered.
        let in_the_way = move |other: &Work| {
            other.is_overdue && other.target.pf() == pf && (pf.is_some() || !other.is_change)
        };
        self.begin(Work { target, attempt, is_change: false, is_overdue: false }, in_the_way, look)
    }

    fn begin<T: Send + 'static>(
        &self,
        work: Work,
        in_the_way: impl Fn(&Work) -> bool,
        run: impl FnOnce() -> Result<T, HostError> + Send + 'static,
    ) -> Result<Begun<T>, HostError> {
        let (since, attempt) = (Instant::now(), work.attempt.clone());
        let entry = Entry::add(self, work, in_the_way)?;
        let id = entry.id;
        let (sender, receiver) = mpsc::channel();
        let run = move || {
            let result = run();
            // Before the result is known, so that who has it may go on with the same target.
            drop(entry);
            // Nobody listens any more after the deadline.
            let _ = sender.send(result);
        };
        thread::Builder::new().name("host".to_owned()).spawn(run).map_err(no_thread)?;
        Ok(Begun { workers: self.clone(), id, attempt, since, receiver })
    }

    fn lock(&self) -> MutexGuard<'_, UnderWay> {
        // A map is never left half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Work in the list of what is under way, until it is dropped.
struct Entry {
    workers: Workers,
    id: u64,
}

impl Entry {
    fn add(workers: &Workers, work: Work, in_the_way: impl Fn(&Work) -> bool) -> Result<Self, HostError> {
        let mut under_way = workers.lock();
        if let Some(other) = under_way.works.values().find(|other| in_the_way(other)) {
            return Err(HostError::StillRunning { attempt: other.attempt.clone() });
        }
        let id = under_way.next;
        under_way.next += 1;
        under_way.works.insert(id, work);
        Ok(Self { workers: workers.clone(), id })
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.workers.lock().works.remove(&self.id);
    }
}

/// Work that was begun.
pub(super) struct Begun<T> {
    workers: Workers,
    id: u64,
    attempt: String,
    since: Instant,
    receiver: Receiver<Result<T, HostError>>,
}

impl<T> Begun<T> {
    /// Waits for what comes of it, until `limit` after its beginning. Then it is given up, and remembered until it ends.
    pub(super) fn within(self, limit: Duration) -> Result<T, HostError> {
        match self.receiver.recv_timeout(limit.saturating_sub(self.since.elapsed())) {
            Ok(result) => result,
            Err(RecvTimeoutError::Timeout) => {
                if let Some(work) = self.workers.lock().works.get_mut(&self.id) {
                    work.is_overdue = true;
                }
                Err(HostError::Deadline { attempt: self.attempt, after: limit })
            }
            Err(RecvTimeoutError::Disconnected) => Err(no_thread(io::Error::other("one ended early"))),
        }
    }
}

fn no_thread(source: io::Error) -> HostError {
    HostError::System { what: "thread", source }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(20);
    const MINUTE: Duration = Duration::from_mins(1);

    fn pf() -> PciAddress {
        "0000:01:00.0".parse().unwrap()
    }

    fn other_pf() -> PciAddress {
        "0000:02:00.0".parse().unwrap()
    }

    fn vf(index: u16) -> Target {
        Target::Vf(VfRef { pf: pf(), index })
    }

    fn reason<T>(result: &Result<T, HostError>) -> &str {
        result.as_ref().map_or_else(HostError::reason, |_| "Ok")
    }

    /// Work that hangs until the sender is dropped.
    fn hang() -> (mpsc::Sender<()>, impl FnOnce() -> Result<(), HostError> + Send + 'static) {
        let (let_go, hang) = mpsc::channel::<()>();
        let work = move || {
            let _ = hang.recv();
            Ok(())
        };
        (let_go, work)
    }

    fn change(workers: &Workers, target: Target) -> Result<(), HostError> {
        workers.change(target, "set x up", MINUTE, || Ok(()))
    }

    fn look(workers: &Workers, pf: Option<PciAddress>) -> Result<(), HostError> {
        workers.look(pf, || Ok(()))?.within(MINUTE)
    }

    fn wait_until_idle(workers: &Workers) {
        while !workers.lock().works.is_empty() {
            thread::yield_now();
        }
    }

    #[test]
    fn a_change_that_hangs_is_given_up_and_remembered_until_it_ends() {
        let workers = Workers::default();
        let (let_go, work) = hang();
        let stuck = workers.change(Target::Pf(pf()), "set x numvfs 4", SOON, work);
        assert_eq!(reason(&stuck), "DeadlineExceeded");

        for again in [change(&workers, Target::Pf(pf())), change(&workers, vf(1)), look(&workers, Some(pf()))]
        {
            assert_eq!(reason(&again), "StepStillRunning");
            assert!(again.unwrap_err().to_string().contains("set x numvfs 4"));
        }
        for other in [
            change(&workers, Target::Pf(other_pf())),
            change(&workers, Target::Machine),
            look(&workers, Some(other_pf())),
            look(&workers, None),
        ] {
            assert_eq!(reason(&other), "Ok");
        }

        drop(let_go);
        wait_until_idle(&workers);
        assert_eq!(reason(&change(&workers, Target::Pf(pf()))), "Ok");
        assert_eq!(reason(&look(&workers, Some(pf()))), "Ok");
    }

    #[test]
    fn vfs_of_one_pf_are_changed_at_once_and_not_beside_the_pf() {
        let workers = Workers::default();
        let (_let_go, work) = hang();
        assert_eq!(reason(&workers.change(vf(0), "bind x vf 0", SOON, work)), "DeadlineExceeded");
        assert_eq!(reason(&change(&workers, vf(1))), "Ok");
        assert_eq!(reason(&change(&workers, vf(0))), "StepStillRunning");
        assert_eq!(reason(&change(&workers, Target::Pf(pf()))), "StepStillRunning");
    }

    #[test]
    fn a_look_that_hangs_is_not_asked_again() {
        let workers = Workers::default();
        for pf in [Some(pf()), None] {
            let (let_go, work) = hang();
            assert_eq!(reason(&workers.look(pf, work).unwrap().within(SOON)), "DeadlineExceeded");
            assert_eq!(reason(&look(&workers, pf)), "StepStillRunning");
            assert_eq!(reason(&look(&workers, Some(other_pf()))), "Ok");
            drop(let_go);
            wait_until_idle(&workers);
            assert_eq!(reason(&look(&workers, pf)), "Ok");
        }
    }

    #[test]
    fn a_look_during_a_change_in_time_is_possible() {
        let workers = Workers::default();
        let inner = workers.clone();
        let done = workers.change(Target::Pf(pf()), "set x up", MINUTE, move || look(&inner, Some(pf())));
        assert_eq!(reason(&done), "Ok");
    }

    #[test]
    fn a_machine_that_hangs_in_a_change_can_be_looked_at() {
        let workers = Workers::default();
        let (_let_go, work) = hang();
        assert_eq!(reason(&workers.change(Target::Machine, "load a module", SOON, work)), "DeadlineExceeded");
        assert_eq!(reason(&look(&workers, None)), "Ok");
        assert_eq!(reason(&change(&workers, Target::Machine)), "StepStillRunning");
    }
}
