//! Supervision of steps and reads that the kernel may never finish.
//!
//! A driver that hangs blocks the calling thread forever, and nothing can end that thread. Therefore every step and
//! every read that reaches a driver is a task with its own thread, registered here until it ends. Callers wait no
//! longer than its deadline. The target of a running step is fenced: no step that would have to wait for it
//! ([`Step::waits_for`]) is started, and a target with an overdue task is not read.

mod task_handle;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use vfleet_api::PciAddress;
use vfleet_plan::{Step, Target};

pub use self::task_handle::TaskHandle;
use self::task_handle::{Completion, completion};
use crate::HostError;

/// Registry of running tasks, each with its own thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct Supervisor(Arc<Mutex<Registry>>);

/// Tasks that have not ended.
#[derive(Debug, Default)]
struct Registry {
    next_id: u64,
    running: BTreeMap<u64, Task>,
}

/// Running step or read.
#[derive(Debug)]
struct Task {
    target: Target,
    attempt: String,
    kind: TaskKind,
    started: Instant,
    limit: Duration,
}

/// Kind of a task: steps exclude each other by target, reads do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TaskKind {
    Step,
    Read,
}

impl Task {
    fn is_overdue(&self) -> bool {
        self.started.elapsed() >= self.limit
    }
}

impl Supervisor {
    /// Starts `execute`, which executes `step` and has to end within `limit`. Fails with [`HostError::StillRunning`]
    /// while another step runs that `step` has to wait for.
    pub(crate) fn start_step(
        &self,
        step: &Step,
        limit: Duration,
        execute: impl FnOnce() -> Result<(), HostError> + Send + 'static,
    ) -> Result<TaskHandle<()>, HostError> {
        let is_fenced =
            |other: &Task| other.kind == TaskKind::Step && step.waits_for(other.target, other.is_overdue());
        self.start(step.target(), step.to_string(), TaskKind::Step, limit, is_fenced, execute)
    }

    /// Starts `read`, which reads a PF with its VFs or, for `None`, everything that belongs to no card. Fails with
    /// [`HostError::StillRunning`] while a task of the same target is overdue, because the read would hang as well.
    pub(crate) fn start_read<T: Send + 'static>(
        &self,
        pf: Option<PciAddress>,
        limit: Duration,
        read: impl FnOnce() -> Result<T, HostError> + Send + 'static,
    ) -> Result<TaskHandle<T>, HostError> {
        let (target, attempt) = match pf {
            Some(pf) => (Target::Pf(pf), format!("report the state of {pf}")),
            None => (Target::Machine, "report the state of the network".to_owned()),
        };
        // A hanging step of the whole machine (loading a module, for example) does not block reads of the machine.
        let can_hang_reads = |other: &Task| target != Target::Machine || other.kind == TaskKind::Read;
        let is_fenced =
            |other: &Task| other.target.lane() == target && can_hang_reads(other) && other.is_overdue();
        self.start(target, attempt, TaskKind::Read, limit, is_fenced, read)
    }

    fn start<T: Send + 'static>(
        &self,
        target: Target,
        attempt: String,
        kind: TaskKind,
        limit: Duration,
        is_fenced: impl Fn(&Task) -> bool,
        run: impl FnOnce() -> Result<T, HostError> + Send + 'static,
    ) -> Result<TaskHandle<T>, HostError> {
        let started = Instant::now();
        let task = Task { target, attempt: attempt.clone(), kind, started, limit };
        let entry = self.register(task, is_fenced)?;
        let (completion, running) = completion(attempt, started, limit);
        let run = move || {
            // Dropped in reverse order, also when `run` panics: the target is free before the result is available.
            let completion: Completion<T> = completion;
            let entry = entry;
            let result = run();
            drop(entry);
            completion.complete(result);
        };
        thread::Builder::new().name("host".to_owned()).spawn(run).map_err(thread_error)?;
        Ok(running)
    }

    fn register(&self, task: Task, is_fenced: impl Fn(&Task) -> bool) -> Result<Entry, HostError> {
        let mut registry = self.lock();
        if let Some(other) = registry.running.values().find(|other| is_fenced(other)) {
            return Err(HostError::StillRunning { attempt: other.attempt.clone() });
        }
        let id = registry.next_id;
        registry.next_id += 1;
        registry.running.insert(id, task);
        Ok(Entry { supervisor: self.clone(), id })
    }

    fn lock(&self) -> MutexGuard<'_, Registry> {
        // Safe after a panic: the map is never left half modified.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Entry of the registry. Dropping it removes the task.
struct Entry {
    supervisor: Supervisor,
    id: u64,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.supervisor.lock().running.remove(&self.id);
    }
}

fn thread_error(source: io::Error) -> HostError {
    HostError::SystemResource { resource: "thread", source }
}

#[cfg(test)]
mod tests;
