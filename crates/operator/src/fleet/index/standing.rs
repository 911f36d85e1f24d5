//! Where a node stands, for those who count: its policies and its pool.

use vfleet_api::PciAddress;
use vfleet_api::node_state::DrainStatus;
use vfleet_plan::{PfAnswer, PfVerdict, PolicyAnswer, PolicyStanding};

use super::state::{NodeFailure, State, SyncStatus};
use super::{Decision, Fleet, Upkeep};

/// Where a node stands in its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PoolStanding {
    Waiting,
    Draining,
    Done,
    /// Anything else: being configured without a drain, failed, not reported yet.
    Other,
    /// Besides waiting or draining: it cannot go on.
    Blocked,
}

impl Fleet {
    /// Where the node stands for each policy that selects it.
    pub(crate) fn policy_standings<'a>(
        &'a self,
        node: &str,
        decision: &Decision,
        answers: &[PolicyAnswer],
    ) -> Vec<(&'a str, PolicyStanding)> {
        let Some(labels) = self.agent_node(node) else { return Vec::new() };
        let state = self.states.get(node).filter(|state| state.cards.is_some());
        let is_written = !matches!(decision, Decision::Update(Upkeep { spec: Some(_), .. }));
        let selecting = self.named_policies().into_iter();
        selecting
            .filter(|policy| vfleet_plan::selects_node(policy, labels))
            .map(|policy| {
                let answer = answers.iter().find(|answer| answer.policy == policy.name);
                let standing = match (state, answer) {
                    (None, _) => PolicyStanding::NoFacts,
                    (Some(_), None) => PolicyStanding::NoPf,
                    (Some(state), Some(answer)) => standing(answer, state, is_written),
                };
                (policy.name, standing)
            })
            .collect()
    }

    /// The node's pool, and where it stands there; also that it cannot go on.
    pub(crate) fn pool_standings(&self, node: &str) -> Vec<(&str, PoolStanding)> {
        let Some(pool) = self.agent_node(node).and_then(|labels| self.pool_of(node, labels)) else {
            return Vec::new();
        };
        let state = self.states.get(node);
        let standing = state.map_or(PoolStanding::Other, pool_standing);
        let is_blocked = matches!(standing, PoolStanding::Waiting | PoolStanding::Draining)
            && state.is_some_and(|state| state.blocked.is_some());
        let besides = is_blocked.then_some(PoolStanding::Blocked);
        [standing].into_iter().chain(besides).map(|standing| (pool, standing)).collect()
    }

    /// The sync and drain status of a node, for counting.
    pub(crate) fn progress_of(&self, node: &str) -> Option<(SyncStatus, Option<DrainStatus>)> {
        self.states.get(node).map(|state| (state.sync, state.drain))
    }
}

fn pool_standing(state: &State) -> PoolStanding {
    match state.drain.unwrap_or(DrainStatus::Idle) {
        DrainStatus::DrainRequired => PoolStanding::Waiting,
        DrainStatus::DrainingMcpPausing
        | DrainStatus::DrainingMcpPaused
        | DrainStatus::Draining
        | DrainStatus::DrainingComplete => PoolStanding::Draining,
        DrainStatus::Idle | DrainStatus::DrainDisabled if state.sync == SyncStatus::Succeeded => {
            PoolStanding::Done
        }
        DrainStatus::Idle | DrainStatus::DrainDisabled => PoolStanding::Other,
    }
}

fn standing(answer: &PolicyAnswer, state: &State, is_written: bool) -> PolicyStanding {
    let any = |is_it: fn(&PfVerdict) -> bool| answer.pfs.iter().any(|pf| is_it(&pf.verdict));
    if !answer.selects() {
        PolicyStanding::NoPf
    } else if any(|verdict| matches!(verdict, PfVerdict::Invalid(_))) {
        PolicyStanding::Fault
    } else if any(PfVerdict::is_conflict) {
        PolicyStanding::Conflict
    } else if any(|verdict| matches!(verdict, PfVerdict::Undecided(_))) {
        PolicyStanding::NoFacts
    } else if !is_written {
        PolicyStanding::Pending
    } else if failure_of(answer, state).is_some() {
        PolicyStanding::Failed
    } else if matches!(state.sync, SyncStatus::InProgress | SyncStatus::Unknown) {
        PolicyStanding::Pending
    } else if any(PfVerdict::is_outranked) {
        PolicyStanding::Outranked
    } else {
        PolicyStanding::Ready
    }
}

/// A failure of a card is a matter of the policies that select it, one of the whole node is everybody's.
pub(super) fn failure_of<'a>(answer: &PolicyAnswer, state: &'a State) -> Option<&'a NodeFailure> {
    let selected = |pf: PciAddress| {
        let is_it = |answer: &PfAnswer| answer.pci_address.value() == Ok(&pf);
        answer.pfs.iter().any(|pf| is_it(pf) && !matches!(pf.verdict, PfVerdict::NotSelected(_)))
    };
    state.failures.iter().find(|failure| failure.pf.is_none_or(selected))
}
