//! `vfleet boot`: configuration at boot, started by the units of systemd mode.

use std::path::PathBuf;

use clap::ValueEnum;
use vfleet_host::{HostRoot, LockError, MachineLock, format_error_chain};
use vfleet_plan::{BootPhase, NodeSettings};

use crate::commands::agent::this_machine;
use crate::log;

/// Configure the network cards at boot (started by the systemd units of systemd mode)
///
/// Reads the desired state from /etc/sriov-operator/sriov-interface-config.yaml, and writes the result to
/// sriov-interface-result.yaml in the same directory.
#[derive(clap::Args)]
pub(crate) struct BootArguments {
    /// Boot phase: before or after the network is started
    #[arg(long, value_enum)]
    phase: Phase,
    /// Directory where the root file system of the host is mounted
    #[arg(long, value_name = "DIRECTORY", default_value = "/")]
    host_root: PathBuf,
    #[command(flatten)]
    log: log::LogArguments,
}

#[derive(Clone, Copy, ValueEnum)]
enum Phase {
    /// Before the network: configure PFs and create VFs
    Pre,
    /// Before the network, after Open vSwitch: create its bridges
    Bridges,
    /// After the network: bind VFs to their drivers
    Post,
}

impl Phase {
    /// Returns the name of the phase on the command line.
    const fn name(self) -> &'static str {
        match self {
            Self::Pre => "pre",
            Self::Bridges => "bridges",
            Self::Post => "post",
        }
    }
}

pub(crate) fn run(arguments: &BootArguments) -> anyhow::Result<()> {
    log::start(arguments.log.log_format);
    let root = &arguments.host_root;
    let phase = match arguments.phase {
        Phase::Pre => BootPhase::BeforeNetwork,
        Phase::Bridges => BootPhase::Bridges,
        Phase::Post => BootPhase::AfterNetwork,
    };
    let holder = format!("vfleet boot --phase {}", arguments.phase.name());
    let lock = MachineLock::for_run(&HostRoot::new(root), &holder);
    match &lock {
        Ok(_) => {}
        Err(error @ LockError::Failed { .. }) => {
            tracing::warn!(
                error = format_error_chain(error),
                "cannot lock the machine: going on without a lock"
            );
        }
        Err(error) => {
            let host = this_machine(root, &NodeSettings::default());
            return Ok(vfleet_agent::boot::write_refusal(&host, phase, &format_error_chain(error))?);
        }
    }
    let settings = vfleet_agent::boot::read_settings(&this_machine(root, &NodeSettings::default()), phase)?;
    let host = this_machine(root, &settings);
    Ok(vfleet_agent::boot::run(&host, phase)?)
}
