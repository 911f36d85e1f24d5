//! Certificate in the Secret: issued by the operator, provided by an administrator, or by cert-manager.

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Api;
use kube::api::Patch;
use serde_json::json;
use vfleet_api::keys::WEBHOOK_SECRET;
use vfleet_plan::certificates::{CaBundleState, RenewalStep, plan_renewal};

use super::super::issue::issue;
use super::super::own::OwnCertificates;
use super::super::pem::split_certificates;
use super::super::secret::{SecretContents, SecretState, check_secret};
use super::{CHECK_INTERVAL, NotServing, Reconciliation, failed};
use crate::admission::config::CertificateSource;
use crate::admission::configurations::ConfigurationKind;

/// Result of the certificate part of a pass.
pub(super) struct CertificateStatus {
    /// CA bundle for the webhook configurations; `None` if cert-manager sets it.
    pub(super) bundle: Option<String>,
    /// Time of the next check without an event.
    pub(super) check_at: Option<Timestamp>,
}

impl Reconciliation {
    /// Executes the step that is due for the certificate in the Secret.
    pub(super) async fn reconcile_certificate(&self) -> Result<CertificateStatus, NotServing> {
        let config = &self.context.config.webhook;
        let (secret, is_own) = (config.secret_name(), config.certificates == CertificateSource::Own);
        let contents = match &self.input.secret {
            SecretState::Present(contents) => contents,
            SecretState::Unknown => return Err(self.not_read(&format!("Secret {secret}"))),
            SecretState::Missing => {
                let remedy = if is_own {
                    "apply the manifests of vfleet again".to_owned()
                } else {
                    format!("create it with a certificate for {} as tls.crt and tls.key", self.server_name())
                };
                let message = format!("Secret {secret} does not exist: {remedy}");
                return Err(failed("NoCertificateSecret", message));
            }
        };
        if is_own {
            return self.renew(contents).await;
        }
        let checked =
            check_secret(&self.context, &contents.data).map_err(|error| self.not_trusted(&error))?;
        let (bundle, left) = match (checked.bundle, &self.input.served) {
            (Some(bundle), Some(served)) => {
                let (bundle, left) = served.rollout_bundle(bundle);
                (Some(bundle), left)
            }
            (bundle, _) => (bundle, None),
        };
        let left = left.and_then(|left| SignedDuration::try_from(left).ok()).unwrap_or(CHECK_INTERVAL);
        let check_at = self.now.checked_add(left.min(CHECK_INTERVAL)).ok();
        Ok(CertificateStatus { bundle, check_at })
    }

    /// Executes the next renewal step of own certificates.
    async fn renew(&self, contents: &SecretContents) -> Result<CertificateStatus, NotServing> {
        let namespace = &self.context.config.namespace;
        let config = &self.context.config.webhook;
        let names = config.certificate_names(namespace);
        let own = OwnCertificates::parse(&contents.data, &self.server_name(), self.now);
        let lifetime = i64::try_from(config.lifetime.as_secs()).unwrap_or(i64::MAX);
        let bundle_state = self.bundle_state(&own.bundle());
        let step = plan_renewal(&own.generations, &names, bundle_state, self.now.as_second(), lifetime);
        let issue = || {
            issue(&names, self.now, config.lifetime).map_err(|error| {
                failed("CertificateIssueFailed", format!("failed to issue a webhook certificate: {error}"))
            })
        };
        let (own, event) = match step {
            RenewalStep::Wait { until } => {
                let check_at = Timestamp::from_second(until).ok();
                return Ok(CertificateStatus { bundle: Some(own.bundle()), check_at });
            }
            RenewalStep::IssueFirst => (OwnCertificates::first(issue()?), "issued"),
            RenewalStep::IssueNext => (own.with_next(issue()?, self.trusted_cas()), "issued for later use"),
            RenewalStep::RecordTrust => (own.with_trust(self.now), "trusted by the API server"),
            RenewalStep::Promote => (own.promoted(), "put into use"),
        };
        let patch = json!({ "metadata": { "resourceVersion": contents.version }, "data": own.to_patch() });
        let secrets: Api<Secret> = Api::namespaced(self.context.client.clone(), namespace);
        self.writer.patch(&secrets, WEBHOOK_SECRET, &Patch::Merge(patch)).await?;
        tracing::info!("webhook certificate {event}");
        Err(NotServing::Pending)
    }

    /// Compares `caBundle` of all webhooks with the desired bundle.
    fn bundle_state(&self, desired: &str) -> CaBundleState {
        let mut bundles = self.input.configurations.bundles(&ConfigurationKind::ALL).peekable();
        if bundles.peek().is_none() {
            CaBundleState::NoWebhooks
        } else if bundles.all(|bundle| bundle == desired) {
            CaBundleState::UpToDate
        } else {
            CaBundleState::Outdated
        }
    }

    /// Returns all CAs in the webhook configurations, each in PEM.
    fn trusted_cas(&self) -> Vec<String> {
        let bundles = self.input.configurations.bundles(&ConfigurationKind::ALL);
        bundles.flat_map(|bundle| split_certificates(&bundle)).collect()
    }
}
