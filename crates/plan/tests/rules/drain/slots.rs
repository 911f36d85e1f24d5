//! Who gets a pool's slots, in which order, and when they come back.

use std::collections::BTreeMap;

use vfleet_api::node_state::DrainStatus::{
    DrainRequired, Draining, DrainingComplete, DrainingMcpPausing, Idle,
};
use vfleet_api::pool_config::SriovNetworkPoolConfigSpec;
use vfleet_plan::drain::{
    DrainFacts, Limit, Member, Moment, NodeAction, NodeFacts, PoolDrain, Rules, StateFacts, limit, plan_drain,
};
use vfleet_plan::{NamedPool, NodeIdentity, pool_of};

use super::{RULES, cordoned, member, node_at, plan, retry, slots, with_node, with_state};

#[test]
fn those_who_asked_first_come_first_and_then_the_name_counts() {
    let nodes = [
        ("a", node_at(DrainRequired, 30)),
        ("b", node_at(DrainRequired, 20)),
        ("c", node_at(DrainRequired, 10)),
        ("d", node_at(DrainRequired, 10)),
    ];
    assert_eq!(plan(Limit::AtMost(1), &[], &nodes).slots.granted, ["c"]);
    assert_eq!(plan(Limit::AtMost(3), &[], &nodes).slots.granted, ["c", "d", "b"]);
    assert_eq!(plan(Limit::None, &[], &nodes).slots.granted, ["c", "d", "b", "a"]);
    assert_eq!(plan(Limit::AtMost(2), &[], &nodes).slots.slots, slots(&[("c", 10), ("d", 10)]));
    assert!(plan(Limit::AtMost(0), &[], &nodes).slots.granted.is_empty());
}

#[test]
fn nodes_that_serve_nobody_come_first() {
    let unready = with_node(node_at(DrainRequired, 30), |node| NodeFacts { is_ready: false, ..node });
    let closed = with_node(node_at(DrainRequired, 40), |node| NodeFacts { is_cordoned: true, ..node });
    let nodes = [("a", node_at(DrainRequired, 10)), ("b", closed), ("c", unready)];
    assert_eq!(plan(Limit::None, &[], &nodes).slots.granted, ["c", "b", "a"]);
}

#[test]
fn a_pool_that_never_drains_says_so_to_those_who_wait() {
    use vfleet_plan::drain::Blocked::NeverDrained;
    let nodes = [("a", node_at(DrainRequired, 1)), ("b", node_at(Idle, 1))];
    assert_eq!(
        plan(Limit::AtMost(0), &[], &nodes).actions,
        [NodeAction::Wait(NeverDrained), NodeAction::Rest]
    );
}

fn pool_spec(priority: u8, most: u8, names: &[&str]) -> SriovNetworkPoolConfigSpec {
    let term = |name| format!("{{matchFields: [{{key: metadata.name, operator: In, values: [{name}]}}]}}");
    let terms = names.iter().map(term).collect::<Vec<_>>().join(", ");
    let drain = format!("{{maxParallelNodeConfiguration: {most}}}");
    let spec = format!("{{priority: {priority}, drainConfig: {drain}, nodeSelectorTerms: [{terms}]}}");
    serde_saphyr::from_str(&spec).unwrap()
}

