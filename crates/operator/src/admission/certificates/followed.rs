//! The Secret with the certificate, followed by every replica: what is in it is served from then on.

use std::fmt;
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

use super::kept::{AUTHORITIES, CHAIN, Data, KEY};
use super::pem::{Unusable, check, end_of, pair};
use crate::OperatorError;
use crate::admission::config::CertificateSource;
use crate::admission::tls::Resolver;
use crate::context::Context;
use crate::watch::{Sight, Single, changes, only, publish, readable};

/// What cannot be served now may be good later: its time has not come, or a clock was wrong.
const TRY_AGAIN: Duration = Duration::from_secs(15);

/// What is known about the Secret with the certificate.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum SecretSeen {
    /// Not looked for yet.
    #[default]
    Unknown,
    /// It is not there.
    Missing,
    /// This one.
    There(Arc<Contents>),
}

/// What is in it.
#[derive(PartialEq)]
pub(crate) struct Contents {
    pub(crate) version: Option<String>,
    pub(crate) data: Data,
}

impl fmt::Debug for Contents {
    /// Without what is in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contents").field("version", &self.version).finish_non_exhaustive()
    }
}

/// What this replica serves.
#[derive(Debug, PartialEq)]
pub(crate) struct Served {
    /// The certificate, and its authorities behind it.
    pub(crate) chain: Vec<CertificateDer<'static>>,
    /// When it ends, where that can be read.
    pub(crate) until: Option<Timestamp>,
}

/// Follows the Secret, has `resolver` serve what is in it, and tells what was `seen` and what is `served` since.
pub(crate) async fn follow(
    context: Context,
    resolver: Resolver,
    seen: watch::Sender<SecretSeen>,
    served: watch::Sender<Option<Arc<Served>>>,
) -> Result<(), OperatorError> {
    let secret = context.config.webhook.secret();
    let api = Api::namespaced(context.client.clone(), &context.config.namespace);
    let mut changes = std::pin::pin!(changes::<Secret>(api, only(secret)));
    let mut single = Single::default();
    let mut serving = Serving { context: &context, resolver, served, failed: None };
    loop {
        let event = tokio::select! {
            event = changes.next() => event.ok_or(OperatorError::WatchEnded)?,
            () = serving.time_to_try_again() => continue,
        };
        match single.take(event) {
            Sight::Nothing => {}
            // What is served goes on being served.
            Sight::Gone => {
                serving.failed = None;
                publish(&seen, SecretSeen::Missing);
            }
            Sight::There(found) => {
                let Some(found) = readable(*found) else { continue };
                let data = found.data.unwrap_or_default();
                let contents = Arc::new(Contents { version: found.metadata.resource_version, data });
                serving.take(&contents);
                publish(&seen, SecretSeen::There(contents));
            }
        }
    }
}

/// What is served, and what could not be.
struct Serving<'a> {
    context: &'a Context,
    resolver: Resolver,
    served: watch::Sender<Option<Arc<Served>>>,
    failed: Option<(Arc<Contents>, Instant)>,
}

impl Serving<'_> {
    fn take(&mut self, contents: &Arc<Contents>) {
        self.failed = None;
        // The Secret is shipped empty.
        if contents.data.is_empty() {
            return;
        }
        if let Err(error) = self.serve(&contents.data) {
            tracing::warn!(%error, "the certificate of the webhooks cannot be served; the last good one is");
            self.failed = Some((Arc::clone(contents), Instant::now() + TRY_AGAIN));
        }
    }

    fn serve(&self, data: &Data) -> Result<(), Unusable> {
        let pair = usable(self.context, data)?;
        let served = Served { chain: pair.cert.clone(), until: pair.cert.first().and_then(end_of) };
        self.context.metrics.certificate_expires(served.until);
        self.resolver.set(pair);
        let is_news = self.served.borrow().as_deref() != Some(&served);
        if is_news {
            self.served.send_replace(Some(Arc::new(served)));
            tracing::info!("the certificate of the webhooks is loaded");
        }
        Ok(())
    }

    /// Tries what could not be served again, when it is time. Never ends when there is nothing to try.
    async fn time_to_try_again(&mut self) {
        let Some((contents, time)) = &self.failed else { return std::future::pending().await };
        sleep_until(*time).await;
        match self.serve(&contents.data) {
            Ok(()) => self.failed = None,
            Err(_) => self.failed = Some((Arc::clone(contents), Instant::now() + TRY_AGAIN)),
        }
    }
}

/// Checked for what the API server will say, where it is known whom that trusts.
fn usable(context: &Context, data: &Data) -> Result<CertifiedKey, Unusable> {
    let config = &context.config.webhook;
    let pair = read(data)?;
    let bundle = match &config.certificates {
        CertificateSource::Own => Some(bundle(data, None).ok_or(Unusable::Missing(AUTHORITIES))?),
        CertificateSource::Provided { authority, .. } => bundle(data, authority.as_deref()),
        CertificateSource::CertManager { .. } => None,
    };
    if let Some(bundle) = bundle {
        let name = config.server_name(&context.config.namespace);
        check(&pair.cert, bundle.as_bytes(), &name, Timestamp::now())?;
    }
    Ok(pair)
}

/// Whom to trust, as the Secret says, or else somebody before.
pub(super) fn bundle(data: &Data, authority: Option<&str>) -> Option<String> {
    let text = |ByteString(bytes): &ByteString| String::from_utf8_lossy(bytes).into_owned();
    let given = data.get(AUTHORITIES).map(text).filter(|bundle| !bundle.trim().is_empty());
    given.or_else(|| authority.map(str::to_owned))
}

/// The certificate in the Secret, with its key.
pub(super) fn read(data: &Data) -> Result<CertifiedKey, Unusable> {
    let get = |key| data.get(key).map(|ByteString(bytes)| bytes.as_slice()).ok_or(Unusable::Missing(key));
    pair(get(CHAIN)?, get(KEY)?)
}
