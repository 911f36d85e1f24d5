//! An agent in the process of a test, so that its machine can be disturbed.

#![allow(clippy::unwrap_used, reason = "in a test a failed expectation is the point")]
#![allow(clippy::missing_panics_doc, reason = "what fails a test is said where it fails")]

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use vfleet_agent::{AgentError, Config};
use vfleet_host::SimHost;
use vfleet_host::sim::Machine;

use crate::cluster::{AGENT, Cluster};

/// Generous: the machine may be busy.
const DEADLINE: Duration = Duration::from_mins(1);

/// An agent in this process.
pub struct Agent {
    /// Ends it.
    pub stop: CancellationToken,
    task: JoinHandle<Result<(), AgentError>>,
}

impl Agent {
    /// Starts one for `node`, which is created unless it exists.
    pub async fn start(
        cluster: &Cluster,
        node: &str,
        host: Arc<SimHost>,
        set: impl FnOnce(&mut Config),
    ) -> Self {
        cluster.create_worker(node).await;
        let client = cluster.client_as(AGENT, Some(&cluster.agent_pod(node))).await;
        let mut config = Config::new(node.to_owned(), cluster.namespace().to_owned(), host);
        set(&mut config);
        let stop = CancellationToken::new();
        let task = tokio::spawn(vfleet_agent::run(client, config, stop.clone()));
        Self { stop, task }
    }

    /// Ends it as its pod would be ended.
    pub async fn end(self) {
        self.stop.cancel();
        tokio::time::timeout(DEADLINE, self.task).await.unwrap().unwrap().unwrap();
    }

    /// As if the machine's power had failed. A step that runs goes on.
    pub fn kill(self) {
        self.task.abort();
    }
}

/// The lab's machine, simulated.
pub fn lab() -> Arc<SimHost> {
    Arc::new(SimHost::new(&Machine::lab(), "agent").unwrap())
}
