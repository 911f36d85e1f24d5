//! Cluster facts for rules.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use vfleet_api::SriovNetworkNodePolicySpec;
use vfleet_api::keys::IGNORED_POLICY;
use vfleet_api::operator_config::SriovOperatorConfigSpec;
use vfleet_plan::admission::{
    ConfigFacts, NodeClass, PolicyFacts, PoolFacts, PoolRival, ResourceFacts, keep_largest_classes,
};
use vfleet_plan::gates::FeatureGate;
use vfleet_plan::{NamedPolicy, NamedPool, pool, requests_bridge, runs_agent};

use super::cards::Cards;
use super::nodes::{Labels, NameSet, Node};
use super::{ClusterIndex, agent_selector, contains_node};

/// Nodes with the same cards and the same policies.
struct NodeGroup<'a> {
    cards: &'a Arc<Cards>,
    policies: &'a Arc<NameSet>,
    /// First node by name.
    example: &'a Node,
    count: usize,
}

impl ClusterIndex {
    /// Returns the facts about a policy that is written.
    pub(crate) fn policy_facts<'a>(&'a self, candidate: NamedPolicy<'a>) -> PolicyFacts<'a> {
        let (mut nodes, mut without_agent, mut without_cards) = (0, 0, 0);
        let mut groups: HashMap<(*const Cards, *const NameSet), NodeGroup<'a>> = HashMap::new();
        let is_used = candidate.name != IGNORED_POLICY;
        let selected = is_used.then(|| self.nodes.with_labels(&candidate.spec.node_selector));
        for node in selected.into_iter().flatten() {
            nodes += 1;
            match &node.cards {
                _ if !node.runs_agent => without_agent += 1,
                None => without_cards += 1,
                Some(cards) => {
                    let key = (Arc::as_ptr(cards), Arc::as_ptr(&node.policies));
                    let new = || NodeGroup { cards, policies: &node.policies, example: node, count: 0 };
                    let group = groups.entry(key).or_insert_with(new);
                    group.count += 1;
                    if node.name < group.example.name {
                        group.example = node;
                    }
                }
            }
        }
        let (classes, classes_left_out) =
            keep_largest_classes(self.classes(candidate.name, groups.into_values()));
        PolicyFacts {
            manage_software_bridges: self
                .config
                .as_ref()
                .is_some_and(|config| FeatureGate::ManageSoftwareBridges.is_enabled(config)),
            nic_ids: self.nic_ids.as_ref(),
            nodes,
            without_agent,
            without_cards,
            classes,
            classes_left_out,
        }
    }

    /// Merges groups that differ only in the stored version of the policy itself.
    fn classes<'a>(&'a self, own: &str, groups: impl Iterator<Item = NodeGroup<'a>>) -> Vec<NodeClass<'a>> {
        let mut sets = PolicySets::default();
        let mut classes: HashMap<(*const Cards, usize), NodeClass<'a>> = HashMap::new();
        for NodeGroup { cards, policies, example, count } in groups {
            let set = sets.index_of(policies, own, |name| Some(&self.policies.get(name)?.spec));
            match classes.entry((Arc::as_ptr(cards), set)) {
                Entry::Vacant(entry) => {
                    entry.insert(NodeClass {
                        example: &example.name,
                        count,
                        labels: &example.labels,
                        cards: &cards.list,
                        others: sets.all[set].clone(),
                    });
                }
                Entry::Occupied(mut entry) => {
                    let class = entry.get_mut();
                    class.count += count;
                    if example.name.as_str() < class.example {
                        (class.example, class.labels) = (&example.name, &example.labels);
                    }
                }
            }
        }
        classes.into_values().collect()
    }

