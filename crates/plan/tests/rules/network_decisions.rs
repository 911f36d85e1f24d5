//! What is done for a network, by what is around it.

use vfleet_api::network::SriovNetworkSpec;
use vfleet_plan::network::{
    Decision, Nad, NadFacts, NamespaceFacts, NetworkFacts, NetworkFault, NetworkId, NetworkKind, NetworkSpec,
    NetworkStep, OwnerFacts, Surroundings, decide, plan_nad, reasons, remembered_namespace, target_namespace,
};

const OPERATOR: &str = "operator";
const UID: &str = "uid-of-the-network";

/// A network called `net` and all that is around it.
struct Case {
    id: NetworkId,
    spec: NetworkSpec,
    deleting: bool,
    has_finalizer: bool,
    remembered: Option<&'static str>,
    target: NamespaceFacts,
    nads: Option<Vec<NadFacts>>,
}

/// A network in the operator's namespace whose NAD shall be in `target`; nothing is done for it yet.
fn network_for(target: &str) -> Case {
    let spec = SriovNetworkSpec {
        resource_name: "nics".into(),
        network_namespace: Some(target.into()),
        ..Default::default()
    };
    Case {
        id: NetworkId { kind: NetworkKind::Sriov, namespace: OPERATOR.into(), name: "net".into() },
        spec: NetworkSpec::Sriov(spec),
        deleting: false,
        has_finalizer: false,
        remembered: None,
        target: NamespaceFacts::There,
        nads: Some(Vec::new()),
    }
}

/// The same, with all done.
fn settled_in(target: &'static str) -> Case {
    let mut case = network_for(target);
    case.has_finalizer = true;
    case.remembered = Some(target);
    case.nads = Some(vec![as_made(&case.nad().unwrap())]);
    case
}

/// A network in a namespace of its own.
fn outside() -> Case {
    let mut case = network_for("");
    case.id.namespace = "team-a".into();
    case
}

impl Case {
    fn nad(&self) -> Result<Nad, Vec<NetworkFault>> {
        plan_nad(&self.id, &self.spec, "openshift.io", OPERATOR)
    }

    fn decide(&self) -> Decision {
        let network = NetworkFacts {
            id: &self.id,
            uid: UID,
            deleting: self.deleting,
            has_finalizer: self.has_finalizer,
            remembered: self.remembered,
        };
        let nads: Option<Vec<_>> = self.nads.as_ref().map(|nads| nads.iter().collect());
        let around =
            Surroundings { operator_namespace: OPERATOR, target: self.target, nads: nads.as_deref() };
        decide(&network, &self.nad(), &around)
    }

    fn found(&mut self) -> &mut NadFacts {
        &mut self.nads.as_mut().unwrap()[0]
    }

    fn break_ipam(&mut self) {
        let NetworkSpec::Sriov(spec) = &mut self.spec else { panic!("no SriovNetwork") };
        spec.ipam = Some("{".into());
    }
}

fn as_made(nad: &Nad) -> NadFacts {
    let reference = OwnerFacts { kind: "SriovNetwork".into(), name: "net".into(), uid: UID.into() };
    NadFacts {
        namespace: nad.namespace.clone(),
        deleting: false,
        owner: Some(nad.owner.clone()),
        resource: Some(nad.resource.clone()),
        owner_references: nad.owner_reference.then_some(reference).into_iter().collect(),
        config: Some(nad.config.clone()),
    }
}

fn unmarked(namespace: &str) -> NadFacts {
    NadFacts { namespace: namespace.into(), config: Some("{}".into()), ..Default::default() }
}

fn delete(namespace: &str) -> NetworkStep {
    NetworkStep::Delete { namespace: namespace.into() }
}

/// With the finalizer.
fn prepare(namespace: &str) -> NetworkStep {
    NetworkStep::Prepare { add_finalizer: true, namespace: namespace.into() }
}

fn remember(namespace: &str) -> NetworkStep {
    NetworkStep::Prepare { add_finalizer: false, namespace: namespace.into() }
}

fn reason(decision: &Decision) -> (bool, &'static str) {
    let verdict = decision.verdict.as_ref().unwrap();
    (verdict.holds, verdict.reason)
}

fn message(decision: &Decision) -> &str {
    &decision.verdict.as_ref().unwrap().message
}

#[track_caller]
fn expect_nothing_but(decision: &Decision, why: &'static str) {
    assert_eq!(decision.steps, []);
    assert_eq!(reason(decision), (false, why));
}

#[test]
fn a_new_network_is_prepared_before_its_nad_is_made() {
    let case = network_for("apps");
    let nad = case.nad().unwrap();
    assert!(!nad.owner_reference, "it cannot point to another namespace");
    let decision = case.decide();
    assert_eq!(decision.steps, [prepare("apps"), NetworkStep::Create(nad)]);
    assert_eq!(reason(&decision), (true, reasons::READY));
}

