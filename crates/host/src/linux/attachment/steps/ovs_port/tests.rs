use std::collections::BTreeSet;
use std::thread;

use vfleet_plan::cni::facts::{INTERFACE_KEY, NAMESPACE_KEY, OVS_OWNER, OWNER_KEY};

use super::*;
use crate::linux::ovs::test_switch::TestSwitch;

const NETNS: &str = "/run/netns/pod";

fn socket() -> OvsSocket {
    OvsSocket::default()
}

fn ids(interface: &str) -> BTreeMap<String, String> {
    let ids = [(OWNER_KEY, OVS_OWNER), (NAMESPACE_KEY, NETNS), (INTERFACE_KEY, interface)];
    ids.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

/// Returns a port that needs no interface of the kernel.
fn port(name: &str, vlans: OvsVlans) -> OvsPort {
    let interface_type = Some("dummy".to_owned());
    OvsPort { name: name.to_owned(), vlans, external_ids: ids("net1"), interface_type, ..OvsPort::default() }
}

#[track_caller]
fn refusal(result: Result<(), HostError>) -> (&'static str, String) {
    let error = result.unwrap_err();
    (error.reason(), error.to_string())
}

#[test]
fn a_port_is_added_once_changed_and_removed() {
    let switch = TestSwitch::started();
    let root = switch.root();
    switch.add_bridge("br0");
    let before = switch.vsctl(&["list", "Port"]);
    // The name is no valid identifier of OVSDB.
    let name = "veth-0.a";
    let columns = |table, columns: &[&str]| switch.vsctl(&[&["get", table, name], columns].concat());
    let vlans = ["vlan_mode", "tag", "trunks"];
    let trunk = OvsVlans::Trunk([10, 11, 12].into());
    for (vlans_of_port, expected) in [
        (OvsVlans::Access(100), "access\n100\n[]"),
        (trunk, "trunk\n[]\n[10, 11, 12]"),
        // One member is encoded as this member.
        (OvsVlans::Trunk([7].into()), "trunk\n[]\n[7]"),
        (OvsVlans::default(), "trunk\n[]\n[]"),
    ] {
        for _ in 0..2 {
            add(root, &socket(), "br0", &port(name, vlans_of_port.clone())).unwrap();
            assert_eq!(columns("Port", &vlans), expected);
        }
    }
    assert_eq!(switch.vsctl(&["port-to-br", name]), "br0");
    let text = columns("Port", &["external_ids"]);
    assert_eq!(text, format!("{{contIface=net1, contNetns=\"{NETNS}\", owner={OVS_OWNER}}}"));
    let full = OvsPort {
        interface_ids: [("iface-id".to_owned(), "x".to_owned())].into(),
        ofport_request: Some(77),
        ..port(name, OvsVlans::Access(5))
    };
    add(root, &socket(), "br0", &full).unwrap();
    assert_eq!(columns("Interface", &["external_ids:iface-id", "ofport_request", "ofport"]), "x\n77\n77");
    assert_eq!(columns("Interface", &["type"]), "dummy");

    remove(root, &socket(), name, &ids("net2")).unwrap();
    assert_eq!(switch.vsctl(&["list-ports", "br0"]), name, "a port of another attachment stays");
    for _ in 0..2 {
        remove(root, &socket(), name, &ids("net1")).unwrap();
        assert_eq!(switch.vsctl(&["list", "Port"]), before);
        assert_eq!(switch.vsctl(&["--columns=name", "--bare", "list", "Interface"]), "br0");
    }
}

#[test]
fn a_port_that_ovs_vswitchd_refuses_is_an_error_and_can_be_removed() {
    let switch = TestSwitch::started();
    let root = switch.root();
    switch.add_bridge("br0");
    let missing = OvsPort { interface_type: None, ..port("no-such-if", OvsVlans::default()) };
    for _ in 0..2 {
        let (reason, text) = refusal(add(root, &socket(), "br0", &missing));
        assert_eq!(reason, "PortFailed");
        assert!(text.contains("could not open network device no-such-if (No such device)"), "{text}");
    }
    remove(root, &socket(), "no-such-if", &ids("net1")).unwrap();
    assert_eq!(switch.vsctl(&["list-ports", "br0"]), "");
    // A bridge that ovs-vswitchd could not create reports no errors of its ports.
    switch.vsctl(&["--no-wait", "add-br", "bad", "--", "set", "Bridge", "bad", "datapath_type=nonsense"]);
    let (reason, text) = refusal(add(root, &socket(), "bad", &port("p0", OvsVlans::default())));
    assert!(reason == "PortFailed" && text.contains("could not create the bridge"), "{text}");
    let (reason, text) = refusal(add(root, &socket(), "br9", &port("p1", OvsVlans::default())));
    assert!(reason == "BridgeNotFound" && text.contains("Open vSwitch has no bridge br9"), "{text}");
}

#[test]
fn names_of_others_are_left_alone() {
    let switch = TestSwitch::started();
    let root = switch.root();
    switch.add_bridge("br0");
    switch.add_bridge("br1");
    switch.vsctl(&["add-port", "br0", "p0", "--", "set", "Interface", "p0", "type=dummy"]);
    switch.vsctl(&[
        "add-bond",
        "br0",
        "bond0",
        "p1",
        "p2",
        "--",
        "set",
        "Interface",
        "p1",
        "type=dummy",
        "--",
        "set",
        "Interface",
        "p2",
        "type=dummy",
    ]);
    let before = switch.vsctl(&["list", "Port"]);
    for (bridge, name, found) in [
        ("br0", "p0", "a port of bridge br0"),
        ("br1", "p0", "a port of bridge br0"),
        ("br0", "p1", "an interface of a bond"),
        ("br0", "bond0", "a port of bridge br0"),
    ] {
        let (reason, text) = refusal(add(root, &socket(), bridge, &port(name, OvsVlans::default())));
        assert!(reason == "PortNameTaken" && text.contains(found), "{text}");
        remove(root, &socket(), name, &ids("net1")).unwrap();
    }
    assert_eq!(switch.vsctl(&["list", "Port"]), before);
    // The port of this attachment, on another bridge.
    add(root, &socket(), "br0", &port("p3", OvsVlans::default())).unwrap();
    assert_eq!(refusal(add(root, &socket(), "br1", &port("p3", OvsVlans::default()))).0, "PortNameTaken");
}

#[test]
fn without_ovs_vswitchd_ports_are_not_added_but_removed() {
    let mut switch = TestSwitch::started();
    switch.add_bridge("br0");
    let root = switch.impatient_root();
    add(&root, &socket(), "br0", &port("p0", OvsVlans::default())).unwrap();
    switch.kill_switch();
    assert_eq!(refusal(add(&root, &socket(), "br0", &port("p1", OvsVlans::default()))).0, "OvsNotFollowing");
    for name in ["p0", "p1"] {
        remove(&root, &socket(), name, &ids("net1")).unwrap();
    }
    // ovs-vsctl waits for nobody.
    assert_eq!(switch.vsctl(&["--no-wait", "list-ports", "br0"]), "");
    switch.kill_server();
    assert_eq!(refusal(remove(&root, &socket(), "p0", &ids("net1"))).0, "OvsUnreachable");
}

#[test]
fn many_ports_are_added_and_removed_at_once() {
    let switch = TestSwitch::started();
    let root = switch.root();
    switch.add_bridge("br0");
    let names: BTreeSet<String> = (0..16).map(|number| format!("p{number}")).collect();
    let in_parallel = |work: &(dyn Fn(&str) + Sync)| {
        thread::scope(|scope| names.iter().for_each(|name| drop(scope.spawn(move || work(name)))));
    };
    in_parallel(&|name| add(root, &socket(), "br0", &port(name, OvsVlans::Access(1))).unwrap());
    let found: BTreeSet<String> = switch.vsctl(&["list-ports", "br0"]).lines().map(str::to_owned).collect();
    assert_eq!(found, names);
    in_parallel(&|name| remove(root, &socket(), name, &ids("net1")).unwrap());
    assert_eq!(switch.vsctl(&["list-ports", "br0"]), "");
}

#[test]
fn a_server_is_reached_through_tcp() {
    let mut switch = TestSwitch::started();
    let root = switch.root().clone();
    switch.add_bridge("br0");
    let tcp = OvsSocket::Tcp("127.0.0.1".to_owned(), switch.tcp_port());
    add(&root, &tcp, "br0", &port("p0", OvsVlans::Access(3))).unwrap();
    assert_eq!(switch.vsctl(&["get", "Port", "p0", "tag"]), "3");
    remove(&root, &tcp, "p0", &ids("net1")).unwrap();
    switch.kill_server();
    let (reason, text) = refusal(remove(&root, &tcp, "p0", &ids("net1")));
    assert!(reason == "OvsUnreachable" && text.contains(&tcp.to_string()), "{text}");
}

#[test]
fn a_link_is_awaited() {
    let switch = TestSwitch::started();
    let root = switch.root();
    switch.add_bridge("br0");
    add(root, &socket(), "br0", &port("p0", OvsVlans::default())).unwrap();
    let long = Duration::from_secs(20);
    await_link(root, &socket(), "p0", long).unwrap();
    switch.appctl(&["netdev-dummy/set-admin-state", "p0", "down"]);
    switch.vsctl(&["wait-until", "Interface", "p0", "link_state=down"]);
    let (reason, text) = refusal(await_link(root, &socket(), "p0", Duration::from_millis(50)));
    assert!(reason == "LinkDown" && text.contains("of p0 within 50ms"), "{text}");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| await_link(root, &socket(), "p0", long));
        switch.appctl(&["netdev-dummy/set-admin-state", "p0", "up"]);
        waiting.join().unwrap().unwrap();
    });
    assert_eq!(refusal(await_link(root, &socket(), "none", Duration::from_millis(50))).0, "LinkDown");
}
