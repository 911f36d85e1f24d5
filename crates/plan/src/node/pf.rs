//! One PF: its record, link, MTU, mode and VF count; then its VFs.

use super::check::{self, check_external, check_own, check_use};
use super::making::{Making, removal};
use super::order::Orders;
use super::problem::{Cause, Problem};
use super::vf::{Phase, VfPlanner, VfSteps, is_free};
use super::wanted::WantedPf;
use super::{lone, modules, planned, record, udev};
use crate::facts::{EswitchMode, HostFacts, LinkFacts, ModeOrder, PfFacts, Record};
use crate::guids::GuidSource;
use crate::prelude::*;
use crate::step::{Disruption, PlannedStep, Step, VfDriver};

/// What is to be done with one PF, and what cannot be.
#[derive(Debug, Default)]
pub(super) struct PfPlan {
    /// Modules of the kernel that it needs.
    pub(super) modules: Vec<&'static str>,
    /// The PF itself, and its VFs until they are there: this needs no network.
    pub(super) make: Vec<PlannedStep>,
    /// Its VFs are bound and set up.
    pub(super) set_up: Vec<PlannedStep>,
    /// What cannot be.
    pub(super) problems: Vec<Problem>,
}

/// The steps for one wanted PF. With what is known beforehand not to work, nothing at all is done.
///
/// The record comes first, so that whatever happens next is known to be ours. While VFs are being made the
/// record says so, and is written again when all of them are set up.
///
/// `known` is what the machine as a whole cannot do for the PF. It stands for what comes of it.
pub(super) fn plan_pf(
    wanted: &WantedPf,
    known: Option<&Cause>,
    facts: &HostFacts,
    guids: &GuidSource,
) -> PfPlan {
    let plan = look(wanted, facts).and_then(|found| match &found.link {
        _ if found.is_lone_vf => lone::plan_lone(wanted, found, facts),
        None => Err(vec![Cause::NoLink]),
        Some(link) if wanted.external => plan_external(wanted, found, link, facts, guids),
        Some(link) => plan_own(wanted, found, link, facts, guids),
    });
    let (mut plan, causes) = match plan {
        Ok(plan) => (plan, Vec::new()),
        Err(causes) => (PfPlan::default(), causes),
    };
    let own = causes.into_iter().filter(|cause| known.is_none() || !cause.is_up_to_firmware());
    plan.problems.extend(known.cloned().into_iter().chain(own).map(|cause| wanted.problem(cause)));
    plan
}

fn look<'a>(wanted: &WantedPf, facts: &'a HostFacts) -> Result<&'a PfFacts, Vec<Cause>> {
    if let Some(unread) = facts.unread(wanted.address) {
        return Err(vec![Cause::Unread { reason: unread.reason, error: unread.error.clone() }]);
    }
    facts.pf(wanted.address).ok_or_else(|| vec![Cause::NoSuchPf])
}

/// Returns what is refused of a PF because of what the node itself uses, whatever else stands against it.
pub(super) fn refused_for_use(wanted: &WantedPf, facts: &HostFacts) -> Vec<Cause> {
    let Some(found) = facts.pf(wanted.address) else { return Vec::new() };
    if found.is_lone_vf {
        return lone::refused_for_use(wanted, found, facts).into_iter().collect();
    }
    let old = facts.record(wanted.address);
    let order = Orders::of(wanted, found, old, facts).next().unwrap_or(ModeOrder::VfsFirst);
    let making = if wanted.external { None } else { Making::needed(wanted, found, old, order) };
    let mut causes = if wanted.external { Vec::new() } else { check_use(wanted, found, making, facts) };
    if making.is_none() {
        let planner = VfPlanner::new(wanted, found, old, None, Phase::Settled, facts);
        causes.extend((0..planner.count()).filter_map(|index| planner.plan(index).err()));
    }
    causes
}

