//! One pass over the certificate and the webhook configurations: at most one step, and the resulting status.

mod certificate;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Api;
use tokio::sync::watch;
use vfleet_cluster::watch::publish_if_changed;
use vfleet_cluster::write::{WriteError, Writer};

use super::pem::{self, UnusableCertificate};
use super::secret::{SecretState, ServedCertificate};
use crate::admission::AdmissionStatus;
use crate::admission::config::CertificateSource;
use crate::admission::configurations::{
    self, ConfigurationKind, DesiredConfigurations, ObservedConfigurations, WebhookSettings,
};
use crate::admission::features::EnabledFeatures;
use crate::admission::index::Readiness;
use crate::replica::context::Context;

/// Interval of passes without an event while an administrator has to act, and for certificates that are provided.
const CHECK_INTERVAL: SignedDuration = SignedDuration::from_mins(10);

/// Interval of passes without an event while the webhooks start.
const START_INTERVAL: SignedDuration = SignedDuration::from_mins(1);

/// Time from readiness until the Service leads to this replica: the kubelet probes every 10 s, and watches do the rest.
const SERVICE_DELAY: Duration = Duration::from_secs(30);

/// Time before its expiry at which a provided certificate is reported.
const EXPIRY_NOTICE: SignedDuration = SignedDuration::from_hours(7 * 24);

/// Receivers of the results of a pass.
pub(super) struct ReconcileOutputs {
    pub(super) status: watch::Sender<AdmissionStatus>,
    /// Time of the next pass.
    pub(super) wake: watch::Sender<Option<Timestamp>>,
}

impl ReconcileOutputs {
    /// Publishes a status. Logs a new problem.
    fn publish(&self, status: AdmissionStatus) {
        if let AdmissionStatus::Failed { reason, message } = &status
            && *self.status.borrow() != status
        {
            tracing::warn!(reason, message, "admission webhooks are not working");
        }
        publish_if_changed(&self.status, status);
    }
}

/// Observed state at the start of a pass.
pub(super) struct ReconcileInput {
    pub(super) enabled: EnabledFeatures,
    pub(super) secret: SecretState,
    /// Certificate that this replica serves.
    pub(super) served: Option<Arc<ServedCertificate>>,
    pub(super) configurations: ObservedConfigurations,
    pub(super) ready: Readiness,
    /// True if objects that are still unread should have been read long ago.
    pub(super) is_overdue: bool,
    /// Time since this replica became ready.
    pub(super) ready_for: Option<Duration>,
}

/// One pass.
pub(super) struct Reconciliation {
    context: Context,
    writer: Writer,
    input: ReconcileInput,
    now: Timestamp,
}

/// Reason why the webhooks are not served as desired.
enum NotServing {
    /// A step was executed or an object is unread: the next event continues. The status stays.
    Pending,
    /// Waiting for something that needs no action.
    Starting,
    /// An administrator must act.
    Failed { reason: &'static str, message: String },
    /// A write failed.
    Write(WriteError),
}

impl From<WriteError> for NotServing {
    fn from(error: WriteError) -> Self {
        Self::Write(error)
    }
}

fn failed(reason: &'static str, message: impl Into<String>) -> NotServing {
    NotServing::Failed { reason, message: message.into() }
}

impl Reconciliation {
    pub(super) fn new(context: Context, input: ReconcileInput) -> Self {
        let writer = Writer::new(context.leadership.clone());
        Self { context, writer, input, now: Timestamp::now() }
    }

    /// Executes at most one step and publishes the status.
    pub(super) async fn run(self, outputs: Arc<ReconcileOutputs>) -> Result<(), WriteError> {
        let mut wake = None;
        self.wake_at(&mut wake, self.served_until());
        match self.step(&mut wake).await {
            Ok(status) => outputs.publish(status),
            Err(NotServing::Pending) => self.wake_after(&mut wake, START_INTERVAL),
            Err(NotServing::Starting) => {
                self.wake_after(&mut wake, START_INTERVAL);
                outputs.publish(AdmissionStatus::Starting);
            }
            Err(NotServing::Failed { reason, message }) => {
                self.wake_after(&mut wake, CHECK_INTERVAL);
                outputs.publish(AdmissionStatus::Failed { reason, message });
            }
            Err(NotServing::Write(error)) => {
                // A conflict or a new leader is not a problem.
                if !error.is_conflict() && !matches!(error, WriteError::NotLeading) {
                    let message = format!(
                        "failed to write the webhook configurations or the Secret ({error}): retrying"
                    );
                    outputs.publish(AdmissionStatus::Failed { reason: "ConfigurationFailed", message });
                }
                return Err(error);
            }
        }
        outputs.wake.send_replace(wake);
        Ok(())
    }

    /// Wakes after this time or earlier.
    fn wake_after(&self, wake: &mut Option<Timestamp>, delay: SignedDuration) {
        self.wake_at(wake, self.now.checked_add(delay).ok());
    }

