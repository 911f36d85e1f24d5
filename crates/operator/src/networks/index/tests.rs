use vfleet_api::conditions::READY;
use vfleet_api::network::SriovNetworkSpec;
use vfleet_plan::network::{NetworkFault, NetworkSpec, NetworkStep, reasons};

use super::*;

const OPERATOR_NAMESPACE: &str = "operator";

fn empty_index() -> NetworkIndex {
    NetworkIndex::new(OPERATOR_NAMESPACE, "openshift.io")
}

/// Returns a complete index with both namespaces and no NADs.
fn complete_index() -> NetworkIndex {
    let mut index = empty_index();
    for name in [OPERATOR_NAMESPACE, "apps"] {
        index.apply(NetworkChange::Namespace(Event::InitApply(namespace(name, false))));
    }
    index.apply(NetworkChange::Namespace(Event::InitDone));
    index.apply(NetworkChange::Nad(Box::new(Event::InitDone)));
    index.apply(NetworkChange::Policy(Box::new(Event::InitDone)));
    index
}

fn namespace(name: &str, is_terminating: bool) -> StoredNamespace {
    StoredNamespace {
        name: name.into(),
        version: version(name, if is_terminating { 2 } else { 1 }),
        is_terminating,
    }
}

fn version(uid: &str, number: u64) -> ObjectVersion {
    ObjectVersion { uid: uid.into(), resource_version: Some(number.to_string()) }
}

fn id(name: &str) -> NetworkId {
    NetworkId { kind: NetworkKind::Sriov, namespace: OPERATOR_NAMESPACE.into(), name: name.into() }
}

fn network(name: &str, target: &str, number: u64) -> StoredNetwork {
    StoredNetwork {
        id: id(name),
        version: version(name, number),
        generation: Some(1),
        deleting: false,
        finalizers: Vec::new(),
        last_namespace: None,
        conditions: Some(Vec::new()),
        spec: Ok(NetworkSpec::Sriov(SriovNetworkSpec {
            resource_name: "nics".into(),
            network_namespace: Some(target.into()),
            ..Default::default()
        })),
    }
}

fn apply_network(index: &mut NetworkIndex, network: StoredNetwork) -> BTreeSet<NetworkId> {
    index.apply(NetworkChange::Network(network.id.kind, Box::new(Event::Apply(network))))
}

fn nad(namespace: &str, name: &str, number: u64) -> StoredNad {
    StoredNad {
        key: NadKey { namespace: namespace.into(), name: name.into() },
        version: version(&format!("nad-{name}"), number),
        facts: NadFacts { namespace: namespace.into(), ..Default::default() },
    }
}

fn apply_nad(index: &mut NetworkIndex, nad: StoredNad) -> BTreeSet<NetworkId> {
    index.apply(NetworkChange::Nad(Box::new(Event::Apply(nad))))
}

fn steps(index: &NetworkIndex, name: &str) -> Vec<NetworkStep> {
    index.decide(&id(name)).map(|plan| plan.decision.steps).unwrap_or_default()
}

/// Returns the conditions that are to be written to a network.
fn planned_conditions(index: &NetworkIndex, id: &NetworkId) -> Vec<ConditionUpdate> {
    let plan = index.decide(id).unwrap();
    plan.with_valid(plan.decision.condition.as_ref().unwrap())
}

fn policy(name: &str, resource: &str) -> Guarded<SriovNetworkNodePolicy> {
    serde_json::from_value(serde_json::json!({
        "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovNetworkNodePolicy",
        "metadata": { "name": name },
        "spec": { "resourceName": resource, "numVfs": 1, "nodeSelector": {}, "nicSelector": { "vendor": "8086" } },
    }))
    .unwrap()
}

#[test]
fn a_policy_affects_the_networks_that_use_its_resource() {
    let mut index = complete_index();
    apply_network(&mut index, network("net", "apps", 1));
    let note = |index: &NetworkIndex| planned_conditions(index, &id("net")).remove(1).message;
    assert!(note(&index).contains("no policy offers resource nics yet"), "{}", note(&index));
    let apply =
        |index: &mut NetworkIndex, policy| index.apply(NetworkChange::Policy(Box::new(Event::Apply(policy))));
    assert_eq!(apply(&mut index, policy("p", "others")), BTreeSet::new());
    assert_eq!(apply(&mut index, policy("p", "nics")), BTreeSet::from([id("net")]));
    assert!(!note(&index).contains("warning"), "{}", note(&index));
    assert_eq!(apply(&mut index, policy("p", "others")), BTreeSet::from([id("net")]));
}

#[test]
fn nothing_is_decided_before_nads_and_namespaces_were_listed() {
    let mut index = empty_index();
    assert!(!index.is_complete());
    index.apply(NetworkChange::Namespace(Event::InitDone));
    assert!(!index.is_complete());
    index.apply(NetworkChange::Nad(Box::new(Event::InitDone)));
    assert!(!index.is_complete());
    index.apply(NetworkChange::Policy(Box::new(Event::InitDone)));
    assert!(index.is_complete());
}

