//! One PF: its record, link, VF count and MTU; then its VFs.

use super::planned;
use super::problem::{Cause, Problem};
use super::vf::{plan_existing_vf, plan_new_vf};
use super::wanted::WantedPf;
use crate::facts::{FirstSeen, HostFacts, LinkFacts, PfFacts, Record};
use crate::prelude::*;
use crate::step::{Disruption, PlannedStep, Step};

/// The steps for one wanted PF.
///
/// The record comes first, so that whatever happens next is known to be ours. While VFs are being made the
/// record says so, and is written again when all of them are set up.
pub(super) fn plan_pf(wanted: &WantedPf, facts: &HostFacts) -> Result<Vec<PlannedStep>, Problem> {
    let found = facts.pf(wanted.address).ok_or_else(|| wanted.problem(Cause::NoSuchPf))?;
    let link = found.link.as_ref().ok_or_else(|| wanted.problem(Cause::NoLink))?;
    check(wanted, found, link).map_err(|cause| wanted.problem(cause))?;
    let record = facts.record(wanted.address);
    Ok(if wanted.external {
        plan_external(wanted, found, record)
    } else {
        plan_owned(wanted, found, link, record)
    })
}

/// Everything that can be known before the first change.
fn check(wanted: &WantedPf, found: &PfFacts, link: &LinkFacts) -> Result<(), Cause> {
    let asked = wanted.interface.link_type.as_deref().unwrap_or("");
    if !asked.is_empty() && !asked.eq_ignore_ascii_case(link.kind.as_api()) {
        return Err(Cause::LinkType { asked: asked.to_owned(), found: link.kind.as_api() });
    }
    if wanted.external {
        return check_external(wanted, found, link);
    }
    if wanted.num_vfs > found.total_vfs {
        return Err(Cause::TooManyVfs { asked: wanted.num_vfs.into(), total: found.total_vfs });
    }
    let highest = wanted.groups.iter().filter_map(|group| group.mtu).chain(wanted.mtu).max();
    match (highest, link.max_mtu) {
        (Some(asked), Some(max)) if asked > max => Err(Cause::MtuTooHigh { asked, max }),
        _ => Ok(()),
    }
}

/// Somebody else made the VFs and set the MTU: is it enough?
fn check_external(wanted: &WantedPf, found: &PfFacts, link: &LinkFacts) -> Result<(), Cause> {
    if usize::from(wanted.num_vfs) > found.vfs.len() {
        return Err(Cause::TooFewVfs { asked: wanted.num_vfs, found: found.vfs.len() });
    }
    match wanted.mtu {
        Some(asked) if asked > link.mtu => Err(Cause::ExternalMtu { asked, found: link.mtu }),
        _ => Ok(()),
    }
}

fn plan_external(wanted: &WantedPf, found: &PfFacts, record: Option<&Record>) -> Vec<PlannedStep> {
    let mut steps = Vec::new();
    steps.extend(write_record(wanted, found, record, false));
    steps.extend(found.vfs.iter().flat_map(|vf| plan_existing_vf(wanted, found, vf)));
    steps
}

fn plan_owned(
    wanted: &WantedPf,
    found: &PfFacts,
    link: &LinkFacts,
    record: Option<&Record>,
) -> Vec<PlannedStep> {
    let count_differs = found.vfs.len() != usize::from(wanted.num_vfs);
    let make = count_differs || record.is_some_and(|record| record.making);
    let mut steps = Vec::new();
    steps.extend(write_record(wanted, found, record, make));
    if !link.admin_up {
        // Some cards (igb) serve their VFs only while they are up.
        steps.push(planned(Step::SetLinkUp { pf: wanted.address }, Disruption::Pf, "it is down"));
    }
    steps.extend(raise_mtu(wanted, link));
    if make {
        steps.extend(make_vfs(wanted, found));
        steps.extend(write_record(wanted, found, Some(&making_record(wanted, found, record)), false));
    } else {
        steps.extend(found.vfs.iter().flat_map(|vf| plan_existing_vf(wanted, found, vf)));
    }
    steps
}

/// Removes the VFs that are there if their number is wrong, makes the wanted ones, and sets them up.
fn make_vfs(wanted: &WantedPf, found: &PfFacts) -> Vec<PlannedStep> {
    let pf = wanted.address;
    let (have, want) = (found.vfs.len(), wanted.num_vfs);
    let mut steps = Vec::new();
    let recreate = have != usize::from(want);
    if recreate && have > 0 {
        let why = format!("it has {have} VFs, {want} are wanted");
        steps.push(planned(Step::SetNumVfs { pf, count: 0 }, Disruption::Drain, why));
    }
    // Kept from binding them by itself, the kernel leaves each VF to be bound once, with its address set. Not
    // where it shall bind some: VFs in no group are the kernel's business.
    let all_ours = (0..want).all(|index| wanted.vf(index).is_some());
    if recreate && want > 0 {
        if all_ours && found.drivers_autoprobe {
            steps.push(planned(
                Step::SetAutoprobe { pf, on: false },
                Disruption::None,
                "VFs are bound one by one",
            ));
        }
        let why = format!("wanted by {}", policies(wanted));
        steps.push(planned(Step::SetNumVfs { pf, count: want }, Disruption::Pf, why));
    }
    let (macs, binds): (Vec<_>, Vec<_>) =
        (0..want).flat_map(|index| plan_new_vf(wanted, found, index)).partition(is_mac);
    steps.extend(macs);
    let is_off = !found.drivers_autoprobe || (recreate && all_ours && want > 0);
    if is_off {
        steps.push(planned(Step::SetAutoprobe { pf, on: true }, Disruption::None, "as before"));
    }
    steps.extend(binds);
    steps
}

fn policies(wanted: &WantedPf) -> String {
    let mut names: Vec<_> = wanted.groups.iter().map(|group| group.policy.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    format!("{} {}", if names.len() == 1 { "policy" } else { "policies" }, names.join(", "))
}

fn is_mac(planned: &PlannedStep) -> bool {
    matches!(planned.step, Step::SetVfMac { .. })
}

fn raise_mtu(wanted: &WantedPf, link: &LinkFacts) -> Option<PlannedStep> {
    let mtu = wanted.mtu.filter(|mtu| *mtu > link.mtu)?;
    let why = format!("it has {}", link.mtu);
    Some(planned(Step::SetPfMtu { pf: wanted.address, mtu }, Disruption::Pf, why))
}

fn write_record(
    wanted: &WantedPf,
    found: &PfFacts,
    old: Option<&Record>,
    making: bool,
) -> Option<PlannedStep> {
    let record = Record { making, ..making_record(wanted, found, old) };
    if old == Some(&record) {
        return None;
    }
    let why = match old {
        None => "a policy selects it",
        Some(_) if making => "its VFs are about to be made",
        Some(old) if old.making => "its VFs are made",
        Some(_) => "something else is wanted of it",
    };
    Some(planned(Step::WriteRecord { record }, Disruption::None, why))
}

fn making_record(wanted: &WantedPf, found: &PfFacts, old: Option<&Record>) -> Record {
    let first_seen = old.map_or_else(
        || FirstSeen { mtu: found.link.as_ref().map(|link| link.mtu) },
        |record| record.first_seen.clone(),
    );
    Record { pf: wanted.address, interface: wanted.interface.clone(), first_seen, making: true }
}
