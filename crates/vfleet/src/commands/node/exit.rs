//! How `vfleet node` ends.

use std::process::ExitCode;

use serde::Serialize;

/// What the exit status says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Exit {
    /// All is as wanted, or would be.
    Done,
    /// Something failed, cannot be, cannot be read, or is not as it was last wanted.
    Failed,
    /// Nothing was done: somebody would be disturbed.
    Refused,
    /// The machine restarts, and is not as wanted before that.
    Restarting,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        // 2 is for mistakes on the command line.
        Self::from(match exit {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Refused => 3,
            Exit::Restarting => 4,
        })
    }
}
