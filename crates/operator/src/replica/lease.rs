//! Which of several replicas leads: the one that holds the Lease.
//!
//! Flow of one replica:
//! 1. It watches the Lease. It takes it when nobody holds it, when it is its own (the same identity came back), or when
//!    its holder has not renewed it for as long as it said it would.
//! 2. It renews it, and extends its right to write with each renewal ([`Leadership`]). That right ends earlier than
//!    others may take the Lease.
//! 3. When it cannot renew, or somebody else holds it, its work is stopped, and it starts over.
//! 4. When it is told to stop, its work ends first, and then it gives the Lease back, so that another takes it at once.
//!
//! Time is measured here by how long ago a change was seen, never by comparing clocks of two machines.

use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, ResourceExt};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use vfleet_api::keys::{LEASE, OPERATOR_FIELD_MANAGER};
use vfleet_cluster::watch::{self, Sight};

use crate::OperatorError;
use crate::replica::context::Context;

/// Others may take the Lease when it was not renewed for so long.
const LEASE_TIME: Duration = Duration::from_secs(15);
/// How long we begin writes after the last renewal: less. A write that is slow to arrive may still come after another
/// replica's; those that could do harm then carry the version that they were decided on.
const WRITE_TIME: Duration = Duration::from_secs(10);
const RENEW_EVERY: Duration = Duration::from_secs(3);
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(1);
const REQUEST_TIME: Duration = Duration::from_secs(3);

/// The Lease as last seen, and when that was.
struct Observed {
    lease: Option<Lease>,
    since: Instant,
}

/// One replica's part in choosing who leads.
pub(crate) struct Candidate {
    api: Api<Lease>,
    context: Context,
}

/// The Lease while it is ours.
struct Term {
    lease: Lease,
    /// When the request that last renewed it was sent.
    renewed: Instant,
}

/// How a term ended.
enum End {
    /// We were told to stop, or the work ended by itself.
    Done(Result<(), OperatorError>),
    /// Somebody else may lead now.
    Lost(&'static str),
}

impl Candidate {
    pub(crate) fn new(context: Context) -> Self {
        Self { api: Api::namespaced(context.client.clone(), &context.config.namespace), context }
    }

    /// Runs `work` whenever and as long as this replica leads, until `stop`. `work` gets a token that tells it to stop.
    pub(crate) async fn run<W, F>(&self, work: W, stop: CancellationToken) -> Result<(), OperatorError>
    where
        W: Fn(CancellationToken) -> F,
        F: Future<Output = Result<(), OperatorError>>,
    {
        loop {
            let Some(Some(term)) = stop.run_until_cancelled(Box::pin(self.win())).await else {
                return if stop.is_cancelled() { Ok(()) } else { Err(OperatorError::WatchEnded) };
            };
            tracing::info!(identity = self.identity(), "this replica leads");
            self.context.metrics.leads(true);
            let end = self.lead(term, &work, &stop).await;
            self.context.leadership.end();
            self.context.metrics.leads(false);
            match end? {
                End::Done(result) => return result,
                End::Lost(why) => tracing::warn!(why, "this replica leads no more"),
            }
        }
    }

    fn identity(&self) -> &str {
        &self.context.config.identity
    }

    /// Waits until the Lease can be taken, and takes it. `None` when it cannot be watched.
    async fn win(&self) -> Option<Term> {
        let guarded = Api::namespaced(self.context.client.clone(), &self.context.config.namespace);
        let mut changes = pin!(watch::changes::<Lease>(guarded, watch::only(LEASE)));
        let mut observed: Option<Observed> = None;
        let mut single = watch::Single::default();
        let mut not_before = Instant::now();
        loop {
            let free_from = observed.as_ref().map(|observed| self.free_from(observed).max(not_before));
            tokio::select! {
                event = changes.next() => {
                    let seen = match single.take(event?) {
                        Sight::Nothing => continue,
                        Sight::Gone => None,
                        Sight::There(lease) => watch::readable(*lease),
                    };
                    self.context.health.sees_api_server();
                    observed = Some(Observed::update(observed, seen));
                }
                () = until(free_from) => {
                    let known = observed.as_ref().and_then(|observed| observed.lease.clone());
                    if let Some(term) = self.take(known).await {
                        return Some(term);
                    }
                    // Somebody else was quicker, which the watch is about to say; or the server is in trouble.
                    not_before = Instant::now() + TRY_AGAIN_AFTER;
                }
            }
        }
    }

    /// When we may take the Lease.
    fn free_from(&self, observed: &Observed) -> Instant {
        let spec = observed.lease.as_ref().and_then(|lease| lease.spec.as_ref());
        let holder = spec.and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default();
        if holder.is_empty() || holder == self.identity() {
            return observed.since;
        }
        let seconds = spec.and_then(|spec| spec.lease_duration_seconds).and_then(|s| u64::try_from(s).ok());
        observed.since + seconds.map_or(LEASE_TIME, Duration::from_secs)
    }

