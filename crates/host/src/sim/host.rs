//! Processes on a simulated machine.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use vfleet_api::PciAddress;
use vfleet_plan::drain::Moment;
use vfleet_plan::{ClockReading, DEFAULT_PROTECTION_TIME, HostFacts, Step, UseHistory};

use super::attachment::{AttachmentEffects, DeviceLocks, SimPlugins};
use super::faults::{Fault, Faults};
use super::kernel::Kernel;
use super::machine::{Machine, MachineError};
use super::{facts, steps};
use crate::supervisor::{Supervisor, TaskHandle};
use crate::{ChangeCallback, Host, HostError, WatchGuard};

type SharedCallback = Arc<dyn Fn() + Send + Sync>;
type StepHook = Arc<dyn Fn(&Step) + Send + Sync>;
type StepDelay = fn(&Step) -> Duration;
type StepExecution = fn(&mut Kernel, &Step) -> Result<(), HostError>;

/// Deadline of steps, as long as that of the slowest steps of a real machine.
const STEP_DEADLINE: Duration = Duration::from_mins(5);

/// Process on a simulated machine. Several processes can share a machine: see [`SimHost::new_process`].
pub struct SimHost {
    pub(super) machine: Arc<SharedMachine>,
    pub(super) process: Arc<Mutex<Process>>,
    supervisor: Supervisor,
}

/// State of the machine, shared by all its processes.
pub(super) struct SharedMachine {
    pub(super) kernel: Mutex<Kernel>,
    /// Locks of devices.
    pub(super) device_locks: Arc<DeviceLocks>,
    /// Installed plugins that others delegate to.
    pub(super) plugins: SimPlugins,
    /// Recent uses of cards by the node, as in the file of a real host; and the time by which the clock was advanced.
    uses: Mutex<(UseHistory, Duration)>,
    started: Instant,
    watches: Mutex<Watches>,
}

/// Callbacks of watches.
#[derive(Default)]
struct Watches {
    next_id: u64,
    by_id: BTreeMap<u64, SharedCallback>,
}

/// State of one process.
pub(super) struct Process {
    /// Number of the boot in which the process started. A reboot ends the process.
    boot: u32,
    delay: Option<StepDelay>,
    step_deadline: Duration,
    faults: Faults,
    executed_steps: Vec<String>,
    before_step: Option<StepHook>,
    reads_ovs: bool,
    /// Changes for attachments.
    pub(super) effects: AttachmentEffects,
}

impl SimHost {
    /// Boots `machine`. Addresses that the description leaves out are generated from `seed`.
    pub fn new(machine: &Machine, seed: &str) -> Result<Self, MachineError> {
        let kernel = Mutex::new(Kernel::boot(machine, seed)?);
        Ok(Self::on(Arc::new(SharedMachine {
            kernel,
            device_locks: Arc::default(),
            plugins: SimPlugins::default(),
            uses: Mutex::default(),
            started: Instant::now(),
            watches: Mutex::default(),
        })))
    }

    /// Boots the machine that `text` describes, in the YAML form of [`Machine`].
    pub fn from_yaml(text: &str, seed: &str) -> Result<Self, MachineError> {
        Self::new(&Machine::from_yaml(text)?, seed)
    }

    /// Starts another process on the same machine, without executed steps and without injected faults.
    #[must_use]
    pub fn new_process(&self) -> Self {
        Self::on(Arc::clone(&self.machine))
    }

    fn on(machine: Arc<SharedMachine>) -> Self {
        let process = Process {
            boot: lock(&machine.kernel).boots,
            delay: None,
            step_deadline: STEP_DEADLINE,
            faults: Faults::default(),
            executed_steps: Vec::new(),
            before_step: None,
            reads_ovs: true,
            effects: AttachmentEffects::default(),
        };
        Self { machine, process: Arc::new(Mutex::new(process)), supervisor: Supervisor::default() }
    }

    /// Returns a copy of the current state of the machine.
    pub fn kernel(&self) -> Kernel {
        lock(&self.machine.kernel).clone()
    }

