//! Software bridges in the status.

use serde_json::{Value, json};
use vfleet_api::VfRef;
use vfleet_api::bridge::{Bridges, OvsConfigExt};
use vfleet_plan::{
    BridgeFault, BridgeKind, Cause, LinuxBridgeFacts, OvsBridgeFacts, OvsDatabase, OvsFacts,
    OvsInterfaceFacts, OvsPortFacts, Problem, Record, RecordedBridge,
};

use super::*;

const PF: &str = "0000:01:00.0";
const BRIDGE: &str = "br-0000_01_00.0";

const CONTEXT: StatusContext<'_> =
    StatusContext { nic_filter: None, manages_bridges: true, has_go_plugin: false, cni_programs: None };

/// Returns a node state that requests an Open vSwitch bridge.
fn desired() -> SriovNetworkNodeState {
    let mut state = state(3);
    let entry = json!({"pciAddress": PF, "numVfs": 2});
    state.spec.interfaces = Some(vec![serde_json::from_value(entry).unwrap()]);
    let bridge = json!({"name": BRIDGE, "uplinks": [{"pciAddress": PF, "name": "ens1"}]});
    state.spec.bridges = Some(serde_json::from_value(json!({"ovs": [bridge]})).unwrap());
    state
}

fn facts(bridges: Vec<OvsBridgeFacts>) -> HostFacts {
    let interface = desired().spec.interfaces.unwrap().remove(0);
    let record = Record::taken_over(PF.parse().unwrap(), interface);
    let mut facts = HostFacts { pfs: vec![card(PF)], records: vec![record], ..HostFacts::default() };
    facts.bridges.ovs = OvsFacts::Database(OvsDatabase { bridges, ..OvsDatabase::default() });
    facts
}

fn our_bridge() -> OvsBridgeFacts {
    let interface = card(PF).link.unwrap().name;
    let member = OvsInterfaceFacts { name: interface.clone(), mtu_request: Some(9000), ..Default::default() };
    let mark = [("vfleet.io/uplink".to_owned(), PF.to_owned())].into();
    let uplink =
        OvsPortFacts { name: interface, interfaces: vec![member], external_ids: mark, ..Default::default() };
    let internal = OvsPortFacts { name: BRIDGE.to_owned(), ..Default::default() };
    let ids = [("vfleet.io/uplink", PF), ("vfleet.io/keys", "{}"), ("owner", "net")];
    OvsBridgeFacts {
        name: BRIDGE.to_owned(),
        fail_mode: Some("secure".to_owned()),
        external_ids: ids.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        ports: vec![uplink, internal],
        ..Default::default()
    }
}

fn bridges_of(
    state: &SriovNetworkNodeState,
    facts: &HostFacts,
    context: &StatusContext<'_>,
    phase: &AttemptPhase<'_>,
) -> Option<Bridges> {
    build_status(state, Some(facts), context, phase).bridges
}

fn bridge_problem(fault: BridgeFault) -> Failure {
    let pf = Some(PF.parse().unwrap());
    Failure::Problem(Problem { pf, name: None, policies: Vec::new(), cause: Cause::from(fault) })
}

fn not_running() -> Failure {
    let socket = "/run/openvswitch/db.sock".to_owned();
    bridge_problem(BridgeFault::OvsNotRunning { bridge: BRIDGE.to_owned(), socket })
}

/// Returns status and reason of the only bridge, and its message.
fn ready(bridges: Option<Bridges>) -> (String, String, String) {
    let [bridge] = <[OvsConfigExt; 1]>::try_from(bridges.unwrap().ovs.unwrap()).unwrap();
    let [ready] = <[Condition; 1]>::try_from(bridge.conditions.unwrap()).unwrap();
    assert_eq!(ready.type_, READY);
    (ready.status, ready.reason, ready.message)
}

