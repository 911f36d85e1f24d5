//! Execution of the steps of a plan, in parallel as far as `vfleet_plan::schedule` allows.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use vfleet_api::{PciAddress, VfRef};
use vfleet_host::{HostError, format_error_chain};
use vfleet_plan::{HostFacts, Lane, LaneProgress, PlannedStep, Stage, Step, Target, schedule};

use super::{ApplyContext, ExecutionEvent, Failure};

/// Largest number of VFs of a card that are configured in parallel. The kernel serializes most of that anyway.
const MAX_PARALLEL_PARTS: usize = 8;
/// Stack size of the threads, which only wait for the host.
const STACK_SIZE: usize = 256 * 1024;

/// Result of the execution of steps.
#[derive(Debug, Default)]
pub(super) struct ExecutionResult {
    /// Number of steps that succeeded.
    pub(super) count: usize,
    /// Failures, one for each failed step.
    pub(super) failures: Vec<Failure>,
    /// Trials that the kernel refused. Another plan follows.
    pub(super) refusals: Vec<Failure>,
    /// Optional steps that failed.
    pub(super) failed_optional_steps: Vec<Step>,
    /// The machine is about to reboot.
    pub(super) reboots: bool,
}

/// Executes `steps` on the machine that `facts` describe. In `lanes_without_bridge` the bridge could not be set up
/// before.
pub(super) fn execute(
    context: &ApplyContext<'_>,
    facts: &HostFacts,
    steps: &[PlannedStep],
    lanes_without_bridge: &BTreeSet<Target>,
) -> ExecutionResult {
    let schedule = schedule(steps);
    let run = PlanExecution { context, facts, lanes_without_bridge, result: Mutex::default() };
    for planned in &schedule.before {
        run.execute_step(planned);
    }
    let max_lanes = if context.one_card_at_a_time { 1 } else { usize::MAX };
    run_parallel(&schedule.lanes, max_lanes, |lane| run.execute_lane(lane));
    let may_follow = |planned: &PlannedStep| !planned.step.leads_to_reboot() || run.has_no_failure();
    let may_continue = |planned: &PlannedStep| match run.execute_step(planned) {
        StepResult::Done => true,
        StepResult::Failed => planned.step.sets_up_bridge(),
        StepResult::Unfinished => false,
    };
    let _ = schedule.after.iter().all(|planned| may_follow(planned) && may_continue(planned));
    run.result.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Result of the execution of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StepResult {
    Done,
    Failed,
    /// The kernel still executes the step, or another one of the lane.
    Unfinished,
}

/// Execution of one plan by several threads.
struct PlanExecution<'a> {
    context: &'a ApplyContext<'a>,
    facts: &'a HostFacts,
    lanes_without_bridge: &'a BTreeSet<Target>,
    result: Mutex<ExecutionResult>,
}

