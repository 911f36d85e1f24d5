//! What comes next for one node.

use vfleet_api::node_state::{DrainScope, DrainStatus};
use vfleet_api::pool_config::OnTimeout;

use super::{Cordon, DrainFacts, Mark, Member, Moment, NodeFacts, Retry, StateFacts, Writer, is_in_flight};

/// An agent that is silent for longer is named where the pool sets no time.
const SILENCE_SECONDS: i64 = 900;
/// A clock that is ahead by more is wrong, and its time is no name for a request.
const FARTHEST_AHEAD_SECONDS: i64 = 3600;
const FIRST_RETRY_SECONDS: i64 = 60;
const LONGEST_RETRY_SECONDS: i64 = 30 * 60;

/// What holds for all nodes, or for all of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// `disableDrain` of the operator config.
    pub is_disabled: bool,
    /// Whether there is only this one node.
    pub is_single_node: bool,
    /// Seconds that a drain may take; `None` for ever.
    pub timeout_seconds: Option<i64>,
    /// What happens then.
    pub on_timeout: OnTimeout,
}

/// The node's pods, as far as they are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodsSeen {
    /// Not since the node was cordoned.
    No,
    /// Some are still there that are to go.
    Left,
    /// None of them is there any more.
    Gone,
}

/// OpenShift: what counts of the node's machine config pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "four facts, none of which follows from the others")]
pub struct McpFacts {
    /// We paused it, or are about to: our annotation.
    pub is_marked: bool,
    /// Whether it is paused.
    pub is_paused: bool,
    /// Whether there is a new config that its nodes do not all have: it brings it to them right now, unless it is paused.
    pub is_updating: bool,
    /// Whether another node of it is being drained, or is about to.
    pub others_drain: bool,
}

/// What blocks a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Blocked {
    /// It takes longer than it may.
    TimedOut,
    /// The machine config pool brings a new config to its nodes: no drain until it is done.
    McpUpdates,
    /// The node is drained, and its agent does not say that it is done.
    AgentSilent,
    /// Its pool lets no node be drained.
    NeverDrained,
    /// It belongs to no pool.
    NoPool,
    /// Another installation's operator drains it.
    AnotherDrains,
}

/// The slot of a node, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotSeen {
    /// The request that a pool lists the node for.
    pub(super) request: Option<Moment>,
    /// Its own pool lists it, for its request, and not too many others.
    pub(super) is_usable: bool,
}

/// What to do for a node. Every write is on top of the version of the object that it was decided on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeAction {
    /// Nothing until something changes.
    Rest,
    /// Nothing, and this is why.
    Wait(Blocked),
    /// Read both objects from the API server itself, and plan again: what we see of them does not fit together.
    Verify,
    /// Write the node state.
    Set {
        /// The new drain status.
        status: DrainStatus,
        /// The request that it is about.
        request: Option<Moment>,
        /// How often it was given up.
        retry: Option<Retry>,
        /// Whether the old one was written by somebody who may not.
        puts_right: bool,
    },
    /// Cordon the node, and mark it so.
    Cordon(Mark),
    /// Take off our mark, and the cordon if it is ours, and note that the request is over. Pods of DaemonSets whose VFs
    /// changed are started again first.
    Uncordon {
        /// The request that is over.
        request: Moment,
        /// A cordon that we found stays.
        stays_cordoned: bool,
    },
    /// Evict its pods. `is_late`: it takes longer than it may.
    Evict {
        /// Whether it takes longer than it may.
        is_late: bool,
    },
    /// Pause its machine config pool, and mark it so.
    PauseMcp,
    /// Take off the mark and let the machine config pool go on.
    UnpauseMcp,
}

impl Rules {
    /// Whether a drain is not done, but answered with `Drain_Disabled`.
    pub(super) fn refuse(&self, state: &StateFacts) -> bool {
        self.is_disabled || self.is_single_node && state.scope == DrainScope::Full
    }

    fn is_late(&self, since: Option<Moment>, now: Moment) -> bool {
        self.deadline(since).is_some_and(|deadline| deadline <= now)
    }

    fn deadline(&self, since: Option<Moment>) -> Option<Moment> {
        Some(since?.plus_seconds(self.timeout_seconds?))
    }

    /// When an agent has been silent for too long.
    fn silent_from(&self, since: Option<Moment>) -> Option<Moment> {
        Some(since?.plus_seconds(self.timeout_seconds.unwrap_or(SILENCE_SECONDS)))
    }
}

