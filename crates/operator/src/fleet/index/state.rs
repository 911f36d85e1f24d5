//! Node states as stored in the fleet index.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use vfleet_api::bridge::Bridges;
use vfleet_api::conditions::{BLOCKED, DEGRADED, READY};
use vfleet_api::keys::{KEEP_STATE_UNTIL, OPERATOR_FIELD_MANAGER};
use vfleet_api::meta::Condition;
use vfleet_api::node_state::{
    DrainStatus, FAILED, IN_PROGRESS, InterfaceExt, SUCCEEDED, System, VirtualFunction,
};
use vfleet_api::{PciAddress, SriovNetworkNodeState, SriovNetworkNodeStateSpec};

use vfleet_cluster::store::StoredObject;
use vfleet_plan::{NodeStateFacts, fingerprint};

/// Node state, reduced to the values that decisions depend on.
#[derive(Clone, Debug)]
pub(crate) struct FleetNodeState {
    pub(super) spec: SriovNetworkNodeStateSpec,
    /// Cards of the node, with the fields that policies depend on.
    pub(super) cards: Option<Vec<InterfaceExt>>,
    /// UIDs of the owners.
    pub(super) owners: Vec<String>,
    pub(super) keep_until: Option<String>,
    pub(super) sync: SyncStatus,
    pub(super) drain: Option<DrainStatus>,
    /// Message of the condition `Blocked`, if the drain is blocked.
    pub(super) blocked: Option<String>,
    /// Failures of the node and of its cards.
    pub(super) failures: Vec<NodeFailure>,
    /// Fingerprint of the VFs of the node.
    pub(super) vfs: String,
    pub(super) uid: Option<String>,
    /// Resource version. Writes that depend on this state must not overwrite a later one.
    pub(super) version: Option<String>,
    /// Generation of the spec.
    pub(super) generation: Option<i64>,
}

/// Progress of the agent with the current spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SyncStatus {
    /// No agent has reported yet.
    Unknown,
    InProgress,
    Succeeded,
    Failed,
}

/// Failure that the agent reports.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NodeFailure {
    /// PF that failed; `None` for the whole node.
    pub(super) pf: Option<PciAddress>,
    pub(super) reason: String,
    pub(super) message: String,
}

impl StoredObject for FleetNodeState {
    /// Compares everything but the versions, which differ after each write.
    fn is_equivalent(&self, other: &Self) -> bool {
        self.content() == other.content()
    }
}

impl FleetNodeState {
    /// Returns the values that the lifecycle of the node state depends on.
    pub(super) fn facts(&self) -> NodeStateFacts<'_> {
        NodeStateFacts {
            spec: &self.spec,
            owners: &self.owners,
            keep_until: self.keep_until.as_deref(),
            uid: self.uid.as_deref(),
            version: self.version.as_deref(),
            generation: self.generation,
        }
    }

    fn content(&self) -> impl PartialEq + '_ {
        let status = (self.sync, self.drain, &self.blocked, &self.failures, &self.vfs);
        (&self.spec, &self.cards, &self.owners, &self.keep_until, status)
    }
}

impl SyncStatus {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "Unknown",
            Self::InProgress => IN_PROGRESS,
            Self::Succeeded => SUCCEEDED,
            Self::Failed => FAILED,
        }
    }
}

impl From<SriovNetworkNodeState> for FleetNodeState {
    fn from(state: SriovNetworkNodeState) -> Self {
        let (sync, failures) = read_progress(&state);
        let owners = state.owner_references().iter().map(|owner| owner.uid.clone()).collect();
        let keep_until = state.annotations().get(KEEP_STATE_UNTIL).cloned();
        let (uid, version) = (state.uid(), state.resource_version());
        let generation = state.metadata.generation;
        let status = state.status.unwrap_or_default();
        let blocked = find_blocked_message(status.conditions.as_deref().unwrap_or_default());
        let vfs = fingerprint_vfs(status.interfaces.as_deref().unwrap_or_default());
        let cards = status.interfaces.map(|cards| cards.into_iter().map(keep_policy_fields).collect());
        let spec = remove_empty_sections(state.spec);
        Self {
            spec,
            cards,
            owners,
            keep_until,
            sync,
            drain: status.drain_status,
            blocked,
            failures,
            vfs,
            uid,
            version,
            generation,
        }
    }
}

/// Removes empty sections. The Go operator writes `bridges: {}` and `system: {}`, which mean the same as no section.
pub(crate) fn remove_empty_sections(spec: SriovNetworkNodeStateSpec) -> SriovNetworkNodeStateSpec {
    SriovNetworkNodeStateSpec {
        interfaces: spec.interfaces,
        bridges: spec.bridges.filter(|bridges| *bridges != Bridges::default()),
        system: spec.system.filter(|system| *system != System::default()),
    }
}

