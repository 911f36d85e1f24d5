//! The certificate that the Secret holds: made, provided, or cert-manager's.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Api;
use kube::api::Patch;
use serde_json::json;
use vfleet_api::keys::WEBHOOK_SECRET;
use vfleet_plan::certificates::{Renewal, Told, renewal};

use super::super::followed::{self, Contents, SecretSeen};
use super::super::kept::Kept;
use super::super::make::{Made, make};
use super::super::pem;
use super::{LOOK_AGAIN, Not, Pass, trouble};
use crate::admission::config::CertificateSource;
use crate::admission::configurations::Which;

/// What is to be said of a certificate.
pub(super) struct Certificate {
    /// Whom the API server shall trust; `None` when somebody else tells it.
    pub(super) bundle: Option<String>,
    /// When to look at it again.
    pub(super) look_again: Option<Timestamp>,
}

impl Pass {
    /// What the Secret has, after the step that is due with it.
    pub(super) async fn certificate(&self) -> Result<Certificate, Not> {
        let config = &self.context.config.webhook;
        let contents = match &self.known.secret {
            SecretSeen::There(contents) => contents,
            SecretSeen::Unknown => return Err(Not::Yet),
            SecretSeen::Missing if config.certificates == CertificateSource::Own => {
                let message =
                    format!("the Secret {WEBHOOK_SECRET} is not there: apply the manifests of vfleet again");
                return Err(trouble("NoCertificateSecret", message));
            }
            SecretSeen::Missing => {
                let message = format!(
                    "the Secret {} is not there: put a certificate for {} into it, as tls.crt and tls.key",
                    config.secret(),
                    self.server_name(),
                );
                return Err(trouble("NoCertificateSecret", message));
            }
        };
        match &config.certificates {
            CertificateSource::Own => self.own(contents).await,
            CertificateSource::Provided { authority, .. } => self.provided(contents, authority.as_deref()),
            CertificateSource::CertManager { .. } => {
                followed::usable(&self.context, &contents.data).map_err(|error| self.not_trusted(&error))?;
                Ok(Certificate { bundle: None, look_again: self.now.checked_add(LOOK_AGAIN).ok() })
            }
        }
    }

    /// Makes the next step with own certificates, if one is due.
    async fn own(&self, contents: &Contents) -> Result<Certificate, Not> {
        let namespace = &self.context.config.namespace;
        let config = &self.context.config.webhook;
        let names = config.names(namespace);
        let kept = Kept::read(&contents.data, &self.server_name(), self.now);
        let lifetime = i64::try_from(config.lifetime.as_secs()).unwrap_or(i64::MAX);
        let step = renewal(&kept.times, &names, self.told(&kept.bundle()), self.now.as_second(), lifetime);
        let (kept, what) = match step {
            Renewal::Keep { look_again } => {
                let look_again = Timestamp::from_second(look_again).ok();
                return Ok(Certificate { bundle: Some(kept.bundle()), look_again });
            }
            Renewal::MakeFirst => (Kept::first(self.make(&names, config.lifetime)?), "made"),
            Renewal::MakeNext => {
                let made = self.make(&names, config.lifetime)?;
                (kept.with_next(made, self.trusted_now()), "made, to be served next")
            }
            Renewal::NoteTrusted => (kept.trusted(self.now), "trusted, to be served soon"),
            Renewal::Promote => (kept.promoted(), "served from now on"),
        };
        let patch = json!({ "metadata": { "resourceVersion": contents.version }, "data": kept.patch() });
        let secrets: Api<Secret> = Api::namespaced(self.context.client.clone(), namespace);
        self.writer.patch(&secrets, WEBHOOK_SECRET, &Patch::Merge(patch)).await?;
        tracing::info!("a certificate of the webhooks is {what}");
        Err(Not::Yet)
    }

    fn make(&self, names: &[String], lifetime: Duration) -> Result<Made, Not> {
        make(names, self.now, lifetime)
            .map_err(|error| trouble("CertificateNotMade", format!("no certificate can be made: {error}")))
    }

    /// What the API server was told to trust, of what it shall.
    fn told(&self, bundle: &str) -> Told {
        let mut bundles = self.known.found.bundles(&Which::ALL).peekable();
        if bundles.peek().is_none() {
            Told::AsksNobody
        } else if bundles.all(|found| found == bundle) {
            Told::All
        } else {
            Told::NotAll
        }
    }

    /// All that the API server trusts now, each in PEM.
    fn trusted_now(&self) -> Vec<String> {
        self.known.found.bundles(&Which::ALL).flat_map(|bundle| pem::blocks(&bundle)).collect()
    }

    fn provided(&self, contents: &Contents, authority: Option<&str>) -> Result<Certificate, Not> {
        let Some(bundle) = followed::bundle(&contents.data, authority) else {
            let message = format!(
                "whom the API server shall trust is not known: put it into the Secret {} as ca.crt, or into \
                 ADMISSION_CONTROLLERS_CERTIFICATES_OPERATOR_CA_CRT",
                self.context.config.webhook.secret()
            );
            return Err(trouble("CertificateNotTrusted", message));
        };
        followed::usable(&self.context, &contents.data).map_err(|error| self.not_trusted(&error))?;
        let (bundle, left) = match &self.known.served {
            Some(served) => served.trusted_with(bundle),
            None => (bundle, None),
        };
        let left = left.and_then(|left| SignedDuration::try_from(left).ok()).unwrap_or(LOOK_AGAIN);
        Ok(Certificate { bundle: Some(bundle), look_again: self.now.checked_add(left.min(LOOK_AGAIN)).ok() })
    }
}
