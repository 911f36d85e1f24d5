//! Schedule of a plan: steps that may run in parallel.
//!
//! Lanes are independent: a target that fails or hangs never delays the others. In the lane of a PF, consecutive steps
//! of different VFs are independent too: they form one stage, and the next step of the PF or of its bridge waits for that
//! stage.

use crate::prelude::*;
use crate::step::{PlannedStep, Target};

/// Steps of a plan, ordered by dependencies.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schedule<'a> {
    /// Steps of the machine before all lanes, in order. A failure does not stop the next ones.
    pub before: Vec<&'a PlannedStep>,
    /// Lanes, which run in parallel.
    pub lanes: Vec<Lane<'a>>,
    /// Steps of the machine after all lanes, in order. A failure stops the next ones, and any earlier failure prevents
    /// steps that lead to a reboot: a machine with a fault is not rebooted for something else.
    pub after: Vec<&'a PlannedStep>,
}

/// Steps of one lane. A failure in a stage stops the next ones.
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
