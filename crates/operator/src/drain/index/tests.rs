use serde_json::{Value, json};
use vfleet_plan::drain::{Mark, McpFacts, NodeAction};

use super::*;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn apply<K: serde::de::DeserializeOwned>(object: Value) -> Event<Guarded<K>> {
    Event::Apply(Guarded(Ok(serde_json::from_value(object).unwrap())))
}

/// An index that has seen these nodes, a pool of all of them, and no request.
fn index(limit: usize) -> Index {
    let mut index = Index::default();
    index.node(Event::Init);
    index.state(Event::Init);
    index.pool(Event::Init);
    index.node(Event::InitDone);
    index.state(Event::InitDone);
    index.pool(Event::InitDone);
    index.settings(Some(&SriovOperatorConfig::default()));
    for name in NAMES {
        index.node(node(name, 1, &json!({})));
        index.state(state(name, 1, &json!({ "drainStatus": "Idle" })));
    }
    index.pool(pool("p", 1, limit, &[]));
    index
}

fn node(name: &str, version: u32, annotations: &Value) -> Event<Guarded<Node>> {
    apply(json!({
        "metadata": { "name": name, "resourceVersion": version.to_string(), "annotations": annotations },
        "spec": { "unschedulable": annotations.get("vfleet.io/cordon").is_some() },
        "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
    }))
}

fn state(name: &str, version: u32, status: &Value) -> Event<Guarded<SriovNetworkNodeState>> {
    let fields = json!({ "f:status": { "f:drainStatus": {} } });
    let written = json!({ "manager": "vfleet-operator", "fieldsType": "FieldsV1", "fieldsV1": fields, "operation": "Update" });
    apply(json!({
        "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovNetworkNodeState",
        "metadata": { "name": name, "resourceVersion": version.to_string(), "managedFields": [written] },
        "spec": {}, "status": status,
    }))
}

fn pool(
    name: &str,
    version: u32,
    limit: usize,
    slots: &[(&str, i64)],
) -> Event<Guarded<SriovNetworkPoolConfig>> {
    let slots: Vec<_> =
        slots.iter().map(|(node, at)| json!({ "node": node, "requestedAt": time(*at) })).collect();
    apply(json!({
        "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovNetworkPoolConfig",
        "metadata": { "name": name, "resourceVersion": version.to_string() },
        "spec": { "drainConfig": { "maxParallelNodeConfiguration": limit } },
        "status": { "slots": slots },
    }))
}

fn time(second: i64) -> String {
    Moment(second * 1_000_000).text()
}

fn required(at: i64) -> Value {
    json!({ "drainStatus": "Drain_Required", "drainRequestedAt": time(at) })
}

fn planned(index: &Index) -> Option<Vec<String>> {
    let (_, slots, _) = index.plan_slots("p", Moment(i64::MAX))?;
    Some(slots.into_iter().map(|slot| slot.node).collect())
}

fn names(list: &[&str]) -> BTreeSet<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn a_request_touches_its_node_and_its_pool() {
    let mut index = index(1);
    assert_eq!(planned(&index), None);
    let touched = index.state(state("b", 2, &required(1)));
    assert_eq!(touched, Touched { nodes: names(&["b"]), pools: names(&["p"]) });
    assert!(index.has_waiting("p"));
    index.state(state("a", 2, &required(2)));
    assert_eq!(planned(&index).unwrap(), ["b"], "who asked first comes first");
}

#[test]
fn what_does_not_move_slots_touches_no_pool() {
    let mut index = index(1);
    index.state(state("a", 2, &required(1)));
    index.pool(pool("p", 2, 1, &[("a", 1)]));
    let draining = json!({ "drainStatus": "Draining", "drainRequestedAt": time(1) });
    index.state(state("a", 3, &draining));
    let mark = json!({ "vfleet.io/cordon": "ours", "vfleet.io/drain-request": time(1) });
    let touched = index.node(node("a", 4, &mark));
    assert_eq!(touched, Touched { nodes: names(&["a"]), pools: names(&[]) });
    assert_eq!(planned(&index), None);
}

#[test]
fn an_old_event_says_nothing() {
    let mut index = index(1);
    index.state(state("a", 5, &required(1)));
    let touched = index.state(state("a", 4, &json!({ "drainStatus": "Idle" })));
    assert_eq!(touched, Touched::default());
    assert_eq!(planned(&index).unwrap(), ["a"]);
}

#[test]
fn a_node_that_is_gone_frees_its_slot_after_a_look_at_the_server() {
    let mut index = index(1);
    index.state(state("a", 2, &required(1)));
    index.pool(pool("p", 2, 1, &[("a", 1)]));
    index.state(state("b", 3, &required(2)));
    let gone =
        Event::Delete(Guarded(Ok(serde_json::from_value(json!({ "metadata": { "name": "a" } })).unwrap())));
    index.node(gone);
    assert_eq!(planned(&index), None, "it may be back already");
    assert_eq!(index.decide("a", None, now()).todo, Todo::Act(NodeAction::Verify));
    let touched = index.verified("a");
    assert!(touched.pools.contains("p"));
    assert_eq!(planned(&index).unwrap(), ["b"]);
}

