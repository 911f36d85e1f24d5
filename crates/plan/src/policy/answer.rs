//! What a policy is told about a node.

use core::fmt;

use vfleet_api::{PciAddress, VfRange, Written};

use super::{PfRule, PolicyFault};
use crate::prelude::*;

/// One policy that selects the node (by its labels), answered for each card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyAnswer {
    /// The policy.
    pub policy: String,
    /// What became of it on each card, in the order in which the node reports them.
    pub pfs: Vec<PfAnswer>,
}

impl PolicyAnswer {
    /// Whether it selects any PF of the node, also where it cannot be followed.
    pub fn selects(&self) -> bool {
        self.pfs.iter().any(|pf| !matches!(pf.verdict, PfVerdict::NotSelected(_)))
    }
}

/// What became of a policy on one card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PfAnswer {
    /// PCI address of the card.
    pub pci_address: Written<PciAddress>,
    /// Name of its interface.
    pub name: Option<String>,
    /// What became of the policy.
    pub verdict: PfVerdict,
}

impl fmt::Display for PfAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name} ({}): {}", self.pci_address, self.verdict),
            None => write!(f, "{}: {}", self.pci_address, self.verdict),
        }
    }
}

/// What became of a policy on a PF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PfVerdict {
    /// Another PF is meant, or nothing: the rule says why.
    NotSelected(PfRule),
    /// Selected; `lost` are its groups that went to other policies (empty: it got all it asked for).
    Selected {
        /// The groups that it did not get.
        lost: Vec<LostGroup>,
    },
    /// It selects the PF, or may, but cannot be followed; the PF stays as `current` has it.
    Invalid(PolicyFault),
}

impl From<PfRule> for PfVerdict {
    fn from(rule: PfRule) -> Self {
        Self::NotSelected(rule)
    }
}

impl From<PolicyFault> for PfVerdict {
    fn from(fault: PolicyFault) -> Self {
        Self::Invalid(fault)
    }
}

impl fmt::Display for PfVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSelected(rule) => rule.fmt(f),
            Self::Invalid(fault) => fault.fmt(f),
            Self::Selected { lost } if lost.is_empty() => f.write_str("the PF is as the policy wants"),
            Self::Selected { lost } => {
                let sentences: Vec<_> = lost.iter().map(ToString::to_string).collect();
                f.write_str(&sentences.join("; "))
            }
        }
    }
}

/// VFs that a policy asked for and another one got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostGroup {
    /// The VFs.
    pub range: VfRange,
    /// The policy that displaced the group.
    pub to: String,
    /// What the two have in common.
    pub why: LossReason,
    /// Neither outranks the other: only their names decided.
    pub equal_priority: bool,
}

impl fmt::Display for LostGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { range, to, why, equal_priority } = self;
        write!(f, "VFs {range} gave way to policy {to}, which ")?;
        f.write_str(match why {
            LossReason::SameResource => "has the same resourceName on this PF",
            LossReason::Overlap => "wants some of them",
        })?;
        f.write_str(if *equal_priority {
            ", with equal priority and a later name"
        } else {
            ", with a lower priority number"
        })?;
        f.write_str(match why {
            LossReason::SameResource => {
                ": put both ranges into one policy, or give the two different resources"
            }
            LossReason::Overlap => ": give the two ranges that do not overlap",
        })
    }
}

/// What two groups of VFs of which only one can stay have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossReason {
    /// The resource that they are given out as.
    SameResource,
    /// One or more VFs.
    Overlap,
}
