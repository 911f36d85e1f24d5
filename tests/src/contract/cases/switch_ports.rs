//! Ports of software bridges for pods: veth pairs, representors, VLANs, ports and mirrors of Open vSwitch.

use std::collections::{BTreeMap, BTreeSet};

use vfleet_api::{MacAddr, PciAddress};
use vfleet_plan::cni::facts::{
    BridgeVlan, HolderNamespace, INTERFACE_KEY, NAMESPACE_KEY, Namespace, NamespaceFacts, OVS_OWNER,
    OWNER_KEY, OvsSocket, OvsSwitchFacts, OvsSwitchPort, Representor, SwitchFacts, SwitchPort, SwitchQuery,
};
use vfleet_plan::cni::step::{MirrorRole, OvsPort, OvsVlans, SwitchStep};
use vfleet_plan::{EswitchMode, Step};

use super::cases;
use crate::contract::check::{ensure, execute, expect_eq, expect_some, observe_pf, observe_vf, vf_ref};
use crate::contract::switch_ports::ObservedPort;
use crate::contract::testbed::{CaseError, CaseResult, TestBed};
use vfleet_host::attachment::{AttachmentQuery, NamespaceQuery};

cases! {
    a_veth_pair_lives_from_creation_to_deletion: VfsCreatedUp,
    a_veth_pair_does_not_take_names_of_others: VfsCreatedUp,
    an_uplink_gets_and_loses_vlans: VfsCreatedUp,
    an_ovs_port_without_an_interface_is_an_error_and_is_removed: VfsCreatedUp,
    ovs_ports_of_others_are_left_alone: VfsCreatedUp,
    a_mirror_exists_as_long_as_a_port_is_in_it: VfsCreatedUp,
    a_representor_is_configured_and_restored: EswitchAnyTime,
    a_representor_is_a_port_of_a_linux_bridge_with_vlans: EswitchAnyTime,
    a_representor_is_a_port_of_ovs_with_vlans: EswitchAnyTime,
}

const BRIDGE: &str = "br9";
/// Name of the interface in the pod.
const NAME: &str = "net1";
const VETH: &str = "veth00aa11bb";
const HOST_MAC: MacAddr = MacAddr([2, 0, 0, 0xbb, 0, 1]);
const POD_MAC: MacAddr = MacAddr([2, 0, 0, 0xbb, 0, 2]);

fn run(testbed: &dyn TestBed, step: SwitchStep) -> CaseResult {
    testbed.attachments().execute_cni(&step.into())?;
    testbed.admin().settle()
}

/// Executes a step twice: the second time it changes nothing.
fn run_twice(testbed: &dyn TestBed, step: &SwitchStep) -> CaseResult {
    run(testbed, step.clone())?;
    run(testbed, step.clone())
}

/// Executes a step that fails for this reason. Returns the text of the error.
fn expect_reason(testbed: &dyn TestBed, step: SwitchStep, reason: &str) -> Result<String, CaseError> {
    match testbed.attachments().execute_cni(&step.clone().into()) {
        Ok(()) => Err(CaseError::Failed(format!("{step} did not fail"))),
        Err(error) => {
            expect_eq(&format!("the reason of {error}"), &error.reason(), &reason)?;
            Ok(error.to_string())
        }
    }
}

fn read_facts(testbed: &dyn TestBed, query: &SwitchQuery) -> Result<SwitchFacts, CaseError> {
    Ok(testbed.attachments().switch_facts(query)?)
}

fn observe(testbed: &dyn TestBed, name: &str) -> Result<ObservedPort, CaseError> {
    expect_some(&format!("the interface {name}"), testbed.observer().host_port(name)?)
}

/// Compares the facts of an interface with the observed ones; returns these.
fn compare_port(testbed: &dyn TestBed, facts: &SwitchPort) -> Result<ObservedPort, CaseError> {
    let observed = observe(testbed, &facts.name)?;
    expect_eq("the MTU", &facts.mtu, &observed.mtu)?;
    expect_eq("the state", &facts.is_up, &observed.up)?;
    let master = facts.master.as_ref().map(|master| master.name.clone());
    expect_eq("the master", &master, &observed.master)?;
    expect_eq("the VLANs", &facts.vlans, &observed.vlans)?;
    Ok(observed)
}

