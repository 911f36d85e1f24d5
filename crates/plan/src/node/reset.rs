//! Reset of PFs that are no longer desired: VFs are removed, and everything else that vfleet changed is restored.

use super::bridge::{BridgePf, BridgeSteps};
use super::problem::{Cause, Problem};
use super::protection::HostProtection;
use super::{lone, planned, udev};
use crate::facts::{EswitchMode, HostFacts, PfFacts, ProtectingUse, Record};
use crate::mtu::default_mtu;
use crate::prelude::*;
use crate::step::{Disruption, PlannedStep, Step};

/// Reason of steps that restore an original value.
const RESTORE: &str = "restore the original value";

/// Returns the steps that reset a PF, and the problem if something cannot be restored. Record and udev rules are
/// removed last, when everything is restored.
///
/// The bridge is removed first. While one is left, so is the record.
pub(super) fn reset_pf(
    record: &Record,
    bridge: BridgeSteps,
    facts: &HostFacts,
) -> Result<(Vec<PlannedStep>, Vec<Problem>), Problem> {
    let problem = |cause| Problem {
        pf: Some(record.pf),
        name: record.interface.name.clone(),
        policies: Vec::new(),
        cause,
    };
    if let Some(card) = facts.unreadable(record.pf) {
        return Err(problem(Cause::UnreadableCard { reason: card.reason, error: card.error.clone() }));
    }
    let protection = HostProtection::for_reset(facts);
    let (undo_steps, left) = match facts.pf(record.pf) {
        Some(observed) if !record.is_external() => undo(record, observed, &protection).map_err(problem)?,
        _ => (Vec::new(), None),
    };
    let is_bridge_left = bridge.is_left;
    let mut steps = bridge.remove;
    steps.extend(undo_steps);
    let problems: Vec<_> = bridge.causes.into_iter().chain(left.clone()).map(problem).collect();
    if left.is_some() || is_bridge_left {
        return Ok((steps, problems));
    }
    steps.extend(udev::remove_rules(record.pf, facts));
    steps.push(planned(
        Step::RemoveRecord { pf: record.pf },
        Disruption::None,
        "no policy selects the PF anymore",
    ));
    Ok((steps, problems))
}

/// Returns a PF that is reset for the planner of bridges.
pub(super) fn bridge_pf<'a>(record: &'a Record, facts: &'a HostFacts) -> BridgePf<'a> {
    BridgePf {
        address: record.pf,
        observed: facts.pf(record.pf),
        record: Some(record),
        mtu: None,
        can_create: false,
        protection: HostProtection::for_reset(facts),
        facts,
    }
}

/// Returns the steps that undo what vfleet changed, and the cause if something cannot be restored.
fn undo(
    record: &Record,
    observed: &PfFacts,
    protection: &HostProtection<'_>,
) -> Result<(Vec<PlannedStep>, Option<Cause>), Cause> {
    if observed.is_lone_vf {
        return Ok((lone::reset_driver(observed).into_iter().collect(), None));
    }
    if let Some(cause) = protection.removal_cause(observed) {
        return Err(cause);
    }
    let pf = record.pf;
    let mut steps = Vec::new();
    if !observed.vfs.is_empty() {
        steps.push(planned(
            Step::SetNumVfs { pf, count: 0 },
            Disruption::Drain,
            "no policy requests VFs anymore",
        ));
    }
    let in_use = protection.pf(observed);
    let mode = original_mode(record, observed);
    if let (Some(mode), None) = (mode, &in_use) {
        let step = Step::SetEswitchMode { pf, mode, trial: None };
        steps.push(planned(step, Disruption::Pf, RESTORE));
    }
    let original = &record.original;
    if record.creating_vfs && observed.drivers_autoprobe != original.drivers_autoprobe {
        let on = original.drivers_autoprobe;
        steps.push(planned(Step::SetAutoprobe { pf, on }, Disruption::None, RESTORE));
    }
    let mtu = original_mtu(record, observed);
    if let (Some(mtu), None) = (mtu, &in_use) {
        steps.push(planned(Step::SetPfMtu { pf, mtu }, Disruption::Pf, RESTORE));
    }
    // The MTU of a missing interface cannot be restored yet.
    let not_yet = (observed.link.is_none() && record.raised_mtu.is_some()).then_some(Cause::NoLink);
    Ok((steps, in_use.and_then(|in_use| not_restored(mode, mtu, in_use)).or(not_yet)))
}

/// Returns the cause if a PF that the node uses is not restored completely.
fn not_restored(mode: Option<EswitchMode>, mtu: Option<u32>, in_use: ProtectingUse) -> Option<Cause> {
    let mode = mode.map(|mode| format!("its eswitch mode is not reset to {}", mode.as_str()));
    let mtu = mtu.map(|mtu| format!("its MTU is not reset to {mtu}"));
    let left: Vec<_> = mode.into_iter().chain(mtu).collect();
    (!left.is_empty()).then(|| Cause::NotRestored { left: left.join(" and "), in_use })
}

/// Returns the original eswitch mode, if the current one differs. A PF in switchdev mode by the Go daemon was in legacy
/// mode.
fn original_mode(record: &Record, observed: &PfFacts) -> Option<EswitchMode> {
    let was_switchdev = record.interface.e_switch_mode.as_deref() == Some(EswitchMode::Switchdev.as_str());
    let original = record.original.eswitch.or(was_switchdev.then_some(EswitchMode::Legacy))?;
    observed.eswitch.value().filter(|now| *now != original).map(|_| original)
}

/// Returns the original MTU, if the PF still has the one to which vfleet or the Go daemon raised it. Another one was
/// set by an administrator and is kept.
fn original_mtu(record: &Record, observed: &PfFacts) -> Option<u32> {
    let link = observed.link.as_ref()?;
    let default = default_mtu(link.kind);
    match (record.original.mtu, record.raised_mtu) {
        (Some(before), Some(raised)) => (raised == link.mtu && before != raised).then_some(before),
        (Some(_), None) => None,
        // Records of the Go daemon do not have the original MTU.
        (None, raised) => {
            let requested = record.interface.mtu.and_then(|mtu| u32::try_from(mtu).ok());
            let is_raised = raised == Some(link.mtu) || requested == Some(link.mtu);
            (is_raised && link.mtu > default).then_some(default)
        }
    }
}
