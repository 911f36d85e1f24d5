//! Lifecycle of node states: create, update, keep or delete.

use vfleet_api::SriovNetworkNodeStateSpec;
use vfleet_api::meta::Timestamp;

use crate::prelude::*;

/// Action on the node state of one node.
#[derive(Debug, PartialEq)]
pub enum NodeStateAction {
    /// The node state is up to date, or nothing can be decided yet.
    None,
    /// Create the node state, so that the agent can report to it. It has no spec, because the desired state depends on
    /// the cards that the agent reports.
    Create,
    /// Correct the node state.
    Update(NodeStateUpdate),
    /// The node was deleted or runs no agent any more: record until when its node state is kept, in case it returns.
    KeepUntil {
        /// Time at which the node state is deleted.
        until: Timestamp,
        /// Resource version that was decided on.
        version: Option<String>,
    },
    /// The node state is kept until this time; check again then.
    CheckAgainAt(Timestamp),
    /// The node did not return in time.
    Delete {
        /// UID of the node state.
        uid: Option<String>,
        /// Resource version that was decided on.
        version: Option<String>,
    },
}

/// Corrections of a node state.
#[derive(Debug, Default, PartialEq)]
pub struct NodeStateUpdate {
    /// New spec, if it changes.
    pub spec: Option<SriovNetworkNodeStateSpec>,
    /// The operator config must become the only owner.
    pub set_owner: bool,
    /// The node is back: remove the time at which the node state would be deleted.
    pub remove_keep_until: bool,
    /// Resource version that was decided on.
    pub version: Option<String>,
    /// Generation of the spec that was decided on.
    pub generation: Option<i64>,
}

/// Stored node state, as far as the decision depends on it.
#[derive(Clone, Copy, Debug)]
pub struct NodeStateFacts<'a> {
    /// Current spec.
    pub spec: &'a SriovNetworkNodeStateSpec,
    /// UIDs of the owners.
    pub owners: &'a [String],
    /// Annotation with the time at which the node state is deleted.
    pub keep_until: Option<&'a str>,
    /// UID.
    pub uid: Option<&'a str>,
    /// Resource version.
    pub version: Option<&'a str>,
    /// Generation of the spec.
    pub generation: Option<i64>,
}

/// Decides about the node state of a node that runs an agent. `owner` is the UID of the operator config; `desired` is
/// `None` as long as no spec can be planned.
pub fn update_node_state(
    state: &NodeStateFacts<'_>,
    owner: Option<&str>,
    desired: Option<SriovNetworkNodeStateSpec>,
) -> NodeStateAction {
    let update = NodeStateUpdate {
        spec: desired.filter(|spec| spec != state.spec),
        set_owner: !state.owners.iter().map(String::as_str).eq(owner),
        remove_keep_until: state.keep_until.is_some(),
        version: state.version.map(str::to_owned),
        generation: state.generation,
    };
    if update.spec.is_none() && !update.set_owner && !update.remove_keep_until {
        return NodeStateAction::None;
    }
    NodeStateAction::Update(update)
}

/// Decides about the node state of a node that was deleted or runs no agent. The node state is kept until
/// `new_deadline` (`None`: not at all), so that a node that returns finds its configuration again.
pub fn retire_node_state(
    state: &NodeStateFacts<'_>,
    new_deadline: Option<Timestamp>,
    now: Timestamp,
) -> NodeStateAction {
    let version = state.version.map(str::to_owned);
    let delete = |version| NodeStateAction::Delete { uid: state.uid.map(str::to_owned), version };
    let deadline = state.keep_until.and_then(|text| text.parse::<Timestamp>().ok());
    match (deadline, new_deadline) {
        (_, None) => delete(version),
        (Some(deadline), _) if deadline <= now => delete(version),
        (Some(deadline), _) => NodeStateAction::CheckAgainAt(deadline),
        (None, Some(until)) => NodeStateAction::KeepUntil { until, version },
    }
}
