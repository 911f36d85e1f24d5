//! Program `crashing_agent`: the agent on this machine, which kills itself once before and once after each of some
//! kinds of steps. Restarted repeatedly, it behaves like an agent that crashes at all of these steps.
//!
//! With the subcommand `boot` it is vfleet, because in systemd mode an agent installs its own program for the units.

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
use vfleet_host::{ChangeCallback, Host, HostError, HostRoot, LinuxHost, TaskHandle, WatchGuard};
use vfleet_plan::{HostFacts, Step};

/// Run the agent, and kill it before and after the first step of each of these kinds, unless that has happened before.
#[derive(Parser)]
struct Arguments {
    /// Name of the node.
    #[arg(long)]
    node: String,
    /// Namespace of the node state.
    #[arg(long, env = "NAMESPACE")]
    namespace: String,
    /// Kinds of steps at which to crash.
    #[arg(long, value_delimiter = ',')]
    kinds: Vec<String>,
    /// Let systemd units configure the cards at boot.
    #[arg(long)]
    systemd: bool,
    /// Manage software bridges, and enable hardware offload of Open vSwitch.
    #[arg(long)]
    bridges: bool,
    /// Addresses of the node.
    #[arg(long, env = "HOST_IPS", value_delimiter = ',')]
    host_ips: Vec<IpAddr>,
    /// File that lists the crashes so far.
    #[arg(long)]
    crashes: PathBuf,
}

/// Host that kills the process before and after some kinds of steps.
struct CrashingHost {
    host: LinuxHost,
    kinds: Vec<String>,
    crashes: PathBuf,
    /// Held by a step of these kinds, because steps run in parallel: after a crash at another step between this one and
    /// the crash after it, this one would not be executed again.
    executing: Mutex<()>,
}

impl CrashingHost {
    fn crash_once(&self, when: &str, step: &Step) -> Result<(), HostError> {
        let crash = format!("{when} {}", step.kind());
        self.crash_unless_listed(&crash)
            .map_err(|source| HostError::SystemResource { resource: "crash", source })
    }

    fn crash_unless_listed(&self, crash: &str) -> io::Result<()> {
        let mut crashes = OpenOptions::new().create(true).append(true).open(&self.crashes)?;
        if fs::read_to_string(&self.crashes)?.lines().any(|line| line == crash) {
            return Ok(());
        }
        writeln!(crashes, "{crash}")?;
        crashes.sync_all()?;
        kill(Pid::this(), Signal::SIGKILL)?;
        // The signal takes a moment to arrive.
        process::abort();
    }
}

impl Host for CrashingHost {
    fn facts(&self) -> Result<HostFacts, HostError> {
        self.host.facts()
    }

    fn start(&self, step: &Step) -> Result<TaskHandle<()>, HostError> {
        Ok(TaskHandle::completed(step.to_string(), self.execute(step)))
    }

    fn execute(&self, step: &Step) -> Result<(), HostError> {
        if !self.kinds.iter().any(|kind| kind == step.kind()) {
            return self.host.execute(step);
        }
        let _executing = self.executing.lock().unwrap_or_else(PoisonError::into_inner);
        self.crash_once("before", step)?;
        self.host.execute(step)?;
        if *step == Step::Reboot {
            return Ok(()); // The reboot kills the process.
        }
        self.crash_once("after", step)
    }

    fn on_change(&self, wake: ChangeCallback) -> Result<WatchGuard, HostError> {
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
            eprintln!("crashing_agent: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let Arguments { node, namespace, kinds, systemd, bridges, host_ips, crashes } = arguments;
    let host = LinuxHost::new(HostRoot::default()).with_ovs(bridges);
    let host: Arc<dyn Host> = Arc::new(CrashingHost { host, kinds, crashes, executing: Mutex::default() });
    let client = kube::Client::try_default().await?;
    let mut config = vfleet_agent::Config::new(node, namespace, host);
    config.settings.node_addresses = host_ips;
    config.settings.options.manage_bridges = bridges;
    config.settings.options.ovs_offload = bridges;
    if systemd {
        config.mode = vfleet_agent::Mode::Systemd;
    }
    vfleet_agent::run(client, config, CancellationToken::new()).await?;
    Ok(())
}
