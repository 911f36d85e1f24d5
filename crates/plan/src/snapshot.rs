//! Snapshots of a node: host facts with the state of every VF.
//!
//! The agent publishes a snapshot after each read of the machine. A VF whose facts cannot be read is not withdrawn: it
//! stays listed, in an unknown state.

use vfleet_api::{PciAddress, SriovNetworkNodeStateSpec, VfRef};

use crate::facts::{Fact, HostFacts, HostUse, VfFacts};
use crate::node::{Cause, DesiredPf, Problem};
use crate::prelude::*;
use crate::step::{Disruption, Plan, Target, is_userspace_driver};

/// Host facts with the state of every VF.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeSnapshot {
    /// Facts of the last successful read.
    pub facts: HostFacts,
    /// State of each VF, including VFs of cards that cannot be read now.
    pub vfs: BTreeMap<VfRef, VfState>,
}

/// State of a VF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VfState {
    /// PCI address of the VF.
    pub address: PciAddress,
    /// Progress of the VF toward its desired state.
    pub configuration: VfConfiguration,
    /// Current user of the VF.
    pub holder: VfHolder,
}

/// Progress of a VF toward its desired state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VfConfiguration {
    /// No policy configures the VF.
    Unmanaged,
    /// The VF or its PF does not match the desired state: steps are left, or a problem prevents them.
    Pending,
    /// The VF was read back and matches the desired state.
    Verified,
    /// Facts cannot be read now, or the node state is not planned yet.
    Unknown,
}

/// Current user of a VF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VfHolder {
    /// No user: the VF has no driver, or its interface is in the host's network namespace.
    None,
    /// The node itself.
    Node(HostUse),
    /// A pod: a CNI plugin has attached the VF, or the interface is in another network namespace.
    Pod,
    /// Unknown: a program may use a VF with a userspace driver, and a card that hangs cannot be read.
    Unknown,
}

impl VfHolder {
    /// Returns the holder of a VF, as far as the kernel and the files of CNI plugins report it. A remembered use by the
    /// node counts too.
    pub fn of(vf: &VfFacts, facts: &HostFacts) -> Self {
        if let Some(link) = &vf.link
            && let Some(used) = facts.in_use(vf.address, Some(link))
        {
            return Self::Node(used.host_use);
        }
        let driver = vf.driver.as_deref().filter(|_| vf.link.is_none());
        match (driver.map(is_userspace_driver), vf.attachment) {
            (Some(false), _) | (_, Fact::Value(_)) => Self::Pod,
            (Some(true), _) | (None, Fact::Unknown) => Self::Unknown,
            (None, Fact::None) => Self::None,
        }
    }
}

impl NodeSnapshot {
    /// Returns the snapshot of these facts, where `plan` has the remaining steps for `spec`. VFs of cards that cannot
    /// be read stay listed as in `self`, in an unknown state.
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
        let unread = self.vfs.iter().filter(|(vf, _)| facts.unreadable(vf.pf).is_some());
        let unread = unread.map(|(vf, state)| (*vf, state.unknown()));
        Self { facts: facts.clone(), vfs: read.chain(unread).collect() }
    }

    /// Returns the snapshot of a machine that cannot be read now: everything as last read, in an unknown state.
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

/// Desired VFs of a node state, with the remaining plan.
struct DesiredVfs<'a> {
    /// Desired PFs; `None` while the node state is not planned yet.
    pfs: Option<Vec<DesiredPf>>,
    /// PFs with an invalid desired state; `None` stands for an invalid PCI address.
    unreadable: BTreeSet<Option<PciAddress>>,
    plan: &'a Plan,
    /// More steps may follow after a reboot, or after a failed read succeeds.
    is_plan_open: bool,
}

impl<'a> DesiredVfs<'a> {
    fn of(spec: &SriovNetworkNodeStateSpec, plan: &'a Plan) -> Self {
        let mut unreadable = BTreeSet::new();
        let readable = |interface| {
            DesiredPf::read(interface).inspect_err(|problem| _ = unreadable.insert(problem.pf)).ok()
        };
        let pfs = spec.interfaces.as_ref().map(|interfaces| interfaces.iter().filter_map(readable).collect());
        let reboots = plan.steps.iter().any(|planned| planned.step.leads_to_reboot());
        let is_plan_open = reboots || plan.problems.iter().any(leaves_plan_open);
        Self { pfs, unreadable, plan, is_plan_open }
    }

    fn configuration(&self, vf: VfRef) -> VfConfiguration {
        let Some(pfs) = &self.pfs else { return VfConfiguration::Unknown };
        let is_desired = |pf: &DesiredPf| pf.address == vf.pf && pf.vf(vf.index).is_some();
        if !pfs.iter().any(is_desired) && !self.unreadable.contains(&Some(vf.pf)) {
            let may_be_desired = self.unreadable.contains(&None);
            return if may_be_desired { VfConfiguration::Unknown } else { VfConfiguration::Unmanaged };
        }
        let mut problems = self.plan.problems.iter().filter(|problem| problem.pf == Some(vf.pf)).peekable();
        let has_problem = problems.peek().is_some();
        if self.has_pending_step(vf) || problems.any(|problem| !problem.is_retryable()) {
            VfConfiguration::Pending
        } else if has_problem || self.is_plan_open {
            VfConfiguration::Unknown
        } else {
            VfConfiguration::Verified
        }
    }

    /// Returns whether a step of the VF or its PF is left. Steps without disruption (records, files) do not change the
    /// VF.
    fn has_pending_step(&self, vf: VfRef) -> bool {
        self.plan.steps.iter().any(|planned| match planned.step.target() {
            Target::Vf(other) => other == vf,
            Target::Pf(pf) | Target::Bridge(pf) => pf == vf.pf && planned.disruption > Disruption::None,
            Target::Machine => false,
        })
    }
}

/// Returns whether `problem` hides steps of the plan: a retry may add them, or they need a boot (systemd mode).
fn leaves_plan_open(problem: &Problem) -> bool {
    problem.pf.is_none() && (problem.is_retryable() || matches!(problem.cause, Cause::Boot(_)))
}