/// When something is to be done for a node although nothing has changed. May be over.
pub fn wakes_at(state: &StateFacts, rules: &Rules) -> Option<Moment> {
    match state.status {
        DrainStatus::DrainRequired => state.retry.map(|retry| retry.not_before),
        DrainStatus::Draining => rules.deadline(state.draining_since),
        DrainStatus::DrainingComplete => rules.silent_from(state.completed_at),
        _ => None,
    }
}

/// What comes next for a node.
pub(super) fn next(member: &Member<'_>, slot: SlotSeen, rules: &Rules, now: Moment) -> NodeAction {
    let (facts, mcp) = (member.facts, member.mcp);
    let Some(node) = facts.node else { return without_node(facts, now) };
    let Some(state) = facts.state else {
        let is_certain = facts.is_verified || node.mark.is_none();
        return if is_certain { leave(node, mcp) } else { NodeAction::Verify };
    };
    if state.is_external {
        return leave(node, mcp);
    }
    if is_older(&state, node, slot.request) && !facts.is_verified {
        return NodeAction::Verify;
    }
    if let Some(action) = put_right(&state, node).or_else(|| name(&state, node, slot.request, now)) {
        return action;
    }
    match state.status {
        DrainStatus::Idle | DrainStatus::DrainDisabled => leave(node, mcp),
        // The agent's to end, whatever is switched off meanwhile.
        DrainStatus::DrainingComplete => complete(&state, node, facts.is_verified, rules, now),
        _ if rules.refuse(&state) => set(&state, DrainStatus::DrainDisabled),
        DrainStatus::DrainRequired => begin(&state, node, slot.is_usable, mcp, now),
        DrainStatus::DrainingMcpPausing => pause(&state, mcp),
        DrainStatus::DrainingMcpPaused => paused(&state, mcp),
        DrainStatus::Draining => drain(&state, node, member.pods, rules, now),
    }
}

/// The Node is gone, and with it all that was begun. Should it come back, it is drained anew, with a slot of its own.
fn without_node(facts: &DrainFacts, now: Moment) -> NodeAction {
    match facts.state {
        Some(state) if facts.is_verified && is_in_flight(state.status) && !state.is_external => {
            NodeAction::Set {
                status: DrainStatus::DrainRequired,
                request: Some(Moment::later_than(state.request, now)),
                retry: state.retry,
                puts_right: false,
            }
        }
        _ => NodeAction::Rest,
    }
}

/// The agent is at work.
fn complete(
    state: &StateFacts,
    node: NodeFacts,
    is_verified: bool,
    rules: &Rules,
    now: Moment,
) -> NodeAction {
    match node.mark.filter(|mark| Some(mark.request) == state.request) {
        // The Node is not the one that was drained: it was made anew meanwhile.
        None if is_verified => set(state, DrainStatus::Draining),
        None => NodeAction::Verify,
        // Somebody uncordoned it, too early.
        Some(mark) if !node.is_cordoned => NodeAction::Cordon(Mark { cordon: Cordon::Ours, ..mark }),
        Some(_) if rules.silent_from(state.completed_at).is_some_and(|from| from <= now) => {
            NodeAction::Wait(Blocked::AgentSilent)
        }
        Some(_) => NodeAction::Rest,
    }
}

/// When a drain that was given up for the `times`-th time is tried again.
fn retry_after(times: u32, now: Moment) -> Moment {
    let seconds = FIRST_RETRY_SECONDS.saturating_mul(1 << times.saturating_sub(1).min(16));
    now.plus_seconds(seconds.min(LONGEST_RETRY_SECONDS))
}

/// Whether the node, or a pool's list, tells of a later request than its node state.
fn is_older(state: &StateFacts, node: NodeFacts, slot: Option<Moment>) -> bool {
    let is_concluded = node.last_request.is_some() && node.last_request >= state.request;
    let is_known_later = is_concluded || slot > state.request;
    node.mark.is_some_and(|mark| Some(mark.request) > state.request)
        || is_known_later && !is_at_rest(state.status)
}

const fn is_at_rest(status: DrainStatus) -> bool {
    matches!(status, DrainStatus::Idle | DrainStatus::DrainDisabled)
}

/// These are the operator's to write. Of somebody else's word nothing follows: what was done so far shows how far it is.
fn put_right(state: &StateFacts, node: NodeFacts) -> Option<NodeAction> {
    let is_anyones = matches!(state.status, DrainStatus::Idle | DrainStatus::DrainRequired);
    if is_anyones || state.writer == Writer::Operator {
        return None;
    }
    let is_drained_for_it = node.mark.is_some_and(|mark| Some(mark.request) == state.request);
    // A value that is there already would stay the other's.
    let goes_on = is_drained_for_it && state.status != DrainStatus::Draining;
    let status = if goes_on { DrainStatus::Draining } else { DrainStatus::DrainRequired };
    Some(NodeAction::Set { status, request: state.request, retry: state.retry, puts_right: true })
}

