//! Planner of one PF: its record, link, MTU, eswitch mode and number of VFs, then its VFs.

use super::bridge::{BridgeContext, BridgePf, BridgeSteps};
use super::check::{self, check_external, check_managed, check_use};
use super::creation::{VfCreation, removal_disruption};
use super::desired::DesiredPf;
use super::order::ModeOrders;
use super::problem::{Cause, Problem};
use super::protection::HostProtection;
use super::vf::{VfPhase, VfPlanner, VfSteps, is_free};
use super::{lone, modules, planned, record, udev};
use crate::facts::{EswitchMode, HostFacts, LinkFacts, ModeOrder, PfFacts, Record};
use crate::guids::GuidSource;
use crate::prelude::*;
use crate::step::{Disruption, PlannedStep, Step, VfDriver};

/// Steps and problems of one PF.
#[derive(Debug, Default)]
pub(super) struct PfSteps {
    /// Kernel modules that the VFs need.
    pub(super) modules: Vec<&'static str>,
    /// Steps for the PF, up to the creation of its VFs. They are possible before the network starts.
    pub(super) create: Vec<PlannedStep>,
    /// Steps that create and configure the bridge of the PF.
    pub(super) bridge: Vec<PlannedStep>,
    /// Bridge after all steps, if it was planned.
    pub(super) planned_bridge: Option<PlannedBridge>,
    /// Steps that bind and configure the VFs.
    pub(super) set_up: Vec<PlannedStep>,
    /// Problems that prevent the desired state.
    pub(super) problems: Vec<Problem>,
}

impl PfSteps {
    /// Adds the steps that remove or repair the existing bridge of a PF that vfleet configured before.
    fn with_existing_bridge(
        mut self,
        desired: &DesiredPf,
        observed: &PfFacts,
        facts: &HostFacts,
        bridges: &BridgeContext<'_>,
    ) -> Self {
        let written = self.create.iter().rev().find_map(|planned| match &planned.step {
            Step::WriteRecord { record } => Some(record.clone()),
            _ => None,
        });
        let record = written.or_else(|| facts.record(desired.address).cloned());
        let Some(record) = record.filter(|record| !record.is_external()) else { return self };
        let bridge = bridges.plan(&BridgePf { can_create: false, ..bridge_pf(desired, observed, facts) });
        self.planned_bridge = Some(PlannedBridge::of(&bridge));
        let [removing, begun, finished] = record::note_bridge(&record, &bridge, observed.link.as_ref());
        self.create.extend(removing);
        self.create.extend(bridge.remove);
        self.create.extend(begun);
        self.set_up.extend(finished);
        self.problems.extend(bridge.causes.into_iter().map(|cause| desired.problem(cause)));
        self.bridge = bridge.set_up;
        self
    }
}

/// Bridge of a PF after all steps.
#[derive(Debug, Default)]
pub(super) struct PlannedBridge {
    /// The desired bridge is not somebody else's.
    pub(super) is_ours: bool,
    /// See [`BridgeSteps::is_reached`](super::bridge::BridgeSteps::is_reached).
    pub(super) is_reached: bool,
}

impl PlannedBridge {
    fn of(bridge: &BridgeSteps) -> Self {
        let is_ours = !bridge.causes.iter().any(Cause::is_foreign_bridge);
        Self { is_ours, is_reached: bridge.is_reached }
    }
}

/// Returns the steps for one desired PF. If a check fails, nothing is changed but a bridge that exists.
///
/// The record is written first, so that a later process knows what vfleet changed. While VFs are created the record
/// says so; it is written again when all of them are configured.
///
/// `system_cause` is a problem of the whole machine that prevents the state of this PF. It replaces causes that follow
/// from it.
pub(super) fn plan_pf(
    desired: &DesiredPf,
    system_cause: Option<&Cause>,
    facts: &HostFacts,
    guids: &GuidSource,
    bridges: &BridgeContext<'_>,
) -> PfSteps {
    let plan = find_card(desired, facts).and_then(|observed| match &observed.link {
        _ if observed.is_lone_vf => lone::plan_lone(desired, observed, facts),
        None => Err(vec![Cause::NoLink]),
        Some(link) if desired.external => plan_external(desired, observed, link, facts, guids),
        Some(link) => plan_managed(desired, observed, link, facts, guids, bridges),
    });
    let (mut plan, causes) = match plan {
        Ok(plan) => (plan, Vec::new()),
        Err(causes) => (keep_bridge(desired, facts, bridges), causes),
    };
    let own = causes.into_iter().filter(|cause| system_cause.is_none() || !cause.depends_on_firmware());
    plan.problems.extend(system_cause.cloned().into_iter().chain(own).map(|cause| desired.problem(cause)));
    plan
}

