//! Nodes counted by status, for each group (a policy or a pool). The cost of a change does not depend on the number of
//! nodes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Status of each node in each of its groups.
#[derive(Debug)]
pub(crate) struct NodeTally<S> {
    by_node: HashMap<Arc<str>, Vec<(Arc<str>, S)>>,
    by_group: HashMap<Arc<str>, NodesByStatus<S>>,
}

/// Nodes of one group, by status.
pub(crate) type NodesByStatus<S> = BTreeMap<S, BTreeSet<Arc<str>>>;

impl<S> Default for NodeTally<S> {
    fn default() -> Self {
        Self { by_node: HashMap::new(), by_group: HashMap::new() }
    }
}

impl<S: Copy + Ord> NodeTally<S> {
    /// Sets the statuses of `node` by group, and removes it from all other groups. Returns the groups whose counts
    /// changed.
    pub(crate) fn update<'a>(
        &mut self,
        node: &str,
        statuses: impl IntoIterator<Item = (&'a str, S)>,
    ) -> BTreeSet<String> {
        let node = self
            .by_node
            .get_key_value(node)
            .map_or_else(|| Arc::from(node), |(shared, _)| Arc::clone(shared));
        let new: Vec<_> =
            statuses.into_iter().map(|(group, status)| (self.shared_name(group), status)).collect();
        let old = self.by_node.remove(&node).unwrap_or_default();
        let removed = old.iter().filter(|entry| !new.contains(entry));
        let added = new.iter().filter(|entry| !old.contains(entry));
        let changed = removed.clone().chain(added.clone()).map(|(group, _)| group.to_string()).collect();
        for (group, status) in removed {
            self.remove(group, *status, &node);
        }
        for (group, status) in added {
            let nodes = self.by_group.entry(Arc::clone(group)).or_default().entry(*status).or_default();
            nodes.insert(Arc::clone(&node));
        }
        if !new.is_empty() {
            self.by_node.insert(node, new);
        }
        changed
    }

    /// Returns the nodes of a group, by status.
    pub(crate) fn get(&self, group: &str) -> Option<&NodesByStatus<S>> {
        self.by_group.get(group)
    }

    /// Returns the name of a group as one allocation for all its nodes.
    fn shared_name(&self, name: &str) -> Arc<str> {
        self.by_group.get_key_value(name).map_or_else(|| Arc::from(name), |(shared, _)| Arc::clone(shared))
    }

    fn remove(&mut self, group: &str, status: S, node: &str) {
        let Some(statuses) = self.by_group.get_mut(group) else { return };
        if let Some(nodes) = statuses.get_mut(&status) {
            nodes.remove(node);
            if nodes.is_empty() {
                statuses.remove(&status);
            }
        }
        if statuses.is_empty() {
            self.by_group.remove(group);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(tally: &NodeTally<char>, group: &str) -> Vec<(char, usize)> {
        tally.get(group).into_iter().flatten().map(|(status, nodes)| (*status, nodes.len())).collect()
    }

    #[test]
    fn nodes_change_their_status_and_leave_groups() {
        let mut tally = NodeTally::default();
        let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        assert_eq!(tally.update("n1", [("a", 'x'), ("b", 'x')]), names(&["a", "b"]));
        assert_eq!(tally.update("n2", [("a", 'x')]), names(&["a"]));
        assert_eq!(tally.update("n2", [("a", 'x')]), names(&[]));
        assert_eq!(counts(&tally, "a"), [('x', 2)]);
        assert_eq!(tally.update("n1", [("a", 'y'), ("b", 'x')]), names(&["a"]));
        assert_eq!(counts(&tally, "a"), [('x', 1), ('y', 1)]);
        assert_eq!(tally.update("n1", []), names(&["a", "b"]));
        assert_eq!(counts(&tally, "a"), [('x', 1)]);
        assert!(tally.get("b").is_none());
    }
}
