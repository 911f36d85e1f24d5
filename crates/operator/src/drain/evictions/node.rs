//! One node: its pods are listed, evicted, all at once, and waited for; then it is listed again. It is done when a list
//! has none of them any more.

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
use vfleet_plan::drain::{PodsSeen, Treatment, treatment};

use super::Sighting;
use super::feed::{Follower, News};
use super::obstacle::{not_seen, obstacle};
use super::pod::{Leaving, PodId, delay, facts};
use super::requests::{Answer, Requests};

/// The drain of one node's pods.
pub(super) struct NodeDrain {
    scope: DrainScope,
    requests: Arc<Requests>,
    follower: Follower,
    tell: mpsc::UnboundedSender<Sighting>,
    /// What is to be told now.
    sighting: Sighting,
    /// What was told last.
    told: Option<Sighting>,
    /// The pods that are to go, by uid.
    leaving: BTreeMap<String, Leaving>,
    look: Look,
    /// Why the pods cannot be looked at.
    blind: Option<String>,
}

/// Whether the pods are to be listed.
#[derive(Default)]
struct Look {
    /// At this time, or as soon as possible after.
    wanted: Option<Instant>,
    is_under_way: bool,
    failures: u32,
}

/// Something that was asked of the API server is answered.
enum Answered {
    Listed(Result<Vec<Pod>, WriteError>),
    Evicted { uid: String, answer: Answer },
}

impl NodeDrain {
    /// `sighting` is what is known before anything was seen.
    pub(super) fn new(
        sighting: Sighting,
        scope: DrainScope,
        requests: Arc<Requests>,
        follower: Follower,
        tell: mpsc::UnboundedSender<Sighting>,
    ) -> Self {
        Self {
            scope,
            requests,
            follower,
            tell,
            told: Some(sighting.clone()),
            sighting,
            leaving: BTreeMap::new(),
            look: Look::default(),
            blind: None,
        }
    }

    /// Runs until the pods are gone. May be dropped at any time: nothing is asked for after that.
    pub(super) async fn run(mut self) {
        let mut under_way = FuturesUnordered::new();
        while self.sighting.pods != PodsSeen::Gone {
            let now = Instant::now();
            under_way.extend(self.list_if_wanted(now));
            under_way.extend(self.evict_those_due(now));
            self.report(now);
            let alarm = self.alarm(now);
            tokio::select! {
                news = self.follower.next() => self.take(news),
                Some(answered) = under_way.next() => self.answered(answered),
                () = until(alarm) => {}
            }
        }
        self.report(Instant::now());
    }

    fn list_if_wanted(&mut self, now: Instant) -> Option<BoxFuture<'static, Answered>> {
        if self.look.is_under_way || self.look.wanted.is_none_or(|at| at > now) {
            return None;
        }
        self.look.wanted = None;
        self.look.is_under_way = true;
        let (requests, node) = (Arc::clone(&self.requests), self.sighting.node.clone());
        Some(Box::pin(async move { Answered::Listed(requests.pods_on(&node).await) }))
    }

    fn evict_those_due(&mut self, now: Instant) -> Vec<BoxFuture<'static, Answered>> {
        let mut evictions: Vec<BoxFuture<'static, Answered>> = Vec::new();
        for pod in self.leaving.values_mut() {
            if pod.ask(now) {
                let (requests, id, known) =
                    (Arc::clone(&self.requests), pod.id.clone(), pod.last_refusal().cloned());
                evictions.push(Box::pin(async move {
                    let answer = requests.evict(&id, known).await;
                    Answered::Evicted { uid: id.uid, answer }
                }));
            }
        }
        evictions
    }

    fn take(&mut self, news: News) {
        let now = Instant::now();
        match news {
            News::Begun => {
                self.blind = None;
                self.look.wanted = Some(now);
            }
            News::Blind(words) => self.blind = Some(words),
            News::Changed(pod) => {
                if let Some(known) = pod.uid.as_ref().and_then(|uid| self.leaving.get_mut(uid)) {
                    known.changed(&pod, now);
                }
            }
            News::Gone(uid) => {
                self.leaving.remove(&uid);
                if self.leaving.is_empty() {
                    self.look.wanted = Some(now);
                }
            }
        }
    }

    fn answered(&mut self, answered: Answered) {
        let now = Instant::now();
        match answered {
            Answered::Listed(listed) => self.listed(listed, now),
            Answered::Evicted { uid, answer } => {
                // `None`: it went while it was asked.
                let Some(pod) = self.leaving.get_mut(&uid) else { return };
                match answer {
                    Answer::Accepted => pod.accepted(now),
                    Answer::Refused(refusal) => pod.refused(Some(refusal), now),
                    Answer::Changed => {
                        pod.refused(None, now);
                        self.look.wanted = Some(now);
                    }
                }
            }
        }
    }

    fn listed(&mut self, listed: Result<Vec<Pod>, WriteError>, now: Instant) {
        self.look.is_under_way = false;
        match listed {
            Ok(pods) => {
                self.look.failures = 0;
                self.blind = None;
                self.compare(&pods, now);
            }
            Err(error) => {
                self.blind = Some(error.to_string());
                self.look.wanted = Some(now + delay(self.look.failures));
                self.look.failures = self.look.failures.saturating_add(1);
            }
        }
    }

    /// Takes in a list of the node's pods.
    fn compare(&mut self, pods: &[Pod], now: Instant) {
        let prefix = self.requests.resource_prefix.as_str();
        let mut before = std::mem::take(&mut self.leaving);
        for pod in pods {
            let Some(id) = PodId::of(pod) else { continue };
            if treatment(&facts(pod), self.scope, prefix) == Treatment::Leave {
                continue;
            }
            let uid = id.uid.clone();
            let leaving = if let Some(mut known) = before.remove(&uid) {
                known.seen(&pod.metadata, now);
                known
            } else {
                self.follower.follow(&uid);
                let new = Leaving::new(id, pod, now);
                if new.ends() {
                    // It may have gone before it was followed: only a list after that tells. See `feed`.
                    self.look.wanted = Some(now);
                }
                new
            };
            self.leaving.insert(uid, leaving);
        }
        self.sighting.pods = if self.leaving.is_empty() { PodsSeen::Gone } else { PodsSeen::Left };
    }

    /// Tells what is seen, if it is news.
    fn report(&mut self, now: Instant) {
        let mut troubles: Vec<_> =
            self.leaving.values().filter_map(|pod| Some((&pod.id, pod.trouble(now)?))).collect();
        troubles.sort_by_key(|(pod, _)| (&pod.namespace, &pod.name));
        self.sighting.obstacle = obstacle(&troubles).or_else(|| self.blind.as_deref().map(not_seen));
        if self.told.as_ref() != Some(&self.sighting) {
            // When nobody listens any more, the whole process is about to stop.
            let _ = self.tell.send(self.sighting.clone());
            self.told = Some(self.sighting.clone());
        }
    }

    /// When something is to be done although nothing happens.
    fn alarm(&self, now: Instant) -> Option<Instant> {
        let look = self.look.wanted.filter(|_| !self.look.is_under_way);
        self.leaving.values().filter_map(|pod| pod.alarm(now)).chain(look).min()
    }
}

async fn until(alarm: Option<Instant>) {
    match alarm {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
