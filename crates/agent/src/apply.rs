//! Application of a plan: execute its steps, read the machine again and verify the result. Blocking, and without the
//! API server.

mod execute;
mod failure;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::time::Duration;

use vfleet_host::{Host, HostError};
use vfleet_plan::follow_up::{is_identity_update, may_follow, only_writes_records, remove_reboot};
use vfleet_plan::{HostFacts, Plan, PlannedStep, Step, Target};

pub use failure::Failure;
pub(crate) use failure::{describe_failed_step, problem_target};

/// Largest number of plans in a row. Some steps become known only after others (udev names the ports of a card once it
/// processed them again).
const MAX_ROUNDS: usize = 3;

/// Planner of the steps for a machine with these facts.
pub type Planner<'a> = &'a (dyn Fn(&HostFacts) -> Plan + Sync);

/// Machine, planner and listener of an application.
pub struct ApplyContext<'a> {
    /// Machine that is changed.
    pub host: &'a dyn Host,
    /// Name of the node, for the log.
    pub node: &'a str,
    /// Planner of the desired state.
    pub planner: Planner<'a>,
    /// Configure one card after the other.
    pub one_card_at_a_time: bool,
    /// Callback for events. Several threads call it.
    pub listener: &'a (dyn Fn(ExecutionEvent<'_>) + Sync),
}

