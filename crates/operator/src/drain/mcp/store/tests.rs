use serde_json::json;

use super::*;

const OLD: &str = "rendered-worker-1";
const NEW: &str = "rendered-worker-2";

fn pool(version: u32, state: Option<&str>, is_paused: bool, desired: &str) -> DynamicObject {
    serde_json::from_value(json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": {
            "name": "worker", "resourceVersion": version.to_string(),
            "annotations": state.map(|state| json!({ NODE_DRAIN_STATE: state })),
        },
        "spec": { "paused": is_paused, "configuration": { "name": desired } },
        "status": { "configuration": { "name": OLD } },
    }))
    .unwrap()
}

fn node(name: &str, config: Option<&str>) -> PartialObjectMeta<Node> {
    serde_json::from_value(json!({
        "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
        "metadata": {
            "name": name, "annotations": config.map(|config| json!({ DESIRED_MACHINE_CONFIG: config })),
        },
    }))
    .unwrap()
}

fn names(list: &[&str]) -> BTreeSet<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

/// Two workers, and one node without a machine config.
fn store() -> McpStore {
    let mut store = McpStore::default();
    store.set_available(true);
    store.update_pool(Event::Init);
    store.update_pool(Event::InitApply(pool(1, None, false, OLD)));
    store.update_pool(Event::InitDone);
    assert!(!store.is_complete());
    store.update_node(Event::Init);
    for (name, config) in [("a", Some(OLD)), ("b", Some(OLD)), ("other", None)] {
        store.update_node(Event::InitApply(node(name, config)));
    }
    store.update_node(Event::InitDone);
    assert!(store.is_complete());
    assert_eq!(store.take_lookups(), names(&[OLD]), "asked once");
    assert_eq!(store.set_owner(OLD.to_owned(), Some("worker".to_owned())), names(&["a", "b"]));
    store
}

fn facts(store: &McpStore, draining: &[&str]) -> [bool; 4] {
    let facts = store.facts("a", draining.iter().copied()).unwrap();
    [facts.is_marked, facts.is_paused, facts.is_updating, facts.others_drain]
}

#[test]
fn pools_that_cannot_be_read_count_as_updating() {
    let mut store = McpStore::default();
    assert!(!store.is_settled(), "availability is unknown");
    store.set_error("forbidden".to_owned());
    assert!(store.is_settled() && !store.is_complete());
    assert_eq!(store.facts("a", []), Some(UNKNOWN));
    assert_eq!(store.find_hold("a"), McpHold::Unreadable("forbidden".to_owned()));
    store.set_available(false);
    assert!(store.is_complete());
    assert_eq!(store.facts("a", []), None);
}

#[test]
fn a_hold_names_the_pool_or_the_machine_config() {
    let mut store = store();
    assert_eq!(store.find_hold("a"), McpHold::Updating("worker".to_owned()));
    store.update_node(Event::Apply(node("a", Some(NEW))));
    assert_eq!(store.find_hold("a"), McpHold::UnknownOwner(NEW.to_owned()));
}

#[test]
fn without_pools_no_node_has_facts() {
    let mut store = McpStore::default();
    assert!(!store.is_complete(), "availability is unknown");
    store.set_available(false);
    assert!(store.is_complete());
    assert_eq!(store.facts("a", ["a"]), None);
}

#[test]
fn an_unknown_pool_counts_as_updating() {
    let mut store = store();
    store.update_node(Event::Apply(node("a", Some(NEW))));
    assert_eq!(facts(&store, &[]), [false, false, true, false]);
    store.set_owner(NEW.to_owned(), None);
    assert_eq!(store.facts("a", []), None, "the machine config has no owner");
}

#[test]
fn facts_come_from_the_objects() {
    let mut store = store();
    assert_eq!(facts(&store, &[]), [false; 4]);
    assert_eq!(store.facts("other", []), None);
    assert_eq!(store.update_pool(Event::Apply(pool(2, None, false, NEW))), names(&["a", "b"]));
    assert_eq!(facts(&store, &[]), [false, false, true, false]);
    store.update_pool(Event::Apply(pool(3, Some("Paused"), true, OLD)));
    assert_eq!(facts(&store, &["a"]), [true, true, false, false], "the node itself does not count");
    assert_eq!(facts(&store, &["b"]), [true, true, false, true]);
    assert!(
        store.update_pool(Event::Apply(pool(4, Some("Paused"), true, OLD))).is_empty(),
        "no fact changed"
    );
}

#[test]
fn a_node_that_leaves_a_pool_touches_its_other_nodes() {
    let mut store = store();
    assert_eq!(store.update_node(Event::Delete(node("b", Some(OLD)))), names(&["a", "b"]));
    assert_eq!(store.update_node(Event::Apply(node("a", Some(NEW)))), names(&["a"]));
    assert_eq!(store.take_lookups(), names(&[NEW]));
    store.set_owner(NEW.to_owned(), Some("worker".to_owned()));
    assert!(!store.owners.contains_key(OLD), "unused machine configs are forgotten");
}

#[test]
fn a_pool_is_not_paused_while_it_is_updating_or_paused() {
    let mut store = store();
    let pause = |store: &McpStore| store.version_to_write("worker", PauseWrite::Pause);
    assert_eq!(pause(&store), Some("1".to_owned()));
    store.update_pool(Event::Apply(pool(2, None, false, NEW)));
    assert_eq!(pause(&store), None);
    store.update_pool(Event::Apply(pool(3, Some("Paused"), true, OLD)));
    assert_eq!(pause(&store), None);
}

#[test]
fn a_pool_does_not_count_as_paused_during_an_unpause() {
    let mut store = store();
    store.update_pool(Event::Apply(pool(5, Some("Paused"), true, OLD)));
    store.begin_unpause("worker");
    assert_eq!(facts(&store, &[])[..2], [false, false]);
    assert_eq!(store.version_to_write("worker", PauseWrite::Unpause), Some("5".to_owned()));
    // Events from before the write.
    store.update_pool(Event::Apply(pool(4, Some("Paused"), true, OLD)));
    store.update_pool(Event::Apply(pool(5, Some("Paused"), true, OLD)));
    assert_eq!(facts(&store, &[])[..2], [false, false]);
    store.handle_written(&pool(6, Some("Idle"), false, OLD));
    assert_eq!(facts(&store, &[])[..2], [false, false]);
    let touched = store.update_pool(Event::Apply(pool(6, Some("Idle"), false, OLD)));
    assert_eq!(touched, names(&["a", "b"]), "the nodes are touched now");
}

#[test]
fn an_unpause_without_an_answer_is_settled_by_the_next_pause() {
    let mut store = store();
    store.update_pool(Event::Apply(pool(5, Some("Paused"), true, OLD)));
    store.begin_unpause("worker");
    assert_eq!(store.version_to_write("worker", PauseWrite::Pause), Some("5".to_owned()));
    // The unpause was never written, so the pause changed nothing.
    store.handle_written(&pool(5, Some("Paused"), true, OLD));
    assert_eq!(facts(&store, &[])[..2], [true, true]);
}

#[test]
fn a_pause_of_an_administrator_is_not_ended() {
    let mut store = store();
    store.update_pool(Event::Apply(pool(5, None, true, OLD)));
    store.begin_unpause("worker");
    assert_eq!(store.version_to_write("worker", PauseWrite::Unpause), None);
    assert_eq!(facts(&store, &[])[..2], [false, true]);
}
