//! The machine as a whole: what is not about one PF, and what needs a restart.

mod fault;
mod firmware;
mod iommu;
mod rdma;
mod restart;

pub use fault::SystemFault;
pub(crate) use restart::restart_for;

use vfleet_api::PciAddress;
use vfleet_api::pool_config::RdmaMode;

use super::wanted::WantedPf;
use super::{Cause, NodeOptions, Problem, udev};
use crate::facts::{HostFacts, PfFacts};
use crate::kernel_arguments::{Wanted, contrary, missing};
use crate::prelude::*;
use crate::step::PlannedStep;

/// What is to be done for the machine as a whole.
#[derive(Debug, Default)]
pub(super) struct SystemPlan {
    /// For the machine, before all else.
    pub(super) before: Vec<PlannedStep>,
    /// About PFs, before anything else is done with them: their firmware.
    pub(super) pfs: Vec<PlannedStep>,
    /// For the machine, when all PFs are done.
    pub(super) after: Vec<PlannedStep>,
    /// What cannot be.
    pub(super) problems: Vec<Problem>,
    /// What cannot be of single PFs.
    pub(super) of_pfs: BTreeMap<PciAddress, Cause>,
    /// The machine restarts in the end, or the firmware of a card: nothing else is done with PFs before that.
    pub(super) reboots: bool,
}

/// What only a restart of the machine brings.
#[derive(Debug, Default)]
struct Needs {
    /// The kernel is to be started otherwise.
    arguments: Vec<ArgumentNeed>,
    /// Cards are to take up new settings of their firmware, for these PFs; by what the need is called.
    cards: BTreeMap<String, Vec<PciAddress>>,
    /// Of which it is not known whether they are met, or which wait for something else: nobody restarts for them now, and
    /// restarts that were for them are not forgotten.
    open: BTreeSet<String>,
}

/// Arguments that the kernel is to be started with, and without.
#[derive(Debug)]
struct ArgumentNeed {
    /// The same as long as the need is not met.
    name: String,
    with: Vec<Wanted>,
    without: Vec<String>,
}

impl Needs {
    fn names(&self) -> impl Iterator<Item = &str> {
        self.arguments.iter().map(|need| need.name.as_str()).chain(self.cards.keys().map(String::as_str))
    }
}

impl ArgumentNeed {
    fn new(with: &[Wanted], without: Vec<String>) -> Self {
        let arguments: Vec<_> = with.iter().map(|wanted| wanted.argument()).collect();
        let name = match arguments.as_slice() {
            [] => "kernel arguments that allow an IOMMU".to_owned(),
            some => format!("kernel arguments {}", some.join(" ")),
        };
        Self { name, with: with.to_vec(), without }
    }

    /// What is to be changed by hand; `None` when the kernel is started as needed.
    fn by_hand(&self, command_line: &str) -> Option<String> {
        let with = missing(&self.with, command_line);
        let mut without = contrary(&self.with, command_line);
        without.extend(self.without.iter().cloned());
        let parts: Vec<String> = [("with", with), ("without", without)]
            .into_iter()
            .filter(|(_, arguments)| !arguments.is_empty())
            .map(|(word, arguments)| format!("{word} {}", arguments.join(" ")))
            .collect();
        (!parts.is_empty()).then(|| parts.join(" and "))
    }
}

/// The steps for the machine as a whole.
pub(super) fn plan_system(
    wanted: &[WantedPf],
    rdma_mode: Option<RdmaMode>,
    facts: &HostFacts,
    options: NodeOptions,
) -> SystemPlan {
    let found = |wanted| find(wanted, facts).map(|found| (wanted, found));
    let pfs: Vec<(&WantedPf, &PfFacts)> = wanted.iter().filter_map(found).collect();
    let unseen: Vec<&WantedPf> = wanted.iter().filter(|wanted| facts.pf(wanted.address).is_none()).collect();
    let mut plan = SystemPlan::default();
    let mut needs = Needs::default();
    plan.before.extend(udev::remove_leftovers(facts));
    iommu::plan(&pfs, &unseen, facts, &mut plan, &mut needs);
    rdma::plan(rdma_mode, facts, &mut plan, &mut needs);
    if options.mellanox {
        firmware::plan(&pfs, facts, options, &mut plan, &mut needs);
        needs.open.extend(firmware::of_unseen(&unseen));
    }
    restart::plan(&needs, facts, &mut plan);
    plan
}

/// The card of a wanted PF. What is wrong with others is said elsewhere.
fn find<'a>(wanted: &WantedPf, facts: &'a HostFacts) -> Option<&'a PfFacts> {
    facts.pf(wanted.address).filter(|found| !found.is_lone_vf)
}

/// A problem of the whole machine, for these policies.
fn problem(fault: SystemFault, policies: Vec<String>) -> Problem {
    Problem { pf: None, name: None, policies, cause: super::Cause::System(fault) }
}
