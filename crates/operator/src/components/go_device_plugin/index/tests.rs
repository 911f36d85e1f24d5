use super::*;
use serde_json::{Value, json};

fn desired(label: Option<&str>) -> DesiredNodePlugin {
    DesiredNodePlugin::Plugin(DesiredPlugin {
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

fn find_pod(index: &PluginIndex, node: &str) -> Option<String> {
    index.plan_pod(node).map(|(pod, _)| pod.name)
}

#[test]
fn a_config_map_deleted_while_the_watch_was_interrupted_is_written_again() {
    let mut index = PluginIndex::default();
    index.set_desired("a".to_owned(), Some(desired(None)));
    for event in [Event::Init, Event::InitApply(config_map()), Event::InitDone] {
        index.apply_config_map(event);
    }
    assert!(matches!(index.plan_config_map(), ConfigMapChange::None));
    index.apply_config_map(Event::Init);
    assert!(matches!(index.plan_config_map(), ConfigMapChange::None), "the list is not complete");
    assert_eq!(index.apply_config_map(Event::InitDone), [PluginKey::ConfigMap]);
    assert!(matches!(index.plan_config_map(), ConfigMapChange::Write(_)));
}

#[test]
fn a_node_that_runs_no_agent_any_more_loses_its_label() {
    let mut index = PluginIndex::default();
    index.apply_config_map(Event::Apply(config_map()));
    index.set_desired("a".to_owned(), Some(desired(None)));
    assert_eq!(index.plan_label("a"), Some(LabelChange::Set(ENABLED)));
    let affected = index.set_desired("a".to_owned(), Some(DesiredNodePlugin::NoLabel));
    assert_eq!(affected, [PluginKey::ConfigMap, PluginKey::Node("a".to_owned())]);
    assert_eq!(index.plan_label("a"), Some(LabelChange::Remove));
    index.set_desired("a".to_owned(), None);
    assert_eq!(index.plan_label("a"), None);
    index.set_desired("a".to_owned(), Some(desired(Some(ENABLED))));
    assert_eq!(index.plan_label("a"), None);
}

#[test]
fn a_pod_is_found_by_its_node_until_it_is_deleted() {
    let mut index = PluginIndex::default();
    index.apply_config_map(Event::Apply(config_map()));
    index.set_desired("a".to_owned(), Some(desired(None)));
    index.apply_pod(Event::Apply(pod("one", "a")));
    index.apply_pod(Event::Apply(pod("other", "b")));
    assert_eq!(find_pod(&index, "a").as_deref(), Some("one"));
    index.apply_pod(Event::Delete(pod("one", "a")));
    assert_eq!(find_pod(&index, "a"), None);
    index.apply_pod(Event::Apply(pod("two", "a")));
    assert_eq!(find_pod(&index, "a").as_deref(), Some("two"));
    for event in [Event::Init, Event::InitApply(pod("other", "b")), Event::InitDone] {
        index.apply_pod(event);
    }
    assert_eq!(find_pod(&index, "a"), None, "it was deleted while the watch was interrupted");
}

#[test]
fn a_pod_that_waits_for_vfs_starts_with_the_vfs_that_exist_then() {
    let mut index = PluginIndex::default();
    index.apply_config_map(Event::Apply(config_map()));
    index.apply_pod(Event::InitDone);
    index.set_desired("a".to_owned(), Some(desired(None)));
    index.set_complete();
    let waiting = |status: Value| {
        let spec = json!({ "nodeName": "a", "containers": [], "initContainers": [{ "name": "wait" }] });
        let pod = json!({ "metadata": { "name": "one" }, "spec": spec, "status": status });
        Event::Apply(Guarded(Ok(serde_json::from_value(pod).unwrap())))
    };
    index.apply_pod(waiting(json!({})));
    let mut other = desired(None);
    if let DesiredNodePlugin::Plugin(other) = &mut other {
        other.vfs = "others".to_owned();
    }
    index.set_desired("a".to_owned(), Some(other));
    let action = |index: &PluginIndex| index.plan_pod("a").map(|(_, action)| action);
    assert_eq!(action(&index), Some(PluginAction::Nothing));
    index.apply_pod(waiting(json!({ "conditions": [{ "type": "Initialized", "status": "True" }] })));
    assert!(matches!(action(&index), Some(PluginAction::StoreFingerprint(_))), "{:?}", action(&index));
    index.set_desired("a".to_owned(), Some(desired(None)));
    assert_eq!(action(&index), Some(PluginAction::Restart));
}
