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

pub(in crate::linux) fn reload(_: &HostRoot, attempt: &str) -> Result<(), HostError> {
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::linux::tree::Tree;

    #[test]
    fn every_request_is_refused_and_says_whom_to_ask() {
        let tree = Tree::new();
        let (root, attempt) = (tree.root(), "reach systemd");
        let command = Command::new("true", Duration::from_secs(1)).arguments(["x"]);
        let run = run_command(root, &command, "/usr/bin/true", &Capture::new().unwrap());
        let refused = [
            (enable_unit(root, "a.service", attempt), attempt),
            (disable_unit(root, "a.service", attempt), attempt),
            (reload(root, attempt), attempt),
            (reboot(root, attempt), attempt),
            (run.map(|ended| panic!("{ended:?}")), "run true x"),
        ];
        for (result, attempt) in refused {
            let error = result.unwrap_err();
            assert_eq!(error.reason(), "WithoutSystemd");
            let text = error.to_string();
            assert!(text.starts_with(&format!("cannot {attempt}: ")) && text.contains("vfleet"), "{text}");
        }
    }
}