fn find_card<'a>(desired: &DesiredPf, facts: &'a HostFacts) -> Result<&'a PfFacts, Vec<Cause>> {
    if let Some(card) = facts.unreadable(desired.address) {
        return Err(vec![Cause::UnreadableCard { reason: card.reason, error: card.error.clone() }]);
    }
    facts.pf(desired.address).ok_or_else(|| vec![Cause::NoSuchPf])
}

/// Returns the parts of a desired PF that are refused because the node uses them, even if other causes prevent them
/// too.
pub(super) fn refused_causes(desired: &DesiredPf, facts: &HostFacts) -> Vec<Cause> {
    let Some(observed) = facts.pf(desired.address) else { return Vec::new() };
    if observed.is_lone_vf {
        return lone::refused_cause(desired, observed, facts).into_iter().collect();
    }
    let previous = facts.record(desired.address);
    let order = ModeOrders::for_pf(desired, observed, previous, facts).next().unwrap_or(ModeOrder::VfsFirst);
    let creation =
        if desired.external { None } else { VfCreation::needed(desired, observed, previous, order) };
    let mut causes =
        if desired.external { Vec::new() } else { check_use(desired, observed, creation, facts) };
    if creation.is_none() {
        let planner = VfPlanner::new(desired, observed, previous, None, VfPhase::Settled, facts);
        causes.extend((0..planner.count()).filter_map(|index| planner.plan(index).err()));
    }
    causes
}

/// Returns the steps of a PF whose VFs vfleet creates.
fn plan_managed(
    desired: &DesiredPf,
    observed: &PfFacts,
    link: &LinkFacts,
    facts: &HostFacts,
    guids: &GuidSource,
    bridges: &BridgeContext<'_>,
) -> Result<PfSteps, Vec<Cause>> {
    let previous = facts.record(desired.address);
    let orders = ModeOrders::for_pf(desired, observed, previous, facts);
    let order = orders.next();
    let creation = VfCreation::needed(desired, observed, previous, order.unwrap_or(ModeOrder::VfsFirst));
    let bridge = bridges.plan(&bridge_pf(desired, observed, facts));
    let mut causes = check_managed(desired, observed, link, creation, facts);
    let is_accepted = |mtu: u32| link.max_mtu.is_none_or(|max| mtu <= max);
    let raised_mtu = desired.highest_mtu().filter(|mtu| *mtu > link.mtu && is_accepted(*mtu));
    causes.extend(raised_mtu.and_then(|mtu| Some(bridge.check_mtu(mtu, link, facts).err()?.into())));
    fail_if_any(causes)?;
    if order.is_none() && creation.is_some_and(VfCreation::enters_switchdev) {
        let steps = abandon_switchdev(desired, observed, previous, orders);
        return Ok(steps.with_existing_bridge(desired, observed, facts, bridges));
    }
    let guids = check::check_guids(desired, observed, link, guids).map_err(|cause| vec![cause])?;

    let unfinished = previous.is_some_and(|record| record.creating_vfs);
    let finished = record::with_bridge_mtu(
        Record { refused_orders: orders.refused, ..record::build_record(desired, observed, previous) },
        bridge.requested_mtu(),
        link,
    );
    let finished = match &creation {
        Some(_) => record::with_vf_macs(finished, observed, unfinished),
        None => finished,
    };
    let phase = match (&creation, unfinished) {
        (Some(_), _) => VfPhase::New,
        (None, true) => VfPhase::Unfinished,
        (None, false) => VfPhase::Settled,
    };
    let planner =
        VfPlanner::new(desired, observed, previous, guids, phase, facts).with_macs(&finished.vf_macs);
    let (vfs, mut problems) = plan_vfs(&planner);
    let planned_bridge = Some(PlannedBridge::of(&bridge));
    problems.extend(bridge.causes.into_iter().map(|cause| desired.problem(cause)));
    let rules = udev::plan_rules(desired, observed, facts);
    let are_kept = creation.is_none();
    let finished = Record {
        representors_replayed: rules.is_replayed && are_kept,
        bridge: bridge.finished.clone(),
        ..finished
    };
    let begun = Record {
        bridge: bridge.begun,
        creating_vfs: creation.is_some() || unfinished,
        mtu_changes: planner.mtu_changes(),
        representors_replayed: rules.was_replayed && are_kept,
        ..finished.clone()
    };
    let before = finished.original.drivers_autoprobe;
    let mut autoprobe = Autoprobe { desired, on: observed.drivers_autoprobe };

    let mut create = Vec::new();
    let removing = Record { bridge: bridge.removing, ..begun.clone() };
    create.extend(record::write_record(previous, &removing));
    create.extend(bridge.remove);
    create.extend(record::write_record(Some(&removing), &begun));
    create.extend(rules.steps);
    create.extend(set_link_up(desired, link));
    create.extend(raise_mtu(desired, observed, link));
    create.extend(enable_tc_offload(desired, observed));
    create.extend(create_vfs(desired, observed, creation, facts, before, &mut autoprobe));
    create.extend(vfs.addresses);
    create.extend(creation.and_then(|creation| creation.step_after(desired, &facts.kernel)));

    let mut set_up = Vec::new();
    if vfs.set_up.iter().any(is_bound_by_kernel) {
        set_up.extend(autoprobe.set(true, "let the kernel bind VFs"));
    }
    set_up.extend(vfs.set_up);
    set_up.extend(autoprobe.set(before, "restore the original value"));
    set_up.extend(record::write_record(Some(&begun), &finished));
    Ok(PfSteps {
        modules: modules::needed_modules(desired, observed, facts),
        create,
        bridge: bridge.set_up,
        planned_bridge,
        set_up,
        problems,
    })
}

