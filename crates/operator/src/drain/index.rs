//! Pools, nodes and node states as the API server tells them: plain data and no client.

mod decide;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use k8s_openapi::api::core::v1::Node;
use kube::runtime::watcher::Event;
use vfleet_api::node_state::DrainStatus;
use vfleet_api::{SriovNetworkNodeState, SriovNetworkPoolConfig, SriovOperatorConfig};
use vfleet_cluster::guarded::Guarded;
use vfleet_cluster::store::{Changed, Known};
use vfleet_plan::drain::{
    DrainFacts, Member, Moment, PodsSeen, Slot, holds_slot, is_left_in_the_middle, turn,
};
use vfleet_plan::{NamedPool, NodeIdentity, pool_of};

use super::evictions::Sighting;
use super::line::{Line, Place};
use super::objects::{SeenNode, SeenPool, SeenState};

pub(super) use decide::{Decided, Todo};

/// All that draining is decided on.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// Of the operator.
    namespace: String,
    pools: Known<SeenPool>,
    nodes: Known<SeenNode>,
    states: Known<SeenState>,
    /// `disableDrain`; `None` while the operator config was not seen.
    is_disabled: Option<bool>,
    /// The pool of each node.
    member_of: HashMap<String, String>,
    lines: HashMap<String, Line>,
    /// The pools that list a node, and for which request.
    listed_in: HashMap<String, BTreeMap<String, Moment>>,
    /// Nodes whose objects were read from the API server itself, and have not changed since.
    verified: HashSet<String>,
    /// Nodes of which the Go operator has left a drain in the middle.
    left_in_the_middle: BTreeSet<String>,
    /// What was last seen of the pods of nodes that are being drained.
    sightings: HashMap<String, Sighting>,
}

/// What a change calls for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Touched {
    /// Nodes for which something may be to be done.
    pub(super) nodes: BTreeSet<String>,
    /// Pools whose slots may change hands.
    pub(super) pools: BTreeSet<String>,
}

