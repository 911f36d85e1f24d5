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
use vfleet_cluster::watch::{Sight, Single, changes, only, publish, readable};

use super::kept::{AUTHORITIES, CHAIN, Data, KEY};
use super::pem::{Unusable, blocks, check, check_alone, end_of, pair};
use crate::OperatorError;
use crate::admission::config::CertificateSource;
use crate::admission::tls::Resolver;
use crate::replica::context::Context;

/// What cannot be served now may be good later: its time has not come, or a clock was wrong.
const TRY_AGAIN: Duration = Duration::from_secs(15);

/// A provided certificate of another authority is served only after this time: whoever leads tells the API servers first
/// whom else to trust. Somebody leads again after 15 s at most.
const TIME_TO_BE_TRUSTED: Duration = Duration::from_secs(20);

/// Another replica may serve the one before for so long, by a watch that is slow.
const TIME_TO_FOLLOW: Duration = Duration::from_mins(1);

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
    /// Whom the API server has to trust for it, of a provided one.
    authorities: Option<String>,
    /// Whom for the one before, and since when that is served no more.
    before: Option<(String, Instant)>,
}

impl Served {
    /// What has to be trusted for a provided certificate of these `authorities`, and until when to trust more than these:
    /// also those of the one that is still served, here or elsewhere.
    pub(super) fn trusted_with(&self, authorities: String) -> (String, Option<Duration>) {
        let left =
            |since: &Instant| TIME_TO_FOLLOW.checked_sub(since.elapsed()).filter(|left| !left.is_zero());
        let (besides, left) = match (&self.authorities, &self.before) {
            (Some(served), _) if *served != authorities => (served, None),
            (_, Some((before, since))) if left(since).is_some() => (before, left(since)),
            _ => return (authorities, None),
        };
        let known = blocks(&authorities);
        let more = blocks(besides).into_iter().filter(|block| !known.contains(block));
        (more.fold(authorities, |all, block| format!("{}\n{block}", all.trim_end())), left)
    }
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
    let mut serving = Serving { context: &context, resolver, served, later: None };
    loop {
        let event = tokio::select! {
            event = changes.next() => event.ok_or(OperatorError::WatchEnded)?,
            () = serving.time_to_try_again() => continue,
        };
        match single.take(event) {
            Sight::Nothing => {}
            // What is served goes on being served.
            Sight::Gone => {
                serving.later = None;
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

/// What is served, and what is to be, later.
struct Serving<'a> {
    context: &'a Context,
    resolver: Resolver,
    served: watch::Sender<Option<Arc<Served>>>,
    /// What could not be served, or shall not be yet.
    later: Option<(Arc<Contents>, Instant)>,
}

impl Serving<'_> {
    fn take(&mut self, contents: &Arc<Contents>) {
        self.later = None;
        // The Secret is shipped empty.
        if contents.data.is_empty() {
            return;
        }
        let after = match usable(self.context, &contents.data) {
            Ok(usable) if self.is_of_others(&usable) => {
                tracing::info!(
                    "another authority is behind the next certificate: it is served when that is trusted"
                );
                TIME_TO_BE_TRUSTED
            }
            Ok(usable) => return self.serve(usable),
            Err(error) => {
                tracing::warn!(%error, "the certificate of the webhooks cannot be served; the last good one is");
                TRY_AGAIN
            }
        };
        self.later = Some((Arc::clone(contents), Instant::now() + after));
    }

    /// Whether API servers that accept what is served, as long as it is good, have to be told whom else to trust.
    fn is_of_others(&self, next: &Usable) -> bool {
        let served = self.served.borrow();
        served.as_deref().is_some_and(|served| {
            served.authorities != next.authorities
                && served.until.is_some_and(|until| until > Timestamp::now())
        })
    }

    fn serve(&self, Usable { pair, authorities }: Usable) {
        let (chain, until) = (pair.cert.clone(), pair.cert.first().and_then(end_of));
        self.context.metrics.certificate_expires(until);
        self.resolver.set(pair);
        let last = self.served.borrow().clone();
        if last.as_ref().is_some_and(|last| last.chain == chain && last.authorities == authorities) {
            return;
        }
        let before = last.and_then(|last| Some((last.authorities.clone()?, Instant::now())));
        self.served.send_replace(Some(Arc::new(Served { chain, until, authorities, before })));
        tracing::info!("the certificate of the webhooks is loaded");
    }

    /// Serves what was to be served later, when it is time. Never ends when there is nothing.
    async fn time_to_try_again(&mut self) {
        let Some((contents, time)) = &self.later else { return std::future::pending().await };
        sleep_until(*time).await;
        match usable(self.context, &contents.data) {
            Ok(usable) => {
                self.serve(usable);
                self.later = None;
            }
            Err(_) => self.later = Some((Arc::clone(contents), Instant::now() + TRY_AGAIN)),
        }
    }
}

/// What can be served.
pub(super) struct Usable {
    pair: CertifiedKey,
    /// Whom the API server has to trust for it, of a provided one.
    authorities: Option<String>,
}

/// Checked for what the API server will say, as far as it is known whom that trusts.
pub(super) fn usable(context: &Context, data: &Data) -> Result<Usable, Unusable> {
    let config = &context.config.webhook;
    let (pair, name, now) = (read(data)?, config.server_name(&context.config.namespace), Timestamp::now());
    let trusted = |authority| bundle(data, authority).ok_or(Unusable::Missing(AUTHORITIES));
    let authorities = match &config.certificates {
        CertificateSource::Own => {
            check(&pair.cert, trusted(None)?.as_bytes(), &name, now)?;
            None
        }
        CertificateSource::Provided { authority, .. } => {
            let authorities = trusted(authority.as_deref())?;
            check(&pair.cert, authorities.as_bytes(), &name, now)?;
            Some(authorities)
        }
        CertificateSource::CertManager { .. } => {
            check_alone(&pair.cert, &name, now)?;
            None
        }
    };
    Ok(Usable { pair, authorities })
}

/// Whom to trust, as the Secret says, or else somebody before.
pub(super) fn bundle(data: &Data, authority: Option<&str>) -> Option<String> {
    let text = |ByteString(bytes): &ByteString| String::from_utf8_lossy(bytes).into_owned();
    let given = data.get(AUTHORITIES).map(text).filter(|bundle| !bundle.trim().is_empty());
    given.or_else(|| authority.map(str::to_owned))
}

/// The certificate in the Secret, with its key.
fn read(data: &Data) -> Result<CertifiedKey, Unusable> {
    let get = |key| data.get(key).map(|ByteString(bytes)| bytes.as_slice()).ok_or(Unusable::Missing(key));
    pair(get(CHAIN)?, get(KEY)?)
}

#[cfg(test)]
mod tests {
    use super::super::pem::authority_of;
    use super::super::testing::generation;
    use super::*;

    fn authority() -> String {
        authority_of(&generation(&["here"]).chain).unwrap()
    }

    fn served(authorities: &str, before: Option<(String, Instant)>) -> Served {
        Served { chain: Vec::new(), until: None, authorities: Some(authorities.to_owned()), before }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_still_served_somewhere_is_still_trusted() {
        let [old, new] = [authority(), authority()];
        let both = format!("{new}{old}");
        assert_eq!(
            served(&old, None).trusted_with(new.clone()),
            (both.clone(), None),
            "it is not served yet"
        );
        let swapped = served(&new, Some((old.clone(), Instant::now())));
        tokio::time::advance(Duration::from_secs(20)).await;
        let left = Some(Duration::from_secs(40));
        assert_eq!(swapped.trusted_with(new.clone()), (both, left), "others may be slower");
        tokio::time::advance(Duration::from_secs(40)).await;
        assert_eq!(swapped.trusted_with(new.clone()), (new.clone(), None));
        assert_eq!(served(&new, None).trusted_with(new.clone()), (new, None));
    }
}
