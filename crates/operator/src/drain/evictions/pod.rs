//! Eviction of one pod.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt;
use kube::api::ObjectMeta;
use tokio::time::Instant;
use vfleet_plan::drain::{Moment, PodFacts};

use super::problems::{EvictionRefusal, PodProblem};

/// Annotation of mirror pods.
const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";
/// Time after the grace period after which a pod that has not terminated is reported.
pub(super) const TERMINATION_MARGIN: Duration = Duration::from_secs(30);
/// Grace period of a pod that sets none.
const DEFAULT_GRACE_SECONDS: i64 = 30;
const FIRST_RETRY: Duration = Duration::from_secs(2);
const MAX_RETRY: Duration = Duration::from_secs(15);

/// Identity of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PodId {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) created: Option<Moment>,
}

/// Pod to be evicted.
#[derive(Debug)]
pub(super) struct EvictedPod {
    pub(super) id: PodId,
    /// Termination grace period.
    grace_seconds: i64,
    phase: EvictionPhase,
    /// Last refusal of the eviction.
    refusal: Option<EvictionRefusal>,
    /// Number of refusals in a row.
    refusals: u32,
}

/// Phase of the eviction of a pod.
#[derive(Debug)]
enum EvictionPhase {
    /// The eviction is to be requested at this time.
    Due(Instant),
    /// The eviction is requested.
    Requested,
    /// The pod is terminating.
    Terminating { since: Instant, finalizers: Vec<String> },
}

impl Display for PodId {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl PodId {
    /// Reads the identity of a pod; `None` without namespace or uid, which the API server always sets.
    pub(super) fn of(pod: &Pod) -> Option<Self> {
        Some(Self {
            namespace: pod.namespace()?,
            name: pod.name_any(),
            uid: pod.uid()?,
            labels: pod.labels().clone(),
            created: pod.creation_timestamp().map(|time| time.0.into()),
        })
    }
}

impl EvictedPod {
    /// Creates the eviction of a listed pod.
    pub(super) fn new(id: PodId, pod: &Pod, now: Instant) -> Self {
        let grace_seconds = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
        let mut evicted = Self {
            id,
            grace_seconds: grace_seconds.unwrap_or(DEFAULT_GRACE_SECONDS),
            phase: EvictionPhase::Due(now),
            refusal: None,
            refusals: 0,
        };
        evicted.update(&pod.metadata, now);
        evicted
    }

    /// Returns whether the pod is terminating.
    pub(super) fn is_terminating(&self) -> bool {
        matches!(self.phase, EvictionPhase::Terminating { .. })
    }

    /// Updates the pod from its metadata.
    pub(super) fn update(&mut self, pod: &ObjectMeta, now: Instant) {
        if pod.deletion_timestamp.is_some() {
            self.set_terminating(pod.finalizers.clone().unwrap_or_default(), now);
            self.grace_seconds = pod.deletion_grace_period_seconds.unwrap_or(self.grace_seconds);
        }
    }

    /// Handles a change of the pod: a refused eviction is tried again at once.
    pub(super) fn handle_change(&mut self, pod: &ObjectMeta, now: Instant) {
        if let EvictionPhase::Due(at) = &mut self.phase {
            *at = now;
        }
        self.update(pod, now);
    }

    /// Returns whether the eviction is to be requested now, and marks it as requested.
    pub(super) fn start_if_due(&mut self, now: Instant) -> bool {
        let is_due = matches!(self.phase, EvictionPhase::Due(at) if at <= now);
        if is_due {
            self.phase = EvictionPhase::Requested;
        }
        is_due
    }

    /// Returns the last refusal of the eviction.
    pub(super) fn last_refusal(&self) -> Option<&EvictionRefusal> {
        self.refusal.as_ref()
    }

    /// Handles an accepted eviction.
    pub(super) fn accept(&mut self, now: Instant) {
        if !self.is_terminating() {
            self.set_terminating(Vec::new(), now);
        }
    }

