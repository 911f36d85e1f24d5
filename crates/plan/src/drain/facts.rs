//! Drain facts, read from API objects.

use vfleet_api::keys::{
    AGENT_FIELD_MANAGER, CORDON, DRAIN_REQUEST, LAST_DRAIN, OPERATOR_FIELD_MANAGER, USE_EXTERNAL_DRAINER,
};
use vfleet_api::node_state::{DrainScope, DrainStatus};
use vfleet_api::pool_config::SriovNetworkPoolConfigStatus;
use vfleet_api::{NodeStateView, SriovNetworkNodeStateStatus};

use super::{CordonMark, CordonOrigin, Moment, NodeFacts, RetryState, Slot, StateFacts, StatusWriter};
use crate::prelude::*;

impl StateFacts {
    /// Reads the facts of a node state.
    pub fn of<'a>(state: impl Into<NodeStateView<'a>>) -> Self {
        let state = state.into();
        let external = state.annotations.and_then(|all| all.get(USE_EXTERNAL_DRAINER));
        let facts = state.status.map(Self::of_status).unwrap_or_default();
        Self {
            writer: find_writer(&state),
            requested_at: find_request_time(&state),
            is_external: external.is_some_and(|value| value == "true"),
            ..facts
        }
    }

    fn of_status(status: &SriovNetworkNodeStateStatus) -> Self {
        Self {
            status: status.drain_status.unwrap_or(DrainStatus::Idle),
            scope: status.drain_scope.unwrap_or(DrainScope::Partial),
            request: status.drain_requested_at.as_ref().map(Moment::from),
            draining_since: status.draining_since.as_ref().map(Moment::from),
            completed_at: status.drain_completed_at.as_ref().map(Moment::from),
            retry: status.drain_retry.as_ref().map(|retry| RetryState {
                times: u32::try_from(retry.times).unwrap_or(u32::MAX),
                not_before: Moment::from(&retry.not_before),
            }),
            ..Self::default()
        }
    }
}

/// Returns the writer of the drain status: the owner of the field has written its current value.
fn find_writer(state: &NodeStateView<'_>) -> StatusWriter {
    let is_owned_by =
        |name: &str| field_owners(state, "/f:status/f:drainStatus").any(|(manager, _)| manager == Some(name));
    if is_owned_by(OPERATOR_FIELD_MANAGER) {
        StatusWriter::Operator
    } else if is_owned_by(AGENT_FIELD_MANAGER) {
        StatusWriter::Agent
    } else {
        StatusWriter::Other
    }
}

/// Returns the time of the request by the API server's clock, which is the same for all nodes.
fn find_request_time(state: &NodeStateView<'_>) -> Option<Moment> {
    field_owners(state, "/f:status/f:drainRequestedAt").filter_map(|(_, time)| time).max()
}

/// Returns the managers that own a field, each with the time of its last write.
fn field_owners<'a>(
    state: &'a NodeStateView<'_>,
    field: &'a str,
) -> impl Iterator<Item = (Option<&'a str>, Option<Moment>)> {
    let owns = move |fields: &serde_json::Value| fields.pointer(field).is_some();
    let entries = state.owners.iter().filter(move |entry| entry.fields.is_some_and(owns));
    entries.map(|entry| (entry.manager, entry.time.map(Moment::from)))
}

impl NodeFacts {
    /// Reads the facts of a Node with these annotations for the operator in `namespace`.
    pub fn of(
        annotations: &BTreeMap<String, String>,
        namespace: &str,
        is_cordoned: bool,
        is_ready: bool,
    ) -> Self {
        let last_request = annotations.get(LAST_DRAIN).and_then(|text| Moment::parse(text));
        let mark = CordonMark::of(annotations, namespace);
        let is_marked_by_other_installation = mark.is_none() && annotations.contains_key(CORDON);
        Self { is_cordoned, mark, last_request, is_ready, is_marked_by_other_installation }
    }
}

impl CordonMark {
    /// Reads the mark of the operator in `namespace`. The mark of another installation is ignored.
    fn of(annotations: &BTreeMap<String, String>, namespace: &str) -> Option<Self> {
        let cordon = annotations.get(CORDON)?;
        let request = annotations.get(DRAIN_REQUEST).map(String::as_str).unwrap_or_default();
        let (time, owner) = request.split_once(' ').unwrap_or((request, namespace));
        (owner == namespace).then(|| Self {
            // An unknown value was not written by the operator: the cordon stays.
            cordon: if cordon == CordonOrigin::Ours.text() {
                CordonOrigin::Ours
            } else {
                CordonOrigin::Preexisting
            },
            request: Moment::parse(time).unwrap_or_default(),
        })
    }

    /// Returns the value of annotation [`DRAIN_REQUEST`] for the operator in `namespace`.
    pub fn request_text(self, namespace: &str) -> String {
        format!("{} {namespace}", self.request.text())
    }
}

impl CordonOrigin {
    /// Returns the value of the annotation.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Preexisting => "found",
        }
    }
}

impl Slot {
    /// Reads the slots from a pool's status, sorted by node.
    pub fn of(status: Option<&SriovNetworkPoolConfigStatus>) -> Vec<Self> {
        let listed = status.and_then(|status| status.slots.as_deref()).unwrap_or_default();
        let slot = |slot: &vfleet_api::pool_config::DrainSlot| Self {
            node: slot.node.clone(),
            request: Moment::from(&slot.requested_at),
        };
        let mut slots: Vec<_> = listed.iter().map(slot).collect();
        slots.sort_unstable();
        slots
    }
}
