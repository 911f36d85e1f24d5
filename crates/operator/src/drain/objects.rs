//! Stored parts of Nodes, node states and pools.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use vfleet_api::conditions::BLOCKED;
use vfleet_api::keys::{CURRENT_DRAIN_STATE, DESIRED_DRAIN_STATE, NODE_DRAIN_STATE};
use vfleet_api::meta::Condition;
use vfleet_api::pool_config::SriovNetworkPoolConfigSpec;
use vfleet_api::{SriovNetworkNodeState, SriovNetworkPoolConfig};
use vfleet_cluster::store::StoredObject;
use vfleet_plan::drain::{NodeFacts, Slot, StateFacts};

/// Stored part of a Node.
#[derive(Clone, Debug)]
pub(super) struct StoredNode {
    pub(super) labels: BTreeMap<String, String>,
    pub(super) facts: NodeFacts,
    /// Drain annotations of the Go operator.
    pub(super) go_annotations: BTreeMap<String, String>,
    pub(super) version: ResourceVersion,
}

/// Stored part of a node state.
#[derive(Clone, Debug)]
pub(super) struct StoredNodeState {
    pub(super) facts: StateFacts,
    /// Resources whose VFs the agent did not change.
    pub(super) kept_resources: Vec<String>,
    /// Drain annotations of the Go operator.
    pub(super) go_annotations: BTreeMap<String, String>,
    /// Time of the last write of the drain status by the API server's clock.
    pub(super) status_written_at: Option<Timestamp>,
    /// Error of the agent's last attempt.
    pub(super) last_error: Option<String>,
    /// Condition `Blocked`.
    pub(super) blocked: Option<Condition>,
    pub(super) uid: String,
    pub(super) version: ResourceVersion,
}

/// Stored part of a pool.
#[derive(Clone, Debug)]
pub(super) struct StoredPool {
    pub(super) spec: SriovNetworkPoolConfigSpec,
    pub(super) slots: Vec<Slot>,
    pub(super) version: ResourceVersion,
}

/// Resource version of an object, a number that grows with every write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ResourceVersion(String);

impl ResourceVersion {
    fn of(object: &impl ResourceExt) -> Self {
        Self(object.resource_version().unwrap_or_default())
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    fn number(&self) -> u64 {
        self.0.parse().unwrap_or_default()
    }
}

impl From<&str> for ResourceVersion {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl StoredNode {
    /// Reads a Node for the operator in `namespace`.
    pub(super) fn of(node: Node, namespace: &str) -> Self {
        let is_cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false);
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref());
        let is_ready = |condition: &k8s_openapi::api::core::v1::NodeCondition| {
            condition.type_ == "Ready" && condition.status == "True"
        };
        let is_ready = conditions.unwrap_or_default().iter().any(is_ready);
        Self {
            facts: NodeFacts::of(node.annotations(), namespace, is_cordoned, is_ready),
            go_annotations: go_annotations(node.annotations()),
            version: ResourceVersion::of(&node),
            labels: node.metadata.labels.unwrap_or_default(),
        }
    }
}

impl From<SriovNetworkNodeState> for StoredNodeState {
    fn from(state: SriovNetworkNodeState) -> Self {
        let (facts, version) = (StateFacts::of(&state), ResourceVersion::of(&state));
        let (uid, go_annotations) = (state.uid().unwrap_or_default(), go_annotations(state.annotations()));
        let status_written_at = written_at(&state);
        let status = state.status.unwrap_or_default();
        let last_error = status.last_sync_error.filter(|error| !error.is_empty());
        let blocked = status.conditions.into_iter().flatten().find(|condition| condition.type_ == BLOCKED);
        let kept_resources = status.kept_resources.unwrap_or_default();
        Self { facts, kept_resources, go_annotations, status_written_at, last_error, blocked, uid, version }
    }
}

/// Returns the time of the last write of the drain status: the owner of the field has written its current value.
fn written_at(state: &SriovNetworkNodeState) -> Option<Timestamp> {
    let owns = |fields: &serde_json::Value| fields.pointer("/f:status/f:drainStatus").is_some();
    let entries = state.managed_fields().iter();
    let owning = entries.filter(|entry| entry.fields_v1.as_ref().is_some_and(|fields| owns(&fields.0)));
    owning.filter_map(|entry| entry.time.as_ref()).map(|time| time.0).max()
}

fn go_annotations(annotations: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let found = [NODE_DRAIN_STATE, DESIRED_DRAIN_STATE, CURRENT_DRAIN_STATE].iter().filter_map(|key| {
        let value = annotations.get(*key)?;
        Some(((*key).to_owned(), value.clone()))
    });
    found.collect()
}

impl From<SriovNetworkPoolConfig> for StoredPool {
    fn from(pool: SriovNetworkPoolConfig) -> Self {
        Self { slots: Slot::of(pool.status.as_ref()), version: ResourceVersion::of(&pool), spec: pool.spec }
    }
}

impl StoredObject for StoredNode {
    fn is_equivalent(&self, other: &Self) -> bool {
        self.facts == other.facts
            && self.labels == other.labels
            && self.go_annotations == other.go_annotations
    }

    fn version(&self) -> u64 {
        self.version.number()
    }
}

impl StoredObject for StoredNodeState {
    fn is_equivalent(&self, other: &Self) -> bool {
        let content = |state: &Self| {
            (state.facts, state.blocked.clone(), state.uid.clone(), state.go_annotations.clone())
        };
        content(self) == content(other)
    }

    fn version(&self) -> u64 {
        self.version.number()
    }
}

impl StoredObject for StoredPool {
    fn is_equivalent(&self, other: &Self) -> bool {
        self.slots == other.slots && self.spec == other.spec
    }

    fn version(&self) -> u64 {
        self.version.number()
    }
}
