//! Stored pools, nodes and node states: plain data without a client.

mod decide;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use k8s_openapi::api::core::v1::Node;
use kube::runtime::watcher::Event;
use vfleet_api::node_state::DrainStatus;
use vfleet_api::{SriovNetworkNodeState, SriovNetworkPoolConfig, SriovOperatorConfig};
use vfleet_cluster::guarded::Guarded;
use vfleet_cluster::store::{ObjectChange, ObjectStore};
use vfleet_plan::drain::{
    DrainFacts, Moment, PodsState, PoolMember, Slot, has_unfinished_go_drain, holds_slot, slot_priority,
};
use vfleet_plan::{NamedPool, NodeIdentity, find_pool_of_node};

use super::evictions::EvictionProgress;
use super::objects::{StoredNode, StoredNodeState, StoredPool};
use super::slot_queue::{SlotQueue, SlotState};

pub(super) use decide::{FullPool, NextAction, NodeDecision};

/// Stores and indexes that drain decisions are based on.
#[derive(Debug, Default)]
pub(super) struct DrainIndex {
    /// Namespace of the operator.
    namespace: String,
    pools: ObjectStore<StoredPool>,
    nodes: ObjectStore<StoredNode>,
    states: ObjectStore<StoredNodeState>,
    /// `disableDrain`; `None` until the operator config is read.
    is_disabled: Option<bool>,
    /// Pool of each node.
    member_of: HashMap<String, String>,
    queues: HashMap<String, SlotQueue>,
    /// Pools whose status lists a node, with the request.
    listed_in: HashMap<String, BTreeMap<String, Moment>>,
    /// Nodes whose objects were read from the API server and have not changed since.
    verified: HashSet<String>,
    /// Nodes with an unfinished drain of the Go operator.
    unfinished_go_drains: BTreeSet<String>,
    /// Eviction progress of nodes that are being drained.
    eviction_progress: HashMap<String, EvictionProgress>,
}

/// Nodes and pools that a change touches.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Touched {
    /// Nodes to be processed.
    pub(super) nodes: BTreeSet<String>,
    /// Pools whose slots are to be planned.
    pub(super) pools: BTreeSet<String>,
}

