//! Detached steps: steps that take long are detached, so that the rest of the machine does not wait for them.
//!
//! The host supervises every step (`vfleet_host`): it runs in a thread of its own until it ends, and its target is
//! fenced meanwhile. This module decides only for how long an attempt waits. When nothing has started or ended on the
//! machine for a while, the steps that still run are detached, and the rest of their lanes is left for a later attempt.
//! The agent wakes up when a detached step ends or becomes overdue. The next attempt at the same step reports its
//! failure.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use vfleet_host::{ChangeCallback, Host, HostError, TaskHandle, WatchGuard, format_error_chain};
use vfleet_plan::{HostFacts, Step, Target};

/// Longest time that an attempt waits without any progress. Creating a handful of VFs takes less.
const GRACE: Duration = Duration::from_secs(5);

/// Steps that no attempt waits for, until they end or become overdue.
#[derive(Clone)]
pub(crate) struct DetachedSteps {
    steps: Arc<Mutex<DetachedState>>,
    wake: Arc<dyn Fn() + Send + Sync>,
}

/// Detached steps and the failures of those that have ended.
#[derive(Default)]
struct DetachedState {
    /// Steps that had neither ended nor become overdue when they were reaped last.
    detached: Vec<DetachedStep>,
    /// Failures of reaped steps, until an attempt executes the same step.
    failed: Vec<(Step, HostError)>,
}

/// Step that no attempt waits for.
struct DetachedStep {
    step: Step,
    running: TaskHandle<()>,
}

impl DetachedSteps {
    /// Returns an empty list. `wake` is called whenever one of the steps has ended.
    pub(crate) fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self { steps: Arc::default(), wake: Arc::new(wake) }
    }

    /// Returns whether any detached step still runs and is not overdue.
    pub(crate) fn is_any_running(&self) -> bool {
        lock(&self.steps).detached.iter().any(|step| step.running.is_in_time())
    }

    /// Returns whether `step` has to wait for a detached step.
    pub(crate) fn blocks(&self, step: &Step) -> bool {
        self.blocker(step).is_some()
    }

    /// Returns when the first running step becomes overdue, or became overdue after the last reaping.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let steps = lock(&self.steps);
        let running = steps.detached.iter().filter(|step| !step.running.has_ended());
        running.filter_map(|step| step.running.deadline()).min()
    }

    /// Removes the steps that have ended or become overdue. Every attempt does so, or the next one would be due at
    /// once.
    pub(crate) fn reap(&self) {
        let DetachedState { detached, failed } = &mut *lock(&self.steps);
        detached.retain(|DetachedStep { step, running }| {
            let Some(result) = running.wait_for(Duration::ZERO) else { return true };
            let error = result.as_ref().err().map(|error| format_error_chain(error));
            let pf = step.pf().map(tracing::field::display);
            match error {
                None => tracing::info!(pf, %step, "a step that took long succeeded"),
                Some(error) => tracing::warn!(pf, %step, error, "a step that took long failed"),
            }
            failed.extend(result.err().map(|error| (step.clone(), error)));
            false
        });
    }

    /// Returns `host` for one attempt. Its steps are detached when they take too long.
    pub(crate) fn attach(&self, host: &Arc<dyn Host>) -> AttemptHost {
        self.attach_with(host, GRACE)
    }

    fn attach_with(&self, host: &Arc<dyn Host>, grace: Duration) -> AttemptHost {
        self.reap();
        // Failures of steps that this attempt does not execute belong to an earlier desired state.
        let failed = std::mem::take(&mut lock(&self.steps).failed);
        AttemptHost {
            host: Arc::clone(host),
            failed: Mutex::new(failed),
            detached: self.clone(),
            unfinished: Mutex::default(),
            last_activity: Mutex::new(Instant::now()),
            grace,
        }
    }

    fn blocker(&self, step: &Step) -> Option<String> {
        let steps = lock(&self.steps);
        let mut in_time = steps.detached.iter().filter(|other| other.running.is_in_time());
        let blocker = in_time.find(|other| step.waits_for(other.step.target(), false))?;
        Some(blocker.step.to_string())
    }

    fn add(&self, step: &Step, running: TaskHandle<()>) {
        let wake = Arc::clone(&self.wake);
        running.on_end(move || wake());
        lock(&self.steps).detached.push(DetachedStep { step: step.clone(), running });
    }
}

