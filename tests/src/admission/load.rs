//! Load of writes in the background of a test.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::Api;
use kube::api::{Patch, PatchParams};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use vfleet_api::SriovNetworkNodePolicy;

use super::{AdmissionCluster, policy};

const MAX_CONCURRENT: usize = 16;

/// Writer of fifty policies per second. Each write is a change, so that the API server calls the webhook.
pub struct WriteLoad {
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
    written: Arc<Mutex<Vec<Result<(), String>>>>,
}

impl WriteLoad {
    /// Starts writing in the namespace of the operator.
    pub fn start(admission: &AdmissionCluster) -> Self {
        Self::start_in(admission, admission.cluster.namespace())
    }

    /// Starts writing in this namespace.
    pub fn start_in(admission: &AdmissionCluster, namespace: &str) -> Self {
        let policies: Api<SriovNetworkNodePolicy> =
            Api::namespaced(admission.cluster.admin_client(), namespace);
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
                // Fewer writes on a busy machine, so that they do not pile up.
                if writes.len() >= MAX_CONCURRENT {
                    writes.join_next().await;
                }
                let (policies, results) = (policies.clone(), Arc::clone(&results));
                writes.spawn(async move {
                    // Ten policies, so that writes rarely conflict.
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

    /// Waits for this many more writes.
    pub async fn wait_for_more(&self, writes: usize) {
        let count = || self.written.lock().unwrap().len();
        let target = count() + writes;
        let mut ticks = tokio::time::interval(Duration::from_millis(20));
        while count() < target {
            ticks.tick().await;
        }
    }

    /// Stops writing; returns the number of writes and the errors.
    pub async fn end(self) -> (usize, Vec<String>) {
        self.stop.cancel();
        self.task.await.unwrap();
        let written = self.written.lock().unwrap().clone();
        (written.len(), written.into_iter().filter_map(Result::err).collect())
    }
}
