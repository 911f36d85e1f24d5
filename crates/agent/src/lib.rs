//! The node daemon: watch, facts, plan, execute, verify, report. Decides nothing itself.
//!
//! Wakes up when its node state changes, when the machine changes, and when something that failed is due for
//! another try; never otherwise.

mod alarm;
pub mod apply;
mod attempt;
pub mod boot;
mod course;
mod detached;
mod go_device_plugin;
mod metrics;
mod mode;
mod nic_ids;
pub mod node_object;
mod patience;
mod report;
mod run;
mod status;

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;
use vfleet_api::conditions::Verdict;
use vfleet_host::Host;
use vfleet_plan::{NodeSettings, NodeSnapshot};

use node_object::NodeContextState;

pub use metrics::{Metrics, serve, serve_at};
pub use mode::Mode;
pub use run::{AgentError, run};

/// Conditions of the node state that do not come from attempts, by type. Those not in it are removed from the node state.
pub type Standing = BTreeMap<&'static str, Verdict>;

/// What an agent needs to know.
#[derive(Clone)]
pub struct Config {
    /// The node that it runs on.
    pub node: String,
    /// The namespace of the node state.
    pub namespace: String,
    /// The machine that it looks after.
    pub host: Arc<dyn Host>,
    /// What the cluster says about the node: nothing is done, and no card reported, before it is known. `None` where the
    /// machine says all that by itself.
    pub node_context: Option<watch::Receiver<NodeContextState>>,
    /// What else it was told that decides what happens to the cards.
    pub settings: NodeSettings,
    /// Whether it configures the cards itself, or has units of systemd do it at boot.
    pub mode: Mode,
    /// Report only the kinds of cards that the ConfigMap `supported-nic-ids` lists, where it is.
    pub follows_nic_ids: bool,
    /// Hold the external Go device plugin back while VFs come and go.
    pub holds_go_plugin_back: bool,
    /// Somebody else drains nodes, and is asked by annotations.
    pub uses_external_drainer: bool,
    /// Counters of the agent.
    pub metrics: Arc<Metrics>,
    /// Conditions of the node state that do not come from attempts. Whoever in the process knows of one adds it, and
    /// removes it when it is over.
    pub standing: watch::Sender<Standing>,
    /// Snapshots of the machine, for whoever in the process needs them. Each one replaces the last.
    pub snapshots: watch::Sender<Arc<NodeSnapshot>>,
}

impl Config {
    /// An agent with nothing unusual about it.
    pub fn new(node: String, namespace: String, host: Arc<dyn Host>) -> Self {
        let snapshots = watch::Sender::default();
        Self {
            node,
            namespace,
            host,
            node_context: None,
            settings: NodeSettings::default(),
            mode: Mode::Daemon,
            follows_nic_ids: false,
            holds_go_plugin_back: false,
            uses_external_drainer: false,
            metrics: Arc::new(Metrics::new(snapshots.subscribe())),
            standing: watch::Sender::default(),
            snapshots,
        }
    }
}