/// Creates the namespace of a pod.
fn create_pod(testbed: &dyn TestBed, name: &str) -> Result<Namespace, CaseError> {
    let path = testbed.admin().create_namespace(name)?;
    let query = AttachmentQuery {
        device: observe_vf(testbed, 0)?.address,
        namespace: NamespaceQuery::Path(&path),
        key: None,
        with_addresses: false,
    };
    match testbed.attachments().attachment_facts(&query)?.namespace {
        NamespaceFacts::Present { namespace, is_own: false, .. } => Ok(namespace),
        other => Err(CaseError::Failed(format!("the namespace {path} is {other:?}"))),
    }
}

fn create_veth(namespace: &Namespace) -> SwitchStep {
    SwitchStep::CreateVeth {
        host_name: VETH.to_owned(),
        host_mac: HOST_MAC,
        namespace: namespace.clone(),
        name: NAME.to_owned(),
        mac: POD_MAC,
        mtu: 1400,
    }
}

fn delete_veth() -> SwitchStep {
    SwitchStep::DeleteVeth { host_name: VETH.to_owned(), host_mac: Some(HOST_MAC) }
}

fn a_veth_pair_lives_from_creation_to_deletion(testbed: &dyn TestBed) -> CaseResult {
    let pod = create_pod(testbed, "pod")?;
    run_twice(testbed, &create_veth(&pod))?;
    let query = SwitchQuery { interfaces: [VETH.to_owned()].into(), ..SwitchQuery::default() };
    let facts = expect_some("the interface", read_facts(testbed, &query)?.interfaces.pop())?;
    let observed = compare_port(testbed, &facts)?;
    expect_eq("the kind", &facts.kind.as_str(), &"veth")?;
    expect_eq(
        "MAC, MTU and state",
        &(observed.mac, observed.mtu, observed.up),
        &(Some(HOST_MAC), 1400, false),
    )?;
    let inside = testbed.observer().links_in("pod")?;
    let inside = expect_some("the end in the pod", inside.into_iter().find(|link| link.name == NAME))?;
    expect_eq("MTU and state in the pod", &(inside.mtu, inside.up), &(1400, false))?;
    run_twice(testbed, &SwitchStep::SetHostInterfaceUp { name: VETH.to_owned() })?;
    ensure(observe(testbed, VETH)?.up, "the interface is down")?;
    run_twice(testbed, &delete_veth())?;
    let names = |testbed: &dyn TestBed| -> Result<bool, CaseError> {
        let inside = testbed.observer().links_in("pod")?;
        Ok(inside.iter().any(|link| link.name == NAME) || testbed.observer().host_port(VETH)?.is_some())
    };
    ensure(!names(testbed)?, "one end is left")?;
    run(testbed, create_veth(&pod))?;
    run_twice(testbed, &SwitchStep::DeleteVethInPod { namespace: pod, name: NAME.to_owned() })?;
    ensure(!names(testbed)?, "one end is left")
}

fn a_veth_pair_does_not_take_names_of_others(testbed: &dyn TestBed) -> CaseResult {
    let pod = create_pod(testbed, "pod")?;
    testbed.admin().add_virtual_link("pod", NAME)?;
    let text = expect_reason(testbed, create_veth(&pod), "InterfaceNameTaken")?;
    ensure(text.contains(NAME), text)?;
    expect_eq("the interface on the host", &testbed.observer().host_port(VETH)?, &None)?;
    let other = create_pod(testbed, "other")?;
    run(testbed, create_veth(&other))?;
    let text = expect_reason(testbed, create_veth(&pod), "InterfaceNameTaken")?;
    ensure(text.contains(VETH), text)?;
    let stranger = SwitchStep::DeleteVeth { host_name: VETH.to_owned(), host_mac: Some(POD_MAC) };
    run(testbed, stranger)?;
    observe(testbed, VETH)?;
    run(testbed, delete_veth())
}

