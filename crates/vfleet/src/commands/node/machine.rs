//! The machine that a command is about.

use std::net::{AddrParseError, IpAddr};
use std::path::PathBuf;
use std::time::Duration;

use vfleet_api::keys::agent_environment;
use vfleet_host::{Host, HostRoot, LinuxHost, MachineLock, SimHost};
use vfleet_plan::PROTECTION;

use crate::commands::agent::read_machine;

/// How long cards may take to appear while a machine boots.
const CARDS_DEADLINE: Duration = Duration::from_mins(1);

/// Which machine.
#[derive(clap::Args)]
pub(super) struct MachineArguments {
    /// Where the host's file tree is mounted.
    #[arg(long, default_value = "/")]
    host_root: PathBuf,
    /// Try it on a simulated machine, described by this YAML file, which is gone when the command ends.
    #[arg(long, value_name = "FILE", conflicts_with = "host_root")]
    sim: Option<PathBuf>,
    /// The machine's own addresses, separated by commas: reports tell them from others. Every card that carries an address
    /// is protected.
    #[arg(long, value_name = "ADDRESSES", env = agent_environment::HOST_IPS, default_value = "", value_parser = addresses)]
    host_ips: Addresses,
    /// How long a card that the machine itself used stays protected after that was last seen.
    #[arg(long, value_name = "SECONDS", env = agent_environment::HOST_PROTECTION_SECONDS, default_value_t = PROTECTION.as_secs())]
    host_protection_seconds: u64,
}

/// Addresses, separated by commas.
#[derive(Clone)]
struct Addresses(Vec<IpAddr>);

fn addresses(text: &str) -> Result<Addresses, AddrParseError> {
    let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
    Ok(Addresses(words.map(str::parse).collect::<Result<_, _>>()?))
}

impl MachineArguments {
    /// The machine, in order to change it, and the lock that keeps others from that. `command` is what they are told.
    pub(super) fn open_to_change(
        &self,
        command: &str,
    ) -> anyhow::Result<(Box<dyn Host>, Option<MachineLock>)> {
        if self.sim.is_some() {
            return Ok((self.open()?, None));
        }
        // Said once here, instead of by every step.
        if !nix::unistd::geteuid().is_root() {
            anyhow::bail!("changing this machine takes root: run it with sudo, or try it with --sim");
        }
        let lock = MachineLock::for_run_without_agent(&HostRoot::new(&self.host_root), command)?;
        Ok((self.open()?, Some(lock)))
    }

    /// The machine.
    pub(super) fn open(&self) -> anyhow::Result<Box<dyn Host>> {
        Ok(match &self.sim {
            Some(file) => Box::new(SimHost::new(&read_machine(file)?, "node")?),
            None => Box::new(self.this_machine()),
        })
    }

    /// How long cards that are not there may still come. A simulated machine is what it is.
    pub(super) const fn patience(&self) -> Duration {
        if self.sim.is_some() { Duration::ZERO } else { CARDS_DEADLINE }
    }

    fn this_machine(&self) -> LinuxHost {
        LinuxHost::new(HostRoot::new(&self.host_root))
            .with_node_addresses(self.host_ips.0.clone())
            .with_protection(Duration::from_secs(self.host_protection_seconds))
    }
}
