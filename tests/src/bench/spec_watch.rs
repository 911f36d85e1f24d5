//! Times at which specs of node states change.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::TryStreamExt;
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use vfleet_api::SriovNetworkNodeState;

/// Version of a node state.
struct Observation {
    name: String,
    generation: i64,
    at: Instant,
}

/// Watch of the node states of one namespace. Their generation changes with every change of their specs.
pub(crate) struct SpecWatch {
    observations: mpsc::UnboundedReceiver<Observation>,
    generations: HashMap<String, i64>,
    task: JoinHandle<()>,
}

/// Times at which the first and the last of some specs changed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChangeTimes {
    pub(crate) first: Duration,
    pub(crate) last: Duration,
}

impl SpecWatch {
    /// Starts a watch of metadata only, to keep its own cost low. Waits until all node states are listed.
    pub(crate) async fn new(client: Client, namespace: &str, expected: usize) -> Result<Self> {
        let api: Api<PartialObjectMeta<SriovNetworkNodeState>> = Api::namespaced(client, namespace);
        let (sender, observations) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move {
            let states = watcher(api, watcher::Config::default()).default_backoff().applied_objects();
            let sent = states.try_for_each(async |state| {
                let observation = Observation {
                    name: state.name_any(),
                    generation: state.metadata.generation.unwrap_or_default(),
                    at: Instant::now(),
                };
                // Fails only if the receiver was dropped.
                let _ = sender.send(observation);
                Ok(())
            });
            let _ = sent.await;
        });
        let mut watch = Self { observations, generations: HashMap::new(), task };
        while watch.generations.len() < expected {
            let observation = tokio::time::timeout(Duration::from_mins(2), watch.observations.recv()).await;
            watch.record(
                &observation.context("timed out listing the node states")?.context("the watch ended")?,
            );
        }
        Ok(watch)
    }

    fn record(&mut self, observation: &Observation) -> bool {
        let before = self.generations.insert(observation.name.clone(), observation.generation);
        before.is_none_or(|before| before < observation.generation)
    }

    /// Discards earlier changes.
    pub(crate) fn catch_up(&mut self) {
        while let Ok(observation) = self.observations.try_recv() {
            self.record(&observation);
        }
    }

    /// Waits until the specs of all these nodes have changed. Returns `None` if it takes longer than `limit`.
    pub(crate) async fn changes(
        &mut self,
        since: Instant,
        names: impl IntoIterator<Item = String>,
        limit: Duration,
    ) -> Result<Option<ChangeTimes>> {
        let mut missing: HashSet<String> = names.into_iter().collect();
        let mut first = None;
        let deadline = tokio::time::Instant::now() + limit;
        loop {
            let Ok(observation) = tokio::time::timeout_at(deadline, self.observations.recv()).await else {
                return Ok(None);
            };
            let Some(observation) = observation else { bail!("the watch of node states ended") };
            if self.record(&observation) && missing.remove(&observation.name) {
                let at = observation.at.duration_since(since);
                let first = *first.get_or_insert(at);
                if missing.is_empty() {
                    return Ok(Some(ChangeTimes { first, last: at }));
                }
            }
        }
    }
}

impl Drop for SpecWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}
