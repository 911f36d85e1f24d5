//! What counts of a node state.

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

use vfleet_cluster::store::Counts;
use vfleet_plan::fingerprint;

/// What counts of a node state.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(super) spec: SriovNetworkNodeStateSpec,
    /// What policies look at of the node's cards.
    pub(super) cards: Option<Vec<InterfaceExt>>,
    /// Unique ids of its owners.
    pub(super) owners: Vec<String>,
    pub(super) keep_until: Option<String>,
    pub(super) sync: SyncStatus,
    pub(super) drain: Option<DrainStatus>,
    /// What keeps its drain from going on.
    pub(super) blocked: Option<String>,
    /// What is wrong on the node, or on some of its cards.
    pub(super) failures: Vec<NodeFailure>,
    /// A fingerprint of the node's VFs.
    pub(super) vfs: String,
    pub(super) uid: Option<String>,
    /// The version that we have seen: what is written on top of it must not overwrite what came later.
    pub(super) version: Option<String>,
    /// The version of its spec.
    pub(super) generation: Option<i64>,
}

/// How far the agent is with the spec as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SyncStatus {
    /// No agent has reported yet.
    Unknown,
    InProgress,
    Succeeded,
    Failed,
}

/// Something that the agent reports as wrong.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NodeFailure {
    /// The card; `None` for the whole node.
    pub(super) pf: Option<PciAddress>,
    pub(super) reason: String,
    pub(super) message: String,
}

impl Counts for State {
    /// Each change has another version.
    fn same(&self, other: &Self) -> bool {
        self.content() == other.content()
    }
}

impl State {
    fn content(&self) -> impl PartialEq + '_ {
        let said = (self.sync, self.drain, &self.blocked, &self.failures, &self.vfs);
        (&self.spec, &self.cards, &self.owners, &self.keep_until, said)
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

impl From<SriovNetworkNodeState> for State {
    fn from(state: SriovNetworkNodeState) -> Self {
        let (sync, failures) = verdict(&state);
        let owners = state.owner_references().iter().map(|owner| owner.uid.clone()).collect();
        let keep_until = state.annotations().get(KEEP_STATE_UNTIL).cloned();
        let (uid, version) = (state.uid(), state.resource_version());
        let generation = state.metadata.generation;
        let status = state.status.unwrap_or_default();
        let blocked = blocked(status.conditions.as_deref().unwrap_or_default());
        let vfs = fingerprint_of_vfs(status.interfaces.as_deref().unwrap_or_default());
        let cards = status.interfaces.map(|cards| cards.into_iter().map(for_policies).collect());
        let spec = without_empty_parts(state.spec);
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

/// The Go operator writes `bridges: {}` and `system: {}`, which say nothing.
pub(crate) fn without_empty_parts(spec: SriovNetworkNodeStateSpec) -> SriovNetworkNodeStateSpec {
    SriovNetworkNodeStateSpec {
        interfaces: spec.interfaces,
        bridges: spec.bridges.filter(|bridges| *bridges != Bridges::default()),
        system: spec.system.filter(|system| *system != System::default()),
    }
}

/// What policies do not look at is left out: there are thousands of nodes, and a link that goes up and down is no
/// reason to plan one of them again.
fn for_policies(card: InterfaceExt) -> InterfaceExt {
    InterfaceExt {
        mac: None,
        driver: None,
        link_speed: None,
        link_admin_state: None,
        numa_node: None,
        in_use_by: None,
        vfs: card.vfs.and_then(first_with_device),
        conditions: None,
        ..card
    }
}

/// VFs of one card are all of one kind: one of them says which.
fn first_with_device(vfs: Vec<VirtualFunction>) -> Option<Vec<VirtualFunction>> {
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

/// Which VFs there are, and who drives them.
fn fingerprint_of_vfs(cards: &[InterfaceExt]) -> String {
    let vfs = cards.iter().flat_map(|card| card.vfs.iter().flatten());
    fingerprint(vfs.flat_map(|vf| [vf.pci_address.text(), vf.driver.as_deref().unwrap_or_default()]))
}

/// How far the agent is, and what is wrong. What it says about an older spec says nothing about this one.
fn verdict(state: &SriovNetworkNodeState) -> (SyncStatus, Vec<NodeFailure>) {
    let Some(status) = &state.status else { return (SyncStatus::Unknown, Vec::new()) };
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let ready = find(conditions, READY);
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
    let failures = if sync == SyncStatus::Failed { failures(state) } else { Vec::new() };
    (sync, failures)
}

/// Whether our last change of the spec came after the last change of the status. The Go daemon's status does not say
/// which spec it is about, so the times of the writes have to.
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

/// Of the single cards; of the whole node when none of them is to blame.
fn failures(state: &SriovNetworkNodeState) -> Vec<NodeFailure> {
    let status = state.status.as_ref();
    let cards = status.and_then(|status| status.interfaces.as_deref()).unwrap_or_default();
    let of_cards: Vec<_> = cards.iter().filter_map(failure_of_card).collect();
    if !of_cards.is_empty() {
        return of_cards;
    }
    let degraded = find(status.and_then(|status| status.conditions.as_deref()).unwrap_or_default(), DEGRADED);
    let message = status.and_then(|status| status.last_sync_error.clone()).unwrap_or_default();
    let reason = degraded.map_or_else(|| FAILED.to_owned(), |degraded| degraded.reason.clone());
    vec![NodeFailure { pf: None, reason, message }]
}

fn failure_of_card(card: &InterfaceExt) -> Option<NodeFailure> {
    let ready = find(card.conditions.as_deref().unwrap_or_default(), READY)?;
    let pf = card.pci_address.value().ok().copied();
    let failure = || NodeFailure { pf, reason: ready.reason.clone(), message: ready.message.clone() };
    (ready.status == "False").then(failure)
}

fn blocked(conditions: &[Condition]) -> Option<String> {
    let blocked = find(conditions, BLOCKED).filter(|blocked| blocked.status == "True")?;
    Some(blocked.message.clone())
}

fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}
