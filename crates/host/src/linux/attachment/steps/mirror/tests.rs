use std::thread;

use super::*;
use crate::linux::ovs::test_switch::TestSwitch;

const INGRESS: MirrorRole = MirrorRole::Source { ingress: true, egress: false };
const BOTH: MirrorRole = MirrorRole::Source { ingress: true, egress: true };

fn socket() -> OvsSocket {
    OvsSocket::default()
}

fn place(port: &str, role: MirrorRole) -> MirrorPlace<'_> {
    MirrorPlace { bridge: "br0", mirror: "m0", port, role }
}

/// Starts Open vSwitch with a bridge and some ports.
fn start(ports: &[&str]) -> TestSwitch {
    let switch = TestSwitch::started();
    switch.add_bridge("br0");
    for port in ports {
        switch.vsctl(&["add-port", "br0", port, "--", "set", "Interface", port, "type=dummy"]);
    }
    switch
}

/// Returns the names of the ports in the columns of the mirror, in the order of `ports`.
fn ports_of(switch: &TestSwitch, ports: &[&str]) -> [Vec<String>; 3] {
    ["select_src_port", "select_dst_port", "output_port"].map(|column| {
        let found = switch.vsctl(&["get", "Mirror", "m0", column]);
        let has = |port: &&&str| found.contains(&switch.vsctl(&["get", "Port", port, "_uuid"]));
        ports.iter().filter(has).map(|port| (*port).to_owned()).collect()
    })
}

fn names(switch: &TestSwitch) -> String {
    switch.vsctl(&["--bare", "--columns=name", "list", "Mirror"])
}

#[test]
fn a_mirror_lives_as_long_as_something_uses_it() {
    let ports = ["p0", "p1", "p2"];
    let switch = start(&ports);
    let root = switch.root();
    for _ in 0..2 {
        attach(root, &socket(), place("p0", INGRESS)).unwrap();
        attach(root, &socket(), place("p1", BOTH)).unwrap();
        attach(root, &socket(), place("p2", MirrorRole::Output)).unwrap();
        let [sources, destinations, output] = ports_of(&switch, &ports);
        assert_eq!(
            (sources, destinations, output),
            (vec!["p0".into(), "p1".into()], vec!["p1".into()], vec!["p2".into()])
        );
        assert_eq!(switch.vsctl(&["get", "Mirror", "m0", "external_ids:owner"]), OVS_OWNER);
    }
    let error = attach(root, &socket(), place("p0", MirrorRole::Output)).unwrap_err();
    assert_eq!(error.reason(), "MirrorInUse", "{error}");
    for _ in 0..2 {
        remove_unused(root, &socket(), "br0", "m0").unwrap();
        detach(root, &socket(), place("p1", BOTH)).unwrap();
        let [sources, destinations, output] = ports_of(&switch, &ports);
        assert_eq!((sources, destinations, output), (vec!["p0".into()], vec![], vec!["p2".into()]));
    }
    // The database removes a port that is deleted from mirrors.
    switch.vsctl(&["del-port", "br0", "p0"]);
    detach(root, &socket(), place("p0", INGRESS)).unwrap();
    assert_eq!(names(&switch), "m0");
    for _ in 0..2 {
        detach(root, &socket(), place("p2", MirrorRole::Output)).unwrap();
        assert_eq!(names(&switch), "");
        assert_eq!(switch.vsctl(&["get", "Bridge", "br0", "mirrors"]), "[]");
    }
}

#[test]
fn a_mirror_that_nothing_uses_is_removed() {
    let switch = start(&["p0"]);
    attach(switch.root(), &socket(), place("p0", BOTH)).unwrap();
    switch.vsctl(&["del-port", "br0", "p0"]);
    remove_unused(switch.root(), &socket(), "br0", "m0").unwrap();
    assert_eq!(names(&switch), "");
}

#[test]
fn mirrors_of_others_are_used_and_stay() {
    let switch = start(&["p0", "p1"]);
    let root = switch.root();
    let mirror = ["--", "--id=@m", "create", "Mirror", "name=m0", "output_vlan=7"];
    switch.vsctl(&[&["add", "Bridge", "br0", "mirrors", "@m"], &mirror[..]].concat());
    attach(root, &socket(), place("p0", INGRESS)).unwrap();
    let error = attach(root, &socket(), place("p1", MirrorRole::Output)).unwrap_err();
    assert_eq!(error.reason(), "MirrorInUse", "{error}");
    detach(root, &socket(), place("p0", INGRESS)).unwrap();
    remove_unused(root, &socket(), "br0", "m0").unwrap();
    assert_eq!(names(&switch), "m0");
    assert_eq!(switch.vsctl(&["get", "Mirror", "m0", "output_vlan", "select_src_port"]), "7\n[]");
}

#[test]
fn a_missing_port_or_bridge_is_an_error() {
    let switch = start(&["p0"]);
    switch.add_bridge("br1");
    let attach = |bridge, port| {
        let place = MirrorPlace { bridge, ..place(port, BOTH) };
        attach(switch.root(), &socket(), place).unwrap_err().to_string()
    };
    assert!(attach("br0", "p9").contains("bridge br0 has no port p9"));
    assert!(attach("br1", "p0").contains("bridge br1 has no port p0"));
    assert!(attach("br2", "p0").contains("Open vSwitch has no bridge br2"));
    assert_eq!(names(&switch), "");
    for bridge in ["br1", "br2"] {
        detach(switch.root(), &socket(), MirrorPlace { bridge, ..place("p0", BOTH) }).unwrap();
    }
}

#[test]
fn one_mirror_is_created_for_many_ports_at_once() {
    let ports: Vec<String> = (0..8).map(|number| format!("p{number}")).collect();
    let ports: Vec<&str> = ports.iter().map(String::as_str).collect();
    let switch = start(&ports);
    let root = switch.root();
    let in_parallel = |work: &(dyn Fn(MirrorPlace<'_>) + Sync)| {
        thread::scope(|scope| {
            ports.iter().for_each(|port| drop(scope.spawn(move || work(place(port, INGRESS)))))
        });
    };
    in_parallel(&|place| attach(root, &socket(), place).unwrap());
    assert_eq!((names(&switch).as_str(), ports_of(&switch, &ports)[0].len()), ("m0", ports.len()));
    in_parallel(&|place| detach(root, &socket(), place).unwrap());
    assert_eq!(names(&switch), "");
}
