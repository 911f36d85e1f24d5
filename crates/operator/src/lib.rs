//! The controllers of the cluster: they fetch, ask `plan`, and write what it says.
//!
//! One loop per controller: watch events change an in-memory index, which answers at once which objects are touched;
//! those are planned and written, several at a time ([`work::Work`]), and nothing else is done.

mod announce;
mod context;
mod default_pool;
mod deployed;
mod device_plugin;
mod drain;
mod fleet;
mod guarded;
mod health;
mod known;
mod leadership;
mod lease;
mod metrics;
mod networks;
mod node_states;
mod offload;
mod openshift;
mod operator_config;
mod pace;
mod patch;
mod reports;
mod retry;
pub mod rights;
mod server;
mod settings;
mod shared;
mod state_writer;
mod status;
mod wakes;
mod watch;
mod work;

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use thiserror::Error;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::announce::Announcer;
use crate::context::Context;
use crate::device_plugin::PluginLine;
use crate::leadership::Leadership;
use crate::lease::Candidate;
use crate::metrics::Metrics;
use crate::node_states::Inputs;
use crate::offload::Offload;
use crate::settings::{Seen, Settings};

pub use crate::deployed::{ClusterType, CniImages, DeployConfig};
pub use server::{BadAddress, BindAddress, BindError};

/// How the operator runs.
#[derive(Clone, Debug)]
pub struct Config {
    /// The namespace of policies, node states, pools and the operator config.
    pub namespace: String,
    /// The name of this replica.
    pub identity: String,
    /// What stands before the names of resources: `openshift.io`.
    pub resource_prefix: String,
    /// How long a node state is kept when its node is gone.
    pub stale_state_after: Duration,
    /// Where metrics are served.
    pub metrics: BindAddress,
    /// Where `/healthz` and `/readyz` are served.
    pub health: BindAddress,
    /// What is deployed, and how.
    pub deploy: DeployConfig,
}

/// Why the operator ended.
#[derive(Debug, Error)]
pub enum OperatorError {
    /// The streams of changes ended, which they never should.
    #[error("the API server's changes cannot be followed any more")]
    WatchEnded,
    /// A controller ended in the middle.
    #[error("a controller ended in the middle")]
    Crashed(#[from] tokio::task::JoinError),
    /// Two replicas have the same name.
    #[error("another operator calls itself {0:?}, too: give each replica a name of its own in POD_NAME")]
    SameIdentity(String),
    /// A port is taken.
    #[error("cannot serve {what}")]
    Bind {
        /// What was to be served there.
        what: &'static str,
        /// Where, and why not.
        source: BindError,
    },
}

/// Runs until `stop`, or until the API server cannot be watched at all.
pub async fn run(client: Client, config: Config, stop: CancellationToken) -> Result<(), OperatorError> {
    tracing::info!(namespace = config.namespace, "operator starts");
    let context = Context {
        announcer: Announcer::new(client.clone(), &config.identity),
        client,
        config: Arc::new(config),
        leadership: Leadership::none(),
        metrics: Arc::new(Metrics::new()),
        health: Arc::default(),
    };
    server::start(&context, &stop).await?;
    Box::pin(Candidate::new(context.clone()).run(|stop| lead(&context, stop), stop)).await?;
    tracing::info!("operator stops");
    Ok(())
}

/// Runs all controllers until `stop`, or until one of them cannot go on.
async fn lead(context: &Context, stop: CancellationToken) -> Result<(), OperatorError> {
    let (publish, settings) = tokio::sync::watch::channel(Seen::Unknown);
    let mut controllers = JoinSet::new();
    controllers.spawn(stopped_by(stop.clone(), settings::follow(context.clone(), publish)));
    let (problem, plugin_problem) = tokio::sync::watch::channel(None);
    let plugin = spawn_device_plugin(context, &mut controllers, &settings, problem, &stop);
    let (offload, offload_seen) = tokio::sync::watch::channel(Offload::default());
    controllers.spawn(offload::run(context.clone(), offload, stop.clone()));
    let ([seen, drain_seen], tell_both) = shared::follow(context);
    controllers.spawn(stopped_by(stop.clone(), tell_both));
    let inputs = Inputs { settings: settings.clone(), plugin, offload: offload_seen };
    controllers.spawn(node_states::run(context.clone(), seen, inputs, stop.clone()));
    controllers.spawn(drain::run(context.clone(), drain_seen, settings.clone(), stop.clone()));
    controllers.spawn(operator_config::run(context.clone(), settings, plugin_problem, stop.clone()));
    controllers.spawn(networks::run(context.clone(), stop.clone()));
    controllers.spawn(default_pool::run(context.clone(), stop.clone()));
    let mut result = Ok(());
    while let Some(ended) = controllers.join_next().await {
        // The first that ends takes the others with it, each of which finishes what it has begun.
        stop.cancel();
        result = result.and(ended?);
    }
    result
}

/// Looks after the separate device plugin, where it is deployed, or after what it left behind.
fn spawn_device_plugin(
    context: &Context,
    controllers: &mut JoinSet<Result<(), OperatorError>>,
    settings: &Settings,
    problem: tokio::sync::watch::Sender<device_plugin::Problem>,
    stop: &CancellationToken,
) -> Option<PluginLine> {
    if context.config.deploy.device_plugin_image.is_none() {
        controllers.spawn(device_plugin::clean_up(context.clone(), settings.clone(), stop.clone()));
        return None;
    }
    let (publish, nic_ids) = tokio::sync::watch::channel(None);
    let (tell, news) = tokio::sync::mpsc::unbounded_channel();
    let follow = device_plugin::follow_nic_ids(context.clone(), publish);
    controllers.spawn(stopped_by(stop.clone(), follow));
    controllers.spawn(device_plugin::run(context.clone(), settings.clone(), news, problem, stop.clone()));
    Some(PluginLine { news: tell, nic_ids })
}

async fn stopped_by(
    stop: CancellationToken,
    work: impl Future<Output = Result<(), OperatorError>>,
) -> Result<(), OperatorError> {
    stop.run_until_cancelled(work).await.unwrap_or(Ok(()))
}
