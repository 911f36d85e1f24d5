//! From what is wanted to a changed machine: facts, plan, execute, facts again. Blocking, and free of the API.

mod execute;
mod failure;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::time::Duration;

use vfleet_host::{Host, HostError};
use vfleet_plan::{HostFacts, Plan, PlannedStep, Step, Target};

pub use failure::Failure;

/// Some changes show only after others what else is to do (udev tells of a card's ports once it looked at them again).
const ROUNDS: usize = 3;

/// The planner: what to do on a machine that is like these facts.
pub type Planner<'a> = &'a (dyn Fn(&HostFacts) -> Plan + Sync);

/// What is needed to change a machine.
pub struct Work<'a> {
    /// The machine.
    pub host: &'a dyn Host,
    /// Its name, for the log.
    pub node: &'a str,
    /// What is to be done on it.
    pub planner: Planner<'a>,
    /// Finish one card before the next is begun.
    pub one_card_at_a_time: bool,
    /// Is told what happens, by several threads.
    pub listener: &'a (dyn Fn(Happening<'_>) + Sync),
}

/// Something that happened while steps are executed.
#[derive(Debug)]
pub enum Happening<'a> {
    /// A step is begun.
    Begins(&'a PlannedStep),
    /// A step ended.
    Ended {
        /// The step.
        planned: &'a PlannedStep,
        /// How long it took.
        took: Duration,
        /// Why it failed, if it did.
        error: Option<&'a HostError>,
    },
    /// No further step of this lane follows.
    LaneEnded {
        /// The target that the lane belongs to.
        target: Target,
        /// All of its steps succeeded.
        is_done: bool,
    },
    /// All steps did what they should, and only then it could be seen that these are to be done as well.
    More(&'a Plan),
}

/// What came of an attempt.
#[derive(Debug)]
pub struct Outcome {
    /// The machine afterwards; `None` when it could not be read.
    pub facts: Option<HostFacts>,
    /// How many steps were executed.
    pub executed: usize,
    /// Some of them changed the machine, and not only what is written down about it.
    pub changes: bool,
    /// What went wrong.
    pub failures: Vec<Failure>,
    /// Steps that failed and that the machine can do without.
    pub done_without: Vec<Step>,
    /// The machine is about to restart: nothing more is to be done until it did.
    pub reboots: bool,
}

impl Outcome {
    /// The machine cannot be read.
    pub fn unreadable(error: HostError) -> Self {
        let failures = vec![Failure::Unreadable(error)];
        Self { facts: None, executed: 0, changes: false, failures, done_without: Vec::new(), reboots: false }
    }

    /// The machine is as wanted, except what cannot be.
    pub fn without_steps(facts: HostFacts, plan: Plan) -> Self {
        let failures = plan.problems.into_iter().map(Failure::Impossible).collect();
        Self {
            facts: Some(facts),
            executed: 0,
            changes: false,
            failures,
            done_without: Vec::new(),
            reboots: false,
        }
    }
}

/// The machine as it is, and what is to be done on it.
pub fn survey(host: &dyn Host, planner: Planner<'_>) -> Result<(HostFacts, Plan), HostError> {
    let facts = host.facts()?;
    let plan = planner(&facts);
    Ok((facts, plan))
}

/// Executes `plan` on the machine that `facts` describe, and reads it again to verify the result. A step that fails ends
/// its lane; other lanes go on. A trial that the kernel refuses is no failure while another plan follows from that.
pub fn carry_out(work: &Work<'_>, mut facts: HostFacts, mut plan: Plan) -> Outcome {
    let (mut executed, mut changes, mut done_without, mut round) = (0, false, Vec::new(), 1);
    loop {
        changes |= !is_bookkeeping(&plan);
        let done = execute::execute(work, &facts, &plan.steps);
        executed += done.count;
        done_without.extend(done.done_without);
        if done.reboots {
            let (facts, failures) = (Some(facts), done.failures);
            return Outcome { facts, executed, changes, failures, done_without, reboots: true };
        }
        let (now, mut left) = match survey(work.host, work.planner) {
            Ok(seen) => seen,
            Err(error) => {
                let mut failures = done.failures;
                failures.extend(done.refusals);
                failures.push(Failure::Unreadable(error));
                return Outcome { facts: None, executed, changes, failures, done_without, reboots: false };
            }
        };
        left.steps.retain(|planned| !done_without.contains(&planned.step));
        if round == ROUNDS || !done.failures.is_empty() || !follows(&plan, &left) {
            let mut failures = done.failures;
            failures.extend(unexplained(done.refusals, &left));
            let failures = what_is_wrong(failures, left, &now);
            return Outcome { facts: Some(now), executed, changes, failures, done_without, reboots: false };
        }
        (work.listener)(Happening::More(&left));
        (facts, plan, round) = (now, left, round + 1);
    }
}

/// Returns whether `plan` changes nothing but what is written down about cards.
pub(crate) fn is_bookkeeping(plan: &Plan) -> bool {
    plan.steps.iter().all(|planned| matches!(planned.step, Step::WriteRecord { .. }))
}

/// Whether `left` is to be done right after `plan`: other steps, that disturb nobody who was not disturbed already.
fn follows(plan: &Plan, left: &Plan) -> bool {
    !left.steps.is_empty() && left.steps != plan.steps && left.disruption() <= plan.disruption()
}

/// Refusals of PFs that no problem tells about.
fn unexplained(refusals: Vec<Failure>, left: &Plan) -> impl Iterator<Item = Failure> {
    let explained: BTreeSet<_> = left.problems.iter().filter_map(|problem| problem.pf).collect();
    refusals.into_iter().filter(move |refusal| refusal.pf().is_none_or(|pf| !explained.contains(&pf)))
}

/// Returns what failed, what is not as desired although nothing failed, and what cannot be, on the machine that `facts`
/// describe and on which `left` is still to be done.
fn what_is_wrong(mut failures: Vec<Failure>, mut left: Plan, facts: &HostFacts) -> Vec<Failure> {
    let put_off = (!failures.is_empty()).then(|| without_restart(&mut left)).flatten();
    let given_up: BTreeSet<Target> = failures.iter().map(|failure| failure.target().lane()).collect();
    left.steps.retain(|planned| !is_identity_update(&planned.step, facts));
    let unexplained = left.steps.iter().filter(|planned| !given_up.contains(&planned.step.target().lane()));
    let still_to_do = unexplained
        .map(|planned| Failure::StillToDo { target: planned.step.target(), step: planned.to_string() });
    failures.extend(still_to_do);
    failures.extend(left.problems.into_iter().map(Failure::Impossible));
    failures.extend(put_off);
    failures
}

/// Returns whether `step` only follows a card that got other names meanwhile: the next attempt does that.
fn is_identity_update(step: &Step, facts: &HostFacts) -> bool {
    let Step::WriteRecord { record } = step else { return false };
    facts.record(record.pf).is_some_and(|written| written.differs_only_in_identity(record))
}

/// Takes the restart from what is left to do, with what leads to it.
fn without_restart(left: &mut Plan) -> Option<Failure> {
    let at = left.steps.iter().position(|planned| planned.step == Step::Reboot)?;
    let why = left.steps.remove(at).why;
    left.steps.retain(|planned| !planned.step.leads_to_restart());
    Some(Failure::RestartPutOff { why })
}
