use std::collections::BTreeMap;
use std::sync::LazyLock;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::ObjectMeta;
use serde_json::json;
use vfleet_api::SriovNetworkNodeStateSpec;

use vfleet_api::keys::{KEEP_STATE_UNTIL, OPERATOR_FIELD_MANAGER, OS_LABEL, WORKER_LABEL};
use vfleet_plan::admission::Installation;
use vfleet_plan::{NodeStateUpdate, PolicyNodeStatus};

use super::*;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

static OWNER_REFERENCE: LazyLock<serde_json::Value> = LazyLock::new(|| {
    json!({ "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovOperatorConfig", "name": "default",
            "uid": "config", "controller": true })
});

fn config(spec: &serde_json::Value) -> SriovOperatorConfig {
    serde_json::from_value(json!({ "metadata": { "name": "default", "uid": "config" }, "spec": spec }))
        .unwrap()
}

/// Returns an index with an empty operator config.
fn new_index() -> FleetIndex {
    let mut fleet = FleetIndex::default();
    fleet.apply_config(Some(&config(&json!({}))));
    fleet.apply_nic_ids(Some(NicIds::default()));
    fleet
}

fn node(name: &str, labels: &[(&str, &str)]) -> Guarded<Node> {
    let labels: BTreeMap<_, _> = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let metadata = ObjectMeta { name: Some(name.to_owned()), labels: Some(labels), ..Default::default() };
    Guarded(Ok(Node { metadata, ..Default::default() }))
}

fn worker(name: &str) -> Guarded<Node> {
    node(name, &[(WORKER_LABEL, ""), (OS_LABEL, "linux")])
}

fn state(name: &str, status: &serde_json::Value) -> Guarded<SriovNetworkNodeState> {
    serde_json::from_value(json!({
        "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovNetworkNodeState",
        "metadata": { "name": name, "ownerReferences": [OWNER_REFERENCE.clone()] }, "spec": {}, "status": status,
    }))
    .unwrap()
}

fn state_with_card(name: &str) -> Guarded<SriovNetworkNodeState> {
    state(
        name,
        &json!({ "interfaces": [{ "name": "ens1f0", "pciAddress": "0000:3b:00.0", "vendor": "8086", "totalvfs": 64 }] }),
    )
}

fn policy(name: &str, num_vfs: i64) -> Guarded<SriovNetworkNodePolicy> {
    serde_json::from_value(json!({
        "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovNetworkNodePolicy",
        "metadata": { "name": name },
        "spec": { "resourceName": name, "nodeSelector": {}, "numVfs": num_vfs, "nicSelector": { "vendor": "8086" } },
    }))
    .unwrap()
}

fn decide(fleet: &FleetIndex, node: &str) -> NodeStateAction {
    fleet.decide(node, SignedDuration::from_mins(30), NOW).0
}

fn desired_spec(fleet: &FleetIndex, node: &str) -> SriovNetworkNodeStateSpec {
    match decide(fleet, node) {
        NodeStateAction::Update(NodeStateUpdate { spec: Some(spec), .. }) => spec,
        other => panic!("expected a spec, got {other:?}"),
    }
}

