//! One pass over certificates and configurations: one step towards what shall be, and how it stands.

mod certificate;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Api;
use tokio::sync::watch;
use vfleet_cluster::watch::publish;
use vfleet_cluster::write::{WriteError, Writer};

use super::followed::{SecretSeen, Served};
use super::pem;
use crate::admission::Standing;
use crate::admission::config::CertificateSource;
use crate::admission::configurations::{self, Found, Frame, Which, Wish};
use crate::admission::index::Ready;
use crate::admission::wanted::Wanted;
use crate::replica::context::Context;

/// How often others' certificates are looked at: nobody tells when they end.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_mins(10);

/// What should come by itself is looked at again after this time, should it not come.
const LOOK_AGAIN_SOON: SignedDuration = SignedDuration::from_mins(1);

/// From being ready until the API server is led to us by our Service: a kubelet asks every 10 s, and the rest is told by
/// watches.
const TIME_TO_BE_FOUND: Duration = Duration::from_secs(30);

/// So long before its end somebody is told of a certificate that is not renewed by us.
const ENDS_SOON: SignedDuration = SignedDuration::from_hours(7 * 24);

/// Who is told what came of it.
pub(super) struct Tell {
    pub(super) standing: watch::Sender<Standing>,
    /// When to look again.
    pub(super) set_alarm: watch::Sender<Option<Timestamp>>,
}

/// What is known when a pass begins.
pub(super) struct Known {
    pub(super) wanted: Wanted,
    pub(super) secret: SecretSeen,
    /// What this replica serves.
    pub(super) served: Option<Arc<Served>>,
    pub(super) found: Found,
    pub(super) ready: Ready,
    /// What is still not known should have been, long ago.
    pub(super) is_overdue: bool,
    /// So long this replica has been ready for whoever asks.
    pub(super) ready_for: Option<Duration>,
}

/// One pass over all of it.
pub(super) struct Pass {
    context: Context,
    writer: Writer,
    known: Known,
    now: Timestamp,
}

/// Why nothing can be served now.
enum Not {
    /// A step was made, or something is being read: what comes of it comes to us.
    Yet,
    /// Something is missing that comes by itself.
    Starting,
    /// Somebody has to do something.
    Trouble { reason: &'static str, message: String },
    /// It was not written.
    Written(WriteError),
}

impl From<WriteError> for Not {
    fn from(error: WriteError) -> Self {
        Self::Written(error)
    }
}

fn trouble(reason: &'static str, message: impl Into<String>) -> Not {
    Not::Trouble { reason, message: message.into() }
}

impl Pass {
    pub(super) fn new(context: Context, known: Known) -> Self {
        let writer = Writer::new(context.leadership.clone());
        Self { context, writer, known, now: Timestamp::now() }
    }

    /// Makes one step, and tells how it stands.
    pub(super) async fn settle(self, tell: Arc<Tell>) -> Result<(), WriteError> {
        let mut alarm = None;
        self.wake_at(&mut alarm, self.served_until());
        let standing = match self.step(&mut alarm).await {
            Ok(standing) => Some(standing),
            Err(Not::Yet) => {
                self.wake(&mut alarm, LOOK_AGAIN_SOON);
                None
            }
            Err(Not::Starting) => {
                self.wake(&mut alarm, LOOK_AGAIN_SOON);
                Some(Standing::Starting)
            }
            Err(Not::Trouble { reason, message }) => {
                tracing::warn!(reason, message, "admission is not served as it should be");
                self.wake(&mut alarm, LOOK_AGAIN);
                Some(Standing::Trouble { reason, message })
            }
            Err(Not::Written(error)) => {
                // Nothing is wrong when somebody else was quicker, or leads.
                if !error.is_conflict() && !matches!(error, WriteError::NotLeading) {
                    let message = format!(
                        "what the API server asks about cannot be written ({error}); it is tried again"
                    );
                    publish(&tell.standing, Standing::Trouble { reason: "ConfigurationFailed", message });
                }
                return Err(error);
            }
        };
        if let Some(standing) = standing {
            publish(&tell.standing, standing);
        }
        tell.set_alarm.send_replace(alarm);
        Ok(())
    }

    /// Sets the alarm, if it would not come earlier anyway.
    fn wake(&self, alarm: &mut Option<Timestamp>, after: SignedDuration) {
        self.wake_at(alarm, self.now.checked_add(after).ok());
    }

    /// The same, at a time; not at one that is over.
    fn wake_at(&self, alarm: &mut Option<Timestamp>, time: Option<Timestamp>) {
        let time = time.filter(|time| *time > self.now);
        *alarm = [*alarm, time].into_iter().flatten().min();
    }

