//! Exit status of `vfleet node`.

use std::process::ExitCode;

use serde::Serialize;

/// Exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum ExitStatus {
    /// All cards are configured, or would be.
    Done,
    /// A step failed, a policy cannot be followed, a card cannot be read, or a card differs from its last
    /// configuration.
    Failed,
    /// No step was executed: the disruption is not allowed.
    Refused,
    /// The machine reboots, and is not configured before that.
    #[serde(rename = "restarting")]
    Rebooting,
}

impl From<ExitStatus> for ExitCode {
    fn from(exit: ExitStatus) -> Self {
        // clap uses 2 for an invalid command line.
        Self::from(match exit {
            ExitStatus::Done => 0,
            ExitStatus::Failed => 1,
            ExitStatus::Refused => 3,
            ExitStatus::Rebooting => 4,
        })
    }
}