    /// Wakes at this time or earlier. A time in the past is ignored.
    fn wake_at(&self, wake: &mut Option<Timestamp>, time: Option<Timestamp>) {
        let time = time.filter(|time| *time > self.now);
        *wake = [*wake, time].into_iter().flatten().min();
    }

    /// Returns the first moment at which the served certificate has expired.
    fn served_until(&self) -> Option<Timestamp> {
        let expires = self.input.served.as_ref()?.expires?;
        expires.checked_add(SignedDuration::from_secs(1)).ok()
    }

    async fn step(&self, wake: &mut Option<Timestamp>) -> Result<AdmissionStatus, NotServing> {
        let is_listening = !self.context.config.webhook.bind_address.is_disabled();
        let desired = if is_listening { self.input.enabled.configurations() } else { Vec::new() };
        // First of all: disabled webhooks must not be called, whatever else fails.
        let removals = self.input.configurations.removals(&desired);
        let removed = configurations::write(&self.context.client, &self.writer, &removals).await;
        let status =
            if desired.is_empty() { self.disabled_status() } else { self.configure(&desired, wake).await };
        if let Err(NotServing::Failed { .. } | NotServing::Write(_)) = status {
            self.stop_refusing(&desired).await?;
        }
        removed?;
        status
    }

    /// Configures these webhooks.
    async fn configure(
        &self,
        desired: &[ConfigurationKind],
        wake: &mut Option<Timestamp>,
    ) -> Result<AdmissionStatus, NotServing> {
        let (namespace, configurations) = (&self.context.config.namespace, &self.input.configurations);
        if let Some(unread) = configurations.unread(desired, namespace) {
            return Err(self.not_read(&unread));
        }
        let certificate = self.reconcile_certificate().await?;
        self.wake_at(wake, certificate.check_at);
        // Webhooks that are configured already are kept up to date in any case.
        let can_be_filled = |kind: &ConfigurationKind| {
            let is_ready = match kind {
                ConfigurationKind::Validating | ConfigurationKind::Defaults => self.input.ready.webhook,
                ConfigurationKind::Injector => self.input.ready.injector,
            };
            is_ready || configurations.is_filled(*kind)
        };
        let filled: Vec<_> = desired.iter().copied().filter(can_be_filled).collect();
        let trusted = match &certificate.bundle {
            Some(bundle) => self.check_trust(std::slice::from_ref(bundle)),
            None => self.check_trust(&configurations.bundles(&filled).collect::<Vec<_>>()),
        };
        let delay = self.service_delay(&filled);
        self.fill(certificate.bundle.as_deref(), &filled, trusted.is_ok() && delay.is_none()).await?;
        if let Some(missing) = configurations.missing(desired, namespace) {
            let message = format!("{missing} does not exist: apply the manifests of vfleet again");
            return Err(failed("NoConfiguration", message));
        }
        trusted?;
        if let Some(delay) = delay {
            self.wake_after(wake, delay);
            return Err(NotServing::Starting);
        }
        if filled.len() < desired.len() {
            return Err(NotServing::Starting);
        }
        Ok(self.serving_status())
    }

    /// Returns how long the API server may still fail to reach this replica through the Service.
    fn service_delay(&self, filled: &[ConfigurationKind]) -> Option<SignedDuration> {
        let has_url = self.context.config.webhook.url.is_some();
        let is_skipped = has_url || self.input.configurations.can_refuse(filled);
        if is_skipped { None } else { remaining_service_delay(self.input.ready_for) }
    }

    /// Sets failure policy `Ignore` if the API server does not accept the served certificate.
    async fn stop_refusing(&self, desired: &[ConfigurationKind]) -> Result<(), WriteError> {
        let observed = &self.input.configurations;
        let filled: Vec<_> = desired.iter().copied().filter(|kind| observed.is_filled(*kind)).collect();
        if filled.is_empty() || self.check_trust(&observed.bundles(&filled).collect::<Vec<_>>()).is_ok() {
            return Ok(());
        }
        let patches = self.desired_configurations(None, &filled, false).patches(observed);
        configurations::write(&self.context.client, &self.writer, &patches).await
    }

    fn disabled_status(&self) -> Result<AdmissionStatus, NotServing> {
        if !self.input.enabled.is_none() {
            let message = "webhooks are enabled, but --webhook-bind-address is 0: set a port such as :9443";
            return Err(failed("NotListening", message));
        }
        let unread =
            self.input.configurations.unread(&ConfigurationKind::ALL, &self.context.config.namespace);
        unread.map_or(Ok(AdmissionStatus::Disabled), |unread| Err(self.not_read(&unread)))
    }

    /// Returns the state of an object that has not been read yet: pending at first, and then a failure.
    fn not_read(&self, unread: &str) -> NotServing {
        if !self.input.is_overdue {
            return NotServing::Pending;
        }
        let message = format!(
            "{unread} could not be read for a minute: give the operator's service account the verbs get, list and \
             watch for it, and see the operator's log"
        );
        failed("NotReadable", message)
    }

