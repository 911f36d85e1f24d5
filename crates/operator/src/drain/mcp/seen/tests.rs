use serde_json::json;

use super::*;

const OLD: &str = "rendered-worker-1";
const NEW: &str = "rendered-worker-2";

fn pool(version: u32, state: Option<&str>, is_paused: bool, wanted: &str) -> DynamicObject {
    serde_json::from_value(json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": {
            "name": "worker", "resourceVersion": version.to_string(),
            "annotations": state.map(|state| json!({ NODE_DRAIN_STATE: state })),
        },
        "spec": { "paused": is_paused, "configuration": { "name": wanted } },
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
fn seen() -> Seen {
    let mut seen = Seen::default();
    seen.begin(true);
    seen.pool(Event::Init);
    seen.pool(Event::InitApply(pool(1, None, false, OLD)));
    seen.pool(Event::InitDone);
    assert!(!seen.is_complete());
    seen.node(Event::Init);
    for (name, config) in [("a", Some(OLD)), ("b", Some(OLD)), ("other", None)] {
        seen.node(Event::InitApply(node(name, config)));
    }
    seen.node(Event::InitDone);
    assert!(seen.is_complete());
    assert_eq!(seen.take_questions(), names(&[OLD]), "asked once");
    assert_eq!(seen.learn(OLD.to_owned(), Some("worker".to_owned())), names(&["a", "b"]));
    seen
}

fn facts(seen: &Seen, draining: &[&str]) -> [bool; 4] {
    let facts = seen.facts("a", draining.iter().copied()).unwrap();
    [facts.is_marked, facts.is_paused, facts.is_updating, facts.others_drain]
}

#[test]
fn pools_that_cannot_be_seen_count_as_at_work_until_they_can() {
    let mut seen = Seen::default();
    assert!(!seen.is_settled(), "it is still to be looked for");
    seen.refused("forbidden".to_owned());
    assert!(seen.is_settled() && !seen.is_complete());
    assert_eq!(seen.facts("a", []), Some(UNKNOWN));
    assert_eq!(seen.at_work("a"), AtWork::Refused("forbidden".to_owned()));
    seen.begin(false);
    assert!(seen.is_complete());
    assert_eq!(seen.facts("a", []), None);
}

#[test]
fn why_a_pool_counts_as_at_work() {
    let mut seen = seen();
    assert_eq!(seen.at_work("a"), AtWork::Updates("worker".to_owned()));
    seen.node(Event::Apply(node("a", Some(NEW))));
    assert_eq!(seen.at_work("a"), AtWork::Unknown(NEW.to_owned()));
}

#[test]
fn where_there_are_none_no_node_has_one() {
    let mut seen = Seen::default();
    assert!(!seen.is_complete(), "not looked for yet");
    seen.begin(false);
    assert!(seen.is_complete());
    assert_eq!(seen.facts("a", ["a"]), None);
}

#[test]
fn a_pool_that_is_not_known_yet_counts_as_at_work() {
    let mut seen = seen();
    seen.node(Event::Apply(node("a", Some(NEW))));
    assert_eq!(facts(&seen, &[]), [false, false, true, false]);
    seen.learn(NEW.to_owned(), None);
    assert_eq!(seen.facts("a", []), None, "the machine config is nobody's");
}

#[test]
fn facts_are_what_the_objects_say() {
    let mut seen = seen();
    assert_eq!(facts(&seen, &[]), [false; 4]);
    assert_eq!(seen.facts("other", []), None);
    assert_eq!(seen.pool(Event::Apply(pool(2, None, false, NEW))), names(&["a", "b"]));
    assert_eq!(facts(&seen, &[]), [false, false, true, false]);
    seen.pool(Event::Apply(pool(3, Some("Paused"), true, OLD)));
    assert_eq!(facts(&seen, &["a"]), [true, true, false, false], "it is not an other of itself");
    assert_eq!(facts(&seen, &["b"]), [true, true, false, true]);
    assert!(seen.pool(Event::Apply(pool(4, Some("Paused"), true, OLD))).is_empty(), "nothing that counts");
}

#[test]
fn a_node_that_leaves_touches_those_who_stay() {
    let mut seen = seen();
    assert_eq!(seen.node(Event::Delete(node("b", Some(OLD)))), names(&["a", "b"]));
    assert_eq!(seen.node(Event::Apply(node("a", Some(NEW)))), names(&["a"]));
    assert_eq!(seen.take_questions(), names(&[NEW]));
    seen.learn(NEW.to_owned(), Some("worker".to_owned()));
    assert!(!seen.owners.contains_key(OLD), "forgotten when nobody names it");
}

#[test]
fn it_is_not_paused_while_it_is_at_work_and_not_twice() {
    let mut seen = seen();
    let pause = |seen: &Seen| seen.version_to_write("worker", Write::Pause);
    assert_eq!(pause(&seen), Some("1".to_owned()));
    seen.pool(Event::Apply(pool(2, None, false, NEW)));
    assert_eq!(pause(&seen), None);
    seen.pool(Event::Apply(pool(3, Some("Paused"), true, OLD)));
    assert_eq!(pause(&seen), None);
}

#[test]
fn once_it_is_let_go_on_nobody_counts_on_the_pause() {
    let mut seen = seen();
    seen.pool(Event::Apply(pool(5, Some("Paused"), true, OLD)));
    seen.begin_unpause("worker");
    assert_eq!(facts(&seen, &[])[..2], [false, false]);
    assert_eq!(seen.version_to_write("worker", Write::Unpause), Some("5".to_owned()));
    // What was on its way before the write.
    seen.pool(Event::Apply(pool(4, Some("Paused"), true, OLD)));
    seen.pool(Event::Apply(pool(5, Some("Paused"), true, OLD)));
    assert_eq!(facts(&seen, &[])[..2], [false, false]);
    seen.written(&pool(6, Some("Idle"), false, OLD));
    assert_eq!(facts(&seen, &[])[..2], [false, false]);
    let touched = seen.pool(Event::Apply(pool(6, Some("Idle"), false, OLD)));
    assert_eq!(touched, names(&["a", "b"]), "now they are told");
}

#[test]
fn an_unpause_without_an_answer_is_settled_by_the_next_pause() {
    let mut seen = seen();
    seen.pool(Event::Apply(pool(5, Some("Paused"), true, OLD)));
    seen.begin_unpause("worker");
    assert_eq!(seen.version_to_write("worker", Write::Pause), Some("5".to_owned()));
    // It was never written, so that the pause changed nothing.
    seen.written(&pool(5, Some("Paused"), true, OLD));
    assert_eq!(facts(&seen, &[])[..2], [true, true]);
}

#[test]
fn somebody_elses_pause_is_not_ended() {
    let mut seen = seen();
    seen.pool(Event::Apply(pool(5, None, true, OLD)));
    seen.begin_unpause("worker");
    assert_eq!(seen.version_to_write("worker", Write::Unpause), None);
    assert_eq!(facts(&seen, &[])[..2], [false, true]);
}