#[test]
fn a_bridge_is_reported_as_found_and_ready() {
    let found = bridges_of(&desired(), &facts(vec![our_bridge()]), &CONTEXT, &AttemptPhase::Done(&[]));
    let (status, reason, message) = ready(found.clone());
    assert_eq!((status.as_str(), reason.as_str()), ("True", "Reconciled"));
    assert!(message.contains(BRIDGE) && message.contains(PF), "{message}");
    let mut text: Value = serde_json::to_value(&found).unwrap();
    text["ovs"][0].as_object_mut().unwrap().remove("conditions");
    let interface = card(PF).link.unwrap().name;
    let uplink = json!({"pciAddress": PF, "name": interface, "interface": {"mtuRequest": 9000}});
    let bridge = json!({"failMode": "secure", "externalIDs": {"owner": "net"}});
    assert_eq!(text, json!({"ovs": [{"name": BRIDGE, "bridge": bridge, "uplinks": [uplink]}]}));
}

#[test]
fn ready_bridges_are_counted() {
    let count = |found: Vec<OvsBridgeFacts>| {
        build_status(&desired(), Some(&facts(found)), &CONTEXT, &AttemptPhase::Done(&[])).ready_bridges
    };
    assert_eq!(count(Vec::new()).as_deref(), Some("0/1"));
    assert_eq!(count(vec![our_bridge()]).as_deref(), Some("1/1"));
    let context = StatusContext { manages_bridges: false, ..CONTEXT };
    let none = build_status(&state(3), Some(&HostFacts::default()), &context, &AttemptPhase::Done(&[]));
    assert_eq!(none.ready_bridges, None);
}

#[test]
fn a_missing_bridge_is_reported_with_its_cause() {
    let mut machine = facts(Vec::new());
    machine.bridges.ovs = OvsFacts::NotRunning { socket: "/run/openvswitch/db.sock".to_owned() };
    let found = bridges_of(&desired(), &machine, &CONTEXT, &AttemptPhase::Done(&[not_running()]));
    let (status, reason, message) = ready(found);
    assert_eq!((status.as_str(), reason.as_str()), ("False", "OvsNotRunning"));
    assert!(message.contains(BRIDGE) && message.contains("db.sock"), "{message}");
    let missing = bridges_of(&desired(), &facts(Vec::new()), &CONTEXT, &AttemptPhase::Done(&[]));
    assert_eq!(ready(missing).1, "NotConfigured");
}

#[test]
fn a_bridge_that_another_problem_prevents_is_not_configured_and_names_itself_its_pf_and_the_cause() {
    let driver = HostError::DriverNotLoaded { driver: "vfio-pci".to_owned() };
    let step = |target, step: &str, source| Failure::Step {
        target,
        step: step.to_owned(),
        needs_drain: true,
        source,
    };
    let pf = Target::Pf(PF.parse().unwrap());
    let of_pf = step(pf, &format!("set {PF} numvfs 2"), driver);
    let of_node = Failure::RebootPostponed { why: "kernel arguments".to_owned() };
    for (failure, cause) in [(of_pf, "vfio-pci is not loaded"), (of_node, "kernel arguments")] {
        let phase = [failure];
        let found = bridges_of(&desired(), &facts(Vec::new()), &CONTEXT, &AttemptPhase::Done(&phase));
        let (status, reason, message) = ready(found);
        assert_eq!((status.as_str(), reason.as_str()), ("False", "NotConfigured"));
        assert!([BRIDGE, PF, cause].iter().all(|word| message.contains(word)), "{message}");
    }
    let error = HostError::NoInterface { device: PF.to_owned() };
    let failures = [step(Target::Bridge(PF.parse().unwrap()), "create it", error)];
    let found = bridges_of(&desired(), &facts(Vec::new()), &CONTEXT, &AttemptPhase::Done(&failures));
    let (_, reason, message) = ready(found);
    assert_eq!(reason, "NoInterface");
    assert!(message.starts_with(&format!("bridge {BRIDGE} of PF {PF}: cannot create it: ")), "{message}");
}

/// Returns a plan with a step on a VF, and one on the bridge.
fn steps() -> [PlannedStep; 2] {
    let pf = PF.parse().unwrap();
    let on_vf = Step::RemoveVdpa { vf: VfRef { pf, index: 0 } };
    let on_bridge = Step::RemoveOvsPort { pf, port: "old".to_owned(), observed: our_bridge() };
    [on_vf, on_bridge].map(|step| PlannedStep { step, disruption: Disruption::Drain, why: String::new() })
}