fn an_uplink_gets_and_loses_vlans(testbed: &dyn TestBed) -> CaseResult {
    let pf = testbed.pf();
    testbed.admin().add_bridge(BRIDGE)?;
    testbed.admin().add_port(BRIDGE, pf)?;
    testbed.admin().add_port_vlan(BRIDGE, pf, 20)?;
    let uplink = expect_some("the interface", observe_pf(testbed)?.link)?.name;
    let before = observe(testbed, &uplink)?;
    let vlans: BTreeSet<u16> = [20, 30, 31, 32].into();
    run_twice(testbed, &SwitchStep::AddUplinkVlans { uplink: uplink.clone(), vlans })?;
    let device = observe_vf(testbed, 0)?.address;
    let query = SwitchQuery { device: Some(device), with_linux_bridges: true, ..SwitchQuery::default() };
    let facts = read_facts(testbed, &query)?;
    let found = compare_port(testbed, expect_some("the uplink", facts.uplink.as_ref())?.port())?;
    let ids: Vec<u16> = found.vlans.iter().map(|vlan| vlan.id).collect();
    expect_eq("the VLANs", &ids, &vec![1, 20, 30, 31, 32])?;
    ensure(found.vlans[1..].iter().all(|vlan| *vlan == BridgeVlan::tagged(vlan.id)), "they are not tagged")?;
    ensure(facts.linux_bridge(BRIDGE).is_some_and(|bridge| !bridge.filters_vlans), "the bridge is wrong")?;
    let vlans: BTreeSet<u16> = [30, 31, 32, 40].into();
    run_twice(testbed, &SwitchStep::RemoveUplinkVlans { uplink: uplink.clone(), vlans })?;
    expect_eq("the uplink", &observe(testbed, &uplink)?, &before)
}

/// Sets the eswitch to switchdev mode. Returns the representor of the first VF.
fn find_representor(testbed: &dyn TestBed) -> Result<Representor, CaseError> {
    let (pf, mode) = (testbed.pf(), EswitchMode::Switchdev);
    execute(testbed, &[Step::SetEswitchMode { pf, mode, trial: None }])?;
    let found = testbed.observer().eswitch(pf)?.representors.into_iter().next().flatten();
    Ok(Representor { vf: vf_ref(testbed, 0), name: expect_some("a representor", found)? })
}

fn device_query(testbed: &dyn TestBed) -> Result<SwitchQuery, CaseError> {
    let device: PciAddress = observe_vf(testbed, 0)?.address;
    Ok(SwitchQuery { device: Some(device), with_linux_bridges: true, ..SwitchQuery::default() })
}

/// Compares the facts of the representor with the observed ones; returns these.
fn compare_representor(testbed: &dyn TestBed, expected: &Representor) -> Result<ObservedPort, CaseError> {
    let facts = read_facts(testbed, &device_query(testbed)?)?;
    ensure(facts.is_switchdev, "the eswitch is not in switchdev mode")?;
    let found = expect_some("the representor", facts.representor)?;
    expect_eq("the name of the representor", &found.name, &expected.name)?;
    compare_port(testbed, &found)
}

fn a_representor_is_configured_and_restored(testbed: &dyn TestBed) -> CaseResult {
    let representor = find_representor(testbed)?;
    let set = |mtu, is_up| SwitchStep::SetRepresentor { representor: representor.clone(), mtu, is_up };
    let before = compare_representor(testbed, &representor)?;
    run_twice(testbed, &set(Some(1400), Some(!before.up)))?;
    let changed = compare_representor(testbed, &representor)?;
    expect_eq("MTU and state", &(changed.mtu, changed.up), &(1400, !before.up))?;
    run_twice(testbed, &set(Some(before.mtu), Some(before.up)))?;
    expect_eq("the representor", &compare_representor(testbed, &representor)?, &before)?;
    // The name belongs to another VF.
    let other = Representor { vf: vf_ref(testbed, 1), ..representor };
    let step = SwitchStep::SetRepresentor { representor: other, mtu: Some(1400), is_up: None };
    expect_reason(testbed, step, "NoRepresentor").map(drop)
}

