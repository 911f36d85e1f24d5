//! What the API server tells about node states, and when.

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

struct Sight {
    name: String,
    generation: i64,
    at: Instant,
}

/// The node states of one namespace: their generation counts the changes of their specs.
pub(crate) struct Watched {
    sights: mpsc::UnboundedReceiver<Sight>,
    generations: HashMap<String, i64>,
    pump: JoinHandle<()>,
}

/// When the specs of some nodes were seen to change.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Changes {
    pub(crate) first: Duration,
    pub(crate) last: Duration,
}

impl Watched {
    /// Begins to watch. Only metadata: the watching must not cost what is to be measured.
    pub(crate) async fn new(client: Client, namespace: &str, expected: usize) -> Result<Self> {
        let api: Api<PartialObjectMeta<SriovNetworkNodeState>> = Api::namespaced(client, namespace);
        let (sender, sights) = mpsc::unbounded_channel();
        let pump = tokio::spawn(async move {
            let states = watcher(api, watcher::Config::default()).default_backoff().applied_objects();
            let sent = states.try_for_each(async |state| {
                let sight = Sight {
                    name: state.name_any(),
                    generation: state.metadata.generation.unwrap_or_default(),
                    at: Instant::now(),
                };
                // Fails only when nobody looks any more.
                let _ = sender.send(sight);
                Ok(())
            });
            let _ = sent.await;
        });
        let mut watched = Self { sights, generations: HashMap::new(), pump };
        while watched.generations.len() < expected {
            let sight = tokio::time::timeout(Duration::from_mins(2), watched.sights.recv()).await;
            watched.note(&sight.context("the node states are not listed")?.context("the watch ended")?);
        }
        Ok(watched)
    }

    fn note(&mut self, sight: &Sight) -> bool {
        let before = self.generations.insert(sight.name.clone(), sight.generation);
        before.is_none_or(|before| before < sight.generation)
    }

    /// Forgets what was not asked about.
    pub(crate) fn catch_up(&mut self) {
        while let Ok(sight) = self.sights.try_recv() {
            self.note(&sight);
        }
    }

    /// Waits until the spec of each of these nodes has changed. `None` when it takes longer than `limit`.
    pub(crate) async fn changes(
        &mut self,
        since: Instant,
        names: impl IntoIterator<Item = String>,
        limit: Duration,
    ) -> Result<Option<Changes>> {
        let mut missing: HashSet<String> = names.into_iter().collect();
        let mut first = None;
        let deadline = tokio::time::Instant::now() + limit;
        loop {
            let Ok(sight) = tokio::time::timeout_at(deadline, self.sights.recv()).await else {
                return Ok(None);
            };
            let Some(sight) = sight else { bail!("the watch of node states ended") };
            if self.note(&sight) && missing.remove(&sight.name) {
                let at = sight.at.duration_since(since);
                let first = *first.get_or_insert(at);
                if missing.is_empty() {
                    return Ok(Some(Changes { first, last: at }));
                }
            }
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.pump.abort();
    }
}
