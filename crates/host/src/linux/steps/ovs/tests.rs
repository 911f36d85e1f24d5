use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;

use nix::sys::signal::Signal;
use vfleet_api::PciAddress;
use vfleet_api::keys::OVS_UPLINK;
use vfleet_plan::{MapChange, OvsBridgeChange, OvsUplinkChange, Step};

use super::*;
use crate::linux::ovs::test_switch::TestSwitch;
use crate::linux::ovsdb::MessageBuffer;
use crate::linux::steps::execute;

const BRIDGE: &str = "br-0000_01_00.0";

fn pf() -> PciAddress {
    "0000:01:00.0".parse().unwrap()
}

fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn set(entries: &[(&str, &str)]) -> MapChange {
    MapChange { set: map(entries), ..MapChange::default() }
}

/// Returns a bridge of dummy interfaces.
fn change() -> OvsBridgeChange {
    OvsBridgeChange {
        name: BRIDGE.to_owned(),
        datapath_type: "dummy".to_owned(),
        fail_mode: Some("secure".to_owned()),
        external_ids: set(&[(OVS_UPLINK, "0000:01:00.0"), ("a", "1")]),
        other_config: set(&[("mac-aging-time", "20")]),
        uplink: OvsUplinkChange {
            name: "p0".to_owned(),
            port_external_ids: set(&[(OVS_UPLINK, "0000:01:00.0")]),
            type_: "dummy".to_owned(),
            options: set(&[("o", "1")]),
            external_ids: set(&[("i", "1")]),
            other_config: set(&[("c", "1")]),
            mtu_request: Some(1600),
        },
        stale_ports: Vec::new(),
    }
}

fn read(root: &HostRoot) -> rows::Rows {
    OvsStep::connect(root, "read").unwrap().read().unwrap()
}

fn found(root: &HostRoot) -> Option<OvsBridgeFacts> {
    read(root).database.bridge(BRIDGE).cloned()
}

fn set_step(bridge: OvsBridgeChange, observed: Option<OvsBridgeFacts>) -> Step {
    Step::SetOvsBridge { pf: pf(), bridge, observed }
}

fn create(root: &HostRoot) -> OvsBridgeFacts {
    execute(root, &set_step(change(), None)).unwrap();
    found(root).unwrap()
}

#[track_caller]
fn reason(root: &HostRoot, step: &Step) -> (&'static str, String) {
    let error = execute(root, step).unwrap_err();
    (error.reason(), crate::format_error_chain(&error))
}

#[test]
fn a_bridge_is_created_changed_in_place_and_removed() {
    let switch = TestSwitch::started();
    let root = switch.root();
    switch.vsctl(&["add-br", "theirs", "--", "set", "Bridge", "theirs", "datapath_type=dummy"]);
    let created = create(root);
    assert_eq!(switch.vsctl(&["list-ports", BRIDGE]), "p0");
    assert_eq!(switch.vsctl(&["get", "Interface", BRIDGE, "type"]), "internal");
    assert_eq!(switch.vsctl(&["get", "Interface", "p0", "mtu_request"]), "1600");
    assert_ne!(switch.vsctl(&["get", "Interface", "p0", "ofport"]), "-1");
    let number = read(root).root.unwrap().configuration;
    execute(root, &set_step(change(), None)).unwrap();
    assert_eq!(read(root).root.unwrap().configuration, number, "repeated without a change");

    // Foreign keys and ports survive a change, removed keys are gone.
    switch.vsctl(&["set", "Bridge", BRIDGE, "external_ids:theirs=1", "other_config:theirs=1"]);
    switch.vsctl(&["set", "Interface", "p0", "options:theirs=1", "external_ids:theirs=1"]);
    switch.vsctl(&["add-port", BRIDGE, "pod1", "--", "set", "Interface", "pod1", "type=dummy"]);
    let mut other = change();
    other.fail_mode = None;
    other.external_ids =
        MapChange { remove: ["a".to_owned()].into(), ..set(&[(OVS_UPLINK, "0000:01:00.0"), ("b", "2")]) };
    other.uplink.options = set(&[("o", "2")]);
    other.uplink.mtu_request = None;
    assert_eq!(reason(root, &set_step(other.clone(), Some(created.clone()))).0, "BridgeChanged");
    execute(root, &set_step(other.clone(), found(root))).unwrap();
    let changed = found(root).unwrap();
    assert_eq!(changed.uuid, created.uuid);
    assert_eq!(changed.external_ids, map(&[(OVS_UPLINK, "0000:01:00.0"), ("b", "2"), ("theirs", "1")]));
    assert_eq!(changed.other_config, map(&[("mac-aging-time", "20"), ("theirs", "1")]));
    assert_eq!(switch.vsctl(&["get", "Bridge", BRIDGE, "fail_mode"]), "[]");
    assert_eq!(switch.vsctl(&["get", "Interface", "p0", "options"]), "{o=\"2\", theirs=\"1\"}");
    assert_eq!(switch.vsctl(&["list-ports", BRIDGE]), "p0\npod1");

    // The uplink goes, the port of a pod stays.
    let remove_port = Step::RemoveOvsPort { pf: pf(), port: "p0".to_owned(), observed: changed };
    execute(root, &remove_port).unwrap();
    execute(root, &remove_port).unwrap();
    assert_eq!(switch.vsctl(&["list-ports", BRIDGE]), "pod1");
    let without_uplink = found(root).unwrap();
    execute(root, &set_step(other.clone(), Some(without_uplink.clone()))).unwrap();
    assert_eq!(switch.vsctl(&["list-ports", BRIDGE]), "p0\npod1");

    // A port that was added meanwhile keeps the bridge.
    let removed = Step::RemoveOvsBridge { pf: pf(), observed: without_uplink };
    assert_eq!(reason(root, &removed).0, "BridgeChanged");
    switch.vsctl(&["del-port", "pod1"]);
    let removed = Step::RemoveOvsBridge { pf: pf(), observed: found(root).unwrap() };
    execute(root, &removed).unwrap();
    execute(root, &removed).unwrap();
    assert_eq!(switch.vsctl(&["list-br"]), "theirs");
    assert_eq!(
        switch.vsctl(&["--columns=name", "--format=csv", "--no-headings", "list", "Interface"]),
        "theirs"
    );

    execute(root, &Step::EnableOvsOffload).unwrap();
    execute(root, &Step::EnableOvsOffload).unwrap();
    assert_eq!(switch.vsctl(&["get", "Open_vSwitch", ".", "other_config:hw-offload"]), "\"true\"");
}

