use std::collections::BTreeSet;

use vfleet_plan::cni::facts::{
    HolderNamespace, NAMESPACE_KEY, OVS_OWNER, OWNER_KEY, OvsSocket, OvsSwitchFacts,
};

use super::*;
use crate::linux::ovs::test_switch::TestSwitch;
use crate::linux::test_namespace::{iproute, run_in_namespace, shell};
use crate::linux::test_tree::TestTree;

const PF: &str = "0000:01:00.0";
const VF: &str = "0000:01:10.0";

/// Returns the tree of a host with a VF whose PF has the interface `pf`.
fn tree() -> TestTree {
    let tree = TestTree::new();
    tree.add_card(PF, "0x15b3\n");
    let index = iproute("pf").unwrap()["ifindex"].to_string();
    tree.write(&format!("/sys/bus/pci/devices/{PF}/net/pf/ifindex"), &index);
    let link = |target: &str, path: &str| std::os::unix::fs::symlink(target, tree.path(path)).unwrap();
    std::fs::create_dir_all(tree.path(&format!("/sys/bus/pci/devices/{VF}"))).unwrap();
    link(&format!("../{VF}"), &format!("/sys/bus/pci/devices/{PF}/virtfn0"));
    link(&format!("../{PF}"), &format!("/sys/bus/pci/devices/{VF}/physfn"));
    tree
}

fn query() -> SwitchQuery {
    SwitchQuery { device: Some(VF.parse().unwrap()), with_linux_bridges: true, ..SwitchQuery::default() }
}

#[test]
#[ignore = "needs the privilege to create network namespaces: for the lab"]
fn the_uplink_of_a_vf_is_read_with_its_bridge() {
    run_in_namespace(|| {
        shell(
            "ip link add pf address 02:00:00:00:00:01 type veth peer name wire; ip link add br0 type bridge; \
             ip link add cni0 type bridge; ip link set pf master br0; ip link set pf up",
        );
        let tree = tree();
        let facts = read(tree.root(), &query()).unwrap();
        let port = facts.uplink.as_ref().unwrap().port();
        assert_eq!((port.name.as_str(), port.kind.as_str(), port.is_up), ("pf", "veth", true));
        let master = Master { name: "br0".to_owned(), kind: "bridge".to_owned() };
        assert_eq!(
            (port.master.as_ref(), port.mac),
            (Some(&master), Some("02:00:00:00:00:01".parse().unwrap()))
        );
        let bridges: Vec<_> = facts.linux_bridges.iter().map(|bridge| bridge.name.as_str()).collect();
        assert_eq!((bridges, facts.is_switchdev, &facts.representor), (vec!["br0", "cni0"], false, &None));
        assert!(facts.interfaces.is_empty() && facts.ovs.is_none() && facts.device_info.is_none());
        // Nothing that is not asked for.
        let interfaces = BTreeSet::from(["wire".to_owned(), "none".to_owned()]);
        let facts = read(tree.root(), &SwitchQuery { interfaces, ..SwitchQuery::default() }).unwrap();
        assert_eq!((facts.interfaces.len(), facts.interface("wire").unwrap().mtu), (1, 1500));
        assert!(facts.uplink.is_none() && facts.linux_bridges.is_empty());
    });
}

/// The lab's kernel has bonds and VLAN filtering.
#[test]
#[ignore = "needs the privilege to create network namespaces: for the lab"]
fn a_bond_of_pfs_is_an_uplink_with_vlans() {
    run_in_namespace(|| {
        shell("ip link add pf type veth peer name wire; ip link add other type veth peer name wire2");
        if shell("ip link add bond0 type bond mode 1 2>/dev/null && echo yes || echo no").trim() == "no" {
            println!("skipped: this kernel has no bonds");
            return;
        }
        shell(
            "ip link set pf master bond0; ip link set other master bond0; \
             ip link add br0 type bridge vlan_filtering 1; ip link set bond0 master br0; \
             bridge vlan add dev bond0 vid 5",
        );
        let facts = read(tree().root(), &query()).unwrap();
        let uplink = facts.uplink.unwrap();
        let bond = uplink.bond.as_ref().unwrap();
        assert_eq!(
            (uplink.pf.master.as_ref().unwrap().kind.as_str(), bond.port.kind.as_str()),
            ("bond", "bond")
        );
        assert_eq!(
            (bond.members.as_slice(), uplink.port()),
            (&["other".to_owned(), "pf".to_owned()][..], &bond.port)
        );
        assert_eq!(bond.port.master.as_ref().unwrap().name, "br0");
        assert_eq!(bond.port.vlans, [BridgeVlan::native(1), BridgeVlan::tagged(5)]);
        assert!(facts.linux_bridges[0].filters_vlans);
    });
}

