//! The machine as a whole: what is not about one PF, and what needs a restart.

mod fault;
mod firmware;
mod iommu;
mod rdma;
mod restart;

pub use fault::SystemFault;
pub(crate) use restart::restart_for;

use vfleet_api::SriovNetworkNodeStateSpec;

use super::wanted::{WantedPf, wanted};
use super::{NodeOptions, Problem, udev};
use crate::facts::{HostFacts, PfFacts};
use crate::kernel_arguments::Wanted;
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
    /// The machine restarts in the end, or the firmware of a card: nothing else is done with PFs before that.
    pub(super) reboots: bool,
}

/// What only a restart of the machine brings.
#[derive(Debug, Default)]
struct Needs {
    /// The kernel is to be started with these.
    arguments: Vec<Wanted>,
    /// These cards are to take up new settings of their firmware.
    cards: Vec<String>,
}

/// The steps for the machine as a whole.
pub(super) fn plan_system(
    spec: &SriovNetworkNodeStateSpec,
    facts: &HostFacts,
    options: NodeOptions,
) -> SystemPlan {
    let pfs: Vec<(WantedPf, &PfFacts)> =
        spec.interfaces.iter().flatten().filter_map(|i| find(i, facts)).collect();
    let mut plan = SystemPlan::default();
    let mut needs = Needs::default();
    plan.before.extend(udev::remove_leftovers(facts));
    iommu::plan(&pfs, facts, &mut plan, &mut needs);
    rdma::plan(spec.system.as_ref().and_then(|system| system.rdma_mode), facts, &mut plan, &mut needs);
    if options.mellanox {
        firmware::plan(&pfs, facts, options, &mut plan, &mut needs);
    }
    restart::plan(&needs, facts, &mut plan);
    plan
}

/// A wanted PF that is there. What is wrong with others is said elsewhere.
fn find<'a>(
    interface: &vfleet_api::node_state::Interface,
    facts: &'a HostFacts,
) -> Option<(WantedPf, &'a PfFacts)> {
    let wanted = wanted(interface).ok()?;
    let found = facts.pf(wanted.address).filter(|found| !found.is_lone_vf)?;
    Some((wanted, found))
}

/// A problem of the whole machine, for these policies.
fn problem(fault: SystemFault, policies: Vec<String>) -> Problem {
    Problem { pf: None, name: None, policies, cause: super::Cause::System(fault) }
}