    /// The first moment at which what this replica serves is over.
    fn served_until(&self) -> Option<Timestamp> {
        let until = self.known.served.as_ref()?.until?;
        until.checked_add(SignedDuration::from_secs(1)).ok()
    }

    async fn step(&self, alarm: &mut Option<Timestamp>) -> Result<Standing, Not> {
        let is_served = !self.context.config.webhook.at.is_nowhere();
        let wanted = if is_served { self.known.wanted.configurations() } else { Vec::new() };
        let is_off = |which| !wanted.contains(&which);
        // Before all that may stand in the way of the rest: what is switched off must not be asked about.
        let emptied =
            configurations::empty(&self.context.client, &self.writer, &self.known.found, is_off).await;
        let standing = if wanted.is_empty() {
            self.nothing_is_served()
        } else {
            self.have_it_asked(&wanted, alarm).await
        };
        if let Err(Not::Trouble { .. } | Not::Written(_)) = standing {
            self.hold_up_nobody(&wanted).await?;
        }
        emptied?;
        standing
    }

    async fn have_it_asked(&self, wanted: &[Which], alarm: &mut Option<Timestamp>) -> Result<Standing, Not> {
        let (config, found) = (&self.context.config, &self.known.found);
        self.wait_for_what_is_read(wanted)?;
        let certificate = self.certificate().await?;
        self.wake_at(alarm, certificate.look_again);
        // What is asked about already is kept right, whatever is missing.
        let can_be_filled = |which: &Which| {
            let is_ready = match which {
                Which::Validating | Which::Defaults => self.known.ready.webhook,
                Which::Injector => self.known.ready.injector,
            };
            is_ready || found.is_filled(*which)
        };
        let filled: Vec<_> = wanted.iter().copied().filter(can_be_filled).collect();
        let trusted = match &certificate.bundle {
            Some(bundle) => self.is_trusted(std::slice::from_ref(bundle)),
            None => self.is_trusted(&found.bundles(&filled).collect::<Vec<_>>()),
        };
        let reached = self.is_reached(&filled);
        self.fill(certificate.bundle.as_deref(), &filled, trusted.is_ok() && reached.is_ok()).await?;
        if let Some(missing) = found.missing(wanted, &config.namespace) {
            let message = format!("{missing} is not there: apply the manifests of vfleet again");
            return Err(trouble("NoConfiguration", message));
        }
        trusted?;
        if let Err(settled) = reached {
            self.wake(alarm, settled);
            return Err(Not::Starting);
        }
        if filled.len() < wanted.len() {
            return Err(Not::Starting);
        }
        Ok(self.serving())
    }

    /// Whether the API server finds somebody who answers; if not, when it should.
    fn is_reached(&self, filled: &[Which]) -> Result<(), SignedDuration> {
        let is_by_url = self.context.config.webhook.url.is_some();
        if is_by_url || self.known.found.refuse_without_an_answer(filled) {
            return Ok(());
        }
        time_until_reached(self.known.ready_for).map_or(Ok(()), Err)
    }

    /// Whatever is the matter with what should be served next: without an answer that the API server accepts nothing is
    /// refused.
    async fn hold_up_nobody(&self, wanted: &[Which]) -> Result<(), WriteError> {
        let found = &self.known.found;
        let filled: Vec<_> = wanted.iter().copied().filter(|which| found.is_filled(*which)).collect();
        if filled.is_empty() || self.is_trusted(&found.bundles(&filled).collect::<Vec<_>>()).is_ok() {
            return Ok(());
        }
        let differences = self.wish(None, &filled, false).differences(found);
        configurations::settle(&self.context.client, &self.writer, &differences).await
    }

    fn nothing_is_served(&self) -> Result<Standing, Not> {
        if self.known.wanted.is_nothing() {
            self.wait_for_configurations(&Which::ALL)?;
            return Ok(Standing::Disabled);
        }
        let message = "nothing is served at --webhook-bind-address 0: give a port, as in :9443";
        Err(trouble("NotListening", message))
    }

    /// What is not read for long never will be, as it is.
    fn wait_for_what_is_read(&self, wanted: &[Which]) -> Result<(), Not> {
        self.wait_for_configurations(wanted)?;
        let is_unknown = self.known.secret == SecretSeen::Unknown;
        self.wait_for(is_unknown.then(|| format!("Secret {}", self.context.config.webhook.secret())))
    }

    fn wait_for_configurations(&self, wanted: &[Which]) -> Result<(), Not> {
        self.wait_for(self.known.found.unread(wanted, &self.context.config.namespace))
    }

