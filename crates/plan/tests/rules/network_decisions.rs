//! Decisions about networks, NADs and namespaces.

use vfleet_api::network::SriovNetworkSpec;
use vfleet_plan::network::{
    DesiredNad, NadFacts, NetworkDecision, NetworkEnvironment, NetworkFacts, NetworkFault, NetworkId,
    NetworkKind, NetworkSpec, NetworkStep, OwnerReferenceFacts, TargetNamespace, decide, last_nad_namespace,
    plan_nad, reasons, target_namespace,
};

const OPERATOR: &str = "operator";
const UID: &str = "uid-of-the-network";

/// Network `net` with its environment.
struct NetworkCase {
    id: NetworkId,
    spec: NetworkSpec,
    deleting: bool,
    has_finalizer: bool,
    last_namespace: Option<&'static str>,
    target: TargetNamespace,
    nads: Option<Vec<NadFacts>>,
}

/// Returns a new network in the namespace of the operator whose NAD belongs in `target`.
fn network_for(target: &str) -> NetworkCase {
    let spec = SriovNetworkSpec {
        resource_name: "nics".into(),
        network_namespace: Some(target.into()),
        ..Default::default()
    };
    NetworkCase {
        id: NetworkId { kind: NetworkKind::Sriov, namespace: OPERATOR.into(), name: "net".into() },
        spec: NetworkSpec::Sriov(spec),
        deleting: false,
        has_finalizer: false,
        last_namespace: None,
        target: TargetNamespace::Active,
        nads: Some(Vec::new()),
    }
}

/// Returns a network whose NAD exists in `target`.
fn reconciled_in(target: &'static str) -> NetworkCase {
    let mut case = network_for(target);
    case.has_finalizer = true;
    case.last_namespace = Some(target);
    case.nads = Some(vec![nad_facts(&case.nad().unwrap())]);
    case
}

/// Returns a network outside the namespace of the operator.
fn in_user_namespace() -> NetworkCase {
    let mut case = network_for("");
    case.id.namespace = "team-a".into();
    case
}

impl NetworkCase {
    fn nad(&self) -> Result<DesiredNad, Vec<NetworkFault>> {
        plan_nad(&self.id, &self.spec, "openshift.io", OPERATOR)
    }

    fn decide(&self) -> NetworkDecision {
        let network = NetworkFacts {
            id: &self.id,
            uid: UID,
            deleting: self.deleting,
            has_finalizer: self.has_finalizer,
            last_namespace: self.last_namespace,
        };
        let nads: Option<Vec<_>> = self.nads.as_ref().map(|nads| nads.iter().collect());
        let environment =
            NetworkEnvironment { operator_namespace: OPERATOR, target: self.target, nads: nads.as_deref() };
        decide(&network, &self.nad(), &environment)
    }

    fn found(&mut self) -> &mut NadFacts {
        &mut self.nads.as_mut().unwrap()[0]
    }

    fn break_ipam(&mut self) {
        let NetworkSpec::Sriov(spec) = &mut self.spec else { panic!("no SriovNetwork") };
        spec.ipam = Some("{".into());
    }
}

fn nad_facts(nad: &DesiredNad) -> NadFacts {
    let reference = OwnerReferenceFacts { kind: "SriovNetwork".into(), name: "net".into(), uid: UID.into() };
    NadFacts {
        namespace: nad.namespace.clone(),
        deleting: false,
        owner: Some(nad.owner.clone()),
        resource: Some(nad.resource.clone()),
        owner_references: nad.owner_reference.then_some(reference).into_iter().collect(),
        config: Some(nad.config.clone()),
    }
}

fn unowned(namespace: &str) -> NadFacts {
    NadFacts { namespace: namespace.into(), config: Some("{}".into()), ..Default::default() }
}

fn delete(namespace: &str) -> NetworkStep {
    NetworkStep::Delete { namespace: namespace.into() }
}

