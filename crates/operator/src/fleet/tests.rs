use std::collections::BTreeMap;

use kube::api::ObjectMeta;
use serde_json::json;

use super::*;

fn node(name: &str, labels: &[(&str, &str)]) -> PartialObjectMeta<Node> {
    let labels: BTreeMap<_, _> = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let metadata = ObjectMeta { name: Some(name.to_owned()), labels: Some(labels), ..Default::default() };
    kube::core::PartialObjectMetaExt::into_response_partial(metadata)
}

fn worker(name: &str) -> PartialObjectMeta<Node> {
    node(name, &[(WORKER_LABEL, ""), (OS_LABEL, "linux")])
}

fn state(name: &str, status: &serde_json::Value) -> DeserializeGuard<SriovNetworkNodeState> {
    serde_json::from_value(json!({
        "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovNetworkNodeState",
        "metadata": { "name": name }, "spec": {}, "status": status,
    }))
    .unwrap()
}

fn state_with_card(name: &str) -> DeserializeGuard<SriovNetworkNodeState> {
    state(
        name,
        &json!({ "interfaces": [{ "name": "ens1f0", "pciAddress": "0000:3b:00.0", "vendor": "8086", "totalvfs": 64 }] }),
    )
}

fn policy(name: &str, num_vfs: i64) -> DeserializeGuard<SriovNetworkNodePolicy> {
    serde_json::from_value(json!({
        "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovNetworkNodePolicy",
        "metadata": { "name": name },
        "spec": { "resourceName": name, "nodeSelector": {}, "numVfs": num_vfs, "nicSelector": { "vendor": "8086" } },
    }))
    .unwrap()
}

fn decision(fleet: &Fleet, node: &str) -> Decision {
    fleet.decide(node).0
}

#[test]
fn a_worker_without_a_node_state_gets_one_without_a_spec() {
    let mut fleet = Fleet::default();
    assert_eq!(fleet.node(Event::Apply(worker("a"))), BTreeSet::from(["a".to_owned()]));
    assert_eq!(decision(&fleet, "a"), Decision::Create);
}

#[test]
fn a_node_that_runs_no_agent_is_left_alone() {
    let mut fleet = Fleet::default();
    fleet.node(Event::Apply(node("windows", &[(WORKER_LABEL, ""), (OS_LABEL, "windows")])));
    fleet.node(Event::Apply(node("control", &[(OS_LABEL, "linux")])));
    assert_eq!(decision(&fleet, "windows"), Decision::Nothing);
    assert_eq!(decision(&fleet, "control"), Decision::Nothing);
}

#[test]
fn a_node_whose_cards_are_not_known_is_left_alone() {
    let mut fleet = Fleet::default();
    fleet.node(Event::Apply(worker("a")));
    fleet.state(Event::Apply(state("a", &json!({ "syncStatus": "" }))));
    fleet.policy(Event::Apply(policy("p", 4)));
    assert_eq!(decision(&fleet, "a"), Decision::Nothing);
}

#[test]
fn a_policy_becomes_a_spec_and_then_nothing_is_left_to_do() {
    let mut fleet = Fleet::default();
    fleet.node(Event::Apply(worker("a")));
    fleet.state(Event::Apply(state_with_card("a")));
    assert_eq!(fleet.policy(Event::Apply(policy("p", 4))), BTreeSet::from(["a".to_owned()]));
    let Decision::Apply(spec) = decision(&fleet, "a") else { panic!("a spec is wanted") };
    assert_eq!(spec.interfaces.as_ref().unwrap()[0].num_vfs, Some(4));
    let written = SriovNetworkNodeState { spec, ..state_with_card("a").0.unwrap() };
    fleet.state(Event::Apply(DeserializeGuard(Ok(written))));
    assert_eq!(decision(&fleet, "a"), Decision::Nothing);
}

