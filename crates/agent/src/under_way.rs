//! Steps that the kernel takes long for, or never ends: the others do not wait for them.
//!
//! Each step about a card has a thread. When nothing begins or ends for a while, those who wait for such a thread give
//! up, and with it the rest of the card's steps. Nothing more is done to that card until the thread ends; then the agent
//! looks again. That it failed in the end is told to whoever wants the same step next.

use std::collections::BTreeSet;
use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use vfleet_api::PciAddress;
use vfleet_host::{Host, HostError, Wake, Watch, with_causes};
use vfleet_plan::{HostFacts, Step};

/// Making a handful of VFs takes less, and who waits for another card does not mind that much.
const GRACE: Duration = Duration::from_secs(5);
/// It only waits for the host.
const STACK: usize = 256 * 1024;

/// Steps that nobody waits for any more, until they end.
#[derive(Clone)]
pub(crate) struct UnderWay {
    known: Arc<Mutex<Known>>,
    wake: Arc<dyn Fn() + Send + Sync>,
}

#[derive(Debug, Default)]
struct Known {
    next: u64,
    left_alone: Vec<(u64, Step)>,
    /// Those that failed after all.
    failed: Vec<(Step, HostError)>,
}

impl UnderWay {
    /// None yet. `wake` is called whenever one of them ended.
    pub(crate) fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self { known: Arc::default(), wake: Arc::new(wake) }
    }

    /// Whether there are any.
    pub(crate) fn is_any(&self) -> bool {
        !self.lock().left_alone.is_empty()
    }

    /// Whether `step` has to wait for one of them.
    pub(crate) fn is_in_the_way_of(&self, step: &Step) -> bool {
        self.lock().in_the_way_of(step).is_some()
    }

    /// `host` for one attempt, in which nobody waits for a step without end.
    pub(crate) fn oversee(&self, host: &Arc<dyn Host>) -> Overseen {
        self.oversee_with(host, GRACE)
    }

    fn oversee_with(&self, host: &Arc<dyn Host>, grace: Duration) -> Overseen {
        // What nobody asks for in this attempt is not wanted any more.
        let failed = Mutex::new(std::mem::take(&mut self.lock().failed));
        let last_sign = Mutex::new(Instant::now());
        let (host, under_way) = (Arc::clone(host), self.clone());
        Overseen { host, under_way, failed, unfinished: Mutex::default(), last_sign, grace }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        lock(&self.known)
    }
}

impl Known {
    fn in_the_way_of(&self, step: &Step) -> Option<&Step> {
        let mut others = self.left_alone.iter().map(|(_, other)| other);
        others.find(|other| excludes(other, step))
    }
}

/// Two VFs of one PF can be changed at once. A machine on which something is under way is not restarted.
fn excludes(under_way: &Step, step: &Step) -> bool {
    match (under_way.vf(), step.vf()) {
        (Some(one), Some(other)) => one == other,
        _ => under_way.pf() == step.pf() || step.leads_to_restart(),
    }
}

/// A machine during one attempt.
pub(crate) struct Overseen {
    host: Arc<dyn Host>,
    under_way: UnderWay,
    failed: Mutex<Vec<(Step, HostError)>>,
    /// The PFs of steps that were left alone or had to wait for such a one; `None` for the machine.
    unfinished: Mutex<BTreeSet<Option<PciAddress>>>,
    /// When a step began or ended last.
    last_sign: Mutex<Instant>,
    grace: Duration,
}

impl Host for Overseen {
    fn facts(&self) -> Result<HostFacts, HostError> {
        self.host.facts()
    }

    fn execute(&self, step: &Step) -> Result<(), HostError> {
        if let Some(error) = self.known_failure(step) {
            return Err(error);
        }
        if let Some(other) = self.under_way.lock().in_the_way_of(step) {
            return Err(self.unfinished(step, other));
        }
        // The machine's own steps come before or after all others, and those have to wait for them.
        if step.pf().is_none() {
            return self.host.execute(step);
        }
        *lock(&self.last_sign) = Instant::now();
        let result = self.begin(step).and_then(|begun| self.wait(step, &begun));
        *lock(&self.last_sign) = Instant::now();
        result
    }

