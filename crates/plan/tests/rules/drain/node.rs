//! Next action for one node.

use vfleet_api::node_state::DrainScope;
use vfleet_api::node_state::DrainStatus::{
    DrainDisabled, DrainRequired, Draining, DrainingComplete, DrainingMcpPaused, DrainingMcpPausing, Idle,
};
use vfleet_api::pool_config::OnTimeout;
use vfleet_plan::drain::{
    CordonMark, CordonOrigin, DrainFacts, DrainLimit, DrainRules, HoldReason, Moment, NodeAction, NodeFacts,
    PodsState, PoolDrain, PoolMember, StateFacts, StatusWriter, next_action, next_deadline,
};

use super::{RULES, action, cordoned, member, node_at, retry, sets, slots, with_node, with_state};

const NOW: Moment = Moment(1_000);
const LATE: Moment = Moment(900_000_000);

fn uncordons(request: i64) -> NodeAction {
    NodeAction::Uncordon { request: Moment(request), stays_cordoned: false }
}

/// Returns the next action with pods in this state.
fn with_pods(facts: &DrainFacts, pods: PodsState, rules: DrainRules, now: Moment) -> NodeAction {
    let pool = PoolDrain { limit: DrainLimit::AtMost(1), slots: &slots(&[("a", 5)]), rules };
    next_action(&pool, &PoolMember { pods, ..member("a", facts) }, now)
}

#[test]
fn a_drain_from_the_slot_to_the_uncordon() {
    let requested = node_at(DrainRequired, 5);
    assert_eq!(action(&requested, None, RULES, NOW), NodeAction::None);
    assert_eq!(action(&requested, Some(4), RULES, NOW), NodeAction::None, "a slot is for one request");
    assert_eq!(action(&requested, Some(5), RULES, NOW), sets(Draining, 5));
    let draining = node_at(Draining, 5);
    let ours = CordonMark { cordon: CordonOrigin::Ours, request: Moment(5) };
    assert_eq!(action(&draining, Some(5), RULES, NOW), NodeAction::Cordon(ours));
    let draining = cordoned(draining, 5);
    for left in [PodsState::Unknown, PodsState::Remaining] {
        assert_eq!(with_pods(&draining, left, RULES, NOW), NodeAction::Evict { is_late: false });
    }
    assert_eq!(with_pods(&draining, PodsState::Gone, RULES, NOW), sets(DrainingComplete, 5));
    let complete = cordoned(node_at(DrainingComplete, 5), 5);
    assert_eq!(action(&complete, Some(5), RULES, NOW), NodeAction::None);
    assert_eq!(action(&cordoned(node_at(Idle, 5), 5), Some(5), RULES, NOW), uncordons(5));
    assert_eq!(action(&node_at(Idle, 5), Some(5), RULES, NOW), NodeAction::None);
}

#[test]
fn a_preexisting_cordon_stays() {
    let cordoned_before = with_node(node_at(Draining, 5), |node| NodeFacts { is_cordoned: true, ..node });
    let found = CordonMark { cordon: CordonOrigin::Preexisting, request: Moment(5) };
    assert_eq!(action(&cordoned_before, Some(5), RULES, NOW), NodeAction::Cordon(found));
    let done = with_node(node_at(Idle, 5), |node| NodeFacts { is_cordoned: true, mark: Some(found), ..node });
    let kept = NodeAction::Uncordon { request: Moment(5), stays_cordoned: true };
    assert_eq!(action(&done, Some(5), RULES, NOW), kept);
}

#[test]
fn an_uncordoned_node_and_a_new_request_are_marked_again() {
    let open = with_node(cordoned(node_at(Draining, 5), 5), |node| NodeFacts { is_cordoned: false, ..node });
    let ours =
        |request| NodeAction::Cordon(CordonMark { cordon: CordonOrigin::Ours, request: Moment(request) });
    assert_eq!(with_pods(&open, PodsState::Gone, RULES, NOW), ours(5));
    assert_eq!(action(&cordoned(node_at(Draining, 7), 5), Some(7), RULES, NOW), ours(7));
}

