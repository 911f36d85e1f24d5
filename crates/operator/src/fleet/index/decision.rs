//! Decisions about the node state of one node.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use vfleet_api::SriovNetworkPoolConfig;
use vfleet_api::pool_config::RdmaMode;
use vfleet_plan::{
    Fact, NamedPool, NodeIdentity, NodeInput, NodePlan, NodeStateAction, PolicyEvaluation, plan_node_spec,
    pool, retire_node_state, update_node_state,
};

use super::state::FleetNodeState;
use super::{FleetIndex, Labels};

impl FleetIndex {
    /// Returns the action on the node state of node `name`, and the evaluation of each policy that selects the node.
    pub(crate) fn decide(
        &self,
        name: &str,
        stale_after: SignedDuration,
        now: Timestamp,
    ) -> (NodeStateAction, Vec<PolicyEvaluation>) {
        match (self.find_agent_node(name), self.states.get(name)) {
            (None, None) => (NodeStateAction::None, Vec::new()),
            // The node state was written by another version and cannot be parsed: leave it alone.
            (Some(_), None) if self.states.unreadable(name).is_some() => (NodeStateAction::None, Vec::new()),
            (Some(_), None) => (NodeStateAction::Create, Vec::new()),
            (None, Some(state)) => {
                let deadline = || now.checked_add(stale_after).unwrap_or(Timestamp::MAX);
                let deadline = (!stale_after.is_zero()).then(deadline);
                (retire_node_state(&state.facts(), deadline, now), Vec::new())
            }
            (Some(labels), Some(state)) => {
                let plan = self.plan(name, labels, state);
                let evaluations = plan.as_ref().map(|plan| plan.evaluations.clone()).unwrap_or_default();
                let could_lose_vfs = |plan: &NodePlan| {
                    let input = self.input(name, labels, state);
                    input.is_none_or(|input| plan.could_lose_vfs(&input, &self.policies.never_readable()))
                };
                let desired = plan.filter(|plan| !could_lose_vfs(plan)).map(|plan| plan.spec);
                let owner = self.settings.as_ref().map(|settings| settings.owner.as_str());
                (update_node_state(&state.facts(), owner, desired), evaluations)
            }
        }
    }

    /// Returns the desired state of the node; `None` before its cards are known.
    pub(super) fn plan(&self, name: &str, labels: &Labels, state: &FleetNodeState) -> Option<NodePlan> {
        let input = self.input(name, labels, state)?;
        Some(plan_node_spec(&self.named_policies(), &self.policies.never_readable(), &input))
    }

    fn input<'a>(
        &'a self,
        name: &str,
        labels: &'a Labels,
        state: &'a FleetNodeState,
    ) -> Option<NodeInput<'a>> {
        let settings = self.settings.as_ref()?;
        Some(NodeInput {
            labels,
            cards: state.cards.as_deref()?,
            current: &state.spec,
            rdma_mode: self.rdma_mode(name, labels),
            manage_software_bridges: settings.manage_software_bridges,
        })
    }

    /// Returns the RDMA mode of the node's pool. It is unknown while some pool cannot be evaluated, which may be the
    /// node's.
    fn rdma_mode(&self, name: &str, labels: &Labels) -> Fact<RdmaMode> {
        let node = NodeIdentity { name, labels };
        let cannot_be_evaluated = |(name, pool): (&String, &SriovNetworkPoolConfig)| {
            pool::selects(&NamedPool { name, spec: &pool.spec }, node).is_err()
        };
        if !self.pools.never_readable().is_empty() || self.pools.iter().any(cannot_be_evaluated) {
            return Fact::Unknown;
        }
        let pool = self.find_pool_of(name, labels).and_then(|pool| self.pools.get(pool));
        pool.and_then(|pool| pool.spec.rdma_mode).into()
    }
}