    fn wait_for(&self, unread: Option<String>) -> Result<(), Not> {
        let Some(unread) = unread else { return Ok(()) };
        if !self.known.is_overdue {
            return Err(Not::Yet);
        }
        let message = format!(
            "{unread} could not be read for a minute: the operator's account needs the verbs get, list and watch \
             for it; the operator's log says what the API server answers"
        );
        Err(trouble("NotReadable", message))
    }

    /// Whether the API server accepts what this replica serves, when it trusts each of these.
    fn is_trusted(&self, bundles: &[String]) -> Result<(), Not> {
        let Some(served) = &self.known.served else {
            return Err(trouble(
                "CertificateNotLoaded",
                "the certificate is not served yet: the operator's log says why",
            ));
        };
        if bundles.is_empty() || bundles.iter().any(String::is_empty) {
            return Err(trouble(
                "CertificateNotTrusted",
                "cert-manager has not told the API server yet whom to trust: is it running, and has its \
                 Certificate the name of the Secret? Until then nothing is refused for want of an answer",
            ));
        }
        let check =
            |bundle: &String| pem::check(&served.chain, bundle.as_bytes(), &self.server_name(), self.now);
        bundles.iter().try_for_each(check).map_err(|error| self.not_trusted(&error))
    }

    /// Tells the API server to ask, and whom to trust. Ends the pass if that was news.
    async fn fill(&self, bundle: Option<&str>, filled: &[Which], is_answered: bool) -> Result<(), Not> {
        let differences = self.wish(bundle, filled, is_answered).differences(&self.known.found);
        if differences.is_empty() {
            return Ok(());
        }
        if self.secret_is_as_seen().await? {
            configurations::settle(&self.context.client, &self.writer, &differences).await?;
        }
        Err(Not::Yet)
    }

    fn wish<'a>(&'a self, bundle: Option<&'a str>, filled: &'a [Which], is_answered: bool) -> Wish<'a> {
        let config = &self.context.config;
        let frame = Frame {
            namespace: &config.namespace,
            url: config.webhook.url.as_ref(),
            bundle,
            is_answered,
            pods_need_us: self.known.wanted.pods_need_us,
        };
        let inject_from = match &config.webhook.certificates {
            CertificateSource::CertManager { secret } => Some(format!("{}/{secret}", config.namespace)),
            CertificateSource::Own | CertificateSource::Provided { .. } => None,
        };
        Wish { filled, frame, inject_from }
    }

    /// A watch may stall: what comes from a Secret of yesterday must not be told as what to trust.
    async fn secret_is_as_seen(&self) -> Result<bool, WriteError> {
        let SecretSeen::There(seen) = &self.known.secret else { return Ok(false) };
        let secrets: Api<Secret> =
            Api::namespaced(self.context.client.clone(), &self.context.config.namespace);
        let name = self.context.config.webhook.secret();
        let version =
            self.writer.read(&secrets, name).await?.and_then(|found| found.metadata.resource_version);
        let is_same = version == seen.version;
        if !is_same {
            tracing::info!(
                name,
                "the Secret has changed, and is waited for before anybody is told whom to trust"
            );
        }
        Ok(is_same)
    }

    fn serving(&self) -> Standing {
        let until = self.known.served.as_ref().and_then(|served| served.until);
        // Our own are renewed long before, and cert-manager's by it.
        let is_provided =
            matches!(self.context.config.webhook.certificates, CertificateSource::Provided { .. });
        let ends_soon = is_provided && until.is_some_and(|until| until.duration_since(self.now) < ENDS_SOON);
        Standing::Serving { until, ends_soon }
    }

    fn server_name(&self) -> String {
        self.context.config.webhook.server_name(&self.context.config.namespace)
    }

    fn not_trusted(&self, error: &pem::Unusable) -> Not {
        let (secret, name) = (self.context.config.webhook.secret(), self.server_name());
        let message = format!(
            "the certificate in the Secret {secret} cannot be used for {name}: {error}; put a valid one there"
        );
        trouble("CertificateNotTrusted", message)
    }
}

/// How long the kubelet and the endpoints of our Service may still take to lead the API server to us.
fn time_until_reached(ready_for: Option<Duration>) -> Option<SignedDuration> {
    let rest = TIME_TO_BE_FOUND.checked_sub(ready_for.unwrap_or_default())?;
    SignedDuration::try_from(rest).ok().filter(SignedDuration::is_positive)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_insists_on_an_answer_before_the_service_leads_to_us() {
        let rest = |seconds: Option<u64>| time_until_reached(seconds.map(Duration::from_secs));
        assert_eq!(rest(None), Some(SignedDuration::from_secs(30)));
        assert_eq!(rest(Some(10)), Some(SignedDuration::from_secs(20)));
        assert_eq!(rest(Some(30)), None);
        assert_eq!(rest(Some(300)), None);
    }
}
