//! What is to be said about a policy or a pool, with one node as the example for those like it.

use vfleet_api::pool_config::PoolNodes;
use vfleet_api::{SriovNetworkNodePolicy, SriovNetworkPoolConfig};
use vfleet_cluster::guarded::Unreadable;
use vfleet_plan::{
    BlockedNode, Example, NamedPool, PfAnswer, PfVerdict, PolicyAnswer, PolicyCount, PolicyStanding,
    PoolSight, drain, pool,
};

use super::standing::failure_of;
use super::tally::Standings;
use super::{Fleet, PoolStanding};

impl Fleet {
    pub(crate) fn find_policy(&self, name: &str) -> Option<&SriovNetworkNodePolicy> {
        self.policies.get(name)
    }

    pub(crate) fn find_unreadable_policy(&self, name: &str) -> Option<&Unreadable> {
        self.policies.unreadable(name)
    }

    pub(crate) fn find_pool(&self, name: &str) -> Option<&SriovNetworkPoolConfig> {
        self.pools.get(name)
    }

    /// How many slots the pool has given.
    pub(crate) fn slots_of(&self, pool: &str) -> usize {
        let slots = self.pools.get(pool).and_then(|pool| pool.status.as_ref()?.slots.as_ref());
        slots.map_or(0, Vec::len)
    }

    /// The nodes of a policy, counted, with an example of the worst that needs an explanation.
    pub(crate) fn count_policy(
        &self,
        policy: &str,
        standings: Option<&Standings<PolicyStanding>>,
    ) -> PolicyCount {
        let standings = standings.into_iter().flatten();
        let nodes = standings.clone().map(|(standing, nodes)| (*standing, nodes.len())).collect();
        let explained = |standing: PolicyStanding| {
            !matches!(standing, PolicyStanding::Pending | PolicyStanding::NoFacts | PolicyStanding::Ready)
        };
        let worst = standings.filter(|(standing, _)| explained(**standing)).find_map(|(standing, nodes)| {
            let node = nodes.first()?;
            Some(self.example(policy, *standing, node))
        });
        PolicyCount { nodes, example: worst.flatten() }
    }

    fn example(&self, policy: &str, standing: PolicyStanding, node: &str) -> Option<Example> {
        let state = self.states.get(node)?;
        let plan = self.plan(node, self.agent_node(node)?, state)?;
        let answer = plan.answers.iter().find(|answer| answer.policy == policy)?;
        let (reason, text) = match standing {
            PolicyStanding::Fault => {
                let fault = |pf: &PfAnswer| match &pf.verdict {
                    PfVerdict::Invalid(fault) => Some((fault.reason(), pf.to_string())),
                    _ => None,
                };
                answer.pfs.iter().find_map(fault)?
            }
            PolicyStanding::Conflict => ("PolicyConflict", first(answer, PfVerdict::is_conflict)?),
            PolicyStanding::Outranked => ("Outranked", first(answer, PfVerdict::is_outranked)?),
            PolicyStanding::Failed => {
                let failure = failure_of(answer, state)?;
                ("NodesFailed", format!("{}: {}", failure.reason, failure.message))
            }
            PolicyStanding::NoPf => ("NoMatchingPf", answer.why_no_pf()),
            PolicyStanding::Pending | PolicyStanding::NoFacts | PolicyStanding::Ready => return None,
        };
        Some(Example { node: node.to_owned(), reason, text })
    }

    /// What is known about a pool, from where its nodes stand.
    pub(crate) fn see_pool(
        &self,
        name: &str,
        pool: &SriovNetworkPoolConfig,
        standings: Option<&Standings<PoolStanding>>,
    ) -> PoolSight {
        let nodes = count_pool(standings);
        let named = NamedPool { name, spec: &pool.spec };
        let total = usize::try_from(nodes.total.unwrap_or(0)).unwrap_or(0);
        let blocked = standings.and_then(|standings| standings.get(&PoolStanding::Blocked)?.first());
        PoolSight {
            fault: pool::faults(&pool.spec).into_iter().map(|(_, fault)| fault).next(),
            blocked: blocked.and_then(|node| {
                let message = self.states.get(node)?.blocked.clone()?;
                Some(BlockedNode { node: node.to_string(), message })
            }),
            limit: (!pool::is_for_offload_only(&pool.spec)).then(|| drain::limit(&named, total)),
            nodes,
        }
    }
}

fn count_pool(standings: Option<&Standings<PoolStanding>>) -> PoolNodes {
    use PoolStanding::{Blocked, Done, Draining, Other, Waiting};
    let count = |wanted: &[PoolStanding]| {
        let of = standings.into_iter().flatten().filter(|(standing, _)| wanted.contains(standing));
        Some(of.map(|(_, nodes)| i64::try_from(nodes.len()).unwrap_or(i64::MAX)).sum())
    };
    PoolNodes {
        total: count(&[Waiting, Draining, Done, Other]),
        waiting: count(&[Waiting]),
        draining: count(&[Draining]),
        done: count(&[Done]),
        blocked: count(&[Blocked]),
    }
}

fn first(answer: &PolicyAnswer, is_it: fn(&PfVerdict) -> bool) -> Option<String> {
    answer.pfs.iter().find(|pf| is_it(&pf.verdict)).map(ToString::to_string)
}
