//! The machine that a command is about.

use std::path::PathBuf;

use vfleet_host::{Host, HostRoot, LinuxHost, SimHost};

use crate::commands::agent::read_machine;

/// Which machine.
#[derive(clap::Args)]
pub(super) struct MachineArguments {
    /// Where the host's file tree is mounted.
    #[arg(long, default_value = "/")]
    host_root: PathBuf,
    /// Try it on a simulated machine, described by this YAML file, which is gone when the command ends.
    #[arg(long, value_name = "FILE", conflicts_with = "host_root")]
    sim: Option<PathBuf>,
}

impl MachineArguments {
    /// The machine, in order to change it.
    pub(super) fn open_to_change(&self) -> anyhow::Result<Box<dyn Host>> {
        // Said once here, instead of by every step.
        if self.sim.is_none() && !nix::unistd::geteuid().is_root() {
            anyhow::bail!("changing this machine takes root: run it with sudo, or try it with --sim");
        }
        self.open()
    }

    /// The machine.
    pub(super) fn open(&self) -> anyhow::Result<Box<dyn Host>> {
        Ok(match &self.sim {
            Some(file) => Box::new(SimHost::new(&read_machine(file)?, "node")?),
            None => Box::new(LinuxHost::new(HostRoot::new(&self.host_root))),
        })
    }
}
