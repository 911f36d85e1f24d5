//! The agent, on the machine that this runs on, but it kills itself twice for some kinds of steps: before the machine is
//! changed, and when it is and nobody knows. Who starts it again and again sees an agent that is killed at all of them.
//!
//! As `boot` it is vfleet: in systemd mode an agent installs itself for the units.

use std::env;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{self, ExitCode};
use std::sync::{Arc, Mutex, PoisonError};

use clap::Parser;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio_util::sync::CancellationToken;
use vfleet_host::{Host, HostError, HostRoot, LinuxHost, Running, Wake, Watch};
use vfleet_plan::{HostFacts, Step};

/// Run the agent, and kill it before and after the first step of each of these kinds, unless that was done before.
#[derive(Parser)]
struct Arguments {
    /// Name of the node.
    #[arg(long)]
    node: String,
    /// Namespace of the node state.
    #[arg(long, env = "NAMESPACE")]
    namespace: String,
    /// The kinds of steps.
    #[arg(long, value_delimiter = ',')]
    kinds: Vec<String>,
    /// Have units of systemd configure the cards at boot.
    #[arg(long)]
    systemd: bool,
    /// The node's own addresses.
    #[arg(long, env = "HOST_IPS", value_delimiter = ',')]
    host_ips: Vec<IpAddr>,
    /// The file that tells where it was killed already.
    #[arg(long)]
    deaths: PathBuf,
}

struct MortalHost {
    host: LinuxHost,
    kinds: Vec<String>,
    deaths: PathBuf,
    /// Several steps are executed at once; one of them is the last.
    dying: Mutex<()>,
}

impl MortalHost {
    fn may_die(&self, when: &str, step: &Step) -> Result<(), HostError> {
        if !self.kinds.iter().any(|kind| kind == step.kind()) {
            return Ok(());
        }
        let death = format!("{when} {}", step.kind());
        self.die_once(&death).map_err(|source| HostError::System { what: "death", source })
    }

    fn die_once(&self, death: &str) -> io::Result<()> {
        let _dying = self.dying.lock().unwrap_or_else(PoisonError::into_inner);
        let mut deaths = OpenOptions::new().create(true).append(true).open(&self.deaths)?;
        if fs::read_to_string(&self.deaths)?.lines().any(|known| known == death) {
            return Ok(());
        }
        writeln!(deaths, "{death}")?;
        deaths.sync_all()?;
        kill(Pid::this(), Signal::SIGKILL)?;
        // It takes a moment.
        process::abort();
    }
}

impl Host for MortalHost {
    fn facts(&self) -> Result<HostFacts, HostError> {
        self.host.facts()
    }

    fn start(&self, step: &Step) -> Result<Running<()>, HostError> {
        Ok(Running::completed(step.to_string(), self.execute(step)))
    }

    fn execute(&self, step: &Step) -> Result<(), HostError> {
        self.may_die("before", step)?;
        self.host.execute(step)?;
        if *step == Step::Reboot {
            return Ok(()); // and the machine will kill it
        }
        self.may_die("after", step)
    }

    fn on_change(&self, wake: Wake) -> Result<Watch, HostError> {
        self.host.on_change(wake)
    }
}

fn main() -> ExitCode {
    if env::args().nth(1).as_deref() == Some("boot") {
        return vfleet::main();
    }
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mortal agent: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let Arguments { node, namespace, kinds, systemd, host_ips, deaths } = arguments;
    let host = LinuxHost::new(HostRoot::default());
    let host: Arc<dyn Host> = Arc::new(MortalHost { host, kinds, deaths, dying: Mutex::default() });
    let client = kube::Client::try_default().await?;
    let mut config = vfleet_agent::Config::new(node, namespace, host);
    config.settings.node_addresses = host_ips;
    if systemd {
        config.mode = vfleet_agent::Mode::Systemd;
    }
    vfleet_agent::run(client, config, CancellationToken::new()).await?;
    Ok(())
}
