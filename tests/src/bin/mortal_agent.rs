//! The agent, on the machine that this runs on, but it kills itself once for each kind of step: when the machine is
//! changed, and nobody knows. Who starts it again and again sees an agent that is killed at all of them.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process;
use std::sync::{Arc, Mutex, PoisonError};

use clap::Parser;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio_util::sync::CancellationToken;
use vfleet_host::{Host, HostError, HostRoot, LinuxHost, Wake, Watch};
use vfleet_plan::{HostFacts, Step};

/// Run the agent, and kill it at the first step of each kind at which it was not killed yet.
#[derive(Parser)]
struct Arguments {
    /// Name of the node.
    #[arg(long)]
    node: String,
    /// Namespace of the node state.
    #[arg(long, env = "NAMESPACE")]
    namespace: String,
    /// The file that tells where it was killed already.
    #[arg(long)]
    deaths: PathBuf,
}

struct MortalHost {
    host: LinuxHost,
    deaths: PathBuf,
    /// Several steps are executed at once; one of them is the last.
    dying: Mutex<()>,
}

impl MortalHost {
    fn may_die(&self, step: &Step) -> io::Result<()> {
        let _dying = self.dying.lock().unwrap_or_else(PoisonError::into_inner);
        if fs::read_to_string(&self.deaths)?.lines().any(|known| known == step.kind()) {
            return Ok(());
        }
        let mut deaths = OpenOptions::new().append(true).open(&self.deaths)?;
        writeln!(deaths, "{}", step.kind())?;
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

    fn execute(&self, step: &Step) -> Result<(), HostError> {
        self.host.execute(step)?;
        self.may_die(step).map_err(|source| HostError::System { what: "death", source })
    }

    fn on_change(&self, wake: Wake) -> Result<Watch, HostError> {
        self.host.on_change(wake)
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Arguments { node, namespace, deaths } = Arguments::parse();
    let host = LinuxHost::new(HostRoot::default());
    let host: Arc<dyn Host> = Arc::new(MortalHost { host, deaths, dying: Mutex::default() });
    let client = kube::Client::try_default().await?;
    vfleet_agent::run(client, vfleet_agent::Config::new(node, namespace, host), CancellationToken::new())
        .await?;
    Ok(())
}
