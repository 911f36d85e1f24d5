//! Watch of the Secret with the certificate, in every replica. A usable certificate is served at once.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use rustls::sign::CertifiedKey;
use rustls_pki_types::CertificateDer;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use vfleet_cluster::watch::{
    SingleObject, SingleObjectState, into_readable, publish_if_changed, select_name, watch_objects,
};

use super::own::{AUTHORITIES, CHAIN, KEY, SecretData};
use super::pem::{UnusableCertificate, check, check_alone, expiry, parse_pair, split_certificates};
use crate::OperatorError;
use crate::admission::config::CertificateSource;
use crate::admission::tls::CertificateResolver;
use crate::replica::context::Context;

/// Time until an unusable certificate is checked again: it may not be valid yet, or a clock may be wrong.
const RETRY_DELAY: Duration = Duration::from_secs(15);

/// Time until a provided certificate of another CA is served. The leading replica adds the CA to `caBundle` first;
/// after a failure of the leader that takes up to 15 s.
const TRUST_DELAY: Duration = Duration::from_secs(20);

/// Time that another replica with a slow watch may still serve the previous certificate.
const PROPAGATION_TIME: Duration = Duration::from_mins(1);

/// State of the Secret with the certificate.
#[derive(Clone, Default, PartialEq)]
pub(crate) enum SecretState {
    /// Not read yet.
    #[default]
    Unknown,
    /// The Secret does not exist.
    Missing,
    /// The Secret exists.
    Present(Arc<SecretContents>),
}

/// Contents of the Secret. They have no `Debug`, because of the keys.
#[derive(PartialEq)]
pub(crate) struct SecretContents {
    pub(crate) version: Option<String>,
    pub(crate) data: SecretData,
}

/// Certificate that this replica serves.
pub(crate) struct ServedCertificate {
    /// Certificate, followed by its CAs.
    pub(crate) chain: Vec<CertificateDer<'static>>,
    /// Expiry, if it can be read.
    pub(crate) expires: Option<Timestamp>,
    /// CA bundle of a provided certificate.
    bundle: Option<String>,
    /// CA bundle of the previous certificate, and the time when it was replaced.
    previous: Option<(String, Instant)>,
}

impl ServedCertificate {
    /// Returns the CA bundle to trust while a provided certificate with this `bundle` is rolled out, and how long it
    /// applies. It includes the bundle of the certificate that this or another replica still serves.
    pub(super) fn rollout_bundle(&self, bundle: String) -> (String, Option<Duration>) {
        let time_left =
            |since: &Instant| PROPAGATION_TIME.checked_sub(since.elapsed()).filter(|left| !left.is_zero());
        let (additional, left) = match (&self.bundle, &self.previous) {
            (Some(served), _) if *served != bundle => (served, None),
            (_, Some((previous, since))) if time_left(since).is_some() => (previous, time_left(since)),
            _ => return (bundle, None),
        };
        let trusted = split_certificates(&bundle);
        let more = split_certificates(additional).into_iter().filter(|block| !trusted.contains(block));
        (more.fold(bundle, |all, block| format!("{}\n{block}", all.trim_end())), left)
    }
}

/// Watches the Secret, serves its certificate with `resolver`, and publishes the `secret` and the `served` certificate.
pub(crate) async fn follow(
    context: Context,
    resolver: CertificateResolver,
    secret: watch::Sender<SecretState>,
    served: watch::Sender<Option<Arc<ServedCertificate>>>,
) -> Result<(), OperatorError> {
    let name = select_name(context.config.webhook.secret_name());
    let api = Api::namespaced(context.client.clone(), &context.config.namespace);
    let mut events = std::pin::pin!(watch_objects::<Secret>(api, name));
    let mut object = SingleObject::default();
    let mut loader = CertificateLoader { context: &context, resolver, served, pending: None };
    loop {
        let event = tokio::select! {
            event = events.next() => event.ok_or(OperatorError::WatchEnded)?,
            () = loader.retry() => continue,
        };
        match object.update(event) {
            SingleObjectState::Listing => {}
            // The last certificate stays in use.
            SingleObjectState::Absent => {
                loader.pending = None;
                publish_if_changed(&secret, SecretState::Missing);
            }
            SingleObjectState::Present(found) => {
                let Some(found) = into_readable(*found) else { continue };
                let data = found.data.unwrap_or_default();
                let contents = Arc::new(SecretContents { version: found.metadata.resource_version, data });
                loader.pending = None;
                // The manifests contain an empty Secret.
                if !contents.data.is_empty() {
                    loader.load(&contents, false);
                }
                publish_if_changed(&secret, SecretState::Present(contents));
            }
        }
    }
}

/// Loads certificates into the TLS server.
struct CertificateLoader<'a> {
    context: &'a Context,
    resolver: CertificateResolver,
    served: watch::Sender<Option<Arc<ServedCertificate>>>,
    /// Secret to load later, and the time.
    pending: Option<(Arc<SecretContents>, Instant)>,
}

