//! The vfleet program, built with the tests.

use std::process::ExitCode;

fn main() -> ExitCode {
    vfleet::main()
}
