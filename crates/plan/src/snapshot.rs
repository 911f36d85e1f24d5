//! Snapshot of a node: host facts, and what follows from them for every VF.
//!
//! The agent publishes it whenever it has read the machine. A fact that cannot be read now is not a reason to withdraw a
//! VF: the state of such a VF is unknown, and the VF stays listed.

use vfleet_api::{PciAddress, SriovNetworkNodeStateSpec, VfRef};

use crate::facts::{HostFacts, HostUse, VfFacts};
use crate::node::{Cause, Problem, WantedPf};
use crate::prelude::*;
use crate::step::{Disruption, Plan, Target, is_userspace_driver};

/// The observed machine, with the state of every VF.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeSnapshot {
    /// Facts of the last read that succeeded.
    pub facts: HostFacts,
    /// State of each VF, those of cards that cannot be read now included.
    pub vfs: BTreeMap<VfRef, VfState>,
}

/// State of a VF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VfState {
    /// PCI address of the VF.
    pub address: PciAddress,
    /// How far the VF is from its desired state.
    pub configuration: VfConfiguration,
    /// Current user of the VF.
    pub holder: VfHolder,
}

/// How far a VF is from its desired state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VfConfiguration {
    /// No policy configures the VF.
    Unmanaged,
    /// The VF, or its PF, is not as desired: a step is still to be done, or a problem prevents it.
    Pending,
    /// The VF was read back, and is as desired.
    Verified,
    /// Facts that decide it cannot be read now, or the node state was not worked out yet.
    Unknown,
}

/// Current user of a VF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VfHolder {
    /// Nobody: the VF has no driver, or its interface is in the host's network namespace.
    None,
    /// The node itself.
    Node(HostUse),
    /// A pod: the interface is in another network namespace.
    Pod,
    /// Not known: a program may use a VF that is bound to a userspace driver, and a card that hangs tells nothing.
    Unknown,
}

impl VfHolder {
    /// Returns the holder of a VF, as far as the kernel tells. What the node used a moment ago is still the node's.
    pub fn of(vf: &VfFacts, facts: &HostFacts) -> Self {
        match (vf.driver.as_deref(), &vf.link) {
            (_, link @ Some(_)) => {
                facts.in_use(vf.address, link.as_ref()).map_or(Self::None, |used| Self::Node(used.host_use))
            }
            (None, None) => Self::None,
            (Some(driver), None) if is_userspace_driver(driver) => Self::Unknown,
            (Some(_), None) => Self::Pod,
        }
    }
}

impl NodeSnapshot {
    /// Returns the snapshot of a machine that is as `facts` describe, where `plan` is all that is still to be done for
    /// `spec`. VFs of a card that cannot be read now stay listed as in `self`, in an unknown state.
    #[must_use]
    pub fn next(&self, facts: &HostFacts, spec: &SriovNetworkNodeStateSpec, plan: &Plan) -> Self {
        let desired = DesiredVfs::of(spec, plan);
        let read = facts.pfs.iter().flat_map(|pf| {
            let desired = &desired;
            pf.vfs.iter().map(move |vf| {
                let id = VfRef { pf: pf.address, index: vf.index };
                let configuration = desired.configuration(id);
                (id, VfState { address: vf.address, configuration, holder: VfHolder::of(vf, facts) })
            })
        });
        let unread = self.vfs.iter().filter(|(vf, _)| facts.unread(vf.pf).is_some());
        let unread = unread.map(|(vf, state)| (*vf, state.unknown()));
        Self { facts: facts.clone(), vfs: read.chain(unread).collect() }
    }

    /// Returns the snapshot of a machine that cannot be read now: everything is as it was last read, in an unknown state.
    #[must_use]
    pub fn unreadable(&self) -> Self {
        let vfs = self.vfs.iter().map(|(vf, state)| (*vf, state.unknown())).collect();
        Self { facts: self.facts.clone(), vfs }
    }
}

impl VfState {
    fn unknown(&self) -> Self {
        let configuration = match self.configuration {
            VfConfiguration::Unmanaged => VfConfiguration::Unmanaged,
            _ => VfConfiguration::Unknown,
        };
        Self { address: self.address, configuration, holder: VfHolder::Unknown }
    }
}

/// VFs that a node state configures, and what is still to be done for them.
struct DesiredVfs<'a> {
    /// `None` while the node state was not worked out yet.
    pfs: Option<Vec<WantedPf>>,
    /// PFs whose desired state cannot be read; `None` for one of which not even the address can be.
    unreadable: BTreeSet<Option<PciAddress>>,
    plan: &'a Plan,
    /// The rest of the plan is only known after a restart, or after something could be read.
    is_plan_open: bool,
}

impl<'a> DesiredVfs<'a> {
    fn of(spec: &SriovNetworkNodeStateSpec, plan: &'a Plan) -> Self {
        let mut unreadable = BTreeSet::new();
        let readable = |interface| {
            WantedPf::read(interface).inspect_err(|problem| _ = unreadable.insert(problem.pf)).ok()
        };
        let pfs = spec.interfaces.as_ref().map(|interfaces| interfaces.iter().filter_map(readable).collect());
        let restarts = plan.steps.iter().any(|planned| planned.step.leads_to_restart());
        let is_plan_open = restarts || plan.problems.iter().any(leaves_plan_open);
        Self { pfs, unreadable, plan, is_plan_open }
    }

    fn configuration(&self, vf: VfRef) -> VfConfiguration {
        let Some(pfs) = &self.pfs else { return VfConfiguration::Unknown };
        let is_desired = |pf: &WantedPf| pf.address == vf.pf && pf.vf(vf.index).is_some();
        if !pfs.iter().any(is_desired) && !self.unreadable.contains(&Some(vf.pf)) {
            let may_be_desired = self.unreadable.contains(&None);
            return if may_be_desired { VfConfiguration::Unknown } else { VfConfiguration::Unmanaged };
        }
        let mut problems = self.plan.problems.iter().filter(|problem| problem.pf == Some(vf.pf)).peekable();
        let has_problem = problems.peek().is_some();
        if self.has_pending_step(vf) || problems.any(|problem| !problem.is_worth_a_retry()) {
            VfConfiguration::Pending
        } else if has_problem || self.is_plan_open {
            VfConfiguration::Unknown
        } else {
            VfConfiguration::Verified
        }
    }

    /// Steps that nobody notices (records, files) say nothing about the VF itself.
    fn has_pending_step(&self, vf: VfRef) -> bool {
        self.plan.steps.iter().any(|planned| match planned.step.target() {
            Target::Vf(other) => other == vf,
            Target::Pf(pf) => pf == vf.pf && planned.disruption > Disruption::None,
            Target::Machine => false,
        })
    }
}

/// Returns whether the plan lacks steps because of `problem`. In systemd mode it lacks those that only a boot can do.
fn leaves_plan_open(problem: &Problem) -> bool {
    problem.pf.is_none() && (problem.is_worth_a_retry() || matches!(problem.cause, Cause::Boot(_)))
}
