//! The tests that need a kernel or a systemd of their own (`on_kernel`, `on_systemd`), run in a machine of the lab: this
//! very test program, asked for what it ignores here.

use std::env;

use fixture_lab::{Options, Vm};

#[test]
fn what_is_ignored_here_holds_in_the_lab() {
    if fixture_lab::must_skip() {
        return;
    }
    let vm = Vm::boot(&Options::default()).unwrap();
    let said = vm.run_ignored_tests(&env::current_exe().unwrap()).unwrap();
    eprint!("{said}");
}
