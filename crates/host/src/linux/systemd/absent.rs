//! Requests to systemd in a program that is built without the feature `systemd`: each is refused.

use crate::HostError;
use crate::linux::command::{Capture, Command, Ended};
use crate::linux::root::HostRoot;

pub(in crate::linux) fn enable_unit(_: &HostRoot, _: &str, attempt: &str) -> Result<(), HostError> {
    Err(refusal(attempt))
}

pub(in crate::linux) fn disable_unit(_: &HostRoot, _: &str, attempt: &str) -> Result<(), HostError> {
    Err(refusal(attempt))
}

pub(in crate::linux) fn reboot(_: &HostRoot, attempt: &str) -> Result<(), HostError> {
    Err(refusal(attempt))
}

pub(in crate::linux) fn run_command(
    _: &HostRoot,
    command: &Command,
    _: &str,
    _: &Capture,
) -> Result<Ended, HostError> {
    Err(refusal(&format!("run {command}")))
}

fn refusal(attempt: &str) -> HostError {
    HostError::WithoutSystemd { attempt: attempt.to_owned() }
}
