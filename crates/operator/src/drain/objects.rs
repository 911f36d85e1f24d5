//! What is kept of the objects that draining is about.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use vfleet_api::conditions::BLOCKED;
use vfleet_api::keys::{CURRENT_DRAIN_STATE, DESIRED_DRAIN_STATE, NODE_DRAIN_STATE};
use vfleet_api::meta::Condition;
use vfleet_api::pool_config::SriovNetworkPoolConfigSpec;
use vfleet_api::{SriovNetworkNodeState, SriovNetworkPoolConfig};
use vfleet_cluster::store::Counts;
use vfleet_plan::drain::{NodeFacts, Slot, StateFacts};

/// What is kept of a Node.
#[derive(Clone, Debug)]
pub(super) struct SeenNode {
    pub(super) labels: BTreeMap<String, String>,
    pub(super) facts: NodeFacts,
    /// What the Go operator left, if anything.
    pub(super) leftovers: BTreeMap<String, String>,
    pub(super) version: Version,
}

/// What is kept of a node state.
#[derive(Clone, Debug)]
pub(super) struct SeenState {
    pub(super) facts: StateFacts,
    /// Resources whose VFs the agent did not touch.
    pub(super) kept_resources: Vec<String>,
    /// What the Go operator left, if anything.
    pub(super) leftovers: BTreeMap<String, String>,
    /// When its drain status was written, by the API server's clock.
    pub(super) status_written_at: Option<Timestamp>,
    /// Why the agent's last attempt failed.
    pub(super) last_error: Option<String>,
    /// What we say about its drain.
    pub(super) blocked: Option<Condition>,
    pub(super) uid: String,
    pub(super) version: Version,
}

/// What is kept of a pool.
#[derive(Clone, Debug)]
pub(super) struct SeenPool {
    pub(super) spec: SriovNetworkPoolConfigSpec,
    pub(super) slots: Vec<Slot>,
    pub(super) version: Version,
}

/// A version of an object, as the API server calls it: a number that grows with each write of anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Version(String);

impl Version {
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

impl From<&str> for Version {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl SeenNode {
    /// What counts for the operator in `namespace`.
    pub(super) fn of(node: Node, namespace: &str) -> Self {
        let is_cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false);
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref());
        let is_ready = |condition: &k8s_openapi::api::core::v1::NodeCondition| {
            condition.type_ == "Ready" && condition.status == "True"
        };
        let is_ready = conditions.unwrap_or_default().iter().any(is_ready);
        Self {
            facts: NodeFacts::of(node.annotations(), namespace, is_cordoned, is_ready),
            leftovers: leftovers(node.annotations()),
            version: Version::of(&node),
            labels: node.metadata.labels.unwrap_or_default(),
        }
    }
}

impl From<SriovNetworkNodeState> for SeenState {
    fn from(state: SriovNetworkNodeState) -> Self {
        let (facts, version) = (StateFacts::of(&state), Version::of(&state));
        let (uid, leftovers) = (state.uid().unwrap_or_default(), leftovers(state.annotations()));
        let status_written_at = written_at(&state);
        let status = state.status.unwrap_or_default();
        let last_error = status.last_sync_error.filter(|error| !error.is_empty());
        let blocked = status.conditions.into_iter().flatten().find(|condition| condition.type_ == BLOCKED);
        let kept_resources = status.kept_resources.unwrap_or_default();
        Self { facts, kept_resources, leftovers, status_written_at, last_error, blocked, uid, version }
    }
}

/// Who owns the field has written just this value, and nothing after it.
fn written_at(state: &SriovNetworkNodeState) -> Option<Timestamp> {
    let owns = |fields: &serde_json::Value| fields.pointer("/f:status/f:drainStatus").is_some();
    let entries = state.managed_fields().iter();
    let owning = entries.filter(|entry| entry.fields_v1.as_ref().is_some_and(|fields| owns(&fields.0)));
    owning.filter_map(|entry| entry.time.as_ref()).map(|time| time.0).max()
}

fn leftovers(annotations: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let found = [NODE_DRAIN_STATE, DESIRED_DRAIN_STATE, CURRENT_DRAIN_STATE].iter().filter_map(|key| {
        let value = annotations.get(*key)?;
        Some(((*key).to_owned(), value.clone()))
    });
    found.collect()
}

impl From<SriovNetworkPoolConfig> for SeenPool {
    fn from(pool: SriovNetworkPoolConfig) -> Self {
        Self { slots: Slot::of(pool.status.as_ref()), version: Version::of(&pool), spec: pool.spec }
    }
}

impl Counts for SeenNode {
    fn same(&self, other: &Self) -> bool {
        self.facts == other.facts && self.labels == other.labels && self.leftovers == other.leftovers
    }

    fn version(&self) -> u64 {
        self.version.number()
    }
}

impl Counts for SeenState {
    fn same(&self, other: &Self) -> bool {
        let content =
            |state: &Self| (state.facts, state.blocked.clone(), state.uid.clone(), state.leftovers.clone());
        content(self) == content(other)
    }

    fn version(&self) -> u64 {
        self.version.number()
    }
}

impl Counts for SeenPool {
    fn same(&self, other: &Self) -> bool {
        self.slots == other.slots && self.spec == other.spec
    }

    fn version(&self) -> u64 {
        self.version.number()
    }
}
