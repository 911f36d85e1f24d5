//! Network controller: creates a NetworkAttachmentDefinition (NAD) for each network.

mod changes;
mod execute;
mod index;
mod versioned_store;

use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;
use vfleet_cluster::queue::WorkQueue;
use vfleet_plan::network::NetworkId;

use crate::OperatorError;
use crate::networks::changes::{NetworkChange, watch_all};
use crate::networks::execute::{NetworkExecution, NetworkWrite};
use crate::networks::index::NetworkIndex;
use crate::replica::context::Context;

/// Number of networks that are reconciled concurrently.
const MAX_TASKS: usize = 16;

/// Runs the controller until `stop`.
pub(crate) async fn run(context: Context, stop: CancellationToken) -> Result<(), OperatorError> {
    let mut changes = pin!(watch_all(&context.client, &context.config.namespace));
    let (sender, writes) = unbounded_channel();
    let mut controller = NetworkController {
        index: NetworkIndex::new(&context.config.namespace, &context.config.resource_prefix),
        work: WorkQueue::new("networks", MAX_TASKS, Arc::clone(&context.metrics)),
        context,
        sender,
        writes,
    };
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            change = changes.next() => controller.apply(change.ok_or(OperatorError::WatchEnded)?),
            () = controller.work.wait_for_progress() => {}
        }
        controller.reconcile();
    }
    controller.work.finish().await;
    Ok(())
}

/// Controller that writes NADs, with its queue.
struct NetworkController {
    context: Context,
    index: NetworkIndex,
    work: WorkQueue<NetworkId>,
    sender: UnboundedSender<NetworkWrite>,
    /// Completed writes. They are applied to the index at once, because the watches deliver them later and the same
    /// write would be done twice.
    writes: UnboundedReceiver<NetworkWrite>,
}

impl NetworkController {
    fn apply(&mut self, change: NetworkChange) {
        let affected = self.index.apply(change);
        self.work.add(affected);
    }

    fn reconcile(&mut self) {
        while let Ok(write) = self.writes.try_recv() {
            self.index.apply_write(write);
        }
        if self.work.is_idle() {
            self.index.forget_deleted();
        }
        if !self.index.is_complete() {
            return;
        }
        while let Some(id) = self.work.take_next() {
            self.reconcile_network(id);
        }
    }

    fn reconcile_network(&mut self, id: NetworkId) {
        let Some(plan) = self.index.decide(&id) else { return self.work.mark_done(&id) };
        let execution = NetworkExecution { context: self.context.clone(), sender: self.sender.clone(), plan };
        self.work.start(id, execution.run());
    }
}
