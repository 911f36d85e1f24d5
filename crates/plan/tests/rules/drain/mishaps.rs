//! What others do to nodes, pools and clocks in the middle of a drain.

use vfleet_api::node_state::DrainStatus::{DrainRequired, Draining, DrainingComplete};
use vfleet_api::pool_config::OnTimeout;
use vfleet_plan::drain::{
    Blocked, Cordon, DrainFacts, Limit, Mark, Member, Moment, NodeAction, NodeFacts, PoolDrain, Rules,
    StateFacts, next, plan_drain,
};

use super::{RULES, action, cordoned, member, node_at, plan, sets, slots, with_node, with_state};

const NOW: Moment = Moment(1_000);

#[test]
fn a_cordon_that_was_found_and_taken_back_becomes_ours() {
    let found = Some(Mark { cordon: Cordon::Found, request: Moment(5) });
    let open = with_node(node_at(Draining, 5), |node| NodeFacts { mark: found, is_cordoned: false, ..node });
    let ours = NodeAction::Cordon(Mark { cordon: Cordon::Ours, request: Moment(5) });
    assert_eq!(action(&open, Some(5), RULES, NOW), ours);
    let complete = with_state(open, |state| StateFacts { status: DrainingComplete, ..state });
    assert_eq!(action(&complete, Some(5), RULES, NOW), ours, "also while the agent works");
}

#[test]
fn a_node_that_is_made_anew_is_drained_again() {
    let anew = node_at(DrainingComplete, 5);
    assert_eq!(action(&anew, Some(5), RULES, NOW), NodeAction::Verify);
    let anew = DrainFacts { is_verified: true, ..anew };
    assert_eq!(action(&anew, Some(5), RULES, NOW), sets(Draining, 5));
}

#[test]
fn the_slot_of_a_node_that_is_gone_is_free_when_its_drain_is_not_in_flight_any_more() {
    let gone = DrainFacts { node: None, is_verified: true, ..node_at(Draining, 5) };
    assert_eq!(action(&gone, Some(5), RULES, NOW), sets(DrainRequired, 1_000));
    let waiting = node_at(DrainRequired, 6);
    let planned = plan(Limit::AtMost(1), &[("a", 5)], &[("a", gone), ("b", waiting)]);
    assert_eq!(planned.slots.slots, slots(&[("a", 5)]));
    let put_back = with_state(gone, |state| StateFacts { status: DrainRequired, ..state });
    let planned = plan(Limit::AtMost(1), &[("a", 5)], &[("a", put_back), ("b", waiting)]);
    assert_eq!(planned.slots.slots, slots(&[("b", 6)]));
}

#[test]
fn a_slot_that_was_not_begun_with_does_not_move_to_another_pool() {
    let (a, b) = (node_at(DrainRequired, 5), node_at(DrainRequired, 4));
    let rules = RULES;
    let old = PoolDrain { limit: Limit::AtMost(1), slots: &slots(&[("a", 5)]), rules };
    let guest = Member { is_guest: true, ..member("a", &a) };
    assert_eq!(plan_drain(&old, &[guest], NOW).slots.conclude, slots(&[("a", 5)]));
    let new = PoolDrain { limit: Limit::AtMost(1), slots: &[], rules };
    let moved = Member { slot_elsewhere: Some(Moment(5)), ..member("a", &a) };
    assert_eq!(next(&new, &moved, NOW), NodeAction::Rest);
    assert_eq!(plan_drain(&new, &[moved, member("b", &b)], NOW).slots.slots, slots(&[("b", 4)]));
    // Once that request is over, it has another name and stands in line here.
    let over = with_node(a, |node| NodeFacts { last_request: Some(Moment(5)), is_cordoned: false, ..node });
    let over = DrainFacts { is_verified: true, ..over };
    assert_eq!(next(&new, &member("a", &over), NOW), sets(DrainRequired, 1_000));
}

#[test]
fn a_lowered_limit_takes_back_what_was_not_begun_with() {
    let nodes = [
        ("a", node_at(DrainRequired, 1)),
        ("b", cordoned(node_at(Draining, 2), 2)),
        ("c", node_at(DrainRequired, 3)),
    ];
    let listed = [("a", 1), ("b", 2), ("c", 3)];
    let planned = plan(Limit::AtMost(1), &listed, &nodes);
    assert_eq!(planned.slots.conclude, slots(&[("c", 3)]), "the latest");
    assert_eq!(planned.actions[0], NodeAction::Rest, "nobody begins while there are too many");
    let begun = plan(Limit::AtMost(1), &[("a", 1)], &nodes[..1]);
    assert_eq!(begun.actions[0], sets(Draining, 1));
}

#[test]
fn a_node_without_a_pool_and_one_that_another_drains_say_so() {
    let pool = PoolDrain { limit: Limit::NoPool, slots: &[], rules: RULES };
    let asked = node_at(DrainRequired, 5);
    assert_eq!(next(&pool, &member("a", &asked), NOW), NodeAction::Wait(Blocked::NoPool));
    let anothers = with_node(node_at(Draining, 5), |node| NodeFacts { is_anothers: true, ..node });
    assert_eq!(action(&anothers, Some(5), RULES, NOW), NodeAction::Wait(Blocked::AnotherDrains));
}

#[test]
fn a_cordon_that_never_comes_is_given_up_in_time() {
    let rules = Rules { on_timeout: OnTimeout::Release, timeout_seconds: Some(1), ..RULES };
    let draining =
        with_state(node_at(Draining, 5), |state| StateFacts { draining_since: Some(Moment(0)), ..state });
    let late = Moment(2_000_000);
    let NodeAction::Set { status, retry, .. } = action(&draining, Some(5), rules, late) else {
        panic!("released")
    };
    assert_eq!((status, retry.unwrap().times), (DrainRequired, 1));
}

#[test]
fn the_api_servers_clock_decides_who_asked_first() {
    let asked = |request, at| {
        with_state(node_at(DrainRequired, request), |state| StateFacts {
            asked_at: Some(Moment(at)),
            ..state
        })
    };
    let nodes = [("early-clock", asked(1, 20)), ("late-clock", asked(900, 10))];
    assert_eq!(plan(Limit::AtMost(1), &[], &nodes).slots.granted, ["late-clock"]);
}

#[test]
fn a_time_in_the_far_future_is_no_name() {
    let future = node_at(DrainRequired, i64::MAX);
    assert_eq!(action(&future, None, RULES, NOW), sets(DrainRequired, 1_000));
}

#[test]
fn an_agent_is_named_silent_also_where_a_drain_may_take_for_ever() {
    let rules = Rules { timeout_seconds: None, ..RULES };
    let complete = cordoned(node_at(DrainingComplete, 5), 5);
    let complete = with_state(complete, |state| StateFacts { completed_at: Some(Moment(0)), ..state });
    assert_eq!(action(&complete, Some(5), rules, NOW), NodeAction::Rest);
    let silent = NodeAction::Wait(Blocked::AgentSilent);
    assert_eq!(action(&complete, Some(5), rules, Moment(900_000_000)), silent);
}
