use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use vfleet_api::PciAddress;
use vfleet_plan::drain::Moment;
use vfleet_plan::{ClockReading, HostFacts, PROTECTION, Step, UseMemory};

use super::faults::{Fault, Faults};
use super::kernel::Kernel;
use super::machine::{Machine, MachineError};
use super::{facts, steps};
use crate::supervisor::{Running, Supervisor};
use crate::{Host, HostError, Wake, Watch};

type SharedWake = Arc<dyn Fn() + Send + Sync>;
type Hook = Arc<dyn Fn(&Step) + Send + Sync>;
type Delay = fn(&Step) -> Duration;

/// As long as the slowest steps of a real machine may take.
const STEP_DEADLINE: Duration = Duration::from_mins(5);

/// A process on a simulated machine. Several can share one: see [`SimHost::another`].
pub struct SimHost {
    machine: Arc<Shared>,
    process: Arc<Mutex<Process>>,
    supervisor: Supervisor,
}

/// The machine, and who wants to know of its changes.
struct Shared {
    kernel: Mutex<Kernel>,
    /// What the node used a moment ago, as on the disk; and how much time was passed over.
    uses: Mutex<(UseMemory, Duration)>,
    begin: Instant,
    wakes: Mutex<Wakes>,
}

#[derive(Default)]
struct Wakes {
    next: u64,
    by_number: BTreeMap<u64, SharedWake>,
}

/// What ends with the process.
struct Process {
    /// Which start of the machine it was started after. It ends when the machine restarts.
    boot: u32,
    delay: Option<Delay>,
    step_deadline: Duration,
    faults: Faults,
    executed: Vec<String>,
    before_step: Option<Hook>,
}

impl SimHost {
    /// Boots `machine`. Different seeds give different Ethernet addresses where the machine names none.
    pub fn new(machine: &Machine, seed: &str) -> Result<Self, MachineError> {
        let kernel = Mutex::new(Kernel::boot(machine, seed)?);
        Ok(Self::on(Arc::new(Shared {
            kernel,
            uses: Mutex::default(),
            begin: Instant::now(),
            wakes: Mutex::default(),
        })))
    }

    /// Boots the machine that `text` describes, in the form of [`Machine`].
    pub fn from_yaml(text: &str, seed: &str) -> Result<Self, MachineError> {
        Self::new(&Machine::from_yaml(text)?, seed)
    }

    /// Another process on the same machine: it has executed nothing, and nothing goes wrong with it.
    #[must_use]
    pub fn another(&self) -> Self {
        Self::on(Arc::clone(&self.machine))
    }

    fn on(machine: Arc<Shared>) -> Self {
        let process = Process {
            boot: lock(&machine.kernel).boots,
            delay: None,
            step_deadline: STEP_DEADLINE,
            faults: Faults::default(),
            executed: Vec::new(),
            before_step: None,
        };
        Self { machine, process: Arc::new(Mutex::new(process)), supervisor: Supervisor::default() }
    }

    /// The machine as it is now.
    pub fn kernel(&self) -> Kernel {
        lock(&self.machine.kernel).clone()
    }

    /// Changes the machine as somebody else would, and wakes whoever wants to know.
    pub fn behind_its_back<T>(&self, change: impl FnOnce(&mut Kernel) -> T) -> T {
        let changed = change(&mut lock(&self.machine.kernel));
        self.machine.wake_all();
        changed
    }

    /// Lets time pass. Nobody is woken by that.
    pub fn pass(&self, time: Duration) {
        lock(&self.machine.uses).1 += time;
    }

    /// The steps that reached the machine, each in one line, those that the kernel refused included.
    pub fn executed(&self) -> Vec<String> {
        lock(&self.process).executed.clone()
    }

    /// Makes step number `step` fail without effect, counted from 0 from now on. Others go ahead.
    pub fn fail_at(&self, step: usize) {
        lock(&self.process).faults.plan(step, Fault::Fail);
    }

    /// Makes step number `step` hang without effect, counted from 0 from now on: it ends at once with the error
    /// of a deadline that has passed. Others go ahead.
    pub fn hang_at(&self, step: usize) {
        lock(&self.process).faults.plan(step, Fault::Hang);
    }

    /// Makes the process die before step number `step`, counted from 0 from now on: from then on everything is
    /// refused until [`SimHost::restart`].
    pub fn cut_at(&self, step: usize) {
        lock(&self.process).faults.plan(step, Fault::Cut);
    }

    /// Starts the process again. The machine is as it was left; nothing goes wrong any more.
    pub fn restart(&self) {
        let boot = lock(&self.machine.kernel).boots;
        let mut process = lock(&self.process);
        process.boot = boot;
        process.faults = Faults::default();
    }

    /// Makes the driver of a card hang: who asks it anything waits in vain. Other cards are not affected.
    pub fn hang_card(&self, pf: PciAddress) {
        self.behind_its_back(|kernel| kernel.pf_mut(pf).map(|card| card.hangs = true));
    }

