//! Planner of a node: node state spec and host facts => steps and problems.

mod address;
mod bridge;
mod check;
mod creation;
mod desired;
mod lone;
mod modules;
mod order;
mod pf;
mod problem;
mod protection;
mod record;
mod reset;
mod system;
mod udev;
mod vf;

pub use bridge::BridgeFault;
pub(crate) use bridge::recorded_bridges;
use bridge::{BridgeContext, BridgePf, BridgePhase, BridgeSteps, DesiredBridge, GoStore};
pub(crate) use desired::DesiredPf;
use pf::{PfSteps, PlannedBridge};
pub(crate) use problem::ProtectedPart;
pub use problem::{Cause, Problem};
pub use system::SystemFault;
pub(crate) use system::reboot_for;

use vfleet_api::node_state::Interface;
use vfleet_api::{PciAddress, SriovNetworkNodeStateSpec};

use crate::facts::{EswitchMode, HostFacts, PfFacts};
use crate::guids::GuidSource;
use crate::prelude::*;
use crate::step::{Disruption, Plan, PlannedStep, Step};

/// Returns the steps that bring the machine into the desired state `spec`, and the problems that prevent parts of it.
///
/// Guarantees: after executing the steps, planning again returns no steps. If execution stops after any step, planning
/// again leads to the same state. No step changes a PF that is neither in `spec` nor has a record.
///
/// A spec without `interfaces` is not planned yet (the node state was just created): nothing is changed, and PFs with a
/// record are not reset. An empty list resets them.
pub fn plan_node(spec: &SriovNetworkNodeStateSpec, facts: &HostFacts) -> Plan {
    plan_node_with(spec, facts, &NodeOptions::default())
}

/// Options of the planner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub struct NodeOptions {
    /// Reset the firmware of a card after its settings changed, before the machine reboots.
    pub firmware_reset: bool,
    /// Change firmware settings of Mellanox cards.
    pub mellanox: bool,
    /// Create and configure software bridges. Bridges that vfleet created are removed otherwise.
    pub manage_bridges: bool,
    /// Enable hardware offload of Open vSwitch while a PF is in switchdev mode. Off on OpenShift, where pools enable
    /// it.
    pub ovs_offload: bool,
}

impl Default for NodeOptions {
    fn default() -> Self {
        Self { firmware_reset: false, mellanox: true, manage_bridges: false, ovs_offload: false }
    }
}

/// Returns whether the plan for `spec` depends on the content of the Open vSwitch database.
pub fn needs_ovs(spec: &SriovNetworkNodeStateSpec, options: &NodeOptions) -> bool {
    let is_offloaded = |interface: &Interface| {
        let is_external = interface.externally_managed == Some(true);
        !is_external && interface.e_switch_mode.as_deref() == Some(EswitchMode::Switchdev.as_str())
    };
    options.manage_bridges || options.ovs_offload && spec.interfaces.iter().flatten().any(is_offloaded)
}

/// Returns the plan of [`plan_node`] with these options.
pub fn plan_node_with(spec: &SriovNetworkNodeStateSpec, facts: &HostFacts, options: &NodeOptions) -> Plan {
    plan_with_kept_bridges(spec, facts, *options, &BTreeSet::new())
}

