//! `vfleet agent`: the node daemon, on a real or a simulated machine.

mod settings;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use kube::Client;
use vfleet_api::keys::{DEFAULT_NAMESPACE, agent_environment};
use vfleet_cluster::server::BindAddress;
use vfleet_host::sim::Machine;
use vfleet_host::{Host, HostRoot, LinuxHost, LockError, MachineLock, SimHost, with_causes};
use vfleet_plan::NodeSettings;

pub(crate) use self::settings::node_addresses;
use crate::{client, log, log_level, stop};

/// Threads for work on the machine end soon after it: an idle agent is one thread.
const KEEP_THREADS_FOR: Duration = Duration::from_millis(100);

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
    /// Where metrics are served for Prometheus, at /metrics, and /healthz; 0 is nowhere.
    ///
    /// :9110 is every address of the node, whose network the agent shares: network policies do not apply there. An address
    /// as in 127.0.0.1:9110 is that one only. The number of connections is limited.
    #[arg(
        long,
        value_name = "[ADDRESS]:PORT",
        env = agent_environment::METRICS_BIND_ADDRESS,
        default_value = "0"
    )]
    metrics_bind_address: BindAddress,
    #[command(flatten)]
    settings: settings::Settings,
    #[command(flatten)]
    log: log::LogArguments,
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let level = log::start(arguments.log.log_format);
    // One thread, and more only while there is work on the machine: an agent is idle most of its life.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_keep_alive(KEEP_THREADS_FOR)
        .build()?;
    runtime.block_on(async {
        let stop = stop::on_signal()?;
        let client = client::connect().await?;
        let namespace = arguments.namespace.clone();
        let metrics = arguments.metrics_bind_address;
        let _lock = lock(&arguments);
        let config = config(arguments, client.clone())?;
        tokio::spawn(vfleet_agent::serve_at(metrics, &config, stop.clone()));
        tokio::select! {
            ended = vfleet_agent::run(client.clone(), config, stop) => ended?,
            () = log_level::follow(client, &namespace, &level) => {}
        }
        Ok(())
    })
}

/// Tells `vfleet node` on the same machine that an agent looks after it. The agent works without that, too.
fn lock(arguments: &Arguments) -> Option<MachineLock> {
    if arguments.sim.is_some() {
        return None;
    }
    let holder = format!("vfleet agent of node {}", arguments.node);
    let lock = MachineLock::for_agent(&HostRoot::new(&arguments.host_root), &holder);
    let warn = |error: &LockError| {
        let error = with_causes(error);
        tracing::warn!(error, "`vfleet node` on this machine is not kept from changing it beside this agent");
    };
    lock.inspect_err(warn).ok()
}

fn config(arguments: Arguments, client: Client) -> anyhow::Result<vfleet_agent::Config> {
    let settings = arguments.settings.of_node();
    let host: Arc<dyn Host> = if let Some(file) = &arguments.sim {
        Arc::new(SimHost::new(&read_machine(file)?, &arguments.node)?)
    } else {
        let machine = this_machine(&arguments.host_root, &settings);
        Arc::new(machine.with_protection(arguments.settings.protection()))
    };
    let is_simulated = arguments.sim.is_some();
    let mut config = vfleet_agent::Config::new(arguments.node, arguments.namespace, host);
    if !is_simulated {
        // The operator tells its own agents their addresses; one that was started by hand has them from the Node alone.
        let told = settings.node_addresses.clone();
        config.node_context = Some(vfleet_agent::node_object::follow(client, &config.node, told));
    }
    config.settings = settings;
    arguments.settings.apply(&mut config);
    Ok(config)
}

/// This machine, with these settings.
pub(crate) fn this_machine(root: &Path, settings: &NodeSettings) -> LinuxHost {
    LinuxHost::new(HostRoot::new(root))
        .with_node_addresses(settings.node_addresses.clone())
        .with_lone_vfs(settings.has_lone_vfs)
}

/// The machine that `file` describes.
pub(crate) fn read_machine(file: &Path) -> anyhow::Result<Machine> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    // It says all that its causes say.
    Machine::from_yaml(&text)
        .map_err(|error| anyhow!("{} does not describe a machine: {error}", file.display()))
}
