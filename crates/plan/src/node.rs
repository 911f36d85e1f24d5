//! What to do on a machine: node state spec and host facts => steps.

mod address;
mod check;
mod lone;
mod making;
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
mod wanted;

use pf::PfPlan;
pub(crate) use problem::Protected;
pub use problem::{Cause, Problem};
pub use system::SystemFault;
pub(crate) use system::restart_for;
pub(crate) use wanted::WantedPf;

use vfleet_api::node_state::Interface;
use vfleet_api::{PciAddress, SriovNetworkNodeStateSpec};

use crate::facts::HostFacts;
use crate::guids::GuidSource;
use crate::prelude::*;
use crate::step::{Disruption, Plan, PlannedStep, Step};

/// The steps that make the machine what `spec` wants, and what of it cannot be.
///
/// Guarantees: executing the steps and planning again gives no steps. When the execution is cut after any step,
/// planning again leads to the same machine. Nothing is planned for a PF that is neither in `spec` nor recorded
/// as ours.
///
/// A spec without `interfaces` was not worked out yet (a node state that was just created) and wants nothing,
/// not even that recorded PFs be reset; an empty list does.
pub fn plan_node(spec: &SriovNetworkNodeStateSpec, facts: &HostFacts) -> Plan {
    plan_node_with(spec, facts, &NodeOptions::default())
}

/// What a node may do beyond the usual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeOptions {
    /// Whether the firmware of a card is restarted when its settings changed, before the machine is.
    pub firmware_reset: bool,
    /// Whether the firmware of Mellanox cards is set at all.
    pub mellanox: bool,
}

impl Default for NodeOptions {
    fn default() -> Self {
        Self { firmware_reset: false, mellanox: true }
    }
}

/// As [`plan_node`], with these options.
pub fn plan_node_with(spec: &SriovNetworkNodeStateSpec, facts: &HostFacts, options: &NodeOptions) -> Plan {
    let mut plan = Plan::default();
    let Some(interfaces) = &spec.interfaces else { return plan };
    plan.problems.extend(problem::unsupported(spec));
    let (wanted, unreadable) = read_wanted(interfaces);
    plan.problems.extend(unreadable);
    let rdma_mode = spec.system.as_ref().and_then(|system| system.rdma_mode);
    let system = system::plan_system(&wanted, rdma_mode, facts, *options);
    plan.problems.extend(system.problems);
    plan.steps.extend(system.before);
    let pfs = if system.reboots {
        let known = |wanted: &WantedPf| Some(wanted.problem(system.of_pfs.get(&wanted.address)?.clone()));
        plan.problems.extend(wanted.iter().filter_map(known));
        Vec::new()
    } else {
        let guids = check::guid_source(&wanted, facts);
        plan.problems.extend(check::guid_problems(&wanted, facts, &guids));
        plan_pfs(&wanted, &system.of_pfs, facts, &guids)
    };
    plan.steps.extend(load_modules(&pfs, facts));
    plan.steps.extend(system.pfs);
    for (_, pf) in pfs {
        plan.steps.extend(pf.make);
        plan.steps.extend(pf.set_up);
        plan.problems.extend(pf.problems);
    }
    if !system.reboots {
        give_back(&mut plan, interfaces, facts);
    }
    udev::plan_scripts(&mut plan.steps, facts);
    plan.steps.extend(system.after);
    plan
}

/// What can be done before the network is there: PFs of our own are set up and their VFs made, but not bound. The
/// records say that they are being made: [`plan_node`] goes on from there.
pub fn plan_before_network(spec: &SriovNetworkNodeStateSpec, facts: &HostFacts) -> Plan {
    let Some(interfaces) = &spec.interfaces else { return Plan::default() };
    let (mut wanted, problems) = read_wanted(interfaces);
    let guids = check::guid_source(&wanted, facts);
    wanted.retain(|wanted| !wanted.external);
    let pfs = plan_pfs(&wanted, &BTreeMap::new(), facts, &guids);
    let mut plan = Plan { steps: load_modules(&pfs, facts), problems };
    plan.problems.extend(check::guid_problems(&wanted, facts, &guids));
    for (_, pf) in pfs {
        plan.steps.extend(pf.make);
        plan.problems.extend(pf.problems);
    }
    udev::plan_scripts(&mut plan.steps, facts);
    plan
}

