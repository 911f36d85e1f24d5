use thiserror::Error;

use crate::prelude::*;

/// Fault of a machine in systemd mode. The text includes the remedy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BootFault {
    /// The units reported an error.
    #[error("configuration at boot failed: {error}")]
    Failed {
        /// Error of the units.
        error: String,
    },
    /// A unit is running, or the last one did not finish.
    #[error(
        "the cards are not configured yet: if this persists, see `systemctl status 'sriov-config*'` and reboot the node"
    )]
    Unfinished,
    /// The cards changed after the units succeeded.
    #[error("the cards were changed after boot, and restoring them needs a reboot ({step}): reboot the node")]
    ChangedSince {
        /// First step that waits.
        step: String,
    },
    /// A reboot is needed, which a unit does not perform.
    #[error("another reboot is needed for {why}: wait for the agent, or reboot the node")]
    NeedsReboot {
        /// Purpose of the reboot.
        why: String,
    },
    /// The units left no result after reboots.
    #[error(
        "the systemd units left no result after {reboots} reboots: see `journalctl -b -u sriov-config.service`, then reboot the node"
    )]
    UnitsDidNotRun {
        /// Number of reboots.
        reboots: u32,
    },
}

impl BootFault {
    /// Returns the reason for conditions, Events and metrics.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Failed { .. } => "BootFailed",
            Self::Unfinished => "BootUnfinished",
            Self::ChangedSince { .. } => "ChangedSinceBoot",
            Self::NeedsReboot { .. } => "RebootRequired",
            Self::UnitsDidNotRun { .. } => "UnitsDidNotRun",
        }
    }
}
