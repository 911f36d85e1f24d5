//! What of a node state calls for an attempt when it changes.

use kube::ResourceExt;
use vfleet_api::SriovNetworkNodeState;
use vfleet_api::conditions::BLOCKED;
use vfleet_api::meta::Condition;
use vfleet_plan::drain::{ExternalFacts, StateFacts};

/// What counts of a node state.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Seen {
    /// What is wanted.
    pub(super) wish: Wish,
    drain: StateFacts,
    external: ExternalFacts,
    /// Why it is blocked. The words may change all the time.
    blocked: Option<String>,
}

/// Which spec it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wish {
    uid: Option<String>,
    generation: Option<i64>,
}

impl Seen {
    pub(super) fn of(state: &SriovNetworkNodeState) -> Self {
        Self {
            wish: Wish::of(state),
            drain: StateFacts::of(state),
            external: ExternalFacts::of(state),
            blocked: blocked(state).map(|condition| condition.reason.clone()),
        }
    }

    /// Whether both are of one request, which is only further than it was.
    pub(super) fn differs_by_drain_only(&self, other: &Self) -> bool {
        self.drain.request == other.drain.request && *other == Self { drain: other.drain, ..self.clone() }
    }
}

impl Wish {
    pub(super) fn of(state: &SriovNetworkNodeState) -> Self {
        Self { uid: state.uid(), generation: state.metadata.generation }
    }
}

/// What the operator says that keeps the node's drain from going on.
pub(super) fn blocked(state: &SriovNetworkNodeState) -> Option<&Condition> {
    let mut conditions = state.status.as_ref()?.conditions.iter().flatten();
    conditions.find(|condition| condition.type_ == BLOCKED && condition.status == "True")
}

/// Whether `state` is from before `known`. Versions that cannot be compared are taken for new.
pub(super) fn is_older(state: &SriovNetworkNodeState, known: &SriovNetworkNodeState) -> bool {
    let version =
        |state: &SriovNetworkNodeState| state.metadata.resource_version.as_ref()?.parse::<u64>().ok();
    version(state).zip(version(known)).is_some_and(|(state, known)| state < known)
}