#[test]
fn a_nad_affects_the_networks_that_have_or_had_its_key() {
    let mut index = complete_index();
    apply_network(&mut index, network("net", "apps", 1));
    apply_network(&mut index, network("other", "apps", 1));
    assert_eq!(apply_nad(&mut index, nad("apps", "net", 1)), BTreeSet::from([id("net")]));
    assert_eq!(apply_nad(&mut index, nad("elsewhere", "net", 1)), BTreeSet::new());

    apply_network(
        &mut index,
        StoredNetwork { last_namespace: Some("elsewhere".into()), ..network("net", "apps", 2) },
    );
    assert_eq!(apply_nad(&mut index, nad("elsewhere", "net", 2)), BTreeSet::from([id("net")]));

    apply_network(&mut index, network("net", "new", 3));
    assert_eq!(apply_nad(&mut index, nad("apps", "net", 2)), BTreeSet::new());
}

#[test]
fn a_namespace_affects_its_networks() {
    let mut index = complete_index();
    apply_network(&mut index, network("net", "later", 1));
    apply_network(&mut index, network("other", "apps", 1));
    assert_eq!(steps(&index, "net"), []);
    let affected = index.apply(NetworkChange::Namespace(Event::Apply(namespace("later", false))));
    assert_eq!(affected, BTreeSet::from([id("net")]));
    assert!(matches!(steps(&index, "net")[..], [NetworkStep::Prepare { .. }, NetworkStep::Create(_)]));
    index.apply(NetworkChange::Namespace(Event::Apply(namespace("later", true))));
    assert_eq!(steps(&index, "net"), []);
}

#[test]
fn writes_take_effect_before_the_watch_delivers_them() {
    let mut index = complete_index();
    apply_network(&mut index, network("net", "apps", 1));
    let plan = index.decide(&id("net")).unwrap();
    let [NetworkStep::Prepare { .. }, NetworkStep::Create(desired)] = &plan.decision.steps[..] else {
        panic!("{:?}", plan.decision)
    };
    index.apply_write(NetworkWrite::Metadata {
        id: id("net"),
        version: version("net", 2),
        finalizers: vec![NETWORK_FINALIZER.into()],
        last_namespace: Some("apps".into()),
    });
    assert_eq!(steps(&index, "net"), [NetworkStep::Create(desired.clone())]);

    let mut created = nad("apps", "net", 3);
    created.facts.owner = Some(desired.owner.clone());
    created.facts.resource = Some(desired.resource.clone());
    created.facts.config = Some(desired.config.clone());
    index.apply_write(NetworkWrite::Nad(Box::new(created)));
    assert_eq!(steps(&index, "net"), []);

    let conditions = planned_conditions(&index, &id("net"));
    assert_eq!((conditions[0].status, conditions[0].reason), (true, reasons::READY));
    let conditions = update_conditions(&[], &conditions, Some(1), Timestamp::now());
    index.apply_write(NetworkWrite::Conditions { id: id("net"), uid: "net".into(), conditions });
    assert!(index.decide(&id("net")).is_none());

    // The watch delivers the first write only now.
    let affected = apply_network(
        &mut index,
        StoredNetwork { finalizers: vec![NETWORK_FINALIZER.into()], ..network("net", "apps", 2) },
    );
    assert_eq!(affected, BTreeSet::new());
    assert!(index.decide(&id("net")).is_none());
}

#[test]
fn writes_to_a_deleted_network_do_not_affect_a_new_one_of_the_same_name() {
    let mut index = complete_index();
    apply_network(&mut index, network("net", "apps", 5));
    index.apply_write(NetworkWrite::Conditions {
        id: id("net"),
        uid: "old-uid".into(),
        conditions: Vec::new(),
    });
    index.apply_write(NetworkWrite::Metadata {
        id: id("net"),
        version: version("old-uid", 9),
        finalizers: vec![NETWORK_FINALIZER.into()],
        last_namespace: None,
    });
    assert!(matches!(steps(&index, "net")[0], NetworkStep::Prepare { add_finalizer: true, .. }));
}

#[test]
fn objects_that_a_list_does_not_contain_are_deleted() {
    let mut index = complete_index();
    apply_network(&mut index, network("net", "apps", 1));
    apply_network(&mut index, network("other", "apps", 1));
    apply_nad(&mut index, nad("apps", "net", 1));
    index.apply(NetworkChange::Nad(Box::new(Event::Init)));
    let affected = index.apply(NetworkChange::Nad(Box::new(Event::InitDone)));
    assert_eq!(affected, BTreeSet::from([id("net")]));

    let of_kind = |event| NetworkChange::Network(NetworkKind::Sriov, Box::new(event));
    index.apply(of_kind(Event::Init));
    index.apply(of_kind(Event::InitApply(network("other", "apps", 1))));
    assert_eq!(index.apply(of_kind(Event::InitDone)), BTreeSet::from([id("net")]));
    assert!(index.decide(&id("net")).is_none());
    assert_eq!(apply_nad(&mut index, nad("apps", "net", 2)), BTreeSet::new());
}

