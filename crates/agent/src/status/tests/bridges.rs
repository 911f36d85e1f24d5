//! Software bridges in the status.

use serde_json::{Value, json};
use vfleet_api::bridge::{Bridges, OvsConfigExt};
use vfleet_plan::{
    BridgeFault, Cause, LinuxBridgeFacts, OvsBridgeFacts, OvsDatabase, OvsFacts, OvsInterfaceFacts,
    OvsPortFacts, Problem, Record,
};

use super::*;

const PF: &str = "0000:01:00.0";
const BRIDGE: &str = "br-0000_01_00.0";

const CONTEXT: StatusContext<'_> =
    StatusContext { nic_filter: None, manages_bridges: true, has_go_plugin: false };

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
fn a_bridge_without_its_uplink_is_not_ready_although_its_pf_failed_for_another_reason() {
    let mut bridge = our_bridge();
    bridge.ports.remove(0);
    let failures = [Failure::Step {
        target: vfleet_plan::Target::Pf(PF.parse().unwrap()),
        step: "set it up".to_owned(),
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
    let fault = BridgeFault::StillUsed {
        bridge: BRIDGE.to_owned(),
        kind: vfleet_plan::BridgeKind::Ovs,
        port: "veth7".to_owned(),
    };
    let mut bridge = our_bridge();
    bridge.ports[0].name = "veth7".to_owned();
    bridge.ports[0].interfaces[0].name = "veth7".to_owned();
    let phase = AttemptPhase::Done(&[]);
    state.status = Some(build_status(&desired(), Some(&facts(vec![our_bridge()])), &CONTEXT, &phase));
    let failures = [bridge_problem(fault)];
    let found = bridges_of(&state, &facts(vec![bridge]), &CONTEXT, &AttemptPhase::Done(&failures));
    let (status, reason, message) = ready(found);
    assert_eq!((status.as_str(), reason.as_str()), ("False", "BridgeInUse"));
    assert!(message.contains("veth7"), "{message}");
}

#[test]
fn vfs_that_the_go_plugin_offers_without_their_bridge_are_a_warning() {
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
    };
    machine.pfs[0].vfs = vec![vf];
    let context = StatusContext { has_go_plugin: true, ..CONTEXT };
    let failures = [not_running()];
    let new = build_status(&desired(), Some(&machine), &context, &AttemptPhase::Done(&failures));
    let conditions = new.interfaces.unwrap().remove(0).conditions.unwrap();
    let warning = conditions.iter().find(|condition| condition.type_ == "Warning").unwrap();
    assert_eq!(warning.reason, "BridgeNotReady");
    assert!(warning.message.contains(BRIDGE), "{}", warning.message);
}
