//! What goes wrong on the way from a node state to a changed machine.

use thiserror::Error;
use vfleet_api::PciAddress;
use vfleet_host::{HostError, with_causes};
use vfleet_plan::{Problem, Target};

/// Something that keeps the node from being as wanted.
#[derive(Debug, Error)]
pub enum Failure {
    /// It cannot be.
    #[error("{0}")]
    Impossible(Problem),
    /// A step failed.
    #[error("cannot {step}: {}", with_causes(.source))]
    Step {
        /// Part of the machine that the step changes.
        target: Target,
        /// The step, in one line.
        step: String,
        /// Why.
        source: HostError,
    },
    /// The machine cannot be read.
    #[error("cannot read the machine: {}", with_causes(.0))]
    Unreadable(HostError),
    /// The machine was to be restarted, and a step before that failed.
    #[error("the machine is not restarted (for {why}) while something else fails: see to that first")]
    RestartPutOff {
        /// What for.
        why: String,
    },
    /// All steps were executed, and still something is not as wanted.
    #[error("still to do after all steps were executed: {step}")]
    StillToDo {
        /// Part of the machine that the step changes.
        target: Target,
        /// The step and its reason, in one line.
        step: String,
    },
    /// All is as wanted, but an external drainer cannot be told so.
    #[error("{0}")]
    DrainerNotTold(String),
}

impl Failure {
    /// In one word, for conditions and events.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Impossible(problem) => problem.cause.reason(),
            Self::Step { source, .. } | Self::Unreadable(source) => source.reason(),
            Self::RestartPutOff { .. } => "RestartPutOff",
            Self::StillToDo { .. } => "NotVerified",
            Self::DrainerNotTold(_) => "DrainerNotTold",
        }
    }

    /// Returns the part of the machine that it is about; the whole of it where no step or PF is named.
    pub fn target(&self) -> Target {
        match self {
            Self::Impossible(problem) => problem.pf.map_or(Target::Machine, Target::Pf),
            Self::Step { target, .. } | Self::StillToDo { target, .. } => *target,
            Self::Unreadable(_) | Self::RestartPutOff { .. } | Self::DrainerNotTold(_) => Target::Machine,
        }
    }

    /// Returns the PF that it is about; `None` for the whole node.
    pub fn pf(&self) -> Option<PciAddress> {
        self.target().pf()
    }

    /// Returns whether the kernel takes no such step as things are now.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Step { source, .. } if source.is_refusal())
    }

    /// Whether a node that was drained for the work stays so: it goes on as soon as it can. What cannot be, or cannot be
    /// seen, may last for ever.
    pub fn keeps_the_node_drained(&self) -> bool {
        match self {
            Self::Impossible(problem) => problem.is_under_way(),
            Self::Step { .. } | Self::Unreadable(_) | Self::RestartPutOff { .. } | Self::StillToDo { .. } => {
                true
            }
            Self::DrainerNotTold(_) => false,
        }
    }

    /// Returns whether the machine is looked at again from time to time, for somebody may have removed the cause.
    pub fn is_worth_a_look(&self) -> bool {
        matches!(self, Self::Impossible(problem) if problem.may_end_on_the_machine())
    }

    /// Whether trying again can help although nothing changed.
    pub fn is_worth_a_retry(&self) -> bool {
        match self {
            Self::Impossible(problem) => problem.is_worth_a_retry(),
            Self::Step { .. }
            | Self::Unreadable(_)
            | Self::RestartPutOff { .. }
            | Self::StillToDo { .. }
            | Self::DrainerNotTold(_) => true,
        }
    }
}
