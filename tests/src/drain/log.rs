//! Who was busy when, as the API server saw it: from watches, in the order of resource versions.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::core::Resource;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use serde::de::DeserializeOwned;
use tokio_util::task::AbortOnDropHandle;
use vfleet_api::SriovNetworkNodeState;
use vfleet_plan::drain::is_in_flight;

use super::{mark, status_of};
use crate::cluster::Cluster;

/// What a version of an object says about its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Word {
    /// The Node is marked, or not.
    Marked(bool),
    /// The node state is in flight, or not.
    InFlight(bool),
}

type Words = Arc<Mutex<BTreeMap<u64, (String, Word)>>>;

/// Follows Nodes and node states until it is dropped.
pub struct BusyLog {
    words: Words,
    _follow: [AbortOnDropHandle<()>; 2],
}

impl BusyLog {
    /// From now on.
    pub fn begin(cluster: &Cluster) -> Self {
        let words = Words::default();
        let nodes =
            follow(cluster.nodes(), Arc::clone(&words), |node: &Node| Word::Marked(mark(node).is_some()));
        let states = follow(cluster.states(), Arc::clone(&words), |state: &SriovNetworkNodeState| {
            Word::InFlight(is_in_flight(status_of(state)))
        });
        Self { words, _follow: [nodes, states] }
    }

    /// The most nodes of `members` that were busy at once: in flight or marked.
    pub fn most_at_once(&self, members: &[String]) -> usize {
        let words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut marked, mut in_flight) = (BTreeSet::new(), BTreeSet::new());
        let mut most = 0;
        for (node, word) in words.values().filter(|(node, _)| members.contains(node)) {
            let (set, is_in) = match word {
                Word::Marked(is_in) => (&mut marked, *is_in),
                Word::InFlight(is_in) => (&mut in_flight, *is_in),
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
}

fn follow<K>(api: Api<K>, words: Words, say: impl Fn(&K) -> Word + Send + 'static) -> AbortOnDropHandle<()>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    AbortOnDropHandle::new(tokio::spawn(async move {
        let mut objects =
            watcher(api, watcher::Config::default()).default_backoff().touched_objects().boxed();
        while let Some(Ok(object)) = objects.next().await {
            let version =
                object.resource_version().and_then(|version| version.parse().ok()).unwrap_or_default();
            words
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(version, (object.name_any(), say(&object)));
        }
    }))
}
