//! What rules are told of the cluster.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use vfleet_api::SriovNetworkNodePolicySpec;
use vfleet_api::keys::IGNORED_POLICY;
use vfleet_api::operator_config::SriovOperatorConfigSpec;
use vfleet_plan::admission::{
    ConfigFacts, NodeClass, PolicyFacts, PoolFacts, PoolRival, ResourceFacts, largest_classes,
};
use vfleet_plan::gates::Gate;
use vfleet_plan::{NamedPolicy, NamedPool, pool, runs_agent, wants_bridge};

use super::cards::Cards;
use super::nodes::{Labels, Names, Node};
use super::{Cluster, agents_of, is_in};

/// Nodes with the same cards and the same policies.
struct Alike<'a> {
    cards: &'a Arc<Cards>,
    policies: &'a Arc<Names>,
    /// The first by name.
    example: &'a Node,
    count: usize,
}

impl Cluster {
    /// For a policy that somebody is about to write.
    pub(crate) fn policy_facts<'a>(&'a self, candidate: NamedPolicy<'a>) -> PolicyFacts<'a> {
        let (mut nodes, mut without_agent, mut without_cards) = (0, 0, 0);
        let mut alike: HashMap<(*const Cards, *const Names), Alike<'a>> = HashMap::new();
        let is_followed = candidate.name != IGNORED_POLICY;
        let selected = is_followed.then(|| self.nodes.with(&candidate.spec.node_selector));
        for node in selected.into_iter().flatten() {
            nodes += 1;
            match &node.cards {
                _ if !node.runs_agent => without_agent += 1,
                None => without_cards += 1,
                Some(cards) => {
                    let key = (Arc::as_ptr(cards), Arc::as_ptr(&node.policies));
                    let new = || Alike { cards, policies: &node.policies, example: node, count: 0 };
                    let found = alike.entry(key).or_insert_with(new);
                    found.count += 1;
                    if node.name < found.example.name {
                        found.example = node;
                    }
                }
            }
        }
        let (classes, classes_left_out) = largest_classes(self.classes(candidate.name, alike.into_values()));
        PolicyFacts {
            manage_software_bridges: self
                .config
                .as_ref()
                .is_some_and(|config| Gate::ManageSoftwareBridges.is_on(config)),
            nic_ids: self.nic_ids.as_ref(),
            nodes,
            without_agent,
            without_cards,
            classes,
            classes_left_out,
        }
    }

    /// The old version of the policy does not count. Without it, nodes may be alike that were not before.
    fn classes<'a>(&'a self, own: &str, alike: impl Iterator<Item = Alike<'a>>) -> Vec<NodeClass<'a>> {
        let mut companies = Companies::default();
        let mut classes: HashMap<(*const Cards, usize), NodeClass<'a>> = HashMap::new();
        for Alike { cards, policies, example, count } in alike {
            let company = companies.place_of(policies, own, |name| Some(&self.policies.get(name)?.spec));
            match classes.entry((Arc::as_ptr(cards), company)) {
                Entry::Vacant(place) => {
                    place.insert(NodeClass {
                        example: &example.name,
                        count,
                        labels: &example.labels,
                        cards: &cards.list,
                        others: companies.all[company].clone(),
                    });
                }
                Entry::Occupied(mut known) => {
                    let class = known.get_mut();
                    class.count += count;
                    if example.name.as_str() < class.example {
                        (class.example, class.labels) = (&example.name, &example.labels);
                    }
                }
            }
        }
        classes.into_values().collect()
    }

    /// For a pool that somebody is about to write.
    pub(crate) fn pool_facts<'a>(&'a self, candidate: &NamedPool<'_>) -> PoolFacts<'a> {
        let must_have =
            candidate.spec.node_selector.as_ref().and_then(|selector| selector.match_labels.as_ref());
        let no_labels = Labels::new();
        let mut selected = 0;
        // The first node by name of each list of pools, of which there are few.
        let mut first: HashMap<*const Names, &'a Node> = HashMap::new();
        let nodes = self.nodes.with(must_have.unwrap_or(&no_labels));
        for node in nodes.filter(|node| is_in(candidate, node)) {
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
        pool.is_some_and(|other| pool::are_rivals(candidate, &other))
    }

    /// For an operator config that shall be `new`, or shall go.
    pub(crate) fn config_facts(&self, new: Option<&SriovOperatorConfigSpec>) -> ConfigFacts<'_> {
        let busy = self.states.iter().filter(|(_, state)| state.is_in_progress);
        let policies = || self.policies.iter().filter(|(name, _)| *name != IGNORED_POLICY);
        let with_bridge = policies().filter(|(_, policy)| wants_bridge(&policy.spec));
        ConfigFacts {
            in_progress: in_order(busy.map(|(name, _)| name)),
            policies: in_order(policies().map(|(name, _)| name)),
            with_bridge: in_order(with_bridge.map(|(name, _)| name)),
            left_out: new.map(|new| self.left_out_by(new)).unwrap_or_default(),
        }
    }

    /// Nodes with VFs that run an agent now, and would run none with this config.
    fn left_out_by(&self, new: &SriovOperatorConfigSpec) -> Vec<&str> {
        let selector = agents_of(new);
        if self.config.as_ref().map(agents_of).as_ref() == Some(&selector) {
            return Vec::new();
        }
        let has_vfs = |node: &str| self.states.get(node).is_some_and(|state| state.has_vfs);
        let is_left_out =
            |node: &&Node| node.runs_agent && !runs_agent(&selector, &node.labels) && has_vfs(&node.name);
        in_order(self.nodes.iter().filter(is_left_out).map(|node| &node.name))
    }

    /// For a network that names this resource.
    pub(crate) fn resource_facts(&self, resource: &str) -> ResourceFacts<'_> {
        let policies = self.policies.iter().map(|(name, policy)| NamedPolicy { name, spec: &policy.spec });
        let mut offered_by: Vec<_> =
            policies.filter(|policy| policy.spec.resource_name == resource).collect();
        offered_by.sort_unstable_by_key(|policy| policy.name);
        ResourceFacts { offered_by }
    }
}

/// The other policies of nodes: there are few such lists, and many nodes with each.
#[derive(Default)]
struct Companies<'a> {
    all: Vec<Vec<NamedPolicy<'a>>>,
    places: HashMap<*const Names, usize>,
}

impl<'a> Companies<'a> {
    /// Where these policies are, but for the `own` one.
    fn place_of(
        &mut self,
        policies: &'a Arc<Names>,
        own: &str,
        spec: impl Fn(&str) -> Option<&'a SriovNetworkNodePolicySpec>,
    ) -> usize {
        let Self { all, places } = self;
        *places.entry(Arc::as_ptr(policies)).or_insert_with(|| {
            let others = policies.iter().filter(|name| *name != own);
            let others: Vec<_> =
                others.filter_map(|name| Some(NamedPolicy { name, spec: spec(name)? })).collect();
            let names =
                |policies: &[NamedPolicy<'a>]| policies.iter().map(|policy| policy.name).collect::<Vec<_>>();
            all.iter().position(|known| names(known) == names(&others)).unwrap_or_else(|| {
                all.push(others);
                all.len() - 1
            })
        })
    }
}

fn in_order<'a>(names: impl Iterator<Item = &'a String>) -> Vec<&'a str> {
    let mut names: Vec<_> = names.map(String::as_str).collect();
    names.sort_unstable();
    names
}
