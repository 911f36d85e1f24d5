use core::fmt;

use super::Step;
use crate::modules::WELCOME;
use crate::node::Problem;
use crate::prelude::*;

/// How much a change disturbs those who use the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Disruption {
    /// Nobody notices.
    #[default]
    None,
    /// A VF that no pod holds.
    Vf,
    /// A PF, in a way that its users do not notice.
    Pf,
    /// Pods that use VFs of this node.
    Drain,
    /// The whole node.
    Reboot,
}

impl Disruption {
    /// As status, events and metrics spell it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Vf => "Vf",
            Self::Pf => "Pf",
            Self::Drain => "Drain",
            Self::Reboot => "Reboot",
        }
    }
}

/// A step with its reason.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedStep {
    /// What to do.
    pub step: Step,
    /// Whom it disturbs.
    pub disruption: Disruption,
    /// Why.
    pub why: String,
}

impl PlannedStep {
    /// Whether the machine is as wanted also without it: it is tried, and that is all.
    pub fn is_optional(&self) -> bool {
        matches!(&self.step, Step::LoadModule { module, .. } if WELCOME.contains(&module.as_str()))
    }
}

impl fmt::Display for PlannedStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}  # {}", self.step, self.why)
    }
}

/// What to do, and what cannot be done. In this order when nothing is done at once; [`crate::schedule`] says what may be.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// What to do: first for the whole machine, then PF by PF, then for the whole machine again (a restart comes last).
    pub steps: Vec<PlannedStep>,
    /// What was wanted and cannot be.
    pub problems: Vec<Problem>,
}

impl Plan {
    /// How much all of it disturbs: as much as its most disturbing step.
    pub fn disruption(&self) -> Disruption {
        self.steps.iter().map(|planned| planned.disruption).max().unwrap_or_default()
    }

    /// Whether the machine is as wanted.
    pub fn is_done(&self) -> bool {
        self.steps.is_empty() && self.problems.is_empty()
    }
}
