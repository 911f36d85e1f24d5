//! Parts of a plan that may be done at the same time.
//!
//! Lanes do not depend on each other: a target that fails or hangs never holds up the others. In the lane of a PF, steps
//! about different VFs that follow each other do not depend on each other either: they form one stage, and the next step
//! about all of the PF waits for the whole stage.

use crate::prelude::*;
use crate::step::{PlannedStep, Target};

/// A plan, ordered by dependencies.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schedule<'a> {
    /// Steps of the machine, one after the other, before all lanes. One that fails does not stop the others.
    pub before: Vec<&'a PlannedStep>,
    /// Lanes, all at once.
    pub lanes: Vec<Lane<'a>>,
    /// Steps of the machine, one after the other, when all lanes are done. None follows one that failed, and what leads
    /// to a restart follows no failure at all: a machine with a fault is not restarted for something else.
    pub after: Vec<&'a PlannedStep>,
}

/// The steps of one lane, stage by stage. No stage follows one in which a step failed.
#[derive(Clone, Debug, PartialEq)]
pub struct Lane<'a> {
    /// The target that the lane belongs to: [`Target::lane`] of all of its steps.
    pub target: Target,
    /// Stages, one after the other.
    pub stages: Vec<Stage<'a>>,
}

/// Steps of one lane that may be done at the same time.
#[derive(Clone, Debug, PartialEq)]
pub enum Stage<'a> {
    /// A step about the lane's own target, done alone.
    Whole(&'a PlannedStep),
    /// Targets within the lane (the VFs of a PF), all at once; the steps of one target one after the other.
    Parts(Vec<(Target, Vec<&'a PlannedStep>)>),
}

/// Returns the schedule of these steps. A plan for the machine alone (a restart, and what leads to it) goes in order, so
/// that no step follows one that failed.
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
    if target == lane.target {
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