impl PlanExecution<'_> {
    /// Executes the steps of one lane.
    fn execute_lane(&self, lane: &Lane<'_>) {
        let mut progress = LaneProgress::new(lane.target, self.facts);
        if self.lanes_without_bridge.contains(&lane.target) {
            progress = progress.without_bridge();
        }
        for stage in &lane.stages {
            match stage {
                Stage::Whole(planned) => {
                    let Some(planned) = progress.next_step(planned) else { continue };
                    match self.execute_step(&planned) {
                        StepResult::Done => progress.record_success(&planned.step),
                        result => progress.record_failure(&planned.step, result == StepResult::Unfinished),
                    }
                }
                Stage::Parts(parts) => {
                    if let Some(failed) = self.execute_parts(parts, &progress) {
                        progress.record_failure(&failed.step, false);
                    }
                }
            }
        }
        let succeeded = !progress.has_failed();
        (self.context.listener)(ExecutionEvent::LaneFinished { target: lane.target, succeeded });
    }

    /// Executes the steps of several VFs in parallel. Returns a failed one.
    fn execute_parts<'s>(
        &self,
        parts: &[(Target, Vec<&'s PlannedStep>)],
        progress: &LaneProgress,
    ) -> Option<&'s PlannedStep> {
        let failed = Mutex::new(None);
        run_parallel(parts, MAX_PARALLEL_PARTS, |(_, steps)| {
            let mut steps = steps.iter().filter(|planned| progress.next_step(planned).is_some());
            if let Some(first) = steps.find(|planned| self.execute_step(planned) != StepResult::Done) {
                *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(*first);
            }
        });
        failed.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Executes a step. An optional one that fails is done.
    fn execute_step(&self, planned: &PlannedStep) -> StepResult {
        let step = &planned.step;
        let (node, pf, vf) = (self.context.node, step.pf(), step.vf());
        let pci = self.pci_address(step).map(tracing::field::display);
        let (pf_field, vf_field) = (pf.map(tracing::field::display), vf.map(|vf| vf.index));
        // Hundreds of VFs would hide the other lines.
        if vf.is_some() {
            tracing::debug!(node, pf = pf_field, vf = vf_field, pci, %step, why = planned.why, "executing");
        } else {
            tracing::info!(node, pf = pf_field, pci, %step, why = planned.why, "executing");
        }
        (self.context.listener)(ExecutionEvent::StepStarted(planned));
        let start = Instant::now();
        let result = self.context.host.execute(step);
        let duration = start.elapsed();
        if let Err(error) = &result {
            let error = format_error_chain(error);
            tracing::warn!(node, pf = pf_field, vf = vf_field, pci, %step, seconds = duration.as_secs_f64(), error, "step failed");
        }
        (self.context.listener)(ExecutionEvent::StepFinished {
            planned,
            duration,
            error: result.as_ref().err(),
        });
        let to_failure = |source| Failure::Step {
            target: step.target(),
            step: step.to_string(),
            // The steps after an unfinished one are not executed.
            needs_drain: !step.sets_up_bridge() || matches!(source, HostError::StillRunning { .. }),
            source,
        };
        self.record_result(planned, result.map_err(to_failure))
    }

    fn has_no_failure(&self) -> bool {
        let result = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        result.failures.is_empty() && result.refusals.is_empty()
    }

    /// Records the result of a step.
    fn record_result(&self, planned: &PlannedStep, result: Result<(), Failure>) -> StepResult {
        let mut total = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        match result {
            Ok(()) => {
                total.count += 1;
                total.reboots |= planned.step == Step::Reboot;
                StepResult::Done
            }
            Err(_) if planned.is_optional() => {
                total.failed_optional_steps.push(planned.step.clone());
                StepResult::Done
            }
            Err(failure) => {
                let is_refusal = planned.step.is_trial() && failure.is_refusal();
                let list = if is_refusal { &mut total.refusals } else { &mut total.failures };
                let is_unfinished =
                    matches!(failure, Failure::Step { source: HostError::StillRunning { .. }, .. });
                list.push(failure);
                if is_unfinished { StepResult::Unfinished } else { StepResult::Failed }
            }
        }
    }

    /// Returns the PCI address of the step's VF if that exists, or else of its PF.
    fn pci_address(&self, step: &Step) -> Option<PciAddress> {
        let address_of = |vf: VfRef| {
            let mut vfs = self.facts.pf(vf.pf)?.vfs.iter();
            Some(vfs.find(|found| found.index == vf.index)?.address)
        };
        step.vf().and_then(address_of).or(step.pf())
    }
}

/// Calls `task` for all `items`, for at most `max_threads` of them at the same time.
fn run_parallel<T: Sync>(items: &[T], max_threads: usize, task: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    let process_items = || {
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            task(item);
        }
    };
    thread::scope(|scope| {
        // The current thread processes items, too.
        for _ in 1..items.len().min(max_threads) {
            let thread = thread::Builder::new().name("step".to_owned()).stack_size(STACK_SIZE);
            if let Err(error) = thread.spawn_scoped(scope, process_items) {
                tracing::warn!(%error, "cannot start a thread: the running threads execute its steps");
                break;
            }
        }
        process_items();
    });
}
