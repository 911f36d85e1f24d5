//! Controllers and webhooks of the operator: they read objects, let `vfleet_plan` decide, and write its decisions.
//!
//! Each controller is one loop: watch events update an in-memory index, which returns the affected objects; those are
//! planned and written, several at a time ([`WorkQueue`](vfleet_cluster::queue::WorkQueue)).

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
use vfleet_cluster::events::EventRecorder;
use vfleet_cluster::leadership::Leadership;
use vfleet_cluster::server::{BindAddress, BindError};

use crate::admission::AdmissionStatus;
use crate::components::config_watch::{OperatorConfigReceiver, OperatorConfigState};
use crate::fleet::controller::FleetInputs;
use crate::openshift::offload::OffloadStatus;
use crate::replica::context::Context;
use crate::replica::lease::LeaseCandidate;
use crate::replica::metrics::Metrics;

#[doc(hidden)]
pub use crate::admission::fuzzing;
pub use crate::admission::{
    CertificateSource, InvalidCaCertificate, InvalidWebhookUrl, WebhookConfig, WebhookUrl,
    parse_ca_certificate,
};
pub use crate::components::manifests::{ClusterType, CniImages, DeployConfig};
pub use crate::components::permissions;

/// Settings of the operator process.
#[derive(Clone, Debug)]
pub struct Config {
    /// Namespace of policies, node states, pools and the operator config.
    pub namespace: String,
    /// Name of this replica, unique among all replicas.
    pub identity: String,
    /// Prefix of resource names: `openshift.io`.
    pub resource_prefix: String,
    /// Time for which a node state is kept after its node was deleted.
    pub stale_state_after: Duration,
    /// Listen address of metrics.
    pub metrics: BindAddress,
    /// Listen address of `/healthz` and `/readyz`.
    pub health: BindAddress,
    /// Settings of the admission webhooks.
    pub webhook: WebhookConfig,
    /// Settings of the deployed components.
    pub deploy: DeployConfig,
}

/// Error that ends the operator.
#[derive(Debug, Error)]
pub enum OperatorError {
    /// A watch ended for good.
    #[error("a watch of the API server ended unexpectedly")]
    WatchEnded,
    /// A controller panicked.
    #[error("a controller crashed")]
    Crashed(#[from] tokio::task::JoinError),
    /// Two replicas have the same identity.
    #[error(
        "another operator replica uses the identity {0:?}: set POD_NAME to a unique name for each replica"
    )]
    SameIdentity(String),
    /// A listen address cannot be opened.
    #[error("cannot serve {what}")]
    Bind {
        /// Server: metrics, probes or webhooks.
        what: &'static str,
        /// Address and cause.
        source: BindError,
    },
    /// TLS cannot be configured.
    #[error("cannot serve webhooks: TLS cannot be configured")]
    Tls(#[source] rustls::Error),
}

/// Runs the operator until `stop`, or until a watch ends for good.
pub async fn run(client: Client, config: Config, stop: CancellationToken) -> Result<(), OperatorError> {
    tracing::info!(namespace = config.namespace, "operator started");
    let context = Context {
        event_recorder: EventRecorder::new(client.clone(), &config.identity),
        client,
        config: Arc::new(config),
        leadership: Leadership::not_held(),
        metrics: Arc::new(Metrics::new()),
        health: Arc::default(),
    };
    replica::server::start(&context, &stop).await?;
    // When one task ends, all others are stopped.
    let stop = stop.child_token();
    let mut replica_tasks = JoinSet::new();
    let (publish, settings) = tokio::sync::watch::channel(OperatorConfigState::Unknown);
    replica_tasks
        .spawn(run_until(stop.clone(), components::config_watch::watch_config(context.clone(), publish)));
    let admission = admission::start(&context, settings, &mut replica_tasks, &stop).await?;
    let candidate = LeaseCandidate::new(context.clone());
    let election = async {
        let led = Box::pin(candidate.run(|stop| lead(&context, &admission, stop), stop.clone())).await;
        stop.cancel();
        led
    };
    let (led, others) = tokio::join!(election, wait_for_all(&mut replica_tasks, &stop));
    tracing::info!("operator stopped");
    led.and(others)
}