/// Machine during one attempt.
pub(crate) struct AttemptHost {
    host: Arc<dyn Host>,
    detached: DetachedSteps,
    /// Failures of detached steps, for the next attempt at the same step.
    failed: Mutex<Vec<(Step, HostError)>>,
    /// Lanes of steps that were detached or had to wait for a detached one.
    unfinished: Mutex<BTreeSet<Target>>,
    /// When a step started or ended last.
    last_activity: Mutex<Instant>,
    grace: Duration,
}

impl Host for AttemptHost {
    fn facts(&self) -> Result<HostFacts, HostError> {
        self.host.facts()
    }

    fn start(&self, step: &Step) -> Result<TaskHandle<()>, HostError> {
        self.host.start(step)
    }

    fn execute(&self, step: &Step) -> Result<(), HostError> {
        if let Some(error) = self.take_failure(step) {
            return Err(error);
        }
        if let Some(blocker) = self.detached.blocker(step) {
            return Err(self.leave_unfinished(step, blocker));
        }
        // Steps of the machine come before or after all others, which have to wait for them anyway.
        if step.target() == Target::Machine {
            return self.host.execute(step);
        }
        self.note_activity();
        let result = self.host.start(step).and_then(|running| self.wait(step, running));
        self.note_activity();
        result
    }

    fn on_change(&self, wake: ChangeCallback) -> Result<WatchGuard, HostError> {
        self.host.on_change(wake)
    }
}