/// Removes the fields that policies do not depend on, so that a node is not planned again when, for example, a link
/// goes down. It also saves memory with thousands of nodes.
fn keep_policy_fields(card: InterfaceExt) -> InterfaceExt {
    InterfaceExt {
        mac: None,
        driver: None,
        link_speed: None,
        link_admin_state: None,
        numa_node: None,
        in_use_by: None,
        vfs: card.vfs.and_then(keep_one_vf),
        conditions: None,
        ..card
    }
}

/// Keeps one VF with its device ID, because all VFs of a card have the same.
fn keep_one_vf(vfs: Vec<VirtualFunction>) -> Option<Vec<VirtualFunction>> {
    let vf = vfs.into_iter().find(|vf| vf.device_id.is_some())?;
    Some(vec![VirtualFunction {
        name: None,
        mac: None,
        driver: None,
        mtu: None,
        vdpa_type: None,
        representor_name: None,
        guid: None,
        in_use_by: None,
        ..vf
    }])
}

/// Returns a fingerprint of the VFs and their drivers.
fn fingerprint_vfs(cards: &[InterfaceExt]) -> String {
    let vfs = cards.iter().flat_map(|card| card.vfs.iter().flatten());
    fingerprint(vfs.flat_map(|vf| [vf.pci_address.text(), vf.driver.as_deref().unwrap_or_default()]))
}

/// Returns the progress of the agent and its failures. A report about an older spec counts as in progress.
fn read_progress(state: &SriovNetworkNodeState) -> (SyncStatus, Vec<NodeFailure>) {
    let Some(status) = &state.status else { return (SyncStatus::Unknown, Vec::new()) };
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let ready = find_condition(conditions, READY);
    let is_current = match ready {
        Some(ready) => ready.observed_generation == state.metadata.generation,
        None => !spec_is_newer_than_status(state),
    };
    let sync = match status.sync_status.as_deref() {
        _ if !is_current => SyncStatus::InProgress,
        Some(SUCCEEDED) => SyncStatus::Succeeded,
        Some(FAILED) => SyncStatus::Failed,
        Some(IN_PROGRESS) => SyncStatus::InProgress,
        _ => SyncStatus::Unknown,
    };
    let failures = if sync == SyncStatus::Failed { collect_failures(state) } else { Vec::new() };
    (sync, failures)
}

/// Returns whether the operator changed the spec after the last change of the status. The status of the Go daemon has
/// no generation, so that the times of the writes are compared.
fn spec_is_newer_than_status(state: &SriovNetworkNodeState) -> bool {
    let entries = || state.managed_fields().iter();
    let last = |times: Vec<Option<&Time>>| times.into_iter().flatten().map(|time| time.0).max();
    let status = entries().filter(|entry| entry.subresource.as_deref() == Some("status"));
    let spec = entries().filter(|entry| {
        entry.subresource.is_none() && entry.manager.as_deref() == Some(OPERATOR_FIELD_MANAGER)
    });
    let (status, spec) = (status.map(|entry| entry.time.as_ref()), spec.map(|entry| entry.time.as_ref()));
    matches!((last(spec.collect()), last(status.collect())), (Some(spec), Some(status)) if spec > status)
}

/// Returns the failures of cards, or of the whole node if no card has failed.
fn collect_failures(state: &SriovNetworkNodeState) -> Vec<NodeFailure> {
    let status = state.status.as_ref();
    let cards = status.and_then(|status| status.interfaces.as_deref()).unwrap_or_default();
    let card_failures: Vec<_> = cards.iter().filter_map(find_card_failure).collect();
    if !card_failures.is_empty() {
        return card_failures;
    }
    let degraded =
        find_condition(status.and_then(|status| status.conditions.as_deref()).unwrap_or_default(), DEGRADED);
    let message = status.and_then(|status| status.last_sync_error.clone()).unwrap_or_default();
    let reason = degraded.map_or_else(|| FAILED.to_owned(), |degraded| degraded.reason.clone());
    vec![NodeFailure { pf: None, reason, message }]
}

fn find_card_failure(card: &InterfaceExt) -> Option<NodeFailure> {
    let ready = find_condition(card.conditions.as_deref().unwrap_or_default(), READY)?;
    let pf = card.pci_address.value().ok().copied();
    let failure = || NodeFailure { pf, reason: ready.reason.clone(), message: ready.message.clone() };
    (ready.status == "False").then(failure)
}

fn find_blocked_message(conditions: &[Condition]) -> Option<String> {
    let blocked = find_condition(conditions, BLOCKED).filter(|blocked| blocked.status == "True")?;
    Some(blocked.message.clone())
}

fn find_condition<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}