#[test]
fn a_node_that_withdrew_is_concluded_before_its_slot_is_free() {
    let mut index = index(1);
    index.state(state("a", 2, &required(1)));
    index.pool(pool("p", 2, 1, &[("a", 1)]));
    index.state(state("a", 3, &json!({ "drainStatus": "Idle", "drainRequestedAt": time(1) })));
    assert_eq!(index.decide("a", None, now()).todo, Todo::Conclude(Moment(1_000_000)));
    assert_eq!(planned(&index), None);
    index.node(node("a", 4, &json!({ "vfleet.io/last-drain": time(1) })));
    assert_eq!(planned(&index).unwrap(), Vec::<String>::new());
}

#[test]
fn who_has_a_slot_begins_when_there_are_no_longer_too_many() {
    let mut index = index(1);
    index.state(state("a", 2, &required(1)));
    index.state(state("b", 2, &required(2)));
    // The limit was lowered after both were given.
    index.pool(pool("p", 2, 1, &[("a", 1), ("b", 2)]));
    assert_eq!(index.decide("a", None, now()).todo, Todo::Act(NodeAction::Rest));
    let touched = index.pool(pool("p", 3, 1, &[("a", 1)]));
    assert!(touched.nodes.contains("a"), "{touched:?}");
    assert!(matches!(index.decide("a", None, now()).todo, Todo::Act(NodeAction::Set { .. })));
}

#[test]
fn a_node_that_changes_pools_keeps_its_slot_and_counts_in_the_new_one() {
    let mut index = index(1);
    index.state(state("a", 2, &required(1)));
    index.state(state("b", 2, &required(2)));
    index.pool(pool("p", 2, 1, &[("a", 1)]));
    index.state(state("a", 3, &json!({ "drainStatus": "Draining", "drainRequestedAt": time(1) })));
    // Another pool with a better priority takes all of them.
    let other = json!({
        "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovNetworkPoolConfig",
        "metadata": { "name": "q", "resourceVersion": "3" },
        "spec": { "priority": 1, "drainConfig": { "maxParallelNodeConfiguration": 1 } },
    });
    index.pool(apply(other));
    index.verified("a");
    let slots = |index: &Index, pool: &str| {
        let planned = index.plan_slots(pool, Moment(i64::MAX));
        planned.map(|(_, slots, _)| slots.into_iter().map(|slot| slot.node).collect::<Vec<_>>())
    };
    assert_eq!(slots(&index, "q").unwrap(), ["a"], "it is listed, and b has to wait");
    assert_eq!(slots(&index, "p"), None, "the old pool keeps it until the new one has it");
    assert!(matches!(index.decide("a", None, now()).todo, Todo::Act(NodeAction::Cordon(_))), "it goes on");
    let listed = json!({
        "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovNetworkPoolConfig",
        "metadata": { "name": "q", "resourceVersion": "4" },
        "spec": { "priority": 1, "drainConfig": { "maxParallelNodeConfiguration": 1 } },
        "status": { "slots": [{ "node": "a", "requestedAt": time(1) }] },
    });
    index.pool(apply(listed));
    assert_eq!(slots(&index, "p").unwrap(), Vec::<String>::new());
    assert_eq!(slots(&index, "q"), None);
}

#[test]
fn nobody_is_cordoned_without_a_slot() {
    let mut index = index(1);
    index.state(state("a", 2, &required(1)));
    assert_eq!(index.decide("a", None, now()).todo, Todo::Act(NodeAction::Rest));
    index.pool(pool("p", 2, 1, &[("a", 1)]));
    index.state(state("a", 3, &json!({ "drainStatus": "Draining", "drainRequestedAt": time(1) })));
    let cordon = index.decide("a", None, now()).todo;
    assert!(
        matches!(cordon, Todo::Act(NodeAction::Cordon(Mark { request: Moment(1_000_000), .. }))),
        "{cordon:?}"
    );
}

#[test]
fn what_the_go_operator_left_in_the_middle_keeps_its_machine_config_pool_paused() {
    let paused = McpFacts { is_marked: true, is_paused: true, is_updating: false, others_drain: false };
    let mut index = index(1);
    index.state(state("b", 2, &json!({ "drainStatus": "Idle" })));
    let unpause = Todo::Act(NodeAction::UnpauseMcp);
    // As the operator starts: the node state is still to be made.
    index.node(node("new", 2, &json!({ "sriovnetwork.openshift.io/state": "Draining_MCP_Paused" })));
    assert!(index.draining().any(|node| node == "new"), "it counts for the other nodes of the pool");
    assert_eq!(index.decide("new", Some(paused), now()).todo, Todo::Act(NodeAction::Rest));
    assert_eq!(index.decide("b", Some(paused), now()).todo, unpause);
    index.node(node("new", 3, &json!({})));
    assert!(!index.draining().any(|node| node == "new"));
    assert_eq!(index.decide("new", Some(paused), now()).todo, unpause);
}
