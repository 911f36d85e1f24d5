//! Index of the cluster for admission rules. Nodes are grouped when they change, so that requests are answered quickly
//! in a large cluster.

mod cards;
mod facts;
mod feed;
pub(super) mod fuzzing;
mod interned;
mod nads;
mod nodes;
mod stored;
#[cfg(test)]
mod tests;

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::ResourceExt;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::Event;
use tokio::sync::watch;
use vfleet_api::keys::IGNORED_POLICY;
use vfleet_api::node_state::{IN_PROGRESS, SriovNetworkNodeStateStatus};
use vfleet_api::operator_config::SriovOperatorConfigSpec;
use vfleet_api::{SriovNetworkNodePolicy, SriovNetworkNodeState, SriovNetworkPoolConfig};
use vfleet_cluster::guarded::Guarded;
use vfleet_cluster::store::{ObjectChange, ObjectStore, StoredObject};
use vfleet_plan::{NamedPolicy, NamedPool, NicIds, pool, runs_agent, selects_node};

use self::cards::Cards;
use self::interned::Interned;
use self::nads::NadIndex;
use self::nodes::{Labels, NameSet, Node, NodePosition, Nodes};
use crate::components::config_watch::OperatorConfigState;

pub(crate) use self::feed::{Readiness, follow};
pub(crate) use self::nads::nad_facts;
pub(crate) use self::stored::StoredObjects;

/// Index for admission. Watches write it, and requests only read it.
#[derive(Debug, Default)]
pub(crate) struct AdmissionIndex {
    cluster: RwLock<ClusterIndex>,
    nads: RwLock<NadIndex>,
    changed: watch::Sender<()>,
}

/// Write access to the cluster index. Waiting requests are notified when it is dropped.
pub(crate) struct ClusterWriteGuard<'a> {
    cluster: RwLockWriteGuard<'a, ClusterIndex>,
    changed: &'a watch::Sender<()>,
}

impl Deref for ClusterWriteGuard<'_> {
    type Target = ClusterIndex;

    fn deref(&self) -> &ClusterIndex {
        &self.cluster
    }
}

impl DerefMut for ClusterWriteGuard<'_> {
    fn deref_mut(&mut self) -> &mut ClusterIndex {
        &mut self.cluster
    }
}

impl Drop for ClusterWriteGuard<'_> {
    fn drop(&mut self) {
        self.changed.send_replace(());
    }
}

impl AdmissionIndex {
    /// Calls `read` with the index of the cluster, or with `None` until all objects have been listed.
    pub(crate) fn read<T>(&self, read: impl FnOnce(Option<&ClusterIndex>) -> T) -> T {
        let cluster = self.cluster();
        read(cluster.is_complete().then_some(&*cluster))
    }

    /// Returns a receiver that is notified of each change of the cluster.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Returns the index of NADs.
    pub(crate) fn nads(&self) -> RwLockReadGuard<'_, NadIndex> {
        self.nads.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the state of a cluster without the CRD NetworkAttachmentDefinition.
    #[cfg(test)]
    pub(crate) fn set_nad_crd_missing(&self) {
        self.nads_mut().set_crd_missing();
    }

    fn cluster(&self) -> RwLockReadGuard<'_, ClusterIndex> {
        self.cluster.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn cluster_mut(&self) -> ClusterWriteGuard<'_> {
        let cluster = self.cluster.write().unwrap_or_else(PoisonError::into_inner);
        ClusterWriteGuard { cluster, changed: &self.changed }
    }

    fn nads_mut(&self) -> RwLockWriteGuard<'_, NadIndex> {
        self.nads.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Objects of the cluster, except NADs.
#[derive(Debug, Default)]
pub(crate) struct ClusterIndex {
    /// `None` until it was read.
    config: Option<SriovOperatorConfigSpec>,
    /// `None` until they were read.
    nic_ids: Option<NicIds>,
    policies: ObjectStore<SriovNetworkNodePolicy>,
    /// Resource version of the last change of a policy.
    policies_version: u64,
    pools: ObjectStore<SriovNetworkPoolConfig>,
    states: ObjectStore<NodeStateFacts>,
    labels: ObjectStore<SharedLabels>,
    nodes: Nodes,
    kinds: Interned<Cards>,
    names: Interned<NameSet>,
}

/// Facts of a node state that rules use.
#[derive(Debug, PartialEq)]
struct NodeStateFacts {
    cards: Option<Arc<Cards>>,
    is_in_progress: bool,
    has_vfs: bool,
}

/// Labels of a node.
#[derive(Debug, PartialEq)]
struct SharedLabels(Arc<Labels>);

impl StoredObject for NodeStateFacts {
    fn is_equivalent(&self, other: &Self) -> bool {
        self == other
    }
}

impl StoredObject for SharedLabels {
    fn is_equivalent(&self, other: &Self) -> bool {
        self == other
    }
}

impl ClusterIndex {
    fn is_complete(&self) -> bool {
        self.config.is_some()
            && self.nic_ids.is_some()
            && self.policies.is_listed()
            && self.pools.is_listed()
            && self.states.is_listed()
            && self.labels.is_listed()
    }

    /// Updates the operator config.
    fn update_config(&mut self, config: &OperatorConfigState) {
        let new = match config {
            OperatorConfigState::Unknown => return,
            OperatorConfigState::Missing => SriovOperatorConfigSpec::default(),
            OperatorConfigState::Config(config) => config.spec.clone(),
        };
        let selector = agent_selector(&new);
        for node in self.nodes.iter_mut() {
            node.runs_agent = runs_agent(&selector, &node.labels);
        }
        self.config = Some(new);
    }