impl DrainIndex {
    /// Creates an empty index for the operator in `namespace`.
    pub(super) fn new(namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), ..Self::default() }
    }

    /// Stores a change of a node.
    pub(super) fn update_node(&mut self, event: Event<Guarded<Node>>) -> Touched {
        let was_single = self.nodes.len() == 1;
        let changed = self.nodes.update(event, |node| StoredNode::of(node, &self.namespace));
        let mut touched = Touched::default();
        for ObjectChange { name, old, .. } in changed {
            let labels = self.nodes.get(&name).map(|node| &node.labels);
            if old.as_ref().map(|node| &node.labels) != labels {
                self.assign_pool(&name);
            }
            self.node_changed(&name, &mut touched);
        }
        // Single-node rules start or stop to apply.
        if was_single != (self.nodes.len() == 1) {
            touched.nodes.extend(self.states.names().cloned());
        }
        touched
    }

    /// Stores a change of a node state.
    pub(super) fn update_state(&mut self, event: Event<Guarded<SriovNetworkNodeState>>) -> Touched {
        let mut touched = Touched::default();
        for ObjectChange { name, .. } in self.states.update(event, StoredNodeState::from) {
            self.node_changed(&name, &mut touched);
        }
        touched
    }

    /// Stores a change of a pool.
    pub(super) fn update_pool(&mut self, event: Event<Guarded<SriovNetworkPoolConfig>>) -> Touched {
        let mut touched = Touched::default();
        for ObjectChange { name, old, .. } in self.pools.update(event, StoredPool::from) {
            let new = self.pools.get(&name);
            let spec_changed = old.as_ref().map(|pool| &pool.spec) != new.map(|pool| &pool.spec);
            let before = old.map(|pool| pool.slots).unwrap_or_default();
            let after = new.map(|pool| pool.slots.clone()).unwrap_or_default();
            self.update_slots(&name, &before, &after, &mut touched);
            if spec_changed {
                self.assign_all_pools(&mut touched);
            }
            if self.pools.get(&name).is_none() {
                self.queues.remove(&name);
            }
            touched.pools.insert(name);
        }
        touched
    }

    /// Stores the operator config.
    pub(super) fn update_settings(&mut self, config: Option<&SriovOperatorConfig>) -> Touched {
        let is_disabled = config.map(|config| config.spec.disable_drain == Some(true));
        if self.is_disabled == is_disabled {
            return Touched::default();
        }
        self.is_disabled = is_disabled;
        let mut touched = Touched::default();
        for name in self.states.names().cloned().collect::<Vec<_>>() {
            self.node_changed(&name, &mut touched);
        }
        touched
    }

    /// Stores the eviction progress of a node.
    pub(super) fn update_progress(&mut self, progress: EvictionProgress) -> Touched {
        let node = progress.node.clone();
        self.eviction_progress.insert(node.clone(), progress);
        Touched { nodes: BTreeSet::from([node]), ..Default::default() }
    }

    /// Forgets the eviction progress of a node whose evictions were stopped.
    pub(super) fn forget_progress(&mut self, node: &str) {
        self.eviction_progress.remove(node);
    }

    /// Marks both objects of the node as just read from the API server, first the Node.
    pub(super) fn mark_verified(&mut self, node: &str) -> Touched {
        self.verified.insert(node.to_owned());
        let listing = self.listed_in.get(node).into_iter().flat_map(BTreeMap::keys);
        let pools = listing.chain(self.member_of.get(node)).cloned().collect();
        Touched { nodes: BTreeSet::from([node.to_owned()]), pools }
    }

    /// Updates the slot queue of a node whose deadline has passed.
    pub(super) fn requeue(&mut self, node: &str) -> Touched {
        let mut touched = Touched::default();
        self.update_slot_queue(node, &mut touched);
        touched.nodes.insert(node.to_owned());
        touched
    }

    /// Returns whether all objects that decisions need are read.
    pub(super) fn is_complete(&self) -> bool {
        self.pools.is_listed()
            && self.nodes.is_listed()
            && self.states.is_listed()
            && self.is_disabled.is_some()
    }

    /// Returns whether a Node or node state of this name exists.
    pub(super) fn contains_node(&self, name: &str) -> bool {
        self.nodes.get(name).is_some() || self.states.get(name).is_some()
    }

    /// Returns whether the pods of the node are to be evicted.
    pub(super) fn is_being_drained(&self, node: &str) -> bool {
        let state = self.states.get(node).map(|state| state.facts.status);
        self.nodes.get(node).is_some() && state == Some(DrainStatus::Draining)
    }

    /// Returns the uid of the node state.
    pub(super) fn state_uid(&self, node: &str) -> Option<&str> {
        self.states.get(node).map(|state| state.uid.as_str())
    }

    /// Returns nodes that are drained, hold a slot or have an unfinished drain of the Go operator. May contain
    /// duplicates.
    pub(super) fn draining_nodes(&self) -> impl Iterator<Item = &str> {
        let listed = self.listed_in.keys().chain(&self.unfinished_go_drains).map(String::as_str);
        listed.chain(self.queues.values().flat_map(SlotQueue::holders))
    }

    /// Returns the number of granted slots of the pool.
    pub(super) fn slot_count(&self, pool: &str) -> usize {
        self.pools.get(pool).map_or(0, |pool| pool.slots.len())
    }

    /// Returns the number of nodes that wait for a slot of the pool.
    pub(super) fn waiting_count(&self, pool: &str) -> usize {
        self.queues.get(pool).map_or(0, SlotQueue::waiting_count)
    }

    /// Returns the nodes that wait for a slot of the pool.
    pub(super) fn waiting_nodes(&self, pool: &str) -> impl Iterator<Item = &str> {
        self.queues.get(pool).into_iter().flat_map(SlotQueue::waiting)
    }

    fn facts(&self, node: &str) -> DrainFacts {
        DrainFacts {
            node: self.nodes.get(node).map(|node| node.facts),
            state: self.states.get(node).map(|state| state.facts),
            is_verified: self.verified.contains(node),
        }
    }

    fn member<'a>(&'a self, name: &'a str, facts: &'a DrainFacts, pool: Option<&str>) -> PoolMember<'a> {
        let own = self.member_of.get(name).map(String::as_str);
        let is_former_member = own != pool;
        let listing = self.listed_in.get(name).into_iter().flatten();
        let counts = |other: &str| if is_former_member { Some(other) == own } else { Some(other) != pool };
        let elsewhere = listing.filter(|(other, _)| counts(other));
        let request = facts.state.and_then(|state| state.request);
        let progress = self.eviction_progress.get(name).filter(|progress| Some(progress.request) == request);
        PoolMember {
            name,
            facts,
            is_former_member,
            slot_in_other_pool: elsewhere.map(|(_, request)| *request).max(),
            pods: progress.map_or(PodsState::Unknown, |progress| progress.pods),
            mcp: None,
        }
    }

    fn update_slots(&mut self, pool: &str, before: &[Slot], after: &[Slot], touched: &mut Touched) {
        let is_in = |slots: &[Slot], slot: &Slot| slots.binary_search(slot).is_ok();
        for slot in before.iter().filter(|slot| !is_in(after, slot)) {
            if let Some(listing) = self.listed_in.get_mut(&slot.node) {
                listing.remove(pool);
                if listing.is_empty() {
                    self.listed_in.remove(&slot.node);
                }
            }
            self.node_changed(&slot.node, touched);
        }
        for slot in after.iter().filter(|slot| !is_in(before, slot)) {
            self.listed_in.entry(slot.node.clone()).or_default().insert(pool.to_owned(), slot.request);
            self.node_changed(&slot.node, touched);
        }
        if after.len() < before.len() {
            // Drains may start that did not while more slots were granted than allowed.
            let not_started = after.iter().filter(|slot| !holds_slot(&self.facts(&slot.node)));
            touched.nodes.extend(not_started.map(|slot| slot.node.clone()));
        }
    }

    /// Updates the indexes after a change of the node.
    fn node_changed(&mut self, node: &str, touched: &mut Touched) {
        self.verified.remove(node);
        self.update_go_drain(node);
        self.update_slot_queue(node, touched);
        touched.nodes.insert(node.to_owned());
    }

    fn update_go_drain(&mut self, name: &str) {
        let (node, state) = (self.nodes.get(name), self.states.get(name));
        let is_ours = state.is_none_or(|state| !state.facts.is_external);
        let is_unfinished = node.is_some_and(|node| {
            has_unfinished_go_drain(&node.go_annotations, state.map(|state| &state.go_annotations))
        });
        if is_unfinished && is_ours {
            self.unfinished_go_drains.insert(name.to_owned());
        } else {
            self.unfinished_go_drains.remove(name);
        }
    }

    /// Updates the node in the slot queue of its pool and adds the pools whose slots are to be planned.
    fn update_slot_queue(&mut self, node: &str, touched: &mut Touched) {
        let facts = self.facts(node);
        let pool = self.member_of.get(node).cloned();
        let exists = facts.node.is_some() && facts.state.is_some();
        let slot_state = exists.then(|| {
            let member = self.member(node, &facts, pool.as_deref());
            match slot_priority(&member, &self.rules(pool.as_deref()), now()) {
                _ if holds_slot(&facts) => SlotState::Holds,
                Some(priority) => priority.into(),
                None => SlotState::Idle,
            }
        });
        let listing = self.listed_in.get(node);
        if let Some(pool) = pool {
            let is_listed = listing.is_some_and(|listing| listing.contains_key(&pool));
            let is_consistent = is_listed == (slot_state == Some(SlotState::Holds));
            let old = self.queues.entry(pool.clone()).or_default().set(node, slot_state.clone());
            if !is_consistent || old != slot_state {
                touched.pools.insert(pool);
            }
        }
        let others = self.listed_in.get(node).into_iter().flat_map(BTreeMap::keys);
        touched.pools.extend(others.filter(|pool| self.member_of.get(node) != Some(*pool)).cloned());
    }

    fn assign_all_pools(&mut self, touched: &mut Touched) {
        for node in self.nodes.names().cloned().collect::<Vec<_>>() {
            let before = self.member_of.get(&node).cloned();
            self.assign_pool(&node);
            if self.member_of.get(&node) != before.as_ref() {
                touched.pools.extend(before);
                self.node_changed(&node, touched);
            } else if self.states.get(&node).is_some_and(|state| state.facts.status != DrainStatus::Idle) {
                // The rules of the pool may have changed.
                touched.nodes.insert(node);
            }
        }
    }

    /// Updates the pool that the node belongs to.
    fn assign_pool(&mut self, node: &str) {
        let found = self.nodes.get(node).and_then(|stored| {
            let pools: Vec<_> =
                self.pools.iter().map(|(name, pool)| NamedPool { name, spec: &pool.spec }).collect();
            find_pool_of_node(&pools, NodeIdentity { name: node, labels: &stored.labels })
                .map(|pool| pool.name.to_owned())
        });
        let before = self.member_of.get(node);
        if before == found.as_ref() {
            return;
        }
        if let Some(queue) = before.and_then(|pool| self.queues.get_mut(pool)) {
            queue.set(node, None);
        }
        match found {
            Some(pool) => self.member_of.insert(node.to_owned(), pool),
            None => self.member_of.remove(node),
        };
    }
}

pub(super) fn now() -> Moment {
    k8s_openapi::jiff::Timestamp::now().into()
}

#[cfg(test)]
mod tests;