/// pool1: A, B, C, one at once. pool2: C, D, E, two at once. C is in both, and belongs to pool1. A change for C, D and E
/// goes to all three of them at once.
#[test]
fn the_example_of_two_pools_that_share_a_node() {
    let (first, second) = (pool_spec(1, 1, &["a", "b", "c"]), pool_spec(99, 2, &["c", "d", "e"]));
    let pools = [NamedPool { name: "pool1", spec: &first }, NamedPool { name: "pool2", spec: &second }];
    let labels = BTreeMap::new();
    let status = |name| if ["c", "d", "e"].contains(&name) { DrainRequired } else { Idle };
    let nodes = ["a", "b", "c", "d", "e"].map(|name| (name, node_at(status(name), 1)));

    let granted = |pools: &[NamedPool<'_>], asked: NamedPool<'_>| {
        let pool = |name| pool_of(pools, NodeIdentity { name, labels: &labels }).map(|pool| pool.name);
        let its: Vec<_> = nodes.iter().filter(|(name, _)| pool(name) == Some(asked.name)).copied().collect();
        plan(limit(&asked, its.len()).0, &[], &its).slots.granted
    };
    assert_eq!(granted(&pools, pools[0]), ["c"]);
    assert_eq!(granted(&pools, pools[1]), ["d", "e"]);
    // Without pool1, C counts in pool2 at once.
    assert_eq!(granted(&pools[1..], pools[1]), ["c", "d"]);
}

#[test]
fn a_limit_below_what_drains_lets_nobody_begin_and_stops_nobody() {
    let nodes = [
        ("a", cordoned(node_at(Draining, 1), 1)),
        ("b", cordoned(node_at(DrainingComplete, 1), 1)),
        ("c", node_at(DrainRequired, 1)),
    ];
    let listed = [("a", 1), ("b", 1)];
    let planned = plan(Limit::AtMost(1), &listed, &nodes);
    assert!(planned.slots.granted.is_empty());
    assert_eq!(planned.slots.slots, slots(&listed));
    assert_eq!(planned.actions[0], NodeAction::Evict { is_late: false });
    assert_eq!(plan(Limit::AtMost(3), &listed, &nodes).slots.granted, ["c"]);
}

#[test]
fn a_node_in_flight_counts_whether_it_is_listed_or_not() {
    for held in [node_at(DrainingMcpPausing, 5), node_at(DrainingComplete, 5), cordoned(node_at(Idle, 5), 5)]
    {
        let waits = node_at(DrainRequired, 1);
        let planned = plan(Limit::AtMost(1), &[], &[("a", held), ("b", waits)]).slots;
        assert_eq!((planned.slots.len(), planned.granted.len(), planned.verify.len()), (0, 0, 1), "{held:?}");
        let held = DrainFacts { is_verified: true, ..held };
        let planned = plan(Limit::AtMost(1), &[], &[("a", held), ("b", waits)]).slots;
        assert_eq!((planned.slots, planned.granted.len()), (slots(&[("a", 5)]), 0), "{held:?}");
    }
}

#[test]
fn a_slot_comes_back_when_the_node_says_that_its_request_is_over() {
    let over = |last| with_node(node_at(Idle, 5), |node| NodeFacts { last_request: last, ..node });
    let next = ("b", node_at(DrainRequired, 9));
    let planned = plan(Limit::AtMost(1), &[("a", 5)], &[("a", over(Some(Moment(5)))), next]).slots;
    assert_eq!((planned.slots, planned.granted), (slots(&[("b", 9)]), vec!["b".to_owned()]));

    let planned = plan(Limit::AtMost(1), &[("a", 5)], &[("a", over(None)), next]).slots;
    assert_eq!((planned.slots, planned.conclude), (slots(&[("a", 5)]), slots(&[("a", 5)])));
    assert!(planned.granted.is_empty());
}

#[test]
fn a_slot_of_something_that_is_gone_comes_back_when_that_is_certain() {
    let whole = node_at(DrainRequired, 5);
    let next = ("b", node_at(DrainRequired, 9));
    let of = |facts: DrainFacts| plan(Limit::AtMost(1), &[("a", 5)], &[("a", facts), next]).slots;
    for gone in [DrainFacts { node: None, ..whole }, DrainFacts { state: None, ..whole }] {
        let planned = of(gone);
        assert_eq!((planned.verify, planned.granted.len()), (vec!["a".to_owned()], 0));
    }
    let verified = DrainFacts { is_verified: true, ..whole };
    assert_eq!(of(DrainFacts { node: None, ..verified }).granted, ["b"]);
    // Somebody may still be about to cordon the node.
    assert_eq!(of(DrainFacts { state: None, ..verified }).conclude, slots(&[("a", 5)]));
    let cordoned = cordoned(DrainFacts { state: None, ..verified }, 5);
    assert_eq!(of(cordoned).slots, slots(&[("a", 5)]), "not before it is uncordoned");
    let concluded = |node| NodeFacts { last_request: Some(Moment(5)), ..node };
    assert_eq!(of(with_node(DrainFacts { state: None, ..verified }, concluded)).granted, ["b"]);
}

#[test]
fn an_agent_that_asks_again_before_the_uncordon_keeps_its_slot() {
    let nodes = [("a", cordoned(node_at(DrainRequired, 7), 5)), ("b", node_at(DrainRequired, 1))];
    let planned = plan(Limit::AtMost(1), &[("a", 5)], &nodes).slots;
    assert_eq!((planned.slots, planned.granted.len()), (slots(&[("a", 7)]), 0));
}

#[test]
fn a_node_that_changes_its_pool_is_listed_there_before_the_old_one_forgets_it() {
    let (moved, waits) = (cordoned(node_at(Draining, 5), 5), node_at(DrainRequired, 1));
    let moved = DrainFacts { is_verified: true, ..moved };
    let of = |listed: &[(&str, i64)], member: Member<'_>, other: Member<'_>| {
        let pool = PoolDrain { limit: Limit::AtMost(1), slots: &slots(listed), rules: RULES };
        plan_drain(&pool, &[member, other], Moment(9)).slots
    };
    let waiting = member("b", &waits);
    let new = of(&[], Member { slot_elsewhere: Some(Moment(5)), ..member("a", &moved) }, waiting);
    assert_eq!((new.slots, new.granted.len()), (slots(&[("a", 5)]), 0), "it counts in the new pool");

    let guest = Member { is_guest: true, ..member("a", &moved) };
    let old = of(&[("a", 5)], guest, waiting);
    assert_eq!((old.slots, old.granted.len()), (slots(&[("a", 5)]), 0), "nobody else lists it yet");
    let old = of(&[("a", 5)], Member { slot_elsewhere: Some(Moment(5)), ..guest }, waiting);
    assert_eq!(old.slots, slots(&[("b", 1)]));
}

#[test]
fn who_is_answered_otherwise_waits_for_no_slot() {
    let external = with_state(node_at(DrainRequired, 1), |state| StateFacts { is_external: true, ..state });
    let later =
        with_state(node_at(DrainRequired, 1), |state| StateFacts { retry: Some(retry(1, 2_000)), ..state });
    let over =
        with_node(node_at(DrainRequired, 1), |node| NodeFacts { last_request: Some(Moment(1)), ..node });
    for facts in [external, later, over, node_at(Idle, 1)] {
        assert!(plan(Limit::None, &[], &[("a", facts)]).slots.granted.is_empty(), "{facts:?}");
    }
    let facts = node_at(DrainRequired, 1);
    let pool = PoolDrain { limit: Limit::None, slots: &[], rules: Rules { is_disabled: true, ..RULES } };
    assert!(plan_drain(&pool, &[member("a", &facts)], Moment(9)).slots.granted.is_empty());
}
