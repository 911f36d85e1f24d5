//! Agent in the process of a test, so that the test can change its simulated machine.

#![allow(clippy::unwrap_used, reason = "in a test a failed expectation is the point")]
#![allow(clippy::missing_panics_doc, reason = "a failed expectation is explained where it fails")]

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use vfleet_agent::{AgentError, Config};
use vfleet_host::SimHost;
use vfleet_host::sim::Machine;

use crate::cluster::{AGENT, Cluster};

/// Deadline for the end of an agent.
const DEADLINE: Duration = Duration::from_mins(1);

/// Agent in this process.
pub struct Agent {
    /// Stops the agent when it is canceled.
    pub stop: CancellationToken,
    task: JoinHandle<Result<(), AgentError>>,
}

impl Agent {
    /// Starts an agent for `node`, which is created unless it exists.
    pub async fn start(
        cluster: &Cluster,
        node: &str,
        host: Arc<SimHost>,
        configure: impl FnOnce(&mut Config),
    ) -> Self {
        cluster.create_worker(node).await;
        let client = cluster.client_as(AGENT, Some(&cluster.agent_pod(node))).await;
        let mut config = Config::new(node.to_owned(), cluster.namespace().to_owned(), host);
        configure(&mut config);
        let stop = CancellationToken::new();
        let task = tokio::spawn(vfleet_agent::run(client, config, stop.clone()));
        Self { stop, task }
    }

    /// Stops the agent as at the termination of its pod.
    pub async fn end(self) {
        self.stop.cancel();
        tokio::time::timeout(DEADLINE, self.task).await.unwrap().unwrap().unwrap();
    }

    /// Aborts the agent, as at a power failure. A running step is not interrupted.
    pub fn kill(self) {
        self.task.abort();
    }
}

/// Returns a simulated machine like the one of the lab.
pub fn lab() -> Arc<SimHost> {
    Arc::new(SimHost::new(&Machine::lab(), "agent").unwrap())
}
