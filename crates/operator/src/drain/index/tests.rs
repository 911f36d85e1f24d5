use serde_json::{Value, json};
use vfleet_plan::drain::{CordonMark, McpFacts, NodeAction};

use super::*;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn apply<K: serde::de::DeserializeOwned>(object: Value) -> Event<Guarded<K>> {
    Event::Apply(Guarded(Ok(serde_json::from_value(object).unwrap())))
}

/// Index with these nodes, one pool and no request.
fn index(limit: usize) -> DrainIndex {
    let mut index = DrainIndex::default();
    index.update_node(Event::Init);
    index.update_state(Event::Init);
    index.update_pool(Event::Init);
    index.update_node(Event::InitDone);
    index.update_state(Event::InitDone);
    index.update_pool(Event::InitDone);
    index.update_settings(Some(&SriovOperatorConfig::default()));
    for name in NAMES {
        index.update_node(node(name, 1, &json!({})));
        index.update_state(state(name, 1, &json!({ "drainStatus": "Idle" })));
    }
    index.update_pool(pool("p", 1, limit, &[]));
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

fn planned(index: &DrainIndex) -> Option<Vec<String>> {
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
    let touched = index.update_state(state("b", 2, &required(1)));
    assert_eq!(touched, Touched { nodes: names(&["b"]), pools: names(&["p"]) });
    assert_eq!(index.waiting_count("p"), 1);
    index.update_state(state("a", 2, &required(2)));
    assert_eq!(planned(&index).unwrap(), ["b"], "the earliest request comes first");
}

#[test]
fn a_change_without_effect_on_slots_touches_no_pool() {
    let mut index = index(1);
    index.update_state(state("a", 2, &required(1)));
    index.update_pool(pool("p", 2, 1, &[("a", 1)]));
    let draining = json!({ "drainStatus": "Draining", "drainRequestedAt": time(1) });
    index.update_state(state("a", 3, &draining));
    let mark = json!({ "vfleet.io/cordon": "ours", "vfleet.io/drain-request": time(1) });
    let touched = index.update_node(node("a", 4, &mark));
    assert_eq!(touched, Touched { nodes: names(&["a"]), pools: names(&[]) });
    assert_eq!(planned(&index), None);
}

#[test]
fn an_old_event_is_ignored() {
    let mut index = index(1);
    index.update_state(state("a", 5, &required(1)));
    let touched = index.update_state(state("a", 4, &json!({ "drainStatus": "Idle" })));
    assert_eq!(touched, Touched::default());
    assert_eq!(planned(&index).unwrap(), ["a"]);
}

#[test]
fn the_slot_of_a_deleted_node_is_freed_after_reading_its_objects() {
    let mut index = index(1);
    index.update_state(state("a", 2, &required(1)));
    index.update_pool(pool("p", 2, 1, &[("a", 1)]));
    index.update_state(state("b", 3, &required(2)));
    let gone =
        Event::Delete(Guarded(Ok(serde_json::from_value(json!({ "metadata": { "name": "a" } })).unwrap())));
    index.update_node(gone);
    assert_eq!(planned(&index), None, "the Node may exist again");
    assert_eq!(index.decide("a", None, now()).next, NextAction::Act(NodeAction::Verify));
    let touched = index.mark_verified("a");
    assert!(touched.pools.contains("p"));
    assert_eq!(planned(&index).unwrap(), ["b"]);
}

#[test]
fn a_withdrawn_request_is_recorded_as_finished_before_its_slot_is_free() {
    let mut index = index(1);
    index.update_state(state("a", 2, &required(1)));
    index.update_pool(pool("p", 2, 1, &[("a", 1)]));
    index.update_state(state("a", 3, &json!({ "drainStatus": "Idle", "drainRequestedAt": time(1) })));
    assert_eq!(index.decide("a", None, now()).next, NextAction::RecordFinish(Moment(1_000_000)));
    assert_eq!(planned(&index), None);
    index.update_node(node("a", 4, &json!({ "vfleet.io/last-drain": time(1) })));
    assert_eq!(planned(&index).unwrap(), Vec::<String>::new());
}

#[test]
fn a_drain_starts_when_the_pool_is_within_its_limit_again() {
    let mut index = index(1);
    index.update_state(state("a", 2, &required(1)));
    index.update_state(state("b", 2, &required(2)));
    // The limit was lowered after both slots were granted.
    index.update_pool(pool("p", 2, 1, &[("a", 1), ("b", 2)]));
    assert_eq!(index.decide("a", None, now()).next, NextAction::Act(NodeAction::None));
    let touched = index.update_pool(pool("p", 3, 1, &[("a", 1)]));
    assert!(touched.nodes.contains("a"), "{touched:?}");
    assert!(matches!(index.decide("a", None, now()).next, NextAction::Act(NodeAction::SetStatus { .. })));
}

#[test]
fn a_node_that_changes_pools_keeps_its_slot_and_counts_in_the_new_one() {
    let mut index = index(1);
    index.update_state(state("a", 2, &required(1)));
    index.update_state(state("b", 2, &required(2)));
    index.update_pool(pool("p", 2, 1, &[("a", 1)]));
    index.update_state(state("a", 3, &json!({ "drainStatus": "Draining", "drainRequestedAt": time(1) })));
    // Another pool with a better priority selects all nodes.
    let other = json!({
        "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovNetworkPoolConfig",
        "metadata": { "name": "q", "resourceVersion": "3" },
        "spec": { "priority": 1, "drainConfig": { "maxParallelNodeConfiguration": 1 } },
    });
    index.update_pool(apply(other));
    index.mark_verified("a");
    let slots = |index: &DrainIndex, pool: &str| {
        let planned = index.plan_slots(pool, Moment(i64::MAX));
        planned.map(|(_, slots, _)| slots.into_iter().map(|slot| slot.node).collect::<Vec<_>>())
    };
    assert_eq!(slots(&index, "q").unwrap(), ["a"], "a is listed, b waits");
    assert_eq!(slots(&index, "p"), None, "the old pool lists it until the new one does");
    assert!(
        matches!(index.decide("a", None, now()).next, NextAction::Act(NodeAction::Cordon(_))),
        "the drain continues"
    );
    let listed = json!({
        "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovNetworkPoolConfig",
        "metadata": { "name": "q", "resourceVersion": "4" },
        "spec": { "priority": 1, "drainConfig": { "maxParallelNodeConfiguration": 1 } },
        "status": { "slots": [{ "node": "a", "requestedAt": time(1) }] },
    });
    index.update_pool(apply(listed));
    assert_eq!(slots(&index, "p").unwrap(), Vec::<String>::new());
    assert_eq!(slots(&index, "q"), None);
}

#[test]
fn no_node_is_cordoned_without_a_slot() {
    let mut index = index(1);
    index.update_state(state("a", 2, &required(1)));
    assert_eq!(index.decide("a", None, now()).next, NextAction::Act(NodeAction::None));
    index.update_pool(pool("p", 2, 1, &[("a", 1)]));
    index.update_state(state("a", 3, &json!({ "drainStatus": "Draining", "drainRequestedAt": time(1) })));
    let cordon = index.decide("a", None, now()).next;
    assert!(
        matches!(cordon, NextAction::Act(NodeAction::Cordon(CordonMark { request: Moment(1_000_000), .. }))),
        "{cordon:?}"
    );
}

#[test]
fn an_unfinished_drain_of_the_go_operator_keeps_its_machine_config_pool_paused() {
    let paused = McpFacts { is_marked: true, is_paused: true, is_updating: false, others_drain: false };
    let mut index = index(1);
    index.update_state(state("b", 2, &json!({ "drainStatus": "Idle" })));
    let unpause = NextAction::Act(NodeAction::UnpauseMcp);
    // When the operator starts, the node state does not exist yet.
    index.update_node(node("new", 2, &json!({ "sriovnetwork.openshift.io/state": "Draining_MCP_Paused" })));
    assert!(
        index.draining_nodes().any(|node| node == "new"),
        "it counts for the other nodes of the machine config pool"
    );
    assert_eq!(index.decide("new", Some(paused), now()).next, NextAction::Act(NodeAction::None));
    assert_eq!(index.decide("b", Some(paused), now()).next, unpause);
    index.update_node(node("new", 3, &json!({})));
    assert!(!index.draining_nodes().any(|node| node == "new"));
    assert_eq!(index.decide("new", Some(paused), now()).next, unpause);
}

#[test]
fn a_waiting_node_has_a_full_pool_until_it_gets_a_slot() {
    let mut index = index(1);
    index.update_state(state("a", 2, &required(1)));
    index.update_state(state("b", 2, &required(2)));
    assert_eq!(index.full_pool_of("b"), None, "no slot is granted yet");
    index.update_pool(pool("p", 2, 1, &[("a", 1)]));
    assert_eq!(index.full_pool_of("a"), None, "a has the slot");
    assert_eq!(index.full_pool_of("b"), Some(FullPool { name: "p", limit: 1, holders: vec!["a"] }));
    assert_eq!(index.full_pool_of("c"), None, "c does not wait");
    index.update_pool(pool("p", 3, 0, &[("a", 1)]));
    assert_eq!(index.full_pool_of("b"), None, "0 is no limit");
}

#[test]
fn holders_of_slots_are_not_named_while_many_nodes_wait() {
    let mut index = index(1);
    index.update_state(state("a", 2, &required(1)));
    index.update_pool(pool("p", 2, 1, &[("a", 1)]));
    for number in 0..=100 {
        let name = format!("waiting-{number}");
        index.update_node(node(&name, 1, &json!({})));
        index.update_state(state(&name, 2, &required(number + 2)));
    }
    assert_eq!(index.full_pool_of("waiting-0"), Some(FullPool { name: "p", limit: 1, holders: vec![] }));
}