/// Returns the condition of the bridge while these steps wait for a drain, and while they are executed.
fn before_and_during(
    state: &SriovNetworkNodeState,
    facts: &HostFacts,
    plan: &Plan,
) -> [(String, String, String); 2] {
    let progress = ExecutionProgress::new(plan);
    let waiting = AttemptPhase::Waiting { progress: &progress, text: "waiting" };
    [waiting, AttemptPhase::Executing(&progress)]
        .map(|phase| ready(bridges_of(state, facts, &CONTEXT, &phase)))
}

#[test]
fn a_bridge_keeps_its_condition_while_only_vfs_are_changed() {
    let [on_vf, _] = steps();
    let plan = || Plan { steps: vec![on_vf.clone()], problems: Vec::new() };
    let mut state = desired();
    let machine = facts(vec![our_bridge()]);
    state.status = Some(build_status(&state, Some(&machine), &CONTEXT, &AttemptPhase::Done(&[])));
    for (status, reason, _) in before_and_during(&state, &machine, &plan()) {
        assert_eq!((status.as_str(), reason.as_str()), ("True", "Reconciled"));
    }
    let down = facts(Vec::new());
    state.status = Some(build_status(&state, Some(&down), &CONTEXT, &AttemptPhase::Done(&[not_running()])));
    for (status, reason, message) in before_and_during(&state, &down, &plan()) {
        assert_eq!((status.as_str(), reason.as_str()), ("False", "OvsNotRunning"));
        assert!(message.contains("db.sock"), "{message}");
    }
    // What was reported is not true any more.
    for (status, _, _) in before_and_during(&state, &machine, &plan()) {
        assert_eq!(status, "True");
    }
    state.status = None;
    for (status, reason, message) in before_and_during(&state, &down, &plan()) {
        assert_eq!((status.as_str(), reason.as_str()), ("False", "NotConfigured"));
        assert!(message.contains(BRIDGE) && message.contains(PF), "{message}");
    }
}

#[test]
fn a_bridge_with_steps_names_itself_and_its_pf_until_they_are_done() {
    let [on_vf, on_bridge] = steps();
    let plan = Plan { steps: vec![on_bridge.clone(), on_vf], problems: Vec::new() };
    let machine = facts(vec![our_bridge()]);
    let [waiting, executing] = before_and_during(&desired(), &machine, &plan);
    let expected = format!("bridge {BRIDGE} of PF {PF}: waiting for a drain of the node");
    assert_eq!(waiting, ("False".to_owned(), "WaitingForDrain".to_owned(), expected));
    let expected = format!("bridge {BRIDGE} of PF {PF}: 0 of 1 steps done");
    assert_eq!(executing, ("False".to_owned(), "Executing".to_owned(), expected));

    let mut progress = ExecutionProgress::new(&plan);
    let ended = |error| ExecutionEvent::StepFinished {
        planned: &on_bridge,
        duration: std::time::Duration::ZERO,
        error,
    };
    let mut failed = progress.clone();
    let error = HostError::NoInterface { device: PF.to_owned() };
    failed.record(&ended(Some(&error)));
    let of_failed = bridges_of(&desired(), &machine, &CONTEXT, &AttemptPhase::Executing(&failed));
    let (status, reason, message) = ready(of_failed);
    assert_eq!((status.as_str(), reason.as_str()), ("False", "NoInterface"));
    let start =
        format!("bridge {BRIDGE} of PF {PF}: cannot remove port old from Open vSwitch bridge {BRIDGE}: ");
    assert!(message.starts_with(&start), "{message}");
    progress.record(&ended(None));
    let done = bridges_of(&desired(), &machine, &CONTEXT, &AttemptPhase::Executing(&progress));
    assert_eq!(ready(done).0, "True");
}

