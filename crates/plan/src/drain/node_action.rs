//! Next action for one node.

use vfleet_api::node_state::{DrainScope, DrainStatus};
use vfleet_api::pool_config::OnTimeout;

use super::{
    CordonMark, CordonOrigin, DrainFacts, Moment, NodeFacts, PoolMember, RetryState, StateFacts,
    StatusWriter, is_in_flight,
};

/// Time after which an unfinished agent is reported if the pool sets no timeout.
const DEFAULT_AGENT_TIMEOUT_SECONDS: i64 = 900;
/// A request time further ahead comes from a wrong clock and is not accepted.
const MAX_CLOCK_SKEW_SECONDS: i64 = 3600;
const FIRST_RETRY_SECONDS: i64 = 60;
const MAX_RETRY_SECONDS: i64 = 30 * 60;

/// Drain settings of a node's pool and of the operator config.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainRules {
    /// `disableDrain` of the operator config.
    pub is_disabled: bool,
    /// The cluster has only one node.
    pub is_single_node: bool,
    /// Timeout of a drain; `None` for no timeout.
    pub timeout_seconds: Option<i64>,
    /// Action on timeout.
    pub on_timeout: OnTimeout,
}

/// State of the pods that a drain evicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodsState {
    /// Not listed since the node was cordoned.
    Unknown,
    /// Some pods are still to be evicted or to terminate.
    Remaining,
    /// No such pod is left.
    Gone,
}

/// Facts about the node's machine config pool (OpenShift).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct McpFacts {
    /// The operator's annotation says that it paused the pool or is about to.
    pub is_marked: bool,
    /// `spec.paused` is set.
    pub is_paused: bool,
    /// Some nodes do not have the latest configuration: the pool rolls it out now unless it is paused.
    pub is_updating: bool,
    /// Another node of the pool is being drained or holds a slot.
    pub others_drain: bool,
}

/// Reason why a drain does not start or continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HoldReason {
    /// The drain exceeds its timeout.
    TimedOut,
    /// The machine config pool rolls out a new configuration.
    McpUpdating,
    /// The node is drained, but its agent has not finished in time.
    AgentNotFinished,
    /// The limit of the pool is 0.
    LimitZero,
    /// The node belongs to no pool.
    NoPool,
    /// The operator of another installation drains the node.
    OtherInstallation,
}

/// Slot of a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotFacts {
    /// Latest request for which a pool lists the node.
    pub(super) request: Option<Moment>,
    /// The pool of the node lists it for its current request and is within its limit.
    pub(super) is_usable: bool,
}

/// Next action for a node. Every write carries the resource version of the object that the decision is based on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeAction {
    /// Nothing to do until something changes.
    None,
    /// The drain does not start or continue.
    Hold(HoldReason),
    /// Read Node and node state from the API server and plan again: the watched objects contradict each other.
    Verify,
    /// Write the drain status of the node state.
    SetStatus {
        /// New drain status.
        status: DrainStatus,
        /// Request of the drain.
        request: Option<Moment>,
        /// Retry after timeouts.
        retry: Option<RetryState>,
        /// The write replaces a status that another client wrote without permission.
        is_correction: bool,
    },
    /// Cordon and mark the node.
    Cordon(CordonMark),
    /// Remove the mark, and the cordon if it is ours, and record that the request is finished. DaemonSet pods whose VFs
    /// changed are restarted first.
    Uncordon {
        /// Finished request.
        request: Moment,
        /// The node was cordoned before the drain.
        stays_cordoned: bool,
    },
    /// Evict the pods of the node.
    Evict {
        /// The drain exceeds its timeout.
        is_late: bool,
    },
    /// Pause and mark the machine config pool of the node.
    PauseMcp,
    /// Remove the mark and the pause of the machine config pool.
    UnpauseMcp,
}

impl DrainRules {
    /// Returns whether a request is answered with `Drain_Disabled` instead of a drain.
    pub(super) fn refuses(&self, state: &StateFacts) -> bool {
        self.is_disabled || self.is_single_node && state.scope == DrainScope::Full
    }

    fn is_late(&self, since: Option<Moment>, now: Moment) -> bool {
        self.deadline(since).is_some_and(|deadline| deadline <= now)
    }

    fn deadline(&self, since: Option<Moment>) -> Option<Moment> {
        Some(since?.plus_seconds(self.timeout_seconds?))
    }

    /// Returns the time at which an unfinished agent is reported.
    fn agent_deadline(&self, since: Option<Moment>) -> Option<Moment> {
        Some(since?.plus_seconds(self.timeout_seconds.unwrap_or(DEFAULT_AGENT_TIMEOUT_SECONDS)))
    }
}