    fn on_change(&self, wake: Wake) -> Result<Watch, HostError> {
        self.host.on_change(wake)
    }
}

impl Overseen {
    /// The PFs on which steps are not done since the kernel is still at one; `None` for the machine.
    pub(crate) fn into_unfinished(self) -> BTreeSet<Option<PciAddress>> {
        self.unfinished.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn known_failure(&self, step: &Step) -> Option<HostError> {
        let mut failed = lock(&self.failed);
        let at = failed.iter().position(|(known, _)| known == step)?;
        Some(failed.swap_remove(at).1)
    }

    fn begin(&self, step: &Step) -> Result<Begun, HostError> {
        let id = {
            let mut known = self.under_way.lock();
            known.next += 1;
            known.next
        };
        let (sender, receiver) = mpsc::channel();
        let (host, mine) = (Arc::clone(&self.host), step.clone());
        let mut ending = Ending { under_way: self.under_way.clone(), id, error: None };
        let run = move || {
            let result = host.execute(&mine);
            let known = ending.under_way.known.clone();
            // Under the lock: either somebody still waits for the result, or it is left alone for good.
            let known = lock(&known);
            if known.left_alone.iter().any(|(other, _)| *other == id) {
                ending.take(mine, result);
            } else {
                // Nobody listens when the attempt was broken off.
                let _ = sender.send(result);
            }
        };
        let thread = thread::Builder::new().name("step".to_owned()).stack_size(STACK);
        thread.spawn(run).map_err(no_thread)?;
        Ok(Begun { id, receiver })
    }

    /// Waits for the step until nothing at all happened for a while.
    fn wait(&self, step: &Step, begun: &Begun) -> Result<(), HostError> {
        loop {
            let quiet = lock(&self.last_sign).elapsed();
            match begun.receiver.recv_timeout(self.grace.saturating_sub(quiet)) {
                Ok(result) => return result,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(no_thread(io::Error::other("one ended early")));
                }
                Err(RecvTimeoutError::Timeout) if lock(&self.last_sign).elapsed() < self.grace => {}
                Err(RecvTimeoutError::Timeout) => return self.leave_alone(step, begun),
            }
        }
    }

    fn leave_alone(&self, step: &Step, begun: &Begun) -> Result<(), HostError> {
        let mut known = self.under_way.lock();
        if let Ok(result) = begun.receiver.try_recv() {
            return result;
        }
        known.left_alone.push((begun.id, step.clone()));
        Err(self.unfinished(step, step))
    }

    /// `step` is not done, since the kernel is at `under_way`.
    fn unfinished(&self, step: &Step, under_way: &Step) -> HostError {
        lock(&self.unfinished).insert(step.pf());
        HostError::StillRunning { attempt: under_way.to_string() }
    }
}

struct Begun {
    id: u64,
    receiver: Receiver<Result<(), HostError>>,
}

/// The end of a step's thread, however it comes.
struct Ending {
    under_way: UnderWay,
    id: u64,
    error: Option<(Step, HostError)>,
}

impl Ending {
    fn take(&mut self, step: Step, result: Result<(), HostError>) {
        self.error = result.err().map(|error| (step, error));
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let error = self.error.as_ref().map(|(_, error)| with_causes(error));
        let ended = {
            let mut known = self.under_way.lock();
            let at = known.left_alone.iter().position(|(id, _)| *id == self.id);
            known.failed.extend(self.error.take());
            at.map(|at| known.left_alone.swap_remove(at).1)
        };
        if let Some(step) = ended {
            let pf = step.pf().map(tracing::field::display);
            tracing::info!(pf, %step, error, "a step that nobody waited for any more ended");
            (self.under_way.wake)();
        }
    }
}

