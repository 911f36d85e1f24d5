//! Nodes, found by their labels, each with who selects it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use vfleet_plan::NodeIdentity;

use super::cards::Cards;
use super::interned::Interned;

pub(super) type Labels = BTreeMap<String, String>;

/// Names of policies, or of pools.
pub(super) type Names = BTreeSet<String>;

/// Where a node is kept.
pub(super) type Place = usize;

/// What counts of a node.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) labels: Arc<Labels>,
    pub(super) runs_agent: bool,
    /// `None` while it has not reported them.
    pub(super) cards: Option<Arc<Cards>>,
    /// Those that select it.
    pub(super) policies: Arc<Names>,
    /// Those that select it.
    pub(super) pools: Arc<Names>,
}

impl Node {
    pub(super) fn identity(&self) -> NodeIdentity<'_> {
        NodeIdentity { name: &self.name, labels: &self.labels }
    }
}

/// All nodes.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    places: HashMap<String, Place>,
    kept: Vec<Option<Node>>,
    free: Vec<Place>,
    by_label: HashMap<String, HashMap<String, BTreeSet<Place>>>,
}

impl Nodes {
    /// Takes in a node, in place of the one of its name.
    pub(super) fn put(&mut self, node: Node) {
        self.remove(&node.name);
        let place = self.free.pop().unwrap_or_else(|| {
            self.kept.push(None);
            self.kept.len() - 1
        });
        for (key, value) in node.labels.iter() {
            let values = self.by_label.entry(key.clone()).or_default();
            values.entry(value.clone()).or_default().insert(place);
        }
        self.places.insert(node.name.clone(), place);
        self.kept[place] = Some(node);
    }

    pub(super) fn remove(&mut self, name: &str) {
        let Some(place) = self.places.remove(name) else { return };
        let Some(node) = self.kept[place].take() else { return };
        self.free.push(place);
        for (key, value) in node.labels.iter() {
            let Some(values) = self.by_label.get_mut(key) else { continue };
            let Some(nodes) = values.get_mut(value) else { continue };
            nodes.remove(&place);
            if nodes.is_empty() {
                values.remove(value);
            }
            if values.is_empty() {
                self.by_label.remove(key);
            }
        }
    }

    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut Node> {
        self.kept[*self.places.get(name)?].as_mut()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Node> {
        self.kept.iter().flatten()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Node> {
        self.kept.iter_mut().flatten()
    }

    /// Where the nodes with all these labels are. Only nodes with the rarest of them are looked at.
    pub(super) fn places_with(&self, labels: &Labels) -> Vec<Place> {
        let mut rarest: Option<&BTreeSet<Place>> = None;
        for (key, value) in labels {
            let Some(nodes) = self.by_label.get(key).and_then(|values| values.get(value)) else {
                return Vec::new();
            };
            if rarest.is_none_or(|rarest| nodes.len() < rarest.len()) {
                rarest = Some(nodes);
            }
        }
        let Some(rarest) = rarest else {
            return (0..self.kept.len()).filter(|place| self.kept[*place].is_some()).collect();
        };
        let has_all = |node: &Node| labels.iter().all(|(key, value)| node.labels.get(key) == Some(value));
        // One label is what the set is about.
        let is_one = labels.len() == 1;
        rarest
            .iter()
            .copied()
            .filter(|place| is_one || self.kept[*place].as_ref().is_some_and(has_all))
            .collect()
    }

    /// The nodes with all these labels.
    pub(super) fn with(&self, labels: &Labels) -> impl Iterator<Item = &Node> {
        self.places_with(labels).into_iter().filter_map(|place| self.kept[place].as_ref())
    }

    /// A policy or pool `name` selects (or, with `false`, does not select any more) the nodes at these places.
    pub(super) fn tell_selected(
        &mut self,
        places: &[Place],
        of: fn(&mut Node) -> &mut Arc<Names>,
        name: &str,
        is_selected: bool,
        interned: &mut Interned<Names>,
    ) {
        // Nodes that were alike stay alike: each list of names is changed once.
        let mut changed: HashMap<*const Names, Arc<Names>> = HashMap::new();
        for place in places {
            let Some(node) = self.kept.get_mut(*place).and_then(Option::as_mut) else { continue };
            let names = of(node);
            let new = changed.entry(Arc::as_ptr(names)).or_insert_with(|| {
                let mut new = Names::clone(names);
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

    /// Where the nodes are for which this holds.
    pub(super) fn places_where(&self, holds: impl Fn(&Node) -> bool) -> Vec<Place> {
        let places = self.kept.iter().enumerate();
        places.filter_map(|(place, node)| node.as_ref().is_some_and(&holds).then_some(place)).collect()
    }
}
