//! Entry point of the program `vfleet`; see `lib.rs`.

use std::process::ExitCode;

fn main() -> ExitCode {
    vfleet::main()
}