fn no_thread(source: io::Error) -> HostError {
    HostError::System { what: "thread", source }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing in here is ever left half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Sender;

    use vfleet_host::SimHost;
    use vfleet_host::sim::Machine;

    use super::*;

    const SOON: Duration = Duration::from_millis(50);
    /// Longer than any of it takes.
    const DEADLINE: Duration = Duration::from_secs(20);

    fn set_up(card: usize) -> Step {
        Step::SetLinkUp { pf: Machine::lab().pfs[card].address }
    }

    /// A machine whose first card hangs until the sender is dropped.
    fn machine() -> (Sender<()>, Arc<SimHost>) {
        let (let_go, hangs) = mpsc::channel::<()>();
        let (hangs, stuck) = (Mutex::new(hangs), set_up(0));
        let host = SimHost::new(&Machine::lab(), "under way").unwrap();
        host.before_each_step(move |step| {
            if *step == stuck {
                let _ = lock(&hangs).recv();
            }
        });
        (let_go, Arc::new(host))
    }

    fn wakes() -> (UnderWay, Receiver<()>) {
        let (sender, ended) = mpsc::channel();
        (UnderWay::new(move || sender.send(()).unwrap()), ended)
    }

    fn reason(result: &Result<(), HostError>) -> &str {
        result.as_ref().map_or_else(HostError::reason, |()| "Ok")
    }

    #[test]
    fn a_step_that_hangs_is_left_alone_and_its_card_with_it_until_it_ends() {
        let (let_go, host) = machine();
        let all: Arc<dyn Host> = host.clone();
        let (under_way, ended) = wakes();
        let attempt = under_way.oversee_with(&all, SOON);
        assert_eq!(reason(&attempt.execute(&set_up(0))), "StepStillRunning");
        assert_eq!(attempt.into_unfinished(), [set_up(0).pf()].into());

        let attempt = under_way.oversee_with(&all, SOON);
        let mtu = Step::SetPfMtu { pf: set_up(0).pf().unwrap(), mtu: 2000 };
        for waits in [set_up(0), mtu.clone(), Step::Reboot] {
            assert!(under_way.is_in_the_way_of(&waits), "{waits}");
            assert_eq!(reason(&attempt.execute(&waits)), "StepStillRunning", "{waits}");
        }
        assert_eq!(reason(&attempt.execute(&set_up(1))), "Ok");
        assert_eq!(host.executed(), [set_up(1).to_string()], "nothing else reached the machine");

        drop(let_go);
        ended.recv_timeout(DEADLINE).unwrap();
        assert!(!under_way.is_any());
        assert_eq!(reason(&under_way.oversee_with(&all, SOON).execute(&mtu)), "Ok");
        assert_eq!(host.executed().len(), 3);
    }

    #[test]
    fn that_it_failed_in_the_end_is_told_once() {
        let (let_go, host) = machine();
        host.fail_at(0);
        let all: Arc<dyn Host> = host.clone();
        let (under_way, ended) = wakes();
        let attempt = || under_way.oversee_with(&all, SOON);
        assert_eq!(reason(&attempt().execute(&set_up(0))), "StepStillRunning");
        drop(let_go);
        ended.recv_timeout(DEADLINE).unwrap();
        assert_eq!(reason(&attempt().execute(&set_up(0))), "Injected");
        assert_eq!(reason(&attempt().execute(&set_up(0))), "Ok");
    }

    #[test]
    fn nobody_is_left_alone_while_others_get_on() {
        let (let_go, host) = machine();
        let all: Arc<dyn Host> = host.clone();
        let (under_way, _ended) = wakes();
        let attempt = under_way.oversee_with(&all, 4 * SOON);
        thread::scope(|scope| {
            let slow = scope.spawn(|| attempt.execute(&set_up(0)));
            let begin = Instant::now();
            while begin.elapsed() < 8 * SOON {
                attempt.execute(&set_up(1)).unwrap();
            }
            drop(let_go);
            assert_eq!(reason(&slow.join().unwrap()), "Ok");
        });
        assert!(!under_way.is_any());
    }
}
