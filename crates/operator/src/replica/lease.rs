//! Leader election: the replica that holds the Lease leads.
//!
//! Flow of one replica:
//! 1. It watches the Lease, and acquires it when it has no holder, when the holder has the same identity (a restart), or
//!    when the holder has not renewed it within the lease duration.
//! 2. It renews the Lease, and extends its permission to write ([`Leadership`](vfleet_cluster::leadership::Leadership))
//!    with each renewal. The permission ends before others may acquire the Lease.
//! 3. When it cannot renew, or another replica holds the Lease, it stops its controllers and starts over.
//! 4. When it is stopped, its controllers end first. Then it releases the Lease, so that another replica leads at once.
//!
//! Time is measured since a change was observed, never by comparing the clocks of two machines.

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
use vfleet_cluster::watch::{self, SingleObjectState};

use crate::OperatorError;
use crate::replica::context::Context;

/// Time without renewal after which others may acquire the Lease.
const LEASE_DURATION: Duration = Duration::from_secs(15);
/// Time after the last renewal in which writes may start. It is shorter than the lease duration. A slow write may still
/// arrive after those of a new leader; writes that could do harm then carry a resource version.
const WRITE_PERIOD: Duration = Duration::from_secs(10);
const RENEW_INTERVAL: Duration = Duration::from_secs(3);
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);

/// Lease as last observed, and the time of its last change.
struct ObservedLease {
    lease: Option<Lease>,
    since: Instant,
}

/// Replica that takes part in leader election.
pub(crate) struct LeaseCandidate {
    api: Api<Lease>,
    context: Context,
}

/// Lease while this replica holds it.
struct LeaseTerm {
    lease: Lease,
    /// Time at which the last successful renewal was sent.
    renewed: Instant,
}

/// End of a term as leader.
enum TermEnd {
    /// The controllers were stopped, or ended by themselves.
    Done(Result<(), OperatorError>),
    /// Another replica may lead now; with the reason.
    Lost(&'static str),
}

impl LeaseCandidate {
    pub(crate) fn new(context: Context) -> Self {
        Self { api: Api::namespaced(context.client.clone(), &context.config.namespace), context }
    }

    /// Runs `work` while this replica leads, again for each term, until `stop`. The token of `work` stops it.
    pub(crate) async fn run<W, F>(&self, work: W, stop: CancellationToken) -> Result<(), OperatorError>
    where
        W: Fn(CancellationToken) -> F,
        F: Future<Output = Result<(), OperatorError>>,
    {
        loop {
            let Some(Some(term)) = stop.run_until_cancelled(Box::pin(self.acquire())).await else {
                return if stop.is_cancelled() { Ok(()) } else { Err(OperatorError::WatchEnded) };
            };
            tracing::info!(identity = self.identity(), "became leader");
            self.context.metrics.set_leader(true);
            let end = self.lead(term, &work, &stop).await;
            self.context.leadership.end();
            self.context.metrics.set_leader(false);
            match end? {
                TermEnd::Done(result) => return result,
                TermEnd::Lost(reason) => tracing::warn!(reason, "lost leadership"),
            }
        }
    }

    fn identity(&self) -> &str {
        &self.context.config.identity
    }

    /// Waits until the Lease is free, and acquires it. `None` when the watch ended.
    async fn acquire(&self) -> Option<LeaseTerm> {
        let guarded = Api::namespaced(self.context.client.clone(), &self.context.config.namespace);
        let mut changes = pin!(watch::watch_objects::<Lease>(guarded, watch::select_name(LEASE)));
        let mut observed: Option<ObservedLease> = None;
        let mut single = watch::SingleObject::default();
        let mut retry_at = Instant::now();
        loop {
            let free_from = observed.as_ref().map(|observed| self.free_from(observed).max(retry_at));
            tokio::select! {
                event = changes.next() => {
                    let lease = match single.update(event?) {
                        SingleObjectState::Listing => continue,
                        SingleObjectState::Absent => None,
                        SingleObjectState::Present(lease) => watch::into_readable(*lease),
                    };
                    self.context.health.record_api_server_contact();
                    observed = Some(ObservedLease::update(observed, lease));
                }
                () = sleep_until_or_forever(free_from) => {
                    let current = observed.as_ref().and_then(|observed| observed.lease.clone());
                    if let Some(term) = self.try_acquire(current).await {
                        return Some(term);
                    }
                    // Another replica was faster, which the watch will report, or the API server has a problem.
                    retry_at = Instant::now() + RETRY_INTERVAL;
                }
            }
        }
    }

    /// Returns the time from which this replica may acquire the Lease.
    fn free_from(&self, observed: &ObservedLease) -> Instant {
        let spec = observed.lease.as_ref().and_then(|lease| lease.spec.as_ref());
        let holder = spec.and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default();
        if holder.is_empty() || holder == self.identity() {
            return observed.since;
        }
        let seconds = spec.and_then(|spec| spec.lease_duration_seconds).and_then(|s| u64::try_from(s).ok());
        observed.since + seconds.map_or(LEASE_DURATION, Duration::from_secs)
    }

    /// Tries to acquire the Lease. Fails if it has changed since it was observed.
    async fn try_acquire(&self, current: Option<Lease>) -> Option<LeaseTerm> {
        let now = MicroTime(Timestamp::now());
        let old = current.as_ref().and_then(|lease| lease.spec.clone()).unwrap_or_default();
        let same_holder = old.holder_identity.as_deref() == Some(self.identity());
        let spec = LeaseSpec {
            holder_identity: Some(self.identity().to_owned()),
            lease_duration_seconds: i32::try_from(LEASE_DURATION.as_secs()).ok(),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            lease_transitions: Some(
                old.lease_transitions.unwrap_or(0).saturating_add(i32::from(!same_holder)),
            ),
            ..old
        };
        let metadata = match current {
            Some(lease) => lease.metadata,
            None => ObjectMeta { name: Some(LEASE.to_owned()), ..Default::default() },
        };
        let sent = Instant::now();
        match self.write(&Lease { metadata, spec: Some(spec) }).await {
            Ok(lease) => Some(LeaseTerm { lease, renewed: sent }),
            Err(error) => {
                tracing::debug!(%error, "cannot acquire the lease");
                None
            }
        }
    }

