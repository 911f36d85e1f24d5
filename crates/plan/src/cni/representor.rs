//! Representor of a VF: the interface on the host that is attached to a software bridge.

use vfleet_api::VfRef;

use super::attachment::ReleasePlan;
use super::facts::{DeviceFacts, Representor, SwitchFacts, SwitchPort};
use super::journal::RepresentorChanges;
use super::protocol::{CniError, ErrorCode};
use super::step::{CniStep, SwitchStep};
use crate::prelude::*;

/// Returns the representor of a VF, which must exist.
pub(super) fn require_representor<'a>(
    vf: VfRef,
    facts: &DeviceFacts,
    switch: &'a SwitchFacts,
) -> Result<&'a SwitchPort, CniError> {
    let device = facts.address;
    let pf = facts.pf.as_ref().map_or("", |pf| pf.name.as_str());
    if !switch.is_switchdev {
        let problem =
            format!("PF {pf} of device {device} is not in switchdev mode: the VF has no representor");
        return Err(CniError::invalid_config("deviceID", problem)
            .with_details("set eSwitchMode: switchdev in the policy of the device"));
    }
    switch.representor.as_ref().ok_or_else(|| {
        let message = format!("device {device} (VF {} of PF {pf}) has no representor", vf.index);
        CniError::new(ErrorCode::DeviceFailed, message)
            .with_details("`devlink port show` lists the ports of the PF: check the log of its driver")
    })
}

/// Checks that a representor can have an MTU.
pub(super) fn check_mtu(mtu: Option<u32>, representor: &SwitchPort) -> Result<(), CniError> {
    match (mtu, representor.max_mtu) {
        (Some(mtu), Some(limit)) if mtu > limit => {
            let problem =
                format!("{mtu} is above {limit}, the highest MTU of representor {}", representor.name);
            Err(CniError::invalid_config("mtu", problem))
        }
        _ => Ok(()),
    }
}

/// Returns the representor for steps.
pub(super) fn refer(vf: VfRef, representor: &SwitchPort) -> Representor {
    Representor { vf, name: representor.name.clone() }
}

/// Returns the state before ADD, which sets the MTU if there is one, and sets the representor up.
pub(super) fn record(representor: &SwitchPort, mtu: Option<u32>) -> RepresentorChanges {
    RepresentorChanges {
        name: representor.name.clone(),
        original_mtu: mtu.map(|_| representor.mtu),
        was_up: representor.is_up,
    }
}

/// Returns the step that gives a representor this MTU and sets it up, as far as it differs.
pub(super) fn configure(
    vf: VfRef,
    representor: &SwitchPort,
    mtu: Option<u32>,
    sets_up: bool,
) -> Option<SwitchStep> {
    let mtu = mtu.filter(|mtu| representor.mtu != *mtu);
    let is_up = (sets_up && !representor.is_up).then_some(true);
    let step = SwitchStep::SetRepresentor { representor: refer(vf, representor), mtu, is_up };
    (mtu.is_some() || is_up.is_some()).then_some(step)
}

/// Returns a release of a VF with the steps before it that restore its representor. That is the representor of the VF now:
/// it may have got another name since ADD.
pub(super) fn restore_before(
    release: ReleasePlan,
    vf: VfRef,
    changes: &RepresentorChanges,
    device: &DeviceFacts,
    switch: &SwitchFacts,
) -> ReleasePlan {
    let is_same_vf = device.pf.as_ref().is_some_and(|pf| pf.vf == vf);
    if !is_same_vf {
        return release;
    }
    let Some(representor) = &switch.representor else {
        let note = format!("{vf} has no representor any more");
        return ReleasePlan { notes: [note].into_iter().chain(release.notes).collect(), ..release };
    };
    let step = restore(vf, changes, representor).map(CniStep::from);
    ReleasePlan { steps: step.into_iter().chain(release.steps).collect(), ..release }
}

/// Returns the step that restores the state before ADD, as far as it differs.
fn restore(vf: VfRef, changes: &RepresentorChanges, representor: &SwitchPort) -> Option<SwitchStep> {
    let mtu = changes.original_mtu.filter(|mtu| representor.mtu != *mtu);
    let is_up = (representor.is_up != changes.was_up).then_some(changes.was_up);
    let step = SwitchStep::SetRepresentor { representor: refer(vf, representor), mtu, is_up };
    (mtu.is_some() || is_up.is_some()).then_some(step)
}
