//! The pods of nodes that are being drained: they are evicted, and waited for until they are gone.

use tokio::sync::mpsc;
use vfleet_api::node_state::DrainScope;
use vfleet_plan::drain::{Moment, PodsSeen};

use crate::context::Context;
use crate::patch::WriteError;

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
    /// In one word: `EvictionRefused`, `PodsDoNotEnd`, ...
    pub(crate) reason: &'static str,
    /// Names pods and budgets, and says what to do.
    pub(crate) message: String,
}

pub(crate) struct Evictions;
impl Evictions {
    pub(crate) fn new(_: &Context) -> (Self, mpsc::UnboundedReceiver<Sighting>) {
        (Self, mpsc::unbounded_channel().1)
    }
    pub(crate) fn drain(&mut self, _: &str, _: Moment, _: DrainScope) {}
    pub(crate) fn stop(&mut self, _: &str) {}
    pub(crate) fn restart_daemon_pods(
        &self,
        _: &str,
        _: Vec<String>,
    ) -> impl Future<Output = Result<Vec<String>, WriteError>> + Send + 'static + use<> {
        async { Ok(Vec::new()) }
    }
}
