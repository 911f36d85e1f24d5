//! Pause of the machine config pool around a drain.

use vfleet_api::node_state::DrainStatus::{
    DrainRequired, Draining, DrainingMcpPaused, DrainingMcpPausing, Idle,
};
use vfleet_plan::drain::{
    DrainFacts, DrainLimit, HoldReason, McpFacts, Moment, NodeAction, PoolDrain, PoolMember, next_action,
};

use super::{RULES, cordoned, member, node_at, sets, slots};

const FREE: McpFacts =
    McpFacts { is_marked: false, is_paused: false, is_updating: false, others_drain: false };
const OURS: McpFacts = McpFacts { is_marked: true, is_paused: true, ..FREE };

fn action(facts: &DrainFacts, mcp: Option<McpFacts>) -> NodeAction {
    let pool = PoolDrain { limit: DrainLimit::AtMost(1), slots: &slots(&[("a", 5)]), rules: RULES };
    next_action(&pool, &PoolMember { mcp, ..member("a", facts) }, Moment(9))
}

#[test]
fn the_pool_is_paused_before_the_drain() {
    assert_eq!(action(&node_at(DrainRequired, 5), Some(FREE)), sets(DrainingMcpPausing, 5));
    let pausing = node_at(DrainingMcpPausing, 5);
    assert_eq!(action(&pausing, Some(FREE)), NodeAction::PauseMcp);
    assert_eq!(action(&pausing, Some(McpFacts { is_paused: false, ..OURS })), NodeAction::PauseMcp);
    assert_eq!(action(&pausing, Some(OURS)), sets(DrainingMcpPaused, 5));
    assert_eq!(action(&node_at(DrainingMcpPaused, 5), Some(OURS)), sets(Draining, 5));
    assert_eq!(action(&pausing, None), sets(Draining, 5), "the node left its machine config pool");
}

#[test]
fn a_running_update_comes_first() {
    let pausing = node_at(DrainingMcpPausing, 5);
    let updating = |mcp| Some(McpFacts { is_updating: true, ..mcp });
    let hold = NodeAction::Hold(HoldReason::McpUpdating);
    assert_eq!(action(&pausing, updating(FREE)), hold);
    assert_eq!(
        action(&pausing, updating(OURS)),
        sets(DrainingMcpPaused, 5),
        "the update waits for the end of the pause"
    );
}

#[test]
fn the_pool_is_unpaused_after_its_last_drained_node() {
    let idle = node_at(Idle, 5);
    assert_eq!(action(&idle, Some(OURS)), NodeAction::UnpauseMcp);
    assert_eq!(action(&idle, Some(McpFacts { others_drain: true, ..OURS })), NodeAction::None);
    assert_eq!(action(&idle, Some(McpFacts { is_marked: false, ..OURS })), NodeAction::None, "another pause");
    let uncordons = NodeAction::Uncordon { request: Moment(5), stays_cordoned: false };
    assert_eq!(action(&cordoned(idle, 5), Some(OURS)), uncordons, "the node comes first");
}
