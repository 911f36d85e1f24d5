//! Results of a policy on a node, for each PF.

use core::fmt;

use vfleet_api::node_state::UnknownFact;
use vfleet_api::{Parsed, PciAddress, VfRange};

use super::{PfMismatch, PfSetting, PolicyFault};
use crate::prelude::*;

/// Number of PFs named in a message: enough to see the pattern.
const MAX_PFS_IN_MESSAGE: usize = 4;

/// Results of a policy that selects the node by its labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyEvaluation {
    /// Name of the policy.
    pub policy: String,
    /// Result on each card, in the order in which the node reports the cards.
    pub pfs: Vec<PfEvaluation>,
}

impl PolicyEvaluation {
    /// Returns whether the policy selects any PF of the node, including PFs where it is invalid or undecided.
    pub fn selects(&self) -> bool {
        self.pfs.iter().any(|pf| !matches!(pf.outcome, PfOutcome::NotSelected(_)))
    }

    /// Returns why the policy selects no PF of the node.
    pub fn explain_no_pf(&self) -> String {
        if self.pfs.is_empty() {
            return "the node has no network card that supports VFs".to_owned();
        }
        let mut reasons: Vec<_> = self.pfs.iter().take(MAX_PFS_IN_MESSAGE).map(ToString::to_string).collect();
        if let more @ 1.. = self.pfs.len().saturating_sub(MAX_PFS_IN_MESSAGE) {
            reasons.push(format!("and {more} more PFs"));
        }
        reasons.join("; ")
    }
}

/// Result of a policy on one card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PfEvaluation {
    /// PCI address of the card.
    pub pci_address: Parsed<PciAddress>,
    /// Name of the interface of the card.
    pub name: Option<String>,
    /// Outcome for the policy.
    pub outcome: PfOutcome,
}

impl fmt::Display for PfEvaluation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "PF {name} ({}): {}", self.pci_address, self.outcome),
            None => write!(f, "PF {}: {}", self.pci_address, self.outcome),
        }
    }
}

/// Outcome of a policy on one PF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PfOutcome {
    /// The policy does not select the PF.
    NotSelected(PfMismatch),
    /// The policy selects the PF and gets all that it requests, except for the listed parts.
    Selected {
        /// VF groups that went to another policy.
        lost: Vec<LostVfGroup>,
        /// Settings of the PF that another policy decides.
        overruled: Vec<OverruledSetting>,
        /// Policy with a different value of externallyManaged.
        disagrees_with: Option<String>,
    },
    /// The policy is invalid and selects the PF, or may select it. The PF keeps its current desired state.
    Invalid(PolicyFault),
    /// The policy may select the PF: the facts that decide this are unknown. The PF keeps its current desired state.
    Undecided(Vec<UnknownFact>),
}

impl PfOutcome {
    /// Outcome of a policy that gets all that it requests.
    pub(super) const fn satisfied() -> Self {
        Self::Selected { lost: Vec::new(), overruled: Vec::new(), disagrees_with: None }
    }

    /// Returns whether the policy gets all that it requests.
    pub fn is_satisfied(&self) -> bool {
        *self == Self::satisfied()
    }

    /// Returns whether an administrator must resolve a conflict between policies: they have equal priority, or
    /// different values of externallyManaged.
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

    /// Returns whether a policy of higher precedence takes VFs of this policy, or decides a setting of the PF.
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

impl From<PfMismatch> for PfOutcome {
    fn from(mismatch: PfMismatch) -> Self {
        Self::NotSelected(mismatch)
    }
}

impl From<PolicyFault> for PfOutcome {
    fn from(fault: PolicyFault) -> Self {
        Self::Invalid(fault)
    }
}

impl fmt::Display for PfOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSelected(mismatch) => mismatch.fmt(f),
            Self::Invalid(fault) => fault.fmt(f),
            Self::Undecided(facts) => {
                let facts: Vec<_> = facts.iter().map(|fact| fact.as_str()).collect();
                write!(
                    f,
                    "{} of this PF cannot be read now, so its configuration is not changed: see the conditions of the node state",
                    facts.join(" and ")
                )
            }
            Self::Selected { lost, overruled, disagrees_with } => {
                let lost = lost.iter().map(ToString::to_string);
                let overruled = overruled.iter().map(ToString::to_string);
                let contradictions = disagrees_with.iter().map(|other| describe_contradiction(other));
                let sentences: Vec<_> = lost.chain(overruled).chain(contradictions).collect();
                match sentences.as_slice() {
                    [] => f.write_str("the PF is configured by the policy"),
                    several => f.write_str(&several.join("; ")),
                }
            }
        }
    }
}

fn describe_contradiction(other: &str) -> String {
    format!(
        "policy {other} has a different value of externallyManaged, so the PF is treated as externally managed: set externallyManaged in both policies, or in neither"
    )
}

/// VF group that a policy requests and another policy gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostVfGroup {
    /// Range of the VFs.
    pub range: VfRange,
    /// Policy that gets the VFs.
    pub to: String,
    /// Reason for the loss.
    pub why: LossReason,
    /// Both policies have the same priority: only their names decide.
    pub equal_priority: bool,
}

impl fmt::Display for LostVfGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { range, to, why, equal_priority } = self;
        write!(f, "VFs {range} went to policy {to}, which ")?;
        f.write_str(match why {
            LossReason::SameResource => "has the same resourceName on this PF",
            LossReason::Overlap => "requests some of them",
            LossReason::NeedsSwitchdev => "does not set eSwitchMode to switchdev, which vDPA needs",
        })?;
        f.write_str(describe_rank(*equal_priority))?;
        f.write_str(match why {
            LossReason::SameResource => ": put both ranges into one policy, or use different resource names",
            LossReason::Overlap => ": use VF ranges that do not overlap",
            LossReason::NeedsSwitchdev => {
                ": set eSwitchMode to switchdev in both policies, or remove vdpaType"
            }
        })
    }
}

/// Setting of a PF that another policy decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverruledSetting {
    /// Setting, with both values.
    pub setting: PfSetting,
    /// Policy that decides the setting.
    pub by: String,
    /// Both policies have the same priority: only their names decide.
    pub equal_priority: bool,
}

impl fmt::Display for OverruledSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { setting, by, equal_priority } = self;
        let (field, (requested, applied)) = (setting.field(), setting.values());
        let rank = describe_rank(*equal_priority);
        match setting {
            PfSetting::Bridge { .. } => write!(f, "the PF gets {applied} instead of {requested}")?,
            _ => write!(f, "{field} is {applied} instead of {requested}")?,
        }
        write!(
            f,
            ", because policy {by} decides it for the whole PF{rank}: use the same {field} in both policies"
        )
    }
}

/// Returns why the other policy wins.
const fn describe_rank(equal_priority: bool) -> &'static str {
    if equal_priority { ", with equal priority and a later name" } else { ", with a lower priority number" }
}

/// Reason why a VF group cannot exist next to the group or mode of another policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossReason {
    /// Both groups have the same resource name on this PF.
    SameResource,
    /// The groups share VFs.
    Overlap,
    /// The group has vDPA devices, and the PF is not in switchdev mode.
    NeedsSwitchdev,
}