    /// Changes the machine as another program would, and notifies all watches.
    pub fn modify_kernel<T>(&self, modify: impl FnOnce(&mut Kernel) -> T) -> T {
        let result = {
            let mut kernel = lock(&self.machine.kernel);
            let result = modify(&mut kernel);
            kernel.run_switch();
            result
        };
        self.machine.notify_all();
        result
    }

    /// Advances the clock of the machine without notifying watches.
    pub fn advance_clock(&self, time: Duration) {
        lock(&self.machine.uses).1 += time;
    }

    /// Returns the steps that this process executed, as text, including those that the kernel refused.
    pub fn executed_steps(&self) -> Vec<String> {
        lock(&self.process).executed_steps.clone()
    }

    /// Makes the step with number `step`, counted from 0 from now on, fail without effect. Other steps are executed.
    pub fn fail_at(&self, step: usize) {
        lock(&self.process).faults.inject(step, Fault::Fail);
    }

    /// Makes the step with number `step`, counted from 0 from now on, fail without effect with the error of an exceeded
    /// deadline. Other steps are executed.
    pub fn hang_at(&self, step: usize) {
        lock(&self.process).faults.inject(step, Fault::Hang);
    }

    /// Kills the process before the step with number `step`, counted from 0 from now on: all its calls fail until
    /// [`SimHost::restart_process`].
    pub fn kill_at(&self, step: usize) {
        lock(&self.process).faults.inject(step, Fault::Kill);
    }

    /// Kills the process within the step with number `step`, counted from 0 from now on: after the first request of a step
    /// that sends several to the kernel, else after the step.
    pub fn kill_within(&self, step: usize) {
        lock(&self.process).faults.inject(step, Fault::KillWithin);
    }

    /// Sets whether this process reads Open vSwitch although no record mentions one of its bridges. The default is true.
    pub fn set_reads_ovs(&self, reads_ovs: bool) {
        lock(&self.process).reads_ovs = reads_ovs;
    }

    /// Starts the process again, without injected faults. The state of the machine does not change.
    pub fn restart_process(&self) {
        let boot = lock(&self.machine.kernel).boots;
        let mut process = lock(&self.process);
        process.boot = boot;
        process.faults = Faults::default();
        process.effects.faults = Faults::default();
    }

    /// Makes the driver of a card hang, so that the card can be neither read nor changed. Other cards are not affected.
    pub fn hang_card(&self, pf: PciAddress) {
        self.modify_kernel(|kernel| kernel.pf_mut(pf).map(|card| card.is_hanging = true));
    }

    /// Ends the hang of the driver of a card.
    pub fn resume_card(&self, pf: PciAddress) {
        self.modify_kernel(|kernel| kernel.pf_mut(pf).map(|card| card.is_hanging = false));
    }

    /// Makes each step take the time that `delay` returns. Other calls do not wait for it.
    pub fn set_step_delay(&self, delay: fn(&Step) -> Duration) {
        lock(&self.process).delay = Some(delay);
    }

    /// Sets the deadline of steps that are started in the background.
    pub fn set_step_deadline(&self, deadline: Duration) {
        lock(&self.process).step_deadline = deadline;
    }

    /// Calls `hook` before each step and waits for its return, to make steps slow or to act at a certain step.
    pub fn set_step_hook(&self, hook: impl Fn(&Step) + Send + Sync + 'static) {
        lock(&self.process).before_step = Some(Arc::new(hook));
    }
}

impl Host for SimHost {
    fn facts(&self) -> Result<HostFacts, HostError> {
        let kernel = lock(&self.machine.kernel);
        let reads_ovs = {
            let process = lock(&self.process);
            process.check_alive("read the machine", kernel.boots)?;
            process.reads_ovs
        };
        let mut facts = facts::read(&kernel, reads_ovs);
        self.machine.update_host_uses(&mut facts);
        Ok(facts)
    }

    fn start(&self, step: &Step) -> Result<TaskHandle<()>, HostError> {
        let (machine, process) = (Arc::clone(&self.machine), Arc::clone(&self.process));
        let (owned, deadline) = (step.clone(), lock(&self.process).step_deadline);
        self.supervisor.start_step(step, deadline, move || execute(&machine, &process, &owned))
    }

    /// Executes `step` on the thread of the caller: property tests execute more steps than threads can be started.
    fn execute(&self, step: &Step) -> Result<(), HostError> {
        execute(&self.machine, &self.process, step)
    }

