use core::fmt;

use serde::Serialize;

use super::Step;
use crate::modules::OPTIONAL_MODULES;
use crate::node::Problem;
use crate::prelude::*;

/// Worst effect of a step on others. Serialized by the name of the variant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Disruption {
    /// No effect on others.
    #[default]
    None,
    /// Only the changed VFs, which no pod holds.
    Vf,
    /// Brief link loss of a PF.
    Pf,
    /// Pods that use VFs of the node must leave.
    Drain,
    /// The node reboots.
    Reboot,
}

impl Disruption {
    /// Returns the text for status, Events, logs and tables.
    pub const fn description(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Vf => "these VFs only",
            Self::Pf => "brief link loss",
            Self::Drain => "pods must leave",
            Self::Reboot => "reboot",
        }
    }
}

/// Step with its disruption and its reason.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedStep {
    /// The step.
    pub step: Step,
    /// Effect of the step on others.
    pub disruption: Disruption,
    /// Reason of the step, for messages.
    pub why: String,
}

impl PlannedStep {
    /// Returns whether the desired state is reached even if the step fails.
    pub fn is_optional(&self) -> bool {
        matches!(&self.step, Step::LoadModule { module, .. } if OPTIONAL_MODULES.contains(&module.as_str()))
    }
}

impl fmt::Display for PlannedStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}  # {}", self.step, self.why)
    }
}

/// Steps, and problems that prevent the desired state. Steps run in this order; [`crate::schedule`] says which of them
/// may run in parallel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Steps: first those of the machine, then PF by PF, then again those of the machine (a reboot is the last step).
    pub steps: Vec<PlannedStep>,
    /// Problems that prevent the desired state.
    pub problems: Vec<Problem>,
}

impl Plan {
    /// Returns the worst disruption of all steps.
    pub fn disruption(&self) -> Disruption {
        self.steps.iter().map(|planned| planned.disruption).max().unwrap_or_default()
    }

    /// Returns whether the desired state is reached.
    pub fn is_done(&self) -> bool {
        self.steps.is_empty() && self.problems.is_empty()
    }
}