    /// Checks that the API server accepts the served certificate with each of these CA bundles.
    fn check_trust(&self, bundles: &[String]) -> Result<(), NotServing> {
        let Some(served) = &self.input.served else {
            let message = "the webhook certificate is not loaded yet: see the operator's log";
            return Err(failed("CertificateNotLoaded", message));
        };
        if bundles.is_empty() || bundles.iter().any(String::is_empty) {
            return Err(failed(
                "CertificateNotTrusted",
                "cert-manager has not set caBundle yet: check that it is running, and that its Certificate has the \
                 name of the Secret; until then the webhooks refuse nothing if they cannot be reached",
            ));
        }
        let check =
            |bundle: &String| pem::check(&served.chain, bundle.as_bytes(), &self.server_name(), self.now);
        bundles.iter().try_for_each(check).map_err(|error| self.not_trusted(&error))
    }

    /// Writes the webhook configurations. Ends the pass if that changed anything.
    async fn fill(
        &self,
        bundle: Option<&str>,
        filled: &[ConfigurationKind],
        is_reachable: bool,
    ) -> Result<(), NotServing> {
        let desired = self.desired_configurations(bundle, filled, is_reachable);
        let patches = desired.patches(&self.input.configurations);
        if patches.is_empty() {
            return Ok(());
        }
        if self.is_secret_current().await? {
            configurations::write(&self.context.client, &self.writer, &patches).await?;
        }
        Err(NotServing::Pending)
    }

    fn desired_configurations<'a>(
        &'a self,
        bundle: Option<&'a str>,
        filled: &'a [ConfigurationKind],
        is_reachable: bool,
    ) -> DesiredConfigurations<'a> {
        let config = &self.context.config;
        let settings = WebhookSettings {
            namespace: &config.namespace,
            url: config.webhook.url.as_ref(),
            bundle,
            is_reachable,
            injector_required: self.input.enabled.injector_required,
        };
        let inject_from = match &config.webhook.certificates {
            CertificateSource::CertManager { secret } => Some(format!("{}/{secret}", config.namespace)),
            CertificateSource::Own | CertificateSource::Provided { .. } => None,
        };
        DesiredConfigurations { filled, settings, inject_from }
    }

    /// Returns whether the watch has the latest Secret. The CAs of an outdated Secret must not be written.
    async fn is_secret_current(&self) -> Result<bool, WriteError> {
        let SecretState::Present(observed) = &self.input.secret else { return Ok(false) };
        let secrets: Api<Secret> =
            Api::namespaced(self.context.client.clone(), &self.context.config.namespace);
        let name = self.context.config.webhook.secret_name();
        let stored = self.writer.read(&secrets, name).await?;
        let is_current = stored.and_then(|secret| secret.metadata.resource_version) == observed.version;
        if !is_current {
            tracing::info!(name, "Secret has changed: waiting for the watch");
        }
        Ok(is_current)
    }

    fn serving_status(&self) -> AdmissionStatus {
        let until = self.input.served.as_ref().and_then(|served| served.expires);
        // Other certificates are renewed automatically.
        let is_provided =
            matches!(self.context.config.webhook.certificates, CertificateSource::Provided { .. });
        let expires_soon =
            is_provided && until.is_some_and(|until| until.duration_since(self.now) < EXPIRY_NOTICE);
        AdmissionStatus::Serving { until, expires_soon }
    }

    fn server_name(&self) -> String {
        self.context.config.webhook.server_name(&self.context.config.namespace)
    }

    fn not_trusted(&self, error: &UnusableCertificate) -> NotServing {
        let (secret, name) = (self.context.config.webhook.secret_name(), self.server_name());
        let message = format!(
            "the certificate in Secret {secret} cannot be used for {name}: {error}; replace tls.crt, tls.key and ca.crt"
        );
        failed("CertificateNotTrusted", message)
    }
}

/// Returns the rest of [`SERVICE_DELAY`] for a replica that has been ready for this time.
fn remaining_service_delay(ready_for: Option<Duration>) -> Option<SignedDuration> {
    let rest = SERVICE_DELAY.checked_sub(ready_for.unwrap_or_default())?;
    SignedDuration::try_from(rest).ok().filter(SignedDuration::is_positive)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn webhooks_refuse_nothing_before_the_service_leads_to_this_replica() {
        let rest = |seconds: Option<u64>| remaining_service_delay(seconds.map(Duration::from_secs));
        assert_eq!(rest(None), Some(SignedDuration::from_secs(30)));
        assert_eq!(rest(Some(10)), Some(SignedDuration::from_secs(20)));
        assert_eq!(rest(Some(30)), None);
        assert_eq!(rest(Some(300)), None);
    }
}
