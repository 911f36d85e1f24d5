//! Admission rules, applied to stored policies and pools with the facts of the whole fleet.

use vfleet_api::node_state::InterfaceExt;
use vfleet_api::{PoolConfigView, SriovNetworkNodePolicy, SriovNetworkPoolConfig};
use vfleet_cluster::store::ObjectChange;
use vfleet_plan::admission::{
    Findings, Installation, NodeClasses, PoolFacts, PoolRival, Request, cards_match, check_policy, check_pool,
};
use vfleet_plan::{NamedPool, NodeIdentity, pool};

use super::state::FleetNodeState;
use super::{FleetIndex, Labels};

impl FleetIndex {
    /// Returns a number that changes when the rules for policies may have another result.
    pub(crate) fn rules_revision(&self) -> u64 {
        self.rules_revision
    }

    /// Checks all policies. Nodes are grouped once for all policies, because there may be thousands.
    pub(crate) fn check_policies(
        &self,
        installation: &Installation<'_>,
    ) -> Vec<(&SriovNetworkNodePolicy, Findings)> {
        // Sorted, so that the findings of the same fleet are always the same.
        let mut policies = self.named_policies();
        policies.sort_unstable_by_key(|policy| policy.name);
        let mut classes = NodeClasses::new(policies);
        for (node, labels) in self.nodes.iter() {
            let cards = cards(self.states.get(node));
            let runs_agent = self.settings.as_ref().is_some_and(|settings| settings.selects(labels));
            classes.add(node, labels, runs_agent, cards);
        }
        let bridges = self.settings.as_ref().is_some_and(|settings| settings.manage_software_bridges);
        let check = |name: &str, policy: &SriovNetworkNodePolicy| {
            let facts = classes.collect_facts(name, bridges, self.nic_ids.as_ref());
            check_policy(
                &Request::creation(installation.namespace, name, &policy.spec),
                installation,
                Some(&facts),
            )
        };
        self.policies.iter().map(|(name, policy)| (policy, check(name, policy))).collect()
    }

    /// Checks a pool.
    pub(crate) fn check_pool_config(
        &self,
        name: &str,
        pool: &SriovNetworkPoolConfig,
        installation: &Installation<'_>,
    ) -> Findings {
        let facts = self.collect_pool_facts(&NamedPool { name, spec: &pool.spec });
        check_pool(
            &Request::creation(installation.namespace, name, &PoolConfigView::from(pool)),
            installation,
            Some(&facts),
        )
    }

    fn collect_pool_facts(&self, pool: &NamedPool<'_>) -> PoolFacts<'_> {
        let nodes: Vec<_> = self.nodes_by_name().into_iter().filter(|node| selects(pool, *node)).collect();
        let others = self.pools.iter().map(|(name, other)| NamedPool { name, spec: &other.spec });
        let mut rivals: Vec<_> = others.filter(|other| pool::have_equal_rank(pool, other)).collect();
        rivals.sort_unstable_by_key(|rival| rival.name);
        let rival = rivals.into_iter().find_map(|rival| {
            let (node, _) = nodes.iter().find(|node| selects(&rival, **node))?;
            Some(PoolRival { name: rival.name, node })
        });
        PoolFacts { selected: nodes.len(), rival }
    }

    fn nodes_by_name(&self) -> Vec<(&str, &Labels)> {
        let mut nodes: Vec<_> = self.nodes.iter().map(|(name, labels)| (name.as_str(), labels)).collect();
        nodes.sort_unstable_by_key(|(name, _)| *name);
        nodes
    }

    /// Returns whether the rules may have another result after the change of a node state.
    pub(super) fn affects_rules(&self, change: &ObjectChange<FleetNodeState>) -> bool {
        let has_externally_managed =
            || self.policies.iter().any(|(_, policy)| policy.spec.externally_managed == Some(true));
        match (cards(change.old.as_ref()), cards(self.states.get(&change.name))) {
            (Some(old), Some(new)) => !cards_match(old, new, has_externally_managed()),
            (old, new) => old.is_some() != new.is_some(),
        }
    }
}

fn selects(pool: &NamedPool<'_>, (name, labels): (&str, &Labels)) -> bool {
    pool::selects(pool, NodeIdentity { name, labels }) == Ok(true)
}

fn cards(state: Option<&FleetNodeState>) -> Option<&[InterfaceExt]> {
    state?.cards.as_deref()
}
