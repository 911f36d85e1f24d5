//! Around a drain the machine config pool is paused.

use vfleet_api::node_state::DrainStatus::{
    DrainRequired, Draining, DrainingMcpPaused, DrainingMcpPausing, Idle,
};
use vfleet_plan::drain::{Blocked, DrainFacts, Limit, McpFacts, Member, Moment, NodeAction, PoolDrain, next};

use super::{RULES, cordoned, member, node_at, sets, slots};

const FREE: McpFacts =
    McpFacts { is_marked: false, is_paused: false, is_updating: false, others_drain: false };
const OURS: McpFacts = McpFacts { is_marked: true, is_paused: true, ..FREE };

fn action(facts: &DrainFacts, mcp: Option<McpFacts>) -> NodeAction {
    let pool = PoolDrain { limit: Limit::AtMost(1), slots: &slots(&[("a", 5)]), rules: RULES };
    next(&pool, &Member { mcp, ..member("a", facts) }, Moment(9))
}

#[test]
fn it_is_paused_before_the_drain() {
    assert_eq!(action(&node_at(DrainRequired, 5), Some(FREE)), sets(DrainingMcpPausing, 5));
    let pausing = node_at(DrainingMcpPausing, 5);
    assert_eq!(action(&pausing, Some(FREE)), NodeAction::PauseMcp);
    assert_eq!(action(&pausing, Some(McpFacts { is_paused: false, ..OURS })), NodeAction::PauseMcp);
    assert_eq!(action(&pausing, Some(OURS)), sets(DrainingMcpPaused, 5));
    assert_eq!(action(&node_at(DrainingMcpPaused, 5), Some(OURS)), sets(Draining, 5));
    assert_eq!(action(&pausing, None), sets(Draining, 5), "the node left its machine config pool");
}

#[test]
fn an_update_on_its_way_goes_first() {
    let pausing = node_at(DrainingMcpPausing, 5);
    let updates = |mcp| Some(McpFacts { is_updating: true, ..mcp });
    let waits = NodeAction::Wait(Blocked::McpUpdates);
    assert_eq!(action(&pausing, updates(FREE)), waits);
    assert_eq!(
        action(&pausing, updates(OURS)),
        sets(DrainingMcpPaused, 5),
        "it waits for the end of our pause"
    );
}

#[test]
fn it_goes_on_when_the_last_of_its_nodes_is_done_or_needs_no_drain_any_more() {
    let idle = node_at(Idle, 5);
    assert_eq!(action(&idle, Some(OURS)), NodeAction::UnpauseMcp);
    assert_eq!(action(&idle, Some(McpFacts { others_drain: true, ..OURS })), NodeAction::Rest);
    assert_eq!(action(&idle, Some(McpFacts { is_marked: false, ..OURS })), NodeAction::Rest, "not our pause");
    let uncordons = NodeAction::Uncordon { request: Moment(5), stays_cordoned: false };
    assert_eq!(action(&cordoned(idle, 5), Some(OURS)), uncordons, "first the node");
}