impl CertificateLoader<'_> {
    /// Serves the certificate of the Secret, or schedules another attempt.
    fn load(&mut self, contents: &Arc<SecretContents>, is_retry: bool) {
        let delay = match check_secret(self.context, &contents.data) {
            Ok(checked) if !is_retry && self.has_other_ca(&checked) => {
                tracing::info!(
                    seconds = TRUST_DELAY.as_secs(),
                    "webhook certificate has another CA: serving it later"
                );
                TRUST_DELAY
            }
            Ok(checked) => {
                self.pending = None;
                return self.serve(checked);
            }
            Err(error) => {
                if !is_retry {
                    tracing::warn!(%error, "webhook certificate cannot be used: the last valid one stays in use");
                }
                RETRY_DELAY
            }
        };
        self.pending = Some((Arc::clone(contents), Instant::now() + delay));
    }

    /// Returns whether API servers must first trust another CA, while the served certificate is still valid.
    fn has_other_ca(&self, next: &CheckedCertificate) -> bool {
        let served = self.served.borrow();
        served.as_deref().is_some_and(|served| {
            served.bundle != next.bundle && served.expires.is_some_and(|expires| expires > Timestamp::now())
        })
    }

    fn serve(&self, CheckedCertificate { pair, bundle }: CheckedCertificate) {
        let (chain, expires) = (pair.cert.clone(), pair.cert.first().and_then(expiry));
        self.context.metrics.set_certificate_expiry(expires);
        self.resolver.set(pair);
        let last = self.served.borrow().clone();
        if last.as_ref().is_some_and(|last| last.chain == chain && last.bundle == bundle) {
            return;
        }
        let previous = last.and_then(|last| Some((last.bundle.clone()?, Instant::now())));
        self.served.send_replace(Some(Arc::new(ServedCertificate { chain, expires, bundle, previous })));
        tracing::info!("webhook certificate loaded");
    }

    /// Loads the pending Secret when its time has come. Never returns if there is none.
    async fn retry(&mut self) {
        let Some((contents, time)) = self.pending.clone() else { return std::future::pending().await };
        sleep_until(time).await;
        self.load(&contents, true);
    }
}

/// Certificate that can be served.
pub(super) struct CheckedCertificate {
    pair: CertifiedKey,
    /// CA bundle of a provided certificate.
    pub(super) bundle: Option<String>,
}

/// Checks whether the certificate in the Secret can be served, as far as the API server's CA bundle is known.
pub(super) fn check_secret(
    context: &Context,
    data: &SecretData,
) -> Result<CheckedCertificate, UnusableCertificate> {
    let config = &context.config.webhook;
    let get = |key| data.get(key).map(|bytes| bytes.0.as_slice()).ok_or(UnusableCertificate::Missing(key));
    let pair = parse_pair(get(CHAIN)?, get(KEY)?)?;
    let (name, now) = (config.server_name(&context.config.namespace), Timestamp::now());
    let check_with = |authority| {
        let bundle = find_bundle(data, authority).ok_or(UnusableCertificate::NoAuthority)?;
        check(&pair.cert, bundle.as_bytes(), &name, now).map(|()| bundle)
    };
    let bundle = match &config.certificates {
        CertificateSource::Own => check_with(None).map(|_| None)?,
        CertificateSource::Provided { authority, .. } => Some(check_with(authority.as_deref())?),
        CertificateSource::CertManager { .. } => check_alone(&pair.cert, &name, now).map(|()| None)?,
    };
    Ok(CheckedCertificate { pair, bundle })
}

/// Returns the CA bundle in the Secret, or else the configured `authority`.
fn find_bundle(data: &SecretData, authority: Option<&str>) -> Option<String> {
    let text = |ByteString(bytes): &ByteString| String::from_utf8_lossy(bytes).into_owned();
    let stored = data.get(AUTHORITIES).map(text).filter(|bundle| !bundle.trim().is_empty());
    stored.or_else(|| authority.map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::super::issue::issue_now;
    use super::*;

    fn served(bundle: &str, previous: Option<(String, Instant)>) -> ServedCertificate {
        ServedCertificate { chain: Vec::new(), expires: None, bundle: Some(bundle.to_owned()), previous }
    }

    #[tokio::test(start_paused = true)]
    async fn cas_stay_trusted_while_a_replica_may_serve_their_certificate() {
        let [old, new] = [(), ()].map(|()| issue_now(&["here"]).authority().unwrap());
        let both = format!("{new}{old}");
        let is_pending = served(&old, None);
        assert_eq!(is_pending.rollout_bundle(new.clone()), (both.clone(), None), "not served yet");
        let is_replaced = served(&new, Some((old, Instant::now())));
        tokio::time::advance(Duration::from_secs(20)).await;
        let left = Some(Duration::from_secs(40));
        assert_eq!(is_replaced.rollout_bundle(new.clone()), (both, left), "other replicas may be slower");
        tokio::time::advance(Duration::from_secs(40)).await;
        assert_eq!(is_replaced.rollout_bundle(new.clone()), (new.clone(), None));
        assert_eq!(served(&new, None).rollout_bundle(new.clone()), (new, None));
    }
}
