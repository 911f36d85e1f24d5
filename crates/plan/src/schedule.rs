//! Schedule of a plan: steps that may run in parallel.
//!
//! Lanes are independent: a target that fails or hangs never delays the others. In the lane of a PF, consecutive steps
//! of different VFs are independent too: they form one stage, and the next step of the PF or of its bridge waits for that
//! stage.

use alloc::borrow::Cow;

use crate::facts::{HostFacts, Record, RecordedBridge};
use crate::prelude::*;
use crate::step::{PlannedStep, Step, Target};

/// Steps of a plan, ordered by dependencies.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schedule<'a> {
    /// Steps of the machine before all lanes, in order. A failure does not stop the next ones.
    pub before: Vec<&'a PlannedStep>,
    /// Lanes, which run in parallel.
    pub lanes: Vec<Lane<'a>>,
    /// Steps of the machine after all lanes, in order. A failure stops the next ones, except for a step that sets up
    /// bridges, and any earlier failure prevents steps that lead to a reboot: a machine with a fault is not rebooted for
    /// something else.
    pub after: Vec<&'a PlannedStep>,
}

/// Steps of one lane. [`LaneProgress`] decides which of them are executed after a failure.
#[derive(Clone, Debug, PartialEq)]
pub struct Lane<'a> {
    /// Target of the lane: [`Target::lane`] of all its steps.
    pub target: Target,
    /// Stages, in order.
    pub stages: Vec<Stage<'a>>,
}

/// Steps of one lane that may run in parallel.
#[derive(Clone, Debug, PartialEq)]
pub enum Stage<'a> {
    /// Step of the PF or of its bridge, which runs alone.
    Whole(&'a PlannedStep),
    /// VFs of the PF, in parallel; the steps of each VF run in order.
    Parts(Vec<(Target, Vec<&'a PlannedStep>)>),
}

/// Returns the schedule of these steps. If all steps belong to the machine (for example a reboot and its preparation),
/// each failure stops the next ones.
pub fn schedule(steps: &[PlannedStep]) -> Schedule<'_> {
    let mut schedule = Schedule::default();
    for planned in steps {
        match planned.step.target() {
            Target::Machine if schedule.lanes.is_empty() => schedule.before.push(planned),
            Target::Machine => schedule.after.push(planned),
            target => add(lane(&mut schedule.lanes, target.lane()), target, planned),
        }
    }
    if schedule.lanes.is_empty() {
        schedule.after = core::mem::take(&mut schedule.before);
    }
    schedule
}

fn lane<'l, 'a>(lanes: &'l mut Vec<Lane<'a>>, target: Target) -> &'l mut Lane<'a> {
    let at = lanes.iter().position(|lane| lane.target == target).unwrap_or_else(|| {
        lanes.push(Lane { target, stages: Vec::new() });
        lanes.len() - 1
    });
    &mut lanes[at]
}

fn add<'a>(lane: &mut Lane<'a>, target: Target, planned: &'a PlannedStep) {
    if !matches!(target, Target::Vf(_)) {
        lane.stages.push(Stage::Whole(planned));
        return;
    }
    if !matches!(lane.stages.last(), Some(Stage::Parts(_))) {
        lane.stages.push(Stage::Parts(Vec::new()));
    }
    if let Some(Stage::Parts(parts)) = lane.stages.last_mut() {
        match parts.iter_mut().find(|(known, _)| *known == target) {
            Some((_, steps)) => steps.push(planned),
            None => parts.push((target, vec![planned])),
        }
    }
}

/// Progress of a lane: decides about its steps after one failed.
#[derive(Clone, Debug)]
pub struct LaneProgress {
    /// Bridge in the last record of the PF.
    recorded: Option<RecordedBridge>,
    failure: Option<LaneFailure>,
}

/// Effect of a failed step on the next ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LaneFailure {
    /// The bridge could not be set up. The VFs are configured nevertheless.
    Bridge,
    /// No step of the lane follows.
    End,
}

impl LaneProgress {
    /// Returns the progress of a lane without executed steps on a machine with these facts.
    pub fn new(target: Target, facts: &HostFacts) -> Self {
        let record = target.pf().and_then(|pf| facts.record(pf));
        Self { recorded: record.and_then(|record| record.bridge.clone()), failure: None }
    }

    /// Returns the progress after the bridge of the PF could not be set up.
    #[must_use]
    pub fn without_bridge(self) -> Self {
        Self { failure: Some(LaneFailure::Bridge), ..self }
    }

    /// Returns the step to execute for a planned one; `None` if none is, because of an earlier failure. After a failure
    /// of the bridge the record keeps the bridge of the last one.
    pub fn next_step<'a>(&self, planned: &'a PlannedStep) -> Option<Cow<'a, PlannedStep>> {
        match (self.failure, &planned.step) {
            (None, _) => Some(Cow::Borrowed(planned)),
            (Some(LaneFailure::End), _) => None,
            (Some(LaneFailure::Bridge), Step::WriteRecord { record }) => {
                let record = Record { bridge: self.recorded.clone(), ..record.clone() };
                Some(Cow::Owned(PlannedStep { step: Step::WriteRecord { record }, ..planned.clone() }))
            }
            (Some(LaneFailure::Bridge), step) => (!step.sets_up_bridge()).then_some(Cow::Borrowed(planned)),
        }
    }

    /// Records that a step succeeded.
    pub fn record_success(&mut self, step: &Step) {
        if let Step::WriteRecord { record } = step {
            self.recorded.clone_from(&record.bridge);
        }
    }

    /// Records that a step failed. No step follows one that is unfinished: the kernel may still execute it.
    pub fn record_failure(&mut self, step: &Step, is_unfinished: bool) {
        let is_end = is_unfinished || !step.sets_up_bridge();
        self.failure = Some(if is_end { LaneFailure::End } else { LaneFailure::Bridge });
    }

    /// Returns whether a step failed.
    pub const fn has_failed(&self) -> bool {
        self.failure.is_some()
    }
}