/// Returns the step that adds the finalizer and records the namespace.
fn prepare(namespace: &str) -> NetworkStep {
    NetworkStep::Prepare { add_finalizer: true, namespace: namespace.into() }
}

/// Returns the step that only records the namespace.
fn record(namespace: &str) -> NetworkStep {
    NetworkStep::Prepare { add_finalizer: false, namespace: namespace.into() }
}

fn reason(decision: &NetworkDecision) -> (bool, &'static str) {
    let condition = decision.condition.as_ref().unwrap();
    (condition.status, condition.reason)
}

fn message(decision: &NetworkDecision) -> &str {
    &decision.condition.as_ref().unwrap().message
}

#[track_caller]
fn expect_no_steps(decision: &NetworkDecision, why: &'static str) {
    assert_eq!(decision.steps, []);
    assert_eq!(reason(decision), (false, why));
}

#[test]
fn a_new_network_is_prepared_before_its_nad_is_created() {
    let case = network_for("apps");
    let nad = case.nad().unwrap();
    assert!(!nad.owner_reference, "an owner reference cannot point to another namespace");
    let decision = case.decide();
    assert_eq!(decision.steps, [prepare("apps"), NetworkStep::Create(nad)]);
    assert_eq!(reason(&decision), (true, reasons::READY));
}

#[test]
fn a_network_with_the_finalizer_outside_our_namespace_belongs_to_another_operator() {
    let mut case = in_user_namespace();
    case.has_finalizer = true;
    assert_eq!(case.decide(), NetworkDecision { steps: Vec::new(), condition: None });

    case.spec = network_for("apps").spec;
    assert_eq!(
        case.decide(),
        NetworkDecision { steps: Vec::new(), condition: None },
        "networkNamespace is allowed there"
    );

    case.deleting = true;
    let decision = case.decide();
    expect_no_steps(&decision, reasons::MANAGED_BY_ANOTHER);
    assert!(message(&decision).contains("the operator in namespace team-a"), "{}", message(&decision));
}

#[test]
fn a_network_elsewhere_gets_no_finalizer_but_an_owner_reference() {
    let case = in_user_namespace();
    let nad = case.nad().unwrap();
    assert!(nad.owner_reference);
    assert_eq!(case.decide().steps, [record("team-a"), NetworkStep::Create(nad)]);
}

#[test]
fn a_reconciled_network_needs_no_step() {
    for case in [reconciled_in("apps"), reconciled_in(OPERATOR)] {
        let decision = case.decide();
        assert_eq!(decision.steps, []);
        assert_eq!(reason(&decision), (true, reasons::READY));
    }
}

#[test]
fn managed_fields_of_a_nad_are_corrected() {
    let changes: [fn(&mut NadFacts); 5] = [
        |nad| nad.config = Some("{}".into()),
        |nad| nad.config = None,
        |nad| nad.resource = None,
        |nad| nad.owner = None,
        |nad| nad.owner_references.clear(),
    ];
    for change in changes {
        let mut case = reconciled_in(OPERATOR);
        change(case.found());
        assert_eq!(case.decide().steps, [NetworkStep::Update(case.nad().unwrap())]);
    }
}

#[test]
fn a_nad_without_owner_is_adopted() {
    let mut case = network_for("apps");
    case.nads = Some(vec![unowned("apps")]);
    let nad = case.nad().unwrap();
    assert_eq!(case.decide().steps, [prepare("apps"), NetworkStep::Update(nad)]);
}

#[test]
fn a_nad_of_another_network_is_not_changed_and_its_owner_is_reported() {
    let mut case = reconciled_in("apps");
    case.found().owner = Some("OVSNetwork.sriovnetwork.openshift.io/operator/net".into());
    let decision = case.decide();
    expect_no_steps(&decision, reasons::INVALID);
    assert!(message(&decision).contains("OVSNetwork.sriovnetwork.openshift.io/operator/net"));
}

