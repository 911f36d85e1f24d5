//! Nodes, indexed by their labels, each with the policies and pools that select it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use vfleet_plan::NodeIdentity;

use super::cards::Cards;
use super::interned::Interned;

pub(super) type Labels = BTreeMap<String, String>;

/// Names of policies or pools.
pub(super) type NameSet = BTreeSet<String>;

/// Index of a node in the list of nodes.
pub(super) type NodePosition = usize;

/// Facts of a node that rules use.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) labels: Arc<Labels>,
    pub(super) runs_agent: bool,
    /// `None` until the node has reported its cards.
    pub(super) cards: Option<Arc<Cards>>,
    /// Policies that select the node.
    pub(super) policies: Arc<NameSet>,
    /// Pools that select the node.
    pub(super) pools: Arc<NameSet>,
}

impl Node {
    pub(super) fn identity(&self) -> NodeIdentity<'_> {
        NodeIdentity { name: &self.name, labels: &self.labels }
    }
}

/// All nodes, with an index by label.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    positions: HashMap<String, NodePosition>,
    entries: Vec<Option<Node>>,
    free: Vec<NodePosition>,
    by_label: HashMap<String, HashMap<String, BTreeSet<NodePosition>>>,
}

impl Nodes {
    /// Adds a node, or replaces the one with the same name.
    pub(super) fn insert(&mut self, node: Node) {
        self.remove(&node.name);
        let position = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() - 1
        });
        for (key, value) in node.labels.iter() {
            let values = self.by_label.entry(key.clone()).or_default();
            values.entry(value.clone()).or_default().insert(position);
        }
        self.positions.insert(node.name.clone(), position);
        self.entries[position] = Some(node);
    }

    pub(super) fn remove(&mut self, name: &str) {
        let Some(position) = self.positions.remove(name) else { return };
        let Some(node) = self.entries[position].take() else { return };
        self.free.push(position);
        for (key, value) in node.labels.iter() {
            let Some(values) = self.by_label.get_mut(key) else { continue };
            let Some(nodes) = values.get_mut(value) else { continue };
            nodes.remove(&position);
            if nodes.is_empty() {
                values.remove(value);
            }
            if values.is_empty() {
                self.by_label.remove(key);
            }
        }
    }

    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut Node> {
        self.entries[*self.positions.get(name)?].as_mut()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Node> {
        self.entries.iter().flatten()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Node> {
        self.entries.iter_mut().flatten()
    }

    /// Returns the positions of the nodes with all these labels. Checks only the nodes with the rarest label.
    pub(super) fn positions_with(&self, labels: &Labels) -> Vec<NodePosition> {
        let mut rarest: Option<&BTreeSet<NodePosition>> = None;
        for (key, value) in labels {
            let Some(nodes) = self.by_label.get(key).and_then(|values| values.get(value)) else {
                return Vec::new();
            };
            if rarest.is_none_or(|rarest| nodes.len() < rarest.len()) {
                rarest = Some(nodes);
            }
        }
        let Some(rarest) = rarest else {
            return (0..self.entries.len()).filter(|position| self.entries[*position].is_some()).collect();
        };
        let has_all = |node: &Node| labels.iter().all(|(key, value)| node.labels.get(key) == Some(value));
        // A single label needs no further check.
        let is_single = labels.len() == 1;
        rarest
            .iter()
            .copied()
            .filter(|position| is_single || self.entries[*position].as_ref().is_some_and(has_all))
            .collect()
    }

    /// Returns the nodes with all these labels.
    pub(super) fn with_labels(&self, labels: &Labels) -> impl Iterator<Item = &Node> {
        self.positions_with(labels).into_iter().filter_map(|position| self.entries[position].as_ref())
    }

    /// Records that a policy or pool `name` selects (or no longer selects) the nodes at these positions.
    pub(super) fn set_selected(
        &mut self,
        positions: &[NodePosition],
        of: fn(&mut Node) -> &mut Arc<NameSet>,
        name: &str,
        is_selected: bool,
        interned: &mut Interned<NameSet>,
    ) {
        // Each shared set of names is changed once, so that equal nodes stay equal.
        let mut changed: HashMap<*const NameSet, Arc<NameSet>> = HashMap::new();
        for position in positions {
            let Some(node) = self.entries.get_mut(*position).and_then(Option::as_mut) else { continue };
            let names = of(node);
            let new = changed.entry(Arc::as_ptr(names)).or_insert_with(|| {
                let mut new = NameSet::clone(names);
                if is_selected {
                    new.insert(name.to_owned());
                } else {
                    new.remove(name);
                }
                interned.intern(new)
            });
            *names = Arc::clone(new);
        }
    }

    /// Returns the positions of the nodes that match.
    pub(super) fn positions_where(&self, matches: impl Fn(&Node) -> bool) -> Vec<NodePosition> {
        let entries = self.entries.iter().enumerate();
        entries
            .filter_map(|(position, node)| node.as_ref().is_some_and(&matches).then_some(position))
            .collect()
    }
}