fn read_ovs(root: &HostRoot, socket: OvsSocket) -> OvsSwitchFacts {
    let query = SwitchQuery { ovs: Some(socket), ..SwitchQuery::default() };
    read(root, &query).unwrap().ovs.unwrap()
}

#[test]
fn open_vswitch_is_read_with_the_namespaces_of_ports_in_error() {
    let mut switch = TestSwitch::started();
    let root = switch.impatient_root();
    switch.add_bridge("br1");
    switch.add_bridge("br0");
    let owner = format!("external_ids:{OWNER_KEY}={OVS_OWNER}");
    let netns = |path: &str| format!("external_ids:{NAMESPACE_KEY}=\"{path}\"");
    let add = |name: &str, kind: &str, path: &str| {
        let kind = format!("type={kind}");
        let port = ["--", "set", "Port", name, &owner, &netns(path), "tag=5"];
        switch
            .vsctl(&[&["add-port", "br0", name, "--", "set", "Interface", name, &kind], &port[..]].concat());
    };
    add("good", "dummy", "/run/netns/none");
    add("gone", "nonsense", "/run/netns/none");
    add("alive", "nonsense", "/proc/self/ns/net");
    let proc = root.at("/proc/self/ns");
    std::fs::create_dir_all(&proc).unwrap();
    std::os::unix::fs::symlink("/proc/self/ns/net", proc.join("net")).unwrap();
    let OvsSwitchFacts::Running { bridges } = read_ovs(&root, OvsSocket::default()) else { panic!() };
    assert_eq!([&*bridges[0].name, &*bridges[1].name], ["br0", "br1"]);
    let port = |name: &str| bridges[0].ports.iter().find(|port| port.name == name).unwrap();
    let states = ["good", "gone", "alive", "br0"].map(|name| port(name).namespace);
    assert_eq!(states, [None, Some(HolderNamespace::Gone), Some(HolderNamespace::Alive), None]);
    let interface = &port("gone").interfaces[0];
    assert!(interface.error.as_ref().unwrap().contains("gone") && interface.ofport == Some(-1));
    assert!(port("good").is_owned() && port("good").tag == Some(5) && !port("br0").is_owned());
    assert_eq!(port("br0").interfaces[0].type_, "internal");
    switch.kill_server();
    for socket in [OvsSocket::default(), OvsSocket::Unix("/run/none".to_owned())] {
        let down = read_ovs(&root, socket);
        assert!(
            matches!(&down, OvsSwitchFacts::Down { reason } if reason.contains("Open vSwitch")),
            "{down:?}"
        );
    }
}

#[test]
fn a_device_info_file_is_read() {
    let tree = TestTree::new();
    let path = "/run/devinfo/x-device.json";
    let read = || {
        let query = SwitchQuery { device_info: Some(path.to_owned()), ..SwitchQuery::default() };
        super::read(tree.root(), &query).unwrap().device_info.unwrap()
    };
    assert_eq!(read(), FileFacts::Missing { path: path.to_owned() });
    tree.write(path, "{}");
    assert_eq!(read(), FileFacts::Present { path: path.to_owned(), content: "{}".to_owned() });
    tree.write(path, &"x".repeat((1 << 20) + 1));
    assert!(matches!(read(), FileFacts::Unreadable { .. }));
}