/// A PF of our own.
fn plan_own(
    wanted: &WantedPf,
    found: &PfFacts,
    link: &LinkFacts,
    facts: &HostFacts,
    guids: &GuidSource,
) -> Result<PfPlan, Vec<Cause>> {
    let old = facts.record(wanted.address);
    let orders = Orders::of(wanted, found, old, facts);
    let order = orders.next();
    let making = Making::needed(wanted, found, old, order.unwrap_or(ModeOrder::VfsFirst));
    refuse(check_own(wanted, found, link, making, facts))?;
    if order.is_none() && making.is_some_and(Making::goes_to_switchdev) {
        return Ok(give_up(wanted, found, old, orders));
    }
    let guids = check::guids(wanted, found, link, guids).map_err(|cause| vec![cause])?;

    let unfinished = old.is_some_and(|record| record.making);
    let finished = Record { refused_orders: orders.refused, ..record::record(wanted, found, old) };
    let finished = match &making {
        Some(_) => record::with_vf_macs(finished, found, unfinished),
        None => finished,
    };
    let phase = match (&making, unfinished) {
        (Some(_), _) => Phase::New,
        (None, true) => Phase::Unfinished,
        (None, false) => Phase::Settled,
    };
    let planner = VfPlanner::new(wanted, found, old, guids, phase, facts).with_macs(&finished.vf_macs);
    let (vfs, problems) = plan_vfs(&planner);
    let rules = udev::plan_rules(wanted, found, facts);
    let are_kept = making.is_none();
    let finished = Record { representors_replayed: rules.is_replayed && are_kept, ..finished };
    let begun = Record {
        making: making.is_some() || unfinished,
        mtu_changes: planner.mtu_changes(),
        representors_replayed: rules.was_replayed && are_kept,
        ..finished.clone()
    };
    let before = finished.first_seen.drivers_autoprobe;
    let mut autoprobe = Autoprobe { wanted, on: found.drivers_autoprobe };

    let mut make = Vec::new();
    make.extend(record::write(old, &begun));
    make.extend(rules.steps);
    make.extend(set_up(wanted, link));
    make.extend(raise_mtu(wanted, found, link));
    make.extend(offload(wanted, found));
    make.extend(make_vfs(wanted, found, making, facts, before, &mut autoprobe));
    make.extend(vfs.addresses);
    make.extend(making.and_then(|making| making.after_vfs(wanted, &facts.kernel)));

    let mut set_up = Vec::new();
    if vfs.set_up.iter().any(is_bound_by_kernel) {
        set_up.extend(autoprobe.switch(true, "the kernel shall bind VFs"));
    }
    set_up.extend(vfs.set_up);
    set_up.extend(autoprobe.switch(before, "as before"));
    set_up.extend(record::write(Some(&begun), &finished));
    Ok(PfPlan { modules: modules::needed(wanted, found, facts), make, set_up, problems })
}

/// The kernel refused switchdev mode in both orders. VFs that were made on the way go, and nothing more is tried.
fn give_up(wanted: &WantedPf, found: &PfFacts, old: Option<&Record>, orders: Orders) -> PfPlan {
    let mut make = Vec::new();
    if let Some(old) = old.filter(|record| record.making) {
        let (pf, on) = (wanted.address, old.first_seen.drivers_autoprobe);
        let why = "the kernel refuses switchdev mode";
        if !found.vfs.is_empty() {
            make.push(planned(Step::SetNumVfs { pf, count: 0 }, removal(found), why));
        }
        if found.drivers_autoprobe != on {
            make.push(planned(Step::SetAutoprobe { pf, on }, Disruption::None, "as before"));
        }
        let record = Record { making: false, ..old.clone() };
        make.push(planned(Step::WriteRecord { record }, Disruption::None, why));
    }
    let said = orders.refused.into_iter().map(|refused| (refused.trial.order, refused.error)).collect();
    let problems = vec![wanted.problem(Cause::EswitchRefused { said })];
    PfPlan { make, problems, ..PfPlan::default() }
}

/// A PF that somebody else manages: nothing but its VFs in groups is touched.
fn plan_external(
    wanted: &WantedPf,
    found: &PfFacts,
    link: &LinkFacts,
    facts: &HostFacts,
    guids: &GuidSource,
) -> Result<PfPlan, Vec<Cause>> {
    refuse(check_external(wanted, found, facts))?;
    let guids = check::guids(wanted, found, link, guids).map_err(|cause| vec![cause])?;
    let old = facts.record(wanted.address);
    let planner = VfPlanner::new(wanted, found, old, guids, Phase::Settled, facts);
    let (vfs, mut problems) = plan_vfs(&planner);
    let finished = record::record(wanted, found, old);
    let begun = Record { mtu_changes: planner.mtu_changes(), ..finished.clone() };
    let given_back = give_back_autoprobe(wanted, found, old);
    let autoprobe = found.drivers_autoprobe || given_back.is_some();
    let (vfs, stuck) = vfs.without_binds_by_kernel_unless(autoprobe);
    if stuck {
        problems.push(wanted.problem(Cause::AutoprobeOff));
    }

    let mut set_up = Vec::new();
    set_up.extend(given_back);
    set_up.extend(record::write(old, &begun));
    set_up.extend(udev::plan_rules(wanted, found, facts).steps);
    set_up.extend(vfs.addresses);
    set_up.extend(vfs.set_up);
    set_up.extend(record::write(Some(&begun), &finished));
    Ok(PfPlan { modules: modules::needed(wanted, found, facts), make: Vec::new(), set_up, problems })
}

