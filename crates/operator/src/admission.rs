//! Admission webhooks: server, index of the cluster, certificates and webhook configurations. The rules are in
//! `vfleet_plan::admission`.
//!
//! Every replica serves the webhooks. The leading replica reconciles certificates and webhook configurations.

mod catch_up;
mod certificates;
mod config;
mod configurations;
mod features;
pub mod fuzzing;
mod handler;
mod index;
mod object;
mod pods;
mod review;
mod server;
mod tls;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use self::certificates::SecretState;
use self::features::EnabledFeatures;
use self::handler::AdmissionHandler;
use self::index::{AdmissionIndex, Readiness};
use self::tls::CertificateResolver;
use crate::components::config_watch::{OperatorConfigReceiver, OperatorConfigState};
use crate::replica::context::Context;
use crate::{OperatorError, run_until};

pub(crate) use vfleet_plan::operator_config::AdmissionStatus;

pub(crate) use certificates::{AdmissionInputs, reconcile_certificates};
pub use config::{
    CertificateSource, InvalidCaCertificate, InvalidWebhookUrl, WebhookConfig, WebhookUrl,
    parse_ca_certificate,
};

/// Time to wait for a first list of objects. Then requests are answered without it, or a condition reports it.
const READ_TIMEOUT: Duration = Duration::from_mins(1);

/// Starts the tasks that every replica runs for admission. Returns the inputs of [`reconcile_certificates`].
pub(crate) async fn start(
    context: &Context,
    settings: OperatorConfigReceiver,
    tasks: &mut JoinSet<Result<(), OperatorError>>,
    stop: &CancellationToken,
) -> Result<AdmissionInputs, OperatorError> {
    let resolver = CertificateResolver::default();
    let (secret_sender, secret) = watch::channel(SecretState::Unknown);
    let (served_sender, served) = watch::channel(None);
    let (ready_sender, ready) = watch::channel(Readiness::default());
    let listener = context.config.webhook.bind_address.listen().await;
    if let Some(listener) = listener.map_err(|source| OperatorError::Bind { what: "webhooks", source })? {
        if let Ok(address) = listener.local_addr() {
            tracing::info!(server = "webhooks", %address, "listening");
        }
        let index = Arc::new(AdmissionIndex::default());
        let follow = index::follow(context.clone(), settings.clone(), Arc::clone(&index), ready_sender);
        tasks.spawn(run_until(stop.clone(), follow));
        let handler = Arc::new(AdmissionHandler::new(context.clone(), index, settings.clone()));
        let (context, resolver, stop) = (context.clone(), resolver.clone(), stop.clone());
        tasks.spawn(async move { server::serve(&context, listener, handler, resolver, &stop).await });
    }
    let follow = certificates::follow(context.clone(), resolver, secret_sender, served_sender);
    tasks.spawn(run_until(stop.clone(), follow));
    let inputs = AdmissionInputs { settings, secret, served, ready };
    if !context.config.webhook.bind_address.is_disabled() {
        let report = report_readiness(context.clone(), inputs.clone());
        tasks.spawn(run_until(stop.clone(), report));
    }
    Ok(inputs)
}

/// Keeps the replica unready until it can answer. It waits for cluster facts only for a limited time, but always for a
/// certificate.
async fn report_readiness(context: Context, mut inputs: AdmissionInputs) -> Result<(), OperatorError> {
    let deadline = Instant::now() + READ_TIMEOUT;
    let mut was_ready = false;
    loop {
        let settings = inputs.settings.borrow_and_update().clone();
        let is_served = inputs.served.borrow_and_update().is_some();
        let ready = *inputs.ready.borrow_and_update();
        let is_overdue = Instant::now() >= deadline;
        // A feature that is enabled later is not configured before it can be answered.
        let ready = if was_ready { Readiness::ALL } else { ready };
        let missing = missing_part(&settings, is_served, ready, is_overdue);
        was_ready |= missing.is_none();
        context.health.set_missing(missing);
        tokio::select! {
            Ok(()) = inputs.settings.changed() => {}
            Ok(()) = inputs.served.changed() => {}
            Ok(()) = inputs.ready.changed() => {}
            () = sleep_until(deadline), if !is_overdue => {}
            // The senders have ended and report the error themselves.
            else => return std::future::pending().await,
        }
    }
}

/// Returns what is missing to answer requests. `is_overdue` is true after [`READ_TIMEOUT`].
fn missing_part(
    settings: &OperatorConfigState,
    is_served: bool,
    ready: Readiness,
    is_overdue: bool,
) -> Option<&'static str> {
    let enabled = EnabledFeatures::of(settings);
    match settings {
        // Other controllers report why the config cannot be read.
        OperatorConfigState::Unknown if is_overdue => None,
        OperatorConfigState::Unknown => Some("the operator config has not been read yet"),
        _ if enabled.is_none() => None,
        _ if !is_served => {
            Some("no webhook certificate is loaded: see condition Admission of the operator config")
        }
        _ if !ready.covers(enabled) => {
            Some("objects that the webhooks need are still being read from the cluster")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_without_a_certificate_is_not_ready_while_admission_is_enabled() {
        let [on, off] = [true, false].map(|is_on| features::testing::config(is_on, false));
        let ready = Readiness { webhook: true, injector: false };
        assert_eq!(missing_part(&on, true, ready, false), None);
        for is_overdue in [false, true] {
            assert!(missing_part(&on, false, ready, is_overdue).unwrap().contains("certificate"));
            assert!(missing_part(&on, true, Readiness::default(), is_overdue).unwrap().contains("cluster"));
            assert_eq!(missing_part(&off, false, Readiness::default(), is_overdue), None);
        }
        assert!(missing_part(&OperatorConfigState::Unknown, false, Readiness::default(), false).is_some());
        assert_eq!(missing_part(&OperatorConfigState::Unknown, false, Readiness::default(), true), None);
    }
}
