//! The controllers of the cluster: they fetch, ask `plan`, and write what it says.
//!
//! One loop per controller: watch events change an in-memory index, which answers at once which objects are touched;
//! those are planned and written, several at a time ([`work::Work`]), and nothing else is done.

mod admission;
mod components;
mod drain;
mod fleet;
mod networks;
mod openshift;
mod replica;

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use thiserror::Error;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use vfleet_cluster::events::Announcer;
use vfleet_cluster::leadership::Leadership;
use vfleet_cluster::server::{BindAddress, BindError};

use crate::admission::Standing;
use crate::components::settings::{Seen, Settings};
use crate::fleet::controller::Inputs;
use crate::openshift::offload::Offload;
use crate::replica::context::Context;
use crate::replica::lease::Candidate;
use crate::replica::metrics::Metrics;

#[doc(hidden)]
pub use crate::admission::fuzzing;
pub use crate::admission::{BadAuthority, BadUrl, CertificateSource, WebhookConfig, WebhookUrl, authority};
pub use crate::components::deployed::{ClusterType, CniImages, DeployConfig};
pub use crate::components::rights;

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
    /// How admission is served.
    pub webhook: WebhookConfig,
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
    /// No TLS.
    #[error("cannot serve webhooks: TLS cannot be set up")]
    Tls(#[source] rustls::Error),
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
    replica::server::start(&context, &stop).await?;
    // Whatever ends takes the rest with it.
    let stop = stop.child_token();
    let mut always = JoinSet::new();
    let (publish, settings) = tokio::sync::watch::channel(Seen::Unknown);
    always.spawn(stopped_by(stop.clone(), components::settings::follow(context.clone(), publish)));
    let admission = admission::start(&context, settings, &mut always, &stop).await?;
    let candidate = Candidate::new(context.clone());
    let may_lead = async {
        let led = Box::pin(candidate.run(|stop| lead(&context, &admission, stop), stop.clone())).await;
        stop.cancel();
        led
    };
    let (led, others) = tokio::join!(may_lead, all_of(&mut always, &stop));
    tracing::info!("operator stops");
    led.and(others)
}

/// Waits until all have ended. The first that ends takes the others with it, each of which finishes what it has begun.
async fn all_of(
    tasks: &mut JoinSet<Result<(), OperatorError>>,
    stop: &CancellationToken,
) -> Result<(), OperatorError> {
    let mut result = Ok(());
    while let Some(ended) = tasks.join_next().await {
        let is_stopping = stop.is_cancelled();
        stop.cancel();
        match ended? {
            // When all stop, whoever follows another may notice the end of that one first.
            Err(OperatorError::WatchEnded) if is_stopping => {}
            ended => result = result.and(ended),
        }
    }
    result
}

/// Runs all controllers until `stop`, or until one of them cannot go on.
async fn lead(
    context: &Context,
    admission: &admission::Inputs,
    stop: CancellationToken,
) -> Result<(), OperatorError> {
    let settings = admission.settings.clone();
    let mut controllers = JoinSet::new();
    let (tell, standing) = tokio::sync::watch::channel(Standing::Unknown);
    let certificates =
        admission::look_after_certificates(context.clone(), admission.clone(), tell, stop.clone());
    controllers.spawn(certificates);
    let (problem, plugin_problem) = tokio::sync::watch::channel(None);
    let plugin = spawn_device_plugin(context, &mut controllers, &settings, problem, &stop);
    let (publish, nic_ids) = tokio::sync::watch::channel(None);
    let follow = components::go_device_plugin::follow_nic_ids(context.clone(), publish);
    controllers.spawn(stopped_by(stop.clone(), follow));
    let (offload, offload_seen) = tokio::sync::watch::channel(Offload::default());
    controllers.spawn(openshift::offload::run(context.clone(), offload, stop.clone()));
    let ([seen, drain_seen], tell_both) = fleet::shared::follow(context);
    controllers.spawn(stopped_by(stop.clone(), tell_both));
    let inputs = Inputs { settings: settings.clone(), plugin, nic_ids, offload: offload_seen };
    controllers.spawn(fleet::controller::run(context.clone(), seen, inputs, stop.clone()));
    controllers.spawn(drain::run(context.clone(), drain_seen, settings.clone(), stop.clone()));
    let inputs = components::operator_config::Inputs { settings, plugin_problem, admission: standing };
    controllers.spawn(components::operator_config::run(context.clone(), inputs, stop.clone()));
    controllers.spawn(networks::run(context.clone(), stop.clone()));
    controllers.spawn(fleet::default_pool::run(context.clone(), stop.clone()));
    all_of(&mut controllers, &stop).await
}

/// Looks after the separate device plugin, where it is deployed, or after what it left behind.
fn spawn_device_plugin(
    context: &Context,
    controllers: &mut JoinSet<Result<(), OperatorError>>,
    settings: &Settings,
    problem: tokio::sync::watch::Sender<components::go_device_plugin::Problem>,
    stop: &CancellationToken,
) -> Option<tokio::sync::mpsc::UnboundedSender<components::go_device_plugin::News>> {
    if context.config.deploy.device_plugin_image.is_none() {
        controllers.spawn(components::go_device_plugin::clean_up(
            context.clone(),
            settings.clone(),
            stop.clone(),
        ));
        return None;
    }
    let (tell, news) = tokio::sync::mpsc::unbounded_channel();
    controllers.spawn(components::go_device_plugin::run(
        context.clone(),
        settings.clone(),
        news,
        problem,
        stop.clone(),
    ));
    Some(tell)
}

async fn stopped_by(
    stop: CancellationToken,
    work: impl Future<Output = Result<(), OperatorError>>,
) -> Result<(), OperatorError> {
    stop.run_until_cancelled(work).await.unwrap_or(Ok(()))
}
