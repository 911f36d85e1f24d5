use super::*;
use serde_json::{Value, json};

fn wish(label: Option<&str>) -> NodeWish {
    NodeWish::Plugin(PluginWish {
        config: "c".to_owned(),
        has_resources: true,
        vfs: String::new(),
        is_settled: true,
        label: label.map(str::to_owned),
    })
}

fn config_map() -> Guarded<ConfigMap> {
    let data = [("a".to_owned(), "c".to_owned())].into();
    Guarded(Ok(ConfigMap { data: Some(data), ..Default::default() }))
}

fn pod(name: &str, node: &str) -> Guarded<Pod> {
    let pod = json!({ "metadata": { "name": name }, "spec": { "nodeName": node, "containers": [] } });
    Guarded(Ok(serde_json::from_value(pod).unwrap()))
}

fn pod_on(index: &Index, node: &str) -> Option<String> {
    index.pod_action(node).map(|(pod, _)| pod.name)
}

#[test]
fn a_config_map_that_went_while_nobody_watched_is_written_again() {
    let mut index = Index::default();
    index.wish("a".to_owned(), Some(wish(None)));
    for event in [Event::Init, Event::InitApply(config_map()), Event::InitDone] {
        index.config_map(event);
    }
    assert!(matches!(index.config_map_change(), Change::Nothing));
    index.config_map(Event::Init);
    assert!(matches!(index.config_map_change(), Change::Nothing), "the list is not here yet");
    assert_eq!(index.config_map(Event::InitDone), [Key::ConfigMap]);
    assert!(matches!(index.config_map_change(), Change::Write(_)));
}

#[test]
fn a_node_that_runs_no_agent_any_more_loses_its_label() {
    let mut index = Index::default();
    index.config_map(Event::Apply(config_map()));
    index.wish("a".to_owned(), Some(wish(None)));
    assert_eq!(index.wanted_label("a"), Some(LabelChange::Set(ENABLED)));
    let touched = index.wish("a".to_owned(), Some(NodeWish::NoLabel));
    assert_eq!(touched, [Key::ConfigMap, Key::Node("a".to_owned())]);
    assert_eq!(index.wanted_label("a"), Some(LabelChange::TakeOff));
    index.wish("a".to_owned(), None);
    assert_eq!(index.wanted_label("a"), None);
    index.wish("a".to_owned(), Some(wish(Some(ENABLED))));
    assert_eq!(index.wanted_label("a"), None);
}

#[test]
fn a_pod_is_found_by_its_node_until_it_is_gone() {
    let mut index = Index::default();
    index.config_map(Event::Apply(config_map()));
    index.wish("a".to_owned(), Some(wish(None)));
    index.pod(Event::Apply(pod("one", "a")));
    index.pod(Event::Apply(pod("other", "b")));
    assert_eq!(pod_on(&index, "a").as_deref(), Some("one"));
    index.pod(Event::Delete(pod("one", "a")));
    assert_eq!(pod_on(&index, "a"), None);
    index.pod(Event::Apply(pod("two", "a")));
    assert_eq!(pod_on(&index, "a").as_deref(), Some("two"));
    for event in [Event::Init, Event::InitApply(pod("other", "b")), Event::InitDone] {
        index.pod(event);
    }
    assert_eq!(pod_on(&index, "a"), None, "it went while nobody watched");
}

#[test]
fn a_pod_that_waits_for_vfs_starts_with_what_it_finds_then() {
    let mut index = Index::default();
    index.config_map(Event::Apply(config_map()));
    index.pod(Event::InitDone);
    index.wish("a".to_owned(), Some(wish(None)));
    index.complete();
    let waiting = |status: Value| {
        let spec = json!({ "nodeName": "a", "containers": [], "initContainers": [{ "name": "wait" }] });
        let pod = json!({ "metadata": { "name": "one" }, "spec": spec, "status": status });
        Event::Apply(Guarded(Ok(serde_json::from_value(pod).unwrap())))
    };
    index.pod(waiting(json!({})));
    let mut other = wish(None);
    if let NodeWish::Plugin(other) = &mut other {
        other.vfs = "others".to_owned();
    }
    index.wish("a".to_owned(), Some(other));
    let action = |index: &Index| index.pod_action("a").map(|(_, action)| action);
    assert_eq!(action(&index), Some(PluginAction::Nothing));
    index.pod(waiting(json!({ "conditions": [{ "type": "Initialized", "status": "True" }] })));
    assert!(matches!(action(&index), Some(PluginAction::Note(_))), "{:?}", action(&index));
    index.wish("a".to_owned(), Some(wish(None)));
    assert_eq!(action(&index), Some(PluginAction::Restart));
}