/// Returns the steps of a PF that cannot be configured: only a bridge that exists is removed or repaired.
fn keep_bridge(desired: &DesiredPf, facts: &HostFacts, bridges: &BridgeContext<'_>) -> PfSteps {
    match find_card(desired, facts) {
        Ok(observed) if !desired.external && !observed.is_lone_vf => {
            PfSteps::default().with_existing_bridge(desired, observed, facts, bridges)
        }
        _ => PfSteps::default(),
    }
}

/// Returns a desired PF for the planner of bridges.
pub(super) fn bridge_pf<'a>(
    desired: &DesiredPf,
    observed: &'a PfFacts,
    facts: &'a HostFacts,
) -> BridgePf<'a> {
    BridgePf {
        address: desired.address,
        observed: Some(observed),
        record: facts.record(desired.address),
        mtu: desired.highest_mtu(),
        can_create: true,
        protection: HostProtection::for_desired(desired, facts),
        facts,
    }
}

/// Returns the steps after the kernel refused switchdev mode in both orders: VFs that were created on the way are
/// removed.
fn abandon_switchdev(
    desired: &DesiredPf,
    observed: &PfFacts,
    previous: Option<&Record>,
    orders: ModeOrders,
) -> PfSteps {
    let mut create = Vec::new();
    if let Some(previous) = previous.filter(|record| record.creating_vfs) {
        let (pf, on) = (desired.address, previous.original.drivers_autoprobe);
        let why = "the kernel refused switchdev mode";
        if !observed.vfs.is_empty() {
            create.push(planned(Step::SetNumVfs { pf, count: 0 }, removal_disruption(observed), why));
        }
        if observed.drivers_autoprobe != on {
            create.push(planned(
                Step::SetAutoprobe { pf, on },
                Disruption::None,
                "restore the original value",
            ));
        }
        let record = Record { creating_vfs: false, ..previous.clone() };
        create.push(planned(Step::WriteRecord { record }, Disruption::None, why));
    }
    let refusals = orders.refused.into_iter().map(|refused| (refused.trial.order, refused.error)).collect();
    let problems = vec![desired.problem(Cause::EswitchRefused { refusals })];
    PfSteps { create, problems, ..PfSteps::default() }
}

/// Returns the steps of an externally managed PF: only its VFs in groups are changed.
fn plan_external(
    desired: &DesiredPf,
    observed: &PfFacts,
    link: &LinkFacts,
    facts: &HostFacts,
    guids: &GuidSource,
) -> Result<PfSteps, Vec<Cause>> {
    fail_if_any(check_external(desired, observed, facts))?;
    let guids = check::check_guids(desired, observed, link, guids).map_err(|cause| vec![cause])?;
    let previous = facts.record(desired.address);
    let planner = VfPlanner::new(desired, observed, previous, guids, VfPhase::Settled, facts);
    let (vfs, mut problems) = plan_vfs(&planner);
    let finished = record::build_record(desired, observed, previous);
    let begun = Record { mtu_changes: planner.mtu_changes(), ..finished.clone() };
    let restored = restore_autoprobe(desired, observed, previous);
    let autoprobe = observed.drivers_autoprobe || restored.is_some();
    let (vfs, has_unbindable) = vfs.without_kernel_binds_unless(autoprobe);
    if has_unbindable {
        problems.push(desired.problem(Cause::AutoprobeOff));
    }

    let mut set_up = Vec::new();
    set_up.extend(restored);
    set_up.extend(record::write_record(previous, &begun));
    set_up.extend(udev::plan_rules(desired, observed, facts).steps);
    set_up.extend(vfs.addresses);
    set_up.extend(vfs.set_up);
    set_up.extend(record::write_record(Some(&begun), &finished));
    Ok(PfSteps {
        modules: modules::needed_modules(desired, observed, facts),
        set_up,
        problems,
        ..PfSteps::default()
    })
}