/// Event of the execution of steps.
#[derive(Debug)]
pub enum ExecutionEvent<'a> {
    /// A step was started.
    StepStarted(&'a PlannedStep),
    /// A step ended.
    StepFinished {
        /// Step that ended.
        planned: &'a PlannedStep,
        /// Duration of the step.
        duration: Duration,
        /// Error, if the step failed.
        error: Option<&'a HostError>,
    },
    /// No further step of this lane follows.
    LaneFinished {
        /// Target of the lane.
        target: Target,
        /// All of its steps succeeded.
        succeeded: bool,
    },
    /// All steps succeeded, and showed that these steps are needed as well.
    PlanExtended(&'a Plan),
}

/// Outcome of an application.
#[derive(Debug, Default)]
pub struct ApplyOutcome {
    /// Facts of the machine afterwards; `None` when it could not be read.
    pub facts: Option<HostFacts>,
    /// Number of executed steps.
    pub executed: usize,
    /// Some steps changed the machine, not only records.
    pub has_changed_machine: bool,
    /// Failures and problems.
    pub failures: Vec<Failure>,
    /// Optional steps that failed.
    pub failed_optional_steps: Vec<Step>,
    /// The machine is about to reboot: nothing more may be done before.
    pub reboots: bool,
}

impl ApplyOutcome {
    /// Returns the outcome for a machine that cannot be read.
    pub fn unreadable(error: HostError) -> Self {
        Self { failures: vec![Failure::Unreadable(error)], ..Self::default() }
    }

    /// Returns the outcome for a plan without steps: the machine is configured, except for problems.
    pub fn without_steps(facts: HostFacts, plan: Plan) -> Self {
        let failures = plan.problems.into_iter().map(Failure::Problem).collect();
        Self { facts: Some(facts), failures, ..Self::default() }
    }
}

/// Reads the machine and plans its steps.
pub fn survey(host: &dyn Host, planner: Planner<'_>) -> Result<(HostFacts, Plan), HostError> {
    let facts = host.facts()?;
    let plan = planner(&facts);
    Ok((facts, plan))
}

/// Executes `plan` on the machine that `facts` describe, and reads the machine again to verify the result. A failed
/// step ends its lane, unless it sets up a bridge; other lanes continue. A trial that the kernel refuses is no failure if
/// another plan follows from that.
pub fn apply_plan(context: &ApplyContext<'_>, mut facts: HostFacts, mut plan: Plan) -> ApplyOutcome {
    let (mut outcome, mut round) = (ApplyOutcome::default(), 1);
    let mut failures: Vec<Failure> = Vec::new();
    loop {
        outcome.has_changed_machine |= !only_writes_records(&plan);
        let done = execute::execute(context, &facts, &plan.steps, &lanes_without_bridge(&failures));
        outcome.executed += done.count;
        outcome.failed_optional_steps.extend(done.failed_optional_steps);
        failures.extend(done.failures);
        if done.reboots {
            return ApplyOutcome { facts: Some(facts), failures, reboots: true, ..outcome };
        }
        let (now, mut left) = match survey(context.host, context.planner) {
            Ok(survey) => survey,
            Err(error) => {
                failures.extend(done.refusals);
                failures.push(Failure::Unreadable(error));
                return ApplyOutcome { failures, ..outcome };
            }
        };
        left.steps.retain(|planned| !outcome.failed_optional_steps.contains(&planned.step));
        let lanes = lanes_without_bridge(&failures);
        let mut next = without_bridges(&left, &lanes);
        if !failures.is_empty() {
            remove_reboot(&mut next);
        }
        let has_ended = failures.iter().any(Failure::ends_lane);
        let is_tried = !lanes.is_empty() && !has_other_steps(&next, &plan, &lanes);
        if round == MAX_ROUNDS || has_ended || is_tried || !may_follow(&plan, &next) {
            failures.extend(unexplained_refusals(done.refusals, &left));
            let failures = collect_failures(failures, left, &now);
            return ApplyOutcome { facts: Some(now), failures, ..outcome };
        }
        (context.listener)(ExecutionEvent::PlanExtended(&next));
        (facts, plan, round) = (now, next, round + 1);
    }
}

/// Returns the lanes in which a bridge could not be set up and other steps were executed nevertheless.
fn lanes_without_bridge(failures: &[Failure]) -> BTreeSet<Target> {
    failures.iter().filter(|failure| !failure.ends_lane()).map(lane).collect()
}

/// Returns whether `next` has steps that `plan` did not have, and that are not records of these lanes.
fn has_other_steps(next: &Plan, plan: &Plan, lanes: &BTreeSet<Target>) -> bool {
    let is_record =
        |step: &Step| matches!(step, Step::WriteRecord { .. }) && lanes.contains(&step.target().lane());
    let is_tried = |planned: &PlannedStep| plan.steps.iter().any(|tried| tried.step == planned.step);
    next.steps.iter().any(|planned| !is_record(&planned.step) && !is_tried(planned))
}

/// Returns the plan without the steps that set up the bridges of these lanes.
fn without_bridges(plan: &Plan, lanes: &BTreeSet<Target>) -> Plan {
    let mut plan = plan.clone();
    let is_skipped = |step: &Step| step.sets_up_bridge() && lanes.contains(&step.target().lane());
    plan.steps.retain(|planned| !is_skipped(&planned.step));
    plan
}

/// Returns the refusals of PFs for which `left` has no problem.
fn unexplained_refusals(refusals: Vec<Failure>, left: &Plan) -> impl Iterator<Item = Failure> {
    let explained: BTreeSet<_> = left.problems.iter().filter_map(|problem| problem.pf).collect();
    refusals.into_iter().filter(move |refusal| refusal.pf().is_none_or(|pf| !explained.contains(&pf)))
}

fn lane(failure: &Failure) -> Target {
    failure.target().lane()
}

/// Returns whether a step is left because the bridge of its PF could not be set up.
fn belongs_to_bridge(step: &Step) -> bool {
    step.sets_up_bridge() || matches!(step, Step::WriteRecord { .. })
}

/// Returns the failures, the steps that are left although nothing failed, and the problems, of the machine that `facts`
/// describe and on which `left` is still to be done.
fn collect_failures(mut failures: Vec<Failure>, mut left: Plan, facts: &HostFacts) -> Vec<Failure> {
    let postponed = (!failures.is_empty()).then(|| remove_reboot(&mut left)).flatten();
    let postponed = postponed.map(|why| Failure::RebootPostponed { why });
    let ended_lanes: BTreeSet<_> = failures.iter().filter(|failure| failure.ends_lane()).map(lane).collect();
    let lanes_without_bridge = lanes_without_bridge(&failures);
    left.steps.retain(|planned| !is_identity_update(&planned.step, facts));
    // After a failed step of a bridge, other steps of its PF must not be left.
    let is_explained = |step: &Step| {
        let lane = step.target().lane();
        ended_lanes.contains(&lane) || lanes_without_bridge.contains(&lane) && belongs_to_bridge(step)
    };
    let unexplained = left.steps.iter().filter(|planned| !is_explained(&planned.step));
    let left_steps = unexplained.map(|planned| Failure::NotVerified {
        target: planned.step.target(),
        step: planned.to_string(),
        needs_drain: !planned.step.sets_up_bridge(),
    });
    failures.extend(left_steps);
    failures.extend(left.problems.into_iter().map(Failure::Problem));
    failures.extend(postponed);
    failures
}
