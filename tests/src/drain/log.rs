//! Who was busy when, as the API server saw it: from watches, in the order of resource versions.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::core::Resource;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;
use vfleet_api::SriovNetworkNodeState;
use vfleet_api::node_state::DrainStatus;
use vfleet_plan::drain::is_in_flight;

use super::{RESOURCE, mark, status_of};
use crate::cluster::Cluster;

/// What a version of an object says about a node.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Word {
    /// The Node is marked, or not.
    Marked(bool),
    /// How far the drain is.
    Drain(DrainStatus),
    /// A pod that asks for VFs is there.
    Pod(String),
    /// It is not any more.
    NoPod(String),
}

/// What was said, each word of which node, in the order of resource versions.
#[derive(Debug, Default)]
struct Words(Mutex<BTreeMap<u64, (String, Word)>>);

/// Follows Nodes, node states and pods until it is dropped.
pub struct BusyLog {
    words: Arc<Words>,
    /// How many words there are.
    count: watch::Receiver<usize>,
    _follow: [AbortOnDropHandle<()>; 3],
}

impl BusyLog {
    /// From now on.
    pub fn begin(cluster: &Cluster) -> Self {
        let (tell, count) = watch::channel(0);
        let tape = Tape { words: Arc::default(), tell: Arc::new(tell) };
        let nodes = tape.clone().follow(cluster.nodes(), |node: &Node, is_gone| {
            Some((node.name_any(), Word::Marked(mark(node).is_some() && !is_gone)))
        });
        let states = tape.clone().follow(cluster.states(), |state: &SriovNetworkNodeState, is_gone| {
            let status = if is_gone { DrainStatus::Idle } else { status_of(state) };
            Some((state.name_any(), Word::Drain(status)))
        });
        let pods = tape.clone().follow(cluster.api::<Pod>(), pod_word);
        Self { words: tape.words, count, _follow: [nodes, states, pods] }
    }

    /// The most nodes of `members` that were busy at once: in flight or marked.
    pub fn most_at_once(&self, members: &[String]) -> usize {
        let members: BTreeSet<_> = members.iter().collect();
        let (mut marked, mut in_flight) = (BTreeSet::new(), BTreeSet::new());
        let mut most = 0;
        for (node, word) in self.words.lock().values().filter(|(node, _)| members.contains(node)) {
            let (set, is_in) = match word {
                Word::Marked(is_in) => (&mut marked, *is_in),
                Word::Drain(status) => (&mut in_flight, is_in_flight(*status)),
                Word::Pod(_) | Word::NoPod(_) => continue,
            };
            if is_in {
                set.insert(node)
            } else {
                set.remove(node)
            };
            most = most.max(marked.union(&in_flight).count());
        }
        most
    }

    /// Pods that ask for VFs and were on a node when it was said to be drained.
    pub fn pods_on_drained_nodes(&self) -> Vec<String> {
        let mut there: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let mut found = Vec::new();
        for (node, word) in self.words.lock().values() {
            let pods = there.entry(node.clone()).or_default();
            match word {
                Word::Pod(pod) => _ = pods.insert(pod.clone()),
                Word::NoPod(pod) => _ = pods.remove(pod),
                Word::Drain(DrainStatus::DrainingComplete) => {
                    found.extend(pods.iter().map(|pod| format!("{pod} on {node}")));
                }
                Word::Drain(_) | Word::Marked(_) => {}
            }
        }
        found
    }

    /// Waits until nodes have become something else so many times in all, as far as their drains go.
    pub async fn expect_steps(&mut self, count: usize) {
        let Self { words, count: changes, .. } = self;
        // Cannot fail: who follows the nodes has the other end.
        let _ = changes.wait_for(|_| words.steps() >= count).await;
    }

    /// How often nodes have become something else, as far as their drains go.
    pub fn steps(&self) -> usize {
        self.words.steps()
    }
}

impl Words {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, (String, Word)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn steps(&self) -> usize {
        let words = self.lock();
        let mut last = BTreeMap::new();
        let drains = words.values().filter_map(|(node, word)| match word {
            Word::Drain(status) => Some((node, *status)),
            _ => None,
        });
        drains
            .filter(|(node, status)| last.insert(*node, *status).unwrap_or(DrainStatus::Idle) != *status)
            .count()
    }
}

fn pod_word(pod: &Pod, is_gone: bool) -> Option<(String, Word)> {
    let spec = pod.spec.as_ref()?;
    let asks = |container: &k8s_openapi::api::core::v1::Container| {
        let limits = container.resources.as_ref().and_then(|resources| resources.limits.as_ref());
        limits.is_some_and(|limits| limits.contains_key(RESOURCE))
    };
    let node = spec.node_name.clone().filter(|_| spec.containers.iter().any(asks))?;
    let id = format!("{}/{}", pod.name_any(), pod.uid().unwrap_or_default());
    Some((node, if is_gone { Word::NoPod(id) } else { Word::Pod(id) }))
}

/// Where the words are written down.
#[derive(Clone)]
struct Tape {
    words: Arc<Words>,
    tell: Arc<watch::Sender<usize>>,
}

impl Tape {
    /// `say` makes a word of an object, and is told whether it is gone.
    fn follow<K>(
        self,
        api: Api<K>,
        say: impl Fn(&K, bool) -> Option<(String, Word)> + Send + 'static,
    ) -> AbortOnDropHandle<()>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        AbortOnDropHandle::new(tokio::spawn(async move {
            let mut events = watcher(api, watcher::Config::default()).default_backoff().boxed();
            while let Some(event) = events.next().await {
                let (object, is_gone) = match event {
                    Ok(Event::Apply(object) | Event::InitApply(object)) => (object, false),
                    Ok(Event::Delete(object)) => (object, true),
                    // After an error it goes on where it was.
                    Ok(Event::Init | Event::InitDone) | Err(_) => continue,
                };
                let version = object.resource_version().and_then(|version| version.parse().ok());
                if let Some(word) = say(&object, is_gone) {
                    self.words.lock().insert(version.unwrap_or_default(), word);
                    self.tell.send_modify(|count| *count += 1);
                }
            }
        }))
    }
}