fn fail_if_any(causes: Vec<Cause>) -> Result<(), Vec<Cause>> {
    if causes.is_empty() { Ok(()) } else { Err(causes) }
}

/// Returns the steps of all VFs, and problems of those that the node uses.
fn plan_vfs(planner: &VfPlanner<'_>) -> (VfSteps, Vec<Problem>) {
    let mut all = VfSteps::default();
    let mut problems = Vec::new();
    for index in 0..planner.count() {
        match planner.plan(index) {
            Ok(steps) => all.append(steps),
            Err(cause) => problems.push(planner.desired.problem(cause)),
        }
    }
    (all, problems)
}

/// Returns the steps that remove existing VFs and create the desired ones.
///
/// Autoprobe is off while VFs are created, so that each VF is bound once, after its address is set. It stays on if some
/// VFs are in no group, since the kernel binds those, unless switchdev mode requires VFs without drivers.
fn create_vfs(
    desired: &DesiredPf,
    observed: &PfFacts,
    creation: Option<VfCreation>,
    facts: &HostFacts,
    before: bool,
    autoprobe: &mut Autoprobe<'_>,
) -> Vec<PlannedStep> {
    let Some(creation) = creation else { return Vec::new() };
    let mut steps = creation.steps_before(desired, observed, &facts.kernel);
    let (pf, count) = (desired.address, desired.num_vfs);
    if count > 0 {
        let all_in_groups = (0..count).all(|index| desired.vf(index).is_some());
        let on = before && !all_in_groups && !creation.needs_unbound_vfs();
        steps.extend(autoprobe.set(on, "VFs are bound one by one"));
        let why = format!("requested by {}", desired.policies());
        steps.push(planned(Step::SetNumVfs { pf, count }, Disruption::Pf, why));
    }
    steps
}

/// State of `sriov_drivers_autoprobe` at this point of the plan.
struct Autoprobe<'a> {
    desired: &'a DesiredPf,
    on: bool,
}

impl Autoprobe<'_> {
    fn set(&mut self, on: bool, why: &str) -> Option<PlannedStep> {
        let changes = core::mem::replace(&mut self.on, on) != on;
        let step = Step::SetAutoprobe { pf: self.desired.address, on };
        changes.then(|| planned(step, Disruption::None, why))
    }
}

/// Returns the step that restores autoprobe of a PF that became externally managed during VF creation.
fn restore_autoprobe(
    desired: &DesiredPf,
    observed: &PfFacts,
    previous: Option<&Record>,
) -> Option<PlannedStep> {
    let managed = previous.filter(|record| record.creating_vfs && !record.is_external())?;
    let on = managed.original.drivers_autoprobe;
    let step = Step::SetAutoprobe { pf: desired.address, on };
    (on && !observed.drivers_autoprobe).then(|| planned(step, Disruption::None, "restore the original value"))
}

pub(super) fn is_bound_by_kernel(planned: &PlannedStep) -> bool {
    matches!(planned.step, Step::BindVf { driver: VfDriver::Kernel, .. })
}

/// Returns the step that sets the PF up: some cards (igb) serve their VFs only while they are up.
fn set_link_up(desired: &DesiredPf, link: &LinkFacts) -> Option<PlannedStep> {
    let step = Step::SetLinkUp { pf: desired.address };
    (!link.admin_up).then(|| planned(step, Disruption::Pf, "the link is down"))
}

/// Returns the step that raises the MTU. Several drivers reset a PF and its VFs to change it.
fn raise_mtu(desired: &DesiredPf, observed: &PfFacts, link: &LinkFacts) -> Option<PlannedStep> {
    let mtu = desired.highest_mtu().filter(|mtu| *mtu > link.mtu)?;
    let why = format!("the MTU is {}", link.mtu);
    let disruption = if observed.vfs.iter().all(is_free) { Disruption::Pf } else { Disruption::Drain };
    Some(planned(Step::SetPfMtu { pf: desired.address, mtu }, disruption, why))
}

fn enable_tc_offload(desired: &DesiredPf, observed: &PfFacts) -> Option<PlannedStep> {
    let is_off = desired.eswitch == EswitchMode::Switchdev && observed.tc_offload == Some(false);
    let step = Step::SetTcOffload { pf: desired.address, on: true };
    is_off.then(|| planned(step, Disruption::Pf, "eSwitchMode switchdev is desired"))
}

/// Returns the last desired state of the PF, if its record can be read.
pub(super) fn last_desired(previous: Option<&Record>) -> Option<DesiredPf> {
    DesiredPf::read(&previous?.interface).ok()
}