#[test]
fn a_problem_of_a_bridge_is_reported_in_each_phase_with_the_same_text() {
    let Failure::Problem(problem) = not_running() else { panic!("a problem is expected") };
    let [on_vf, _] = steps();
    let plan = Plan { steps: vec![on_vf], problems: vec![problem] };
    let down = facts(Vec::new());
    let done = ready(bridges_of(&desired(), &down, &CONTEXT, &AttemptPhase::Done(&[not_running()])));
    assert!(done.2.contains(BRIDGE) && done.2.contains(PF), "{}", done.2);
    assert_eq!(before_and_during(&desired(), &down, &plan), [done.clone(), done]);
}

#[test]
fn a_bridge_without_its_uplink_is_not_ready_although_its_pf_failed_for_another_reason() {
    let mut bridge = our_bridge();
    bridge.ports.remove(0);
    let failures = [Failure::Step {
        target: Target::Pf(PF.parse().unwrap()),
        step: "set it up".to_owned(),
        needs_drain: true,
        source: HostError::NoInterface { device: PF.to_owned() },
    }];
    let found = bridges_of(&desired(), &facts(vec![bridge]), &CONTEXT, &AttemptPhase::Done(&failures));
    assert_eq!(ready(found).0, "False");
    let found = bridges_of(&desired(), &facts(vec![our_bridge()]), &CONTEXT, &AttemptPhase::Done(&failures));
    assert_eq!(ready(found).0, "True", "the bridge itself is verified");
}

#[test]
fn settings_stay_reported_while_open_vswitch_is_down() {
    let mut state = desired();
    let phase = AttemptPhase::Done(&[]);
    state.status = Some(build_status(&state, Some(&facts(vec![our_bridge()])), &CONTEXT, &phase));
    let mut machine = facts(Vec::new());
    machine.bridges.ovs = OvsFacts::NotRunning { socket: "/run/openvswitch/db.sock".to_owned() };
    let failures = [not_running()];
    let down = bridges_of(&state, &machine, &CONTEXT, &AttemptPhase::Done(&failures));
    assert_eq!(ready(down.clone()).0, "False");
    let [bridge] = &down.unwrap().ovs.unwrap()[..] else { panic!("one bridge") };
    assert!(bridge.bridge.is_some() && bridge.uplinks.is_some(), "{bridge:?}");
}

#[test]
fn bridges_of_others_and_of_unmanaged_nodes_are_not_reported() {
    let mut foreign = our_bridge();
    foreign.external_ids.clear();
    let mut plain = state(3);
    plain.spec.interfaces = desired().spec.interfaces;
    let mut machine = facts(vec![foreign]);
    machine.bridges.linux.push(LinuxBridgeFacts {
        name: "br0".to_owned(),
        alias: Some("office".to_owned()),
        group: 0,
        vlan_filtering: false,
        vlan_protocol: None,
        mtu: 1500,
        admin_up: true,
        accepts_ra: false,
        ports: Vec::new(),
    });
    assert_eq!(bridges_of(&plain, &machine, &CONTEXT, &AttemptPhase::Done(&[])), None);
    let unmanaged = StatusContext::default();
    assert_eq!(bridges_of(&desired(), &facts(Vec::new()), &unmanaged, &AttemptPhase::Done(&[])), None);
    let mut external = desired();
    external.spec.interfaces.as_mut().unwrap()[0].externally_managed = Some(true);
    assert_eq!(bridges_of(&external, &facts(Vec::new()), &CONTEXT, &AttemptPhase::Done(&[])), None);
}

#[test]
fn a_leftover_bridge_names_the_port_that_keeps_it() {
    let mut state = desired();
    state.spec.bridges = None;
    let fault =
        BridgeFault::StillUsed { bridge: BRIDGE.to_owned(), kind: BridgeKind::Ovs, port: "veth7".to_owned() };
    let mut bridge = our_bridge();
    bridge.ports[0].name = "veth7".to_owned();
    bridge.ports[0].interfaces[0].name = "veth7".to_owned();
    let phase = AttemptPhase::Done(&[]);
    state.status = Some(build_status(&desired(), Some(&facts(vec![our_bridge()])), &CONTEXT, &phase));
    let failures = [bridge_problem(fault)];
    let mut machine = facts(vec![bridge]);
    let name = BRIDGE.to_owned();
    machine.records[0].bridge =
        Some(RecordedBridge { kind: BridgeKind::Ovs, name, port_settings: BTreeSet::new() });
    // The bridge has no uplink anymore that would name the PF, in the second status not even in the last one.
    for _ in 0..2 {
        let phase = AttemptPhase::Done(&failures);
        state.status = Some(build_status(&state, Some(&machine), &CONTEXT, &phase));
        let (status, reason, message) = ready(state.status.as_ref().unwrap().bridges.clone());
        assert_eq!((status.as_str(), reason.as_str()), ("False", "BridgeInUse"));
        assert!(message.contains("veth7"), "{message}");
    }
}

