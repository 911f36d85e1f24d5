//! Eviction of the pods of one node: list, evict all in parallel, wait for their end, list again. Done when a list
//! contains no pod to be evicted.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use vfleet_api::node_state::DrainScope;
use vfleet_cluster::write::WriteError;
use vfleet_plan::drain::{PodTreatment, PodsState, treat_pod};

use super::EvictionProgress;
use super::pod::{EvictedPod, PodId, read_facts, retry_delay};
use super::pod_watch::{PodNotification, PodSubscription};
use super::problems::{describe_list_error, describe_problems};
use super::requests::{EvictionAnswer, PodRequests};

/// Eviction of the pods of one node.
pub(super) struct NodeEviction {
    scope: DrainScope,
    requests: Arc<PodRequests>,
    subscription: PodSubscription,
    sender: mpsc::UnboundedSender<EvictionProgress>,
    /// Current progress.
    progress: EvictionProgress,
    /// Last sent progress.
    sent: Option<EvictionProgress>,
    /// Pods to be evicted, by uid.
    pods: BTreeMap<String, EvictedPod>,
    /// Number of accepted evictions.
    evicted: usize,
    list: ListSchedule,
    /// Error of the last list or watch.
    list_error: Option<String>,
}

/// Schedule of the next list of pods.
#[derive(Default)]
struct ListSchedule {
    due_at: Option<Instant>,
    is_running: bool,
    failures: u32,
}

/// Result of a request to the API server.
enum RequestResult {
    Listed(Result<Vec<Pod>, WriteError>),
    Evicted { uid: String, answer: EvictionAnswer },
}

impl NodeEviction {
    /// Creates the eviction. `progress` is the initial progress.
    pub(super) fn new(
        progress: EvictionProgress,
        scope: DrainScope,
        requests: Arc<PodRequests>,
        subscription: PodSubscription,
        sender: mpsc::UnboundedSender<EvictionProgress>,
    ) -> Self {
        Self {
            scope,
            requests,
            subscription,
            sender,
            sent: Some(progress.clone()),
            progress,
            pods: BTreeMap::new(),
            evicted: 0,
            list: ListSchedule::default(),
            list_error: None,
        }
    }

    /// Runs until the pods are gone. Cancel safe.
    pub(super) async fn run(mut self) {
        let mut requests = FuturesUnordered::new();
        while self.progress.pods != PodsState::Gone {
            let now = Instant::now();
            requests.extend(self.list_if_due(now));
            requests.extend(self.evict_due_pods(now));
            self.report(now);
            let timer = self.next_timer(now);
            tokio::select! {
                notification = self.subscription.next() => self.handle_notification(notification),
                Some(result) = requests.next() => self.handle_result(result),
                () = sleep_until_timer(timer) => {}
            }
        }
        self.report(Instant::now());
    }