/// A request that nobody gave a time, or not a new one, has no name yet. It may be that the node state was made anew and
/// the agent's clock was set back.
fn name(state: &StateFacts, node: NodeFacts, slot: Option<Moment>, now: Moment) -> Option<NodeAction> {
    let begun = slot.max(node.mark.map(|mark| mark.request));
    let request = state.request.filter(|request| *request <= now.plus_seconds(FARTHEST_AHEAD_SECONDS));
    let is_new = request.is_some() && request > node.last_request && request >= begun;
    if is_new || is_at_rest(state.status) {
        return None;
    }
    let known = request.max(node.last_request).max(begun);
    Some(NodeAction::Set {
        status: DrainStatus::DrainRequired,
        request: Some(Moment::later_than(known, now)),
        retry: state.retry,
        puts_right: is_in_flight(state.status),
    })
}

/// No drain is wanted: everything as it was.
fn leave(node: NodeFacts, mcp: Option<McpFacts>) -> NodeAction {
    match (node.mark, mcp) {
        (Some(mark), _) => {
            NodeAction::Uncordon { request: mark.request, stays_cordoned: mark.cordon == Cordon::Found }
        }
        (None, Some(mcp)) if mcp.is_marked && !mcp.others_drain => NodeAction::UnpauseMcp,
        (None, _) => NodeAction::Rest,
    }
}

fn begin(
    state: &StateFacts,
    node: NodeFacts,
    is_granted: bool,
    mcp: Option<McpFacts>,
    now: Moment,
) -> NodeAction {
    let is_given_up = state.retry.is_some_and(|retry| now < retry.not_before);
    if is_given_up {
        return leave(node, mcp);
    }
    if !is_granted {
        // What an earlier request has paused goes on meanwhile.
        return if node.mark.is_none() { leave(node, mcp) } else { NodeAction::Rest };
    }
    set(state, if mcp.is_some() { DrainStatus::DrainingMcpPausing } else { DrainStatus::Draining })
}

fn pause(state: &StateFacts, mcp: Option<McpFacts>) -> NodeAction {
    match mcp {
        None => set(state, DrainStatus::Draining),
        // By us, or by somebody whose pause stays. It was written while there was no new config; one that came since
        // waits for the end of the pause.
        Some(mcp) if mcp.is_paused => set(state, DrainStatus::DrainingMcpPaused),
        Some(mcp) if mcp.is_updating => NodeAction::Wait(Blocked::McpUpdates),
        Some(_) => NodeAction::PauseMcp,
    }
}

/// Somebody may have let it go on meanwhile.
fn paused(state: &StateFacts, mcp: Option<McpFacts>) -> NodeAction {
    let is_paused = mcp.is_none_or(|mcp| mcp.is_paused);
    set(state, if is_paused { DrainStatus::Draining } else { DrainStatus::DrainingMcpPausing })
}

fn drain(state: &StateFacts, node: NodeFacts, pods: PodsSeen, rules: &Rules, now: Moment) -> NodeAction {
    let request = state.request.unwrap_or_default();
    let is_late = rules.is_late(state.draining_since, now);
    if is_late && pods != PodsSeen::Gone && rules.on_timeout == OnTimeout::Release {
        return release(state, request, now);
    }
    match node.mark {
        None if node.is_anothers => return NodeAction::Wait(Blocked::AnotherDrains),
        None => {
            let cordon = if node.is_cordoned { Cordon::Found } else { Cordon::Ours };
            return NodeAction::Cordon(Mark { cordon, request });
        }
        // Whoever cordoned it before took that back.
        Some(_) if !node.is_cordoned => {
            return NodeAction::Cordon(Mark { request, cordon: Cordon::Ours });
        }
        Some(mark) if mark.request != request => return NodeAction::Cordon(Mark { request, ..mark }),
        Some(_) => {}
    }
    if pods == PodsSeen::Gone {
        return set(state, DrainStatus::DrainingComplete);
    }
    NodeAction::Evict { is_late }
}