/// Returns the time at which a node must be planned again even if nothing changes. May be in the past.
pub fn next_deadline(state: &StateFacts, rules: &DrainRules) -> Option<Moment> {
    match state.status {
        DrainStatus::DrainRequired => state.retry.map(|retry| retry.not_before),
        DrainStatus::Draining => rules.deadline(state.draining_since),
        DrainStatus::DrainingComplete => rules.agent_deadline(state.completed_at),
        _ => None,
    }
}

/// Returns the next action for a node.
pub(super) fn next_action(
    member: &PoolMember<'_>,
    slot: SlotFacts,
    rules: &DrainRules,
    now: Moment,
) -> NodeAction {
    let (facts, mcp) = (member.facts, member.mcp);
    let Some(node) = facts.node else { return without_node(facts, now) };
    let Some(state) = facts.state else {
        let is_certain = facts.is_verified || node.mark.is_none();
        return if is_certain { undo(node, mcp) } else { NodeAction::Verify };
    };
    if state.is_external {
        return undo(node, mcp);
    }
    if is_outdated(&state, node, slot.request) && !facts.is_verified {
        return NodeAction::Verify;
    }
    if let Some(action) =
        correct_status(&state, node).or_else(|| renew_request(&state, node, slot.request, now))
    {
        return action;
    }
    match state.status {
        DrainStatus::Idle | DrainStatus::DrainDisabled => undo(node, mcp),
        // Only the agent ends a completed drain, even if draining was disabled in the meantime.
        DrainStatus::DrainingComplete => await_agent(&state, node, facts.is_verified, rules, now),
        _ if rules.refuses(&state) => set_status(&state, DrainStatus::DrainDisabled),
        DrainStatus::DrainRequired => start(&state, node, slot.is_usable, mcp, now),
        DrainStatus::DrainingMcpPausing => pause_mcp(&state, mcp),
        DrainStatus::DrainingMcpPaused => check_pause(&state, mcp),
        DrainStatus::Draining => drain(&state, node, member.pods, rules, now),
    }
}

/// Action if the Node does not exist. A new Node of the same name is drained again, with a new slot.
fn without_node(facts: &DrainFacts, now: Moment) -> NodeAction {
    match facts.state {
        Some(state) if facts.is_verified && is_in_flight(state.status) && !state.is_external => {
            NodeAction::SetStatus {
                status: DrainStatus::DrainRequired,
                request: Some(Moment::later_than(state.request, now)),
                retry: state.retry,
                is_correction: false,
            }
        }
        _ => NodeAction::None,
    }
}

/// Action while the agent configures the machine.
fn await_agent(
    state: &StateFacts,
    node: NodeFacts,
    is_verified: bool,
    rules: &DrainRules,
    now: Moment,
) -> NodeAction {
    match node.mark.filter(|mark| Some(mark.request) == state.request) {
        // The Node was deleted and created again: it is not the one that was drained.
        None if is_verified => set_status(state, DrainStatus::Draining),
        None => NodeAction::Verify,
        // An administrator uncordoned the node too early.
        Some(mark) if !node.is_cordoned => {
            NodeAction::Cordon(CordonMark { cordon: CordonOrigin::Ours, ..mark })
        }
        Some(_) if rules.agent_deadline(state.completed_at).is_some_and(|deadline| deadline <= now) => {
            NodeAction::Hold(HoldReason::AgentNotFinished)
        }
        Some(_) => NodeAction::None,
    }
}

/// Returns the time of the next try after the `times`-th timeout.
fn retry_after(times: u32, now: Moment) -> Moment {
    let seconds = FIRST_RETRY_SECONDS.saturating_mul(1 << times.saturating_sub(1).min(16));
    now.plus_seconds(seconds.min(MAX_RETRY_SECONDS))
}

/// Returns whether the Node or a slot knows a later request than the node state.
fn is_outdated(state: &StateFacts, node: NodeFacts, slot: Option<Moment>) -> bool {
    let is_finished = node.last_request.is_some() && node.last_request >= state.request;
    let is_superseded = is_finished || slot > state.request;
    node.mark.is_some_and(|mark| Some(mark.request) > state.request)
        || is_superseded && !is_idle(state.status)
}

const fn is_idle(status: DrainStatus) -> bool {
    matches!(status, DrainStatus::Idle | DrainStatus::DrainDisabled)
}