    /// Returns the facts about a pool that is written.
    pub(crate) fn pool_facts<'a>(&'a self, candidate: &NamedPool<'_>) -> PoolFacts<'a> {
        let required =
            candidate.spec.node_selector.as_ref().and_then(|selector| selector.match_labels.as_ref());
        let no_labels = Labels::new();
        let mut selected = 0;
        // First node by name of each set of pools.
        let mut first: HashMap<*const NameSet, &'a Node> = HashMap::new();
        let nodes = self.nodes.with_labels(required.unwrap_or(&no_labels));
        for node in nodes.filter(|node| contains_node(candidate, node)) {
            selected += 1;
            let found = first.entry(Arc::as_ptr(&node.pools)).or_insert(node);
            if node.name < found.name {
                *found = node;
            }
        }
        let rivals =
            first.values().flat_map(|node| node.pools.iter().map(|name| (name.as_str(), &*node.name)));
        let rival = rivals.filter(|(name, _)| self.is_rival(candidate, name)).min();
        PoolFacts { selected, rival: rival.map(|(name, node)| PoolRival { name, node }) }
    }

    fn is_rival(&self, candidate: &NamedPool<'_>, other: &str) -> bool {
        let pool = self.pools.get(other).map(|pool| NamedPool { name: other, spec: &pool.spec });
        pool.is_some_and(|other| pool::have_equal_rank(candidate, &other))
    }

    /// Returns the facts about an operator config that is changed to `new`, or deleted.
    pub(crate) fn config_facts(&self, new: Option<&SriovOperatorConfigSpec>) -> ConfigFacts<'_> {
        let busy = self.states.iter().filter(|(_, state)| state.is_in_progress);
        let policies = || self.policies.iter().filter(|(name, _)| *name != IGNORED_POLICY);
        let with_bridge = policies().filter(|(_, policy)| requests_bridge(&policy.spec));
        ConfigFacts {
            in_progress: sorted(busy.map(|(name, _)| name)),
            policies: sorted(policies().map(|(name, _)| name)),
            with_bridge: sorted(with_bridge.map(|(name, _)| name)),
            losing_agent: new.map(|new| self.nodes_losing_agent(new)).unwrap_or_default(),
        }
    }

    /// Returns nodes with VFs that run an agent now and would not with this config.
    fn nodes_losing_agent(&self, new: &SriovOperatorConfigSpec) -> Vec<&str> {
        let selector = agent_selector(new);
        if self.config.as_ref().map(agent_selector).as_ref() == Some(&selector) {
            return Vec::new();
        }
        let has_vfs = |node: &str| self.states.get(node).is_some_and(|state| state.has_vfs);
        let loses_agent =
            |node: &&Node| node.runs_agent && !runs_agent(&selector, &node.labels) && has_vfs(&node.name);
        sorted(self.nodes.iter().filter(loses_agent).map(|node| &node.name))
    }

    /// Returns the facts about a network with this resource.
    pub(crate) fn resource_facts(&self, resource: &str) -> ResourceFacts<'_> {
        let policies = self.policies.iter().map(|(name, policy)| NamedPolicy { name, spec: &policy.spec });
        let mut offered_by: Vec<_> =
            policies.filter(|policy| policy.spec.resource_name == resource).collect();
        offered_by.sort_unstable_by_key(|policy| policy.name);
        ResourceFacts { offered_by }
    }
}

/// Distinct sets of other policies of nodes. There are few sets, and many nodes with each.
#[derive(Default)]
struct PolicySets<'a> {
    all: Vec<Vec<NamedPolicy<'a>>>,
    indexes: HashMap<*const NameSet, usize>,
}

impl<'a> PolicySets<'a> {
    /// Returns the index of the set of these policies without `own`.
    fn index_of(
        &mut self,
        policies: &'a Arc<NameSet>,
        own: &str,
        spec: impl Fn(&str) -> Option<&'a SriovNetworkNodePolicySpec>,
    ) -> usize {
        let Self { all, indexes } = self;
        *indexes.entry(Arc::as_ptr(policies)).or_insert_with(|| {
            let others = policies.iter().filter(|name| *name != own);
            let others: Vec<_> =
                others.filter_map(|name| Some(NamedPolicy { name, spec: spec(name)? })).collect();
            let names =
                |policies: &[NamedPolicy<'a>]| policies.iter().map(|policy| policy.name).collect::<Vec<_>>();
            all.iter().position(|set| names(set) == names(&others)).unwrap_or_else(|| {
                all.push(others);
                all.len() - 1
            })
        })
    }
}

fn sorted<'a>(names: impl Iterator<Item = &'a String>) -> Vec<&'a str> {
    let mut names: Vec<_> = names.map(String::as_str).collect();
    names.sort_unstable();
    names
}