    fn on_change(&self, callback: ChangeCallback) -> Result<WatchGuard, HostError> {
        let boots = lock(&self.machine.kernel).boots;
        lock(&self.process).check_alive("watch the machine", boots)?;
        let mut watches = lock(&self.machine.watches);
        let id = watches.next_id;
        watches.next_id += 1;
        watches.by_id.insert(id, Arc::from(callback));
        Ok(WatchGuard::new(WatchRegistration { machine: Arc::clone(&self.machine), id }))
    }
}

fn execute(machine: &SharedMachine, process: &Mutex<Process>, step: &Step) -> Result<(), HostError> {
    delay_step(process, step);
    let attempt = step.to_string();
    let boots = lock(&machine.kernel).boots;
    let is_cut = {
        let mut process = lock(process);
        process.check_alive(&attempt, boots)?;
        let is_cut = process.faults.check_step(&attempt)?.is_some();
        process.executed_steps.push(attempt.clone());
        is_cut
    };
    if is_cut {
        // The process is dead: nobody sees the result.
        let _ = machine.execute(step, steps::execute_first_request);
        return Err(HostError::ProcessKilled { attempt });
    }
    machine.execute(step, steps::execute)
}

/// Calls the hook and waits for the delay, without holding a lock.
fn delay_step(process: &Mutex<Process>, step: &Step) {
    let (hook, delay) = {
        let process = lock(process);
        (process.before_step.clone(), process.delay)
    };
    if let Some(hook) = hook {
        hook(step);
    }
    if let Some(delay) = delay {
        #[expect(clippy::disallowed_methods, reason = "simulates slow hardware")]
        thread::sleep(delay(step));
    }
}

impl Process {
    /// Fails if the process was killed, or its machine was rebooted.
    pub(super) fn check_alive(&self, attempt: &str, boots: u32) -> Result<(), HostError> {
        if self.boot != boots {
            return Err(HostError::ProcessKilled { attempt: attempt.to_owned() });
        }
        self.faults.check_alive(attempt).and_then(|()| self.effects.faults.check_alive(attempt))
    }
}

impl SharedMachine {
    /// Stores the uses in `facts` and adds recent uses to `facts`.
    fn update_host_uses(&self, facts: &mut HostFacts) {
        let (memory, advanced) = &mut *lock(&self.uses);
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() + *advanced;
        let now = ClockReading {
            boot_id: facts.kernel.boot_id.clone(),
            since_boot: self.started.elapsed() + *advanced,
            wall: Moment(i64::try_from(wall.as_micros()).unwrap_or(i64::MAX)),
        };
        memory.update(facts, true, &now, DEFAULT_PROTECTION_TIME);
        memory.add_lingering_uses(facts, &now, DEFAULT_PROTECTION_TIME);
    }

    fn execute(&self, step: &Step, execute: StepExecution) -> Result<(), HostError> {
        self.request(|kernel| execute(kernel, step))
    }

    /// Executes one request of a process on the kernel.
    pub(super) fn request<T>(&self, request: impl FnOnce(&mut Kernel) -> T) -> T {
        let (result, has_events) = {
            let mut kernel = lock(&self.kernel);
            let before = kernel.event_count;
            let result = request(&mut kernel);
            kernel.run_switch();
            (result, kernel.event_count != before)
        };
        if has_events {
            self.notify_all();
        }
        result
    }

    /// Calls all callbacks without holding a lock, so that they may read the facts.
    fn notify_all(&self) {
        let callbacks: Vec<SharedCallback> = lock(&self.watches).by_id.values().cloned().collect();
        for callback in callbacks {
            callback();
        }
    }
}

/// Registration of a callback. Dropping it ends the watch.
struct WatchRegistration {
    machine: Arc<SharedMachine>,
    id: u64,
}

impl Drop for WatchRegistration {
    fn drop(&mut self) {
        lock(&self.machine.watches).by_id.remove(&self.id);
    }
}

impl fmt::Debug for SimHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimHost").field("kernel", &self.kernel()).finish_non_exhaustive()
    }
}

/// Locks `mutex`, also after a panic: a panic fails one test and must not affect others.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
