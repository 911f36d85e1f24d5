//! `vfleet boot`: what the units of systemd mode start.

use std::path::PathBuf;

use clap::ValueEnum;
use vfleet_host::{HostRoot, LockError, MachineLock, with_causes};
use vfleet_plan::{BootPhase, NodeSettings};

use crate::commands::agent::this_machine;
use crate::log;

/// Configure the network cards while the machine boots: what the units of systemd mode start.
///
/// Reads what is wanted from /etc/sriov-operator/sriov-interface-config.yaml, and leaves what came of it in
/// sriov-interface-result.yaml beside it.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Before the network starts, or when it is there.
    #[arg(long, value_enum)]
    phase: Phase,
    /// Where the host's file tree is mounted.
    #[arg(long, default_value = "/")]
    host_root: PathBuf,
    #[command(flatten)]
    log: log::LogArguments,
}

#[derive(Clone, Copy, ValueEnum)]
enum Phase {
    /// PFs are set up and VFs made.
    Pre,
    /// VFs are bound to their drivers.
    Post,
}

impl Phase {
    /// As the command line spells it.
    const fn name(self) -> &'static str {
        match self {
            Self::Pre => "pre",
            Self::Post => "post",
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    log::start(arguments.log.log_format);
    let root = &arguments.host_root;
    let phase = match arguments.phase {
        Phase::Pre => BootPhase::BeforeNetwork,
        Phase::Post => BootPhase::AfterNetwork,
    };
    let holder = format!("vfleet boot --phase {}", arguments.phase.name());
    let lock = MachineLock::for_run(&HostRoot::new(root), &holder);
    match &lock {
        Ok(_) => {}
        Err(error @ LockError::Failed { .. }) => {
            tracing::warn!(error = with_causes(error), "going on without a lock of the machine");
        }
        Err(error) => {
            let host = this_machine(root, &NodeSettings::default());
            return Ok(vfleet_agent::boot::refuse(&host, phase, &with_causes(error))?);
        }
    }
    let told = vfleet_agent::boot::settings(&this_machine(root, &NodeSettings::default()), phase)?;
    let host = this_machine(root, &told);
    Ok(vfleet_agent::boot::run(&host, phase)?)
}
