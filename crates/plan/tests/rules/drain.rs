//! Who may drain now, and what comes next for each node. That the steps fit together, whoever takes them and whatever
//! goes wrong, is shown by `drain_model.rs`.

mod agent;
mod always;
mod limits;
mod mishaps;
mod node;
mod openshift;
mod pods;
mod slots;

use vfleet_api::node_state::DrainStatus;
use vfleet_api::pool_config::OnTimeout;
use vfleet_plan::drain::{
    Cordon, DrainFacts, DrainPlan, Limit, Mark, Member, Moment, NodeAction, NodeFacts, PodsSeen, PoolDrain,
    Retry, Rules, Slot, StateFacts, Writer, next, plan_drain,
};

const RULES: Rules = Rules {
    is_disabled: false,
    is_single_node: false,
    timeout_seconds: Some(900),
    on_timeout: OnTimeout::Wait,
};

const NODE: NodeFacts =
    NodeFacts { is_cordoned: false, mark: None, last_request: None, is_ready: true, is_anothers: false };

const STATUSES: [DrainStatus; 7] = [
    DrainStatus::Idle,
    DrainStatus::DrainDisabled,
    DrainStatus::DrainRequired,
    DrainStatus::DrainingMcpPausing,
    DrainStatus::DrainingMcpPaused,
    DrainStatus::Draining,
    DrainStatus::DrainingComplete,
];

/// A node whose agent asked at `request`, and whose drain is this far.
fn node_at(status: DrainStatus, request: i64) -> DrainFacts {
    let is_agents = matches!(status, DrainStatus::Idle | DrainStatus::DrainRequired);
    let state = StateFacts {
        status,
        writer: if is_agents { Writer::Agent } else { Writer::Operator },
        request: Some(Moment(request)),
        ..StateFacts::default()
    };
    DrainFacts { node: Some(NODE), state: Some(state), is_verified: false }
}

/// The same, with our cordon on it.
fn cordoned(facts: DrainFacts, request: i64) -> DrainFacts {
    let mark = Some(Mark { cordon: Cordon::Ours, request: Moment(request) });
    with_node(facts, |node| NodeFacts { is_cordoned: true, mark, ..node })
}

fn with_node(facts: DrainFacts, change: impl FnOnce(NodeFacts) -> NodeFacts) -> DrainFacts {
    DrainFacts { node: facts.node.map(change), ..facts }
}

fn with_state(facts: DrainFacts, change: impl FnOnce(StateFacts) -> StateFacts) -> DrainFacts {
    DrainFacts { state: facts.state.map(change), ..facts }
}

fn member<'a>(name: &'a str, facts: &'a DrainFacts) -> Member<'a> {
    Member { name, facts, is_guest: false, slot_elsewhere: None, pods: PodsSeen::No, mcp: None }
}

fn slots(listed: &[(&str, i64)]) -> Vec<Slot> {
    let slot = |(node, request): &(&str, i64)| Slot { node: (*node).to_owned(), request: Moment(*request) };
    listed.iter().map(slot).collect()
}

/// What is planned for a pool with these nodes, of which it lists these.
fn plan(limit: Limit, listed: &[(&str, i64)], nodes: &[(&str, DrainFacts)]) -> DrainPlan {
    let members: Vec<_> = nodes.iter().map(|(name, facts)| member(name, facts)).collect();
    plan_drain(&PoolDrain { limit, slots: &slots(listed), rules: RULES }, &members, Moment(1_000))
}

/// What comes next for a node that its pool lists for `slot`.
fn action(facts: &DrainFacts, slot: Option<i64>, rules: Rules, now: Moment) -> NodeAction {
    let listed: Vec<_> = slot.map(|request| ("a", request)).into_iter().collect();
    let pool = PoolDrain { limit: Limit::AtMost(1), slots: &slots(&listed), rules };
    next(&pool, &member("a", facts), now)
}

/// Sets the status, and nothing else.
fn sets(status: DrainStatus, request: i64) -> NodeAction {
    NodeAction::Set { status, request: Some(Moment(request)), retry: None, puts_right: false }
}

fn retry(times: u32, not_before: i64) -> Retry {
    Retry { times, not_before: Moment(not_before) }
}