impl AttemptHost {
    /// Returns the lanes whose steps are not done since the kernel still executes one of them.
    pub(crate) fn into_unfinished(self) -> BTreeSet<Target> {
        self.unfinished.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_failure(&self, step: &Step) -> Option<HostError> {
        let mut failed = lock(&self.failed);
        let at = failed.iter().position(|(failed, _)| failed == step)?;
        Some(failed.swap_remove(at).1)
    }

    /// Waits for the step as long as something starts or ends on the machine within the grace period.
    fn wait(&self, step: &Step, running: TaskHandle<()>) -> Result<(), HostError> {
        loop {
            let timeout = self.grace.saturating_sub(self.idle_time());
            if let Some(result) = running.wait_for(timeout) {
                return result;
            }
            if self.idle_time() >= self.grace {
                self.detached.add(step, running);
                return Err(self.leave_unfinished(step, step.to_string()));
            }
        }
    }

    fn note_activity(&self) {
        *lock(&self.last_activity) = Instant::now();
    }

    /// Returns for how long no step has started or ended.
    fn idle_time(&self) -> Duration {
        lock(&self.last_activity).elapsed()
    }

    /// Records that `step` is not done because the kernel still executes `blocker`.
    fn leave_unfinished(&self, step: &Step, blocker: String) -> HostError {
        lock(&self.unfinished).insert(step.target().lane());
        HostError::StillRunning { attempt: blocker }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No value is ever left half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{self, Receiver, Sender};
    use std::thread;

    use vfleet_host::SimHost;
    use vfleet_host::sim::Machine;

    use super::*;

    const SOON: Duration = Duration::from_millis(50);
    /// Longer than anything in these tests takes.
    const DEADLINE: Duration = Duration::from_secs(20);

    fn set_up(card: usize) -> Step {
        Step::SetLinkUp { pf: Machine::lab().pfs[card].address }
    }

    /// Returns a machine whose first card hangs until the sender is dropped.
    fn hanging_machine() -> (Sender<()>, Arc<SimHost>) {
        let (release, released) = mpsc::channel::<()>();
        let (released, stuck) = (Mutex::new(released), set_up(0));
        let host = SimHost::new(&Machine::lab(), "detached").unwrap();
        host.set_step_hook(move |step| {
            if *step == stuck {
                let _ = lock(&released).recv();
            }
        });
        (release, Arc::new(host))
    }

    fn detached() -> (DetachedSteps, Receiver<()>) {
        let (sender, ended) = mpsc::channel();
        (DetachedSteps::new(move || sender.send(()).unwrap()), ended)
    }

    fn reason(result: &Result<(), HostError>) -> &str {
        result.as_ref().map_or_else(HostError::reason, |()| "Ok")
    }

    #[test]
    fn a_step_that_hangs_is_detached_and_blocks_its_card_until_it_ends() {
        let (release, host) = hanging_machine();
        let any_host: Arc<dyn Host> = host.clone();
        let (detached, ended) = detached();
        let attempt = detached.attach_with(&any_host, SOON);
        assert_eq!(reason(&attempt.execute(&set_up(0))), "StepStillRunning");
        assert_eq!(attempt.into_unfinished(), [set_up(0).target()].into());
        assert!(detached.next_deadline().is_some());

        let attempt = detached.attach_with(&any_host, SOON);
        let mtu = Step::SetPfMtu { pf: set_up(0).pf().unwrap(), mtu: 2000 };
        for waits in [set_up(0), mtu.clone(), Step::Reboot] {
            assert!(detached.blocks(&waits), "{waits}");
            assert_eq!(reason(&attempt.execute(&waits)), "StepStillRunning", "{waits}");
        }
        assert_eq!(reason(&attempt.execute(&set_up(1))), "Ok");
        assert_eq!(host.executed_steps(), [set_up(1).to_string()], "nothing else reached the machine");

        drop(release);
        ended.recv_timeout(DEADLINE).unwrap();
        assert!(!detached.is_any_running());
        assert_eq!(detached.next_deadline(), None);
        assert_eq!(reason(&detached.attach_with(&any_host, SOON).execute(&mtu)), "Ok");
        assert_eq!(host.executed_steps().len(), 3);
    }

    #[test]
    fn a_failure_of_a_detached_step_is_reported_once() {
        let (release, host) = hanging_machine();
        host.fail_at(0);
        let any_host: Arc<dyn Host> = host.clone();
        let (detached, ended) = detached();
        let attempt = || detached.attach_with(&any_host, SOON);
        assert_eq!(reason(&attempt().execute(&set_up(0))), "StepStillRunning");
        drop(release);
        ended.recv_timeout(DEADLINE).unwrap();
        assert_eq!(reason(&attempt().execute(&set_up(0))), "InjectedFault");
        assert_eq!(reason(&attempt().execute(&set_up(0))), "Ok");
    }

    #[test]
    fn no_step_is_detached_while_others_make_progress() {
        let (release, host) = hanging_machine();
        let any_host: Arc<dyn Host> = host.clone();
        let (detached, _ended) = detached();
        let attempt = detached.attach_with(&any_host, 4 * SOON);
        thread::scope(|scope| {
            let slow = scope.spawn(|| attempt.execute(&set_up(0)));
            let begin = Instant::now();
            while begin.elapsed() < 8 * SOON {
                attempt.execute(&set_up(1)).unwrap();
            }
            drop(release);
            assert_eq!(reason(&slow.join().unwrap()), "Ok");
        });
        assert!(!detached.is_any_running());
    }

    #[test]
    fn a_detached_step_that_becomes_overdue_is_a_failure_and_no_longer_progress() {
        let (_release, host) = hanging_machine();
        host.set_step_deadline(2 * SOON);
        let any_host: Arc<dyn Host> = host;
        let (detached, _ended) = detached();
        let attempt = || detached.attach_with(&any_host, SOON);
        assert_eq!(reason(&attempt().execute(&set_up(0))), "StepStillRunning");
        while detached.is_any_running() {
            thread::yield_now();
        }
        assert_eq!(reason(&attempt().execute(&set_up(0))), "DeadlineExceeded");
        let later = attempt();
        assert_eq!(reason(&later.execute(&set_up(0))), "StepStillRunning");
        assert_eq!(later.into_unfinished(), [].into(), "the host refuses it: that is a failure");
        assert_eq!(reason(&attempt().execute(&set_up(1))), "Ok");
    }

    /// An attempt may last longer than the steps that it detached had left.
    #[test]
    fn a_step_that_became_overdue_during_an_attempt_calls_for_another_one() {
        let (_release, host) = hanging_machine();
        host.set_step_deadline(2 * SOON);
        let any_host: Arc<dyn Host> = host;
        let (detached, _ended) = detached();
        assert_eq!(reason(&detached.attach_with(&any_host, SOON).execute(&set_up(0))), "StepStillRunning");
        while detached.is_any_running() {
            thread::yield_now();
        }
        let then = detached.next_deadline().expect("no other event wakes the agent up");
        assert!(then <= Instant::now());
    }
}
