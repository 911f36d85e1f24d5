//! The tests that need a kernel or a systemd of their own (`on_kernel`, `on_systemd`), run in a machine of the lab: this
//! very test program, asked for what it ignores here.

use std::env;

use fixture_lab::{Job, Options, Vm};

/// As a pod sees it, the machine's tree is at `/host` too.
const SCRIPT: &str = "mkdir -p /host && mount --rbind / /host && exec \"$0\" --ignored --test-threads 1";

#[test]
fn what_is_ignored_here_holds_in_the_lab() {
    if fixture_lab::must_skip() {
        return;
    }
    let vm = Vm::boot(&Options::default()).unwrap();
    let program = vm.put(&env::current_exe().unwrap()).unwrap();
    let output = vm.run(&Job::new("bash").args(["-ec", SCRIPT, program.as_str()])).unwrap();
    let said = output.success().unwrap();
    print!("{said}");
    assert!(said.contains("test result: ok. "), "the machine ran no test");
    assert!(!said.contains("running 0 tests"), "the machine ran no test");
}