#[test]
fn a_network_with_the_finalizer_outside_our_namespace_is_another_operators() {
    let mut case = outside();
    case.has_finalizer = true;
    assert_eq!(case.decide(), Decision { steps: Vec::new(), verdict: None });

    case.spec = network_for("apps").spec;
    assert_eq!(case.decide(), Decision { steps: Vec::new(), verdict: None }, "it may name a namespace there");

    case.deleting = true;
    let decision = case.decide();
    expect_nothing_but(&decision, reasons::LEFT_TO_ANOTHER);
    assert!(message(&decision).contains("the operator in team-a"), "{}", message(&decision));
}

#[test]
fn a_network_elsewhere_gets_no_finalizer_but_an_owner_reference() {
    let case = outside();
    let nad = case.nad().unwrap();
    assert!(nad.owner_reference);
    assert_eq!(case.decide().steps, [remember("team-a"), NetworkStep::Create(nad)]);
}

#[test]
fn where_all_is_done_nothing_is() {
    for case in [settled_in("apps"), settled_in(OPERATOR)] {
        let decision = case.decide();
        assert_eq!(decision.steps, []);
        assert_eq!(reason(&decision), (true, reasons::READY));
    }
}

#[test]
fn what_is_ours_in_a_nad_is_set_right() {
    let spoilt: [fn(&mut NadFacts); 5] = [
        |nad| nad.config = Some("{}".into()),
        |nad| nad.config = None,
        |nad| nad.resource = None,
        |nad| nad.owner = None,
        |nad| nad.owner_references.clear(),
    ];
    for spoil in spoilt {
        let mut case = settled_in(OPERATOR);
        spoil(case.found());
        assert_eq!(case.decide().steps, [NetworkStep::Update(case.nad().unwrap())]);
    }
}

#[test]
fn a_nad_of_nobody_is_taken() {
    let mut case = network_for("apps");
    case.nads = Some(vec![unmarked("apps")]);
    let nad = case.nad().unwrap();
    assert_eq!(case.decide().steps, [prepare("apps"), NetworkStep::Update(nad)]);
}

#[test]
fn a_nad_of_another_is_left_alone_and_its_owner_named() {
    let mut case = settled_in("apps");
    case.found().owner = Some("OVSNetwork.sriovnetwork.openshift.io/operator/net".into());
    let decision = case.decide();
    expect_nothing_but(&decision, reasons::INVALID);
    assert!(message(&decision).contains("OVSNetwork.sriovnetwork.openshift.io/operator/net"));
}

#[test]
fn a_nad_that_another_object_owns_by_reference_is_left_alone() {
    let mut case = network_for("apps");
    let deployment = OwnerFacts { kind: "Deployment".into(), name: "web".into(), uid: "x".into() };
    case.nads = Some(vec![NadFacts { owner_references: vec![deployment], ..unmarked("apps") }]);
    let decision = case.decide();
    expect_nothing_but(&decision, reasons::INVALID);
    assert!(message(&decision).contains("Deployment web"));
    case.deleting = true;
    case.has_finalizer = true;
    case.remembered = Some("apps");
    assert_eq!(case.decide().steps, [NetworkStep::RemoveFinalizer]);
}

#[test]
fn a_network_that_was_made_again_takes_its_nad_back() {
    let mut case = settled_in(OPERATOR);
    case.found().owner = None;
    case.found().owner_references[0].uid = "uid-of-before".into();
    assert_eq!(case.decide().steps, [NetworkStep::Update(case.nad().unwrap())]);
}

#[test]
fn a_move_deletes_the_old_one_then_remembers_then_makes_the_new_one() {
    let mut case = settled_in("old");
    case.spec = network_for("new").spec;
    let nad = case.nad().unwrap();
    let create = NetworkStep::Create(nad.clone());
    assert_eq!(case.decide().steps, [delete("old"), remember("new"), create.clone()]);

    // Cut off after each step: the rest is done.
    case.nads = Some(Vec::new());
    assert_eq!(case.decide().steps, [remember("new"), create.clone()]);
    case.remembered = Some("new");
    assert_eq!(case.decide().steps, [create]);
    case.nads = Some(vec![as_made(&nad)]);
    assert_eq!(case.decide().steps, []);
}

#[test]
fn an_old_nad_without_owner_goes_only_if_the_network_remembers_it() {
    let mut case = settled_in("new");
    case.nads.as_mut().unwrap().push(unmarked("old"));
    assert_eq!(case.decide().steps, [], "somebody's own");
    case.remembered = Some("old");
    assert_eq!(case.decide().steps, [delete("old"), remember("new")]);
}

#[test]
fn an_old_nad_that_is_going_already_is_not_waited_for() {
    let mut case = settled_in("old");
    case.found().deleting = true;
    case.spec = network_for("new").spec;
    assert_eq!(case.decide().steps, [remember("new"), NetworkStep::Create(case.nad().unwrap())]);
}

#[test]
fn an_old_nad_that_another_network_took_stays() {
    let mut case = settled_in("new");
    let other = NetworkId { kind: NetworkKind::Ovs, namespace: "old".into(), name: "net".into() };
    let foreign = NadFacts { owner: Some(other.to_string()), ..unmarked("old") };
    case.nads.as_mut().unwrap().push(foreign);
    case.remembered = Some("old");
    assert_eq!(case.decide().steps, [remember("new")]);
}

