//! The pods of nodes that are being drained: they are evicted, and waited for until they are gone.
//!
//! - [`node`]: one task for each node
//! - [`feed`]: one watch for all of them, which tells a task that a pod changed or is gone
//! - [`pod`]: one pod that is to go, and how far it is
//! - [`obstacle`]: why pods do not go, in words
//! - [`requests`]: what is asked of the API server, not too much at once
//! - [`daemon_pods`]: pods of DaemonSets are started again

mod daemon_pods;
mod feed;
mod node;
mod obstacle;
mod pod;
mod requests;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use vfleet_api::node_state::DrainScope;
use vfleet_cluster::write::WriteError;
use vfleet_plan::drain::{Moment, PodsSeen};

use crate::replica::context::Context;

pub(crate) use self::daemon_pods::{Lost, Restarted};
use self::feed::Feed;
use self::node::NodeDrain;
use self::requests::Requests;

/// What was seen of a node's pods. Sent when it changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sighting {
    pub(crate) node: String,
    /// The request that they are evicted for.
    pub(crate) request: Moment,
    pub(crate) pods: PodsSeen,
    /// What keeps pods from going, if anything.
    pub(crate) obstacle: Option<Obstacle>,
}

/// Why pods do not go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Obstacle {
    /// In one word: `EvictionRefused`, `EvictionFailed`, `PodsDoNotEnd` or `PodsNotSeen`.
    pub(crate) reason: &'static str,
    /// Names pods and budgets, and says what to do.
    pub(crate) message: String,
}

/// The nodes whose pods are being evicted. Dropping it stops all of them.
pub(crate) struct Evictions {
    requests: Arc<Requests>,
    feed: Feed,
    tell: mpsc::UnboundedSender<Sighting>,
    running: HashMap<String, Running>,
    tasks: JoinSet<()>,
}

/// The task of one node. It ends by itself when the pods are gone.
struct Running {
    request: Moment,
    scope: DrainScope,
    task: AbortHandle,
}

impl Evictions {
    /// None yet. What is seen of their pods comes by the channel.
    pub(crate) fn new(context: &Context) -> (Self, mpsc::UnboundedReceiver<Sighting>) {
        let (tell, sightings) = mpsc::unbounded_channel();
        let requests = Arc::new(Requests::new(context));
        let feed = Feed::new(&context.client);
        let (running, tasks) = (HashMap::new(), JoinSet::new());
        (Self { requests, feed, tell, running, tasks }, sightings)
    }

    /// Begins to evict the node's pods, after it was cordoned. The same again changes nothing; another request or scope
    /// starts over.
    pub(crate) fn drain(&mut self, node: &str, request: Moment, scope: DrainScope) {
        let known = self.running.get(node);
        if known.is_some_and(|running| running.request == request && running.scope == scope) {
            return;
        }
        self.stop(node);
        // Those that have ended are of no interest any more.
        while self.tasks.try_join_next().is_some() {}
        let drain = NodeDrain::new(
            Sighting { node: node.to_owned(), request, pods: PodsSeen::No, obstacle: None },
            scope,
            Arc::clone(&self.requests),
            self.feed.join(),
            self.tell.clone(),
        );
        let task = self.tasks.spawn(drain.run());
        self.running.insert(node.to_owned(), Running { request, scope, task });
    }

    /// Evicts no more of the node's pods, from now on: its drain was withdrawn, or is over.
    pub(crate) fn stop(&mut self, node: &str) {
        if let Some(running) = self.running.remove(node) {
            running.task.abort();
        }
    }

    /// Starts those pods of DaemonSets on the node again that may have lost their VFs, and waits for a while until the
    /// old ones are gone.
    pub(crate) fn restart_daemon_pods(
        &self,
        node: &str,
        lost: Lost,
    ) -> impl Future<Output = Result<Restarted, WriteError>> + Send + 'static {
        let (requests, feed, node) = (Arc::clone(&self.requests), self.feed.clone(), node.to_owned());
        async move { daemon_pods::restart(&requests, &feed, &node, &lost).await }
    }
}
