//! Supervision of work that the kernel may never finish.
//!
//! A driver that hangs keeps the thread that called it, and nothing can end that thread. So every step and every read that
//! reaches a driver runs in a thread of its own, and is listed here until it ends. Callers wait until its deadline at the
//! longest. The target of a step that is still running is fenced: no step that would have to wait for it
//! ([`Step::waits_for`]) is started, and what is overdue is not even read.

mod running;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use vfleet_api::PciAddress;
use vfleet_plan::{Step, Target};

pub use self::running::Running;
use self::running::{Completion, completion};
use crate::HostError;

/// Registry of the steps and reads that run now, with a thread for each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Supervisor(Arc<Mutex<Registry>>);

#[derive(Debug, Default)]
struct Registry {
    next: u64,
    running: BTreeMap<u64, Work>,
}

/// A step or a read that runs now.
#[derive(Debug)]
struct Work {
    target: Target,
    attempt: String,
    kind: WorkKind,
    started: Instant,
    limit: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WorkKind {
    Step,
    Read,
}

impl Work {
    fn is_overdue(&self) -> bool {
        self.started.elapsed() >= self.limit
    }
}

impl Supervisor {
    /// Starts `execute`, which executes `step` and has to end within `limit`. Fails with [`HostError::StillRunning`] while
    /// a step runs that this one has to wait for.
    pub(crate) fn start_step(
        &self,
        step: &Step,
        limit: Duration,
        execute: impl FnOnce() -> Result<(), HostError> + Send + 'static,
    ) -> Result<Running<()>, HostError> {
        let is_fenced =
            |other: &Work| other.kind == WorkKind::Step && step.waits_for(other.target, other.is_overdue());
        self.start(step.target(), step.to_string(), WorkKind::Step, limit, is_fenced, execute)
    }

    /// Starts `read`, which reads a PF with its VFs, or (`None`) everything that belongs to no card. Fails with
    /// [`HostError::StillRunning`] while something is overdue that would make it hang as well.
    pub(crate) fn start_read<T: Send + 'static>(
        &self,
        pf: Option<PciAddress>,
        limit: Duration,
        read: impl FnOnce() -> Result<T, HostError> + Send + 'static,
    ) -> Result<Running<T>, HostError> {
        let (target, attempt) = match pf {
            Some(pf) => (Target::Pf(pf), format!("answer questions about {pf}")),
            None => (Target::Machine, "answer questions about its network".to_owned()),
        };
        // A step of the machine that hangs (loading a module, say) keeps nobody from reading it.
        let can_hang_reads = |other: &Work| target != Target::Machine || other.kind == WorkKind::Read;
        let is_fenced =
            |other: &Work| other.target.lane() == target && can_hang_reads(other) && other.is_overdue();
        self.start(target, attempt, WorkKind::Read, limit, is_fenced, read)
    }

    fn start<T: Send + 'static>(
        &self,
        target: Target,
        attempt: String,
        kind: WorkKind,
        limit: Duration,
        is_fenced: impl Fn(&Work) -> bool,
        run: impl FnOnce() -> Result<T, HostError> + Send + 'static,
    ) -> Result<Running<T>, HostError> {
        let started = Instant::now();
        let work = Work { target, attempt: attempt.clone(), kind, started, limit };
        let entry = self.register(work, is_fenced)?;
        let (completion, running) = completion(attempt, started, limit);
        let run = move || {
            // Dropped in reverse order, also when `run` panics: the target is free before the result is known.
            let completion: Completion<T> = completion;
            let entry = entry;
            let result = run();
            drop(entry);
            completion.complete(result);
        };
        thread::Builder::new().name("host".to_owned()).spawn(run).map_err(no_thread)?;
        Ok(running)
    }

    fn register(&self, work: Work, is_fenced: impl Fn(&Work) -> bool) -> Result<Entry, HostError> {
        let mut registry = self.lock();
        if let Some(other) = registry.running.values().find(|other| is_fenced(other)) {
            return Err(HostError::StillRunning { attempt: other.attempt.clone() });
        }
        let id = registry.next;
        registry.next += 1;
        registry.running.insert(id, work);
        Ok(Entry { supervisor: self.clone(), id })
    }

    fn lock(&self) -> MutexGuard<'_, Registry> {
        // A map is never left half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Entry of the registry, which goes when this is dropped.
struct Entry {
    supervisor: Supervisor,
    id: u64,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.supervisor.lock().running.remove(&self.id);
    }
}

fn no_thread(source: io::Error) -> HostError {
    HostError::System { what: "thread", source }
}

#[cfg(test)]
mod tests;
