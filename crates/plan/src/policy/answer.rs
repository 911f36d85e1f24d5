//! What a policy is told about a node.

use core::fmt;

use vfleet_api::node_state::UnknownFact;
use vfleet_api::{PciAddress, VfRange, Written};

use super::{PfRule, PfSetting, PolicyFault};
use crate::prelude::*;

/// Enough PFs to see the pattern.
const MOST_PFS: usize = 4;

/// One policy that selects the node (by its labels), answered for each card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyAnswer {
    /// The policy.
    pub policy: String,
    /// What became of it on each card, in the order in which the node reports them.
    pub pfs: Vec<PfAnswer>,
}

impl PolicyAnswer {
    /// Returns whether it selects any PF of the node, also where it cannot be followed or decided.
    pub fn selects(&self) -> bool {
        self.pfs.iter().any(|pf| !matches!(pf.verdict, PfVerdict::NotSelected(_)))
    }

    /// Why a policy that selects no PF of the node does not.
    pub fn why_no_pf(&self) -> String {
        if self.pfs.is_empty() {
            return "it has no network card that can have VFs".to_owned();
        }
        let mut reasons: Vec<_> = self.pfs.iter().take(MOST_PFS).map(ToString::to_string).collect();
        if let more @ 1.. = self.pfs.len().saturating_sub(MOST_PFS) {
            reasons.push(format!("and {more} more PFs"));
        }
        reasons.join("; ")
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
    /// Selected; it got all it asked for, except what is named here.
    Selected {
        /// The groups that it did not get.
        lost: Vec<LostGroup>,
        /// The settings in which the PF is not as it wants.
        overruled: Vec<Overruled>,
        /// A policy that says otherwise about whether the PF is managed outside.
        disagrees_with: Option<String>,
    },
    /// It selects the PF, or may, but cannot be followed; the PF stays as `current` has it.
    Invalid(PolicyFault),
    /// It may select the PF: facts that decide it are unknown. The PF stays as `current` has it.
    Undecided(Vec<UnknownFact>),
}

impl PfVerdict {
    /// The policy got all it asked for.
    pub(super) const fn as_asked() -> Self {
        Self::Selected { lost: Vec::new(), overruled: Vec::new(), disagrees_with: None }
    }

    /// Whether the policy got all it asked for.
    pub fn is_as_asked(&self) -> bool {
        *self == Self::as_asked()
    }

    /// Whether people must settle something between policies: neither of two outranks the other, or they disagree about
    /// whether the PF is managed outside.
    pub fn is_conflict(&self) -> bool {
        match self {
            Self::Selected { lost, overruled, disagrees_with } => {
                disagrees_with.is_some()
                    || lost.iter().any(|lost| lost.equal_priority)
                    || overruled.iter().any(|setting| setting.equal_priority)
            }
            Self::NotSelected(_) | Self::Invalid(_) | Self::Undecided(_) => false,
        }
    }

    /// Whether VFs went to a policy that outranks this one, or the PF is as that one wants.
    pub fn is_outranked(&self) -> bool {
        match self {
            Self::Selected { lost, overruled, .. } => {
                lost.iter().any(|lost| !lost.equal_priority)
                    || overruled.iter().any(|setting| !setting.equal_priority)
            }
            Self::NotSelected(_) | Self::Invalid(_) | Self::Undecided(_) => false,
        }
    }
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
            Self::Undecided(facts) => {
                let facts: Vec<_> = facts.iter().map(|fact| fact.as_str()).collect();
                write!(
                    f,
                    "{} of this PF cannot be read now, so the PF stays as it is: look at the conditions of its node state",
                    facts.join(" and ")
                )
            }
            Self::Selected { lost, overruled, disagrees_with } => {
                let lost = lost.iter().map(ToString::to_string);
                let overruled = overruled.iter().map(ToString::to_string);
                let disagrees = disagrees_with.iter().map(|other| disagreement(other));
                let sentences: Vec<_> = lost.chain(overruled).chain(disagrees).collect();
                match sentences.as_slice() {
                    [] => f.write_str("the PF is as the policy wants"),
                    several => f.write_str(&several.join("; ")),
                }
            }
        }
    }
}

fn disagreement(other: &str) -> String {
    format!(
        "policy {other} says otherwise about externallyManaged, so the PF is taken to be managed outside: set it in both, or in neither"
    )
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
            LossReason::NeedsSwitchdev => "does not want switchdev, without which there is no vDPA",
        })?;
        f.write_str(rank(*equal_priority))?;
        f.write_str(match why {
            LossReason::SameResource => {
                ": put both ranges into one policy, or give the two different resources"
            }
            LossReason::Overlap => ": give the two ranges that do not overlap",
            LossReason::NeedsSwitchdev => ": set eSwitchMode to switchdev in both, or remove vdpaType",
        })
    }
}

/// A setting in which a PF is as another policy wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overruled {
    /// Which, and how the two want it.
    pub setting: PfSetting,
    /// The policy that decides on the PF.
    pub by: String,
    /// Neither outranks the other: only their names decided.
    pub equal_priority: bool,
}

impl fmt::Display for Overruled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { setting, by, equal_priority } = self;
        let (field, (asked, given), rank) = (setting.field(), setting.words(), rank(*equal_priority));
        write!(
            f,
            "{field} is {given} and not {asked}, as policy {by} wants it for the whole PF{rank}: set {field} alike in both"
        )
    }
}

/// Why the other one has its way.
const fn rank(equal_priority: bool) -> &'static str {
    if equal_priority { ", with equal priority and a later name" } else { ", with a lower priority number" }
}

/// What two groups of VFs of which only one can stay have in common, or why else it cannot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossReason {
    /// The resource that they are given out as.
    SameResource,
    /// One or more VFs.
    Overlap,
    /// Nothing: the PF itself is in a mode in which the one that goes is not possible.
    NeedsSwitchdev,
}
