//! What admission would say of policies and pools, with the fleet as it is.

use vfleet_api::node_state::InterfaceExt;
use vfleet_api::{PoolConfigView, SriovNetworkNodePolicy, SriovNetworkPoolConfig};
use vfleet_cluster::store::Changed;
use vfleet_plan::admission::{
    Classes, Findings, Installation, PoolFacts, PoolRival, Request, check_policy, check_pool, same_cards,
};
use vfleet_plan::{NamedPool, NodeIdentity, pool};

use super::state::State;
use super::{Fleet, Labels};

impl Fleet {
    /// Another number whenever rules for policies may find something else.
    pub(crate) fn policy_rules(&self) -> u64 {
        self.policy_rules
    }

    /// What is wrong with each policy. Nodes are grouped once for all of them: there may be thousands.
    pub(crate) fn judge_policies(&self, home: &Installation<'_>) -> Vec<(&SriovNetworkNodePolicy, Findings)> {
        // In order, so that the same is always said of the same fleet.
        let mut policies = self.named_policies();
        policies.sort_unstable_by_key(|policy| policy.name);
        let mut classes = Classes::new(policies);
        for (node, labels) in self.nodes.iter() {
            let cards = cards(self.states.get(node));
            let runs_agent = self.settings.as_ref().is_some_and(|settings| settings.selects(labels));
            classes.add(node, labels, runs_agent, cards);
        }
        let bridges = self.settings.as_ref().is_some_and(|settings| settings.manage_software_bridges);
        let judge = |name: &str, policy: &SriovNetworkNodePolicy| {
            let facts = classes.facts_of(name, bridges, self.nic_ids.as_ref());
            check_policy(&Request::creation(home.namespace, name, &policy.spec), home, Some(&facts))
        };
        self.policies.iter().map(|(name, policy)| (policy, judge(name, policy))).collect()
    }

    /// What is wrong with a pool.
    pub(crate) fn judge_pool(
        &self,
        name: &str,
        pool: &SriovNetworkPoolConfig,
        home: &Installation<'_>,
    ) -> Findings {
        let facts = self.pool_facts(&NamedPool { name, spec: &pool.spec });
        check_pool(&Request::creation(home.namespace, name, &PoolConfigView::from(pool)), home, Some(&facts))
    }

    fn pool_facts(&self, pool: &NamedPool<'_>) -> PoolFacts<'_> {
        let nodes: Vec<_> = self.nodes_by_name().into_iter().filter(|node| is_in(pool, *node)).collect();
        let others = self.pools.iter().map(|(name, other)| NamedPool { name, spec: &other.spec });
        let mut rivals: Vec<_> = others.filter(|other| pool::are_rivals(pool, other)).collect();
        rivals.sort_unstable_by_key(|rival| rival.name);
        let rival = rivals.into_iter().find_map(|rival| {
            let (node, _) = nodes.iter().find(|node| is_in(&rival, **node))?;
            Some(PoolRival { name: rival.name, node })
        });
        PoolFacts { selected: nodes.len(), rival }
    }

    fn nodes_by_name(&self) -> Vec<(&str, &Labels)> {
        let mut nodes: Vec<_> = self.nodes.iter().map(|(name, labels)| (name.as_str(), labels)).collect();
        nodes.sort_unstable_by_key(|(name, _)| *name);
        nodes
    }

    /// Whether rules may find something else on a node.
    pub(super) fn is_new_to_rules(&self, changed: &Changed<State>) -> bool {
        let some_are_outside =
            || self.policies.iter().any(|(_, policy)| policy.spec.externally_managed == Some(true));
        match (cards(changed.old.as_ref()), cards(self.states.get(&changed.name))) {
            (Some(old), Some(new)) => !same_cards(old, new, some_are_outside()),
            (old, new) => old.is_some() != new.is_some(),
        }
    }
}

fn is_in(pool: &NamedPool<'_>, (name, labels): (&str, &Labels)) -> bool {
    pool::selects(pool, NodeIdentity { name, labels }) == Ok(true)
}

fn cards(state: Option<&State>) -> Option<&[InterfaceExt]> {
    state?.cards.as_deref()
}