    /// Schedules a retry after a refused eviction, with a growing delay. `refusal` is `None` if the pod may have been
    /// replaced.
    pub(super) fn refuse(&mut self, refusal: Option<EvictionRefusal>, now: Instant) {
        // Another client may have deleted the pod in the meantime.
        if !self.is_terminating() {
            self.phase = EvictionPhase::Due(now + retry_delay(self.refusals));
            self.refusals = self.refusals.saturating_add(1);
            self.refusal = refusal;
        }
    }

    /// Returns why the pod is not gone yet, if that is to be reported.
    pub(super) fn problem(&self, now: Instant) -> Option<PodProblem<'_>> {
        match &self.phase {
            EvictionPhase::Terminating { since, finalizers } if self.overdue_at(*since) <= now => {
                Some(PodProblem::NotTerminated { finalizers })
            }
            EvictionPhase::Terminating { .. } => None,
            EvictionPhase::Due(_) | EvictionPhase::Requested => {
                self.refusal.as_ref().map(PodProblem::Refused)
            }
        }
    }

    /// Returns the time of the next request or report.
    pub(super) fn next_timer(&self, now: Instant) -> Option<Instant> {
        match self.phase {
            EvictionPhase::Due(at) => Some(at),
            EvictionPhase::Requested => None,
            EvictionPhase::Terminating { since, .. } => Some(self.overdue_at(since)).filter(|at| *at > now),
        }
    }

    fn set_terminating(&mut self, new: Vec<String>, now: Instant) {
        self.refusal = None;
        match &mut self.phase {
            EvictionPhase::Terminating { finalizers, .. } => *finalizers = new,
            EvictionPhase::Due(_) | EvictionPhase::Requested => {
                self.phase = EvictionPhase::Terminating { since: now, finalizers: new };
            }
        }
    }

    /// Returns when a pod is overdue, by the operator's clock.
    fn overdue_at(&self, since: Instant) -> Instant {
        since + Duration::from_secs(u64::try_from(self.grace_seconds).unwrap_or(0)) + TERMINATION_MARGIN
    }
}

/// Returns the delay of a retry after this number of earlier failures.
pub(super) fn retry_delay(failures: u32) -> Duration {
    FIRST_RETRY.saturating_mul(1 << failures.min(16)).min(MAX_RETRY)
}

/// Reads the facts of a pod.
pub(super) fn read_facts(pod: &Pod) -> PodFacts {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let controller = pod.owner_references().iter().find(|owner| owner.controller == Some(true));
    PodFacts {
        is_mirror: pod.annotations().contains_key(MIRROR_ANNOTATION),
        is_daemon_set_pod: controller.is_some_and(|owner| owner.kind == "DaemonSet"),
        is_terminating: pod.metadata.deletion_timestamp.is_some(),
        has_finished: matches!(phase, Some("Succeeded" | "Failed")),
        resources: requested_resources(pod),
    }
}

fn requested_resources(pod: &Pod) -> Vec<String> {
    let containers =
        pod.spec.iter().flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()));
    let names: BTreeSet<_> = containers.flat_map(resources_of).cloned().collect();
    names.into_iter().collect()
}

