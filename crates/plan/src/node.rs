//! Planner of a node: node state spec and host facts => steps and problems.

mod address;
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

pub(crate) use desired::DesiredPf;
use pf::PfSteps;
pub(crate) use problem::ProtectedPart;
pub use problem::{Cause, Problem};
pub use system::SystemFault;
pub(crate) use system::reboot_for;

use vfleet_api::node_state::Interface;
use vfleet_api::{PciAddress, SriovNetworkNodeStateSpec};

use crate::facts::HostFacts;
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
pub struct NodeOptions {
    /// Reset the firmware of a card after its settings changed, before the machine reboots.
    pub firmware_reset: bool,
    /// Change firmware settings of Mellanox cards.
    pub mellanox: bool,
}

impl Default for NodeOptions {
    fn default() -> Self {
        Self { firmware_reset: false, mellanox: true }
    }
}

/// Returns the plan of [`plan_node`] with these options.
pub fn plan_node_with(spec: &SriovNetworkNodeStateSpec, facts: &HostFacts, options: &NodeOptions) -> Plan {
    let mut plan = Plan::default();
    let Some(interfaces) = &spec.interfaces else { return plan };
    plan.problems.extend(problem::unsupported(spec));
    let (desired, invalid) = read_desired(interfaces);
    plan.problems.extend(invalid);
    let rdma_mode = spec.system.as_ref().and_then(|system| system.rdma_mode);
    let system = system::plan_system(&desired, rdma_mode, facts, *options);
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
        plan_pfs(&desired, &system.pf_causes, facts, &guids)
    };
    plan.steps.extend(load_modules(&pfs, facts));
    plan.steps.extend(system.pfs);
    for (_, pf) in pfs {
        plan.steps.extend(pf.create);
        plan.steps.extend(pf.set_up);
        plan.problems.extend(pf.problems);
    }
    if !system.reboots {
        reset_pfs(&mut plan, interfaces, facts);
    }
    udev::plan_scripts(&mut plan.steps, facts);
    plan.steps.extend(system.after);
    plan
}

/// Returns the steps that are possible before the network starts: PFs are configured and their VFs created, but not
/// bound. Their records say that VF creation is unfinished, and [`plan_node`] continues it.
pub fn plan_before_network(spec: &SriovNetworkNodeStateSpec, facts: &HostFacts) -> Plan {
    let Some(interfaces) = &spec.interfaces else { return Plan::default() };
    let (mut desired, problems) = read_desired(interfaces);
    let guids = check::guid_source(&desired, facts);
    desired.retain(|desired| !desired.external);
    let pfs = plan_pfs(&desired, &BTreeMap::new(), facts, &guids);
    let mut plan = Plan { steps: load_modules(&pfs, facts), problems };
    plan.problems.extend(check::guid_problems(&desired, facts, &guids));
    for (_, pf) in pfs {
        plan.steps.extend(pf.create);
        plan.problems.extend(pf.problems);
    }
    udev::plan_scripts(&mut plan.steps, facts);
    plan
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
    reset_pfs(&mut reset, interfaces, facts);
    let reset = reset.problems.into_iter().filter_map(|problem| Some((problem.pf?, vec![problem.cause])));
    let all = desired.chain(reset).flat_map(|(pf, causes)| causes.into_iter().map(move |cause| (pf, cause)));
    all.filter_map(|(pf, cause)| Some((pf, cause.protected_part()?))).collect()
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
) -> Vec<(&'a DesiredPf, PfSteps)> {
    let plan = |desired: &DesiredPf| pf::plan_pf(desired, system_causes.get(&desired.address), facts, guids);
    desired.iter().map(|desired| (desired, plan(desired))).collect()
}

fn load_modules(pfs: &[(&DesiredPf, PfSteps)], facts: &HostFacts) -> Vec<PlannedStep> {
    let needed = pfs.iter().flat_map(|(_, plan)| plan.modules.iter().copied()).collect();
    let any_vfs = pfs.iter().any(|(desired, plan)| desired.num_vfs > 0 && plan.problems.is_empty());
    modules::load_modules(&needed, any_vfs, facts)
}

/// Resets PFs that have a record and are no longer desired. An unreadable record is a problem, since its PF may need a
/// reset.
fn reset_pfs(plan: &mut Plan, interfaces: &[Interface], facts: &HostFacts) {
    let is_desired = |pf| interfaces.iter().any(|interface| interface.pci_address.value() == Ok(pf));
    let unreadable =
        facts.unreadable_records.iter().filter(|pf| !is_desired(pf)).filter_map(|pf| facts.unreadable(*pf));
    plan.problems.extend(unreadable.map(Problem::unreadable_card));
    for record in facts.records.iter().filter(|record| !is_desired(&record.pf)) {
        match reset::reset_pf(record, facts) {
            Ok((steps, problem)) => {
                plan.steps.extend(steps);
                plan.problems.extend(problem);
            }
            Err(problem) => plan.problems.push(problem),
        }
    }
}

pub(crate) fn planned(step: Step, disruption: Disruption, why: impl Into<String>) -> PlannedStep {
    PlannedStep { step, disruption, why: why.into() }
}
