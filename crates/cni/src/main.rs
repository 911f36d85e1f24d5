//! The program `vfleet-cni`. A container runtime calls it by the name of a plugin.

use std::process::ExitCode;

use vfleet_host::{HostRoot, LinuxHost};

fn main() -> ExitCode {
    vfleet_cni::program::run(&LinuxHost::new(HostRoot::default().with_kept_connections()))
}