    /// Runs `work` and renews the Lease, until `work` ends or the Lease is lost.
    async fn lead<W, F>(
        &self,
        mut term: LeaseTerm,
        work: &W,
        stop: &CancellationToken,
    ) -> Result<TermEnd, OperatorError>
    where
        W: Fn(CancellationToken) -> F,
        F: Future<Output = Result<(), OperatorError>>,
    {
        self.context.leadership.extend(term.renewed + WRITE_PERIOD);
        let stop_work = stop.child_token();
        let mut work = pin!(work(stop_work.clone()));
        let mut ticks = interval_at(Instant::now() + RENEW_INTERVAL, RENEW_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                result = &mut work => {
                    self.release(term).await;
                    return Ok(TermEnd::Done(result));
                }
                _ = ticks.tick() => {
                    if let Err(loss) = self.renew(&mut term).await {
                        // No new write can start from here on; running writes end by themselves.
                        self.context.leadership.end();
                        stop_work.cancel();
                        work.await?;
                        return match loss {
                            LeaseLoss::SameIdentity => Err(OperatorError::SameIdentity(self.identity().to_owned())),
                            LeaseLoss::Other(reason) => Ok(TermEnd::Lost(reason)),
                        };
                    }
                }
            }
        }
    }

    async fn renew(&self, term: &mut LeaseTerm) -> Result<(), LeaseLoss> {
        let mut lease = term.lease.clone();
        if let Some(spec) = &mut lease.spec {
            spec.renew_time = Some(MicroTime(Timestamp::now()));
        }
        let sent = Instant::now();
        match self.write(&lease).await {
            Ok(lease) => {
                *term = LeaseTerm { lease, renewed: sent };
                self.context.leadership.extend(sent + WRITE_PERIOD);
                self.context.health.record_api_server_contact();
                Ok(())
            }
            Err(error) if error.is_conflict() => self.check_conflict(term).await,
            Err(error) if term.renewed.elapsed() < WRITE_PERIOD => {
                tracing::warn!(%error, "cannot renew the lease: retrying");
                Ok(())
            }
            Err(error) => {
                tracing::warn!(%error, "cannot renew the lease in time");
                Err(LeaseLoss::Other("the lease could not be renewed in time"))
            }
        }
    }

    /// Reads the Lease after a conflict. It may still be held by this replica, for example if only a label was added.
    async fn check_conflict(&self, term: &mut LeaseTerm) -> Result<(), LeaseLoss> {
        let current = match timeout(REQUEST_TIMEOUT, self.api.get_opt(LEASE)).await {
            Ok(Ok(current)) => current,
            _ if term.renewed.elapsed() < WRITE_PERIOD => return Ok(()),
            _ => return Err(LeaseLoss::Other("the lease could not be read in time")),
        };
        let Some(current) = current else { return Err(LeaseLoss::Other("the lease was deleted")) };
        let acquired = |lease: &Lease| {
            let spec = lease.spec.clone().unwrap_or_default();
            (spec.holder_identity, spec.acquire_time)
        };
        let ((holder, acquired_at), (own_identity, own_acquired_at)) =
            (acquired(&current), acquired(&term.lease));
        match (holder == own_identity, acquired_at == own_acquired_at) {
            (true, true) => {
                term.lease = current;
                Ok(())
            }
            (true, false) => Err(LeaseLoss::SameIdentity),
            (false, _) => Err(LeaseLoss::Other("another replica holds the lease")),
        }
    }

    /// Releases the Lease, so that another replica can acquire it at once. If that fails, it expires.
    async fn release(&self, mut term: LeaseTerm) {
        self.context.leadership.end();
        if let Some(spec) = &mut term.lease.spec {
            spec.holder_identity = None;
            spec.lease_duration_seconds = Some(1);
        }
        if let Err(error) = self.write(&term.lease).await {
            tracing::warn!(%error, "cannot release the lease: another replica will lead after it has expired");
        }
    }

    /// Creates the Lease, or replaces the version that `lease` was read at.
    async fn write(&self, lease: &Lease) -> Result<Lease, vfleet_cluster::write::WriteError> {
        let params =
            PostParams { field_manager: Some(OPERATOR_FIELD_MANAGER.to_owned()), ..Default::default() };
        let written = match lease.resource_version() {
            None => timeout(REQUEST_TIMEOUT, self.api.create(&params, lease)).await,
            Some(_) => timeout(REQUEST_TIMEOUT, self.api.replace(LEASE, &params, lease)).await,
        };
        Ok(written??)
    }
}

/// Reason why the Lease was lost.
enum LeaseLoss {
    /// Another process has the same identity.
    SameIdentity,
    Other(&'static str),
}

impl ObservedLease {
    /// Updates the observation. Only a new resource version restarts the time.
    fn update(old: Option<Self>, lease: Option<Lease>) -> Self {
        let version = |lease: &Option<Lease>| lease.as_ref().and_then(ResourceExt::resource_version);
        match old {
            Some(old) if version(&old.lease) == version(&lease) => Self { lease, since: old.since },
            _ => Self { lease, since: Instant::now() },
        }
    }
}

async fn sleep_until_or_forever(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
