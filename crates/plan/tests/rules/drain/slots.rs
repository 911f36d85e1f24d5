//! Grants of slots, their order and their release.

use std::collections::BTreeMap;

use vfleet_api::node_state::DrainStatus::{
    DrainRequired, Draining, DrainingComplete, DrainingMcpPausing, Idle,
};
use vfleet_api::pool_config::SriovNetworkPoolConfigSpec;
use vfleet_plan::drain::{
    DrainFacts, DrainLimit, DrainRules, Moment, NodeAction, NodeFacts, PoolDrain, PoolMember, StateFacts,
    drain_limit, plan_drain,
};
use vfleet_plan::{NamedPool, NodeIdentity, find_pool_of_node};

use super::{RULES, cordoned, member, node_at, plan, retry, slots, with_node, with_state};

#[test]
fn slots_are_granted_by_request_time_and_then_by_name() {
    let nodes = [
        ("a", node_at(DrainRequired, 30)),
        ("b", node_at(DrainRequired, 20)),
        ("c", node_at(DrainRequired, 10)),
        ("d", node_at(DrainRequired, 10)),
    ];
    assert_eq!(plan(DrainLimit::AtMost(1), &[], &nodes).slots.granted, ["c"]);
    assert_eq!(plan(DrainLimit::AtMost(3), &[], &nodes).slots.granted, ["c", "d", "b"]);
    assert_eq!(plan(DrainLimit::Unlimited, &[], &nodes).slots.granted, ["c", "d", "b", "a"]);
    assert_eq!(plan(DrainLimit::AtMost(2), &[], &nodes).slots.slots, slots(&[("c", 10), ("d", 10)]));
    assert!(plan(DrainLimit::AtMost(0), &[], &nodes).slots.granted.is_empty());
}

#[test]
fn cordoned_and_unready_nodes_come_first() {
    let unready = with_node(node_at(DrainRequired, 30), |node| NodeFacts { is_ready: false, ..node });
    let cordoned_before =
        with_node(node_at(DrainRequired, 40), |node| NodeFacts { is_cordoned: true, ..node });
    let nodes = [("a", node_at(DrainRequired, 10)), ("b", cordoned_before), ("c", unready)];
    assert_eq!(plan(DrainLimit::Unlimited, &[], &nodes).slots.granted, ["c", "b", "a"]);
}

#[test]
fn waiting_nodes_of_a_pool_with_limit_zero_are_held() {
    use vfleet_plan::drain::HoldReason::LimitZero;
    let nodes = [("a", node_at(DrainRequired, 1)), ("b", node_at(Idle, 1))];
    assert_eq!(
        plan(DrainLimit::AtMost(0), &[], &nodes).actions,
        [NodeAction::Hold(LimitZero), NodeAction::None]
    );
}

fn pool_spec(priority: u8, most: u8, names: &[&str]) -> SriovNetworkPoolConfigSpec {
    let term = |name| format!("{{matchFields: [{{key: metadata.name, operator: In, values: [{name}]}}]}}");
    let terms = names.iter().map(term).collect::<Vec<_>>().join(", ");
    let drain = format!("{{maxParallelNodeConfiguration: {most}}}");
    let spec = format!("{{priority: {priority}, drainConfig: {drain}, nodeSelectorTerms: [{terms}]}}");
    serde_saphyr::from_str(&spec).unwrap()
}