/// A CNI plugin attaches pods all the time.
#[test]
fn a_change_depends_on_the_bridge_and_its_uplink_and_not_on_ports_of_pods() {
    let switch = TestSwitch::started();
    let root = switch.root();
    let created = create(root);
    let other = OvsBridgeChange { fail_mode: None, ..change() };
    switch.vsctl(&["add-port", BRIDGE, "pod1", "--", "set", "Interface", "pod1", "type=dummy"]);
    execute(root, &set_step(other.clone(), Some(created.clone()))).unwrap();
    assert_eq!(switch.vsctl(&["list-ports", BRIDGE]), "p0\npod1");

    // The same after the facts were read, in the transaction itself.
    let assertion = |observed: &OvsBridgeFacts| {
        let mut step = OvsStep::connect(root, "assert").unwrap();
        let rows = step.read().unwrap();
        let mut transaction = Transaction::new(rows.root.as_ref(), "assert");
        change::assert_decisive(&mut transaction, &other, observed);
        transaction.execute(&mut step.client, "assert").map_err(|error| error.reason())
    };
    let before = found(root).unwrap();
    switch.vsctl(&["add-port", BRIDGE, "pod2", "--", "set", "Interface", "pod2", "type=dummy"]);
    switch.vsctl(&["set", "Interface", BRIDGE, "external_ids:theirs=1"]);
    assert!(assertion(&before).is_ok());
    let changes: [&[&str]; 4] = [
        &["set", "Interface", "p0", "options:theirs=1"],
        &["set", "Port", "p0", "external_ids:theirs=1"],
        &["set", "Bridge", BRIDGE, "external_ids:theirs=1"],
        &["del-port", "p0"],
    ];
    for change in changes {
        let before = found(root).unwrap();
        switch.vsctl(change);
        assert_eq!(assertion(&before), Err("OvsChanged"), "{change:?}");
        assert_eq!(reason(root, &set_step(self::change(), Some(before))).0, "BridgeChanged", "{change:?}");
    }
}

/// The server executes the transaction and dies, so that nobody receives the answer.
#[test]
fn a_step_without_an_answer_is_done_once() {
    let switch = TestSwitch::started();
    let proxied = switch.root().clone().with_ovsdb_socket("/run/openvswitch/proxy.sock".to_owned());
    let proxy = UnixListener::bind(switch.socket().with_file_name("proxy.sock")).unwrap();
    let server = switch.socket();
    let forwarding = thread::spawn(move || {
        let (mut client, _) = proxy.accept().unwrap();
        let mut server = UnixStream::connect(server).unwrap();
        loop {
            let request = receive(&mut client);
            server.write_all(request.to_string().as_bytes()).unwrap();
            let answer = receive(&mut server);
            if request.to_string().contains("\"insert\"") {
                return;
            }
            client.write_all(answer.to_string().as_bytes()).unwrap();
        }
    });
    let step = set_step(change(), None);
    assert_eq!(reason(&proxied, &step).0, "OvsUnreachable");
    forwarding.join().unwrap();
    let created = read(switch.root());
    execute(switch.root(), &step).unwrap();
    assert_eq!(created.database.bridges.len(), 1);
    let repeated = read(switch.root());
    assert_eq!(repeated.root.unwrap().configuration.next, created.root.unwrap().configuration.next);
    assert_eq!(repeated.database.bridges[0].uuid, created.database.bridges[0].uuid);
}

