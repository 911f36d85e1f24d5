//! Planner of the whole machine: settings that do not belong to one PF, and reboots.

mod fault;
mod firmware;
mod iommu;
mod rdma;
mod reboot;

pub use fault::SystemFault;
pub(crate) use reboot::reboot_for;

use vfleet_api::PciAddress;
use vfleet_api::pool_config::RdmaMode;

use super::desired::DesiredPf;
use super::{Cause, NodeOptions, Problem, udev};
use crate::facts::{HostFacts, PfFacts};
use crate::kernel_arguments::{KernelArgument, contradicting_arguments, missing_arguments};
use crate::prelude::*;
use crate::step::PlannedStep;

/// Steps and problems of the whole machine.
#[derive(Debug, Default)]
pub(super) struct SystemPlan {
    /// Steps of the machine before all others.
    pub(super) before: Vec<PlannedStep>,
    /// Steps of PFs before all others: their firmware settings.
    pub(super) pfs: Vec<PlannedStep>,
    /// Steps of the machine after those of all PFs.
    pub(super) after: Vec<PlannedStep>,
    /// Problems of the machine.
    pub(super) problems: Vec<Problem>,
    /// Causes that prevent the desired state of single PFs.
    pub(super) pf_causes: BTreeMap<PciAddress, Cause>,
    /// The machine reboots or the firmware of a card is reset at the end, so that PFs are not configured now.
    pub(super) reboots: bool,
}

/// Needs that only a reboot satisfies.
#[derive(Debug, Default)]
struct RebootNeeds {
    /// Changes of kernel arguments.
    arguments: Vec<ArgumentNeed>,
    /// PFs that wait for new firmware settings, by the name of the need.
    cards: BTreeMap<String, Vec<PciAddress>>,
    /// Needs of which it is unknown whether they are satisfied, or which wait for something else. No reboot is
    /// requested for them, and their reboot counts are kept.
    open: BTreeSet<String>,
}

/// Kernel arguments that must be present or absent.
#[derive(Debug)]
struct ArgumentNeed {
    /// Name of the need, which is stored with its reboot count: the same until the need is satisfied.
    name: String,
    with: Vec<KernelArgument>,
    without: Vec<String>,
}

impl RebootNeeds {
    fn names(&self) -> impl Iterator<Item = &str> {
        self.arguments.iter().map(|need| need.name.as_str()).chain(self.cards.keys().map(String::as_str))
    }
}

impl ArgumentNeed {
    fn new(with: &[KernelArgument], without: Vec<String>) -> Self {
        let arguments: Vec<_> = with.iter().map(|argument| argument.text()).collect();
        let name = match arguments.as_slice() {
            [] => "kernel arguments that allow an IOMMU".to_owned(),
            some => format!("kernel arguments {}", some.join(" ")),
        };
        Self { name, with: with.to_vec(), without }
    }

    /// Returns the changes that an administrator must make; `None` if the arguments are right.
    fn manual_changes(&self, command_line: &str) -> Option<String> {
        let with = missing_arguments(&self.with, command_line);
        let mut without = contradicting_arguments(&self.with, command_line);
        without.extend(self.without.iter().cloned());
        let parts: Vec<String> = [("with", with), ("without", without)]
            .into_iter()
            .filter(|(_, arguments)| !arguments.is_empty())
            .map(|(word, arguments)| format!("{word} {}", arguments.join(" ")))
            .collect();
        (!parts.is_empty()).then(|| parts.join(" and "))
    }
}

/// Returns the steps of the whole machine.
pub(super) fn plan_system(
    desired: &[DesiredPf],
    rdma_mode: Option<RdmaMode>,
    facts: &HostFacts,
    options: NodeOptions,
) -> SystemPlan {
    let with_facts = |desired| find_pf(desired, facts).map(|observed| (desired, observed));
    let pfs: Vec<(&DesiredPf, &PfFacts)> = desired.iter().filter_map(with_facts).collect();
    let missing: Vec<&DesiredPf> =
        desired.iter().filter(|desired| facts.pf(desired.address).is_none()).collect();
    let mut plan = SystemPlan::default();
    let mut needs = RebootNeeds::default();
    plan.before.extend(udev::remove_obsolete_rule(facts));
    iommu::plan(&pfs, &missing, facts, &mut plan, &mut needs);
    rdma::plan(rdma_mode, facts, &mut plan, &mut needs);
    if options.mellanox {
        firmware::plan(&pfs, facts, options, &mut plan, &mut needs);
        needs.open.extend(firmware::needs_of_missing(&missing));
    }
    reboot::plan(&needs, facts, &mut plan);
    plan
}

/// Returns the facts of a desired PF; `None` for lone VFs and missing cards.
fn find_pf<'a>(desired: &DesiredPf, facts: &'a HostFacts) -> Option<&'a PfFacts> {
    facts.pf(desired.address).filter(|observed| !observed.is_lone_vf)
}

/// Returns a problem of the whole machine that belongs to these policies.
fn problem(fault: SystemFault, policies: Vec<String>) -> Problem {
    Problem { pf: None, name: None, policies, cause: super::Cause::System(fault) }
}
