//! What comes next for one node.

use vfleet_api::node_state::DrainScope;
use vfleet_api::node_state::DrainStatus::{
    DrainDisabled, DrainRequired, Draining, DrainingComplete, DrainingMcpPaused, DrainingMcpPausing, Idle,
};
use vfleet_api::pool_config::OnTimeout;
use vfleet_plan::drain::{
    Blocked, Cordon, DrainFacts, Limit, Mark, Member, Moment, NodeAction, NodeFacts, PodsSeen, PoolDrain,
    Rules, StateFacts, Writer, next, wakes_at,
};

use super::{RULES, action, cordoned, member, node_at, retry, sets, slots, with_node, with_state};

const NOW: Moment = Moment(1_000);
const LATE: Moment = Moment(900_000_000);

fn uncordons(request: i64) -> NodeAction {
    NodeAction::Uncordon { request: Moment(request), stays_cordoned: false }
}

/// With pods as seen.
fn with_pods(facts: &DrainFacts, pods: PodsSeen, rules: Rules, now: Moment) -> NodeAction {
    let pool = PoolDrain { limit: Limit::AtMost(1), slots: &slots(&[("a", 5)]), rules };
    next(&pool, &Member { pods, ..member("a", facts) }, now)
}

#[test]
fn a_drain_from_the_slot_to_the_uncordon() {
    let asked = node_at(DrainRequired, 5);
    assert_eq!(action(&asked, None, RULES, NOW), NodeAction::Rest);
    assert_eq!(action(&asked, Some(4), RULES, NOW), NodeAction::Rest, "a slot is for one request");
    assert_eq!(action(&asked, Some(5), RULES, NOW), sets(Draining, 5));
    let draining = node_at(Draining, 5);
    let ours = Mark { cordon: Cordon::Ours, request: Moment(5) };
    assert_eq!(action(&draining, Some(5), RULES, NOW), NodeAction::Cordon(ours));
    let draining = cordoned(draining, 5);
    for left in [PodsSeen::No, PodsSeen::Left] {
        assert_eq!(with_pods(&draining, left, RULES, NOW), NodeAction::Evict { is_late: false });
    }
    assert_eq!(with_pods(&draining, PodsSeen::Gone, RULES, NOW), sets(DrainingComplete, 5));
    let complete = cordoned(node_at(DrainingComplete, 5), 5);
    assert_eq!(action(&complete, Some(5), RULES, NOW), NodeAction::Rest);
    assert_eq!(action(&cordoned(node_at(Idle, 5), 5), Some(5), RULES, NOW), uncordons(5));
    assert_eq!(action(&node_at(Idle, 5), Some(5), RULES, NOW), NodeAction::Rest);
}

#[test]
fn a_cordon_that_was_there_stays() {
    let closed = with_node(node_at(Draining, 5), |node| NodeFacts { is_cordoned: true, ..node });
    let found = Mark { cordon: Cordon::Found, request: Moment(5) };
    assert_eq!(action(&closed, Some(5), RULES, NOW), NodeAction::Cordon(found));
    let done = with_node(node_at(Idle, 5), |node| NodeFacts { is_cordoned: true, mark: Some(found), ..node });
    let kept = NodeAction::Uncordon { request: Moment(5), stays_cordoned: true };
    assert_eq!(action(&done, Some(5), RULES, NOW), kept);
}

#[test]
fn a_node_that_somebody_uncordoned_or_that_asked_again_is_marked_anew() {
    let open = with_node(cordoned(node_at(Draining, 5), 5), |node| NodeFacts { is_cordoned: false, ..node });
    let ours = |request| NodeAction::Cordon(Mark { cordon: Cordon::Ours, request: Moment(request) });
    assert_eq!(with_pods(&open, PodsSeen::Gone, RULES, NOW), ours(5));
    assert_eq!(action(&cordoned(node_at(Draining, 7), 5), Some(7), RULES, NOW), ours(7));
}