/// Gives the drain up for now.
fn release(state: &StateFacts, request: Moment, now: Moment) -> NodeAction {
    let times = state.retry.map_or(0, |retry| retry.times).saturating_add(1);
    let retry = Retry { times, not_before: retry_after(times, now) };
    // Another request, as this one is over with the uncordon; those who wait come first.
    NodeAction::Set {
        status: DrainStatus::DrainRequired,
        request: Some(Moment::later_than(Some(request), now)),
        retry: Some(retry),
        puts_right: false,
    }
}

/// How often it was given up is kept for as long as the request is the same: the agent forgets it with the next.
fn set(state: &StateFacts, status: DrainStatus) -> NodeAction {
    NodeAction::Set { status, request: state.request, retry: state.retry, puts_right: false }
}

#[cfg(test)]
mod tests {
    use super::super::{DrainFacts, Limit, PoolDrain, Slot};
    use super::*;
    use crate::prelude::*;

    const REQUEST: Moment = Moment(7);
    const FREE: McpFacts =
        McpFacts { is_marked: false, is_paused: false, is_updating: false, others_drain: false };
    const OURS: McpFacts = McpFacts { is_marked: true, is_paused: true, ..FREE };

    /// What comes next for a node with a slot in this state, whose machine config pool is like this.
    fn at(status: DrainStatus, mcp: McpFacts) -> NodeAction {
        let state =
            StateFacts { status, writer: Writer::Operator, request: Some(REQUEST), ..Default::default() };
        let facts = DrainFacts {
            node: Some(NodeFacts { is_ready: true, ..Default::default() }),
            state: Some(state),
            is_verified: false,
        };
        let member = Member {
            name: "n",
            facts: &facts,
            is_guest: false,
            slot_elsewhere: None,
            pods: PodsSeen::No,
            mcp: Some(mcp),
        };
        let rules = Rules {
            is_disabled: false,
            is_single_node: false,
            timeout_seconds: None,
            on_timeout: OnTimeout::Wait,
        };
        let slots = [Slot { node: "n".to_owned(), request: REQUEST }];
        super::super::next(&PoolDrain { limit: Limit::AtMost(1), slots: &slots, rules }, &member, REQUEST)
    }

    fn to(status: DrainStatus) -> NodeAction {
        NodeAction::Set { status, request: Some(REQUEST), retry: None, puts_right: false }
    }

    #[test]
    fn a_machine_config_pool_is_paused_before_the_drain() {
        use DrainStatus::{DrainRequired, Draining, DrainingMcpPaused, DrainingMcpPausing};
        assert_eq!(at(DrainRequired, FREE), to(DrainingMcpPausing));
        assert_eq!(at(DrainingMcpPausing, FREE), NodeAction::PauseMcp);
        assert_eq!(at(DrainingMcpPausing, OURS), to(DrainingMcpPaused));
        assert_eq!(at(DrainingMcpPaused, OURS), to(Draining));
        // Marked by somebody who was cut off, or let go on by hand.
        assert_eq!(at(DrainingMcpPausing, McpFacts { is_paused: false, ..OURS }), NodeAction::PauseMcp);
        assert_eq!(at(DrainingMcpPaused, McpFacts { is_paused: false, ..OURS }), to(DrainingMcpPausing));
    }

    #[test]
    fn a_machine_config_pool_at_work_goes_first() {
        let at_work = McpFacts { is_updating: true, ..FREE };
        let wait = NodeAction::Wait(Blocked::McpUpdates);
        assert_eq!(at(DrainStatus::DrainingMcpPausing, at_work), wait);
        let marked = McpFacts { is_marked: true, ..at_work };
        assert_eq!(at(DrainStatus::DrainingMcpPausing, marked), wait);
        // A config that came after our pause waits for its end.
        let later = McpFacts { is_updating: true, ..OURS };
        assert_eq!(at(DrainStatus::DrainingMcpPausing, later), to(DrainStatus::DrainingMcpPaused));
    }

    #[test]
    fn somebody_elses_pause_is_enough_and_stays() {
        let found = McpFacts { is_paused: true, ..FREE };
        assert_eq!(at(DrainStatus::DrainingMcpPausing, found), to(DrainStatus::DrainingMcpPaused));
        assert_eq!(at(DrainStatus::Idle, found), NodeAction::Rest);
    }

    #[test]
    fn the_last_node_lets_the_machine_config_pool_go_on() {
        assert_eq!(at(DrainStatus::Idle, OURS), NodeAction::UnpauseMcp);
        assert_eq!(at(DrainStatus::Idle, McpFacts { others_drain: true, ..OURS }), NodeAction::Rest);
        assert_eq!(at(DrainStatus::Idle, FREE), NodeAction::Rest);
    }
}