    /// Makes the Lease ours, as it was last seen: not if somebody changed it since.
    async fn take(&self, known: Option<Lease>) -> Option<Term> {
        let now = MicroTime(Timestamp::now());
        let old = known.as_ref().and_then(|lease| lease.spec.clone()).unwrap_or_default();
        let same_holder = old.holder_identity.as_deref() == Some(self.identity());
        let spec = LeaseSpec {
            holder_identity: Some(self.identity().to_owned()),
            lease_duration_seconds: i32::try_from(LEASE_TIME.as_secs()).ok(),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            lease_transitions: Some(
                old.lease_transitions.unwrap_or(0).saturating_add(i32::from(!same_holder)),
            ),
            ..old
        };
        let metadata = match known {
            Some(lease) => lease.metadata,
            None => ObjectMeta { name: Some(LEASE.to_owned()), ..Default::default() },
        };
        let sent = Instant::now();
        match self.write(&Lease { metadata, spec: Some(spec) }).await {
            Ok(lease) => Some(Term { lease, renewed: sent }),
            Err(error) => {
                tracing::debug!(%error, "the lease could not be taken");
                None
            }
        }
    }

    /// Works and renews, until the work ends or the Lease is lost.
    async fn lead<W, F>(
        &self,
        mut term: Term,
        work: &W,
        stop: &CancellationToken,
    ) -> Result<End, OperatorError>
    where
        W: Fn(CancellationToken) -> F,
        F: Future<Output = Result<(), OperatorError>>,
    {
        self.context.leadership.extend(term.renewed + WRITE_TIME);
        let stop_work = stop.child_token();
        let mut work = pin!(work(stop_work.clone()));
        let mut ticks = interval_at(Instant::now() + RENEW_EVERY, RENEW_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                result = &mut work => {
                    self.give_back(term).await;
                    return Ok(End::Done(result));
                }
                _ = ticks.tick() => {
                    if let Err(why) = self.renew(&mut term).await {
                        // From here on every write is refused; what is under way ends by itself.
                        self.context.leadership.end();
                        stop_work.cancel();
                        work.await?;
                        return match why {
                            Loss::SameIdentity => Err(OperatorError::SameIdentity(self.identity().to_owned())),
                            Loss::Other(why) => Ok(End::Lost(why)),
                        };
                    }
                }
            }
        }
    }

    async fn renew(&self, term: &mut Term) -> Result<(), Loss> {
        let mut lease = term.lease.clone();
        if let Some(spec) = &mut lease.spec {
            spec.renew_time = Some(MicroTime(Timestamp::now()));
        }
        let sent = Instant::now();
        match self.write(&lease).await {
            Ok(lease) => {
                *term = Term { lease, renewed: sent };
                self.context.leadership.extend(sent + WRITE_TIME);
                self.context.health.sees_api_server();
                Ok(())
            }
            Err(error) if error.is_conflict() => self.look_again(term).await,
            Err(error) if term.renewed.elapsed() < WRITE_TIME => {
                tracing::warn!(%error, "the lease was not renewed, will try again");
                Ok(())
            }
            Err(error) => {
                tracing::warn!(%error, "the lease was not renewed in time");
                Err(Loss::Other("the lease could not be renewed in time"))
            }
        }
    }

    /// Somebody changed the Lease: it may still be ours, for example with a label more.
    async fn look_again(&self, term: &mut Term) -> Result<(), Loss> {
        let found = match timeout(REQUEST_TIME, self.api.get_opt(LEASE)).await {
            Ok(Ok(found)) => found,
            _ if term.renewed.elapsed() < WRITE_TIME => return Ok(()),
            _ => return Err(Loss::Other("the lease could not be read in time")),
        };
        let Some(found) = found else { return Err(Loss::Other("somebody deleted the lease")) };
        let acquired = |lease: &Lease| {
            let spec = lease.spec.clone().unwrap_or_default();
            (spec.holder_identity, spec.acquire_time)
        };
        let ((holder, since), (us, ours)) = (acquired(&found), acquired(&term.lease));
        match (holder == us, since == ours) {
            (true, true) => {
                term.lease = found;
                Ok(())
            }
            (true, false) => Err(Loss::SameIdentity),
            (false, _) => Err(Loss::Other("another replica holds the lease")),
        }
    }

    /// Lets another replica take it at once. Without success it takes a little longer, and no harm is done.
    async fn give_back(&self, mut term: Term) {
        self.context.leadership.end();
        if let Some(spec) = &mut term.lease.spec {
            spec.holder_identity = None;
            spec.lease_duration_seconds = Some(1);
        }
        if let Err(error) = self.write(&term.lease).await {
            tracing::warn!(%error, "the lease was not given back; another replica takes it when its time is over");
        }
    }

    /// Creates it, or replaces the version that `lease` carries.
    async fn write(&self, lease: &Lease) -> Result<Lease, vfleet_cluster::write::WriteError> {
        let params =
            PostParams { field_manager: Some(OPERATOR_FIELD_MANAGER.to_owned()), ..Default::default() };
        let written = match lease.resource_version() {
            None => timeout(REQUEST_TIME, self.api.create(&params, lease)).await,
            Some(_) => timeout(REQUEST_TIME, self.api.replace(LEASE, &params, lease)).await,
        };
        Ok(written??)
    }
}

/// Why the Lease is no longer ours.
enum Loss {
    /// Another process has our name.
    SameIdentity,
    Other(&'static str),
}

impl Observed {
    /// A change starts its time anew; seeing the same again does not.
    fn update(old: Option<Self>, lease: Option<Lease>) -> Self {
        let version = |lease: &Option<Lease>| lease.as_ref().and_then(ResourceExt::resource_version);
        match old {
            Some(old) if version(&old.lease) == version(&lease) => Self { lease, since: old.since },
            _ => Self { lease, since: Instant::now() },
        }
    }
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
