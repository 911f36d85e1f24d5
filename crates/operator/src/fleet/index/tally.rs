//! Nodes counted by where they stand, for each group (a policy, a pool). What a node's change costs does not depend on
//! how many others there are.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Where each node stands in each group that it is in.
#[derive(Debug)]
pub(crate) struct Tally<S> {
    by_node: HashMap<Arc<str>, Vec<(Arc<str>, S)>>,
    by_group: HashMap<Arc<str>, Standings<S>>,
}

/// The nodes of one group, by where they stand.
pub(crate) type Standings<S> = BTreeMap<S, BTreeSet<Arc<str>>>;

impl<S> Default for Tally<S> {
    fn default() -> Self {
        Self { by_node: HashMap::new(), by_group: HashMap::new() }
    }
}

impl<S: Copy + Ord> Tally<S> {
    /// `node` stands so, in these groups and in no other. Gives the groups whose counts changed.
    pub(crate) fn update<'a>(
        &mut self,
        node: &str,
        standings: impl IntoIterator<Item = (&'a str, S)>,
    ) -> BTreeSet<String> {
        let node =
            self.by_node.get_key_value(node).map_or_else(|| Arc::from(node), |(known, _)| Arc::clone(known));
        let new: Vec<_> =
            standings.into_iter().map(|(group, standing)| (self.group(group), standing)).collect();
        let old = self.by_node.remove(&node).unwrap_or_default();
        let gone = old.iter().filter(|entry| !new.contains(entry));
        let come = new.iter().filter(|entry| !old.contains(entry));
        let changed = gone.clone().chain(come.clone()).map(|(group, _)| group.to_string()).collect();
        for (group, standing) in gone {
            self.leave(group, *standing, &node);
        }
        for (group, standing) in come {
            let nodes = self.by_group.entry(Arc::clone(group)).or_default().entry(*standing).or_default();
            nodes.insert(Arc::clone(&node));
        }
        if !new.is_empty() {
            self.by_node.insert(node, new);
        }
        changed
    }

    /// The nodes of a group, by where they stand.
    pub(crate) fn of(&self, group: &str) -> Option<&Standings<S>> {
        self.by_group.get(group)
    }

    /// One name for all nodes of the group, not one for each.
    fn group(&self, name: &str) -> Arc<str> {
        self.by_group.get_key_value(name).map_or_else(|| Arc::from(name), |(known, _)| Arc::clone(known))
    }

    fn leave(&mut self, group: &str, standing: S, node: &str) {
        let Some(standings) = self.by_group.get_mut(group) else { return };
        if let Some(nodes) = standings.get_mut(&standing) {
            nodes.remove(node);
            if nodes.is_empty() {
                standings.remove(&standing);
            }
        }
        if standings.is_empty() {
            self.by_group.remove(group);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(tally: &Tally<char>, group: &str) -> Vec<(char, usize)> {
        tally.of(group).into_iter().flatten().map(|(standing, nodes)| (*standing, nodes.len())).collect()
    }

    #[test]
    fn nodes_move_between_standings_and_leave() {
        let mut tally = Tally::default();
        let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        assert_eq!(tally.update("n1", [("a", 'x'), ("b", 'x')]), names(&["a", "b"]));
        assert_eq!(tally.update("n2", [("a", 'x')]), names(&["a"]));
        assert_eq!(tally.update("n2", [("a", 'x')]), names(&[]));
        assert_eq!(counts(&tally, "a"), [('x', 2)]);
        assert_eq!(tally.update("n1", [("a", 'y'), ("b", 'x')]), names(&["a"]));
        assert_eq!(counts(&tally, "a"), [('x', 1), ('y', 1)]);
        assert_eq!(tally.update("n1", []), names(&["a", "b"]));
        assert_eq!(counts(&tally, "a"), [('x', 1)]);
        assert!(tally.of("b").is_none());
    }
}