#[test]
fn a_nad_deleted_before_its_creation_was_reported_is_deleted() {
    let mut index = complete_index();
    apply_network(&mut index, network("net", "apps", 1));
    let created = nad("apps", "net", 3);
    apply_nad(&mut index, created.clone());
    let deleted = Event::Delete(StoredNad { version: version("nad-net", 4), ..created.clone() });
    assert_eq!(index.apply(NetworkChange::Nad(Box::new(deleted))), BTreeSet::from([id("net")]));
    index.apply_write(NetworkWrite::Nad(Box::new(created.clone())));
    assert!(matches!(steps(&index, "net")[..], [NetworkStep::Prepare { .. }, NetworkStep::Create(_)]));

    // The same if only a list shows the deletion.
    let other = StoredNad { version: version("another", 5), ..created };
    apply_nad(&mut index, other.clone());
    index.apply(NetworkChange::Nad(Box::new(Event::Init)));
    index.apply(NetworkChange::Nad(Box::new(Event::InitDone)));
    index.apply_write(NetworkWrite::Nad(Box::new(other)));
    assert!(matches!(steps(&index, "net")[..], [NetworkStep::Prepare { .. }, NetworkStep::Create(_)]));
}

#[test]
fn conditions_of_networks_outside_the_own_namespace_are_written_once() {
    let mut index = complete_index();
    let with_foreign_condition = |network: StoredNetwork, generation: i64| {
        let condition =
            ConditionUpdate { type_: READY, status: true, reason: reasons::READY, message: "theirs".into() };
        let conditions = Some(update_conditions(&[], &[condition], Some(generation), Timestamp::now()));
        StoredNetwork { conditions, generation: Some(generation), ..network }
    };
    for (namespace, is_written_again) in [("team", false), (OPERATOR_NAMESPACE, true)] {
        // A target namespace is not allowed outside the operator's namespace, and this one does not exist.
        let id = NetworkId { namespace: namespace.into(), ..id("net") };
        let network = |number| StoredNetwork { id: id.clone(), ..network("net", "nowhere", number) };
        let condition = |index: &NetworkIndex| index.decide(&id).and_then(|plan| plan.decision.condition);
        apply_network(&mut index, network(1));
        let conditions = update_conditions(&[], &planned_conditions(&index, &id), Some(1), Timestamp::now());
        index.apply_write(NetworkWrite::Conditions { id: id.clone(), uid: "net".into(), conditions });
        assert_eq!(condition(&index), None);

        apply_network(&mut index, with_foreign_condition(network(2), 1));
        assert_eq!(condition(&index).is_some(), is_written_again, "{namespace}");
        apply_network(&mut index, with_foreign_condition(network(3), 2));
        assert!(condition(&index).is_some(), "{namespace}: the network has changed");
        let again = StoredNetwork { version: version("another", 4), ..with_foreign_condition(network(4), 1) };
        apply_network(&mut index, again);
        assert!(condition(&index).is_some(), "{namespace}: it is another network");
    }
}

#[test]
fn the_deletion_of_an_old_nad_does_not_remove_a_new_one() {
    let mut index = complete_index();
    apply_network(&mut index, network("net", "apps", 1));
    apply_nad(&mut index, nad("apps", "net", 7));
    let old = StoredNad { version: version("old-uid", 6), ..nad("apps", "net", 6) };
    assert_eq!(index.apply(NetworkChange::Nad(Box::new(Event::Delete(old)))), BTreeSet::new());
    let same = nad("apps", "net", 8);
    assert_eq!(index.apply(NetworkChange::Nad(Box::new(Event::Delete(same)))), BTreeSet::from([id("net")]));
}

#[test]
fn without_the_crd_of_nads_all_networks_are_affected_once_and_again_when_it_is_installed() {
    let mut index = empty_index();
    index.apply(NetworkChange::Namespace(Event::InitApply(namespace("apps", false))));
    index.apply(NetworkChange::Namespace(Event::InitDone));
    index.apply(NetworkChange::Policy(Box::new(Event::InitDone)));
    apply_network(&mut index, network("net", "apps", 1));
    let unavailable = || NetworkChange::NadsUnavailable;
    assert_eq!(index.apply(unavailable()), BTreeSet::from([id("net")]));
    assert!(index.is_complete());
    let condition = index.decide(&id("net")).unwrap().decision.condition.unwrap();
    assert_eq!(condition.reason, reasons::NOT_FOUND);
    assert_eq!(index.apply(unavailable()), BTreeSet::new(), "no change");

    index.apply(NetworkChange::Nad(Box::new(Event::Init)));
    assert_eq!(index.apply(NetworkChange::Nad(Box::new(Event::InitDone))), BTreeSet::from([id("net")]));
    assert!(!steps(&index, "net").is_empty());
}

#[test]
fn an_unreadable_network_is_left_alone() {
    let mut index = complete_index();
    let fault = NetworkFault::Unreadable { problem: "odd".into() };
    apply_network(
        &mut index,
        StoredNetwork { spec: Err(fault), conditions: None, ..network("net", "apps", 1) },
    );
    assert!(index.decide(&id("net")).is_none());
}
