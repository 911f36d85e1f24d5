//! What admission knows of the cluster. Nodes that are alike are known to be alike before anybody asks, so that an answer
//! does not take long in a large cluster.

mod cards;
mod facts;
mod feed;
pub(super) mod fuzzing;
mod interned;
mod nads;
mod nodes;
#[cfg(test)]
mod tests;
mod written;

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
use vfleet_cluster::store::{Changed, Counts, Known};
use vfleet_plan::{NamedPolicy, NamedPool, NicIds, pool, runs_agent, selects_node};

use self::cards::Cards;
use self::interned::Interned;
use self::nads::Nads;
use self::nodes::{Labels, Names, Node, Nodes, Place};
use crate::components::settings::Seen;

pub(crate) use self::feed::{Ready, follow};
pub(crate) use self::nads::sight;
pub(crate) use self::written::Written;

/// What admission knows. It is written by those who follow the cluster, and only read by those who answer.
#[derive(Debug, Default)]
pub(crate) struct Index {
    cluster: RwLock<Cluster>,
    nads: RwLock<Nads>,
    changed: watch::Sender<()>,
}

/// The cluster while it changes. Who waits for changes is told at the end.
pub(crate) struct Changing<'a> {
    cluster: RwLockWriteGuard<'a, Cluster>,
    changed: &'a watch::Sender<()>,
}

impl Deref for Changing<'_> {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

impl DerefMut for Changing<'_> {
    fn deref_mut(&mut self) -> &mut Cluster {
        &mut self.cluster
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.changed.send_replace(());
    }
}

impl Index {
    /// Asks what is known of the cluster: `None` while that is not complete. It does not change meanwhile.
    pub(crate) fn ask<T>(&self, ask: impl FnOnce(Option<&Cluster>) -> T) -> T {
        let cluster = self.cluster();
        ask(cluster.is_complete().then_some(&*cluster))
    }

    /// Says from now on when something about the cluster is not what it was.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// What is known of networks that pods name.
    pub(crate) fn nads(&self) -> RwLockReadGuard<'_, Nads> {
        self.nads.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// As if the cluster did not know what a NetworkAttachmentDefinition is.
    #[cfg(test)]
    pub(crate) fn see_no_kind_of_nads(&self) {
        self.change_nads().see_no_kind();
    }

    fn cluster(&self) -> RwLockReadGuard<'_, Cluster> {
        self.cluster.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change_cluster(&self) -> Changing<'_> {
        let cluster = self.cluster.write().unwrap_or_else(PoisonError::into_inner);
        Changing { cluster, changed: &self.changed }
    }

    fn change_nads(&self) -> RwLockWriteGuard<'_, Nads> {
        self.nads.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All but the networks of pods.
#[derive(Debug, Default)]
pub(crate) struct Cluster {
    /// `None` until it was looked for.
    config: Option<SriovOperatorConfigSpec>,
    /// `None` until they were looked for.
    nic_ids: Option<NicIds>,
    policies: Known<SriovNetworkNodePolicy>,
    /// The version of the last change of a policy.
    policies_seen_to: u64,
    pools: Known<SriovNetworkPoolConfig>,
    states: Known<StateSight>,
    labels: Known<SharedLabels>,
    nodes: Nodes,
    kinds: Interned<Cards>,
    names: Interned<Names>,
}

/// What counts of a node state.
#[derive(Debug, PartialEq)]
struct StateSight {
    cards: Option<Arc<Cards>>,
    is_in_progress: bool,
    has_vfs: bool,
}

#[derive(Debug, PartialEq)]
struct SharedLabels(Arc<Labels>);

impl Counts for StateSight {
    fn same(&self, other: &Self) -> bool {
        self == other
    }
}

impl Counts for SharedLabels {
    fn same(&self, other: &Self) -> bool {
        self == other
    }
}

impl Cluster {
    fn is_complete(&self) -> bool {
        self.config.is_some()
            && self.nic_ids.is_some()
            && self.policies.is_listed()
            && self.pools.is_listed()
            && self.states.is_listed()
            && self.labels.is_listed()
    }

    /// Takes in the operator config.
    fn see_config(&mut self, seen: &Seen) {
        let new = match seen {
            Seen::Unknown => return,
            Seen::Missing => SriovOperatorConfigSpec::default(),
            Seen::Config(config) => config.spec.clone(),
        };
        let selector = agents_of(&new);
        for node in self.nodes.iter_mut() {
            node.runs_agent = runs_agent(&selector, &node.labels);
        }
        self.config = Some(new);
    }

    /// Takes in the kinds of cards that are reported.
    fn see_nic_ids(&mut self, seen: Option<NicIds>) {
        self.nic_ids = seen.or(self.nic_ids.take());
    }