fn nodes(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn a_worker_without_a_node_state_gets_one_without_a_spec() {
    let mut fleet = new_index();
    assert_eq!(fleet.apply_node(Event::Apply(worker("a"))).nodes, nodes(&["a"]));
    assert_eq!(decide(&fleet, "a"), NodeStateAction::Create);
}

#[test]
fn a_node_that_runs_no_agent_is_left_alone() {
    let mut fleet = new_index();
    fleet.apply_node(Event::Apply(node("windows", &[(WORKER_LABEL, ""), (OS_LABEL, "windows")])));
    fleet.apply_node(Event::Apply(node("control", &[(OS_LABEL, "linux")])));
    assert_eq!(decide(&fleet, "windows"), NodeStateAction::None);
    assert_eq!(decide(&fleet, "control"), NodeStateAction::None);
}

#[test]
fn a_node_whose_cards_are_not_known_is_left_alone() {
    let mut fleet = new_index();
    fleet.apply_node(Event::Apply(worker("a")));
    fleet.apply_state(Event::Apply(state("a", &json!({ "syncStatus": "" }))));
    fleet.apply_policy(Event::Apply(policy("p", 4)));
    assert_eq!(decide(&fleet, "a"), NodeStateAction::None);
}

#[test]
fn a_policy_becomes_a_spec_and_then_nothing_is_left_to_do() {
    let mut fleet = new_index();
    fleet.apply_node(Event::Apply(worker("a")));
    fleet.apply_state(Event::Apply(state_with_card("a")));
    assert_eq!(fleet.apply_policy(Event::Apply(policy("p", 4))).nodes, nodes(&["a"]));
    let spec = desired_spec(&fleet, "a");
    assert_eq!(spec.interfaces.as_ref().unwrap()[0].num_vfs, Some(4));
    let written = SriovNetworkNodeState { spec, ..state_with_card("a").0.unwrap() };
    fleet.apply_state(Event::Apply(Guarded(Ok(written))));
    assert_eq!(decide(&fleet, "a"), NodeStateAction::None);
}

#[test]
fn without_policies_the_spec_has_no_interfaces() {
    let mut fleet = new_index();
    fleet.apply_node(Event::Apply(worker("a")));
    fleet.apply_state(Event::Apply(state_with_card("a")));
    let spec = desired_spec(&fleet, "a");
    assert_eq!(spec.interfaces, Some(Vec::new()));
}

#[test]
fn an_unchanged_object_affects_no_node() {
    let mut fleet = new_index();
    fleet.apply_node(Event::Apply(worker("a")));
    fleet.apply_policy(Event::Apply(policy("p", 4)));
    assert!(fleet.apply_policy(Event::Apply(policy("p", 4))).nodes.is_empty());
    assert!(fleet.apply_node(Event::Apply(worker("a"))).nodes.is_empty());
}

#[test]
fn a_policy_deleted_while_the_watch_was_interrupted_affects_its_nodes() {
    let mut fleet = new_index();
    fleet.apply_node(Event::Apply(worker("a")));
    fleet.apply_policy(Event::Apply(policy("p", 4)));
    fleet.apply_policy(Event::Init);
    assert_eq!(fleet.apply_policy(Event::InitDone).nodes, nodes(&["a"]));
}

#[test]
fn nothing_is_complete_before_all_kinds_are_listed() {
    let mut fleet = new_index();
    fleet.apply_policy(Event::InitDone);
    fleet.apply_node(Event::InitDone);
    assert!(!fleet.is_complete());
    fleet.apply_state(Event::InitDone);
    assert!(!fleet.is_complete());
    fleet.apply_pool(Event::InitDone);
    assert!(fleet.is_complete());
    fleet.apply_nic_ids(None);
    assert!(!fleet.is_complete(), "the device plugin config depends on the NIC IDs");
    fleet.apply_nic_ids(Some(NicIds::default()));
    fleet.apply_config(None);
    assert!(!fleet.is_complete(), "the operator config selects the nodes that run an agent");
}

#[test]
fn empty_sections_of_the_go_operator_are_no_difference() {
    let mut fleet = new_index();
    fleet.apply_node(Event::Apply(worker("a")));
    let spec = serde_json::from_value(json!({ "interfaces": [], "bridges": {}, "system": {} })).unwrap();
    let written = SriovNetworkNodeState { spec, ..state_with_card("a").0.unwrap() };
    fleet.apply_state(Event::Apply(Guarded(Ok(written))));
    assert_eq!(decide(&fleet, "a"), NodeStateAction::None);
}

fn unreadable_policy(name: &str) -> Guarded<SriovNetworkNodePolicy> {
    let future = json!({ "metadata": { "name": name }, "spec": { "deviceType": "of-the-future" } });
    let guarded: Guarded<_> = serde_json::from_value(future).unwrap();
    assert!(guarded.0.is_err());
    guarded
}

#[test]
fn a_policy_that_could_never_be_read_keeps_its_vfs() {
    let mut fleet = new_index();
    fleet.apply_node(Event::Apply(worker("a")));
    fleet.apply_state(Event::Apply(state_with_card("a")));
    fleet.apply_policy(Event::Apply(policy("p", 4)));
    let spec = desired_spec(&fleet, "a");

    let mut restarted = new_index();
    restarted.apply_node(Event::Apply(worker("a")));
    let written = SriovNetworkNodeState { spec, ..state_with_card("a").0.unwrap() };
    restarted.apply_state(Event::Apply(Guarded(Ok(written))));
    restarted.apply_policy(Event::InitApply(unreadable_policy("p")));
    restarted.apply_policy(Event::InitDone);
    assert_eq!(decide(&restarted, "a"), NodeStateAction::None);
    assert_eq!(restarted.apply_policy(Event::Delete(unreadable_policy("p"))).nodes, nodes(&["a"]));
    desired_spec(&restarted, "a");
}

#[test]
fn a_policy_that_becomes_unreadable_keeps_its_last_version() {
    let mut fleet = new_index();
    fleet.apply_node(Event::Apply(worker("a")));
    fleet.apply_state(Event::Apply(state_with_card("a")));
    fleet.apply_policy(Event::Apply(policy("p", 4)));
    assert!(fleet.apply_policy(Event::Apply(unreadable_policy("p"))).nodes.is_empty());
    let spec = desired_spec(&fleet, "a");
    assert_eq!(spec.interfaces.unwrap()[0].num_vfs, Some(4));
}

fn labelled(name: &str, key: &str, value: &str) -> Guarded<Node> {
    node(name, &[(WORKER_LABEL, ""), (OS_LABEL, "linux"), (key, value)])
}

fn policy_for(name: &str, label: (&str, &str)) -> Guarded<SriovNetworkNodePolicy> {
    let mut policy = policy(name, 4).0.unwrap();
    policy.spec.node_selector = [(label.0.to_owned(), label.1.to_owned())].into();
    Guarded(Ok(policy))
}

#[test]
fn a_policy_affects_the_nodes_that_it_selects_or_selected() {
    let mut fleet = new_index();
    for (name, rack) in [("a", "1"), ("b", "2"), ("c", "3")] {
        fleet.apply_node(Event::Apply(labelled(name, "rack", rack)));
    }
    assert_eq!(fleet.apply_policy(Event::Apply(policy_for("p", ("rack", "1")))).nodes, nodes(&["a"]));
    assert_eq!(fleet.apply_policy(Event::Apply(policy_for("p", ("rack", "2")))).nodes, nodes(&["a", "b"]));
    assert_eq!(fleet.apply_policy(Event::Delete(policy_for("p", ("rack", "2")))).nodes, nodes(&["b"]));
}

#[test]
fn a_node_without_an_agent_affects_the_status_of_the_policies_that_select_it() {
    let mut fleet = new_index();
    fleet.apply_policy(Event::Apply(policy_for("racks", ("rack", "a"))));
    fleet.apply_policy(Event::Apply(policy_for("others", ("rack", "b"))));
    let affected = fleet.apply_node(Event::Apply(node("extra", &[("rack", "a")])));
    assert_eq!(affected.policies, nodes(&["racks"]));
    let affected = fleet.apply_node(Event::Apply(node("extra", &[("rack", "b")])));
    assert_eq!(affected.policies, nodes(&["others", "racks"]));
    assert_eq!(fleet.apply_node(Event::Apply(labelled("worker", "rack", "a"))).policies, nodes(&[]));
}

fn pool(name: &str, spec: &serde_json::Value) -> Guarded<SriovNetworkPoolConfig> {
    serde_json::from_value(json!({ "metadata": { "name": name }, "spec": spec })).unwrap()
}

#[test]
fn a_pool_affects_its_nodes_and_sets_their_rdma_mode() {
    let mut fleet = new_index();
    fleet.apply_node(Event::Apply(labelled("a", "rack", "1")));
    fleet.apply_node(Event::Apply(labelled("b", "rack", "2")));
    fleet.apply_state(Event::Apply(state_with_card("a")));
    let spec = json!({ "nodeSelector": { "matchLabels": { "rack": "1" } }, "rdmaMode": "exclusive" });
    assert_eq!(fleet.apply_pool(Event::Apply(pool("p", &spec))).nodes, nodes(&["a"]));
    let system = desired_spec(&fleet, "a").system.unwrap();
    assert_eq!(serde_json::to_value(system).unwrap(), json!({ "rdmaMode": "exclusive" }));
}

/// A pool that cannot be evaluated may be the node's, and another RDMA mode would reboot the node.
#[test]
fn a_pool_that_cannot_be_evaluated_does_not_change_the_rdma_mode() {
    let mut fleet = new_index();
    fleet.apply_node(Event::Apply(labelled("a", "rack", "1")));
    let mut exclusive = state_with_card("a").0.unwrap();
    exclusive.spec =
        serde_json::from_value(json!({ "interfaces": [], "system": { "rdmaMode": "exclusive" } })).unwrap();
    fleet.apply_state(Event::Apply(Guarded(Ok(exclusive))));
    let wrong = json!({ "matchExpressions": [{ "key": "rack", "operator": "Sometimes" }] });
    fleet.apply_pool(Event::Apply(pool("p", &json!({ "nodeSelector": wrong, "rdmaMode": "exclusive" }))));
    assert_eq!(decide(&fleet, "a"), NodeStateAction::None);
    fleet.apply_pool(Event::Delete(pool("p", &json!({ "nodeSelector": wrong }))));
    assert_eq!(desired_spec(&fleet, "a").system, None);
}

/// An empty spec would make the agent remove all VFs.
#[test]
fn a_node_that_reports_no_card_keeps_its_spec_and_its_plugin() {
    let mut fleet = new_index();
    fleet.apply_node(Event::Apply(worker("a")));
    fleet.apply_policy(Event::Apply(policy("p", 2)));
    fleet.apply_state(Event::Apply(state_with_card("a")));
    let spec = desired_spec(&fleet, "a");
    let mut empty = state("a", &json!({ "interfaces": [] })).0.unwrap();
    empty.spec = spec;
    fleet.apply_state(Event::Apply(Guarded(Ok(empty))));
    assert_eq!(decide(&fleet, "a"), NodeStateAction::None);
    assert_eq!(desired_plugin(&fleet, "a"), Some(DesiredNodePlugin::Unchanged));
}

#[test]
fn the_operator_config_selects_the_nodes_that_run_an_agent() {
    let mut fleet = new_index();
    fleet.apply_node(Event::Apply(labelled("a", "rack", "1")));
    fleet.apply_node(Event::Apply(node("b", &[("rack", "2")])));
    assert_eq!(decide(&fleet, "b"), NodeStateAction::None);
    let selector = json!({ "configDaemonNodeSelector": { "rack": "2" } });
    assert_eq!(fleet.apply_config(Some(&config(&selector))).nodes, nodes(&["a", "b"]));
    assert_eq!(decide(&fleet, "a"), NodeStateAction::None);
    assert_eq!(decide(&fleet, "b"), NodeStateAction::Create);
    assert!(fleet.apply_config(Some(&config(&selector))).nodes.is_empty());
}

#[test]
fn a_node_state_without_a_node_is_kept_for_a_while_and_then_deleted() {
    let mut fleet = new_index();
    fleet.apply_state(Event::Apply(state_with_card("a")));
    let until = NOW + SignedDuration::from_mins(30);
    assert_eq!(decide(&fleet, "a"), NodeStateAction::KeepUntil { until, version: None });

    let mut kept = state_with_card("a").0.unwrap();
    kept.metadata.annotations = Some([(KEEP_STATE_UNTIL.to_owned(), until.to_string())].into());
    fleet.apply_state(Event::Apply(Guarded(Ok(kept))));
    assert_eq!(decide(&fleet, "a"), NodeStateAction::CheckAgainAt(until));
    let later = fleet.decide("a", SignedDuration::from_mins(30), until).0;
    assert_eq!(later, NodeStateAction::Delete { uid: None, version: None });

    fleet.apply_node(Event::Apply(worker("a")));
    assert!(matches!(
        decide(&fleet, "a"),
        NodeStateAction::Update(NodeStateUpdate { remove_keep_until: true, .. })
    ));
}

#[test]
fn a_node_state_of_another_owner_is_taken_over() {
    let mut fleet = new_index();
    fleet.apply_node(Event::Apply(worker("a")));
    let mut state = state("a", &json!({})).0.unwrap();
    state.metadata.owner_references.as_mut().unwrap()[0].uid = "policy-default".to_owned();
    fleet.apply_state(Event::Apply(Guarded(Ok(state))));
    assert!(matches!(
        decide(&fleet, "a"),
        NodeStateAction::Update(NodeStateUpdate { set_owner: true, spec: None, .. })
    ));
}

#[test]
fn a_link_that_goes_down_does_not_affect_the_node() {
    let mut fleet = new_index();
    let card = |up: &str| {
        let card = json!({ "name": "e", "pciAddress": "0000:3b:00.0", "linkAdminState": up, "Vfs": [] });
        state("a", &json!({ "interfaces": [card] }))
    };
    fleet.apply_state(Event::Apply(card("up")));
    assert!(fleet.apply_state(Event::Apply(card("down"))).nodes.is_empty());
}

/// Returns the status of a node with this state for each policy.
fn policy_statuses(
    state: Guarded<SriovNetworkNodeState>,
    policies: &[(&str, i64)],
) -> Vec<(String, PolicyNodeStatus)> {
    let mut fleet = new_index();
    fleet.apply_node(Event::Apply(worker("a")));
    for (name, num_vfs) in policies {
        fleet.apply_policy(Event::Apply(policy(name, *num_vfs)));
    }
    fleet.apply_state(Event::Apply(state));
    let (mut action, mut evaluations) = fleet.decide("a", SignedDuration::ZERO, NOW);
    if let NodeStateAction::Update(NodeStateUpdate { spec: Some(spec), .. }) = action {
        let state = FleetNodeState { spec, ..fleet.states.get("a").unwrap().clone() };
        fleet.states = ObjectStore::default();
        fleet.states.update_with(Event::Apply(worker("a")), |_| Ok(state));
        (action, evaluations) = fleet.decide("a", SignedDuration::ZERO, NOW);
    }
    assert_eq!(action, NodeStateAction::None);
    let statuses = fleet.policy_statuses("a", &action, &evaluations).into_iter();
    let mut list: Vec<_> = statuses.map(|(policy, status)| (policy.to_owned(), status)).collect();
    list.sort();
    list
}

#[test]
fn a_failed_card_concerns_only_the_policies_that_select_it() {
    let failed = |pf: &str| {
        let ready = json!([{ "type": "Ready", "status": "False", "reason": "TooManyVfs", "message": "8 of 7",
                             "lastTransitionTime": "1970-01-01T00:00:00Z" }]);
        state(
            "a",
            &json!({ "syncStatus": "Failed", "interfaces": [
            { "name": "ens1f0", "pciAddress": "0000:3b:00.0", "vendor": "8086",
              "conditions": if pf == "ens1f0" { ready.clone() } else { json!([]) } },
            { "name": "other", "pciAddress": "0000:5e:00.0", "vendor": "15b3",
              "conditions": if pf == "other" { ready } else { json!([]) } },
        ] }),
        )
    };
    assert_eq!(policy_statuses(failed("ens1f0"), &[("p", 4)]), [("p".to_owned(), PolicyNodeStatus::Failed)]);
    assert_eq!(policy_statuses(failed("other"), &[("p", 4)]), [("p".to_owned(), PolicyNodeStatus::Ready)]);
}

#[test]
fn policies_in_conflict_differ_from_policies_that_are_ready() {
    let done = state(
        "a",
        &json!({ "syncStatus": "Succeeded", "interfaces": [
        { "name": "ens1f0", "pciAddress": "0000:3b:00.0", "vendor": "8086" } ] }),
    );
    let both = policy_statuses(done, &[("p", 4), ("q", 4)]);
    assert_eq!(
        both,
        [("p".to_owned(), PolicyNodeStatus::Conflict), ("q".to_owned(), PolicyNodeStatus::Ready)]
    );
}

#[test]
fn a_node_that_has_not_reported_has_no_facts() {
    assert_eq!(
        policy_statuses(state("a", &json!({})), &[("p", 4)]),
        [("p".to_owned(), PolicyNodeStatus::NoFacts)]
    );
}

#[test]
fn a_new_node_state_gets_no_spec_while_an_invalid_policy_may_have_created_its_vfs() {
    let mut fleet = new_index();
    fleet.apply_node(Event::Apply(worker("a")));
    let card = json!({ "name": "ens1f0", "pciAddress": "0000:3b:00.0", "vendor": "8086", "numVfs": 4 });
    fleet.apply_state(Event::Apply(state("a", &json!({ "interfaces": [card] }))));
    let mut bad = policy("p", 4).0.unwrap();
    bad.spec.nic_selector = serde_json::from_value(json!({ "pfNames": ["ens1f0#3-1"] })).unwrap();
    fleet.apply_policy(Event::Apply(Guarded(Ok(bad))));
    assert_eq!(decide(&fleet, "a"), NodeStateAction::None);
    fleet.apply_policy(Event::Apply(policy("p", 4)));
    desired_spec(&fleet, "a");

    let mut unreadable = new_index();
    unreadable.apply_node(Event::Apply(worker("a")));
    let card = json!({ "name": "ens1f0", "pciAddress": "0000:3b:00.0", "vendor": "8086", "numVfs": 4 });
    unreadable.apply_state(Event::Apply(state("a", &json!({ "interfaces": [card] }))));
    unreadable.apply_policy(Event::Apply(unreadable_policy("p")));
    assert_eq!(decide(&unreadable, "a"), NodeStateAction::None);
}

#[test]
fn a_policy_that_becomes_unreadable_is_reported() {
    let mut fleet = new_index();
    fleet.apply_policy(Event::Apply(policy("p", 4)));
    assert!(fleet.find_unreadable_policy("p").is_none());
    let affected = fleet.apply_policy(Event::Apply(unreadable_policy("p")));
    assert_eq!((affected.nodes, affected.policies), (nodes(&[]), nodes(&["p"])));
    assert!(fleet.find_unreadable_policy("p").is_some());
    fleet.apply_policy(Event::Apply(policy("p", 4)));
    assert!(fleet.find_unreadable_policy("p").is_none());
}

#[test]
fn an_unreadable_node_state_is_not_created_again() {
    let mut fleet = new_index();
    fleet.apply_node(Event::Apply(worker("a")));
    let strange = json!({ "metadata": { "name": "a" }, "spec": { "interfaces": "of-the-future" } });
    fleet.apply_state(Event::Apply(serde_json::from_value(strange).unwrap()));
    assert_eq!(decide(&fleet, "a"), NodeStateAction::None);
}

#[test]
fn a_status_older_than_the_spec_counts_as_in_progress() {
    let status = json!({ "syncStatus": "Succeeded", "interfaces": [
        { "name": "ens1f0", "pciAddress": "0000:3b:00.0", "vendor": "8086" } ] });
    let state_written = |spec: &str, by_daemon: &str| {
        let mut state = state("a", &status).0.unwrap();
        let entries = json!([
            { "manager": OPERATOR_FIELD_MANAGER, "operation": "Apply", "time": spec },
            { "manager": "the-go-daemon", "operation": "Update", "subresource": "status", "time": by_daemon },
        ]);
        state.metadata.managed_fields = Some(serde_json::from_value(entries).unwrap());
        Guarded(Ok(state))
    };
    let early = "2026-01-01T00:00:00Z";
    let late = "2026-01-01T00:00:09Z";
    assert_eq!(policy_statuses(state_written(early, late), &[("p", 4)])[0].1, PolicyNodeStatus::Ready);
    assert_eq!(policy_statuses(state_written(late, early), &[("p", 4)])[0].1, PolicyNodeStatus::Pending);
}

fn desired_plugin(fleet: &FleetIndex, node: &str) -> Option<DesiredNodePlugin> {
    fleet.desired_plugin(node, &NodeStateAction::None)
}

#[test]
fn a_node_that_is_no_longer_selected_loses_the_label_of_the_plugin() {
    let mut fleet = new_index();
    fleet.apply_node(Event::Apply(node("a", &[(DEVICE_PLUGIN_LABEL, "Enabled")])));
    fleet.apply_node(Event::Apply(node("b", &[])));
    assert_eq!(desired_plugin(&fleet, "a"), Some(DesiredNodePlugin::NoLabel));
    assert_eq!(desired_plugin(&fleet, "b"), None);
    assert_eq!(desired_plugin(&fleet, "gone"), None);
}

#[test]
fn the_plugin_config_has_the_device_id_that_the_vfs_report() {
    let mut fleet = new_index();
    fleet.apply_node(Event::Apply(worker("a")));
    let vf = |id: i64| json!({ "vfID": id, "pciAddress": format!("0000:3b:01.{id}"), "deviceID": "1889", "mtu": id });
    let card = json!({ "pciAddress": "0000:3b:00.0", "deviceID": "1592", "Vfs": [vf(0), vf(1)] });
    fleet.apply_state(Event::Apply(state("a", &json!({ "interfaces": [card] }))));
    let mut with_device = policy("p", 4).0.unwrap();
    with_device.spec.nic_selector = serde_json::from_value(json!({ "deviceID": "1592" })).unwrap();
    fleet.apply_policy(Event::Apply(Guarded(Ok(with_device))));
    let Some(DesiredNodePlugin::Plugin(desired)) = desired_plugin(&fleet, "a") else {
        panic!("expected a plugin")
    };
    assert!(desired.config.contains(r#""devices":["1889"]"#), "{}", desired.config);
}

fn drained(name: &str, drain: &str, blocked: Option<&str>) -> Guarded<SriovNetworkNodeState> {
    let conditions: Vec<_> = blocked
        .map(|message| {
            json!({ "type": "Blocked", "status": "True", "reason": "EvictionRefused", "message": message,
                    "lastTransitionTime": "2026-01-01T00:00:00Z" })
        })
        .into_iter()
        .collect();
    state(name, &json!({ "drainStatus": drain, "conditions": conditions }))
}

#[test]
fn a_blocked_node_is_also_counted_as_blocked_and_its_pool_reports_why() {
    let mut fleet = new_index();
    let mut tally = tally::NodeTally::default();
    fleet.apply_pool(Event::Apply(pool("p", &json!({ "maxUnavailable": "50%" }))));
    for (node, drain, blocked) in [
        ("a", "Drain_Required", None),
        ("b", "Draining", Some("budget x")),
        ("c", "Draining", None),
        // An old condition: no drain is in progress.
        ("d", "Idle", Some("old")),
    ] {
        fleet.apply_node(Event::Apply(worker(node)));
        fleet.apply_state(Event::Apply(drained(node, drain, blocked)));
        tally.update(node, fleet.pool_statuses(node));
    }
    let summarize = |fleet: &FleetIndex, tally: &tally::NodeTally<_>| {
        fleet.summarize_pool("p", fleet.find_pool("p").unwrap(), tally.get("p"))
    };
    let summary = summarize(&fleet, &tally);
    let count = [
        summary.nodes.total,
        summary.nodes.waiting,
        summary.nodes.draining,
        summary.nodes.done,
        summary.nodes.blocked,
    ];
    assert_eq!(count.map(Option::unwrap), [4, 1, 2, 0, 1]);
    assert_eq!(summary.limit, Some((vfleet_plan::drain::DrainLimit::AtMost(2), None)));
    assert_eq!(
        summary.blocked.map(|blocked| (blocked.node, blocked.message)),
        Some(("b".into(), "budget x".into()))
    );

    // Another message changes no count, but the pool has to be reported again.
    let affected = fleet.apply_state(Event::Apply(drained("b", "Draining", Some("budget y"))));
    assert_eq!(affected.pools, nodes(&["p"]));
    assert_eq!(tally.update("b", fleet.pool_statuses("b")), nodes(&[]));
    assert_eq!(summarize(&fleet, &tally).blocked.unwrap().message, "budget y");
}

#[test]
fn a_pool_for_offload_only_has_no_limit() {
    let mut fleet = new_index();
    fleet.apply_pool(Event::Apply(pool("p", &json!({ "ovsHardwareOffloadConfig": { "name": "worker" } }))));
    assert_eq!(fleet.summarize_pool("p", fleet.find_pool("p").unwrap(), None).limit, None);
}

#[test]
fn policies_are_checked_again_after_relevant_changes() {
    let card = |name: &str, value: serde_json::Value| {
        let mut card =
            json!({ "name": "ens1f0", "pciAddress": "0000:3b:00.0", "vendor": "8086", "totalvfs": 64 });
        card[name] = value;
        Event::Apply(state("a", &json!({ "interfaces": [card] })))
    };
    let mut fleet = new_index();
    fleet.apply_node(Event::Apply(worker("a")));
    fleet.apply_policy(Event::Apply(policy("p", 4)));
    let mut last = fleet.rules_revision();
    let mut is_changed =
        |fleet: &FleetIndex| std::mem::replace(&mut last, fleet.rules_revision()) != fleet.rules_revision();
    fleet.apply_state(card("totalvfs", json!(64)));
    assert!(is_changed(&fleet), "its cards are known now");
    fleet.apply_state(card("numVfs", json!(4)));
    assert!(!is_changed(&fleet), "the agent created VFs");
    fleet.apply_state(card("totalvfs", json!(2)));
    assert!(is_changed(&fleet));
    fleet.apply_node(Event::Apply(node("a", &[(WORKER_LABEL, ""), (OS_LABEL, "linux"), ("rack", "1")])));
    assert!(is_changed(&fleet));
    fleet.apply_policy(Event::Apply(policy("q", 4)));
    assert!(is_changed(&fleet), "a finding may be caused by another policy");
    fleet.apply_policy(Event::Apply(policy("q", 4)));
    assert!(!is_changed(&fleet));
}

#[test]
fn pools_report_other_pools_with_the_same_nodes() {
    let installation = Installation { namespace: "home", dev_mode: false };
    let rules = |fleet: &FleetIndex, name: &str| -> Vec<_> {
        let findings = fleet.check_pool_config(name, fleet.find_pool(name).unwrap(), &installation);
        findings.iter().map(|finding| finding.rule).collect()
    };
    let mut fleet = new_index();
    fleet.apply_node(Event::Apply(worker("a")));
    let here = json!({ "maxUnavailable": 1, "priority": 5, "nodeSelector": { "matchLabels": { OS_LABEL: "linux" } } });
    let nowhere =
        json!({ "maxUnavailable": 1, "priority": 5, "nodeSelector": { "matchLabels": { "rack": "1" } } });
    fleet.apply_pool(Event::Apply(pool("p", &here)));
    assert!(rules(&fleet, "p").is_empty());
    let affected = fleet.apply_pool(Event::Apply(pool("q", &nowhere)));
    assert_eq!((affected.pools, rules(&fleet, "q")), (nodes(&["p", "q"]), vec!["S16"]));
    assert!(rules(&fleet, "p").is_empty());
    fleet.apply_pool(Event::Apply(pool("q", &here)));
    assert_eq!([rules(&fleet, "p"), rules(&fleet, "q")], [["S15"], ["S15"]]);
    fleet.apply_pool(Event::Apply(pool("default", &json!({ "priority": 5, "maxUnavailable": 1 }))));
    assert_eq!(rules(&fleet, "default"), ["S12"]);
}
