//! One PF: its record, link, MTU and VF count; then its VFs.

use super::problem::{Cause, Problem};
use super::vf::{plan_existing_vf, plan_new_vf, plan_unfinished_vf};
use super::wanted::WantedPf;
use super::{planned, udev};
use crate::facts::{FirstSeen, HostFacts, LinkFacts, LinkKind, PfFacts, Record};
use crate::prelude::*;
use crate::step::{Disruption, PlannedStep, Step, VfDriver};

/// The steps for one wanted PF.
///
/// The record comes first, so that whatever happens next is known to be ours. While VFs are being made the
/// record says so, and is written again when all of them are set up.
pub(super) fn plan_pf(wanted: &WantedPf, facts: &HostFacts) -> Result<Vec<PlannedStep>, Problem> {
    let found = facts.pf(wanted.address).ok_or_else(|| wanted.problem(Cause::NoSuchPf))?;
    let link = found.link.as_ref().ok_or_else(|| wanted.problem(Cause::NoLink))?;
    check(wanted, found, link).map_err(|cause| wanted.problem(cause))?;
    Ok(steps(wanted, found, link, facts))
}

/// Everything that can be known before the first change.
fn check(wanted: &WantedPf, found: &PfFacts, link: &LinkFacts) -> Result<(), Cause> {
    let asked = wanted.interface.link_type.as_deref().unwrap_or("");
    if !asked.is_empty() && !asked.eq_ignore_ascii_case(link.kind.as_api()) {
        return Err(Cause::LinkType { asked: asked.to_owned(), found: link.kind.as_api() });
    }
    if link.kind == LinkKind::Infiniband {
        return Err(Cause::Unsupported("InfiniBand"));
    }
    if wanted.external {
        return check_external(wanted, found, link);
    }
    if wanted.num_vfs > found.total_vfs {
        return Err(Cause::TooManyVfs { asked: wanted.num_vfs.into(), total: found.total_vfs });
    }
    match (wanted.highest_mtu(), link.max_mtu) {
        (Some(asked), Some(max)) if asked > max => Err(Cause::MtuTooHigh { asked, max }),
        _ => Ok(()),
    }
}

/// Somebody else made the VFs and set the MTU: is it enough?
fn check_external(wanted: &WantedPf, found: &PfFacts, link: &LinkFacts) -> Result<(), Cause> {
    if usize::from(wanted.num_vfs) > found.vfs.len() {
        return Err(Cause::TooFewVfs { asked: wanted.num_vfs, found: found.vfs.len() });
    }
    match wanted.highest_mtu() {
        Some(asked) if asked > link.mtu => Err(Cause::ExternalMtu { asked, found: link.mtu }),
        _ => Ok(()),
    }
}

fn steps(wanted: &WantedPf, found: &PfFacts, link: &LinkFacts, facts: &HostFacts) -> Vec<PlannedStep> {
    let old = facts.record(wanted.address);
    let recreate = !wanted.external && found.vfs.len() != usize::from(wanted.num_vfs);
    let unfinished = old.is_some_and(|record| record.making);
    let vfs = plan_vfs(wanted, found, recreate, unfinished);
    let making = recreate || unfinished;
    let made = Record { making: false, ..record(wanted, found, link, old) };
    let begun = Record { making, ..made.clone() };

    let mut steps = Vec::new();
    steps.extend(write_record(old, &begun));
    steps.extend(udev::plan_rules(wanted, found, facts));
    if !wanted.external {
        steps.extend(set_up(wanted, link));
        steps.extend(raise_mtu(wanted, link));
    }
    steps.extend(make_vfs(wanted, found, recreate, vfs, made.first_seen.drivers_autoprobe));
    steps.extend(write_record(Some(&begun), &made));
    steps
}

fn plan_vfs(wanted: &WantedPf, found: &PfFacts, recreate: bool, unfinished: bool) -> Vec<PlannedStep> {
    if recreate {
        (0..wanted.num_vfs).flat_map(|index| plan_new_vf(wanted, found, index)).collect()
    } else if unfinished && !wanted.external {
        found.vfs.iter().flat_map(|vf| plan_unfinished_vf(wanted, found, vf)).collect()
    } else {
        found.vfs.iter().flat_map(|vf| plan_existing_vf(wanted, found, vf)).collect()
    }
}

