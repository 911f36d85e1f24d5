use vfleet_api::conditions::READY;
use vfleet_api::network::SriovNetworkSpec;
use vfleet_plan::network::{NetworkFault, NetworkSpec, NetworkStep, reasons};

use super::*;

const HOME: &str = "home";

fn known() -> Known {
    Known::new(HOME, "openshift.io")
}

/// With both namespaces, and no NADs.
fn complete() -> Known {
    let mut known = known();
    for name in [HOME, "apps"] {
        known.take(Change::Namespace(Event::InitApply(namespace(name, false))));
    }
    known.take(Change::Namespace(Event::InitDone));
    known.take(Change::Nad(Box::new(Event::InitDone)));
    known.take(Change::Policy(Box::new(Event::InitDone)));
    known
}

fn namespace(name: &str, ending: bool) -> SeenNamespace {
    SeenNamespace { name: name.into(), version: version(name, if ending { 2 } else { 1 }), ending }
}

fn version(uid: &str, number: u64) -> Version {
    Version { uid: uid.into(), resource_version: Some(number.to_string()) }
}

fn id(name: &str) -> NetworkId {
    NetworkId { kind: NetworkKind::Sriov, namespace: HOME.into(), name: name.into() }
}

fn network(name: &str, target: &str, number: u64) -> Network {
    Network {
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

fn put(known: &mut Known, network: Network) -> BTreeSet<NetworkId> {
    known.take(Change::Network(network.id.kind, Box::new(Event::Apply(network))))
}

fn nad(namespace: &str, name: &str, number: u64) -> SeenNad {
    SeenNad {
        place: Place { namespace: namespace.into(), name: name.into() },
        version: version(&format!("nad-{name}"), number),
        facts: NadFacts { namespace: namespace.into(), ..Default::default() },
    }
}

fn put_nad(known: &mut Known, nad: SeenNad) -> BTreeSet<NetworkId> {
    known.take(Change::Nad(Box::new(Event::Apply(nad))))
}

fn steps(known: &Known, name: &str) -> Vec<NetworkStep> {
    known.decide(&id(name)).map(|todo| todo.decision.steps).unwrap_or_default()
}

/// What is to be said of a network.
fn said(known: &Known, id: &NetworkId) -> Vec<Verdict> {
    let todo = known.decide(id).unwrap();
    todo.with_valid(todo.decision.verdict.as_ref().unwrap())
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
fn a_policy_touches_the_networks_that_name_its_resource_and_they_say_who_offers_it() {
    let mut known = complete();
    put(&mut known, network("net", "apps", 1));
    let note = |known: &Known| said(known, &id("net")).remove(1).message;
    assert!(note(&known).contains("no policy offers the resource nics yet"), "{}", note(&known));
    let apply = |known: &mut Known, policy| known.take(Change::Policy(Box::new(Event::Apply(policy))));
    assert_eq!(apply(&mut known, policy("p", "others")), BTreeSet::new());
    assert_eq!(apply(&mut known, policy("p", "nics")), BTreeSet::from([id("net")]));
    assert!(!note(&known).contains("note"), "{}", note(&known));
    assert_eq!(apply(&mut known, policy("p", "others")), BTreeSet::from([id("net")]));
}

#[test]
fn nothing_is_decided_before_nads_and_namespaces_were_listed() {
    let mut known = known();
    assert!(!known.is_complete());
    known.take(Change::Namespace(Event::InitDone));
    assert!(!known.is_complete());
    known.take(Change::Nad(Box::new(Event::InitDone)));
    assert!(!known.is_complete());
    known.take(Change::Policy(Box::new(Event::InitDone)));
    assert!(known.is_complete());
}

#[test]
fn a_nad_touches_the_networks_that_want_its_place_or_remember_it() {
    let mut known = complete();
    put(&mut known, network("net", "apps", 1));
    put(&mut known, network("other", "apps", 1));
    assert_eq!(put_nad(&mut known, nad("apps", "net", 1)), BTreeSet::from([id("net")]));
    assert_eq!(put_nad(&mut known, nad("elsewhere", "net", 1)), BTreeSet::new());

    put(&mut known, Network { last_namespace: Some("elsewhere".into()), ..network("net", "apps", 2) });
    assert_eq!(put_nad(&mut known, nad("elsewhere", "net", 2)), BTreeSet::from([id("net")]));

    put(&mut known, network("net", "new", 3));
    assert_eq!(put_nad(&mut known, nad("apps", "net", 2)), BTreeSet::new());
}

#[test]
fn a_namespace_touches_the_networks_for_it() {
    let mut known = complete();
    put(&mut known, network("net", "later", 1));
    put(&mut known, network("other", "apps", 1));
    assert_eq!(steps(&known, "net"), []);
    let touched = known.take(Change::Namespace(Event::Apply(namespace("later", false))));
    assert_eq!(touched, BTreeSet::from([id("net")]));
    assert!(matches!(steps(&known, "net")[..], [NetworkStep::Prepare { .. }, NetworkStep::Create(_)]));
    known.take(Change::Namespace(Event::Apply(namespace("later", true))));
    assert_eq!(steps(&known, "net"), []);
}

#[test]
fn what_was_written_counts_before_the_watch_tells_it() {
    let mut known = complete();
    put(&mut known, network("net", "apps", 1));
    let todo = known.decide(&id("net")).unwrap();
    let [NetworkStep::Prepare { .. }, NetworkStep::Create(wanted)] = &todo.decision.steps[..] else {
        panic!("{:?}", todo.decision)
    };
    known.learn(News::Prepared {
        id: id("net"),
        version: version("net", 2),
        finalizers: vec![NETWORK_FINALIZER.into()],
        last_namespace: Some("apps".into()),
    });
    assert_eq!(steps(&known, "net"), [NetworkStep::Create(wanted.clone())]);

    let mut made = nad("apps", "net", 3);
    made.facts.owner = Some(wanted.owner.clone());
    made.facts.resource = Some(wanted.resource.clone());
    made.facts.config = Some(wanted.config.clone());
    known.learn(News::Nad(Box::new(made)));
    assert_eq!(steps(&known, "net"), []);

    let verdicts = said(&known, &id("net"));
    assert_eq!((verdicts[0].holds, verdicts[0].reason), (true, reasons::READY));
    let conditions = updated(&[], &verdicts, Some(1), Timestamp::now());
    known.learn(News::Said { id: id("net"), uid: "net".into(), conditions });
    assert!(known.decide(&id("net")).is_none());

    // The watch tells of the first write only now.
    let touched =
        put(&mut known, Network { finalizers: vec![NETWORK_FINALIZER.into()], ..network("net", "apps", 2) });
    assert_eq!(touched, BTreeSet::new());
    assert!(known.decide(&id("net")).is_none());
}

#[test]
fn what_was_written_to_one_that_is_gone_does_not_count_for_the_next() {
    let mut known = complete();
    put(&mut known, network("net", "apps", 5));
    known.learn(News::Said { id: id("net"), uid: "uid-of-before".into(), conditions: Vec::new() });
    known.learn(News::Prepared {
        id: id("net"),
        version: version("uid-of-before", 9),
        finalizers: vec![NETWORK_FINALIZER.into()],
        last_namespace: None,
    });
    assert!(matches!(steps(&known, "net")[0], NetworkStep::Prepare { add_finalizer: true, .. }));
}

#[test]
fn what_a_list_does_not_name_is_gone() {
    let mut known = complete();
    put(&mut known, network("net", "apps", 1));
    put(&mut known, network("other", "apps", 1));
    put_nad(&mut known, nad("apps", "net", 1));
    known.take(Change::Nad(Box::new(Event::Init)));
    let touched = known.take(Change::Nad(Box::new(Event::InitDone)));
    assert_eq!(touched, BTreeSet::from([id("net")]));

    let of_kind = |event| Change::Network(NetworkKind::Sriov, Box::new(event));
    known.take(of_kind(Event::Init));
    known.take(of_kind(Event::InitApply(network("other", "apps", 1))));
    assert_eq!(known.take(of_kind(Event::InitDone)), BTreeSet::from([id("net")]));
    assert!(known.decide(&id("net")).is_none());
    assert_eq!(put_nad(&mut known, nad("apps", "net", 2)), BTreeSet::new());
}

#[test]
fn a_nad_that_went_before_its_making_was_told_is_gone() {
    let mut known = complete();
    put(&mut known, network("net", "apps", 1));
    let made = nad("apps", "net", 3);
    put_nad(&mut known, made.clone());
    let gone = Event::Delete(SeenNad { version: version("nad-net", 4), ..made.clone() });
    assert_eq!(known.take(Change::Nad(Box::new(gone))), BTreeSet::from([id("net")]));
    known.learn(News::Nad(Box::new(made.clone())));
    assert!(matches!(steps(&known, "net")[..], [NetworkStep::Prepare { .. }, NetworkStep::Create(_)]));

    // The same when only a list shows that it went.
    let other = SeenNad { version: version("another", 5), ..made };
    put_nad(&mut known, other.clone());
    known.take(Change::Nad(Box::new(Event::Init)));
    known.take(Change::Nad(Box::new(Event::InitDone)));
    known.learn(News::Nad(Box::new(other)));
    assert!(matches!(steps(&known, "net")[..], [NetworkStep::Prepare { .. }, NetworkStep::Create(_)]));
}

#[test]
fn of_a_network_elsewhere_we_say_a_thing_once_whatever_others_say_and_at_home_always() {
    let mut known = complete();
    let others_say = |network: Network, generation: i64| {
        let verdict = Verdict { type_: READY, holds: true, reason: reasons::READY, message: "theirs".into() };
        let conditions = Some(updated(&[], &[verdict], Some(generation), Timestamp::now()));
        Network { conditions, generation: Some(generation), ..network }
    };
    for (namespace, says_again) in [("team", false), (HOME, true)] {
        // Outside it may not name a namespace, and at home this one does not exist.
        let id = NetworkId { namespace: namespace.into(), ..id("net") };
        let network = |number| Network { id: id.clone(), ..network("net", "nowhere", number) };
        let verdict = |known: &Known| known.decide(&id).and_then(|todo| todo.decision.verdict);
        put(&mut known, network(1));
        let conditions = updated(&[], &said(&known, &id), Some(1), Timestamp::now());
        known.learn(News::Said { id: id.clone(), uid: "net".into(), conditions });
        assert_eq!(verdict(&known), None);

        put(&mut known, others_say(network(2), 1));
        assert_eq!(verdict(&known).is_some(), says_again, "{namespace}");
        put(&mut known, others_say(network(3), 2));
        assert!(verdict(&known).is_some(), "{namespace}: the network has changed");
        let again = Network { version: version("another", 4), ..others_say(network(4), 1) };
        put(&mut known, again);
        assert!(verdict(&known).is_some(), "{namespace}: it is another network");
    }
}

#[test]
fn the_end_of_an_old_nad_is_not_that_of_the_new_one() {
    let mut known = complete();
    put(&mut known, network("net", "apps", 1));
    put_nad(&mut known, nad("apps", "net", 7));
    let old = SeenNad { version: version("uid-of-before", 6), ..nad("apps", "net", 6) };
    assert_eq!(known.take(Change::Nad(Box::new(Event::Delete(old)))), BTreeSet::new());
    let same = nad("apps", "net", 8);
    assert_eq!(known.take(Change::Nad(Box::new(Event::Delete(same)))), BTreeSet::from([id("net")]));
}

#[test]
fn without_nads_all_networks_say_so_once_and_go_on_when_they_come() {
    let mut known = known();
    known.take(Change::Namespace(Event::InitApply(namespace("apps", false))));
    known.take(Change::Namespace(Event::InitDone));
    known.take(Change::Policy(Box::new(Event::InitDone)));
    put(&mut known, network("net", "apps", 1));
    let none = || Change::NoNads;
    assert_eq!(known.take(none()), BTreeSet::from([id("net")]));
    assert!(known.is_complete());
    let verdict = known.decide(&id("net")).unwrap().decision.verdict.unwrap();
    assert_eq!(verdict.reason, reasons::NOT_FOUND);
    assert_eq!(known.take(none()), BTreeSet::new(), "it is known");

    known.take(Change::Nad(Box::new(Event::Init)));
    assert_eq!(known.take(Change::Nad(Box::new(Event::InitDone))), BTreeSet::from([id("net")]));
    assert!(!steps(&known, "net").is_empty());
}

#[test]
fn of_a_network_that_cannot_be_read_nothing_is_said_and_nothing_done() {
    let mut known = complete();
    let fault = NetworkFault::Unreadable { problem: "odd".into() };
    put(&mut known, Network { spec: Err(fault), conditions: None, ..network("net", "apps", 1) });
    assert!(known.decide(&id("net")).is_none());
}
