//! `vfleet agent`: node daemon, on a real or a simulated machine.

mod settings;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use kube::Client;
use vfleet_api::keys::{DEFAULT_NAMESPACE, agent_environment};
use vfleet_cluster::server::BindAddress;
use vfleet_host::attachment::AttachmentHost;
use vfleet_host::sim::Machine;
use vfleet_host::{Host, HostRoot, LinuxHost, LockError, MachineLock, SimHost, format_error_chain};
use vfleet_plan::NodeSettings;
use vfleet_plan::bridge_resources::BridgeResourceMode;

pub(crate) use self::settings::{parse_bool, parse_node_addresses};
use crate::{client, log, log_level, stop};

/// Time that an idle thread is kept. An idle agent has one thread.
const THREAD_KEEP_ALIVE: Duration = Duration::from_millis(100);

/// Run the agent of a node: it configures the node's network cards as its node state requests
///
/// Uses the cluster of KUBECONFIG, or the cluster that the agent runs in. Needs root on a real machine.
#[derive(clap::Args)]
pub(crate) struct AgentArguments {
    /// Name of the node that the agent runs on
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    node: String,
    /// Namespace of the node state
    #[arg(long, value_name = "NAMESPACE", env = "NAMESPACE", default_value = DEFAULT_NAMESPACE)]
    namespace: String,
    /// Directory where the root file system of the host is mounted
    #[arg(long, value_name = "DIRECTORY", default_value = "/")]
    host_root: PathBuf,
    /// Configure a simulated machine, described by this YAML file, instead of this machine
    #[arg(long, value_name = "FILE", conflicts_with = "host_root")]
    sim: Option<PathBuf>,
    /// Address of the metrics server (/metrics and /healthz); 0 disables the server
    ///
    /// :9110 listens on all addresses of the node, since the agent uses the host network. Network policies do not apply
    /// there. 127.0.0.1:9110 listens on that address only. The number of connections is limited.
    #[arg(
        long,
        help_heading = "Servers",
        value_name = "[ADDRESS]:PORT",
        env = agent_environment::METRICS_BIND_ADDRESS,
        default_value = "0"
    )]
    metrics_bind_address: BindAddress,
    #[command(flatten)]
    settings: settings::SettingsArguments,
    #[command(flatten)]
    log: log::LogArguments,
}

pub(crate) fn run(arguments: AgentArguments) -> anyhow::Result<()> {
    let level = log::start(arguments.log.log_format);
    // One thread, and more only while the machine is read or changed: an agent is idle most of the time.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_keep_alive(THREAD_KEEP_ALIVE)
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
            () = log_level::watch_log_level(client, &namespace, &level) => {}
        }
        Ok(())
    })
}

/// Locks the machine, so that `vfleet node` does not change it beside the agent. The agent works without the lock, too.
fn lock(arguments: &AgentArguments) -> Option<MachineLock> {
    if arguments.sim.is_some() {
        return None;
    }
    let holder = format!("vfleet agent of node {}", arguments.node);
    let lock = MachineLock::for_agent(&HostRoot::new(&arguments.host_root), &holder);
    let warn = |error: &LockError| {
        let error = format_error_chain(error);
        tracing::warn!(error, "cannot lock the machine: `vfleet node` may change it while this agent runs");
    };
    lock.inspect_err(warn).ok()
}

fn config(arguments: AgentArguments, client: Client) -> anyhow::Result<vfleet_agent::Config> {
    let settings = arguments.settings.node_settings();
    let (host, attachments) = if let Some(file) = &arguments.sim {
        share(SimHost::new(&read_machine(file)?, &arguments.node)?)
    } else {
        let (directory, others) =
            (arguments.settings.cni_directory(), arguments.settings.other_cni_plugins());
        let reports_bridges = arguments.settings.bridge_resources() == BridgeResourceMode::Reported;
        let machine = this_machine(&arguments.host_root, &settings)
            .with_ovs(settings.options.manage_bridges || reports_bridges)
            .with_protection(arguments.settings.protection_time())
            .with_cni_directory(directory, others);
        share(machine)
    };
    let is_simulated = arguments.sim.is_some();
    let mut config = vfleet_agent::Config::new(arguments.node, arguments.namespace, host);
    config.attachments = Some(attachments);
    if !is_simulated {
        // The operator passes addresses to its agents. An agent that was started by hand has only those of the Node.
        let addresses = settings.node_addresses.clone();
        config.node_context = Some(vfleet_agent::node_object::watch_node(client, &config.node, addresses));
    }
    config.settings = settings;
    arguments.settings.apply(&mut config);
    Ok(config)
}

/// Returns both interfaces of a machine.
fn share<T: Host + AttachmentHost + 'static>(machine: T) -> (Arc<dyn Host>, Arc<dyn AttachmentHost>) {
    let machine = Arc::new(machine);
    (Arc::clone(&machine) as _, machine)
}

/// Returns the host interface of this machine.
pub(crate) fn this_machine(root: &Path, settings: &NodeSettings) -> LinuxHost {
    LinuxHost::new(HostRoot::new(root))
        .with_node_addresses(settings.node_addresses.clone())
        .with_lone_vfs(settings.has_lone_vfs)
        .with_ovsdb_socket(settings.ovsdb_socket.clone())
        .with_ovs(settings.options.manage_bridges)
}

/// Reads the description of a simulated machine.
pub(crate) fn read_machine(file: &Path) -> anyhow::Result<Machine> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    // The text of the error contains its causes.
    Machine::from_yaml(&text)
        .map_err(|error| anyhow!("{} is not a description of a machine: {error}", file.display()))
}