/// Returns the plan of [`plan_node_with`], in which bridges of the PFs in `kept` are not removed.
pub(crate) fn plan_with_kept_bridges(
    spec: &SriovNetworkNodeStateSpec,
    facts: &HostFacts,
    options: NodeOptions,
    kept: &BTreeSet<PciAddress>,
) -> Plan {
    let mut plan = Plan::default();
    let Some(interfaces) = &spec.interfaces else { return plan };
    let (desired, invalid) = read_desired(interfaces);
    plan.problems.extend(invalid);
    let desired_bridges = desired_bridges(spec, options);
    let go_store = GoStore::read(facts);
    let bridges = BridgeContext::new(&desired_bridges, &go_store, BridgePhase::All).with_kept(kept);
    let rdma_mode = spec.system.as_ref().and_then(|system| system.rdma_mode);
    let system = system::plan_system(&desired, rdma_mode, facts, options);
    plan.problems.extend(system.problems);
    plan.steps.extend(system.before);
    let pfs = if system.reboots {
        let to_problem =
            |desired: &DesiredPf| Some(desired.problem(system.pf_causes.get(&desired.address)?.clone()));
        plan.problems.extend(desired.iter().filter_map(to_problem));
        Vec::new()
    } else {
        let guids = check::guid_source(&desired, facts);
        plan.problems.extend(check::guid_problems(&desired, facts, &guids));
        plan_pfs(&desired, &system.pf_causes, facts, &guids, &bridges)
    };
    plan.steps.extend(load_modules(&pfs, facts));
    plan.steps.extend(enable_offload(&desired, facts, options));
    plan.steps.extend(system.pfs);
    let mut planned_bridges = BTreeMap::new();
    for (desired, pf) in pfs {
        planned_bridges.extend(pf.planned_bridge.map(|bridge| (desired.address, bridge)));
        plan.steps.extend(pf.create);
        plan.steps.extend(pf.bridge);
        plan.steps.extend(pf.set_up);
        plan.problems.extend(pf.problems);
    }
    if !system.reboots {
        planned_bridges.extend(reset_pfs(&mut plan, interfaces, facts, &bridges));
        plan.steps.extend(bridges.plan_store(&planned_bridges, interfaces, facts));
    }
    udev::plan_scripts(&mut plan.steps, facts);
    plan.steps.extend(system.after);
    plan
}

/// Returns the steps that are possible before the network starts: PFs are configured and their VFs created, but not
/// bound. Their records say that VF creation is unfinished, and [`plan_node`] continues it.
///
/// Linux bridges are created; Open vSwitch does not run yet ([`plan_ovs_at_boot`]).
pub fn plan_before_network(
    spec: &SriovNetworkNodeStateSpec,
    facts: &HostFacts,
    options: &NodeOptions,
) -> Plan {
    let Some(interfaces) = &spec.interfaces else { return Plan::default() };
    let (mut desired, problems) = read_desired(interfaces);
    let guids = check::guid_source(&desired, facts);
    desired.retain(|desired| !desired.external);
    let desired_bridges = desired_bridges(spec, *options);
    let go_store = GoStore::read(facts);
    let bridges = BridgeContext::new(&desired_bridges, &go_store, BridgePhase::LinuxOnly);
    let pfs = plan_pfs(&desired, &BTreeMap::new(), facts, &guids, &bridges);
    let mut plan = Plan { steps: load_modules(&pfs, facts), problems };
    plan.problems.extend(check::guid_problems(&desired, facts, &guids));
    for (_, pf) in pfs {
        plan.steps.extend(pf.create);
        plan.steps.extend(pf.bridge);
        plan.problems.extend(pf.problems);
    }
    udev::plan_scripts(&mut plan.steps, facts);
    plan
}

/// Returns the steps for Open vSwitch bridges at boot, after [`plan_before_network`] and the start of Open vSwitch.
/// Bridges are created for PFs that were configured before, and not removed unless they are recreated: nothing shows
/// yet whether the node uses them.
pub fn plan_ovs_at_boot(spec: &SriovNetworkNodeStateSpec, facts: &HostFacts, options: &NodeOptions) -> Plan {
    let mut plan = Plan::default();
    let (mut desired, _) = read_desired(spec.interfaces.as_deref().unwrap_or_default());
    desired.retain(|desired| !desired.external);
    let desired_bridges = desired_bridges(spec, *options);
    let go_store = GoStore::read(facts);
    let bridges = BridgeContext::new(&desired_bridges, &go_store, BridgePhase::All);
    plan.steps.extend(enable_offload(&desired, facts, *options));
    for desired in desired.iter().filter(|desired| bridges.wants_ovs(desired.address)) {
        let Some(observed) = facts.pf(desired.address) else { continue };
        let record = facts.record(desired.address);
        let is_configured = record.is_some() && creation::has_desired_mode(desired, observed, record);
        let pf = pf::bridge_pf(desired, observed, facts);
        let steps = bridges.plan(&BridgePf { can_create: is_configured && pf.can_create, ..pf });
        if !is_configured && !steps.remove.is_empty() {
            continue;
        }
        let notes = record.map(|record| record::note_bridge(record, &steps, observed.link.as_ref()));
        let [removing, begun, _] = notes.unwrap_or_default();
        plan.steps.extend(removing);
        plan.steps.extend(steps.remove);
        plan.steps.extend(begun);
        plan.steps.extend(steps.set_up);
        plan.problems.extend(steps.causes.into_iter().map(|cause| desired.problem(cause)));
    }
    plan
}

