use std::collections::BTreeMap;
use std::sync::LazyLock;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::ObjectMeta;
use serde_json::json;
use vfleet_api::SriovNetworkNodeStateSpec;

use vfleet_api::keys::{KEEP_STATE_UNTIL, OPERATOR_FIELD_MANAGER, OS_LABEL, WORKER_LABEL};
use vfleet_plan::PolicyStanding;
use vfleet_plan::admission::Installation;

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

/// With an operator config that says nothing.
fn a_fleet() -> Fleet {
    let mut fleet = Fleet::default();
    fleet.settings(Some(&config(&json!({}))));
    fleet.nic_ids(Some(NicIds::default()));
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

fn decision(fleet: &Fleet, node: &str) -> Decision {
    fleet.decide(node, SignedDuration::from_mins(30), NOW).0
}

fn spec_wanted(fleet: &Fleet, node: &str) -> SriovNetworkNodeStateSpec {
    match decision(fleet, node) {
        Decision::Update(Upkeep { spec: Some(spec), .. }) => spec,
        other => panic!("a spec is wanted, not {other:?}"),
    }
}

fn nodes(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn a_worker_without_a_node_state_gets_one_without_a_spec() {
    let mut fleet = a_fleet();
    assert_eq!(fleet.node(Event::Apply(worker("a"))).nodes, nodes(&["a"]));
    assert_eq!(decision(&fleet, "a"), Decision::Create);
}

#[test]
fn a_node_that_runs_no_agent_is_left_alone() {
    let mut fleet = a_fleet();
    fleet.node(Event::Apply(node("windows", &[(WORKER_LABEL, ""), (OS_LABEL, "windows")])));
    fleet.node(Event::Apply(node("control", &[(OS_LABEL, "linux")])));
    assert_eq!(decision(&fleet, "windows"), Decision::Nothing);
    assert_eq!(decision(&fleet, "control"), Decision::Nothing);
}

#[test]
fn a_node_whose_cards_are_not_known_is_left_alone() {
    let mut fleet = a_fleet();
    fleet.node(Event::Apply(worker("a")));
    fleet.state(Event::Apply(state("a", &json!({ "syncStatus": "" }))));
    fleet.policy(Event::Apply(policy("p", 4)));
    assert_eq!(decision(&fleet, "a"), Decision::Nothing);
}

#[test]
fn a_policy_becomes_a_spec_and_then_nothing_is_left_to_do() {
    let mut fleet = a_fleet();
    fleet.node(Event::Apply(worker("a")));
    fleet.state(Event::Apply(state_with_card("a")));
    assert_eq!(fleet.policy(Event::Apply(policy("p", 4))).nodes, nodes(&["a"]));
    let spec = spec_wanted(&fleet, "a");
    assert_eq!(spec.interfaces.as_ref().unwrap()[0].num_vfs, Some(4));
    let written = SriovNetworkNodeState { spec, ..state_with_card("a").0.unwrap() };
    fleet.state(Event::Apply(Guarded(Ok(written))));
    assert_eq!(decision(&fleet, "a"), Decision::Nothing);
}

#[test]
fn without_policies_the_spec_says_that_nothing_is_wanted() {
    let mut fleet = a_fleet();
    fleet.node(Event::Apply(worker("a")));
    fleet.state(Event::Apply(state_with_card("a")));
    let spec = spec_wanted(&fleet, "a");
    assert_eq!(spec.interfaces, Some(Vec::new()));
}

#[test]
fn the_same_object_again_touches_no_node() {
    let mut fleet = a_fleet();
    fleet.node(Event::Apply(worker("a")));
    fleet.policy(Event::Apply(policy("p", 4)));
    assert!(fleet.policy(Event::Apply(policy("p", 4))).nodes.is_empty());
    assert!(fleet.node(Event::Apply(worker("a"))).nodes.is_empty());
}

#[test]
fn a_policy_that_vanished_while_the_watch_was_away_touches_the_nodes() {
    let mut fleet = a_fleet();
    fleet.node(Event::Apply(worker("a")));
    fleet.policy(Event::Apply(policy("p", 4)));
    fleet.policy(Event::Init);
    assert_eq!(fleet.policy(Event::InitDone).nodes, nodes(&["a"]));
}

#[test]
fn nothing_is_complete_before_all_kinds_are_listed() {
    let mut fleet = a_fleet();
    fleet.policy(Event::InitDone);
    fleet.node(Event::InitDone);
    assert!(!fleet.is_complete());
    fleet.state(Event::InitDone);
    assert!(!fleet.is_complete());
    fleet.pool(Event::InitDone);
    assert!(fleet.is_complete());
    fleet.nic_ids(None);
    assert!(!fleet.is_complete(), "the separate device plugin would be told something else at once");
    fleet.nic_ids(Some(NicIds::default()));
    fleet.settings(None);
    assert!(!fleet.is_complete(), "without an operator config nobody knows which nodes run an agent");
}

#[test]
fn empty_parts_that_the_go_operator_wrote_are_no_difference() {
    let mut fleet = a_fleet();
    fleet.node(Event::Apply(worker("a")));
    let spec = serde_json::from_value(json!({ "interfaces": [], "bridges": {}, "system": {} })).unwrap();
    let written = SriovNetworkNodeState { spec, ..state_with_card("a").0.unwrap() };
    fleet.state(Event::Apply(Guarded(Ok(written))));
    assert_eq!(decision(&fleet, "a"), Decision::Nothing);
}

fn unreadable_policy(name: &str) -> Guarded<SriovNetworkNodePolicy> {
    let future = json!({ "metadata": { "name": name }, "spec": { "deviceType": "of-the-future" } });
    let guarded: Guarded<_> = serde_json::from_value(future).unwrap();
    assert!(guarded.0.is_err());
    guarded
}

#[test]
fn a_policy_that_could_never_be_read_keeps_its_vfs() {
    let mut fleet = a_fleet();
    fleet.node(Event::Apply(worker("a")));
    fleet.state(Event::Apply(state_with_card("a")));
    fleet.policy(Event::Apply(policy("p", 4)));
    let spec = spec_wanted(&fleet, "a");

    let mut restarted = a_fleet();
    restarted.node(Event::Apply(worker("a")));
    let written = SriovNetworkNodeState { spec, ..state_with_card("a").0.unwrap() };
    restarted.state(Event::Apply(Guarded(Ok(written))));
    restarted.policy(Event::InitApply(unreadable_policy("p")));
    restarted.policy(Event::InitDone);
    assert_eq!(decision(&restarted, "a"), Decision::Nothing);
    assert_eq!(restarted.policy(Event::Delete(unreadable_policy("p"))).nodes, nodes(&["a"]));
    spec_wanted(&restarted, "a");
}

#[test]
fn a_policy_that_cannot_be_read_counts_as_it_was() {
    let mut fleet = a_fleet();
    fleet.node(Event::Apply(worker("a")));
    fleet.state(Event::Apply(state_with_card("a")));
    fleet.policy(Event::Apply(policy("p", 4)));
    assert!(fleet.policy(Event::Apply(unreadable_policy("p"))).nodes.is_empty());
    let spec = spec_wanted(&fleet, "a");
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
fn a_policy_touches_the_nodes_that_it_selects_or_selected() {
    let mut fleet = a_fleet();
    for (name, rack) in [("a", "1"), ("b", "2"), ("c", "3")] {
        fleet.node(Event::Apply(labelled(name, "rack", rack)));
    }
    assert_eq!(fleet.policy(Event::Apply(policy_for("p", ("rack", "1")))).nodes, nodes(&["a"]));
    assert_eq!(fleet.policy(Event::Apply(policy_for("p", ("rack", "2")))).nodes, nodes(&["a", "b"]));
    assert_eq!(fleet.policy(Event::Delete(policy_for("p", ("rack", "2")))).nodes, nodes(&["b"]));
}

fn pool(name: &str, spec: &serde_json::Value) -> Guarded<SriovNetworkPoolConfig> {
    serde_json::from_value(json!({ "metadata": { "name": name }, "spec": spec })).unwrap()
}

#[test]
fn a_pool_touches_its_nodes_and_gives_them_its_rdma_mode() {
    let mut fleet = a_fleet();
    fleet.node(Event::Apply(labelled("a", "rack", "1")));
    fleet.node(Event::Apply(labelled("b", "rack", "2")));
    fleet.state(Event::Apply(state_with_card("a")));
    let spec = json!({ "nodeSelector": { "matchLabels": { "rack": "1" } }, "rdmaMode": "exclusive" });
    assert_eq!(fleet.pool(Event::Apply(pool("p", &spec))).nodes, nodes(&["a"]));
    let system = spec_wanted(&fleet, "a").system.unwrap();
    assert_eq!(serde_json::to_value(system).unwrap(), json!({ "rdmaMode": "exclusive" }));
}

/// A pool that cannot be judged may be the node's: another RDMA mode would restart the node.
#[test]
fn a_pool_that_cannot_be_judged_leaves_the_rdma_mode_as_it_is() {
    let mut fleet = a_fleet();
    fleet.node(Event::Apply(labelled("a", "rack", "1")));
    let mut exclusive = state_with_card("a").0.unwrap();
    exclusive.spec =
        serde_json::from_value(json!({ "interfaces": [], "system": { "rdmaMode": "exclusive" } })).unwrap();
    fleet.state(Event::Apply(Guarded(Ok(exclusive))));
    let wrong = json!({ "matchExpressions": [{ "key": "rack", "operator": "Sometimes" }] });
    fleet.pool(Event::Apply(pool("p", &json!({ "nodeSelector": wrong, "rdmaMode": "exclusive" }))));
    assert_eq!(decision(&fleet, "a"), Decision::Nothing);
    fleet.pool(Event::Delete(pool("p", &json!({ "nodeSelector": wrong }))));
    assert_eq!(spec_wanted(&fleet, "a").system, None);
}

/// It would empty the spec, and the agent would take all VFs away.
#[test]
fn a_node_that_reports_no_card_keeps_its_spec_and_its_plugin() {
    let mut fleet = a_fleet();
    fleet.node(Event::Apply(worker("a")));
    fleet.policy(Event::Apply(policy("p", 2)));
    fleet.state(Event::Apply(state_with_card("a")));
    let spec = spec_wanted(&fleet, "a");
    let mut empty = state("a", &json!({ "interfaces": [] })).0.unwrap();
    empty.spec = spec;
    fleet.state(Event::Apply(Guarded(Ok(empty))));
    assert_eq!(decision(&fleet, "a"), Decision::Nothing);
    assert_eq!(plugin_wish(&fleet, "a"), Some(NodeWish::Unchanged));
}

#[test]
fn the_operator_config_says_which_nodes_run_an_agent() {
    let mut fleet = a_fleet();
    fleet.node(Event::Apply(labelled("a", "rack", "1")));
    fleet.node(Event::Apply(node("b", &[("rack", "2")])));
    assert_eq!(decision(&fleet, "b"), Decision::Nothing);
    let selector = json!({ "configDaemonNodeSelector": { "rack": "2" } });
    assert_eq!(fleet.settings(Some(&config(&selector))).nodes, nodes(&["a", "b"]));
    assert_eq!(decision(&fleet, "a"), Decision::Nothing);
    assert_eq!(decision(&fleet, "b"), Decision::Create);
    assert!(fleet.settings(Some(&config(&selector))).nodes.is_empty());
}

#[test]
fn a_node_state_without_a_node_is_kept_for_a_while_and_then_goes() {
    let mut fleet = a_fleet();
    fleet.state(Event::Apply(state_with_card("a")));
    let until = NOW + SignedDuration::from_mins(30);
    assert_eq!(decision(&fleet, "a"), Decision::KeepUntil { until, version: None });

    let mut kept = state_with_card("a").0.unwrap();
    kept.metadata.annotations = Some([(KEEP_STATE_UNTIL.to_owned(), until.to_string())].into());
    fleet.state(Event::Apply(Guarded(Ok(kept))));
    assert_eq!(decision(&fleet, "a"), Decision::LookAgainAt(until));
    let later = fleet.decide("a", SignedDuration::from_mins(30), until).0;
    assert_eq!(later, Decision::Delete { uid: None, version: None });

    fleet.node(Event::Apply(worker("a")));
    assert!(matches!(decision(&fleet, "a"), Decision::Update(Upkeep { keep_for_good: true, .. })));
}

#[test]
fn a_node_state_of_another_owner_is_taken_over() {
    let mut fleet = a_fleet();
    fleet.node(Event::Apply(worker("a")));
    let mut state = state("a", &json!({})).0.unwrap();
    state.metadata.owner_references.as_mut().unwrap()[0].uid = "policy-default".to_owned();
    fleet.state(Event::Apply(Guarded(Ok(state))));
    assert!(matches!(decision(&fleet, "a"), Decision::Update(Upkeep { owner: true, spec: None, .. })));
}

#[test]
fn a_link_that_goes_down_is_no_reason_to_plan() {
    let mut fleet = a_fleet();
    let card = |up: &str| {
        let card = json!({ "name": "e", "pciAddress": "0000:3b:00.0", "linkAdminState": up, "Vfs": [] });
        state("a", &json!({ "interfaces": [card] }))
    };
    fleet.state(Event::Apply(card("up")));
    assert!(fleet.state(Event::Apply(card("down"))).nodes.is_empty());
}

/// What a policy is said to be on a node whose state is this.
fn standing(
    state: Guarded<SriovNetworkNodeState>,
    policies: &[(&str, i64)],
) -> Vec<(String, PolicyStanding)> {
    let mut fleet = a_fleet();
    fleet.node(Event::Apply(worker("a")));
    for (name, num_vfs) in policies {
        fleet.policy(Event::Apply(policy(name, *num_vfs)));
    }
    fleet.state(Event::Apply(state));
    let (mut decision, mut answers) = fleet.decide("a", SignedDuration::ZERO, NOW);
    if let Decision::Update(Upkeep { spec: Some(spec), .. }) = decision {
        let state = State { spec, ..fleet.states.get("a").unwrap().clone() };
        fleet.states = Known::default();
        fleet.states.take(Event::Apply(worker("a")), |_| Ok(state));
        (decision, answers) = fleet.decide("a", SignedDuration::ZERO, NOW);
    }
    assert_eq!(decision, Decision::Nothing);
    let standings = fleet.policy_standings("a", &decision, &answers).into_iter();
    let mut list: Vec<_> = standings.map(|(policy, standing)| (policy.to_owned(), standing)).collect();
    list.sort();
    list
}

#[test]
fn a_failed_card_is_a_matter_of_the_policies_that_select_it() {
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
    assert_eq!(standing(failed("ens1f0"), &[("p", 4)]), [("p".to_owned(), PolicyStanding::Failed)]);
    assert_eq!(standing(failed("other"), &[("p", 4)]), [("p".to_owned(), PolicyStanding::Ready)]);
}

#[test]
fn policies_that_fight_are_told_apart_from_policies_that_are_done() {
    let done = state(
        "a",
        &json!({ "syncStatus": "Succeeded", "interfaces": [
        { "name": "ens1f0", "pciAddress": "0000:3b:00.0", "vendor": "8086" } ] }),
    );
    let both = standing(done, &[("p", 4), ("q", 4)]);
    assert_eq!(both, [("p".to_owned(), PolicyStanding::Conflict), ("q".to_owned(), PolicyStanding::Ready)]);
}

#[test]
fn a_node_that_has_not_reported_is_waited_for() {
    assert_eq!(standing(state("a", &json!({})), &[("p", 4)]), [("p".to_owned(), PolicyStanding::NoFacts)]);
}

#[test]
fn a_new_node_state_is_not_filled_while_a_policy_at_fault_may_have_made_the_vfs() {
    let mut fleet = a_fleet();
    fleet.node(Event::Apply(worker("a")));
    let card = json!({ "name": "ens1f0", "pciAddress": "0000:3b:00.0", "vendor": "8086", "numVfs": 4 });
    fleet.state(Event::Apply(state("a", &json!({ "interfaces": [card] }))));
    let mut bad = policy("p", 4).0.unwrap();
    bad.spec.nic_selector = serde_json::from_value(json!({ "pfNames": ["ens1f0#3-1"] })).unwrap();
    fleet.policy(Event::Apply(Guarded(Ok(bad))));
    assert_eq!(decision(&fleet, "a"), Decision::Nothing);
    fleet.policy(Event::Apply(policy("p", 4)));
    spec_wanted(&fleet, "a");

    let mut unreadable = a_fleet();
    unreadable.node(Event::Apply(worker("a")));
    let card = json!({ "name": "ens1f0", "pciAddress": "0000:3b:00.0", "vendor": "8086", "numVfs": 4 });
    unreadable.state(Event::Apply(state("a", &json!({ "interfaces": [card] }))));
    unreadable.policy(Event::Apply(unreadable_policy("p")));
    assert_eq!(decision(&unreadable, "a"), Decision::Nothing);
}

#[test]
fn a_policy_that_became_unreadable_is_reported_and_counts_as_it_was() {
    let mut fleet = a_fleet();
    fleet.policy(Event::Apply(policy("p", 4)));
    assert!(fleet.find_unreadable_policy("p").is_none());
    let touched = fleet.policy(Event::Apply(unreadable_policy("p")));
    assert_eq!((touched.nodes, touched.policies), (nodes(&[]), nodes(&["p"])));
    assert!(fleet.find_unreadable_policy("p").is_some());
    fleet.policy(Event::Apply(policy("p", 4)));
    assert!(fleet.find_unreadable_policy("p").is_none());
}

#[test]
fn a_node_state_that_cannot_be_read_is_not_made_again() {
    let mut fleet = a_fleet();
    fleet.node(Event::Apply(worker("a")));
    let strange = json!({ "metadata": { "name": "a" }, "spec": { "interfaces": "of-the-future" } });
    fleet.state(Event::Apply(serde_json::from_value(strange).unwrap()));
    assert_eq!(decision(&fleet, "a"), Decision::Nothing);
}

#[test]
fn a_status_that_is_older_than_the_spec_says_nothing_about_it() {
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
    assert_eq!(standing(state_written(early, late), &[("p", 4)])[0].1, PolicyStanding::Ready);
    assert_eq!(standing(state_written(late, early), &[("p", 4)])[0].1, PolicyStanding::Pending);
}

fn plugin_wish(fleet: &Fleet, node: &str) -> Option<NodeWish> {
    fleet.plugin_wish(node, &Decision::Nothing)
}

#[test]
fn a_node_that_is_not_selected_any_more_loses_the_plugins_label() {
    let mut fleet = a_fleet();
    fleet.node(Event::Apply(node("a", &[(DEVICE_PLUGIN_LABEL, "Enabled")])));
    fleet.node(Event::Apply(node("b", &[])));
    assert_eq!(plugin_wish(&fleet, "a"), Some(NodeWish::NoLabel));
    assert_eq!(plugin_wish(&fleet, "b"), None);
    assert_eq!(plugin_wish(&fleet, "gone"), None);
}

#[test]
fn the_plugin_is_told_the_device_that_vfs_are_seen_to_be() {
    let mut fleet = a_fleet();
    fleet.node(Event::Apply(worker("a")));
    let vf = |id: i64| json!({ "vfID": id, "pciAddress": format!("0000:3b:01.{id}"), "deviceID": "1889", "mtu": id });
    let card = json!({ "pciAddress": "0000:3b:00.0", "deviceID": "1592", "Vfs": [vf(0), vf(1)] });
    fleet.state(Event::Apply(state("a", &json!({ "interfaces": [card] }))));
    let mut wanted = policy("p", 4).0.unwrap();
    wanted.spec.nic_selector = serde_json::from_value(json!({ "deviceID": "1592" })).unwrap();
    fleet.policy(Event::Apply(Guarded(Ok(wanted))));
    let Some(NodeWish::Plugin(wish)) = plugin_wish(&fleet, "a") else { panic!("the plugin is wanted") };
    assert!(wish.config.contains(r#""devices":["1889"]"#), "{}", wish.config);
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
fn a_blocked_node_is_counted_besides_and_its_pool_tells_why() {
    let mut fleet = a_fleet();
    let mut tally = tally::Tally::default();
    fleet.pool(Event::Apply(pool("p", &json!({ "maxUnavailable": "50%" }))));
    for (node, drain, blocked) in [
        ("a", "Drain_Required", None),
        ("b", "Draining", Some("budget x")),
        ("c", "Draining", None),
        // A leftover: nothing is to be drained there.
        ("d", "Idle", Some("old")),
    ] {
        fleet.node(Event::Apply(worker(node)));
        fleet.state(Event::Apply(drained(node, drain, blocked)));
        tally.update(node, fleet.pool_standings(node));
    }
    let sight = |fleet: &Fleet, tally: &tally::Tally<_>| {
        fleet.see_pool("p", fleet.find_pool("p").unwrap(), tally.of("p"))
    };
    let seen = sight(&fleet, &tally);
    let count =
        [seen.nodes.total, seen.nodes.waiting, seen.nodes.draining, seen.nodes.done, seen.nodes.blocked];
    assert_eq!(count.map(Option::unwrap), [4, 1, 2, 0, 1]);
    assert_eq!(seen.limit, Some((vfleet_plan::drain::Limit::AtMost(2), None)));
    assert_eq!(
        seen.blocked.map(|blocked| (blocked.node, blocked.message)),
        Some(("b".into(), "budget x".into()))
    );

    // Another cause changes no count, but there is something new to say.
    let touched = fleet.state(Event::Apply(drained("b", "Draining", Some("budget y"))));
    assert_eq!(touched.pools, nodes(&["p"]));
    assert_eq!(tally.update("b", fleet.pool_standings("b")), nodes(&[]));
    assert_eq!(sight(&fleet, &tally).blocked.unwrap().message, "budget y");
}

#[test]
fn a_pool_for_offload_only_has_no_limit() {
    let mut fleet = a_fleet();
    fleet.pool(Event::Apply(pool("p", &json!({ "ovsHardwareOffloadConfig": { "name": "worker" } }))));
    assert_eq!(fleet.see_pool("p", fleet.find_pool("p").unwrap(), None).limit, None);
}

#[test]
fn policies_are_judged_again_when_something_that_counts_is_new() {
    let card = |name: &str, value: serde_json::Value| {
        let mut card =
            json!({ "name": "ens1f0", "pciAddress": "0000:3b:00.0", "vendor": "8086", "totalvfs": 64 });
        card[name] = value;
        Event::Apply(state("a", &json!({ "interfaces": [card] })))
    };
    let mut fleet = a_fleet();
    fleet.node(Event::Apply(worker("a")));
    fleet.policy(Event::Apply(policy("p", 4)));
    let mut last = fleet.policy_rules();
    let mut is_news =
        |fleet: &Fleet| std::mem::replace(&mut last, fleet.policy_rules()) != fleet.policy_rules();
    fleet.state(card("totalvfs", json!(64)));
    assert!(is_news(&fleet), "its cards are known now");
    fleet.state(card("numVfs", json!(4)));
    assert!(!is_news(&fleet), "that is what agents do");
    fleet.state(card("totalvfs", json!(2)));
    assert!(is_news(&fleet));
    fleet.node(Event::Apply(node("a", &[(WORKER_LABEL, ""), (OS_LABEL, "linux"), ("rack", "1")])));
    assert!(is_news(&fleet));
    fleet.policy(Event::Apply(policy("q", 4)));
    assert!(is_news(&fleet), "what is wrong with one may be because of the other");
    fleet.policy(Event::Apply(policy("q", 4)));
    assert!(!is_news(&fleet));
}

#[test]
fn pools_tell_of_others_with_the_same_nodes() {
    let home = Installation { namespace: "home", dev_mode: false };
    let said = |fleet: &Fleet, name: &str| -> Vec<_> {
        let findings = fleet.judge_pool(name, fleet.find_pool(name).unwrap(), &home);
        findings.iter().map(|finding| finding.rule).collect()
    };
    let mut fleet = a_fleet();
    fleet.node(Event::Apply(worker("a")));
    let here = json!({ "maxUnavailable": 1, "priority": 5, "nodeSelector": { "matchLabels": { OS_LABEL: "linux" } } });
    let nowhere =
        json!({ "maxUnavailable": 1, "priority": 5, "nodeSelector": { "matchLabels": { "rack": "1" } } });
    fleet.pool(Event::Apply(pool("p", &here)));
    assert!(said(&fleet, "p").is_empty());
    let touched = fleet.pool(Event::Apply(pool("q", &nowhere)));
    assert_eq!((touched.pools, said(&fleet, "q")), (nodes(&["p", "q"]), vec!["S16"]));
    assert!(said(&fleet, "p").is_empty());
    fleet.pool(Event::Apply(pool("q", &here)));
    assert_eq!([said(&fleet, "p"), said(&fleet, "q")], [["S15"], ["S15"]]);
    fleet.pool(Event::Apply(pool("default", &json!({ "priority": 5, "maxUnavailable": 1 }))));
    assert_eq!(said(&fleet, "default"), ["S12"]);
}
