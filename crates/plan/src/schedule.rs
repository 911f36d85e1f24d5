//! What of a plan may be done at once.
//!
//! PFs do not depend on each other. On one PF, steps about different VFs that follow each other do not either: each VF
//! has a lane of its own, and the next step about all of the PF waits for all of them.

use vfleet_api::{PciAddress, VfRef};

use crate::prelude::*;
use crate::step::PlannedStep;

/// A plan, ordered by what waits for what.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schedule<'a> {
    /// For the machine, one after the other, before all else. One that fails does not stop the others.
    pub before: Vec<&'a PlannedStep>,
    /// PFs, all at once.
    pub pfs: Vec<PfLane<'a>>,
    /// For the machine, one after the other, when all PFs are done. None follows one that failed, and what
    /// leads to a restart follows no failure at all: a machine that something is wrong with is not restarted for
    /// something else.
    pub after: Vec<&'a PlannedStep>,
}

/// The steps of one PF: stage by stage. None follows a stage in which something failed.
#[derive(Clone, Debug, PartialEq)]
pub struct PfLane<'a> {
    /// The PF.
    pub pf: PciAddress,
    /// One after the other.
    pub stages: Vec<Stage<'a>>,
}

/// What of one PF may be done at once.
#[derive(Clone, Debug, PartialEq)]
pub enum Stage<'a> {
    /// A step about all of the PF.
    Pf(&'a PlannedStep),
    /// VFs, all at once; the steps of one VF one after the other.
    Vfs(Vec<(VfRef, Vec<&'a PlannedStep>)>),
}

/// The schedule of these steps. A plan for the machine alone (a restart, and what leads to it) goes in order, so that
/// none follows one that failed.
pub fn schedule(steps: &[PlannedStep]) -> Schedule<'_> {
    let mut schedule = Schedule::default();
    for planned in steps {
        match planned.step.pf() {
            None if schedule.pfs.is_empty() => schedule.before.push(planned),
            None => schedule.after.push(planned),
            Some(pf) => add(lane(&mut schedule.pfs, pf), planned),
        }
    }
    if schedule.pfs.is_empty() {
        schedule.after = core::mem::take(&mut schedule.before);
    }
    schedule
}

fn lane<'l, 'a>(lanes: &'l mut Vec<PfLane<'a>>, pf: PciAddress) -> &'l mut PfLane<'a> {
    let at = lanes.iter().position(|lane| lane.pf == pf).unwrap_or_else(|| {
        lanes.push(PfLane { pf, stages: Vec::new() });
        lanes.len() - 1
    });
    &mut lanes[at]
}

fn add<'a>(lane: &mut PfLane<'a>, planned: &'a PlannedStep) {
    let Some(vf) = planned.step.vf() else {
        lane.stages.push(Stage::Pf(planned));
        return;
    };
    if !matches!(lane.stages.last(), Some(Stage::Vfs(_))) {
        lane.stages.push(Stage::Vfs(Vec::new()));
    }
    if let Some(Stage::Vfs(vfs)) = lane.stages.last_mut() {
        match vfs.iter_mut().find(|(known, _)| *known == vf) {
            Some((_, steps)) => steps.push(planned),
            None => vfs.push((vf, vec![planned])),
        }
    }
}
