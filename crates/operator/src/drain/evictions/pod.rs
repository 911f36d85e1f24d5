//! One pod that is to go, and how far it is.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt;
use kube::api::ObjectMeta;
use tokio::time::Instant;
use vfleet_plan::drain::{Moment, PodFacts};

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
    /// When it was made.
    pub(super) made: Option<Moment>,
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
            made: pod.creation_timestamp().map(|time| time.0.into()),
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

    /// Whether it is to be told now; then it is being told.
    pub(super) fn ask(&mut self, now: Instant) -> bool {
        let is_due = matches!(self.phase, Phase::Due(at) if at <= now);
        if is_due {
            self.phase = Phase::Asked;
        }
        is_due
    }

    /// Why it was not told to end, the last time.
    pub(super) fn last_refusal(&self) -> Option<&Refusal> {
        self.refusal.as_ref()
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(metadata: &Value, spec: &Value, phase: &str) -> Pod {
        let pod = json!({ "metadata": metadata, "spec": spec, "status": { "phase": phase } });
        serde_json::from_value(pod).unwrap()
    }

    fn ending(grace: i64) -> ObjectMeta {
        let metadata = json!({
            "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": grace,
            "finalizers": ["example.com/hold"],
        });
        serde_json::from_value(metadata).unwrap()
    }

    fn leaving(now: Instant) -> Leaving {
        let metadata = json!({ "namespace": "team", "name": "a", "uid": "u" });
        let pod =
            pod(&metadata, &json!({ "containers": [], "terminationGracePeriodSeconds": 10 }), "Running");
        Leaving::new(PodId::of(&pod).unwrap(), &pod, now)
    }

    fn refusal() -> Refusal {
        Refusal { is_by_budget: true, words: "no".to_owned(), budgets: Vec::new() }
    }

    #[test]
    fn requests_and_limits_of_all_containers_count() {
        let asks = |kind: &str, name: &str| json!({ "name": "c", "resources": { kind: { name: "1" } } });
        let spec = json!({
            "containers": [asks("requests", "a/1"), asks("limits", "a/2"), { "name": "c" }],
            "initContainers": [asks("requests", "a/3"), asks("limits", "a/1")],
        });
        assert_eq!(facts(&pod(&json!({}), &spec, "Running")).resources, ["a/1", "a/2", "a/3"]);
    }

    #[test]
    fn what_a_pod_is_shows_in_its_metadata_and_phase() {
        let spec = || json!({ "containers": [] });
        let plain = facts(&pod(&json!({}), &spec(), "Running"));
        assert_eq!(plain, PodFacts::default());
        let owner = |kind: &str, controller: bool| {
            let owner = json!({ "apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "o", "controller": controller });
            facts(&pod(&json!({ "ownerReferences": [owner] }), &spec(), "Running")).is_of_daemon_set
        };
        assert!(owner("DaemonSet", true));
        assert!(!owner("DaemonSet", false), "it owns it, but does not control it");
        assert!(!owner("ReplicaSet", true));
        assert!(facts(&pod(&json!({ "annotations": { MIRROR: "x" } }), &spec(), "Running")).is_mirror);
        let ends = json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" });
        assert!(facts(&pod(&ends, &spec(), "Running")).is_ending);
        let is_over = ["Pending", "Running", "Succeeded", "Failed", "Unknown"]
            .map(|phase| facts(&pod(&json!({}), &spec(), phase)).is_over);
        assert_eq!(is_over, [false, false, true, true, false]);
    }

    #[test]
    fn a_refused_pod_is_asked_again_later_and_later_or_when_it_changed() {
        let now = Instant::now();
        let mut pod = leaving(now);
        let mut waits = Vec::new();
        for _ in 0..5 {
            assert!(pod.ask(pod.alarm(now).unwrap()));
            assert!(!pod.ask(now + LONGEST_RETRY * 9), "it is being asked");
            pod.refused(Some(refusal()), now);
            waits.push((pod.alarm(now).unwrap() - now).as_secs());
            assert!(matches!(pod.trouble(now), Some(Trouble::Refused(_))), "from the first time on");
        }
        assert_eq!(waits, [2, 4, 8, 15, 15]);
        assert!(!pod.ask(now));
        pod.changed(&ObjectMeta::default(), now);
        assert!(pod.ask(now));
        assert_eq!(pod.last_refusal(), Some(&refusal()));
        assert!(pod.trouble(now).is_some(), "being asked again is no news");
        pod.accepted(now);
        assert!(pod.trouble(now).is_none());
    }

    #[test]
    fn a_pod_that_stays_after_its_grace_period_is_told_of() {
        let now = Instant::now();
        let mut pod = leaving(now);
        pod.accepted(now);
        let overdue = now + Duration::from_secs(40);
        assert_eq!(pod.alarm(now), Some(overdue));
        pod.changed(&ending(20), now + Duration::from_secs(1));
        let overdue = overdue + Duration::from_secs(10);
        assert_eq!(pod.alarm(now), Some(overdue), "the time that it was given counts, from when it was told");
        assert!(pod.trouble(overdue - Duration::from_secs(1)).is_none());
        let Some(Trouble::DoesNotEnd { finalizers }) = pod.trouble(overdue) else { panic!("{pod:?}") };
        assert_eq!(finalizers, ["example.com/hold"]);
        assert_eq!(pod.alarm(overdue), None, "it is told once");
        assert!(!pod.ask(overdue));
        pod.refused(Some(refusal()), overdue);
        assert!(pod.ends(), "an answer that comes late changes nothing");
    }
}
