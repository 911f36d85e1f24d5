use thiserror::Error;

use crate::prelude::*;

/// Why a machine in systemd mode is not as wanted. The text says what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BootFault {
    /// The units say so.
    #[error("at boot: {error}")]
    Failed {
        /// In their words.
        error: String,
    },
    /// A unit is at work; or the second one was never done.
    #[error(
        "the cards are not configured yet: if this lasts, see `systemctl status 'sriov-config*'`, and restart the node"
    )]
    Unfinished,
    /// The units succeeded, but that is not how the machine is any more.
    #[error(
        "the machine is not any more as the units of systemd left it, which takes a restart to mend ({step}): restart the node"
    )]
    ChangedSince {
        /// What is to be done.
        step: String,
    },
    /// A unit cannot do it, and must not restart the machine.
    #[error("the machine must be restarted once more, for {why}: the agent does that, or restart the node")]
    NeedsRestart {
        /// What for.
        why: String,
    },
    /// The machine was restarted, and the units left nothing.
    #[error(
        "the machine was restarted {restarts} times, but the units of systemd left no result: see `journalctl -b -u sriov-config.service`, then restart the node"
    )]
    UnitsDidNotRun {
        /// How often.
        restarts: u32,
    },
}

impl BootFault {
    /// In one word, for conditions, events and metrics.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Failed { .. } => "BootFailed",
            Self::Unfinished => "BootUnfinished",
            Self::ChangedSince { .. } => "ChangedSinceBoot",
            Self::NeedsRestart { .. } => "RestartNeeded",
            Self::UnitsDidNotRun { .. } => "UnitsDidNotRun",
        }
    }
}