fn refuse(causes: Vec<Cause>) -> Result<(), Vec<Cause>> {
    if causes.is_empty() { Ok(()) } else { Err(causes) }
}

/// The steps of all VFs, without those that the node itself uses.
fn plan_vfs(planner: &VfPlanner<'_>) -> (VfSteps, Vec<Problem>) {
    let mut all = VfSteps::default();
    let mut problems = Vec::new();
    for index in 0..planner.count() {
        match planner.plan(index) {
            Ok(steps) => all.append(steps),
            Err(cause) => problems.push(planner.wanted.problem(cause)),
        }
    }
    (all, problems)
}

/// Removes the VFs that are there and makes the wanted ones.
///
/// Kept from binding them by itself (autoprobe), the kernel leaves each VF to be bound once, with its address
/// set. Not where it shall bind some: VFs in no group are the kernel's business, but on a card whose switch takes VFs
/// along into switchdev mode only without a driver.
fn make_vfs(
    wanted: &WantedPf,
    found: &PfFacts,
    making: Option<Making>,
    facts: &HostFacts,
    before: bool,
    autoprobe: &mut Autoprobe<'_>,
) -> Vec<PlannedStep> {
    let Some(making) = making else { return Vec::new() };
    let mut steps = making.before_vfs(wanted, found, &facts.kernel);
    let (pf, count) = (wanted.address, wanted.num_vfs);
    if count > 0 {
        let all_ours = (0..count).all(|index| wanted.vf(index).is_some());
        let on = before && !all_ours && !making.needs_unbound_vfs();
        steps.extend(autoprobe.switch(on, "VFs are bound one by one"));
        let why = format!("wanted by {}", wanted.policies());
        steps.push(planned(Step::SetNumVfs { pf, count }, Disruption::Pf, why));
    }
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

/// A PF that was ours until now, and whose VFs were being made: what we left switched off is given back.
fn give_back_autoprobe(wanted: &WantedPf, found: &PfFacts, old: Option<&Record>) -> Option<PlannedStep> {
    let ours = old.filter(|record| record.making && !record.is_external())?;
    let on = ours.first_seen.drivers_autoprobe;
    let step = Step::SetAutoprobe { pf: wanted.address, on };
    (on && !found.drivers_autoprobe).then(|| planned(step, Disruption::None, "as before"))
}

pub(super) fn is_bound_by_kernel(planned: &PlannedStep) -> bool {
    matches!(planned.step, Step::BindVf { driver: VfDriver::Kernel, .. })
}

/// Some cards (igb) serve their VFs only while they are up.
fn set_up(wanted: &WantedPf, link: &LinkFacts) -> Option<PlannedStep> {
    let step = Step::SetLinkUp { pf: wanted.address };
    (!link.admin_up).then(|| planned(step, Disruption::Pf, "it is down"))
}

/// Several drivers restart a PF to give it another MTU, and its VFs with it.
fn raise_mtu(wanted: &WantedPf, found: &PfFacts, link: &LinkFacts) -> Option<PlannedStep> {
    let mtu = wanted.highest_mtu().filter(|mtu| *mtu > link.mtu)?;
    let why = format!("it has {}", link.mtu);
    let disruption = if found.vfs.iter().all(is_free) { Disruption::Pf } else { Disruption::Drain };
    Some(planned(Step::SetPfMtu { pf: wanted.address, mtu }, disruption, why))
}

fn offload(wanted: &WantedPf, found: &PfFacts) -> Option<PlannedStep> {
    let is_off = wanted.eswitch == EswitchMode::Switchdev && found.tc_offload == Some(false);
    let step = Step::SetTcOffload { pf: wanted.address, on: true };
    is_off.then(|| planned(step, Disruption::Pf, "its switch shall be in switchdev mode"))
}

/// What the PF was last wanted to be, as far as that can be read.
pub(super) fn last_wanted(old: Option<&Record>) -> Option<WantedPf> {
    WantedPf::read(&old?.interface).ok()
}
