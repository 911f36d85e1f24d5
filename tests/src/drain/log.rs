//! Log of drains in the order of resource versions, recorded from watches.

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

use super::{RESOURCE, cordon_mark, status_of};
use crate::cluster::Cluster;

/// Fact about a node from one version of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    /// The Node has the cordon mark, or not.
    Marked(bool),
    /// Status of the drain.
    Drain(DrainStatus),
    /// A pod that requests VFs exists.
    Pod(String),
    /// A pod that requested VFs was deleted.
    NoPod(String),
}

/// Entries with their nodes, by resource version.
#[derive(Debug, Default)]
struct Entries(Mutex<BTreeMap<u64, (String, Entry)>>);

/// Recorder of Nodes, node states and pods.
pub struct DrainLog {
    entries: Arc<Entries>,
    /// Number of entries.
    count: watch::Receiver<usize>,
    _follow: [AbortOnDropHandle<()>; 3],
}

impl DrainLog {
    /// Starts recording.
    pub fn start(cluster: &Cluster) -> Self {
        let (count_sender, count) = watch::channel(0);
        let recorder = Recorder { entries: Arc::default(), count: Arc::new(count_sender) };
        let nodes = recorder.clone().follow(cluster.nodes(), |node: &Node, is_gone| {
            Some((node.name_any(), Entry::Marked(cordon_mark(node).is_some() && !is_gone)))
        });
        let states = recorder.clone().follow(cluster.states(), |state: &SriovNetworkNodeState, is_gone| {
            let status = if is_gone { DrainStatus::Idle } else { status_of(state) };
            Some((state.name_any(), Entry::Drain(status)))
        });
        let pods = recorder.clone().follow(cluster.api::<Pod>(), pod_entry);
        Self { entries: recorder.entries, count, _follow: [nodes, states, pods] }
    }

    /// Returns the maximum number of nodes of `members` that were draining or marked at the same time.
    pub fn max_busy_nodes(&self, members: &[String]) -> usize {
        let members: BTreeSet<_> = members.iter().collect();
        let (mut marked, mut in_flight) = (BTreeSet::new(), BTreeSet::new());
        let mut most = 0;
        for (node, entry) in self.entries.lock().values().filter(|(node, _)| members.contains(node)) {
            let (set, is_in) = match entry {
                Entry::Marked(is_in) => (&mut marked, *is_in),
                Entry::Drain(status) => (&mut in_flight, is_in_flight(*status)),
                Entry::Pod(_) | Entry::NoPod(_) => continue,
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

    /// Returns pods with VFs that were on a node when its drain was reported as complete.
    pub fn pods_on_drained_nodes(&self) -> Vec<String> {
        let mut pods_by_node: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let mut found = Vec::new();
        for (node, entry) in self.entries.lock().values() {
            let pods = pods_by_node.entry(node.clone()).or_default();
            match entry {
                Entry::Pod(pod) => _ = pods.insert(pod.clone()),
                Entry::NoPod(pod) => _ = pods.remove(pod),
                Entry::Drain(DrainStatus::DrainingComplete) => {
                    found.extend(pods.iter().map(|pod| format!("{pod} on {node}")));
                }
                Entry::Drain(_) | Entry::Marked(_) => {}
            }
        }
        found
    }

    /// Waits until the drain status of nodes has changed `count` times in total.
    pub async fn wait_for_changes(&mut self, count: usize) {
        let Self { entries, count: changes, .. } = self;
        // Cannot fail: the recording tasks hold the sender.
        let _ = changes.wait_for(|_| entries.count_changes() >= count).await;
    }

    /// Returns how often the drain status of nodes has changed.
    pub fn count_changes(&self) -> usize {
        self.entries.count_changes()
    }
}

impl Entries {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, (String, Entry)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count_changes(&self) -> usize {
        let entries = self.lock();
        let mut last = BTreeMap::new();
        let drains = entries.values().filter_map(|(node, entry)| match entry {
            Entry::Drain(status) => Some((node, *status)),
            _ => None,
        });
        drains
            .filter(|(node, status)| last.insert(*node, *status).unwrap_or(DrainStatus::Idle) != *status)
            .count()
    }
}

fn pod_entry(pod: &Pod, is_gone: bool) -> Option<(String, Entry)> {
    let spec = pod.spec.as_ref()?;
    let requests_vfs = |container: &k8s_openapi::api::core::v1::Container| {
        let limits = container.resources.as_ref().and_then(|resources| resources.limits.as_ref());
        limits.is_some_and(|limits| limits.contains_key(RESOURCE))
    };
    let node = spec.node_name.clone().filter(|_| spec.containers.iter().any(requests_vfs))?;
    let id = format!("{}/{}", pod.name_any(), pod.uid().unwrap_or_default());
    Some((node, if is_gone { Entry::NoPod(id) } else { Entry::Pod(id) }))
}

/// Writer of entries.
#[derive(Clone)]
struct Recorder {
    entries: Arc<Entries>,
    count: Arc<watch::Sender<usize>>,
}

impl Recorder {
    /// Watches objects. `to_entry` gets an object and whether it was deleted.
    fn follow<K>(
        self,
        api: Api<K>,
        to_entry: impl Fn(&K, bool) -> Option<(String, Entry)> + Send + 'static,
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
                    // After an error the watcher continues.
                    Ok(Event::Init | Event::InitDone) | Err(_) => continue,
                };
                let version = object.resource_version().and_then(|version| version.parse().ok());
                if let Some(entry) = to_entry(&object, is_gone) {
                    self.entries.lock().insert(version.unwrap_or_default(), entry);
                    self.count.send_modify(|count| *count += 1);
                }
            }
        }))
    }
}