/// Removes the VFs that are there and makes the wanted ones if `recreate`, and sets them up.
///
/// Kept from binding them by itself (autoprobe), the kernel leaves each VF to be bound once, with its address
/// set. Not where it shall bind some: VFs in no group are the kernel's business. In the end the switch is as it
/// was `before`.
fn make_vfs(
    wanted: &WantedPf,
    found: &PfFacts,
    recreate: bool,
    vfs: Vec<PlannedStep>,
    before: bool,
) -> Vec<PlannedStep> {
    let (pf, want) = (wanted.address, wanted.num_vfs);
    let mut autoprobe = Autoprobe { wanted, on: found.drivers_autoprobe };
    let mut steps = Vec::new();
    if recreate && !found.vfs.is_empty() {
        let why = format!("it has {} VFs, {want} are wanted", found.vfs.len());
        steps.push(planned(Step::SetNumVfs { pf, count: 0 }, Disruption::Drain, why));
    }
    if recreate && want > 0 {
        let all_ours = (0..want).all(|index| wanted.vf(index).is_some());
        steps.extend(autoprobe.switch(before && !all_ours, "VFs are bound one by one"));
        let why = format!("wanted by {}", policies(wanted));
        steps.push(planned(Step::SetNumVfs { pf, count: want }, Disruption::Pf, why));
    }
    let (macs, others): (Vec<_>, Vec<_>) = vfs.into_iter().partition(is_mac);
    steps.extend(macs);
    if others.iter().any(is_bound_by_kernel) {
        steps.extend(autoprobe.switch(true, "the kernel shall bind VFs"));
    }
    steps.extend(others);
    steps.extend(autoprobe.switch(before, "as before"));
    steps
}

/// The switch `sriov_drivers_autoprobe`, as it will be at this point of the plan.
struct Autoprobe<'a> {
    wanted: &'a WantedPf,
    on: bool,
}

impl Autoprobe<'_> {
    fn switch(&mut self, on: bool, why: &str) -> Option<PlannedStep> {
        let changes = core::mem::replace(&mut self.on, on) != on;
        let step = Step::SetAutoprobe { pf: self.wanted.address, on };
        changes.then(|| planned(step, Disruption::None, why))
    }
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

fn is_bound_by_kernel(planned: &PlannedStep) -> bool {
    matches!(planned.step, Step::BindVf { driver: VfDriver::Kernel, .. })
}

/// Some cards (igb) serve their VFs only while they are up.
fn set_up(wanted: &WantedPf, link: &LinkFacts) -> Option<PlannedStep> {
    let step = Step::SetLinkUp { pf: wanted.address };
    (!link.admin_up).then(|| planned(step, Disruption::Pf, "it is down"))
}

fn raise_mtu(wanted: &WantedPf, link: &LinkFacts) -> Option<PlannedStep> {
    let mtu = wanted.highest_mtu().filter(|mtu| *mtu > link.mtu)?;
    let why = format!("it has {}", link.mtu);
    Some(planned(Step::SetPfMtu { pf: wanted.address, mtu }, Disruption::Pf, why))
}

fn record(wanted: &WantedPf, found: &PfFacts, link: &LinkFacts, old: Option<&Record>) -> Record {
    let first_seen = old.map_or_else(
        || FirstSeen {
            mtu: Some(link.mtu),
            drivers_autoprobe: found.drivers_autoprobe,
            eswitch: found.eswitch,
        },
        |record| record.first_seen.clone(),
    );
    let raised = wanted.highest_mtu().filter(|mtu| !wanted.external && *mtu > link.mtu);
    Record {
        pf: wanted.address,
        interface: wanted.interface.clone(),
        first_seen,
        raised_mtu: raised.or(old.and_then(|record| record.raised_mtu)),
        making: false,
    }
}

fn write_record(old: Option<&Record>, new: &Record) -> Option<PlannedStep> {
    let why = match old {
        Some(old) if old == new => return None,
        None => "a policy selects it",
        Some(_) if new.making => "its VFs are about to be made",
        Some(old) if old.making => "its VFs are made",
        Some(_) => "something else is wanted of it",
    };
    Some(planned(Step::WriteRecord { record: new.clone() }, Disruption::None, why))
}
