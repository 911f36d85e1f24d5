//! Failures of the configuration of a machine.

use thiserror::Error;
use vfleet_api::PciAddress;
use vfleet_host::{HostError, format_error_chain};
use vfleet_plan::{Cause, Problem, Target};

/// Reason why the node is not in the desired state.
#[derive(Debug, Error)]
pub enum Failure {
    /// The planner found a problem: the desired state cannot be reached.
    #[error("{0}")]
    Problem(Problem),
    /// A step failed.
    #[error("{}", describe_failed_step(.step, .source))]
    Step {
        /// Part of the machine that the step changes.
        target: Target,
        /// Step, in one line.
        step: String,
        /// The step may be possible only while the node is drained.
        needs_drain: bool,
        /// Error of the step.
        source: HostError,
    },
    /// The machine cannot be read.
    #[error("cannot read the machine: {}", format_error_chain(.0))]
    Unreadable(HostError),
    /// A reboot is needed, and a step before it failed.
    #[error("the node is not rebooted (reason: {why}) while another step fails: fix that step first")]
    RebootPostponed {
        /// Reason of the reboot.
        why: String,
    },
    /// All steps were executed, but the machine still differs from the desired state.
    #[error("all steps were executed, but this one is still needed: {step}")]
    NotVerified {
        /// Part of the machine that the step changes.
        target: Target,
        /// Step and its reason, in one line.
        step: String,
        /// The step may be possible only while the node is drained.
        needs_drain: bool,
    },
    /// The external drainer cannot be notified that the drain is over.
    #[error("{0}")]
    DrainerNotNotified(String),
}

/// Returns the text of a failed step. Errors of some steps begin with it.
pub(crate) fn describe_failed_step(step: &str, source: &HostError) -> String {
    let (failed, error) = (format!("cannot {step}"), format_error_chain(source));
    if error.starts_with(&failed) { error } else { format!("{failed}: {error}") }
}

/// Returns the part of the machine that the problem is about; the whole machine if it has no PF.
pub(crate) fn problem_target(problem: &Problem) -> Target {
    let target = if matches!(problem.cause, Cause::Bridge(_)) { Target::Bridge } else { Target::Pf };
    problem.pf.map_or(Target::Machine, target)
}

impl Failure {
    /// Returns the reason in one word, for conditions and Events.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Problem(problem) => problem.cause.reason(),
            Self::Step { source, .. } | Self::Unreadable(source) => source.reason(),
            Self::RebootPostponed { .. } => "RebootPostponed",
            Self::NotVerified { .. } => "NotVerified",
            Self::DrainerNotNotified(_) => "DrainerNotNotified",
        }
    }

    /// Returns the part of the machine that the failure is about; the whole machine if there is no step or PF.
    pub fn target(&self) -> Target {
        match self {
            Self::Problem(problem) => problem_target(problem),
            Self::Step { target, .. } | Self::NotVerified { target, .. } => *target,
            Self::Unreadable(_) | Self::RebootPostponed { .. } | Self::DrainerNotNotified(_) => {
                Target::Machine
            }
        }
    }

    /// Returns the PF that the failure is about; `None` for the whole node.
    pub fn pf(&self) -> Option<PciAddress> {
        self.target().pf()
    }

    /// Returns whether the kernel refused the step in the present state of the machine.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Step { source, .. } if source.is_refusal())
    }

    /// Returns whether a drained node stays drained until the failure is gone. A problem may last forever.
    pub fn keeps_node_drained(&self) -> bool {
        match self {
            Self::Problem(problem) => problem.is_in_progress(),
            Self::Step { needs_drain, .. } | Self::NotVerified { needs_drain, .. } => *needs_drain,
            Self::Unreadable(_) | Self::RebootPostponed { .. } => true,
            Self::DrainerNotNotified(_) => false,
        }
    }

    /// Returns whether no other step of the lane was executed after the failed one.
    pub fn ends_lane(&self) -> bool {
        !matches!(self, Self::Step { needs_drain: false, .. })
    }

    /// Returns whether the machine is read again from time to time, because an administrator may have fixed the cause.
    pub fn needs_recheck(&self) -> bool {
        matches!(self, Self::Problem(problem) if problem.may_be_solved_on_host())
    }

    /// Returns whether a retry can help although nothing changed.
    pub fn needs_retry(&self) -> bool {
        match self {
            Self::Problem(problem) => problem.is_retryable(),
            Self::Step { .. }
            | Self::Unreadable(_)
            | Self::RebootPostponed { .. }
            | Self::NotVerified { .. }
            | Self::DrainerNotNotified(_) => true,
        }
    }
}
