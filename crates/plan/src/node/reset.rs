//! A PF that is ours and no longer wanted is given back: without VFs, and without what vfleet changed of the rest.

use super::problem::{Cause, Problem};
use super::protection::Guard;
use super::{lone, planned, udev};
use crate::facts::{EswitchMode, HostFacts, LinkKind, PfFacts, Record};
use crate::prelude::*;
use crate::step::{Disruption, PlannedStep, Step};

/// The steps that give a PF back. The record goes last: until then the PF is ours, whatever happens.
pub(super) fn reset_pf(record: &Record, facts: &HostFacts) -> Result<Vec<PlannedStep>, Problem> {
    let problem = |cause| Problem {
        pf: Some(record.pf),
        name: record.interface.name.clone(),
        policies: Vec::new(),
        cause,
    };
    if let Some(unread) = facts.unread(record.pf) {
        return Err(problem(Cause::Unread { reason: unread.reason, error: unread.error.clone() }));
    }
    let mut steps = match facts.pf(record.pf) {
        Some(found) if !record.is_external() => {
            undo(record, found, &Guard::of_unwanted(facts)).map_err(problem)?
        }
        _ => Vec::new(),
    };
    steps.extend(udev::remove_rules(record.pf, facts));
    steps.push(planned(
        Step::RemoveRecord { pf: record.pf },
        Disruption::None,
        "no policy wants it any more",
    ));
    Ok(steps)
}

fn undo(record: &Record, found: &PfFacts, guard: &Guard<'_>) -> Result<Vec<PlannedStep>, Cause> {
    if found.is_lone_vf {
        return Ok(lone::give_back(found).into_iter().collect());
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
    let is_protected = guard.pf(found).is_some();
    if let Some(mode) = mode_before(record, found).filter(|_| !is_protected) {
        steps.push(planned(Step::SetEswitchMode { pf, mode }, Disruption::Pf, "as before"));
    }
    let before = &record.first_seen;
    if record.making && found.drivers_autoprobe != before.drivers_autoprobe {
        let on = before.drivers_autoprobe;
        steps.push(planned(Step::SetAutoprobe { pf, on }, Disruption::None, "as before"));
    }
    if let Some(mtu) = mtu_before(record, found).filter(|_| !is_protected) {
        steps.push(planned(Step::SetPfMtu { pf, mtu }, Disruption::Pf, "as before"));
    }
    Ok(steps)
}

/// The mode that the switch had, if it has another now. What the Go daemon put into switchdev mode was in legacy mode.
fn mode_before(record: &Record, found: &PfFacts) -> Option<EswitchMode> {
    let was_switchdev = record.interface.e_switch_mode.as_deref() == Some(EswitchMode::Switchdev.as_str());
    let before = record.first_seen.eswitch.or(was_switchdev.then_some(EswitchMode::Legacy))?;
    found.eswitch.filter(|now| *now != before).map(|_| before)
}

/// The MTU that the PF had, while it has the one that vfleet, or the Go daemon before it, raised it to: another was set
/// by somebody who wants it.
fn mtu_before(record: &Record, found: &PfFacts) -> Option<u32> {
    let link = found.link.as_ref()?;
    let usual = if link.kind == LinkKind::Infiniband { 2048 } else { 1500 };
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