fn a_representor_is_a_port_of_a_linux_bridge_with_vlans(testbed: &dyn TestBed) -> CaseResult {
    let representor = find_representor(testbed)?;
    let before = compare_representor(testbed, &representor)?;
    testbed.admin().add_bridge(BRIDGE)?;
    let attach = |vlans: Option<Vec<BridgeVlan>>| SwitchStep::AttachBridgePort {
        representor: representor.clone(),
        bridge: BRIDGE.to_owned(),
        vlans,
    };
    let trunk: Vec<_> = (100..110).map(BridgeVlan::tagged).collect();
    let native = [vec![BridgeVlan::native(7)], trunk.clone()].concat();
    for (vlans, expected) in [
        (None, vec![BridgeVlan::native(1)]),
        (Some(trunk.clone()), trunk),
        (Some(native.clone()), native),
        (Some(vec![BridgeVlan::native(5)]), vec![BridgeVlan::native(5)]),
    ] {
        run_twice(testbed, &attach(vlans))?;
        let port = compare_representor(testbed, &representor)?;
        expect_eq("bridge and VLANs", &(port.master.as_deref(), &port.vlans), &(Some(BRIDGE), &expected))?;
    }
    testbed.admin().add_bridge("br8")?;
    let detach = |bridge: &str| SwitchStep::DetachBridgePort {
        representor: representor.clone(),
        bridge: bridge.to_owned(),
    };
    let elsewhere = SwitchStep::AttachBridgePort {
        representor: representor.clone(),
        bridge: "br8".to_owned(),
        vlans: None,
    };
    expect_reason(testbed, elsewhere, "InterfaceOfOtherBridge")?;
    run(testbed, detach("br8"))?;
    expect_eq("the bridge", &observe(testbed, &representor.name)?.master.as_deref(), &Some(BRIDGE))?;
    run_twice(testbed, &detach(BRIDGE))?;
    expect_eq("the representor", &compare_representor(testbed, &representor)?, &before)?;
    testbed.admin().remove_bridge(BRIDGE)?;
    expect_reason(testbed, attach(None), "BridgeNotFound").map(drop)
}