/// Returns a machine whose PF has a VF, and no bridge.
fn machine_with_vf() -> HostFacts {
    let mut machine = facts(Vec::new());
    let vf = vfleet_plan::VfFacts {
        index: 0,
        address: "0000:01:10.0".parse().unwrap(),
        vendor: 0x8086,
        device: 0x10ca,
        driver: None,
        admin_mac: None,
        admin_guid: None,
        rdma: None,
        vdpa: None,
        representor: None,
        link: None,
        attachment: vfleet_plan::Fact::None,
    };
    machine.pfs[0].vfs = vec![vf];
    machine
}

/// Returns reason and message of the condition `Warning` of the PF.
fn warning(status: &SriovNetworkNodeStateStatus) -> Option<(String, String)> {
    let conditions = status.interfaces.as_ref().unwrap()[0].conditions.clone().unwrap_or_default();
    let warning = conditions.into_iter().find(|condition| condition.type_ == "Warning")?;
    Some((warning.reason, warning.message))
}

#[test]
fn vfs_that_the_go_plugin_offers_without_their_bridge_are_a_warning_in_each_phase() {
    let mut machine = machine_with_vf();
    let context = StatusContext { has_go_plugin: true, ..CONTEXT };
    let failures = [not_running()];
    let [vf_progress, bridge_progress] =
        steps().map(|step| ExecutionProgress::new(&Plan { steps: vec![step], problems: Vec::new() }));
    let of_others = ExecutionProgress::default();
    let phases = [
        AttemptPhase::Done(&failures),
        AttemptPhase::Waiting { progress: &vf_progress, text: "waiting" },
        AttemptPhase::Waiting { progress: &bridge_progress, text: "waiting" },
        AttemptPhase::Waiting { progress: &of_others, text: "waiting" },
        AttemptPhase::Executing(&vf_progress),
        AttemptPhase::Executing(&bridge_progress),
        AttemptPhase::Executing(&of_others),
    ];
    let mut state = desired();
    for phase in &phases {
        let new = build_status(&state, Some(&machine), &context, phase);
        let (reason, message) = warning(&new).unwrap_or_else(|| panic!("no warning: {phase:?}"));
        assert_eq!(reason, "BridgeNotReady");
        assert!(message.contains(BRIDGE), "{message}");
        state.status = Some(new);
    }
    machine.bridges.ovs = facts(vec![our_bridge()]).bridges.ovs;
    for phase in [AttemptPhase::Executing(&vf_progress), AttemptPhase::Done(&[])] {
        assert_eq!(warning(&build_status(&state, Some(&machine), &context, &phase)), None, "{phase:?}");
    }
}

/// The operator keeps the bridge in the node state while a policy requests it.
#[test]
fn vfs_that_are_offered_while_bridges_are_not_managed_are_a_warning() {
    let context = StatusContext { has_go_plugin: true, ..StatusContext::default() };
    let phase = AttemptPhase::Done(&[]);
    let new = build_status(&desired(), Some(&machine_with_vf()), &context, &phase);
    assert_eq!(warning(&new).unwrap().0, "BridgeNotReady");
    assert_eq!(new.bridges, None);
    let mut left = machine_with_vf();
    left.bridges.ovs = facts(vec![our_bridge()]).bridges.ovs;
    let (_, reason, message) = ready(bridges_of(&desired(), &left, &context, &phase));
    assert_eq!(reason, "NotDesired");
    assert!(message.contains("manageSoftwareBridges"), "{message}");
}