    /// Updates the PCI IDs of supported cards.
    fn update_nic_ids(&mut self, nic_ids: Option<NicIds>) {
        self.nic_ids = nic_ids.or(self.nic_ids.take());
    }

    /// Applies a watch event of a policy.
    fn update_policy(&mut self, event: Event<Guarded<SriovNetworkNodePolicy>>) {
        // Not for events of a list: deleted policies are known only at its end.
        if let Event::Apply(policy) | Event::Delete(policy) = &event
            && let Some(version) = policy.resource_version().as_deref().and_then(stored::parse_version)
        {
            self.policies_version = version;
        }
        for ObjectChange { name, old, .. } in self.policies.update(event, |policy| policy) {
            if name == IGNORED_POLICY {
                continue;
            }
            let new = self.policies.get(&name).map(|policy| &policy.spec.node_selector);
            let old = old.map(|policy| policy.spec.node_selector);
            if new == old.as_ref() {
                continue;
            }
            let left = old.map(|selector| self.nodes.positions_with(&selector)).unwrap_or_default();
            let entered = new.map(|selector| self.nodes.positions_with(selector)).unwrap_or_default();
            self.set_selected(&left, &entered, |node| &mut node.policies, &name);
        }
    }

    /// Applies a watch event of a pool.
    fn update_pool(&mut self, event: Event<Guarded<SriovNetworkPoolConfig>>) {
        for ObjectChange { name, .. } in self.pools.update(event, |pool| pool) {
            let left = self.nodes.positions_where(|node| node.pools.contains(&name));
            let entered = match self.pools.get(&name) {
                Some(pool) => {
                    let pool = NamedPool { name: &name, spec: &pool.spec };
                    self.nodes.positions_where(|node| contains_node(&pool, node))
                }
                None => Vec::new(),
            };
            self.set_selected(&left, &entered, |node| &mut node.pools, &name);
        }
    }

    fn set_selected(
        &mut self,
        left: &[NodePosition],
        entered: &[NodePosition],
        of: fn(&mut Node) -> &mut Arc<NameSet>,
        name: &str,
    ) {
        self.nodes.set_selected(left, of, name, false, &mut self.names);
        self.nodes.set_selected(entered, of, name, true, &mut self.names);
    }

    /// Applies a watch event of a node state.
    fn update_state(&mut self, event: Event<Guarded<SriovNetworkNodeState>>) {
        let kinds = &mut self.kinds;
        for ObjectChange { name, .. } in self.states.update(event, |state| node_state_facts(state, kinds)) {
            let cards = self.states.get(&name).and_then(|state| state.cards.clone());
            if let Some(node) = self.nodes.get_mut(&name) {
                node.cards = cards;
            }
        }
    }

    /// Applies a watch event of a node.
    fn update_node(&mut self, event: Event<PartialObjectMeta<NodeObject>>) {
        let read = |node: PartialObjectMeta<NodeObject>| {
            Ok(SharedLabels(Arc::new(node.metadata.labels.unwrap_or_default())))
        };
        for ObjectChange { name, .. } in self.labels.update_with(event, read) {
            match self.labels.get(&name).map(|SharedLabels(labels)| Arc::clone(labels)) {
                Some(labels) => {
                    let node = self.build_node(name, labels);
                    self.nodes.insert(node);
                }
                None => self.nodes.remove(&name),
            }
        }
    }

    /// Builds the entry of a node with these labels.
    fn build_node(&mut self, name: String, labels: Arc<Labels>) -> Node {
        let policies = self
            .policies
            .iter()
            .filter(|(name, policy)| selects_node(&NamedPolicy { name, spec: &policy.spec }, &labels))
            .map(|(name, _)| name.clone())
            .collect();
        let selector = self.config.as_ref().map(agent_selector).unwrap_or_default();
        let mut node = Node {
            runs_agent: runs_agent(&selector, &labels),
            cards: self.states.get(&name).and_then(|state| state.cards.clone()),
            policies: self.names.intern(policies),
            pools: Arc::default(),
            name,
            labels,
        };
        let pools = self
            .pools
            .iter()
            .filter(|(name, pool)| contains_node(&NamedPool { name, spec: &pool.spec }, &node));
        let pools = pools.map(|(name, _)| name.clone()).collect();
        node.pools = self.names.intern(pools);
        node
    }
}

/// Returns the labels of nodes that run an agent; empty means the default.
fn agent_selector(config: &SriovOperatorConfigSpec) -> Labels {
    config.config_daemon_node_selector.clone().unwrap_or_default()
}

fn contains_node(pool: &NamedPool<'_>, node: &Node) -> bool {
    pool::selects(pool, node.identity()) == Ok(true)
}

fn is_in_progress(status: &SriovNetworkNodeStateStatus) -> bool {
    status.sync_status.as_deref() == Some(IN_PROGRESS)
}

fn node_state_facts(state: SriovNetworkNodeState, kinds: &mut Interned<Cards>) -> NodeStateFacts {
    let desired = state.spec.interfaces.into_iter().flatten();
    let status = state.status.unwrap_or_default();
    NodeStateFacts {
        is_in_progress: is_in_progress(&status),
        cards: status.interfaces.map(|cards| kinds.intern(Cards::new(cards))),
        has_vfs: desired.flat_map(|pf| pf.vf_groups.into_iter().flatten()).next().is_some(),
    }
}
