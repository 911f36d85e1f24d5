//! Eviction of the pods of drained nodes.
//!
//! - [`node`]: task that evicts the pods of one node
//! - [`pod_watch`]: one watch for all tasks, which notifies them of changed and deleted pods
//! - [`pod`]: eviction of one pod
//! - [`problems`]: messages about pods that cannot be evicted or do not terminate
//! - [`requests`]: rate-limited requests to the API server
//! - [`daemon_pods`]: restart of DaemonSet pods

mod daemon_pods;
mod node;
mod pod;
mod pod_watch;
mod problems;
mod requests;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use vfleet_api::node_state::DrainScope;
use vfleet_cluster::write::WriteError;
use vfleet_plan::drain::{Moment, PodsState};

use crate::replica::context::Context;

pub(crate) use self::daemon_pods::{RestartFilter, RestartOutcome};
use self::node::NodeEviction;
use self::pod_watch::PodWatch;
use self::requests::PodRequests;

/// Eviction progress of a node. Sent when it changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EvictionProgress {
    pub(crate) node: String,
    /// Request of the drain.
    pub(crate) request: Moment,
    pub(crate) pods: PodsState,
    /// Number of evicted pods, set when all are gone.
    pub(crate) evicted: usize,
    /// Reason why pods cannot be evicted or do not terminate.
    pub(crate) hold: Option<DrainHold>,
}

/// Reason why a drain does not start or continue, as reported in condition `Blocked`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DrainHold {
    /// Reason of the condition.
    pub(crate) reason: &'static str,
    /// Message with subject, problem and remedy.
    pub(crate) message: String,
}

/// Eviction tasks of all nodes. Dropping it stops all of them.
pub(crate) struct Evictions {
    requests: Arc<PodRequests>,
    pod_watch: PodWatch,
    progress: mpsc::UnboundedSender<EvictionProgress>,
    running: HashMap<String, RunningEviction>,
    tasks: JoinSet<()>,
}

/// Eviction task of one node. Ends when the pods are gone.
struct RunningEviction {
    request: Moment,
    scope: DrainScope,
    task: AbortHandle,
}

impl Evictions {
    /// Creates the evictions without any task. The receiver gets the progress of all tasks.
    pub(crate) fn new(context: &Context) -> (Self, mpsc::UnboundedReceiver<EvictionProgress>) {
        let (progress, receiver) = mpsc::unbounded_channel();
        let requests = Arc::new(PodRequests::new(context));
        let pod_watch = PodWatch::new(&context.client);
        let (running, tasks) = (HashMap::new(), JoinSet::new());
        (Self { requests, pod_watch, progress, running, tasks }, receiver)
    }

    /// Starts to evict the pods of a cordoned node. A task for another request or scope is replaced.
    pub(crate) fn start(&mut self, node: &str, request: Moment, scope: DrainScope) {
        let current = self.running.get(node);
        if current.is_some_and(|running| running.request == request && running.scope == scope) {
            return;
        }
        self.stop(node);
        // Remove ended tasks.
        while self.tasks.try_join_next().is_some() {}
        let eviction = NodeEviction::new(
            EvictionProgress {
                node: node.to_owned(),
                request,
                pods: PodsState::Unknown,
                evicted: 0,
                hold: None,
            },
            scope,
            Arc::clone(&self.requests),
            self.pod_watch.subscribe(),
            self.progress.clone(),
        );
        let task = self.tasks.spawn(eviction.run());
        self.running.insert(node.to_owned(), RunningEviction { request, scope, task });
    }

    /// Stops the evictions of a node.
    pub(crate) fn stop(&mut self, node: &str) {
        if let Some(running) = self.running.remove(node) {
            running.task.abort();
        }
    }

    /// Restarts DaemonSet pods on the node that may have lost their VFs, and waits a limited time for the end of the
    /// old ones.
    pub(crate) fn restart_daemon_pods(
        &self,
        node: &str,
        filter: RestartFilter,
    ) -> impl Future<Output = Result<RestartOutcome, WriteError>> + Send + 'static {
        let (requests, pod_watch, node) =
            (Arc::clone(&self.requests), self.pod_watch.clone(), node.to_owned());
        async move { daemon_pods::restart(&requests, &pod_watch, &node, &filter).await }
    }
}
