//! Protection of interfaces that the node uses.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::net::if_::if_nametoindex;
use nix::sched::{CloneFlags, unshare};
use vfleet_host::{Host, LinuxHost};
use vfleet_plan::{HostFacts, HostUse, Plan, plan_node};

use crate::tree::{PF, Tree, write};

const VF: &str = "0000:01:10.1";

#[test]
fn the_interface_with_the_address_of_the_node_is_in_use() {
    let tree = Tree::new(0);
    tree.add_interface("eth9", "0\n", "p0\n");
    let of = |host: LinuxHost| host.facts().unwrap().pfs[0].link.clone().unwrap().host_use;
    assert_eq!(of(tree.host()), None);
    let address = "127.0.0.1".parse().unwrap();
    assert_eq!(of(tree.host().with_node_addresses(vec![address])), Some(HostUse::NodeAddress));
}

/// Uses interfaces of a real kernel in a separate network namespace.
#[test]
fn a_vf_with_the_address_of_the_node_is_never_removed() {
    // In a separate thread, because other tests must not run in that namespace.
    let test = thread::spawn(|| match unshare(CloneFlags::CLONE_NEWNET) {
        Ok(()) => protects_a_vf(),
        Err(error) => {
            assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "no namespace: {error}");
            eprintln!("skipped: a separate network namespace needs root: {error}");
        }
    });
    test.join().unwrap();
}

fn protects_a_vf() {
    ip("link add pf0 type veth peer name vf1");
    ip("link set vf1 up");
    let tree = Tree::new(2);
    let interface = tree.add_interface("pf0", "0\n", "p0\n");
    write(&interface.join("ifindex"), &if_nametoindex("pf0").unwrap().to_string());
    let vf = tree.device(VF);
    write(&vf.join("net/vf1/ifindex"), &if_nametoindex("vf1").unwrap().to_string());
    fs::remove_file(vf.join("driver")).unwrap();
    symlink("../../../bus/pci/drivers/igbvf", vf.join("driver")).unwrap();

    let node: IpAddr = "192.0.2.7".parse().unwrap();
    let host = tree.host().with_node_addresses(vec![node]);
    let (sender, events) = mpsc::channel();
    let callback = Box::new(move || {
        let _ = sender.send(());
    });
    let _watch = host.on_change(callback).unwrap();
    assert!(removes_vfs(&more_vfs(&host.facts().unwrap())));

    ip("address add 192.0.2.7/24 dev vf1");
    events.recv_timeout(Duration::from_secs(10)).unwrap();
    let facts = host.facts().unwrap();
    assert_eq!(facts.pfs[0].vfs[1].link.as_ref().unwrap().host_use, Some(HostUse::NodeAddress));
    let plan = more_vfs(&facts);
    assert!(!removes_vfs(&plan), "{plan:?}");
    let text = plan.problems[0].to_string();
    assert!(text.contains("the node uses VF 1 for the node's own address"), "{text}");
    // An address that is not known as that of the node protects the VF too.
    let unknown = tree.host().facts().unwrap();
    assert_eq!(of_vf(&unknown), Some(HostUse::Address));
    assert!(!removes_vfs(&more_vfs(&unknown)));

    ip("address del 192.0.2.7/24 dev vf1");
    events.recv_timeout(Duration::from_secs(10)).unwrap();
    let facts = host.facts().unwrap();
    assert_eq!(of_vf(&facts), None);
    assert!(!removes_vfs(&more_vfs(&facts)), "still protected");
    // Another process, which did not observe the address.
    let text = more_vfs(&tree.host().facts().unwrap()).problems[0].to_string();
    assert!(text.contains("not observed since"), "{text}");
    // A link-local address is no use.
    ip("address add 169.254.0.7/16 dev vf1 scope link");
    let without_protection = tree.host().with_protection(Duration::ZERO);
    assert!(removes_vfs(&more_vfs(&without_protection.facts().unwrap())), "protection has ended");
    protects_next_hops(&tree);
    protects_storage(&tree);
}

/// Tests a default route in another table through a group of next hops, with and without interfaces in the route.
fn protects_next_hops(tree: &Tree) {
    ip("address add 198.51.100.7/24 dev pf0");
    ip("link set pf0 up");
    let of_pf = || tree.host().facts().unwrap().pfs[0].link.as_ref().unwrap().host_use;
    assert_eq!(of_pf(), Some(HostUse::Address));
    ip("nexthop add id 1 via 198.51.100.1 dev pf0");
    ip("nexthop add id 2 group 1");
    ip("route add default nhid 2 table 100");
    for compat_mode in ["1", "0"] {
        fs::write("/proc/sys/net/ipv4/nexthop_compat_mode", compat_mode).unwrap();
        assert_eq!(of_pf(), Some(HostUse::DefaultRoute), "{compat_mode}");
    }
    ip("route del default nhid 2 table 100");
}

/// Tests a storage session through a VF without an address, and a session without a route.
fn protects_storage(tree: &Tree) {
    // The two interfaces are a veth pair: a use of one is a use of the other.
    ip("address flush dev vf1");
    ip("address flush dev pf0");
    let host = || tree.host().with_protection(Duration::ZERO);
    host().facts().unwrap();
    assert!(removes_vfs(&more_vfs(&host().facts().unwrap())));
    ip("route add 203.0.113.0/24 dev vf1");
    let controller = tree.root.path().join("sys/class/nvme/nvme0");
    write(&controller.join("transport"), "tcp\n");
    write(&controller.join("address"), "traddr=203.0.113.9,trsvcid=4420\n");
    let facts = host().facts().unwrap();
    assert_eq!(of_vf(&facts), Some(HostUse::Storage));
    assert!(!removes_vfs(&more_vfs(&facts)));
    ip("route del 203.0.113.0/24 dev vf1");
    assert!(!removes_vfs(&more_vfs(&host().facts().unwrap())), "an unknown use is not an absent one");
    fs::remove_dir_all(controller).unwrap();
    host().facts().unwrap();
    assert!(removes_vfs(&more_vfs(&host().facts().unwrap())));
}

fn of_vf(facts: &HostFacts) -> Option<HostUse> {
    facts.pfs[0].vfs[1].link.as_ref().unwrap().host_use
}

/// Plans three VFs instead of two.
fn more_vfs(facts: &HostFacts) -> Plan {
    let desired = serde_json::json!({"interfaces": [{"pciAddress": PF, "name": "pf0", "numVfs": 3}]});
    plan_node(&serde_json::from_value(desired).unwrap(), facts)
}

fn removes_vfs(plan: &Plan) -> bool {
    plan.steps.iter().any(|planned| planned.step.to_string() == format!("set {PF} numvfs 0"))
}

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status().unwrap();
    assert!(status.success(), "ip {arguments}");
}