/// Corrects a drain status that only the operator may write. The status of another writer is ignored: the mark on the
/// Node shows the progress.
fn correct_status(state: &StateFacts, node: NodeFacts) -> Option<NodeAction> {
    let is_free_to_write = matches!(state.status, DrainStatus::Idle | DrainStatus::DrainRequired);
    if is_free_to_write || state.writer == StatusWriter::Operator {
        return None;
    }
    let is_marked = node.mark.is_some_and(|mark| Some(mark.request) == state.request);
    // Writing the same value again would not change the owner of the field.
    let continues = is_marked && state.status != DrainStatus::Draining;
    let status = if continues { DrainStatus::Draining } else { DrainStatus::DrainRequired };
    Some(NodeAction::SetStatus { status, request: state.request, retry: state.retry, is_correction: true })
}

/// Gives a request a new time if it has none, or one that is not new: the node state may have been created again and
/// the agent's clock set back.
fn renew_request(
    state: &StateFacts,
    node: NodeFacts,
    slot: Option<Moment>,
    now: Moment,
) -> Option<NodeAction> {
    let started = slot.max(node.mark.map(|mark| mark.request));
    let request = state.request.filter(|request| *request <= now.plus_seconds(MAX_CLOCK_SKEW_SECONDS));
    let is_new = request.is_some() && request > node.last_request && request >= started;
    if is_new || is_idle(state.status) {
        return None;
    }
    let latest = request.max(node.last_request).max(started);
    Some(NodeAction::SetStatus {
        status: DrainStatus::DrainRequired,
        request: Some(Moment::later_than(latest, now)),
        retry: state.retry,
        is_correction: is_in_flight(state.status),
    })
}

/// Action if no drain is requested: undo cordon and pause.
fn undo(node: NodeFacts, mcp: Option<McpFacts>) -> NodeAction {
    match (node.mark, mcp) {
        (Some(mark), _) => NodeAction::Uncordon {
            request: mark.request,
            stays_cordoned: mark.cordon == CordonOrigin::Preexisting,
        },
        (None, Some(mcp)) if mcp.is_marked && !mcp.others_drain => NodeAction::UnpauseMcp,
        (None, _) => NodeAction::None,
    }
}

fn start(
    state: &StateFacts,
    node: NodeFacts,
    is_granted: bool,
    mcp: Option<McpFacts>,
    now: Moment,
) -> NodeAction {
    let is_delayed = state.retry.is_some_and(|retry| now < retry.not_before);
    if is_delayed {
        return undo(node, mcp);
    }
    if !is_granted {
        // A pause of an earlier request ends while this one waits.
        return if node.mark.is_none() { undo(node, mcp) } else { NodeAction::None };
    }
    set_status(state, if mcp.is_some() { DrainStatus::DrainingMcpPausing } else { DrainStatus::Draining })
}

fn pause_mcp(state: &StateFacts, mcp: Option<McpFacts>) -> NodeAction {
    match mcp {
        None => set_status(state, DrainStatus::Draining),
        // Paused by the operator, or by an administrator whose pause stays. A configuration that came after the pause
        // waits for its end.
        Some(mcp) if mcp.is_paused => set_status(state, DrainStatus::DrainingMcpPaused),
        Some(mcp) if mcp.is_updating => NodeAction::Hold(HoldReason::McpUpdating),
        Some(_) => NodeAction::PauseMcp,
    }
}

/// Checks the pause again, because an administrator may have ended it.
fn check_pause(state: &StateFacts, mcp: Option<McpFacts>) -> NodeAction {
    let is_paused = mcp.is_none_or(|mcp| mcp.is_paused);
    set_status(state, if is_paused { DrainStatus::Draining } else { DrainStatus::DrainingMcpPausing })
}

fn drain(
    state: &StateFacts,
    node: NodeFacts,
    pods: PodsState,
    rules: &DrainRules,
    now: Moment,
) -> NodeAction {
    let request = state.request.unwrap_or_default();
    let is_late = rules.is_late(state.draining_since, now);
    if is_late && pods != PodsState::Gone && rules.on_timeout == OnTimeout::Release {
        return release(state, request, now);
    }
    match node.mark {
        None if node.is_marked_by_other_installation => {
            return NodeAction::Hold(HoldReason::OtherInstallation);
        }
        None => {
            let cordon = if node.is_cordoned { CordonOrigin::Preexisting } else { CordonOrigin::Ours };
            return NodeAction::Cordon(CordonMark { cordon, request });
        }
        // The preexisting cordon was removed.
        Some(_) if !node.is_cordoned => {
            return NodeAction::Cordon(CordonMark { request, cordon: CordonOrigin::Ours });
        }
        Some(mark) if mark.request != request => return NodeAction::Cordon(CordonMark { request, ..mark }),
        Some(_) => {}
    }
    if pods == PodsState::Gone {
        return set_status(state, DrainStatus::DrainingComplete);
    }
    NodeAction::Evict { is_late }
}

