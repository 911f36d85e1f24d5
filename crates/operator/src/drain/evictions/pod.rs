//! One pod that is to go, and how far it is.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt;
use kube::api::ObjectMeta;
use tokio::time::Instant;
use vfleet_plan::drain::PodFacts;

use super::obstacle::{Refusal, Trouble};

/// On a pod that stands for a static pod of a kubelet.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// A pod may take so much longer than its grace period before somebody is told.
const PATIENCE: Duration = Duration::from_secs(30);
/// What a pod has when it says nothing.
const USUAL_GRACE_SECONDS: i64 = 30;
const FIRST_RETRY: Duration = Duration::from_secs(2);
const LONGEST_RETRY: Duration = Duration::from_secs(15);

/// Which pod it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PodId {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) labels: BTreeMap<String, String>,
}

/// A pod that is to go.
#[derive(Debug)]
pub(super) struct Leaving {
    pub(super) id: PodId,
    /// The time that it has to end.
    grace_seconds: i64,
    phase: Phase,
    /// Why it was not told to end, the last time.
    refusal: Option<Refusal>,
    /// How often, in a row.
    refusals: u32,
}

#[derive(Debug)]
enum Phase {
    /// It was not told to end yet, or is to be told again at this time.
    Due(Instant),
    /// It is being told.
    Asked,
    /// It was told.
    Ends { since: Instant, finalizers: Vec<String> },
}

impl Display for PodId {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl PodId {
    /// `None` for one without uid, which the API server never shows.
    pub(super) fn of(pod: &Pod) -> Option<Self> {
        Some(Self {
            namespace: pod.namespace()?,
            name: pod.name_any(),
            uid: pod.uid()?,
            labels: pod.labels().clone(),
        })
    }
}

impl Leaving {
    /// As it was first seen.
    pub(super) fn new(id: PodId, pod: &Pod, now: Instant) -> Self {
        let own = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
        let mut leaving = Self {
            id,
            grace_seconds: own.unwrap_or(USUAL_GRACE_SECONDS),
            phase: Phase::Due(now),
            refusal: None,
            refusals: 0,
        };
        leaving.seen(&pod.metadata, now);
        leaving
    }

    /// Whether it was told to end.
    pub(super) fn ends(&self) -> bool {
        matches!(self.phase, Phase::Ends { .. })
    }

    /// It was seen, so.
    pub(super) fn seen(&mut self, pod: &ObjectMeta, now: Instant) {
        if pod.deletion_timestamp.is_some() {
            self.end(pod.finalizers.clone().unwrap_or_default(), now);
            self.grace_seconds = pod.deletion_grace_period_seconds.unwrap_or(self.grace_seconds);
        }
    }

    /// Something of it changed: what was refused may be allowed now.
    pub(super) fn changed(&mut self, pod: &ObjectMeta, now: Instant) {
        if let Phase::Due(at) = &mut self.phase {
            *at = now;
        }
        self.seen(pod, now);
    }

    /// Whether it is to be told now; then it is being told. With what was refused last time.
    pub(super) fn ask(&mut self, now: Instant) -> Option<Option<Refusal>> {
        match self.phase {
            Phase::Due(at) if at <= now => {
                self.phase = Phase::Asked;
                Some(self.refusal.clone())
            }
            _ => None,
        }
    }

    /// It was told to end.
    pub(super) fn accepted(&mut self, now: Instant) {
        if !self.ends() {
            self.end(Vec::new(), now);
        }
    }

    /// It was not told to end: again later, each time a little later. Without a `refusal` it is not known whether it is
    /// still the same pod.
    pub(super) fn refused(&mut self, refusal: Option<Refusal>, now: Instant) {
        // Somebody else may have told it meanwhile.
        if !self.ends() {
            self.phase = Phase::Due(now + delay(self.refusals));
            self.refusals = self.refusals.saturating_add(1);
            self.refusal = refusal;
        }
    }

    /// Why it does not go, if there is anything to say.
    pub(super) fn trouble(&self, now: Instant) -> Option<Trouble<'_>> {
        match &self.phase {
            Phase::Ends { since, finalizers } if self.overdue_at(*since) <= now => {
                Some(Trouble::DoesNotEnd { finalizers })
            }
            Phase::Ends { .. } => None,
            Phase::Due(_) | Phase::Asked => self.refusal.as_ref().map(Trouble::Refused),
        }
    }

    /// When something is to be done although nothing happens.
    pub(super) fn alarm(&self, now: Instant) -> Option<Instant> {
        match self.phase {
            Phase::Due(at) => Some(at),
            Phase::Asked => None,
            Phase::Ends { since, .. } => Some(self.overdue_at(since)).filter(|at| *at > now),
        }
    }

    fn end(&mut self, new: Vec<String>, now: Instant) {
        self.refusal = None;
        match &mut self.phase {
            Phase::Ends { finalizers, .. } => *finalizers = new,
            Phase::Due(_) | Phase::Asked => self.phase = Phase::Ends { since: now, finalizers: new },
        }
    }

    /// By our own clock: that of the API server may be another.
    fn overdue_at(&self, since: Instant) -> Instant {
        since + Duration::from_secs(u64::try_from(self.grace_seconds).unwrap_or(0)) + PATIENCE
    }
}

/// How long to wait after so many failures in a row, and one more.
pub(super) fn delay(failures: u32) -> Duration {
    FIRST_RETRY.saturating_mul(1 << failures.min(16)).min(LONGEST_RETRY)
}

/// What counts of a pod.
pub(super) fn facts(pod: &Pod) -> PodFacts {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let controller = pod.owner_references().iter().find(|owner| owner.controller == Some(true));
    PodFacts {
        is_mirror: pod.annotations().contains_key(MIRROR),
        is_of_daemon_set: controller.is_some_and(|owner| owner.kind == "DaemonSet"),
        is_ending: pod.metadata.deletion_timestamp.is_some(),
        is_over: matches!(phase, Some("Succeeded" | "Failed")),
        resources: resources(pod),
    }
}

fn resources(pod: &Pod) -> Vec<String> {
    let containers =
        pod.spec.iter().flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()));
    let names: BTreeSet<_> = containers.flat_map(asked_for).cloned().collect();
    names.into_iter().collect()
}

/// What a container asks for: a limit without a request counts, too.
fn asked_for(container: &Container) -> impl Iterator<Item = &String> {
    let asked = container.resources.iter().flat_map(|asked| [&asked.requests, &asked.limits]);
    asked.flatten().flat_map(|list| list.keys())
}