/// Receives a message.
fn receive(stream: &mut UnixStream) -> serde_json::Value {
    let (mut buffer, mut chunk) = (MessageBuffer::default(), [0; 4096]);
    loop {
        if let Some(message) = buffer.next().unwrap() {
            return message;
        }
        let length = stream.read(&mut chunk).unwrap();
        buffer.push(&chunk[..length]);
    }
}

#[test]
fn an_uplink_with_a_stale_name_is_replaced() {
    let switch = TestSwitch::started();
    let root = switch.root();
    let created = create(root);
    let mut renamed = change();
    renamed.uplink.name = "p1".to_owned();
    renamed.stale_ports = vec!["p0".to_owned()];
    execute(root, &set_step(renamed, Some(created))).unwrap();
    assert_eq!(switch.vsctl(&["list-ports", BRIDGE]), "p1");
    switch.vsctl(&["del-port", BRIDGE, "p1"]);
    execute(root, &set_step(change(), found(root))).unwrap();
    assert_eq!(switch.vsctl(&["list-ports", BRIDGE]), "p0");
}

#[test]
fn refusals_name_the_bridge_or_the_interface() {
    let switch = TestSwitch::started();
    let root = switch.root();
    switch.vsctl(&["add-br", BRIDGE, "--", "set", "Bridge", BRIDGE, "datapath_type=dummy"]);
    let theirs = found(root);
    let (foreign, text) = reason(root, &set_step(change(), None));
    assert!(foreign == "BridgeNotOurs" && text.contains(BRIDGE), "{text}");
    assert_eq!(found(root), theirs);
    switch.vsctl(&["del-br", BRIDGE]);

    let mut wrong = change();
    wrong.fail_mode = Some("wrong".to_owned());
    let (refused, text) = reason(root, &set_step(wrong, None));
    assert!(refused == "OvsRefused" && text.contains("wrong") && text.contains(BRIDGE), "{text}");
    assert_eq!(found(root), None);

    let mut unknown = change();
    unknown.uplink.type_ = "dpdkx".to_owned();
    let (failed, text) = reason(root, &set_step(unknown, None));
    assert!(failed == "UplinkFailed" && text.contains("p0") && text.contains("dpdkx"), "{text}");
    // The type is corrected in place.
    execute(root, &set_step(change(), found(root))).unwrap();
    execute(root, &Step::RemoveOvsBridge { pf: pf(), observed: found(root).unwrap() }).unwrap();

    let mut unknown = change();
    unknown.datapath_type = "nonsense".to_owned();
    for _ in 0..2 {
        let (failed, text) = reason(root, &set_step(unknown.clone(), None));
        assert!(failed == "DatapathFailed" && text.contains(BRIDGE) && text.contains("nonsense"), "{text}");
    }
}

#[test]
fn a_dead_open_vswitch_is_an_error_and_the_step_can_be_repeated() {
    let mut switch = TestSwitch::started();
    let (patient, root) = (switch.root().clone(), switch.impatient_root());
    let step = set_step(change(), None);
    switch.signal_switch(Signal::SIGSTOP);
    assert_eq!(reason(&root, &step).0, "OvsNotFollowing");
    assert_eq!(reason(&root, &step).0, "OvsNotFollowing", "the change is there, but not applied");
    switch.signal_switch(Signal::SIGCONT);
    execute(&patient, &step).unwrap();

    switch.signal_server(Signal::SIGSTOP);
    assert_eq!(reason(&root, &step).0, "OvsTimeout");
    switch.signal_server(Signal::SIGCONT);
    execute(&patient, &step).unwrap();

    // Without ovs-vswitchd the setting is only stored.
    switch.kill_switch();
    execute(&patient, &Step::EnableOvsOffload).unwrap();

    switch.kill_server();
    assert_eq!(reason(&root, &step).0, "OvsUnreachable");
    std::fs::remove_file(switch.socket()).unwrap();
    assert_eq!(reason(&root, &step).0, "OvsNotRunning");

    // The emptied database has no root row.
    switch.create_database();
    switch.start_server();
    assert_eq!(found(&patient), None);
    let (not_applied, _) = reason(&root, &step);
    assert_eq!(not_applied, "OvsNotFollowing");
    switch.start_switch();
    execute(&patient, &step).unwrap();
    assert_eq!(switch.vsctl(&["list-ports", BRIDGE]), "p0");
}