#[test]
fn disabled_drains_are_answered_unless_they_are_complete() {
    let off = DrainRules { is_disabled: true, ..RULES };
    for status in [DrainRequired, DrainingMcpPausing, DrainingMcpPaused, Draining] {
        assert_eq!(action(&cordoned(node_at(status, 5), 5), Some(5), off, NOW), sets(DrainDisabled, 5));
    }
    assert_eq!(action(&cordoned(node_at(DrainingComplete, 5), 5), Some(5), off, NOW), NodeAction::None);
    for status in [Idle, DrainDisabled] {
        assert_eq!(action(&cordoned(node_at(status, 5), 5), Some(5), off, NOW), uncordons(5));
        assert_eq!(action(&node_at(status, 5), None, off, NOW), NodeAction::None);
    }
}

#[test]
fn the_only_node_is_only_partially_drained() {
    let single = DrainRules { is_single_node: true, ..RULES };
    let partial = node_at(DrainRequired, 5);
    let full = with_state(partial, |state| StateFacts { scope: DrainScope::Full, ..state });
    assert_eq!(action(&partial, Some(5), single, NOW), sets(Draining, 5));
    assert_eq!(action(&full, Some(5), single, NOW), sets(DrainDisabled, 5));
    assert_eq!(action(&full, Some(5), RULES, NOW), sets(Draining, 5));
}

#[test]
fn a_drain_that_times_out_continues_or_is_released() {
    let since = |times| {
        with_state(cordoned(node_at(Draining, 5), 5), move |state| StateFacts {
            draining_since: Some(Moment(0)),
            retry: (times > 0).then(|| retry(times, 0)),
            ..state
        })
    };
    let release = DrainRules { on_timeout: OnTimeout::Release, ..RULES };
    let no_timeout = DrainRules { timeout_seconds: None, ..release };
    let is_late = |rules, now| with_pods(&since(0), PodsState::Remaining, rules, now);
    assert_eq!(is_late(RULES, Moment(LATE.0 - 1)), NodeAction::Evict { is_late: false });
    assert_eq!(is_late(RULES, LATE), NodeAction::Evict { is_late: true });
    assert_eq!(is_late(no_timeout, LATE), NodeAction::Evict { is_late: false });
    for (times, seconds) in [(0, 60), (1, 120), (2, 240), (4, 960), (5, 1800), (40, 1800), (u32::MAX, 1800)] {
        let released = NodeAction::SetStatus {
            status: DrainRequired,
            request: Some(LATE),
            retry: Some(retry(times.saturating_add(1), LATE.plus_seconds(seconds).0)),
            is_correction: false,
        };
        assert_eq!(with_pods(&since(times), PodsState::Remaining, release, LATE), released, "{times}");
    }
    assert_eq!(with_pods(&since(0), PodsState::Gone, release, LATE), sets(DrainingComplete, 5));
}

#[test]
fn a_released_drain_is_uncordoned_and_retried_later() {
    let released =
        with_state(node_at(DrainRequired, 7), |state| StateFacts { retry: Some(retry(1, 2_000)), ..state });
    assert_eq!(action(&cordoned(released, 5), Some(5), RULES, NOW), uncordons(5));
    assert_eq!(action(&released, Some(7), RULES, NOW), NodeAction::None);
    let again = NodeAction::SetStatus {
        status: Draining,
        request: Some(Moment(7)),
        retry: Some(retry(1, 2_000)),
        is_correction: false,
    };
    assert_eq!(action(&released, Some(7), RULES, Moment(2_000)), again);
}

#[test]
fn a_status_of_another_writer_is_corrected() {
    let is_correction =
        |status| NodeAction::SetStatus { status, request: Some(Moment(5)), retry: None, is_correction: true };
    for status in [DrainDisabled, DrainingMcpPausing, DrainingMcpPaused, Draining, DrainingComplete] {
        for writer in [StatusWriter::Agent, StatusWriter::Other] {
            let facts = with_state(node_at(status, 5), |state| StateFacts { writer, ..state });
            assert_eq!(
                action(&facts, None, RULES, NOW),
                is_correction(DrainRequired),
                "{status:?} {writer:?}"
            );
            // Writing the same value would not change the owner of the field.
            let corrected = if status == Draining { DrainRequired } else { Draining };
            assert_eq!(action(&cordoned(facts, 5), Some(5), RULES, NOW), is_correction(corrected));
        }
    }
    for status in [Idle, DrainRequired] {
        for writer in [StatusWriter::Agent, StatusWriter::Operator, StatusWriter::Other] {
            let facts = with_state(node_at(status, 5), |state| StateFacts { writer, ..state });
            assert_eq!(action(&facts, None, RULES, NOW), NodeAction::None, "{status:?} {writer:?}");
        }
    }
}