/// pool1 selects A, B and C with limit 1, pool2 selects C, D and E with limit 2. C belongs to pool1, so C, D and E can
/// be drained at the same time.
#[test]
fn two_pools_that_share_a_node() {
    let (first, second) = (pool_spec(1, 1, &["a", "b", "c"]), pool_spec(99, 2, &["c", "d", "e"]));
    let pools = [NamedPool { name: "pool1", spec: &first }, NamedPool { name: "pool2", spec: &second }];
    let labels = BTreeMap::new();
    let status = |name| if ["c", "d", "e"].contains(&name) { DrainRequired } else { Idle };
    let nodes = ["a", "b", "c", "d", "e"].map(|name| (name, node_at(status(name), 1)));

    let granted = |pools: &[NamedPool<'_>], pool: NamedPool<'_>| {
        let pool_of =
            |name| find_pool_of_node(pools, NodeIdentity { name, labels: &labels }).map(|pool| pool.name);
        let members: Vec<_> =
            nodes.iter().filter(|(name, _)| pool_of(name) == Some(pool.name)).copied().collect();
        plan(drain_limit(&pool, members.len()).0, &[], &members).slots.granted
    };
    assert_eq!(granted(&pools, pools[0]), ["c"]);
    assert_eq!(granted(&pools, pools[1]), ["d", "e"]);
    // Without pool1, C belongs to pool2.
    assert_eq!(granted(&pools[1..], pools[1]), ["c", "d"]);
}

#[test]
fn a_limit_below_the_number_of_drains_starts_and_stops_none() {
    let nodes = [
        ("a", cordoned(node_at(Draining, 1), 1)),
        ("b", cordoned(node_at(DrainingComplete, 1), 1)),
        ("c", node_at(DrainRequired, 1)),
    ];
    let listed = [("a", 1), ("b", 1)];
    let planned = plan(DrainLimit::AtMost(1), &listed, &nodes);
    assert!(planned.slots.granted.is_empty());
    assert_eq!(planned.slots.slots, slots(&listed));
    assert_eq!(planned.actions[0], NodeAction::Evict { is_late: false });
    assert_eq!(plan(DrainLimit::AtMost(3), &listed, &nodes).slots.granted, ["c"]);
}

#[test]
fn a_draining_node_counts_even_if_it_is_not_listed() {
    for held in [node_at(DrainingMcpPausing, 5), node_at(DrainingComplete, 5), cordoned(node_at(Idle, 5), 5)]
    {
        let waits = node_at(DrainRequired, 1);
        let planned = plan(DrainLimit::AtMost(1), &[], &[("a", held), ("b", waits)]).slots;
        assert_eq!((planned.slots.len(), planned.granted.len(), planned.verify.len()), (0, 0, 1), "{held:?}");
        let held = DrainFacts { is_verified: true, ..held };
        let planned = plan(DrainLimit::AtMost(1), &[], &[("a", held), ("b", waits)]).slots;
        assert_eq!((planned.slots, planned.granted.len()), (slots(&[("a", 5)]), 0), "{held:?}");
    }
}

#[test]
fn a_slot_is_freed_when_the_node_records_its_request_as_finished() {
    let finished = |last| with_node(node_at(Idle, 5), |node| NodeFacts { last_request: last, ..node });
    let next = ("b", node_at(DrainRequired, 9));
    let planned = plan(DrainLimit::AtMost(1), &[("a", 5)], &[("a", finished(Some(Moment(5)))), next]).slots;
    assert_eq!((planned.slots, planned.granted), (slots(&[("b", 9)]), vec!["b".to_owned()]));

    let planned = plan(DrainLimit::AtMost(1), &[("a", 5)], &[("a", finished(None)), next]).slots;
    assert_eq!((planned.slots, planned.conclude), (slots(&[("a", 5)]), slots(&[("a", 5)])));
    assert!(planned.granted.is_empty());
}

#[test]
fn the_slot_of_a_deleted_object_is_freed_after_verification() {
    let whole = node_at(DrainRequired, 5);
    let next = ("b", node_at(DrainRequired, 9));
    let of = |facts: DrainFacts| plan(DrainLimit::AtMost(1), &[("a", 5)], &[("a", facts), next]).slots;
    for gone in [DrainFacts { node: None, ..whole }, DrainFacts { state: None, ..whole }] {
        let planned = of(gone);
        assert_eq!((planned.verify, planned.granted.len()), (vec!["a".to_owned()], 0));
    }
    let verified = DrainFacts { is_verified: true, ..whole };
    assert_eq!(of(DrainFacts { node: None, ..verified }).granted, ["b"]);
    // Another replica may still be about to cordon the node.
    assert_eq!(of(DrainFacts { state: None, ..verified }).conclude, slots(&[("a", 5)]));
    let cordoned = cordoned(DrainFacts { state: None, ..verified }, 5);
    assert_eq!(of(cordoned).slots, slots(&[("a", 5)]), "not before it is uncordoned");
    let concluded = |node| NodeFacts { last_request: Some(Moment(5)), ..node };
    assert_eq!(of(with_node(DrainFacts { state: None, ..verified }, concluded)).granted, ["b"]);
}

#[test]
fn a_new_request_before_the_uncordon_keeps_the_slot() {
    let nodes = [("a", cordoned(node_at(DrainRequired, 7), 5)), ("b", node_at(DrainRequired, 1))];
    let planned = plan(DrainLimit::AtMost(1), &[("a", 5)], &nodes).slots;
    assert_eq!((planned.slots, planned.granted.len()), (slots(&[("a", 7)]), 0));
}

#[test]
fn a_node_that_changes_its_pool_is_listed_in_the_new_pool_first() {
    let (moved, waits) = (cordoned(node_at(Draining, 5), 5), node_at(DrainRequired, 1));
    let moved = DrainFacts { is_verified: true, ..moved };
    let of = |listed: &[(&str, i64)], member: PoolMember<'_>, other: PoolMember<'_>| {
        let pool = PoolDrain { limit: DrainLimit::AtMost(1), slots: &slots(listed), rules: RULES };
        plan_drain(&pool, &[member, other], Moment(9)).slots
    };
    let waiting = member("b", &waits);
    let new = of(&[], PoolMember { slot_in_other_pool: Some(Moment(5)), ..member("a", &moved) }, waiting);
    assert_eq!((new.slots, new.granted.len()), (slots(&[("a", 5)]), 0), "it counts in the new pool");

    let former = PoolMember { is_former_member: true, ..member("a", &moved) };
    let old = of(&[("a", 5)], former, waiting);
    assert_eq!((old.slots, old.granted.len()), (slots(&[("a", 5)]), 0), "the new pool does not list it yet");
    let old = of(&[("a", 5)], PoolMember { slot_in_other_pool: Some(Moment(5)), ..former }, waiting);
    assert_eq!(old.slots, slots(&[("b", 1)]));
}

#[test]
fn nodes_that_must_not_be_drained_now_get_no_slot() {
    let external = with_state(node_at(DrainRequired, 1), |state| StateFacts { is_external: true, ..state });
    let later =
        with_state(node_at(DrainRequired, 1), |state| StateFacts { retry: Some(retry(1, 2_000)), ..state });
    let finished =
        with_node(node_at(DrainRequired, 1), |node| NodeFacts { last_request: Some(Moment(1)), ..node });
    for facts in [external, later, finished, node_at(Idle, 1)] {
        assert!(plan(DrainLimit::Unlimited, &[], &[("a", facts)]).slots.granted.is_empty(), "{facts:?}");
    }
    let facts = node_at(DrainRequired, 1);
    let pool = PoolDrain {
        limit: DrainLimit::Unlimited,
        slots: &[],
        rules: DrainRules { is_disabled: true, ..RULES },
    };
    assert!(plan_drain(&pool, &[member("a", &facts)], Moment(9)).slots.granted.is_empty());
}
