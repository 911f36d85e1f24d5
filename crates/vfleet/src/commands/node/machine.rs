//! Machine that a command reads or changes.

use std::net::{AddrParseError, IpAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use vfleet_api::keys::agent_environment;
use vfleet_host::attachment::AttachmentHost;
use vfleet_host::{Host, HostRoot, LinuxHost, MachineLock, SimHost};
use vfleet_plan::{DEFAULT_PROTECTION_TIME, NodeOptions};

use crate::commands::agent::read_machine;
use crate::commands::bridges::BridgeArguments;

/// Longest time that cards may take to appear while a machine boots.
const CARD_TIMEOUT: Duration = Duration::from_mins(1);

/// Machine with cards, and with pods that they are attached to.
pub(super) trait NodeMachine: Host + AttachmentHost {}

impl<T: Host + AttachmentHost> NodeMachine for T {}

/// Options that select the machine.
#[derive(clap::Args)]
#[command(next_help_heading = "Machine")]
pub(super) struct MachineArguments {
    /// Directory where the root file system of the host is mounted
    #[arg(long, value_name = "DIRECTORY", default_value = "/")]
    host_root: PathBuf,
    /// Use a simulated machine, described by this YAML file, for the duration of the command
    #[arg(long, value_name = "FILE", conflicts_with = "host_root")]
    sim: Option<PathBuf>,
    /// Addresses of the machine, separated by commas
    ///
    /// Reports name them. Cards with any address are protected.
    #[arg(
        long,
        value_name = "ADDRESSES",
        env = agent_environment::HOST_IPS,
        default_value = "",
        hide_default_value = true,
        value_parser = parse_addresses
    )]
    host_ips: Addresses,
    /// Seconds that a card stays protected after the machine last used it
    #[arg(
        long,
        value_name = "SECONDS",
        env = agent_environment::HOST_PROTECTION_SECONDS,
        default_value_t = DEFAULT_PROTECTION_TIME.as_secs()
    )]
    host_protection_seconds: u64,
    #[command(flatten)]
    bridges: BridgeArguments,
}

/// List of addresses.
#[derive(Clone)]
struct Addresses(Vec<IpAddr>);

fn parse_addresses(text: &str) -> Result<Addresses, AddrParseError> {
    let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
    Ok(Addresses(words.map(str::parse).collect::<Result<_, _>>()?))
}

/// Fails unless this process runs as root: reported once here, instead of by every step.
fn require_root() -> anyhow::Result<()> {
    if nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    anyhow::bail!("changing this machine needs root: run the command with sudo, or try it with --sim")
}

impl MachineArguments {
    /// Opens the machine for changes, and locks it. `command` names the holder of the lock to other programs.
    pub(super) fn open_to_change(
        &self,
        command: &str,
    ) -> anyhow::Result<(Box<dyn NodeMachine>, Option<MachineLock>)> {
        if self.sim.is_some() {
            return Ok((self.open()?, None));
        }
        require_root()?;
        let lock = MachineLock::for_run_without_agent(&HostRoot::new(&self.host_root), command)?;
        Ok((self.open()?, Some(lock)))
    }

    /// Opens the machine for repairs of attachments, also beside an agent and other commands: as CNI plugins do, they lock
    /// each device that they change.
    pub(super) fn open_to_repair(&self) -> anyhow::Result<Box<dyn NodeMachine>> {
        if self.sim.is_none() {
            require_root()?;
        }
        self.open()
    }

    /// Returns whether programs of the machine can be started: not those of a file tree that is mounted in a container.
    pub(super) fn runs_programs(&self) -> bool {
        self.sim.is_some() || self.host_root == Path::new("/")
    }

    /// Opens the machine.
    pub(super) fn open(&self) -> anyhow::Result<Box<dyn NodeMachine>> {
        Ok(match &self.sim {
            Some(file) => Box::new(SimHost::new(&read_machine(file)?, "node")?),
            None => Box::new(self.this_machine()),
        })
    }

    /// Returns how long to wait for missing cards. A simulated machine does not change by itself.
    pub(super) const fn card_timeout(&self) -> Duration {
        if self.sim.is_some() { Duration::ZERO } else { CARD_TIMEOUT }
    }

    /// Returns the options of the planner.
    pub(super) fn options(&self) -> NodeOptions {
        NodeOptions {
            manage_bridges: self.bridges.manage_software_bridges,
            ovs_offload: self.bridges.manage_software_bridges && self.bridges.enables_offload(),
            ..NodeOptions::default()
        }
    }

    fn this_machine(&self) -> LinuxHost {
        LinuxHost::new(HostRoot::new(&self.host_root))
            .with_node_addresses(self.host_ips.0.clone())
            .with_protection(Duration::from_secs(self.host_protection_seconds))
            .with_ovsdb_socket(self.bridges.ovsdb_socket().to_owned())
            .with_ovs(self.bridges.manage_software_bridges)
    }
}