/// Ends the drain after a timeout and schedules a retry.
fn release(state: &StateFacts, request: Moment, now: Moment) -> NodeAction {
    let times = state.retry.map_or(0, |retry| retry.times).saturating_add(1);
    let retry = RetryState { times, not_before: retry_after(times, now) };
    // A new request, because the uncordon finishes this one. Other waiting nodes come first.
    NodeAction::SetStatus {
        status: DrainStatus::DrainRequired,
        request: Some(Moment::later_than(Some(request), now)),
        retry: Some(retry),
        is_correction: false,
    }
}

/// Sets a new status and keeps the retry state, which the agent resets with its next request.
fn set_status(state: &StateFacts, status: DrainStatus) -> NodeAction {
    NodeAction::SetStatus { status, request: state.request, retry: state.retry, is_correction: false }
}

#[cfg(test)]
mod tests {
    use super::super::{DrainFacts, DrainLimit, PoolDrain, Slot};
    use super::*;
    use crate::prelude::*;

    const REQUEST: Moment = Moment(7);
    const FREE: McpFacts =
        McpFacts { is_marked: false, is_paused: false, is_updating: false, others_drain: false };
    const OURS: McpFacts = McpFacts { is_marked: true, is_paused: true, ..FREE };

    /// Returns the next action for a node with a slot, this status and this machine config pool.
    fn at(status: DrainStatus, mcp: McpFacts) -> NodeAction {
        let state = StateFacts {
            status,
            writer: StatusWriter::Operator,
            request: Some(REQUEST),
            ..Default::default()
        };
        let facts = DrainFacts {
            node: Some(NodeFacts { is_ready: true, ..Default::default() }),
            state: Some(state),
            is_verified: false,
        };
        let member = PoolMember {
            name: "n",
            facts: &facts,
            is_former_member: false,
            slot_in_other_pool: None,
            pods: PodsState::Unknown,
            mcp: Some(mcp),
        };
        let rules = DrainRules {
            is_disabled: false,
            is_single_node: false,
            timeout_seconds: None,
            on_timeout: OnTimeout::Wait,
        };
        let slots = [Slot { node: "n".to_owned(), request: REQUEST }];
        super::super::next_action(
            &PoolDrain { limit: DrainLimit::AtMost(1), slots: &slots, rules },
            &member,
            REQUEST,
        )
    }

    fn to(status: DrainStatus) -> NodeAction {
        NodeAction::SetStatus { status, request: Some(REQUEST), retry: None, is_correction: false }
    }

    #[test]
    fn a_machine_config_pool_is_paused_before_the_drain() {
        use DrainStatus::{DrainRequired, Draining, DrainingMcpPaused, DrainingMcpPausing};
        assert_eq!(at(DrainRequired, FREE), to(DrainingMcpPausing));
        assert_eq!(at(DrainingMcpPausing, FREE), NodeAction::PauseMcp);
        assert_eq!(at(DrainingMcpPausing, OURS), to(DrainingMcpPaused));
        assert_eq!(at(DrainingMcpPaused, OURS), to(Draining));
        // The operator crashed after the mark, or an administrator ended the pause.
        assert_eq!(at(DrainingMcpPausing, McpFacts { is_paused: false, ..OURS }), NodeAction::PauseMcp);
        assert_eq!(at(DrainingMcpPaused, McpFacts { is_paused: false, ..OURS }), to(DrainingMcpPausing));
    }

    #[test]
    fn an_updating_machine_config_pool_comes_first() {
        let updating = McpFacts { is_updating: true, ..FREE };
        let hold = NodeAction::Hold(HoldReason::McpUpdating);
        assert_eq!(at(DrainStatus::DrainingMcpPausing, updating), hold);
        let marked = McpFacts { is_marked: true, ..updating };
        assert_eq!(at(DrainStatus::DrainingMcpPausing, marked), hold);
        // A configuration that came after the pause waits for its end.
        let later = McpFacts { is_updating: true, ..OURS };
        assert_eq!(at(DrainStatus::DrainingMcpPausing, later), to(DrainStatus::DrainingMcpPaused));
    }

    #[test]
    fn a_pause_of_an_administrator_is_sufficient_and_stays() {
        let found = McpFacts { is_paused: true, ..FREE };
        assert_eq!(at(DrainStatus::DrainingMcpPausing, found), to(DrainStatus::DrainingMcpPaused));
        assert_eq!(at(DrainStatus::Idle, found), NodeAction::None);
    }

    #[test]
    fn the_last_node_ends_the_pause() {
        assert_eq!(at(DrainStatus::Idle, OURS), NodeAction::UnpauseMcp);
        assert_eq!(at(DrainStatus::Idle, McpFacts { others_drain: true, ..OURS }), NodeAction::None);
        assert_eq!(at(DrainStatus::Idle, FREE), NodeAction::None);
    }
}
