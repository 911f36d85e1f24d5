//! What every controller needs: the client, the settings of the program, and the right to write.

use std::sync::Arc;

use kube::Client;

use crate::Config;
use crate::announce::Announcer;
use crate::health::Health;
use crate::leadership::Leadership;
use crate::metrics::Metrics;

/// Shared by all controllers of one process.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) config: Arc<Config>,
    /// Whether this process may write now.
    pub(crate) leadership: Leadership,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) health: Arc<Health>,
    /// Writes Events.
    pub(crate) announcer: Announcer,
}