/// Returns the resources in requests and limits of a container.
fn resources_of(container: &Container) -> impl Iterator<Item = &String> {
    let lists = container.resources.iter().flat_map(|resources| [&resources.requests, &resources.limits]);
    lists.flatten().flat_map(|list| list.keys())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(metadata: &Value, spec: &Value, phase: &str) -> Pod {
        let pod = json!({ "metadata": metadata, "spec": spec, "status": { "phase": phase } });
        serde_json::from_value(pod).unwrap()
    }

    fn terminating(grace: i64) -> ObjectMeta {
        let metadata = json!({
            "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": grace,
            "finalizers": ["example.com/hold"],
        });
        serde_json::from_value(metadata).unwrap()
    }

    fn evicted(now: Instant) -> EvictedPod {
        let metadata = json!({ "namespace": "team", "name": "a", "uid": "u" });
        let pod =
            pod(&metadata, &json!({ "containers": [], "terminationGracePeriodSeconds": 10 }), "Running");
        EvictedPod::new(PodId::of(&pod).unwrap(), &pod, now)
    }

    fn refusal() -> EvictionRefusal {
        EvictionRefusal { is_by_budget: true, message: "no".to_owned(), budgets: Vec::new() }
    }

    #[test]
    fn requests_and_limits_of_all_containers_count() {
        let asks = |kind: &str, name: &str| json!({ "name": "c", "resources": { kind: { name: "1" } } });
        let spec = json!({
            "containers": [asks("requests", "a/1"), asks("limits", "a/2"), { "name": "c" }],
            "initContainers": [asks("requests", "a/3"), asks("limits", "a/1")],
        });
        assert_eq!(read_facts(&pod(&json!({}), &spec, "Running")).resources, ["a/1", "a/2", "a/3"]);
    }

    #[test]
    fn facts_come_from_metadata_and_phase() {
        let spec = || json!({ "containers": [] });
        let plain = read_facts(&pod(&json!({}), &spec(), "Running"));
        assert_eq!(plain, PodFacts::default());
        let owner = |kind: &str, controller: bool| {
            let owner = json!({ "apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "o", "controller": controller });
            read_facts(&pod(&json!({ "ownerReferences": [owner] }), &spec(), "Running")).is_daemon_set_pod
        };
        assert!(owner("DaemonSet", true));
        assert!(!owner("DaemonSet", false), "owner, but not controller");
        assert!(!owner("ReplicaSet", true));
        assert!(
            read_facts(&pod(&json!({ "annotations": { MIRROR_ANNOTATION: "x" } }), &spec(), "Running"))
                .is_mirror
        );
        let deleted = json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" });
        assert!(read_facts(&pod(&deleted, &spec(), "Running")).is_terminating);
        let has_finished = ["Pending", "Running", "Succeeded", "Failed", "Unknown"]
            .map(|phase| read_facts(&pod(&json!({}), &spec(), phase)).has_finished);
        assert_eq!(has_finished, [false, false, true, true, false]);
    }

    #[test]
    fn a_refused_eviction_is_retried_with_growing_delay_or_after_a_change() {
        let now = Instant::now();
        let mut pod = evicted(now);
        let mut waits = Vec::new();
        for _ in 0..5 {
            assert!(pod.start_if_due(pod.next_timer(now).unwrap()));
            assert!(!pod.start_if_due(now + MAX_RETRY * 9), "the request is running");
            pod.refuse(Some(refusal()), now);
            waits.push((pod.next_timer(now).unwrap() - now).as_secs());
            assert!(
                matches!(pod.problem(now), Some(PodProblem::Refused(_))),
                "reported from the first refusal on"
            );
        }
        assert_eq!(waits, [2, 4, 8, 15, 15]);
        assert!(!pod.start_if_due(now));
        pod.handle_change(&ObjectMeta::default(), now);
        assert!(pod.start_if_due(now));
        assert_eq!(pod.last_refusal(), Some(&refusal()));
        assert!(pod.problem(now).is_some(), "the problem stays reported during the retry");
        pod.accept(now);
        assert!(pod.problem(now).is_none());
    }

    #[test]
    fn a_pod_that_has_not_terminated_after_its_grace_period_is_reported() {
        let now = Instant::now();
        let mut pod = evicted(now);
        pod.accept(now);
        let overdue = now + Duration::from_secs(40);
        assert_eq!(pod.next_timer(now), Some(overdue));
        pod.handle_change(&terminating(20), now + Duration::from_secs(1));
        let overdue = overdue + Duration::from_secs(10);
        assert_eq!(
            pod.next_timer(now),
            Some(overdue),
            "the grace period of the deletion counts, from the eviction on"
        );
        assert!(pod.problem(overdue - Duration::from_secs(1)).is_none());
        let Some(PodProblem::NotTerminated { finalizers }) = pod.problem(overdue) else { panic!("{pod:?}") };
        assert_eq!(finalizers, ["example.com/hold"]);
        assert_eq!(pod.next_timer(overdue), None, "reported once");
        assert!(!pod.start_if_due(overdue));
        pod.refuse(Some(refusal()), overdue);
        assert!(pod.is_terminating(), "a late answer changes nothing");
    }
}
