//! Requests to systemd in a program without the feature `systemd`: each of them fails.

use crate::HostError;
use crate::linux::command::{Capture, Command, CommandOutcome};
use crate::linux::root::HostRoot;

pub(in crate::linux) fn enable_unit(_: &HostRoot, _: &str, attempt: &str) -> Result<(), HostError> {
    Err(unsupported(attempt))
}

pub(in crate::linux) fn disable_unit(_: &HostRoot, _: &str, attempt: &str) -> Result<(), HostError> {
    Err(unsupported(attempt))
}

pub(in crate::linux) fn reload(_: &HostRoot, attempt: &str) -> Result<(), HostError> {
    Err(unsupported(attempt))
}

pub(in crate::linux) fn reboot(_: &HostRoot, attempt: &str) -> Result<(), HostError> {
    Err(unsupported(attempt))
}

pub(in crate::linux) fn run_command(
    _: &HostRoot,
    command: &Command,
    _: &str,
    _: &Capture,
) -> Result<CommandOutcome, HostError> {
    Err(unsupported(&format!("run {command}")))
}

fn unsupported(attempt: &str) -> HostError {
    HostError::SystemdUnsupported { attempt: attempt.to_owned() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::linux::test_tree::TestTree;

    #[test]
    fn every_request_fails_and_names_the_remedy() {
        let tree = TestTree::new();
        let (root, attempt) = (tree.root(), "reach systemd");
        let command = Command::new("true", Duration::from_secs(1)).arguments(["x"]);
        let run = run_command(root, &command, "/usr/bin/true", &Capture::new().unwrap());
        let refused = [
            (enable_unit(root, "a.service", attempt), attempt),
            (disable_unit(root, "a.service", attempt), attempt),
            (reload(root, attempt), attempt),
            (reboot(root, attempt), attempt),
            (run.map(|outcome| panic!("{outcome:?}")), "run true x"),
        ];
        for (result, attempt) in refused {
            let error = result.unwrap_err();
            assert_eq!(error.reason(), "SystemdUnsupported");
            let text = error.to_string();
            assert!(text.starts_with(&format!("cannot {attempt}: ")) && text.contains("vfleet"), "{text}");
        }
    }
}
