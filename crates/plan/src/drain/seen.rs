//! What counts of the objects, read from them.

use vfleet_api::keys::{
    AGENT_FIELD_MANAGER, CORDON, DRAIN_REQUEST, LAST_DRAIN, OPERATOR_FIELD_MANAGER, USE_EXTERNAL_DRAINER,
};
use vfleet_api::node_state::{DrainScope, DrainStatus};
use vfleet_api::pool_config::SriovNetworkPoolConfigStatus;
use vfleet_api::{NodeStateView, SriovNetworkNodeStateStatus};

use super::{Cordon, Mark, Moment, NodeFacts, Retry, Slot, StateFacts, Writer};
use crate::prelude::*;

impl StateFacts {
    /// What counts of a node state.
    pub fn of<'a>(state: impl Into<NodeStateView<'a>>) -> Self {
        let state = state.into();
        let external = state.annotations.and_then(|all| all.get(USE_EXTERNAL_DRAINER));
        let facts = state.status.map(Self::of_status).unwrap_or_default();
        Self {
            writer: writer(&state),
            asked_at: asked_at(&state),
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
            retry: status.drain_retry.as_ref().map(|retry| Retry {
                times: u32::try_from(retry.times).unwrap_or(u32::MAX),
                not_before: Moment::from(&retry.not_before),
            }),
            ..Self::default()
        }
    }
}

/// Who owns the field has written just this value.
fn writer(state: &NodeStateView<'_>) -> Writer {
    let is_owned_by =
        |name: &str| owners(state, "/f:status/f:drainStatus").any(|(manager, _)| manager == Some(name));
    if is_owned_by(OPERATOR_FIELD_MANAGER) {
        Writer::Operator
    } else if is_owned_by(AGENT_FIELD_MANAGER) {
        Writer::Agent
    } else {
        Writer::Other
    }
}

/// When the request was written, by a clock that is the same for all nodes.
fn asked_at(state: &NodeStateView<'_>) -> Option<Moment> {
    owners(state, "/f:status/f:drainRequestedAt").filter_map(|(_, time)| time).max()
}

/// Who owns a field, and when each of them last wrote something.
fn owners<'a>(
    state: &'a NodeStateView<'_>,
    field: &'a str,
) -> impl Iterator<Item = (Option<&'a str>, Option<Moment>)> {
    let owning = move |fields: &serde_json::Value| fields.pointer(field).is_some();
    let entries = state.owners.iter().filter(move |entry| entry.fields.is_some_and(owning));
    entries.map(|entry| (entry.manager, entry.time.map(Moment::from)))
}

impl NodeFacts {
    /// What counts of a node with these annotations for the operator in `namespace`.
    pub fn of(
        annotations: &BTreeMap<String, String>,
        namespace: &str,
        is_cordoned: bool,
        is_ready: bool,
    ) -> Self {
        let last_request = annotations.get(LAST_DRAIN).and_then(|text| Moment::parse(text));
        let mark = Mark::of(annotations, namespace);
        let is_anothers = mark.is_none() && annotations.contains_key(CORDON);
        Self { is_cordoned, mark, last_request, is_ready, is_anothers }
    }
}

impl Mark {
    /// The mark of the operator in `namespace`. Another installation's is that one's alone: to us its cordon is somebody
    /// else's.
    fn of(annotations: &BTreeMap<String, String>, namespace: &str) -> Option<Self> {
        let cordon = annotations.get(CORDON)?;
        let request = annotations.get(DRAIN_REQUEST).map(String::as_str).unwrap_or_default();
        let (time, whose) = request.split_once(' ').unwrap_or((request, namespace));
        (whose == namespace).then(|| Self {
            // What cannot be read was not written by us: the cordon stays.
            cordon: if cordon == Cordon::Ours.text() { Cordon::Ours } else { Cordon::Found },
            request: Moment::parse(time).unwrap_or_default(),
        })
    }

    /// What [`DRAIN_REQUEST`] says for the operator in `namespace`.
    pub fn request_text(self, namespace: &str) -> String {
        format!("{} {namespace}", self.request.text())
    }
}

impl Cordon {
    /// As the annotation says it.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Found => "found",
        }
    }
}

impl Slot {
    /// The slots that a pool's status lists, by node.
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
