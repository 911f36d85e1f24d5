//! The network controller: each network becomes a NetworkAttachmentDefinition (NAD).

mod changes;
mod known;
mod objects;
mod steps;

use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;
use vfleet_cluster::queue::Work;
use vfleet_plan::network::NetworkId;

use crate::OperatorError;
use crate::networks::changes::Change;
use crate::networks::known::Known;
use crate::networks::steps::{News, Task};
use crate::replica::context::Context;

/// How many networks are worked on at once.
const AT_ONCE: usize = 16;

/// Runs the controller until `stop`.
pub(crate) async fn run(context: Context, stop: CancellationToken) -> Result<(), OperatorError> {
    let mut changes = pin!(changes::all(&context.client, &context.config.namespace));
    let (tell, news) = unbounded_channel();
    let mut controller = Controller {
        known: Known::new(&context.config.namespace, &context.config.resource_prefix),
        work: Work::new("networks", AT_ONCE, Arc::clone(&context.metrics)),
        context,
        tell,
        news,
    };
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            change = changes.next() => controller.take(change.ok_or(OperatorError::WatchEnded)?),
            () = controller.work.progress() => {}
        }
        controller.start_work();
    }
    controller.work.finish().await;
    Ok(())
}

struct Controller {
    context: Context,
    known: Known,
    work: Work<NetworkId>,
    tell: UnboundedSender<News>,
    /// What was written. It counts at once: the watches may tell it a little later, and work would be done twice.
    news: UnboundedReceiver<News>,
}

impl Controller {
    fn take(&mut self, change: Change) {
        let touched = self.known.take(change);
        self.work.touch(touched);
    }

    fn start_work(&mut self) {
        while let Ok(news) = self.news.try_recv() {
            self.known.learn(news);
        }
        if self.work.is_idle() {
            self.known.at_rest();
        }
        if !self.known.is_complete() {
            return;
        }
        while let Some(id) = self.work.next_touched() {
            self.look_at(id);
        }
    }

    fn look_at(&mut self, id: NetworkId) {
        let Some(todo) = self.known.decide(&id) else { return self.work.nothing_to_do(&id) };
        let task = Task { context: self.context.clone(), tell: self.tell.clone(), todo };
        self.work.start(id, task.run());
    }
}
