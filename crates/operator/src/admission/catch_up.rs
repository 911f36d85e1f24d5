//! Catch-up of the index with the API server before a request is refused.
//!
//! The index gets changes by watches, a little after their author got the response. So objects that can cause a refusal
//! are read from the API server, and the request waits until the index has them.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::index::{AdmissionIndex, StoredObjects};
use crate::replica::context::Context;

/// Time to catch up. The API server waits for a response for at least three seconds.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Number of parallel reads, so that a client that writes invalid objects does not load the API server.
const MAX_READS: usize = 4;

/// Number of busy nodes that are read: one busy node is enough to refuse a change.
const MAX_BUSY_NODES: usize = 8;

/// Waits until the index is up to date.
pub(super) struct IndexCatchUp {
    context: Context,
    index: Arc<AdmissionIndex>,
    reads: Semaphore,
}

impl IndexCatchUp {
    pub(super) fn new(context: Context, index: Arc<AdmissionIndex>) -> Self {
        Self { context, index, reads: Semaphore::new(MAX_READS) }
    }

    /// Waits until the index has everything that was stored before now. Returns false if that is not certain.
    pub(super) async fn wait_until_current(&self) -> bool {
        let caught_up = async { self.index.wait_for(&self.read().await?).await };
        let in_time = timeout(TIMEOUT, caught_up).await;
        if in_time.is_err() {
            tracing::warn!(
                "admission index is behind the API server: errors that depend on the cluster become warnings"
            );
        }
        in_time.ok().flatten().is_some()
    }

    async fn read(&self) -> Option<StoredObjects> {
        let _permit = self.reads.acquire().await.ok()?;
        let busy = self.index.read(|cluster| cluster.map(|cluster| cluster.busy_nodes(MAX_BUSY_NODES)));
        let stored = StoredObjects::read(&self.context, busy.unwrap_or_default()).await;
        stored
            .inspect_err(|error| {
                tracing::warn!(%error, "failed to read the cluster: errors that depend on it become warnings");
            })
            .ok()
    }
}
