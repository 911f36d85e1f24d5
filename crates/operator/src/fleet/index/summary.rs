//! Summaries of policies and pools over their nodes, with one node as an example of a problem.

use vfleet_api::pool_config::PoolNodes;
use vfleet_api::{SriovNetworkNodePolicy, SriovNetworkPoolConfig};
use vfleet_cluster::guarded::UnreadableObject;
use vfleet_plan::{
    BlockedNode, NamedPool, NodeExample, PfEvaluation, PfOutcome, PolicyEvaluation, PolicyNodeCounts,
    PolicyNodeStatus, PoolSummary, drain, explain_no_matching_node, pool,
};

use super::node_status::find_failure;
use super::tally::NodesByStatus;
use super::{FleetIndex, PoolNodeStatus};

impl FleetIndex {
    pub(crate) fn find_policy(&self, name: &str) -> Option<&SriovNetworkNodePolicy> {
        self.policies.get(name)
    }

    pub(crate) fn find_unreadable_policy(&self, name: &str) -> Option<&UnreadableObject> {
        self.policies.unreadable(name)
    }

    pub(crate) fn find_pool(&self, name: &str) -> Option<&SriovNetworkPoolConfig> {
        self.pools.get(name)
    }

    /// Returns the number of slots that the pool has granted.
    pub(crate) fn count_slots(&self, pool: &str) -> usize {
        let slots = self.pools.get(pool).and_then(|pool| pool.status.as_ref()?.slots.as_ref());
        slots.map_or(0, Vec::len)
    }

    /// Counts the nodes of a policy by status, with an example of the worst status.
    pub(crate) fn count_policy_nodes(
        &self,
        policy: &str,
        statuses: Option<&NodesByStatus<PolicyNodeStatus>>,
    ) -> PolicyNodeCounts {
        let statuses = statuses.into_iter().flatten();
        let nodes: Vec<_> = statuses.clone().map(|(status, nodes)| (*status, nodes.len())).collect();
        let needs_example = |status: PolicyNodeStatus| {
            !matches!(status, PolicyNodeStatus::Pending | PolicyNodeStatus::NoFacts | PolicyNodeStatus::Ready)
        };
        let worst = statuses.filter(|(status, _)| needs_example(**status)).find_map(|(status, nodes)| {
            let node = nodes.first()?;
            Some(self.build_example(policy, *status, node))
        });
        let no_match = if nodes.is_empty() { self.explain_no_match(policy) } else { String::new() };
        PolicyNodeCounts { nodes, example: worst.flatten(), no_match }
    }

    /// Returns why no node with an agent matches the policy.
    fn explain_no_match(&self, policy: &str) -> String {
        let (Some(policy), Some(settings)) = (self.policies.get(policy), &self.settings) else {
            return "the operator config was not read yet".to_owned();
        };
        let nodes = self.nodes.iter().map(|(name, labels)| (name.as_str(), labels));
        explain_no_matching_node(&policy.spec.node_selector, &settings.node_selector, nodes)
    }

    fn build_example(&self, policy: &str, status: PolicyNodeStatus, node: &str) -> Option<NodeExample> {
        let state = self.states.get(node)?;
        let plan = self.plan(node, self.find_agent_node(node)?, state)?;
        let evaluation = plan.evaluations.iter().find(|evaluation| evaluation.policy == policy)?;
        let (reason, text) = match status {
            PolicyNodeStatus::Fault => {
                let fault = |pf: &PfEvaluation| match &pf.outcome {
                    PfOutcome::Invalid(fault) => Some((fault.reason(), pf.to_string())),
                    _ => None,
                };
                evaluation.pfs.iter().find_map(fault)?
            }
            PolicyNodeStatus::Conflict => {
                ("PolicyConflict", describe_first(evaluation, PfOutcome::is_conflict)?)
            }
            PolicyNodeStatus::Outranked => {
                ("Outranked", describe_first(evaluation, PfOutcome::is_outranked)?)
            }
            PolicyNodeStatus::Failed => {
                let failure = find_failure(evaluation, state)?;
                ("NodesFailed", format!("{}: {}", failure.reason, failure.message))
            }
            PolicyNodeStatus::NoPf => ("NoMatchingPf", evaluation.explain_no_pf()),
            PolicyNodeStatus::Pending | PolicyNodeStatus::NoFacts | PolicyNodeStatus::Ready => return None,
        };
        Some(NodeExample { node: node.to_owned(), reason, text })
    }

    /// Summarizes a pool over the statuses of its nodes.
    pub(crate) fn summarize_pool(
        &self,
        name: &str,
        pool: &SriovNetworkPoolConfig,
        statuses: Option<&NodesByStatus<PoolNodeStatus>>,
    ) -> PoolSummary {
        let nodes = count_pool_nodes(statuses);
        let named = NamedPool { name, spec: &pool.spec };
        let total = usize::try_from(nodes.total.unwrap_or(0)).unwrap_or(0);
        let blocked = statuses.and_then(|statuses| statuses.get(&PoolNodeStatus::Blocked)?.first());
        PoolSummary {
            fault: pool::find_faults(&pool.spec).into_iter().map(|(_, fault)| fault).next(),
            blocked: blocked.and_then(|node| {
                let message = self.states.get(node)?.blocked.clone()?;
                Some(BlockedNode { node: node.to_string(), message })
            }),
            limit: (!pool::is_for_offload_only(&pool.spec)).then(|| drain::drain_limit(&named, total)),
            nodes,
        }
    }
}

fn count_pool_nodes(statuses: Option<&NodesByStatus<PoolNodeStatus>>) -> PoolNodes {
    use PoolNodeStatus::{Blocked, Done, Draining, Other, Waiting};
    let count = |counted: &[PoolNodeStatus]| {
        let groups = statuses.into_iter().flatten().filter(|(status, _)| counted.contains(status));
        Some(groups.map(|(_, nodes)| i64::try_from(nodes.len()).unwrap_or(i64::MAX)).sum())
    };
    PoolNodes {
        total: count(&[Waiting, Draining, Done, Other]),
        waiting: count(&[Waiting]),
        draining: count(&[Draining]),
        done: count(&[Done]),
        blocked: count(&[Blocked]),
    }
}

fn describe_first(evaluation: &PolicyEvaluation, matches: fn(&PfOutcome) -> bool) -> Option<String> {
    evaluation.pfs.iter().find(|pf| matches(&pf.outcome)).map(ToString::to_string)
}
