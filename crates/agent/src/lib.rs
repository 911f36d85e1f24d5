//! Node daemon: watches its node state, reads the machine, plans, executes, verifies and reports. All decisions are made by
//! `vfleet_plan`.
//!
//! The agent wakes up when its node state changes, when the machine changes, and when a retry is due; never otherwise. Beside
//! that it releases devices of pods that are gone, and reports Open vSwitch bridges as resources of the Node.

pub mod apply;
mod attachments;
mod attempt;
pub mod boot;
mod bridge_resources;
mod cluster_writer;
mod detached;
mod go_device_plugin;
mod metrics;
mod mode;
mod nic_ids;
pub mod node_object;
mod notice;
mod progress;
mod run;
mod single_object;
mod status;
mod wake_timer;
mod watch_log;

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;
use vfleet_api::conditions::ConditionUpdate;
use vfleet_host::Host;
use vfleet_host::attachment::AttachmentHost;
use vfleet_plan::bridge_resources::BridgeResourceMode;
use vfleet_plan::{NodeSettings, NodeSnapshot};

use node_object::NodeContextState;

pub use metrics::{Metrics, serve, serve_at};
pub use mode::Mode;
pub use run::{AgentError, run};

/// Conditions of the node state that do not come from attempts, by type. Other conditions of that kind are removed from
/// the node state.
pub type ProcessConditions = BTreeMap<&'static str, ConditionUpdate>;

/// Configuration of an agent.
#[derive(Clone)]
pub struct Config {
    /// Name of the node.
    pub node: String,
    /// Namespace of the node state.
    pub namespace: String,
    /// Machine that the agent configures.
    pub host: Arc<dyn Host>,
    /// The same machine, on which the agent releases attachments of pods that are gone; `None` if it does not.
    pub attachments: Option<Arc<dyn AttachmentHost>>,
    /// Platform and addresses of the node, from its Node object. Before they are known, the agent neither changes nor
    /// reports anything. `None` for a simulated machine.
    pub node_context: Option<watch::Receiver<NodeContextState>>,
    /// Settings that influence plans.
    pub settings: NodeSettings,
    /// Configuration by the agent itself, or by systemd units at boot.
    pub mode: Mode,
    /// Report only the kinds of cards that the ConfigMap `supported-nic-ids` lists, if it exists.
    pub follows_nic_ids: bool,
    /// External Go device plugin on the node.
    pub go_plugin: GoPlugin,
    /// Handling of the resources of the Node that stand for Open vSwitch bridges.
    pub bridge_resources: BridgeResourceMode,
    /// Request drains from an external drainer, by annotations.
    pub uses_external_drainer: bool,
    /// Metrics of the agent.
    pub metrics: Arc<Metrics>,
    /// Conditions of the node state that do not come from attempts. Other parts of the process add and remove them.
    pub process_conditions: watch::Sender<ProcessConditions>,
    /// Latest snapshot of the machine, for other parts of the process.
    pub snapshots: watch::Sender<Arc<NodeSnapshot>>,
}

/// External Go device plugin on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoPlugin {
    /// There is none.
    Absent,
    /// It announces the VFs of the node.
    Present,
    /// It announces the VFs of the node, and is held back while VFs are created and removed.
    HeldBack,
}

impl Config {
    /// Returns the default configuration of an agent.
    pub fn new(node: String, namespace: String, host: Arc<dyn Host>) -> Self {
        let snapshots = watch::Sender::default();
        Self {
            node,
            namespace,
            host,
            attachments: None,
            node_context: None,
            settings: NodeSettings::default(),
            mode: Mode::Daemon,
            follows_nic_ids: false,
            go_plugin: GoPlugin::Absent,
            bridge_resources: BridgeResourceMode::Ignored,
            uses_external_drainer: false,
            metrics: Arc::new(Metrics::new(snapshots.subscribe())),
            process_conditions: watch::Sender::default(),
            snapshots,
        }
    }
}