#[test]
fn a_move_to_nowhere_waits_and_keeps_the_old_one() {
    for (target, says) in [(NamespaceFacts::Missing, "does not exist"), (NamespaceFacts::Ending, "deleted")] {
        let mut case = settled_in("old");
        case.spec = network_for("new").spec;
        case.target = target;
        let decision = case.decide();
        expect_nothing_but(&decision, reasons::NAMESPACE_NOT_FOUND);
        for part in ["namespace new", says, "old/net stays"] {
            assert!(message(&decision).contains(part), "{part:?} is not in {:?}", message(&decision));
        }
    }
}

#[test]
fn a_move_to_a_place_that_is_taken_keeps_the_old_one() {
    let mut case = settled_in("old");
    case.spec = network_for("new").spec;
    case.nads.as_mut().unwrap().push(NadFacts { owner: Some("somebody".into()), ..unmarked("new") });
    expect_nothing_but(&case.decide(), reasons::INVALID);
}

#[test]
fn a_faulty_network_keeps_the_nad_of_before() {
    let mut case = settled_in("apps");
    case.break_ipam();
    let decision = case.decide();
    expect_nothing_but(&decision, reasons::INVALID);
    for part in ["ipam", "line 1", "apps/net stays"] {
        assert!(message(&decision).contains(part), "{part:?} is not in {:?}", message(&decision));
    }
    case.nads = Some(Vec::new());
    expect_nothing_but(&case.decide(), reasons::INVALID);
}

#[test]
fn without_the_kind_it_says_what_to_install() {
    let mut case = network_for("apps");
    case.nads = None;
    let decision = case.decide();
    expect_nothing_but(&decision, reasons::NOT_FOUND);
    assert!(message(&decision).contains("install Multus"));
    case.deleting = true;
    case.has_finalizer = true;
    assert_eq!(case.decide().steps, [NetworkStep::RemoveFinalizer]);
}

#[test]
fn a_nad_that_is_going_is_waited_for() {
    let mut case = settled_in("apps");
    case.found().deleting = true;
    expect_nothing_but(&case.decide(), reasons::NOT_FOUND);
}

#[test]
fn a_deleted_network_goes_after_all_its_nads() {
    let mut case = settled_in("apps");
    case.deleting = true;
    case.nads.as_mut().unwrap().push(as_made(&network_for("old").nad().unwrap()));
    case.remembered = Some("old");
    assert_eq!(case.decide(), Decision { steps: vec![delete("apps"), delete("old")], verdict: None });

    case.nads.as_mut().unwrap().pop();
    case.found().deleting = true;
    let held = case.decide();
    expect_nothing_but(&held, reasons::NOT_FOUND);
    assert!(message(&held).contains("finalizer"));

    case.nads = Some(Vec::new());
    assert_eq!(case.decide(), Decision { steps: vec![NetworkStep::RemoveFinalizer], verdict: None });
}

#[test]
fn a_deleted_network_deletes_also_when_faulty_and_when_its_namespace_is_gone() {
    let mut case = settled_in("apps");
    case.deleting = true;
    case.break_ipam();
    assert_eq!(case.decide().steps, [delete("apps")]);
    case.nads = Some(Vec::new());
    case.target = NamespaceFacts::Missing;
    assert_eq!(case.decide().steps, [NetworkStep::RemoveFinalizer]);
}

#[test]
fn a_deleted_network_leaves_what_belongs_to_others() {
    let mut case = settled_in("apps");
    case.deleting = true;
    case.found().owner = Some("somebody else".into());
    assert_eq!(case.decide().steps, [NetworkStep::RemoveFinalizer]);
    case.found().owner = None;
    case.remembered = None;
    assert_eq!(case.decide().steps, [NetworkStep::RemoveFinalizer], "nothing says that it is ours");
}

#[test]
fn a_deleted_network_without_our_finalizer_is_left_to_the_garbage_collector() {
    let mut case = outside();
    case.deleting = true;
    case.nads = Some(vec![as_made(&case.nad().unwrap())]);
    assert_eq!(case.decide(), Decision { steps: vec![], verdict: None });
}

#[test]
fn only_a_network_beside_the_operator_reaches_into_other_namespaces() {
    let (beside, elsewhere) = (network_for("apps"), outside());
    assert_eq!(target_namespace(&beside.id, Some(&beside.spec), OPERATOR), "apps");
    assert_eq!(target_namespace(&elsewhere.id, Some(&beside.spec), OPERATOR), "team-a");
    assert_eq!(remembered_namespace(&beside.id, Some("apps"), OPERATOR), Some("apps"));
    assert_eq!(remembered_namespace(&elsewhere.id, Some("apps"), OPERATOR), None);
    assert_eq!(remembered_namespace(&elsewhere.id, Some("team-a"), OPERATOR), Some("team-a"));
    assert_eq!(remembered_namespace(&beside.id, Some(""), OPERATOR), None, "left behind by the Go operator");
}