/// Waits until all tasks have ended. When the first one ends, the others are stopped after their current work.
async fn wait_for_all(
    tasks: &mut JoinSet<Result<(), OperatorError>>,
    stop: &CancellationToken,
) -> Result<(), OperatorError> {
    let mut result = Ok(());
    while let Some(ended) = tasks.join_next().await {
        let is_stopping = stop.is_cancelled();
        stop.cancel();
        match ended? {
            // During shutdown, the end of one task may look like the end of a watch to another one.
            Err(OperatorError::WatchEnded) if is_stopping => {}
            ended => result = result.and(ended),
        }
    }
    result
}

/// Runs all controllers until `stop`, or until one of them fails.
async fn lead(
    context: &Context,
    admission: &admission::AdmissionInputs,
    stop: CancellationToken,
) -> Result<(), OperatorError> {
    let settings = admission.settings.clone();
    let mut controllers = JoinSet::new();
    let (admission_status, admission_statuses) = tokio::sync::watch::channel(AdmissionStatus::Unknown);
    let certificates =
        admission::reconcile_certificates(context.clone(), admission.clone(), admission_status, stop.clone());
    controllers.spawn(certificates);
    let (problem, plugin_problem) = tokio::sync::watch::channel(None);
    let plugin = spawn_device_plugin(context, &mut controllers, &settings, problem, &stop);
    let (publish, nic_ids) = tokio::sync::watch::channel(None);
    let watch_nic_ids = components::go_device_plugin::watch_nic_ids(context.clone(), publish);
    controllers.spawn(run_until(stop.clone(), watch_nic_ids));
    let (offload, offload_states) = tokio::sync::watch::channel(OffloadStatus::default());
    controllers.spawn(openshift::offload::run(context.clone(), offload, stop.clone()));
    let ([fleet_watches, drain_watches], forward_events) = fleet::shared_watches::watch_shared(context);
    controllers.spawn(run_until(stop.clone(), forward_events));
    let inputs = FleetInputs { settings: settings.clone(), plugin, nic_ids, offload: offload_states };
    controllers.spawn(fleet::controller::run(context.clone(), fleet_watches, inputs, stop.clone()));
    controllers.spawn(drain::run(context.clone(), drain_watches, settings.clone(), stop.clone()));
    let inputs = components::operator_config::OperatorConfigInputs {
        settings,
        plugin_problem,
        admission: admission_statuses,
    };
    controllers.spawn(components::operator_config::run(context.clone(), inputs, stop.clone()));
    controllers.spawn(networks::run(context.clone(), stop.clone()));
    controllers.spawn(fleet::default_pool::run(context.clone(), stop.clone()));
    wait_for_all(&mut controllers, &stop).await
}

/// Starts the controller of the separate device plugin, or its clean-up if the plugin is not deployed.
fn spawn_device_plugin(
    context: &Context,
    controllers: &mut JoinSet<Result<(), OperatorError>>,
    settings: &OperatorConfigReceiver,
    problem: tokio::sync::watch::Sender<components::go_device_plugin::ConfigMapProblem>,
    stop: &CancellationToken,
) -> Option<tokio::sync::mpsc::UnboundedSender<components::go_device_plugin::PluginUpdate>> {
    if context.config.deploy.device_plugin_image.is_none() {
        controllers.spawn(components::go_device_plugin::clean_up(
            context.clone(),
            settings.clone(),
            stop.clone(),
        ));
        return None;
    }
    let (sender, updates) = tokio::sync::mpsc::unbounded_channel();
    controllers.spawn(components::go_device_plugin::run(
        context.clone(),
        settings.clone(),
        updates,
        problem,
        stop.clone(),
    ));
    Some(sender)
}

async fn run_until(
    stop: CancellationToken,
    task: impl Future<Output = Result<(), OperatorError>>,
) -> Result<(), OperatorError> {
    stop.run_until_cancelled(task).await.unwrap_or(Ok(()))
}