    /// Lets the driver of a card go on.
    pub fn free_card(&self, pf: PciAddress) {
        self.behind_its_back(|kernel| kernel.pf_mut(pf).map(|card| card.hangs = false));
    }

    /// Makes steps take as long as `delay` says. Nobody else waits for them.
    pub fn delays(&self, delay: fn(&Step) -> Duration) {
        lock(&self.process).delay = Some(delay);
    }

    /// Sets how long a step that is started in the background may take before it is overdue.
    pub fn set_step_deadline(&self, deadline: Duration) {
        lock(&self.process).step_deadline = deadline;
    }

    /// Calls `hook` before each step, which waits for its return: a way to make steps slow, or to do something at
    /// a certain step.
    pub fn before_each_step(&self, hook: impl Fn(&Step) + Send + Sync + 'static) {
        lock(&self.process).before_step = Some(Arc::new(hook));
    }
}

impl Host for SimHost {
    fn facts(&self) -> Result<HostFacts, HostError> {
        let kernel = lock(&self.machine.kernel);
        lock(&self.process).check_alive("read the machine", kernel.boots)?;
        let mut facts = facts::facts(&kernel);
        self.machine.remember(&mut facts);
        Ok(facts)
    }

    fn start(&self, step: &Step) -> Result<Running<()>, HostError> {
        let (machine, process) = (Arc::clone(&self.machine), Arc::clone(&self.process));
        let (owned, deadline) = (step.clone(), lock(&self.process).step_deadline);
        self.supervisor.start_step(step, deadline, move || execute(&machine, &process, &owned))
    }

    /// Executes `step` on the caller's thread: property tests execute more steps than threads can be started for.
    fn execute(&self, step: &Step) -> Result<(), HostError> {
        execute(&self.machine, &self.process, step)
    }

    fn on_change(&self, wake: Wake) -> Result<Watch, HostError> {
        let boots = lock(&self.machine.kernel).boots;
        lock(&self.process).check_alive("watch the machine", boots)?;
        let mut wakes = lock(&self.machine.wakes);
        let number = wakes.next;
        wakes.next += 1;
        wakes.by_number.insert(number, Arc::from(wake));
        Ok(Watch::new(Subscription { machine: Arc::clone(&self.machine), number }))
    }
}

fn execute(machine: &Shared, process: &Mutex<Process>, step: &Step) -> Result<(), HostError> {
    wait_before(process, step);
    let attempt = step.to_string();
    let boots = lock(&machine.kernel).boots;
    {
        let mut process = lock(process);
        process.check_alive(&attempt, boots)?;
        process.faults.check_step(&attempt)?;
        process.executed.push(attempt);
    }
    machine.execute(step)
}

/// Calls the hook and waits for the delay, without holding any lock: others go on meanwhile.
fn wait_before(process: &Mutex<Process>, step: &Step) {
    let (hook, delay) = {
        let process = lock(process);
        (process.before_step.clone(), process.delay)
    };
    if let Some(hook) = hook {
        hook(step);
    }
    if let Some(delay) = delay {
        #[expect(clippy::disallowed_methods, reason = "this is the hardware that takes its time")]
        thread::sleep(delay(step));
    }
}

impl Process {
    /// A process that was cut off, or whose machine was restarted, does nothing at all.
    fn check_alive(&self, attempt: &str, boots: u32) -> Result<(), HostError> {
        if self.boot != boots {
            return Err(HostError::CutOff { attempt: attempt.to_owned() });
        }
        self.faults.check_alive(attempt)
    }
}

impl Shared {
    /// Takes in a look at the machine, and adds what is remembered of earlier ones.
    fn remember(&self, facts: &mut HostFacts) {
        let (memory, passed) = &mut *lock(&self.uses);
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() + *passed;
        let now = ClockReading {
            boot_id: facts.kernel.boot_id.clone(),
            since_boot: self.begin.elapsed() + *passed,
            wall: Moment(i64::try_from(wall.as_micros()).unwrap_or(i64::MAX)),
        };
        memory.observe(facts, true, &now, PROTECTION);
        memory.recall(facts, &now, PROTECTION);
    }

    fn execute(&self, step: &Step) -> Result<(), HostError> {
        let (result, is_announced) = {
            let mut kernel = lock(&self.kernel);
            let before = kernel.announced;
            let result = steps::execute(&mut kernel, step);
            (result, kernel.announced != before)
        };
        if is_announced {
            self.wake_all();
        }
        result
    }

    /// Without holding any lock: who is woken may read the facts at once.
    fn wake_all(&self) {
        let wakes: Vec<SharedWake> = lock(&self.wakes).by_number.values().cloned().collect();
        for wake in wakes {
            wake();
        }
    }
}

struct Subscription {
    machine: Arc<Shared>,
    number: u64,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        lock(&self.machine.wakes).by_number.remove(&self.number);
    }
}

impl fmt::Debug for SimHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimHost").field("kernel", &self.kernel()).finish_non_exhaustive()
    }
}

/// A panic under a lock is a failed test, and no reason for others to fail.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
