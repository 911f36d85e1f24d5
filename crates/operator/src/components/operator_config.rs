//! Operator config controller: creates the config `default` and deploys the components that it selects.
//!
//! The work queue has a single key: [`reconcile`](reconcile::reconcile) compares all desired and deployed objects at
//! once. It runs again when the config or a deployed object changes.

mod deployed_objects;
mod field_match;
mod go_webhooks;
mod reconcile;
mod take_over;

use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt;
use tokio_util::sync::CancellationToken;
use vfleet_api::keys::OPERATOR_CONFIG;
use vfleet_cluster::queue::WorkQueue;

use crate::OperatorError;
use crate::admission::AdmissionStatus;
use crate::components::config_watch::{OperatorConfigReceiver, OperatorConfigState};
use crate::components::go_device_plugin::ConfigMapProblem;
use crate::components::operator_config::deployed_objects::{DeployedObjects, watch_components};
use crate::components::operator_config::reconcile::{ReconcileCache, ReconcileInputs, reconcile};
use crate::replica::context::Context;

/// Inputs from other controllers.
pub(crate) struct OperatorConfigInputs {
    pub(crate) settings: OperatorConfigReceiver,
    /// Reason why the ConfigMap of the separate device plugin cannot be written.
    pub(crate) plugin_problem: tokio::sync::watch::Receiver<ConfigMapProblem>,
    /// Status of the admission webhooks.
    pub(crate) admission: tokio::sync::watch::Receiver<AdmissionStatus>,
}

/// Runs the controller until `stop`.
pub(crate) async fn run(
    context: Context,
    inputs: OperatorConfigInputs,
    stop: CancellationToken,
) -> Result<(), OperatorError> {
    let OperatorConfigInputs { mut settings, mut plugin_problem, mut admission } = inputs;
    let mut changes = pin!(watch_components(&context));
    let mut deployed = DeployedObjects::default();
    let cache = Arc::new(ReconcileCache::default());
    let mut work = WorkQueue::new("operator-config", 1, Arc::clone(&context.metrics));
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            event = changes.next() => {
                if deployed.apply(event.ok_or(OperatorError::WatchEnded)?) {
                    work.add([OPERATOR_CONFIG]);
                }
            }
            result = settings.changed() => match result {
                Ok(()) => work.add([OPERATOR_CONFIG]),
                // The watch of the config has ended and reports the reason itself.
                Err(_) => break,
            },
            // A dropped sender means that no separate device plugin is deployed, or that all controllers stop.
            Ok(()) = plugin_problem.changed() => work.add([OPERATOR_CONFIG]),
            Ok(()) = admission.changed() => work.add([OPERATOR_CONFIG]),
            () = work.wait_for_progress() => {}
        }
        let config = settings.borrow().clone();
        if config == OperatorConfigState::Unknown || !deployed.is_complete() {
            continue;
        }
        if let Some(key) = work.take_next() {
            let inputs = ReconcileInputs {
                deployed: deployed.clone(),
                plugin_problem: plugin_problem.borrow_and_update().clone(),
                admission: admission.borrow_and_update().clone(),
            };
            work.start(key, reconcile(context.clone(), config, inputs, Arc::clone(&cache)));
        }
    }
    // Running writes are short: let them end.
    work.finish().await;
    Ok(())
}