#[test]
fn a_nad_with_an_owner_reference_to_another_object_is_not_changed() {
    let mut case = network_for("apps");
    let deployment = OwnerReferenceFacts { kind: "Deployment".into(), name: "web".into(), uid: "x".into() };
    case.nads = Some(vec![NadFacts { owner_references: vec![deployment], ..unowned("apps") }]);
    let decision = case.decide();
    expect_no_steps(&decision, reasons::INVALID);
    assert!(message(&decision).contains("Deployment web"));
    case.deleting = true;
    case.has_finalizer = true;
    case.last_namespace = Some("apps");
    assert_eq!(case.decide().steps, [NetworkStep::RemoveFinalizer]);
}

#[test]
fn a_network_that_was_created_again_adopts_its_nad() {
    let mut case = reconciled_in(OPERATOR);
    case.found().owner = None;
    case.found().owner_references[0].uid = "uid-of-before".into();
    assert_eq!(case.decide().steps, [NetworkStep::Update(case.nad().unwrap())]);
}

#[test]
fn a_move_deletes_the_old_nad_then_records_the_namespace_then_creates_the_new_nad() {
    let mut case = reconciled_in("old");
    case.spec = network_for("new").spec;
    let nad = case.nad().unwrap();
    let create = NetworkStep::Create(nad.clone());
    assert_eq!(case.decide().steps, [delete("old"), record("new"), create.clone()]);

    // After an interruption between steps, the remaining steps follow.
    case.nads = Some(Vec::new());
    assert_eq!(case.decide().steps, [record("new"), create.clone()]);
    case.last_namespace = Some("new");
    assert_eq!(case.decide().steps, [create]);
    case.nads = Some(vec![nad_facts(&nad)]);
    assert_eq!(case.decide().steps, []);
}

#[test]
fn an_old_nad_without_owner_is_deleted_only_if_the_network_records_its_namespace() {
    let mut case = reconciled_in("new");
    case.nads.as_mut().unwrap().push(unowned("old"));
    assert_eq!(case.decide().steps, [], "not created by the network");
    case.last_namespace = Some("old");
    assert_eq!(case.decide().steps, [delete("old"), record("new")]);
}

#[test]
fn a_move_does_not_wait_for_an_old_nad_that_is_being_deleted() {
    let mut case = reconciled_in("old");
    case.found().deleting = true;
    case.spec = network_for("new").spec;
    assert_eq!(case.decide().steps, [record("new"), NetworkStep::Create(case.nad().unwrap())]);
}

#[test]
fn an_old_nad_that_another_network_adopted_stays() {
    let mut case = reconciled_in("new");
    let other = NetworkId { kind: NetworkKind::Ovs, namespace: "old".into(), name: "net".into() };
    let foreign = NadFacts { owner: Some(other.to_string()), ..unowned("old") };
    case.nads.as_mut().unwrap().push(foreign);
    case.last_namespace = Some("old");
    assert_eq!(case.decide().steps, [record("new")]);
}

#[test]
fn a_move_to_a_missing_namespace_waits_and_keeps_the_old_nad() {
    for (target, text) in
        [(TargetNamespace::Missing, "does not exist"), (TargetNamespace::Terminating, "deleted")]
    {
        let mut case = reconciled_in("old");
        case.spec = network_for("new").spec;
        case.target = target;
        let decision = case.decide();
        expect_no_steps(&decision, reasons::NAMESPACE_NOT_FOUND);
        for part in ["namespace new", text, "old/net is not changed"] {
            assert!(message(&decision).contains(part), "{part:?} is not in {:?}", message(&decision));
        }
    }
}

#[test]
fn a_move_to_a_nad_of_another_owner_keeps_the_old_nad() {
    let mut case = reconciled_in("old");
    case.spec = network_for("new").spec;
    case.nads.as_mut().unwrap().push(NadFacts { owner: Some("somebody".into()), ..unowned("new") });
    expect_no_steps(&case.decide(), reasons::INVALID);
}

