//! Status of a node for each of its policies and for its pool.

use vfleet_api::PciAddress;
use vfleet_api::node_state::DrainStatus;
use vfleet_plan::{
    NodeStateAction, NodeStateUpdate, PfEvaluation, PfOutcome, PolicyEvaluation, PolicyNodeStatus,
};

use super::FleetIndex;
use super::state::{FleetNodeState, NodeFailure, SyncStatus};

/// Status of a node in its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PoolNodeStatus {
    Waiting,
    Draining,
    Done,
    /// Any other status: configured without a drain, failed, not reported yet.
    Other,
    /// Drain is blocked, in addition to waiting or draining.
    Blocked,
}

impl FleetIndex {
    /// Returns the status of the node for each policy that selects it.
    pub(crate) fn policy_statuses<'a>(
        &'a self,
        node: &str,
        action: &NodeStateAction,
        evaluations: &[PolicyEvaluation],
    ) -> Vec<(&'a str, PolicyNodeStatus)> {
        let Some(labels) = self.find_agent_node(node) else { return Vec::new() };
        let state = self.states.get(node).filter(|state| state.cards.is_some());
        let is_written = !matches!(action, NodeStateAction::Update(NodeStateUpdate { spec: Some(_), .. }));
        let selecting = self.named_policies().into_iter();
        selecting
            .filter(|policy| vfleet_plan::selects_node(policy, labels))
            .map(|policy| {
                let evaluation = evaluations.iter().find(|evaluation| evaluation.policy == policy.name);
                let status = match (state, evaluation) {
                    (None, _) => PolicyNodeStatus::NoFacts,
                    (Some(_), None) => PolicyNodeStatus::NoPf,
                    (Some(state), Some(evaluation)) => policy_node_status(evaluation, state, is_written),
                };
                (policy.name, status)
            })
            .collect()
    }

    /// Returns the pool of the node with its status there, and with [`PoolNodeStatus::Blocked`] if its drain is
    /// blocked.
    pub(crate) fn pool_statuses(&self, node: &str) -> Vec<(&str, PoolNodeStatus)> {
        let Some(pool) = self.find_agent_node(node).and_then(|labels| self.find_pool_of(node, labels)) else {
            return Vec::new();
        };
        let state = self.states.get(node);
        let status = state.map_or(PoolNodeStatus::Other, pool_node_status);
        let is_blocked = matches!(status, PoolNodeStatus::Waiting | PoolNodeStatus::Draining)
            && state.is_some_and(|state| state.blocked.is_some());
        let blocked = is_blocked.then_some(PoolNodeStatus::Blocked);
        [status].into_iter().chain(blocked).map(|status| (pool, status)).collect()
    }

    /// Returns the sync status and drain status of a node.
    pub(crate) fn sync_and_drain_status(&self, node: &str) -> Option<(SyncStatus, Option<DrainStatus>)> {
        self.states.get(node).map(|state| (state.sync, state.drain))
    }
}

fn pool_node_status(state: &FleetNodeState) -> PoolNodeStatus {
    match state.drain.unwrap_or(DrainStatus::Idle) {
        DrainStatus::DrainRequired => PoolNodeStatus::Waiting,
        DrainStatus::DrainingMcpPausing
        | DrainStatus::DrainingMcpPaused
        | DrainStatus::Draining
        | DrainStatus::DrainingComplete => PoolNodeStatus::Draining,
        DrainStatus::Idle | DrainStatus::DrainDisabled if state.sync == SyncStatus::Succeeded => {
            PoolNodeStatus::Done
        }
        DrainStatus::Idle | DrainStatus::DrainDisabled => PoolNodeStatus::Other,
    }
}

fn policy_node_status(
    evaluation: &PolicyEvaluation,
    state: &FleetNodeState,
    is_written: bool,
) -> PolicyNodeStatus {
    let any = |matches: fn(&PfOutcome) -> bool| evaluation.pfs.iter().any(|pf| matches(&pf.outcome));
    if !evaluation.selects() {
        PolicyNodeStatus::NoPf
    } else if any(|outcome| matches!(outcome, PfOutcome::Invalid(_))) {
        PolicyNodeStatus::Fault
    } else if any(PfOutcome::is_conflict) {
        PolicyNodeStatus::Conflict
    } else if any(|outcome| matches!(outcome, PfOutcome::Undecided(_))) {
        PolicyNodeStatus::NoFacts
    } else if !is_written {
        PolicyNodeStatus::Pending
    } else if find_failure(evaluation, state).is_some() {
        PolicyNodeStatus::Failed
    } else if matches!(state.sync, SyncStatus::InProgress | SyncStatus::Unknown) {
        PolicyNodeStatus::Pending
    } else if any(PfOutcome::is_outranked) {
        PolicyNodeStatus::Outranked
    } else {
        PolicyNodeStatus::Ready
    }
}

/// Returns a failure that concerns the policy: of a card that it selects, or of the whole node.
pub(super) fn find_failure<'a>(
    evaluation: &PolicyEvaluation,
    state: &'a FleetNodeState,
) -> Option<&'a NodeFailure> {
    let selected = |pf: PciAddress| {
        let has_address = |evaluated: &PfEvaluation| evaluated.pci_address.value() == Ok(&pf);
        evaluation.pfs.iter().any(|pf| has_address(pf) && !matches!(pf.outcome, PfOutcome::NotSelected(_)))
    };
    state.failures.iter().find(|failure| failure.pf.is_none_or(selected))
}
