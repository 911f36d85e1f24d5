//! Changes of nodes, pools and clocks during a drain.

use vfleet_api::node_state::DrainStatus::{DrainRequired, Draining, DrainingComplete};
use vfleet_api::pool_config::OnTimeout;
use vfleet_plan::drain::{
    CordonMark, CordonOrigin, DrainFacts, DrainLimit, DrainRules, HoldReason, Moment, NodeAction, NodeFacts,
    PoolDrain, PoolMember, StateFacts, next_action, plan_drain,
};

use super::{RULES, action, cordoned, member, node_at, plan, sets, slots, with_node, with_state};

const NOW: Moment = Moment(1_000);

#[test]
fn a_removed_preexisting_cordon_is_replaced_by_ours() {
    let found = Some(CordonMark { cordon: CordonOrigin::Preexisting, request: Moment(5) });
    let open = with_node(node_at(Draining, 5), |node| NodeFacts { mark: found, is_cordoned: false, ..node });
    let ours = NodeAction::Cordon(CordonMark { cordon: CordonOrigin::Ours, request: Moment(5) });
    assert_eq!(action(&open, Some(5), RULES, NOW), ours);
    let complete = with_state(open, |state| StateFacts { status: DrainingComplete, ..state });
    assert_eq!(action(&complete, Some(5), RULES, NOW), ours, "also while the agent configures the machine");
}

#[test]
fn a_recreated_node_is_drained_again() {
    let recreated = node_at(DrainingComplete, 5);
    assert_eq!(action(&recreated, Some(5), RULES, NOW), NodeAction::Verify);
    let recreated = DrainFacts { is_verified: true, ..recreated };
    assert_eq!(action(&recreated, Some(5), RULES, NOW), sets(Draining, 5));
}

#[test]
fn the_slot_of_a_deleted_node_is_freed_after_its_status_is_reset() {
    let gone = DrainFacts { node: None, is_verified: true, ..node_at(Draining, 5) };
    assert_eq!(action(&gone, Some(5), RULES, NOW), sets(DrainRequired, 1_000));
    let waiting = node_at(DrainRequired, 6);
    let planned = plan(DrainLimit::AtMost(1), &[("a", 5)], &[("a", gone), ("b", waiting)]);
    assert_eq!(planned.slots.slots, slots(&[("a", 5)]));
    let reset = with_state(gone, |state| StateFacts { status: DrainRequired, ..state });
    let planned = plan(DrainLimit::AtMost(1), &[("a", 5)], &[("a", reset), ("b", waiting)]);
    assert_eq!(planned.slots.slots, slots(&[("b", 6)]));
}

#[test]
fn a_slot_without_a_started_drain_does_not_move_to_another_pool() {
    let (a, b) = (node_at(DrainRequired, 5), node_at(DrainRequired, 4));
    let rules = RULES;
    let old = PoolDrain { limit: DrainLimit::AtMost(1), slots: &slots(&[("a", 5)]), rules };
    let former = PoolMember { is_former_member: true, ..member("a", &a) };
    assert_eq!(plan_drain(&old, &[former], NOW).slots.conclude, slots(&[("a", 5)]));
    let new = PoolDrain { limit: DrainLimit::AtMost(1), slots: &[], rules };
    let moved = PoolMember { slot_in_other_pool: Some(Moment(5)), ..member("a", &a) };
    assert_eq!(next_action(&new, &moved, NOW), NodeAction::None);
    assert_eq!(plan_drain(&new, &[moved, member("b", &b)], NOW).slots.slots, slots(&[("b", 4)]));
    // When that request is finished, it gets a new time and waits in the new pool.
    let finished =
        with_node(a, |node| NodeFacts { last_request: Some(Moment(5)), is_cordoned: false, ..node });
    let finished = DrainFacts { is_verified: true, ..finished };
    assert_eq!(next_action(&new, &member("a", &finished), NOW), sets(DrainRequired, 1_000));
}

#[test]
fn a_lowered_limit_revokes_slots_without_a_started_drain() {
    let nodes = [
        ("a", node_at(DrainRequired, 1)),
        ("b", cordoned(node_at(Draining, 2), 2)),
        ("c", node_at(DrainRequired, 3)),
    ];
    let listed = [("a", 1), ("b", 2), ("c", 3)];
    let planned = plan(DrainLimit::AtMost(1), &listed, &nodes);
    assert_eq!(planned.slots.conclude, slots(&[("c", 3)]), "the latest");
    assert_eq!(planned.actions[0], NodeAction::None, "no drain starts above the limit");
    let started = plan(DrainLimit::AtMost(1), &[("a", 1)], &nodes[..1]);
    assert_eq!(started.actions[0], sets(Draining, 1));
}

#[test]
fn nodes_without_a_pool_or_with_another_installation_are_held() {
    let pool = PoolDrain { limit: DrainLimit::NoPool, slots: &[], rules: RULES };
    let requested = node_at(DrainRequired, 5);
    assert_eq!(next_action(&pool, &member("a", &requested), NOW), NodeAction::Hold(HoldReason::NoPool));
    let foreign =
        with_node(node_at(Draining, 5), |node| NodeFacts { is_marked_by_other_installation: true, ..node });
    assert_eq!(action(&foreign, Some(5), RULES, NOW), NodeAction::Hold(HoldReason::OtherInstallation));
}

#[test]
fn a_drain_without_a_cordon_is_released_on_timeout() {
    let rules = DrainRules { on_timeout: OnTimeout::Release, timeout_seconds: Some(1), ..RULES };
    let draining =
        with_state(node_at(Draining, 5), |state| StateFacts { draining_since: Some(Moment(0)), ..state });
    let late = Moment(2_000_000);
    let NodeAction::SetStatus { status, retry, .. } = action(&draining, Some(5), rules, late) else {
        panic!("released")
    };
    assert_eq!((status, retry.unwrap().times), (DrainRequired, 1));
}

#[test]
fn the_clock_of_the_api_server_decides_which_request_is_first() {
    let requested = |request, at| {
        with_state(node_at(DrainRequired, request), |state| StateFacts {
            requested_at: Some(Moment(at)),
            ..state
        })
    };
    let nodes = [("early-clock", requested(1, 20)), ("late-clock", requested(900, 10))];
    assert_eq!(plan(DrainLimit::AtMost(1), &[], &nodes).slots.granted, ["late-clock"]);
}

#[test]
fn a_request_time_in_the_far_future_is_replaced() {
    let future = node_at(DrainRequired, i64::MAX);
    assert_eq!(action(&future, None, RULES, NOW), sets(DrainRequired, 1_000));
}

#[test]
fn an_unfinished_agent_is_reported_even_without_a_timeout() {
    let rules = DrainRules { timeout_seconds: None, ..RULES };
    let complete = cordoned(node_at(DrainingComplete, 5), 5);
    let complete = with_state(complete, |state| StateFacts { completed_at: Some(Moment(0)), ..state });
    assert_eq!(action(&complete, Some(5), rules, NOW), NodeAction::None);
    let hold = NodeAction::Hold(HoldReason::AgentNotFinished);
    assert_eq!(action(&complete, Some(5), rules, Moment(900_000_000)), hold);
}
