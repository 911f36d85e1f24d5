//! A PF that is ours and no longer wanted is given back: without VFs, and without what vfleet changed of the rest.

use super::problem::{Cause, Problem};
use super::protection::Guard;
use super::{lone, planned, udev};
use crate::facts::{EswitchMode, HostFacts, InUse, PfFacts, Record};
use crate::mtu::usual_mtu;
use crate::prelude::*;
use crate::step::{Disruption, PlannedStep, Step};

/// The steps that give a PF back, and what they leave as it is. The record goes last, with the rules for udev, when all
/// is restored: until then the PF is ours, whatever happens.
pub(super) fn reset_pf(
    record: &Record,
    facts: &HostFacts,
) -> Result<(Vec<PlannedStep>, Option<Problem>), Problem> {
    let problem = |cause| Problem {
        pf: Some(record.pf),
        name: record.interface.name.clone(),
        policies: Vec::new(),
        cause,
    };
    if let Some(unread) = facts.unread(record.pf) {
        return Err(problem(Cause::Unread { reason: unread.reason, error: unread.error.clone() }));
    }
    let guard = Guard::of_unwanted(facts);
    let (mut steps, left) = match facts.pf(record.pf) {
        Some(found) if !record.is_external() => undo(record, found, &guard).map_err(problem)?,
        _ => (Vec::new(), None),
    };
    if let Some(left) = left {
        return Ok((steps, Some(problem(left))));
    }
    steps.extend(udev::remove_rules(record.pf, facts));
    steps.push(planned(
        Step::RemoveRecord { pf: record.pf },
        Disruption::None,
        "no policy wants it any more",
    ));
    Ok((steps, None))
}

/// The steps that undo what vfleet did to a PF, and why they leave something.
fn undo(
    record: &Record,
    found: &PfFacts,
    guard: &Guard<'_>,
) -> Result<(Vec<PlannedStep>, Option<Cause>), Cause> {
    if found.is_lone_vf {
        return Ok((lone::give_back(found).into_iter().collect(), None));
    }
    if let Some(cause) = guard.any_vf(found) {
        return Err(cause);
    }
    let pf = record.pf;
    let mut steps = Vec::new();
    if !found.vfs.is_empty() {
        steps.push(planned(
            Step::SetNumVfs { pf, count: 0 },
            Disruption::Drain,
            "no policy wants its VFs any more",
        ));
    }
    let in_use = guard.pf(found);
    let mode = mode_before(record, found);
    if let (Some(mode), None) = (mode, &in_use) {
        let step = Step::SetEswitchMode { pf, mode, trial: None };
        steps.push(planned(step, Disruption::Pf, "as before"));
    }
    let before = &record.first_seen;
    if record.making && found.drivers_autoprobe != before.drivers_autoprobe {
        let on = before.drivers_autoprobe;
        steps.push(planned(Step::SetAutoprobe { pf, on }, Disruption::None, "as before"));
    }
    let mtu = mtu_before(record, found);
    if let (Some(mtu), None) = (mtu, &in_use) {
        steps.push(planned(Step::SetPfMtu { pf, mtu }, Disruption::Pf, "as before"));
    }
    // The MTU of an interface that is away cannot be set back yet.
    let away = (found.link.is_none() && record.raised_mtu.is_some()).then_some(Cause::NoLink);
    Ok((steps, in_use.and_then(|in_use| left_alone(mode, mtu, in_use)).or(away)))
}

/// What a PF that the node itself uses is not given back; `None` when there is nothing.
fn left_alone(mode: Option<EswitchMode>, mtu: Option<u32>, in_use: InUse) -> Option<Cause> {
    let mode = mode.map(|mode| format!("its switch is not put back into mode {}", mode.as_str()));
    let mtu = mtu.map(|mtu| format!("its MTU is not set back to {mtu}"));
    let left: Vec<_> = mode.into_iter().chain(mtu).collect();
    (!left.is_empty()).then(|| Cause::NotRestored { left: left.join(" and "), in_use })
}

/// The mode that the switch had, if it has another now. What the Go daemon put into switchdev mode was in legacy mode.
fn mode_before(record: &Record, found: &PfFacts) -> Option<EswitchMode> {
    let was_switchdev = record.interface.e_switch_mode.as_deref() == Some(EswitchMode::Switchdev.as_str());
    let before = record.first_seen.eswitch.or(was_switchdev.then_some(EswitchMode::Legacy))?;
    found.eswitch.value().filter(|now| *now != before).map(|_| before)
}

/// The MTU that the PF had, while it has the one that vfleet, or the Go daemon before it, raised it to: another was set
/// by somebody who wants it.
fn mtu_before(record: &Record, found: &PfFacts) -> Option<u32> {
    let link = found.link.as_ref()?;
    let usual = usual_mtu(link.kind);
    match (record.first_seen.mtu, record.raised_mtu) {
        (Some(before), Some(raised)) => (raised == link.mtu).then_some(before),
        (Some(_), None) => None,
        // The Go daemon does not tell.
        (None, raised) => {
            let asked = record.interface.mtu.and_then(|mtu| u32::try_from(mtu).ok());
            let is_raised = raised == Some(link.mtu) || asked == Some(link.mtu);
            (is_raised && link.mtu > usual).then_some(usual)
        }
    }
}
