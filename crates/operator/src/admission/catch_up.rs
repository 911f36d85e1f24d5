//! Whether what we know of the cluster includes all that was written before a moment.
//!
//! The index learns of changes by watches, a little later than whoever made them was told that they are made. What counts
//! for refusals is read from the API server itself, and the index waited for until it knows of that, too.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::index::{Index, Written};
use crate::replica::context::Context;

/// The API server waits for an answer for three seconds at least, and somebody waits for the API server.
const DEADLINE: Duration = Duration::from_secs(1);

/// Somebody who writes bad objects all the time must not keep the API server busy.
const READS_AT_ONCE: usize = 4;

/// Nodes that are being configured and are looked at one by one: one of them is reason enough to refuse.
const MOST_BUSY: usize = 8;

/// Makes sure that the index is not behind.
pub(super) struct CatchUp {
    context: Context,
    index: Arc<Index>,
    reads: Semaphore,
}

impl CatchUp {
    pub(super) fn new(context: Context, index: Arc<Index>) -> Self {
        Self { context, index, reads: Semaphore::new(READS_AT_ONCE) }
    }

    /// Waits until the index knows of all that was written before now. `false`: nobody can say whether it does.
    pub(super) async fn all_written_before(&self) -> bool {
        let caught_up = async { self.index.wait_for(&self.read().await?).await };
        let in_time = timeout(DEADLINE, caught_up).await;
        if in_time.is_err() {
            tracing::warn!("what admission knows of the cluster is behind; nothing is refused for it");
        }
        in_time.ok().flatten().is_some()
    }

    async fn read(&self) -> Option<Written> {
        let _permit = self.reads.acquire().await.ok()?;
        let busy = self.index.ask(|cluster| cluster.map(|cluster| cluster.busy(MOST_BUSY)));
        let written = Written::read(&self.context, busy.unwrap_or_default()).await;
        written
            .inspect_err(|error| {
                tracing::warn!(%error, "the cluster could not be read; nothing is refused for what it is like");
            })
            .ok()
    }
}