#[test]
fn a_request_without_a_new_time_gets_one() {
    let renewed = |request| NodeAction::SetStatus {
        status: DrainRequired,
        request: Some(Moment(request)),
        retry: None,
        is_correction: false,
    };
    let without_time = with_state(node_at(DrainRequired, 5), |state| StateFacts { request: None, ..state });
    assert_eq!(action(&without_time, None, RULES, NOW), renewed(1_000));
    let last = |last| move |node| NodeFacts { last_request: Some(Moment(last)), ..node };
    for (facts, slot, expected) in [
        (with_node(node_at(DrainRequired, 5), last(5)), None, 1_000),
        (with_node(node_at(DrainRequired, 5), last(3_000)), None, 3_001),
        (cordoned(node_at(DrainRequired, 5), 3_000), None, 3_001),
        (cordoned(node_at(DrainRequired, 5), 5), Some(3_000), 3_001),
    ] {
        assert_eq!(action(&facts, slot, RULES, NOW), NodeAction::Verify, "{facts:?}");
        let verified = DrainFacts { is_verified: true, ..facts };
        assert_eq!(action(&verified, slot, RULES, NOW), renewed(expected), "{facts:?}");
    }
}

#[test]
fn nothing_is_undone_while_the_node_state_may_be_outdated() {
    let mark_is_later = cordoned(node_at(Idle, 5), 7);
    assert_eq!(action(&mark_is_later, None, RULES, NOW), NodeAction::Verify);
    let verified = DrainFacts { is_verified: true, ..mark_is_later };
    assert_eq!(action(&verified, None, RULES, NOW), uncordons(7));
    let without = DrainFacts { state: None, ..cordoned(node_at(Idle, 5), 5) };
    assert_eq!(action(&without, None, RULES, NOW), NodeAction::Verify);
    assert_eq!(action(&DrainFacts { is_verified: true, ..without }, None, RULES, NOW), uncordons(5));
    assert_eq!(action(&DrainFacts { node: None, ..without }, None, RULES, NOW), NodeAction::None);
}

#[test]
fn nodes_of_an_external_drainer_are_left_alone() {
    for status in super::STATUSES {
        let external = with_state(node_at(status, 5), |state| StateFacts { is_external: true, ..state });
        assert_eq!(action(&external, Some(5), RULES, NOW), NodeAction::None);
        assert_eq!(action(&cordoned(external, 5), Some(5), RULES, NOW), uncordons(5));
    }
}

#[test]
fn an_unfinished_agent_keeps_its_slot_and_is_reported() {
    let complete = with_state(cordoned(node_at(DrainingComplete, 5), 5), |state| StateFacts {
        completed_at: Some(Moment(0)),
        ..state
    });
    assert_eq!(action(&complete, Some(5), RULES, Moment(LATE.0 - 1)), NodeAction::None);
    assert_eq!(action(&complete, Some(5), RULES, LATE), NodeAction::Hold(HoldReason::AgentNotFinished));
}

#[test]
fn deadlines_depend_on_the_status() {
    let state = StateFacts {
        draining_since: Some(Moment(0)),
        completed_at: Some(Moment(1)),
        retry: Some(retry(1, 7)),
        ..StateFacts::default()
    };
    let deadline = |status, rules: &DrainRules| {
        next_deadline(&StateFacts { status, ..state }, rules).map(|moment| moment.0)
    };
    let no_timeout = DrainRules { timeout_seconds: None, ..RULES };
    assert_eq!(deadline(DrainRequired, &RULES), Some(7));
    assert_eq!(deadline(Draining, &RULES), Some(LATE.0));
    assert_eq!(deadline(DrainingComplete, &RULES), Some(LATE.0 + 1));
    assert_eq!(deadline(Idle, &RULES), None);
    assert_eq!(deadline(Draining, &no_timeout), None);
    assert_eq!(deadline(DrainRequired, &no_timeout), Some(7));
}