    /// Takes in a change of a policy.
    fn see_policy(&mut self, event: Event<Guarded<SriovNetworkNodePolicy>>) {
        // Not those of a list: what is gone shows only at its end.
        if let Event::Apply(policy) | Event::Delete(policy) = &event
            && let Some(place) = policy.resource_version().as_deref().and_then(written::place)
        {
            self.policies_seen_to = place;
        }
        for Changed { name, old, .. } in self.policies.update(event, |policy| policy) {
            if name == IGNORED_POLICY {
                continue;
            }
            let new = self.policies.get(&name).map(|policy| &policy.spec.node_selector);
            let old = old.map(|policy| policy.spec.node_selector);
            if new == old.as_ref() {
                continue;
            }
            let left = old.map(|selector| self.nodes.places_with(&selector)).unwrap_or_default();
            let entered = new.map(|selector| self.nodes.places_with(selector)).unwrap_or_default();
            self.tell_selected(&left, &entered, |node| &mut node.policies, &name);
        }
    }

    /// Takes in a change of a pool.
    fn see_pool(&mut self, event: Event<Guarded<SriovNetworkPoolConfig>>) {
        for Changed { name, .. } in self.pools.update(event, |pool| pool) {
            let left = self.nodes.places_where(|node| node.pools.contains(&name));
            let entered = match self.pools.get(&name) {
                Some(pool) => {
                    let pool = NamedPool { name: &name, spec: &pool.spec };
                    self.nodes.places_where(|node| is_in(&pool, node))
                }
                None => Vec::new(),
            };
            self.tell_selected(&left, &entered, |node| &mut node.pools, &name);
        }
    }

    fn tell_selected(
        &mut self,
        left: &[Place],
        entered: &[Place],
        of: fn(&mut Node) -> &mut Arc<Names>,
        name: &str,
    ) {
        self.nodes.tell_selected(left, of, name, false, &mut self.names);
        self.nodes.tell_selected(entered, of, name, true, &mut self.names);
    }

    /// Takes in a change of a node state.
    fn see_state(&mut self, event: Event<Guarded<SriovNetworkNodeState>>) {
        let kinds = &mut self.kinds;
        for Changed { name, .. } in self.states.update(event, |state| state_sight(state, kinds)) {
            let cards = self.states.get(&name).and_then(|state| state.cards.clone());
            if let Some(node) = self.nodes.get_mut(&name) {
                node.cards = cards;
            }
        }
    }

    /// Takes in a change of a node.
    fn see_node(&mut self, event: Event<PartialObjectMeta<NodeObject>>) {
        let read = |node: PartialObjectMeta<NodeObject>| {
            Ok(SharedLabels(Arc::new(node.metadata.labels.unwrap_or_default())))
        };
        for Changed { name, .. } in self.labels.take(event, read) {
            match self.labels.get(&name).map(|SharedLabels(labels)| Arc::clone(labels)) {
                Some(labels) => {
                    let node = self.node(name, labels);
                    self.nodes.put(node);
                }
                None => self.nodes.remove(&name),
            }
        }
    }

    /// All that is known of a node with these labels.
    fn node(&mut self, name: String, labels: Arc<Labels>) -> Node {
        let policies = self
            .policies
            .iter()
            .filter(|(name, policy)| selects_node(&NamedPolicy { name, spec: &policy.spec }, &labels))
            .map(|(name, _)| name.clone())
            .collect();
        let selector = self.config.as_ref().map(agents_of).unwrap_or_default();
        let mut node = Node {
            runs_agent: runs_agent(&selector, &labels),
            cards: self.states.get(&name).and_then(|state| state.cards.clone()),
            policies: self.names.intern(policies),
            pools: Arc::default(),
            name,
            labels,
        };
        let pools =
            self.pools.iter().filter(|(name, pool)| is_in(&NamedPool { name, spec: &pool.spec }, &node));
        let pools = pools.map(|(name, _)| name.clone()).collect();
        node.pools = self.names.intern(pools);
        node
    }
}

/// Labels of the nodes that run an agent; the usual ones when empty.
fn agents_of(config: &SriovOperatorConfigSpec) -> Labels {
    config.config_daemon_node_selector.clone().unwrap_or_default()
}

fn is_in(pool: &NamedPool<'_>, node: &Node) -> bool {
    pool::selects(pool, node.identity()) == Ok(true)
}

fn is_in_progress(status: &SriovNetworkNodeStateStatus) -> bool {
    status.sync_status.as_deref() == Some(IN_PROGRESS)
}

fn state_sight(state: SriovNetworkNodeState, kinds: &mut Interned<Cards>) -> StateSight {
    let wanted = state.spec.interfaces.into_iter().flatten();
    let status = state.status.unwrap_or_default();
    StateSight {
        is_in_progress: is_in_progress(&status),
        cards: status.interfaces.map(|cards| kinds.intern(Cards::new(cards))),
        has_vfs: wanted.flat_map(|pf| pf.vf_groups.into_iter().flatten()).next().is_some(),
    }
}
