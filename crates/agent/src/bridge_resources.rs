//! Resources of the Node that stand for Open vSwitch bridges. The latest snapshot of the machine has the bridges, a watch
//! of the Node its capacity; a change of either calls for a plan. While the machine cannot be read, its last snapshot
//! counts. This runs beside the attempts of the agent.

mod capacity;
mod report;
#[cfg(test)]
mod tests;

use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt;
use kube::Client;
use thiserror::Error;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use vfleet_plan::NodeSnapshot;
use vfleet_plan::bridge_resources::{
    BridgeResourceMode, BridgeResourcePlan, CapacityChange, plan_bridge_resources,
};

use crate::Config;
use crate::attempt::RepairCounter;
use crate::cluster_writer::{ClusterWriteError, ClusterWriter};
use crate::notice::{EventSink, Notice};
use crate::wake_timer::WakeTimer;
use capacity::NodeCapacity;
use report::ResourceReport;

/// Most writes until the capacity matches: one that applies, and one that removes what others wrote.
const MOST_WRITES: usize = 2;

/// Error of a write to the capacity of the Node.
#[derive(Debug, Error)]
enum CapacityError {
    #[error(transparent)]
    Write(#[from] ClusterWriteError),
    #[error(
        "the API server accepted the resources of Open vSwitch bridges, but the capacity of the Node differs from them: \
         check which admission webhook or program changes the capacity"
    )]
    NotVerified,
}

impl CapacityError {
    /// Returns the reason for conditions and Events.
    const fn reason(&self) -> &'static str {
        match self {
            Self::Write(ClusterWriteError::CapacityForbidden(_)) => "WriteForbidden",
            Self::Write(_) => "WriteFailed",
            Self::NotVerified => "NotVerified",
        }
    }
}

/// Write to the capacity of a Node.
trait WriteCapacity {
    /// Writes one change, and returns the capacity after it.
    fn write(
        &self,
        change: &CapacityChange,
    ) -> impl Future<Output = Result<Option<NodeCapacity>, ClusterWriteError>> + Send;
}

/// Writer of the Node of the agent.
struct NodeWriter {
    writer: ClusterWriter,
    node: String,
}

impl WriteCapacity for NodeWriter {
    async fn write(&self, change: &CapacityChange) -> Result<Option<NodeCapacity>, ClusterWriteError> {
        Ok(NodeCapacity::of(&self.writer.write_capacity(&self.node, change).await?))
    }
}

/// Reporter of bridges as resources of one Node.
pub(crate) struct BridgeResourceReporter {
    mode: BridgeResourceMode,
    node: String,
    snapshots: watch::Receiver<Arc<NodeSnapshot>>,
    /// Capacity of the Node; `None` while it is not known, or nobody reported one.
    capacity: Option<NodeCapacity>,
    report: ResourceReport,
    timer: WakeTimer,
    failures: u32,
    repairs: RepairCounter,
}

impl BridgeResourceReporter {
    /// Returns the reporter of an agent; `None` if the agent does not handle resources.
    pub(crate) fn new(config: &Config) -> Option<Self> {
        let mode = config.bridge_resources;
        if mode == BridgeResourceMode::Ignored {
            return None;
        }
        Some(Self {
            mode,
            node: config.node.clone(),
            snapshots: config.snapshots.subscribe(),
            capacity: None,
            report: ResourceReport::new(config),
            timer: WakeTimer::default(),
            failures: 0,
            repairs: RepairCounter::default(),
        })
    }

    /// Keeps the resources up to date until `stop`, or until there is nothing left to withdraw. The resources stay when the
    /// agent stops: its successor continues.
    pub(crate) async fn run(mut self, client: Client, namespace: String, stop: CancellationToken) {
        let writer = ClusterWriter::new(&client, &namespace, &self.node);
        let writer = NodeWriter { writer, node: self.node.clone() };
        let events = EventSink::new(&client, &namespace, &self.node);
        let mut capacities = pin!(capacity::watch_capacity(&client, &self.node));
        while !self.is_done() {
            tokio::select! {
                () = stop.cancelled() => return,
                Ok(()) = self.snapshots.changed() => self.timer.wake_soon(),
                Some(capacity) = capacities.next() => self.set_capacity(capacity),
                () = self.timer.wait() => {
                    let reconciled = async {
                        let notices = self.reconcile(&writer).await;
                        events.emit(&notices).await;
                    };
                    // Every write is idempotent, and the next agent repeats it.
                    tokio::select! {
                        () = stop.cancelled() => return,
                        () = reconciled => {}
                    }
                }
            }
        }
    }

    /// Returns whether all resources of the agent are withdrawn.
    fn is_done(&self) -> bool {
        let is_withdrawn = |capacity: &NodeCapacity| !capacity.resources.has_own();
        self.mode == BridgeResourceMode::Withdrawn && self.capacity.as_ref().is_some_and(is_withdrawn)
    }

    /// Stores the capacity of the Node.
    fn set_capacity(&mut self, capacity: Option<NodeCapacity>) {
        // Older than the response to one of our own writes.
        if let (Some(new), Some(stored)) = (&capacity, &self.capacity)
            && new.is_older_than(stored)
        {
            return;
        }
        self.capacity = capacity;
        self.timer.wake_soon();
    }

    fn plan(&self) -> BridgeResourcePlan {
        let snapshot = Arc::clone(&self.snapshots.borrow());
        match &self.capacity {
            Some(capacity) => {
                plan_bridge_resources(self.mode, &snapshot.facts.bridges.ovs, &capacity.resources)
            }
            None => BridgeResourcePlan::default(),
        }
    }

    /// Writes what is missing, and sets the timer for a retry. Returns what is worth an Event.
    async fn reconcile(&mut self, writer: &impl WriteCapacity) -> Vec<Notice> {
        self.timer.clear();
        if self.capacity.is_none() {
            return Vec::new();
        }
        let written = self.write_changes(writer).await;
        match &written {
            Ok(0) => self.failures = 0,
            Ok(_) => {
                self.failures = 0;
                let repairs = self.repairs.count();
                if repairs > 0 {
                    // Another program undoes it, or bridges come and go all the time.
                    self.timer.hold_off(repairs);
                }
            }
            Err(_) => {
                self.failures += 1;
                self.timer.retry_after(self.failures);
            }
        }
        let fault = self.plan().fault;
        let found = self.capacity.as_ref().map(|capacity| &capacity.resources);
        self.report.update(self.mode, found, fault.as_ref(), &written)
    }

    /// Writes one change after the other until none is left. Returns the number of writes.
    async fn write_changes(&mut self, writer: &impl WriteCapacity) -> Result<usize, CapacityError> {
        let mut count = 0;
        while let Some(change) = self.plan().change {
            if count == MOST_WRITES {
                return Err(CapacityError::NotVerified);
            }
            self.capacity = writer.write(&change).await?;
            count += 1;
        }
        Ok(count)
    }
}