#[test]
fn a_faulty_network_keeps_its_nad() {
    let mut case = reconciled_in("apps");
    case.break_ipam();
    let decision = case.decide();
    expect_no_steps(&decision, reasons::INVALID);
    for part in ["ipam", "line 1", "apps/net is not changed"] {
        assert!(message(&decision).contains(part), "{part:?} is not in {:?}", message(&decision));
    }
    case.nads = Some(Vec::new());
    expect_no_steps(&case.decide(), reasons::INVALID);
}

#[test]
fn without_the_crd_the_message_says_what_to_install() {
    let mut case = network_for("apps");
    case.nads = None;
    let decision = case.decide();
    expect_no_steps(&decision, reasons::NOT_FOUND);
    assert!(message(&decision).contains("install Multus"));
    case.deleting = true;
    case.has_finalizer = true;
    assert_eq!(case.decide().steps, [NetworkStep::RemoveFinalizer]);
}

#[test]
fn a_nad_that_is_being_deleted_is_waited_for() {
    let mut case = reconciled_in("apps");
    case.found().deleting = true;
    expect_no_steps(&case.decide(), reasons::NOT_FOUND);
}

#[test]
fn the_finalizer_is_removed_after_all_nads_are_deleted() {
    let mut case = reconciled_in("apps");
    case.deleting = true;
    case.nads.as_mut().unwrap().push(nad_facts(&network_for("old").nad().unwrap()));
    case.last_namespace = Some("old");
    assert_eq!(
        case.decide(),
        NetworkDecision { steps: vec![delete("apps"), delete("old")], condition: None }
    );

    case.nads.as_mut().unwrap().pop();
    case.found().deleting = true;
    let blocked = case.decide();
    expect_no_steps(&blocked, reasons::NOT_FOUND);
    assert!(message(&blocked).contains("finalizer"));

    case.nads = Some(Vec::new());
    assert_eq!(case.decide(), NetworkDecision { steps: vec![NetworkStep::RemoveFinalizer], condition: None });
}

#[test]
fn a_deleted_network_deletes_its_nad_even_if_it_is_faulty_or_its_namespace_is_missing() {
    let mut case = reconciled_in("apps");
    case.deleting = true;
    case.break_ipam();
    assert_eq!(case.decide().steps, [delete("apps")]);
    case.nads = Some(Vec::new());
    case.target = TargetNamespace::Missing;
    assert_eq!(case.decide().steps, [NetworkStep::RemoveFinalizer]);
}

#[test]
fn a_deleted_network_keeps_nads_of_others() {
    let mut case = reconciled_in("apps");
    case.deleting = true;
    case.found().owner = Some("somebody else".into());
    assert_eq!(case.decide().steps, [NetworkStep::RemoveFinalizer]);
    case.found().owner = None;
    case.last_namespace = None;
    assert_eq!(case.decide().steps, [NetworkStep::RemoveFinalizer], "nothing identifies it as ours");
}

#[test]
fn a_deleted_network_without_our_finalizer_is_left_to_the_garbage_collector() {
    let mut case = in_user_namespace();
    case.deleting = true;
    case.nads = Some(vec![nad_facts(&case.nad().unwrap())]);
    assert_eq!(case.decide(), NetworkDecision { steps: vec![], condition: None });
}

#[test]
fn only_a_network_in_the_namespace_of_the_operator_writes_to_other_namespaces() {
    let (beside, elsewhere) = (network_for("apps"), in_user_namespace());
    assert_eq!(target_namespace(&beside.id, Some(&beside.spec), OPERATOR), "apps");
    assert_eq!(target_namespace(&elsewhere.id, Some(&beside.spec), OPERATOR), "team-a");
    assert_eq!(last_nad_namespace(&beside.id, Some("apps"), OPERATOR), Some("apps"));
    assert_eq!(last_nad_namespace(&elsewhere.id, Some("apps"), OPERATOR), None);
    assert_eq!(last_nad_namespace(&elsewhere.id, Some("team-a"), OPERATOR), Some("team-a"));
    assert_eq!(last_nad_namespace(&beside.id, Some(""), OPERATOR), None, "left behind by the Go operator");
}
