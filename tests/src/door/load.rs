//! Writes that go on while something else happens.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::Api;
use kube::api::{Patch, PatchParams};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use vfleet_api::SriovNetworkNodePolicy;

use super::{Door, policy};

const MOST_AT_ONCE: usize = 16;

/// Fifty writes a second, each another change of a policy, so that the API server asks about each.
pub struct Load {
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
    written: Arc<Mutex<Vec<Result<(), String>>>>,
}

impl Load {
    /// From now on, in the operator's namespace.
    pub fn start(door: &Door) -> Self {
        Self::start_in(door, door.cluster.namespace())
    }

    /// From now on, in this namespace.
    pub fn start_in(door: &Door, namespace: &str) -> Self {
        let policies: Api<SriovNetworkNodePolicy> = Api::namespaced(door.cluster.administrator(), namespace);
        let stop = CancellationToken::new();
        let written: Arc<Mutex<Vec<_>>> = Arc::default();
        let (results, stopped) = (Arc::clone(&written), stop.clone());
        let task = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(Duration::from_millis(20));
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut writes = JoinSet::new();
            for number in 0usize.. {
                tokio::select! {
                    () = stopped.cancelled() => break,
                    _ = ticks.tick() => {}
                }
                // A machine that is too busy for this many gets fewer, and does not fall ever further behind.
                if writes.len() >= MOST_AT_ONCE {
                    writes.join_next().await;
                }
                let (policies, results) = (policies.clone(), Arc::clone(&results));
                writes.spawn(async move {
                    // Ten policies, so that hardly any two writes meet.
                    let name = format!("load-{}", number % 10);
                    let parameters = PatchParams { dry_run: true, ..PatchParams::apply("load").force() };
                    let patch = Patch::Apply(policy(&name, 1 + number % 50));
                    let result = policies.patch(&name, &parameters, &patch).await;
                    results.lock().unwrap().push(result.map(drop).map_err(|error| error.to_string()));
                });
            }
            while writes.join_next().await.is_some() {}
        });
        Self { stop, task, written }
    }

    /// Waits for so many more.
    pub async fn more(&self, writes: usize) {
        let count = || self.written.lock().unwrap().len();
        let until = count() + writes;
        let mut ticks = tokio::time::interval(Duration::from_millis(20));
        while count() < until {
            ticks.tick().await;
        }
    }

    /// Ends it; gives how many there were, and what those said that failed.
    pub async fn end(self) -> (usize, Vec<String>) {
        self.stop.cancel();
        self.task.await.unwrap();
        let written = self.written.lock().unwrap().clone();
        (written.len(), written.into_iter().filter_map(Result::err).collect())
    }
}
