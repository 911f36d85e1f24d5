//! Digest of a node state: the parts whose change calls for an attempt.

use kube::ResourceExt;
use vfleet_api::SriovNetworkNodeState;
use vfleet_api::conditions::BLOCKED;
use vfleet_api::meta::Condition;
use vfleet_plan::drain::{ExternalFacts, StateFacts};

/// Parts of a node state whose change calls for an attempt.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NodeStateDigest {
    /// Version of the desired state.
    pub(super) spec: SpecVersion,
    drain: StateFacts,
    external: ExternalFacts,
    /// Reason of the condition `Blocked`. Its message may change all the time.
    blocked: Option<String>,
}

/// Version of the spec of a node state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SpecVersion {
    uid: Option<String>,
    generation: Option<i64>,
}

impl NodeStateDigest {
    pub(super) fn of(state: &SriovNetworkNodeState) -> Self {
        Self {
            spec: SpecVersion::of(state),
            drain: StateFacts::of(state),
            external: ExternalFacts::of(state),
            blocked: blocked_condition(state).map(|condition| condition.reason.clone()),
        }
    }

    /// Returns whether both belong to the same drain request, and differ only in how far that drain is.
    pub(super) fn differs_by_drain_only(&self, other: &Self) -> bool {
        self.drain.request == other.drain.request && *other == Self { drain: other.drain, ..self.clone() }
    }
}

impl SpecVersion {
    pub(super) fn of(state: &SriovNetworkNodeState) -> Self {
        Self { uid: state.uid(), generation: state.metadata.generation }
    }
}

/// Returns the operator's condition about a drain that does not progress.
pub(super) fn blocked_condition(state: &SriovNetworkNodeState) -> Option<&Condition> {
    let mut conditions = state.status.as_ref()?.conditions.iter().flatten();
    conditions.find(|condition| condition.type_ == BLOCKED && condition.status == "True")
}