    fn list_if_due(&mut self, now: Instant) -> Option<BoxFuture<'static, RequestResult>> {
        if self.list.is_running || self.list.due_at.is_none_or(|at| at > now) {
            return None;
        }
        self.list.due_at = None;
        self.list.is_running = true;
        let (requests, node) = (Arc::clone(&self.requests), self.progress.node.clone());
        Some(Box::pin(async move { RequestResult::Listed(requests.list_pods(&node).await) }))
    }

    fn evict_due_pods(&mut self, now: Instant) -> Vec<BoxFuture<'static, RequestResult>> {
        let mut evictions: Vec<BoxFuture<'static, RequestResult>> = Vec::new();
        for pod in self.pods.values_mut() {
            if pod.start_if_due(now) {
                let (requests, id, last_refusal) =
                    (Arc::clone(&self.requests), pod.id.clone(), pod.last_refusal().cloned());
                evictions.push(Box::pin(async move {
                    let answer = requests.evict(&id, last_refusal).await;
                    RequestResult::Evicted { uid: id.uid, answer }
                }));
            }
        }
        evictions
    }

    fn handle_notification(&mut self, notification: PodNotification) {
        let now = Instant::now();
        match notification {
            PodNotification::WatchStarted => {
                self.list_error = None;
                self.list.due_at = Some(now);
            }
            PodNotification::WatchFailed(error) => self.list_error = Some(error),
            PodNotification::Changed(pod) => {
                if let Some(evicted) = pod.uid.as_ref().and_then(|uid| self.pods.get_mut(uid)) {
                    evicted.handle_change(&pod, now);
                }
            }
            PodNotification::Deleted(uid) => {
                self.pods.remove(&uid);
                if self.pods.is_empty() {
                    self.list.due_at = Some(now);
                }
            }
        }
    }

    fn handle_result(&mut self, result: RequestResult) {
        let now = Instant::now();
        match result {
            RequestResult::Listed(listed) => self.handle_list(listed, now),
            RequestResult::Evicted { uid, answer } => {
                self.evicted += usize::from(matches!(answer, EvictionAnswer::Accepted));
                // `None`: the pod was deleted during the request.
                let Some(pod) = self.pods.get_mut(&uid) else { return };
                match answer {
                    EvictionAnswer::Accepted => pod.accept(now),
                    EvictionAnswer::Refused(refusal) => pod.refuse(Some(refusal), now),
                    EvictionAnswer::Changed => {
                        pod.refuse(None, now);
                        self.list.due_at = Some(now);
                    }
                }
            }
        }
    }

    fn handle_list(&mut self, listed: Result<Vec<Pod>, WriteError>, now: Instant) {
        self.list.is_running = false;
        match listed {
            Ok(pods) => {
                self.list.failures = 0;
                self.list_error = None;
                self.update_pods(&pods, now);
            }
            Err(error) => {
                self.list_error = Some(error.to_string());
                self.list.due_at = Some(now + retry_delay(self.list.failures));
                self.list.failures = self.list.failures.saturating_add(1);
            }
        }
    }

    /// Replaces the pods to be evicted by those of a new list.
    fn update_pods(&mut self, pods: &[Pod], now: Instant) {
        let prefix = self.requests.resource_prefix.as_str();
        let mut previous = std::mem::take(&mut self.pods);
        for pod in pods {
            let Some(id) = PodId::of(pod) else { continue };
            if treat_pod(&read_facts(pod), self.scope, prefix) == PodTreatment::Keep {
                continue;
            }
            let uid = id.uid.clone();
            let evicted = if let Some(mut evicted) = previous.remove(&uid) {
                evicted.update(&pod.metadata, now);
                evicted
            } else {
                self.subscription.add_pod(&uid);
                let new = EvictedPod::new(id, pod, now);
                if new.is_terminating() {
                    // The pod may have been deleted before the subscription: list again. See `pod_watch`.
                    self.list.due_at = Some(now);
                }
                new
            };
            self.pods.insert(uid, evicted);
        }
        self.progress.pods = if self.pods.is_empty() { PodsState::Gone } else { PodsState::Remaining };
        if self.pods.is_empty() {
            self.progress.evicted = self.evicted;
        }
    }

    /// Sends the progress if it changed.
    fn report(&mut self, now: Instant) {
        let mut problems: Vec<_> =
            self.pods.values().filter_map(|pod| Some((&pod.id, pod.problem(now)?))).collect();
        problems.sort_by_key(|(pod, _)| (&pod.namespace, &pod.name));
        self.progress.hold =
            describe_problems(&problems).or_else(|| self.list_error.as_deref().map(describe_list_error));
        if self.sent.as_ref() != Some(&self.progress) {
            // Fails only while the process stops.
            let _ = self.sender.send(self.progress.clone());
            self.sent = Some(self.progress.clone());
        }
    }

    /// Returns the time of the next request or report.
    fn next_timer(&self, now: Instant) -> Option<Instant> {
        let list = self.list.due_at.filter(|_| !self.list.is_running);
        self.pods.values().filter_map(|pod| pod.next_timer(now)).chain(list).min()
    }
}

async fn sleep_until_timer(timer: Option<Instant>) {
    match timer {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
