//! Slots and next actions of drains. `drain_model.rs` checks the whole protocol with all interleavings and failures.

mod agent;
mod disturbances;
mod invariants;
mod limits;
mod node;
mod openshift;
mod pods;
mod slots;

use vfleet_api::node_state::DrainStatus;
use vfleet_api::pool_config::OnTimeout;
use vfleet_plan::drain::{
    CordonMark, CordonOrigin, DrainFacts, DrainLimit, DrainPlan, DrainRules, Moment, NodeAction, NodeFacts,
    PodsState, PoolDrain, PoolMember, RetryState, Slot, StateFacts, StatusWriter, next_action, plan_drain,
};

const RULES: DrainRules = DrainRules {
    is_disabled: false,
    is_single_node: false,
    timeout_seconds: Some(900),
    on_timeout: OnTimeout::Wait,
};

const NODE: NodeFacts = NodeFacts {
    is_cordoned: false,
    mark: None,
    last_request: None,
    is_ready: true,
    is_marked_by_other_installation: false,
};

const STATUSES: [DrainStatus; 7] = [
    DrainStatus::Idle,
    DrainStatus::DrainDisabled,
    DrainStatus::DrainRequired,
    DrainStatus::DrainingMcpPausing,
    DrainStatus::DrainingMcpPaused,
    DrainStatus::Draining,
    DrainStatus::DrainingComplete,
];

/// Returns a node with this drain status and a request at `request`.
fn node_at(status: DrainStatus, request: i64) -> DrainFacts {
    let is_of_agent = matches!(status, DrainStatus::Idle | DrainStatus::DrainRequired);
    let state = StateFacts {
        status,
        writer: if is_of_agent { StatusWriter::Agent } else { StatusWriter::Operator },
        request: Some(Moment(request)),
        ..StateFacts::default()
    };
    DrainFacts { node: Some(NODE), state: Some(state), is_verified: false }
}

/// Adds a cordon of the operator.
fn cordoned(facts: DrainFacts, request: i64) -> DrainFacts {
    let mark = Some(CordonMark { cordon: CordonOrigin::Ours, request: Moment(request) });
    with_node(facts, |node| NodeFacts { is_cordoned: true, mark, ..node })
}

fn with_node(facts: DrainFacts, change: impl FnOnce(NodeFacts) -> NodeFacts) -> DrainFacts {
    DrainFacts { node: facts.node.map(change), ..facts }
}

fn with_state(facts: DrainFacts, change: impl FnOnce(StateFacts) -> StateFacts) -> DrainFacts {
    DrainFacts { state: facts.state.map(change), ..facts }
}

fn member<'a>(name: &'a str, facts: &'a DrainFacts) -> PoolMember<'a> {
    PoolMember {
        name,
        facts,
        is_former_member: false,
        slot_in_other_pool: None,
        pods: PodsState::Unknown,
        mcp: None,
    }
}

fn slots(listed: &[(&str, i64)]) -> Vec<Slot> {
    let slot = |(node, request): &(&str, i64)| Slot { node: (*node).to_owned(), request: Moment(*request) };
    listed.iter().map(slot).collect()
}

/// Plans a pool with these nodes and slots.
fn plan(limit: DrainLimit, listed: &[(&str, i64)], nodes: &[(&str, DrainFacts)]) -> DrainPlan {
    let members: Vec<_> = nodes.iter().map(|(name, facts)| member(name, facts)).collect();
    plan_drain(&PoolDrain { limit, slots: &slots(listed), rules: RULES }, &members, Moment(1_000))
}

/// Returns the next action for a node whose pool lists it for `slot`.
fn action(facts: &DrainFacts, slot: Option<i64>, rules: DrainRules, now: Moment) -> NodeAction {
    let listed: Vec<_> = slot.map(|request| ("a", request)).into_iter().collect();
    let pool = PoolDrain { limit: DrainLimit::AtMost(1), slots: &slots(&listed), rules };
    next_action(&pool, &member("a", facts), now)
}

/// Returns the action that only sets the status.
fn sets(status: DrainStatus, request: i64) -> NodeAction {
    NodeAction::SetStatus { status, request: Some(Moment(request)), retry: None, is_correction: false }
}

fn retry(times: u32, not_before: i64) -> RetryState {
    RetryState { times, not_before: Moment(not_before) }
}
