//! The steps of a plan, as much at once as `vfleet_plan::schedule` allows.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use vfleet_api::{PciAddress, VfRef};
use vfleet_host::with_causes;
use vfleet_plan::{HostFacts, Lane, PlannedStep, Stage, Step, Target, schedule};

use super::{Failure, Happening, Work};

/// The kernel does most of its work on a card's VFs one after the other, so more threads would only wait.
const PARTS_AT_ONCE: usize = 8;
/// They only wait for the host.
const STACK: usize = 256 * 1024;

/// What came of the steps.
#[derive(Debug, Default)]
pub(super) struct Executed {
    /// How many did what they should.
    pub(super) count: usize,
    /// One for each that did not.
    pub(super) failures: Vec<Failure>,
    /// Trials that the kernel refused: another plan follows.
    pub(super) refusals: Vec<Failure>,
    /// Those that failed and that the machine can do without.
    pub(super) done_without: Vec<Step>,
    /// The machine is about to restart.
    pub(super) reboots: bool,
}

/// Executes `steps` on a machine that is like `facts` before.
pub(super) fn execute(work: &Work<'_>, facts: &HostFacts, steps: &[PlannedStep]) -> Executed {
    let schedule = schedule(steps);
    let run = Run { work, facts, done: Mutex::default() };
    for planned in &schedule.before {
        run.step(planned);
    }
    let lanes_at_once = if work.one_card_at_a_time { 1 } else { usize::MAX };
    at_once(&schedule.lanes, lanes_at_once, |lane| run.lane(lane));
    let may_follow = |planned: &PlannedStep| !planned.step.leads_to_restart() || run.nothing_failed();
    let _ = schedule.after.iter().all(|planned| may_follow(planned) && run.step(planned));
    run.done.into_inner().unwrap_or_else(PoisonError::into_inner)
}

struct Run<'a> {
    work: &'a Work<'a>,
    facts: &'a HostFacts,
    done: Mutex<Executed>,
}

impl Run<'_> {
    /// Executes the steps of one lane. A stage in which a step failed is the last one.
    fn lane(&self, lane: &Lane<'_>) {
        let is_done = lane.stages.iter().all(|stage| match stage {
            Stage::Whole(planned) => self.step(planned),
            Stage::Parts(parts) => self.parts(parts),
        });
        (self.work.listener)(Happening::LaneEnded { target: lane.target, is_done });
    }

    fn parts(&self, parts: &[(Target, Vec<&PlannedStep>)]) -> bool {
        let all_done = AtomicBool::new(true);
        at_once(parts, PARTS_AT_ONCE, |(_, steps)| {
            if !steps.iter().all(|planned| self.step(planned)) {
                all_done.store(false, Ordering::Relaxed);
            }
        });
        all_done.into_inner()
    }

    /// Tells whether the step did what it should, or is not needed.
    fn step(&self, planned: &PlannedStep) -> bool {
        let step = &planned.step;
        let (node, pf, vf) = (self.work.node, step.pf(), step.vf());
        let pci = self.device(step).map(tracing::field::display);
        let (pf_field, vf_field) = (pf.map(tracing::field::display), vf.map(|vf| vf.index));
        tracing::info!(node, pf = pf_field, vf = vf_field, pci, %step, why = planned.why, "executing");
        (self.work.listener)(Happening::Begins(planned));
        let begin = Instant::now();
        let result = self.work.host.execute(step);
        let took = begin.elapsed();
        if let Err(error) = &result {
            let error = with_causes(error);
            tracing::warn!(node, pf = pf_field, vf = vf_field, pci, %step, ?took, error, "step failed");
        }
        (self.work.listener)(Happening::Ended { planned, took, error: result.as_ref().err() });
        self.note(
            planned,
            result.map_err(|source| Failure::Step { target: step.target(), step: step.to_string(), source }),
        )
    }

    fn nothing_failed(&self) -> bool {
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        done.failures.is_empty() && done.refusals.is_empty()
    }

    fn note(&self, planned: &PlannedStep, result: Result<(), Failure>) -> bool {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        match result {
            Ok(()) => {
                done.count += 1;
                done.reboots |= planned.step == Step::Reboot;
                true
            }
            Err(_) if planned.is_optional() => {
                done.done_without.push(planned.step.clone());
                true
            }
            Err(failure) => {
                let is_refusal = planned.step.is_trial() && failure.is_refusal();
                let list = if is_refusal { &mut done.refusals } else { &mut done.failures };
                list.push(failure);
                false
            }
        }
    }

    /// The PCI device that a step is about: the VF where it is known already, or else the PF.
    fn device(&self, step: &Step) -> Option<PciAddress> {
        let known = |vf: VfRef| {
            let mut vfs = self.facts.pf(vf.pf)?.vfs.iter();
            Some(vfs.find(|known| known.index == vf.index)?.address)
        };
        step.vf().and_then(known).or(step.pf())
    }
}

/// Does `work` on all `items`, on so many at once at most.
fn at_once<T: Sync>(items: &[T], at_most: usize, work: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    let take_one_after_the_other = || {
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            work(item);
        }
    };
    thread::scope(|scope| {
        // This thread is one of them.
        for _ in 1..items.len().min(at_most) {
            let thread = thread::Builder::new().name("step".to_owned()).stack_size(STACK);
            if let Err(error) = thread.spawn_scoped(scope, take_one_after_the_other) {
                tracing::warn!(%error, "no thread to spare; the others do its work");
                break;
            }
        }
        take_one_after_the_other();
    });
}