impl Index {
    /// Of the operator in `namespace`.
    pub(super) fn new(namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), ..Self::default() }
    }

    /// Takes in a change of a node.
    pub(super) fn node(&mut self, event: Event<Guarded<Node>>) -> Touched {
        let was_alone = self.nodes.len() == 1;
        let changed = self.nodes.update(event, |node| SeenNode::of(node, &self.namespace));
        let mut touched = Touched::default();
        for Changed { name, old, .. } in changed {
            let labels = self.nodes.get(&name).map(|node| &node.labels);
            if old.as_ref().map(|node| &node.labels) != labels {
                self.find_pool(&name);
            }
            self.changed(&name, &mut touched);
        }
        // With a second node a single one is no longer alone.
        if was_alone != (self.nodes.len() == 1) {
            touched.nodes.extend(self.states.names().cloned());
        }
        touched
    }

    /// Takes in a change of a node state.
    pub(super) fn state(&mut self, event: Event<Guarded<SriovNetworkNodeState>>) -> Touched {
        let mut touched = Touched::default();
        for Changed { name, .. } in self.states.update(event, SeenState::from) {
            self.changed(&name, &mut touched);
        }
        touched
    }

    /// Takes in a change of a pool.
    pub(super) fn pool(&mut self, event: Event<Guarded<SriovNetworkPoolConfig>>) -> Touched {
        let mut touched = Touched::default();
        for Changed { name, old, .. } in self.pools.update(event, SeenPool::from) {
            let new = self.pools.get(&name);
            let spec_changed = old.as_ref().map(|pool| &pool.spec) != new.map(|pool| &pool.spec);
            let before = old.map(|pool| pool.slots).unwrap_or_default();
            let after = new.map(|pool| pool.slots.clone()).unwrap_or_default();
            self.slots_changed(&name, &before, &after, &mut touched);
            if spec_changed {
                self.find_all_pools(&mut touched);
            }
            if self.pools.get(&name).is_none() {
                self.lines.remove(&name);
            }
            touched.pools.insert(name);
        }
        touched
    }

    /// Takes in the operator config.
    pub(super) fn settings(&mut self, config: Option<&SriovOperatorConfig>) -> Touched {
        let is_disabled = config.map(|config| config.spec.disable_drain == Some(true));
        if self.is_disabled == is_disabled {
            return Touched::default();
        }
        self.is_disabled = is_disabled;
        let mut touched = Touched::default();
        for name in self.states.names().cloned().collect::<Vec<_>>() {
            self.changed(&name, &mut touched);
        }
        touched
    }

    /// Takes in what was seen of a node's pods.
    pub(super) fn sighting(&mut self, sighting: Sighting) -> Touched {
        let node = sighting.node.clone();
        self.sightings.insert(node.clone(), sighting);
        Touched { nodes: BTreeSet::from([node]), ..Default::default() }
    }

    /// Nobody looks at the node's pods any more.
    pub(super) fn forget_pods(&mut self, node: &str) {
        self.sightings.remove(node);
    }

    /// Both objects of the node were just read, first the Node, and are in here as they were then.
    pub(super) fn verified(&mut self, node: &str) -> Touched {
        self.verified.insert(node.to_owned());
        let listing = self.listed_in.get(node).into_iter().flat_map(BTreeMap::keys);
        let pools = listing.chain(self.member_of.get(node)).cloned().collect();
        Touched { nodes: BTreeSet::from([node.to_owned()]), pools }
    }

    /// Something is due for the node although nothing has changed.
    pub(super) fn is_due(&mut self, node: &str) -> Touched {
        let mut touched = Touched::default();
        self.place(node, &mut touched);
        touched.nodes.insert(node.to_owned());
        touched
    }

    /// Whether all is known that decisions need.
    pub(super) fn is_complete(&self) -> bool {
        self.pools.is_listed()
            && self.nodes.is_listed()
            && self.states.is_listed()
            && self.is_disabled.is_some()
    }

    /// Whether there is a node or a node state of this name.
    pub(super) fn knows_node(&self, name: &str) -> bool {
        self.nodes.get(name).is_some() || self.states.get(name).is_some()
    }

    /// Whether the node's pods are to be evicted.
    pub(super) fn is_being_drained(&self, node: &str) -> bool {
        let state = self.states.get(node).map(|state| state.facts.status);
        self.nodes.get(node).is_some() && state == Some(DrainStatus::Draining)
    }

    /// The unique id of the node's node state.
    pub(super) fn state_uid(&self, node: &str) -> Option<&str> {
        self.states.get(node).map(|state| state.uid.as_str())
    }

    /// Nodes that are in flight, or have a slot, also of the Go operator. One may come twice.
    pub(super) fn draining(&self) -> impl Iterator<Item = &str> {
        let listed = self.listed_in.keys().chain(&self.left_in_the_middle).map(String::as_str);
        listed.chain(self.lines.values().flat_map(Line::holders))
    }

    /// How many slots the pool has given, as it was last seen.
    pub(super) fn slots_of(&self, pool: &str) -> usize {
        self.pools.get(pool).map_or(0, |pool| pool.slots.len())
    }

    /// Whether somebody waits for a slot of the pool.
    pub(super) fn has_waiting(&self, pool: &str) -> bool {
        self.lines.get(pool).is_some_and(Line::has_waiting)
    }

    /// Those who wait for a slot of the pool.
    pub(super) fn waiting(&self, pool: &str) -> impl Iterator<Item = &str> {
        self.lines.get(pool).into_iter().flat_map(Line::waiting)
    }

    fn facts(&self, node: &str) -> DrainFacts {
        DrainFacts {
            node: self.nodes.get(node).map(|node| node.facts),
            state: self.states.get(node).map(|state| state.facts),
            is_verified: self.verified.contains(node),
        }
    }

    fn member<'a>(&'a self, name: &'a str, facts: &'a DrainFacts, pool: Option<&str>) -> Member<'a> {
        let own = self.member_of.get(name).map(String::as_str);
        let is_guest = own != pool;
        let listing = self.listed_in.get(name).into_iter().flatten();
        let counts = |other: &str| if is_guest { Some(other) == own } else { Some(other) != pool };
        let elsewhere = listing.filter(|(other, _)| counts(other));
        let request = facts.state.and_then(|state| state.request);
        let sighting = self.sightings.get(name).filter(|sighting| Some(sighting.request) == request);
        Member {
            name,
            facts,
            is_guest,
            slot_elsewhere: elsewhere.map(|(_, request)| *request).max(),
            pods: sighting.map_or(PodsSeen::No, |sighting| sighting.pods),
            mcp: None,
        }
    }

    fn slots_changed(&mut self, pool: &str, before: &[Slot], after: &[Slot], touched: &mut Touched) {
        let is_in = |slots: &[Slot], slot: &Slot| slots.binary_search(slot).is_ok();
        for slot in before.iter().filter(|slot| !is_in(after, slot)) {
            if let Some(listing) = self.listed_in.get_mut(&slot.node) {
                listing.remove(pool);
                if listing.is_empty() {
                    self.listed_in.remove(&slot.node);
                }
            }
            self.changed(&slot.node, touched);
        }
        for slot in after.iter().filter(|slot| !is_in(before, slot)) {
            self.listed_in.entry(slot.node.clone()).or_default().insert(pool.to_owned(), slot.request);
            self.changed(&slot.node, touched);
        }
        if after.len() < before.len() {
            // There may have been too many for any of them to begin.
            let not_begun = after.iter().filter(|slot| !holds_slot(&self.facts(&slot.node)));
            touched.nodes.extend(not_begun.map(|slot| slot.node.clone()));
        }
    }

    /// Something of the node is not as it was.
    fn changed(&mut self, node: &str, touched: &mut Touched) {
        self.verified.remove(node);
        self.note_leftovers(node);
        self.place(node, touched);
        touched.nodes.insert(node.to_owned());
    }

    fn note_leftovers(&mut self, name: &str) {
        let (node, state) = (self.nodes.get(name), self.states.get(name));
        let is_ours_to_end = state.is_none_or(|state| !state.facts.is_external);
        let is_left = node
            .is_some_and(|node| is_left_in_the_middle(&node.leftovers, state.map(|state| &state.leftovers)));
        if is_left && is_ours_to_end {
            self.left_in_the_middle.insert(name.to_owned());
        } else {
            self.left_in_the_middle.remove(name);
        }
    }

    /// Puts the node in its place in its pool's line, and notes which pools' slots may change hands with that.
    fn place(&mut self, node: &str, touched: &mut Touched) {
        let facts = self.facts(node);
        let pool = self.member_of.get(node).cloned();
        let is_there = facts.node.is_some() && facts.state.is_some();
        let place = is_there.then(|| {
            let member = self.member(node, &facts, pool.as_deref());
            match turn(&member, &self.rules(pool.as_deref()), now()) {
                _ if holds_slot(&facts) => Place::Holds,
                Some(turn) => turn.into(),
                None => Place::Rests,
            }
        });
        let listing = self.listed_in.get(node);
        if let Some(pool) = pool {
            let is_listed = listing.is_some_and(|listing| listing.contains_key(&pool));
            let fits = is_listed == (place == Some(Place::Holds));
            let old = self.lines.entry(pool.clone()).or_default().put(node, place.clone());
            if !fits || old != place {
                touched.pools.insert(pool);
            }
        }
        let others = self.listed_in.get(node).into_iter().flat_map(BTreeMap::keys);
        touched.pools.extend(others.filter(|pool| self.member_of.get(node) != Some(*pool)).cloned());
    }

    fn find_all_pools(&mut self, touched: &mut Touched) {
        for node in self.nodes.names().cloned().collect::<Vec<_>>() {
            let before = self.member_of.get(&node).cloned();
            self.find_pool(&node);
            if self.member_of.get(&node) != before.as_ref() {
                touched.pools.extend(before);
                self.changed(&node, touched);
            } else if self.states.get(&node).is_some_and(|state| state.facts.status != DrainStatus::Idle) {
                // Other rules may hold now.
                touched.nodes.insert(node);
            }
        }
    }

    /// Finds out which pool the node belongs to now.
    fn find_pool(&mut self, node: &str) {
        let found = self.nodes.get(node).and_then(|seen| {
            let pools: Vec<_> =
                self.pools.iter().map(|(name, pool)| NamedPool { name, spec: &pool.spec }).collect();
            pool_of(&pools, NodeIdentity { name: node, labels: &seen.labels })
                .map(|pool| pool.name.to_owned())
        });
        let before = self.member_of.get(node);
        if before == found.as_ref() {
            return;
        }
        if let Some(line) = before.and_then(|pool| self.lines.get_mut(pool)) {
            line.put(node, None);
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