#[test]
fn drains_that_are_switched_off_are_answered_unless_they_are_done() {
    let off = Rules { is_disabled: true, ..RULES };
    for status in [DrainRequired, DrainingMcpPausing, DrainingMcpPaused, Draining] {
        assert_eq!(action(&cordoned(node_at(status, 5), 5), Some(5), off, NOW), sets(DrainDisabled, 5));
    }
    assert_eq!(action(&cordoned(node_at(DrainingComplete, 5), 5), Some(5), off, NOW), NodeAction::Rest);
    for status in [Idle, DrainDisabled] {
        assert_eq!(action(&cordoned(node_at(status, 5), 5), Some(5), off, NOW), uncordons(5));
        assert_eq!(action(&node_at(status, 5), None, off, NOW), NodeAction::Rest);
    }
}

#[test]
fn the_only_node_is_drained_of_its_vf_users_alone() {
    let single = Rules { is_single_node: true, ..RULES };
    let partial = node_at(DrainRequired, 5);
    let full = with_state(partial, |state| StateFacts { scope: DrainScope::Full, ..state });
    assert_eq!(action(&partial, Some(5), single, NOW), sets(Draining, 5));
    assert_eq!(action(&full, Some(5), single, NOW), sets(DrainDisabled, 5));
    assert_eq!(action(&full, Some(5), RULES, NOW), sets(Draining, 5));
}

#[test]
fn a_drain_that_takes_too_long_goes_on_or_is_given_up_for_a_while() {
    let since = |times| {
        with_state(cordoned(node_at(Draining, 5), 5), move |state| StateFacts {
            draining_since: Some(Moment(0)),
            retry: (times > 0).then(|| retry(times, 0)),
            ..state
        })
    };
    let release = Rules { on_timeout: OnTimeout::Release, ..RULES };
    let for_ever = Rules { timeout_seconds: None, ..release };
    let is_late = |rules, now| with_pods(&since(0), PodsSeen::Left, rules, now);
    assert_eq!(is_late(RULES, Moment(LATE.0 - 1)), NodeAction::Evict { is_late: false });
    assert_eq!(is_late(RULES, LATE), NodeAction::Evict { is_late: true });
    assert_eq!(is_late(for_ever, LATE), NodeAction::Evict { is_late: false });
    for (times, seconds) in [(0, 60), (1, 120), (2, 240), (4, 960), (5, 1800), (40, 1800), (u32::MAX, 1800)] {
        let given_up = NodeAction::Set {
            status: DrainRequired,
            request: Some(LATE),
            retry: Some(retry(times.saturating_add(1), LATE.plus_seconds(seconds).0)),
            puts_right: false,
        };
        assert_eq!(with_pods(&since(times), PodsSeen::Left, release, LATE), given_up, "{times}");
    }
    assert_eq!(with_pods(&since(0), PodsSeen::Gone, release, LATE), sets(DrainingComplete, 5));
}

#[test]
fn what_was_given_up_is_uncordoned_and_tried_again_when_its_time_comes() {
    let given_up =
        with_state(node_at(DrainRequired, 7), |state| StateFacts { retry: Some(retry(1, 2_000)), ..state });
    assert_eq!(action(&cordoned(given_up, 5), Some(5), RULES, NOW), uncordons(5));
    assert_eq!(action(&given_up, Some(7), RULES, NOW), NodeAction::Rest);
    let again = NodeAction::Set {
        status: Draining,
        request: Some(Moment(7)),
        retry: Some(retry(1, 2_000)),
        puts_right: false,
    };
    assert_eq!(action(&given_up, Some(7), RULES, Moment(2_000)), again);
}

#[test]
fn a_word_of_somebody_who_may_not_say_it_is_put_right() {
    let puts_right =
        |status| NodeAction::Set { status, request: Some(Moment(5)), retry: None, puts_right: true };
    for status in [DrainDisabled, DrainingMcpPausing, DrainingMcpPaused, Draining, DrainingComplete] {
        for writer in [Writer::Agent, Writer::Other] {
            let facts = with_state(node_at(status, 5), |state| StateFacts { writer, ..state });
            assert_eq!(action(&facts, None, RULES, NOW), puts_right(DrainRequired), "{status:?} {writer:?}");
            // A value that is there already would stay the other's.
            let goes_on = if status == Draining { DrainRequired } else { Draining };
            assert_eq!(action(&cordoned(facts, 5), Some(5), RULES, NOW), puts_right(goes_on));
        }
    }
    for status in [Idle, DrainRequired] {
        for writer in [Writer::Agent, Writer::Operator, Writer::Other] {
            let facts = with_state(node_at(status, 5), |state| StateFacts { writer, ..state });
            assert_eq!(action(&facts, None, RULES, NOW), NodeAction::Rest, "{status:?} {writer:?}");
        }
    }
}