fn ids(path: &str) -> BTreeMap<String, String> {
    let ids = [(OWNER_KEY, OVS_OWNER), (NAMESPACE_KEY, path), (INTERFACE_KEY, NAME)];
    ids.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

fn ovs_port(name: &str, vlans: OvsVlans) -> OvsPort {
    let external_ids = ids("/run/netns/contract-none");
    OvsPort { name: name.to_owned(), vlans, external_ids, ..OvsPort::default() }
}

fn add_port(port: &OvsPort) -> SwitchStep {
    let (socket, bridge) = (OvsSocket::default(), BRIDGE.to_owned());
    SwitchStep::AddOvsPort { socket, bridge, port: port.clone() }
}

fn remove_port(port: &OvsPort) -> SwitchStep {
    let (name, external_ids) = (port.name.clone(), port.external_ids.clone());
    SwitchStep::RemoveOvsPort { socket: OvsSocket::default(), name, external_ids }
}

/// Starts Open vSwitch with a bridge.
fn start_ovs(testbed: &dyn TestBed) -> CaseResult {
    testbed.admin().start_ovs()?;
    testbed.admin().add_ovs_bridge(BRIDGE)
}

/// Returns the port in the facts of Open vSwitch.
fn ovs_facts(testbed: &dyn TestBed, name: &str) -> Result<Option<OvsSwitchPort>, CaseError> {
    let query = SwitchQuery { ovs: Some(OvsSocket::default()), ..SwitchQuery::default() };
    match read_facts(testbed, &query)?.ovs {
        Some(OvsSwitchFacts::Running { bridges }) => {
            let bridge = expect_some("the bridge", bridges.into_iter().find(|bridge| bridge.name == BRIDGE))?;
            Ok(bridge.ports.into_iter().find(|port| port.name == name))
        }
        other => Err(CaseError::Failed(format!("Open vSwitch is {other:?}"))),
    }
}

/// Compares the facts of a port with the database; returns them.
fn compare_ovs_port(testbed: &dyn TestBed, name: &str) -> Result<OvsSwitchPort, CaseError> {
    let facts = expect_some("the port in the facts", ovs_facts(testbed, name)?)?;
    let database = testbed.observer().ovs()?;
    let bridge = expect_some("the bridge", database.bridge(BRIDGE))?;
    let row = expect_some("the row", bridge.ports.iter().find(|port| port.name == name))?;
    expect_eq("external_ids", &facts.external_ids, &row.external_ids)?;
    let vlans = (facts.vlan_mode.clone(), facts.tag, facts.trunks.clone());
    expect_eq("the VLANs", &vlans, &testbed.observer().ovs_vlans(name)?)?;
    expect_eq("the error", &facts.interfaces[0].error, &row.interfaces[0].error)?;
    Ok(facts)
}

fn a_representor_is_a_port_of_ovs_with_vlans(testbed: &dyn TestBed) -> CaseResult {
    let representor = find_representor(testbed)?;
    let before = compare_representor(testbed, &representor)?;
    start_ovs(testbed)?;
    let trunk = OvsVlans::Trunk([10, 11, 12].into());
    for vlans in [OvsVlans::Access(100), trunk, OvsVlans::Trunk([7].into()), OvsVlans::default()] {
        run_twice(testbed, &add_port(&ovs_port(&representor.name, vlans)))?;
        let port = compare_ovs_port(testbed, &representor.name)?;
        ensure(port.is_owned() && port.interfaces[0].ofport > Some(0), format!("{port:?}"))?;
    }
    let master = compare_representor(testbed, &representor)?.master;
    expect_eq("the master", &master.as_deref(), &Some("ovs-system"))?;
    let up = SwitchStep::SetRepresentor { representor: representor.clone(), mtu: None, is_up: Some(true) };
    run(testbed, up)?;
    let down = SwitchStep::SetRepresentor { representor: representor.clone(), mtu: None, is_up: Some(false) };
    run(testbed, down)?;
    run_twice(testbed, &remove_port(&ovs_port(&representor.name, OvsVlans::default())))?;
    expect_eq("the port", &ovs_facts(testbed, &representor.name)?, &None)?;
    let set = SwitchStep::SetRepresentor {
        representor: representor.clone(),
        mtu: Some(before.mtu),
        is_up: Some(before.up),
    };
    run(testbed, set)?;
    expect_eq("the representor", &compare_representor(testbed, &representor)?, &before)
}

fn an_ovs_port_without_an_interface_is_an_error_and_is_removed(testbed: &dyn TestBed) -> CaseResult {
    start_ovs(testbed)?;
    let pod = create_pod(testbed, "pod")?;
    let port = OvsPort { external_ids: ids(&pod.path), ..ovs_port(VETH, OvsVlans::Access(5)) };
    let text = expect_reason(testbed, add_port(&port), "PortFailed")?;
    ensure(text.contains("No such device"), text)?;
    let found = compare_ovs_port(testbed, VETH)?;
    expect_eq("the number", &found.interfaces[0].ofport, &Some(-1))?;
    expect_eq("the namespace", &found.namespace, &Some(HolderNamespace::Alive))?;
    testbed.admin().delete_namespace("pod")?;
    expect_eq("the namespace", &compare_ovs_port(testbed, VETH)?.namespace, &Some(HolderNamespace::Gone))?;
    let other = OvsPort { external_ids: ids("/run/netns/x"), ..port.clone() };
    run(testbed, remove_port(&other))?;
    compare_ovs_port(testbed, VETH)?;
    run_twice(testbed, &remove_port(&port))?;
    expect_eq("the port", &ovs_facts(testbed, VETH)?, &None)
}

fn ovs_ports_of_others_are_left_alone(testbed: &dyn TestBed) -> CaseResult {
    start_ovs(testbed)?;
    testbed.admin().add_internal_ovs_port(BRIDGE, "p0")?;
    let before = testbed.observer().ovs()?;
    let port = ovs_port("p0", OvsVlans::Access(5));
    expect_reason(testbed, add_port(&port), "PortNameTaken")?;
    run(testbed, remove_port(&port))?;
    expect_eq("the database", &testbed.observer().ovs()?, &before)?;
    let socket = OvsSocket::default();
    let nowhere = SwitchStep::AddOvsPort {
        socket,
        bridge: "br8".to_owned(),
        port: ovs_port("p1", OvsVlans::default()),
    };
    expect_reason(testbed, nowhere, "BridgeNotFound")?;
    let elsewhere = OvsSocket::Unix("/run/no-such-directory/db.sock".to_owned());
    let step = SwitchStep::AddOvsPort { socket: elsewhere.clone(), bridge: BRIDGE.to_owned(), port };
    expect_reason(testbed, step, "OvsNotRunning")?;
    let query = SwitchQuery { ovs: Some(elsewhere), ..SwitchQuery::default() };
    let facts = read_facts(testbed, &query)?.ovs;
    ensure(matches!(facts, Some(OvsSwitchFacts::Down { .. })), format!("Open vSwitch is {facts:?}"))
}

fn a_mirror_exists_as_long_as_a_port_is_in_it(testbed: &dyn TestBed) -> CaseResult {
    start_ovs(testbed)?;
    for port in ["p0", "p1", "p2"] {
        testbed.admin().add_internal_ovs_port(BRIDGE, port)?;
    }
    let both = MirrorRole::Source { ingress: true, egress: true };
    let ingress = MirrorRole::Source { ingress: true, egress: false };
    let attach = |port: &str, role| SwitchStep::AttachMirror {
        socket: OvsSocket::default(),
        bridge: BRIDGE.to_owned(),
        mirror: "m0".to_owned(),
        port: port.to_owned(),
        role,
    };
    let detach = |port: &str, role| SwitchStep::DetachMirror {
        socket: OvsSocket::default(),
        bridge: BRIDGE.to_owned(),
        mirror: "m0".to_owned(),
        port: port.to_owned(),
        role,
    };
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    for (port, role) in [("p0", both), ("p1", ingress), ("p2", MirrorRole::Output)] {
        run_twice(testbed, &attach(port, role))?;
    }
    let observed = expect_some("the mirror", testbed.observer().ovs_mirror("m0")?)?;
    expect_eq(
        "the sources",
        &(&observed.sources, &observed.destinations),
        &(&set(&["p0", "p1"]), &set(&["p0"])),
    )?;
    expect_eq("the output", &observed.output.as_deref(), &Some("p2"))?;
    expect_reason(testbed, attach("p0", MirrorRole::Output), "MirrorInUse")?;
    expect_reason(testbed, attach("p9", both), "NoSuchPort")?;
    run_twice(testbed, &detach("p0", both))?;
    run_twice(testbed, &detach("p2", MirrorRole::Output))?;
    let observed = expect_some("the mirror", testbed.observer().ovs_mirror("m0")?)?;
    expect_eq("the sources", &(observed.sources, observed.destinations), &(set(&["p1"]), set(&[])))?;
    // The database forgets a port that is removed.
    testbed.admin().remove_ovs_port("p1")?;
    let unused = SwitchStep::RemoveUnusedMirror {
        socket: OvsSocket::default(),
        bridge: BRIDGE.to_owned(),
        mirror: "m0".to_owned(),
    };
    run_twice(testbed, &unused)?;
    expect_eq("the mirror", &testbed.observer().ovs_mirror("m0")?, &None)
}
