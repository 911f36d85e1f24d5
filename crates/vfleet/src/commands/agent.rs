//! `vfleet agent`: the node daemon, on a real or a simulated machine.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use vfleet_api::keys::DEFAULT_NAMESPACE;
use vfleet_host::sim::Machine;
use vfleet_host::{Host, HostRoot, LinuxHost, SimHost};

use crate::{client, log, log_level, stop};

/// Run the agent of one node: it makes the node's network cards what its node state wants.
///
/// Talks to the cluster that KUBECONFIG names, or to the one that it runs in. Needs root on a real machine.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Name of the node that it runs on.
    #[arg(long, env = "NODE_NAME")]
    node: String,
    /// Namespace of the node state.
    #[arg(long, env = "NAMESPACE", default_value = DEFAULT_NAMESPACE)]
    namespace: String,
    /// Where the host's file tree is mounted.
    #[arg(long, default_value = "/")]
    host_root: PathBuf,
    /// Look after a simulated machine, described by this YAML file, instead of this one.
    #[arg(long, value_name = "FILE", conflicts_with = "host_root")]
    sim: Option<PathBuf>,
    #[command(flatten)]
    log: log::LogArguments,
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let level = log::start(arguments.log.log_format);
    let namespace = arguments.namespace.clone();
    let host: Arc<dyn Host> = match &arguments.sim {
        Some(file) => Arc::new(SimHost::new(&read_machine(file)?, &arguments.node)?),
        None => Arc::new(LinuxHost::new(HostRoot::new(&arguments.host_root))),
    };
    let config = vfleet_agent::Config::new(arguments.node, arguments.namespace, host);
    tokio::runtime::Runtime::new()?.block_on(async {
        let stop = stop::on_signal()?;
        let client = client::connect().await?;
        tokio::select! {
            ended = vfleet_agent::run(client.clone(), config, stop) => ended?,
            () = log_level::follow(client, &namespace, &level) => {}
        }
        Ok(())
    })
}

/// The machine that `file` describes.
pub(crate) fn read_machine(file: &Path) -> anyhow::Result<Machine> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    Machine::from_yaml(&text).with_context(|| format!("{} does not describe a machine", file.display()))
}
