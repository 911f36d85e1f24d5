//! Webhook certificates and configurations, reconciled by the leading replica.
//!
//! Webhooks are configured when they can be answered, and a CA is trusted before its certificate is served. Each pass
//! executes at most one step. The resulting change of the Secret or of a configuration starts the next pass, and so
//! does a change of the operator config or a certificate that is due.

mod issue;
pub(super) mod own;
pub(super) mod pem;
mod reconcile;
mod secret;

use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use vfleet_cluster::queue::WorkQueue;
use vfleet_cluster::wake::WakeQueue;

use self::reconcile::{ReconcileInput, ReconcileOutputs, Reconciliation};
use super::configurations::{self, ConfigurationWatch};
use super::features::EnabledFeatures;
use super::index::Readiness;
use super::{AdmissionStatus, READ_TIMEOUT};
use crate::OperatorError;
use crate::components::config_watch::{OperatorConfigReceiver, OperatorConfigState};
use crate::replica::context::Context;

#[cfg(test)]
pub(super) use issue::issue_now;
pub(super) use secret::{SecretState, ServedCertificate, follow};

/// Only key of the work queue.
const KEY: &str = "admission";

/// State that every replica publishes for admission.
#[derive(Clone)]
pub(crate) struct AdmissionInputs {
    pub(crate) settings: OperatorConfigReceiver,
    pub(crate) secret: watch::Receiver<SecretState>,
    /// Certificate that this replica serves.
    pub(crate) served: watch::Receiver<Option<Arc<ServedCertificate>>>,
    /// Features that this replica can serve.
    pub(crate) ready: watch::Receiver<Readiness>,
}

/// Reconciles certificates and webhook configurations until `stop`, and publishes the `status`.
pub(crate) async fn reconcile_certificates(
    context: Context,
    mut inputs: AdmissionInputs,
    status: watch::Sender<AdmissionStatus>,
    stop: CancellationToken,
) -> Result<(), OperatorError> {
    let mut events = pin!(configurations::watch_configurations(&context));
    let mut configurations = ConfigurationWatch::default();
    let mut work = WorkQueue::new(KEY, 1, Arc::clone(&context.metrics));
    let mut wakes = WakeQueue::default();
    let (wake_sender, mut wake) = watch::channel(None);
    let outputs = Arc::new(ReconcileOutputs { status, wake: wake_sender });
    let start = Instant::now();
    // The first pass needs no event: objects that can never be read are reported.
    work.add([KEY]);
    loop {
        let is_changed = tokio::select! {
            () = stop.cancelled() => break,
            event = events.next() => configurations.update(event.ok_or(OperatorError::WatchEnded)?),
            // A sender that has ended reports the error itself.
            changed = inputs.settings.changed() => if changed.is_ok() { true } else { break },
            changed = inputs.secret.changed() => if changed.is_ok() { true } else { break },
            Ok(()) = inputs.served.changed() => true,
            Ok(()) = inputs.ready.changed() => true,
            _ = wakes.next() => true,
            Ok(()) = wake.changed() => {
                wakes.set(&KEY, *wake.borrow_and_update());
                false
            }
            () = work.wait_for_progress() => false,
        };
        if is_changed {
            work.add([KEY]);
        }
        // Without the operator config nothing is decided. Other objects may stay unread.
        let settings = inputs.settings.borrow().clone();
        if settings == OperatorConfigState::Unknown {
            continue;
        }
        if let Some(key) = work.take_next() {
            let input = ReconcileInput {
                enabled: EnabledFeatures::of(&settings),
                // Read before `served`, which changes first.
                secret: inputs.secret.borrow_and_update().clone(),
                served: inputs.served.borrow_and_update().clone(),
                configurations: configurations.observed(),
                ready: *inputs.ready.borrow_and_update(),
                is_overdue: start.elapsed() >= READ_TIMEOUT,
                ready_for: context.health.ready_duration(),
            };
            work.start(key, Reconciliation::new(context.clone(), input).run(Arc::clone(&outputs)));
        }
    }
    work.finish().await;
    Ok(())
}