#[test]
fn a_request_without_a_new_name_gets_one() {
    let named = |request| NodeAction::Set {
        status: DrainRequired,
        request: Some(Moment(request)),
        retry: None,
        puts_right: false,
    };
    let nameless = with_state(node_at(DrainRequired, 5), |state| StateFacts { request: None, ..state });
    assert_eq!(action(&nameless, None, RULES, NOW), named(1_000));
    let last = |last| move |node| NodeFacts { last_request: Some(Moment(last)), ..node };
    for (facts, slot, expected) in [
        (with_node(node_at(DrainRequired, 5), last(5)), None, 1_000),
        (with_node(node_at(DrainRequired, 5), last(3_000)), None, 3_001),
        (cordoned(node_at(DrainRequired, 5), 3_000), None, 3_001),
        (cordoned(node_at(DrainRequired, 5), 5), Some(3_000), 3_001),
    ] {
        assert_eq!(action(&facts, slot, RULES, NOW), NodeAction::Verify, "{facts:?}");
        let verified = DrainFacts { is_verified: true, ..facts };
        assert_eq!(action(&verified, slot, RULES, NOW), named(expected), "{facts:?}");
    }
}

#[test]
fn nothing_is_undone_for_a_request_that_may_be_newer_than_what_is_seen() {
    let mark_is_later = cordoned(node_at(Idle, 5), 7);
    assert_eq!(action(&mark_is_later, None, RULES, NOW), NodeAction::Verify);
    let verified = DrainFacts { is_verified: true, ..mark_is_later };
    assert_eq!(action(&verified, None, RULES, NOW), uncordons(7));
    let without = DrainFacts { state: None, ..cordoned(node_at(Idle, 5), 5) };
    assert_eq!(action(&without, None, RULES, NOW), NodeAction::Verify);
    assert_eq!(action(&DrainFacts { is_verified: true, ..without }, None, RULES, NOW), uncordons(5));
    assert_eq!(action(&DrainFacts { node: None, ..without }, None, RULES, NOW), NodeAction::Rest);
}

#[test]
fn what_an_external_drainer_drains_is_left_alone() {
    for status in super::STATUSES {
        let external = with_state(node_at(status, 5), |state| StateFacts { is_external: true, ..state });
        assert_eq!(action(&external, Some(5), RULES, NOW), NodeAction::Rest);
        assert_eq!(action(&cordoned(external, 5), Some(5), RULES, NOW), uncordons(5));
    }
}

#[test]
fn an_agent_that_is_silent_keeps_its_slot_and_is_named() {
    let complete = with_state(cordoned(node_at(DrainingComplete, 5), 5), |state| StateFacts {
        completed_at: Some(Moment(0)),
        ..state
    });
    assert_eq!(action(&complete, Some(5), RULES, Moment(LATE.0 - 1)), NodeAction::Rest);
    assert_eq!(action(&complete, Some(5), RULES, LATE), NodeAction::Wait(Blocked::AgentSilent));
}

#[test]
fn times_at_which_something_is_to_be_done() {
    let state = StateFacts {
        draining_since: Some(Moment(0)),
        completed_at: Some(Moment(1)),
        retry: Some(retry(1, 7)),
        ..StateFacts::default()
    };
    let wakes =
        |status, rules: &Rules| wakes_at(&StateFacts { status, ..state }, rules).map(|moment| moment.0);
    let for_ever = Rules { timeout_seconds: None, ..RULES };
    assert_eq!(wakes(DrainRequired, &RULES), Some(7));
    assert_eq!(wakes(Draining, &RULES), Some(LATE.0));
    assert_eq!(wakes(DrainingComplete, &RULES), Some(LATE.0 + 1));
    assert_eq!(wakes(Idle, &RULES), None);
    assert_eq!(wakes(Draining, &for_ever), None);
    assert_eq!(wakes(DrainRequired, &for_ever), Some(7));
}