/// What of `spec` cannot be quite as desired and is left at that: nothing more is done about it, and it is no failure.
pub fn node_warnings(spec: &SriovNetworkNodeStateSpec, facts: &HostFacts) -> Vec<Problem> {
    let (wanted, _) = read_wanted(spec.interfaces.as_deref().unwrap_or_default());
    let warning = |wanted: &WantedPf| {
        let names = udev::names_left(wanted, facts.pf(wanted.address)?, facts.record(wanted.address)?)?;
        Some(wanted.problem(Cause::RepresentorsNotRenamed { names }))
    };
    wanted.iter().filter(|wanted| !wanted.external).filter_map(warning).collect()
}

/// What is refused of `spec` because of what the node itself uses, each with its PF.
pub(crate) fn refusals(spec: &SriovNetworkNodeStateSpec, facts: &HostFacts) -> Vec<(PciAddress, Protected)> {
    let interfaces = spec.interfaces.as_deref().unwrap_or_default();
    let (wanted, _) = read_wanted(interfaces);
    let wanted = wanted.iter().map(|wanted| (wanted.address, pf::refused_for_use(wanted, facts)));
    let mut unwanted = Plan::default();
    give_back(&mut unwanted, interfaces, facts);
    let unwanted =
        unwanted.problems.into_iter().filter_map(|problem| Some((problem.pf?, vec![problem.cause])));
    let all =
        wanted.chain(unwanted).flat_map(|(pf, causes)| causes.into_iter().map(move |cause| (pf, cause)));
    all.filter_map(|(pf, cause)| Some((pf, cause.protection()?))).collect()
}

/// Each PF that can be read from the spec; and why others cannot.
fn read_wanted(interfaces: &[Interface]) -> (Vec<WantedPf>, Vec<Problem>) {
    let mut pfs = Vec::new();
    let mut problems = Vec::new();
    for interface in interfaces {
        match WantedPf::read(interface) {
            Ok(wanted) => pfs.push(wanted),
            Err(problem) => problems.push(problem),
        }
    }
    (pfs, problems)
}

/// What is to be done with each PF; `known` is what the machine as a whole cannot do for them.
fn plan_pfs<'a>(
    wanted: &'a [WantedPf],
    known: &BTreeMap<PciAddress, Cause>,
    facts: &HostFacts,
    guids: &GuidSource,
) -> Vec<(&'a WantedPf, PfPlan)> {
    let plan = |wanted: &WantedPf| pf::plan_pf(wanted, known.get(&wanted.address), facts, guids);
    wanted.iter().map(|wanted| (wanted, plan(wanted))).collect()
}

fn load_modules(pfs: &[(&WantedPf, PfPlan)], facts: &HostFacts) -> Vec<PlannedStep> {
    let needed = pfs.iter().flat_map(|(_, plan)| plan.modules.iter().copied()).collect();
    let any_vfs = pfs.iter().any(|(wanted, plan)| wanted.num_vfs > 0 && plan.problems.is_empty());
    modules::load(&needed, any_vfs, facts)
}

/// PFs that are recorded and no longer wanted. One whose record cannot be read is a problem: it may have to be given back.
fn give_back(plan: &mut Plan, interfaces: &[Interface], facts: &HostFacts) {
    let is_wanted = |pf| interfaces.iter().any(|interface| interface.pci_address.value() == Ok(pf));
    let unread = facts.unread_records.iter().filter(|pf| !is_wanted(pf)).filter_map(|pf| facts.unread(*pf));
    plan.problems.extend(unread.map(Problem::unread));
    for record in facts.records.iter().filter(|record| !is_wanted(&record.pf)) {
        match reset::reset_pf(record, facts) {
            Ok((steps, left)) => {
                plan.steps.extend(steps);
                plan.problems.extend(left);
            }
            Err(problem) => plan.problems.push(problem),
        }
    }
}

pub(crate) fn planned(step: Step, disruption: Disruption, why: impl Into<String>) -> PlannedStep {
    PlannedStep { step, disruption, why: why.into() }
}