#[test]
fn without_policies_the_spec_says_that_nothing_is_wanted() {
    let mut fleet = Fleet::default();
    fleet.node(Event::Apply(worker("a")));
    fleet.state(Event::Apply(state_with_card("a")));
    let Decision::Apply(spec) = decision(&fleet, "a") else { panic!("a spec is wanted") };
    assert_eq!(spec.interfaces, Some(Vec::new()));
}

#[test]
fn the_same_object_again_touches_no_node() {
    let mut fleet = Fleet::default();
    fleet.node(Event::Apply(worker("a")));
    fleet.policy(Event::Apply(policy("p", 4)));
    assert!(fleet.policy(Event::Apply(policy("p", 4))).is_empty());
    assert!(fleet.node(Event::Apply(worker("a"))).is_empty());
}

#[test]
fn a_policy_that_vanished_while_the_watch_was_away_touches_the_nodes() {
    let mut fleet = Fleet::default();
    fleet.node(Event::Apply(worker("a")));
    fleet.policy(Event::Apply(policy("p", 4)));
    fleet.policy(Event::Init);
    assert_eq!(fleet.policy(Event::InitDone), BTreeSet::from(["a".to_owned()]));
}

#[test]
fn nothing_is_complete_before_all_kinds_are_listed() {
    let mut fleet = Fleet::default();
    fleet.policy(Event::InitDone);
    fleet.node(Event::InitDone);
    assert!(!fleet.is_complete());
    fleet.state(Event::InitDone);
    assert!(fleet.is_complete());
}

#[test]
fn empty_parts_that_the_go_operator_wrote_are_no_difference() {
    let mut fleet = Fleet::default();
    fleet.node(Event::Apply(worker("a")));
    let spec = serde_json::from_value(json!({ "interfaces": [], "bridges": {}, "system": {} })).unwrap();
    let written = SriovNetworkNodeState { spec, ..state_with_card("a").0.unwrap() };
    fleet.state(Event::Apply(DeserializeGuard(Ok(written))));
    assert_eq!(decision(&fleet, "a"), Decision::Nothing);
}

fn unreadable_policy(name: &str) -> DeserializeGuard<SriovNetworkNodePolicy> {
    let future = json!({ "metadata": { "name": name }, "spec": { "deviceType": "of-the-future" } });
    let guarded: DeserializeGuard<_> = serde_json::from_value(future).unwrap();
    assert!(guarded.0.is_err());
    guarded
}

#[test]
fn a_policy_that_could_never_be_read_keeps_its_vfs() {
    let mut fleet = Fleet::default();
    fleet.node(Event::Apply(worker("a")));
    fleet.state(Event::Apply(state_with_card("a")));
    fleet.policy(Event::Apply(policy("p", 4)));
    let Decision::Apply(spec) = decision(&fleet, "a") else { panic!("a spec is wanted") };

    let mut restarted = Fleet::default();
    restarted.node(Event::Apply(worker("a")));
    let written = SriovNetworkNodeState { spec, ..state_with_card("a").0.unwrap() };
    restarted.state(Event::Apply(DeserializeGuard(Ok(written))));
    restarted.policy(Event::InitApply(unreadable_policy("p")));
    restarted.policy(Event::InitDone);
    assert_eq!(decision(&restarted, "a"), Decision::Nothing);
    restarted.policy(Event::Delete(unreadable_policy("p")));
    assert!(matches!(decision(&restarted, "a"), Decision::Apply(_)));
}

#[test]
fn a_policy_that_cannot_be_read_counts_as_it_was() {
    let mut fleet = Fleet::default();
    fleet.node(Event::Apply(worker("a")));
    fleet.state(Event::Apply(state_with_card("a")));
    fleet.policy(Event::Apply(policy("p", 4)));
    assert!(fleet.policy(Event::Apply(unreadable_policy("p"))).is_empty());
    let Decision::Apply(spec) = decision(&fleet, "a") else { panic!("a spec is wanted") };
    assert_eq!(spec.interfaces.unwrap()[0].num_vfs, Some(4));
}