/// Returns the PFs whose desired bridge is verified: the PF is in the desired eswitch mode, the bridge exists with the PF
/// as its uplink, nothing is left to be done for it, and no other bridge of the PF has to be removed.
pub fn verified_bridges(spec: &SriovNetworkNodeStateSpec, facts: &HostFacts) -> BTreeSet<PciAddress> {
    select_bridges(spec, facts, |desired, observed, bridges| {
        bridges.has_desired(desired.address)
            && creation::has_desired_mode(desired, observed, facts.record(desired.address))
            && bridges.plan(&pf::bridge_pf(desired, observed, facts)).is_verified()
    })
}

/// Returns the PFs of the spec, other than external and missing ones, whose bridges satisfy `is_selected` while bridges
/// are managed.
fn select_bridges(
    spec: &SriovNetworkNodeStateSpec,
    facts: &HostFacts,
    is_selected: impl Fn(&DesiredPf, &PfFacts, &BridgeContext<'_>) -> bool,
) -> BTreeSet<PciAddress> {
    let (desired, _) = read_desired(spec.interfaces.as_deref().unwrap_or_default());
    let desired_bridges = bridge::read_desired_bridges(spec);
    let go_store = GoStore::read(facts);
    let bridges = BridgeContext::new(&desired_bridges, &go_store, BridgePhase::All);
    let is_selected = |desired: &&DesiredPf| {
        facts.pf(desired.address).is_some_and(|observed| is_selected(desired, observed, &bridges))
    };
    let own = desired.iter().filter(|desired| !desired.external);
    own.filter(is_selected).map(|desired| desired.address).collect()
}

/// Returns the desired bridges of a spec: none if bridges are not managed.
fn desired_bridges(
    spec: &SriovNetworkNodeStateSpec,
    options: NodeOptions,
) -> BTreeMap<PciAddress, Result<DesiredBridge, BridgeFault>> {
    if options.manage_bridges { bridge::read_desired_bridges(spec) } else { BTreeMap::new() }
}

/// Returns the step that enables hardware offload of Open vSwitch, if it runs and a PF is in switchdev mode.
fn enable_offload(desired: &[DesiredPf], facts: &HostFacts, options: NodeOptions) -> Option<PlannedStep> {
    let is_switchdev = |desired: &DesiredPf| !desired.external && desired.is_switchdev();
    let is_needed = options.ovs_offload && desired.iter().any(is_switchdev);
    let is_off = facts.bridges.ovs.database().is_some_and(|ovs| !ovs.has_offload);
    (is_needed && is_off)
        .then(|| planned(Step::EnableOvsOffload, Disruption::None, "a PF is in switchdev mode"))
}

/// Returns deviations from `spec` that need no action and are no failures.
pub fn node_warnings(spec: &SriovNetworkNodeStateSpec, facts: &HostFacts) -> Vec<Problem> {
    let (desired, _) = read_desired(spec.interfaces.as_deref().unwrap_or_default());
    let warning = |desired: &DesiredPf| {
        let names = udev::wrong_names(desired, facts.pf(desired.address)?, facts.record(desired.address)?)?;
        Some(desired.problem(Cause::RepresentorsNotRenamed { names }))
    };
    desired.iter().filter(|desired| !desired.external).filter_map(warning).collect()
}

/// Returns the parts of `spec` that are refused because the node uses them, with their PFs.
pub(crate) fn refused_parts(
    spec: &SriovNetworkNodeStateSpec,
    facts: &HostFacts,
) -> Vec<(PciAddress, ProtectedPart)> {
    let interfaces = spec.interfaces.as_deref().unwrap_or_default();
    let (desired, _) = read_desired(interfaces);
    let desired = desired.iter().map(|desired| (desired.address, pf::refused_causes(desired, facts)));
    let mut reset = Plan::default();
    let (no_bridges, go_store) = (BTreeMap::new(), GoStore::default());
    let bridges = BridgeContext::new(&no_bridges, &go_store, BridgePhase::LinuxOnly);
    reset_pfs(&mut reset, interfaces, facts, &bridges);
    let reset = reset.problems.into_iter().filter_map(|problem| Some((problem.pf?, vec![problem.cause])));
    let all = desired.chain(reset).flat_map(|(pf, causes)| causes.into_iter().map(move |cause| (pf, cause)));
    all.filter_map(|(pf, cause)| Some((pf, cause.protected_part()?))).collect()
}

/// Returns the PFs of the spec whose bridge is not changed because of what only a running machine shows: the node uses
/// the PF or the bridge, or it belongs to a bond or a bridge of others.
pub(crate) fn refused_bridges(spec: &SriovNetworkNodeStateSpec, facts: &HostFacts) -> BTreeSet<PciAddress> {
    select_bridges(spec, facts, |desired, observed, bridges| {
        bridges.is_refused(&pf::bridge_pf(desired, observed, facts))
    })
}

/// Returns the recorded PFs that have a bridge of ours, each with whether its removal is refused in a reset, because the
/// node uses the bridge.
pub(crate) fn existing_bridges(facts: &HostFacts) -> BTreeMap<PciAddress, bool> {
    let go_store = GoStore::read(facts);
    let no_bridges = BTreeMap::new();
    let bridges = BridgeContext::new(&no_bridges, &go_store, BridgePhase::All);
    let records = facts.records.iter().filter(|record| !record.is_external());
    let pfs = records.map(|record| reset::bridge_pf(record, facts));
    pfs.filter(|pf| bridges.has_any(pf)).map(|pf| (pf.address, bridges.is_refused(&pf))).collect()
}

/// Returns the PFs of the spec, and the problems of those with invalid values.
fn read_desired(interfaces: &[Interface]) -> (Vec<DesiredPf>, Vec<Problem>) {
    let mut pfs = Vec::new();
    let mut problems = Vec::new();
    for interface in interfaces {
        match DesiredPf::read(interface) {
            Ok(desired) => pfs.push(desired),
            Err(problem) => problems.push(problem),
        }
    }
    (pfs, problems)
}

/// Returns the steps of each PF. `system_causes` are problems of the whole machine that prevent the state of a PF.
fn plan_pfs<'a>(
    desired: &'a [DesiredPf],
    system_causes: &BTreeMap<PciAddress, Cause>,
    facts: &HostFacts,
    guids: &GuidSource,
    bridges: &BridgeContext<'_>,
) -> Vec<(&'a DesiredPf, PfSteps)> {
    let plan = |desired: &DesiredPf| {
        pf::plan_pf(desired, system_causes.get(&desired.address), facts, guids, bridges)
    };
    desired.iter().map(|desired| (desired, plan(desired))).collect()
}

