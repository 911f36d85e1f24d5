//! Network namespaces for tests with the kernel.

use std::process::Command;
use std::thread;

use nix::sched::{CloneFlags, unshare};
use serde_json::Value;

/// Runs a test in a new network namespace, which ends with it.
pub(super) fn run_in_namespace(test: impl FnOnce() + Send) {
    thread::scope(|scope| {
        let test = scope.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            test();
        });
        test.join().unwrap();
    });
}

/// Runs a script in the network namespace of this thread and returns its output.
pub(super) fn shell(script: &str) -> String {
    let output = Command::new("bash").args(["-euc", script]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns what iproute2 says about an interface; `None` if it does not exist.
pub(super) fn iproute(name: &str) -> Option<Value> {
    let links: Vec<Value> = serde_json::from_str(&shell("ip -d -j link")).unwrap();
    links.into_iter().find(|link| link["ifname"] == name)
}