fn load_modules(pfs: &[(&DesiredPf, PfSteps)], facts: &HostFacts) -> Vec<PlannedStep> {
    let needed = pfs.iter().flat_map(|(_, plan)| plan.modules.iter().copied()).collect();
    let any_vfs = pfs.iter().any(|(desired, plan)| desired.num_vfs > 0 && plan.problems.is_empty());
    modules::load_modules(&needed, any_vfs, facts)
}

/// Resets PFs that have a record and are no longer desired, and returns the bridges of those that can be reset. An
/// unreadable record is a problem, since its PF may need a reset.
fn reset_pfs(
    plan: &mut Plan,
    interfaces: &[Interface],
    facts: &HostFacts,
    bridges: &BridgeContext<'_>,
) -> BTreeMap<PciAddress, PlannedBridge> {
    let mut planned_bridges = BTreeMap::new();
    let is_desired = |pf| interfaces.iter().any(|interface| interface.pci_address.value() == Ok(pf));
    let unreadable =
        facts.unreadable_records.iter().filter(|pf| !is_desired(pf)).filter_map(|pf| facts.unreadable(*pf));
    plan.problems.extend(unreadable.map(Problem::unreadable_card));
    for record in facts.records.iter().filter(|record| !is_desired(&record.pf)) {
        let bridge = if record.is_external() {
            BridgeSteps::default()
        } else {
            bridges.plan(&reset::bridge_pf(record, facts))
        };
        let planned = PlannedBridge { is_ours: true, is_reached: bridge.is_reached };
        match reset::reset_pf(record, bridge, facts) {
            Ok((steps, problems)) => {
                planned_bridges.extend((!record.is_external()).then_some((record.pf, planned)));
                plan.steps.extend(steps);
                plan.problems.extend(problems);
            }
            Err(problem) => plan.problems.push(problem),
        }
    }
    planned_bridges
}

pub(crate) fn planned(step: Step, disruption: Disruption, why: impl Into<String>) -> PlannedStep {
    PlannedStep { step, disruption, why: why.into() }
}
