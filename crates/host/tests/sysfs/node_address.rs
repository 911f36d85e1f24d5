//! The address that the cluster knows the node by.

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
fn the_interface_with_the_nodes_address_is_in_use() {
    let tree = Tree::new(0);
    tree.add_interface("eth9", "0\n", "p0\n");
    let of = |host: LinuxHost| host.facts().unwrap().pfs[0].link.clone().unwrap().host_use;
    assert_eq!(of(tree.host()), None);
    let address = "127.0.0.1".parse().unwrap();
    assert_eq!(of(tree.host().with_node_addresses(vec![address])), Some(HostUse::NodeAddress));
}

/// On interfaces of a real kernel, in a network namespace of their own.
#[test]
fn a_vf_with_the_nodes_address_is_never_taken_away() {
    // A thread of its own: no other test shall be in that namespace.
    let test = thread::spawn(|| match unshare(CloneFlags::CLONE_NEWNET) {
        Ok(()) => protects_a_vf(),
        Err(error) => {
            assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "no namespace: {error}");
            eprintln!("skipped: a network namespace of its own needs root: {error}");
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
    let (sender, woken) = mpsc::channel();
    let wake = Box::new(move || {
        let _ = sender.send(());
    });
    let _watch = host.on_change(wake).unwrap();
    assert!(removes_vfs(&more_vfs(&host.facts().unwrap())));

    ip("address add 192.0.2.7/24 dev vf1");
    woken.recv_timeout(Duration::from_secs(10)).unwrap();
    let facts = host.facts().unwrap();
    assert_eq!(facts.pfs[0].vfs[1].link.as_ref().unwrap().host_use, Some(HostUse::NodeAddress));
    let plan = more_vfs(&facts);
    assert!(!removes_vfs(&plan), "{plan:?}");
    let text = plan.problems[0].to_string();
    assert!(text.contains("VF 1 is used by the node itself, for the node's own address"), "{text}");
    // Where it is not known to be the node's, it is protected all the same.
    let unknown = tree.host().facts().unwrap();
    assert_eq!(of_vf(&unknown), Some(HostUse::Address));
    assert!(!removes_vfs(&more_vfs(&unknown)));

    ip("address del 192.0.2.7/24 dev vf1");
    woken.recv_timeout(Duration::from_secs(10)).unwrap();
    let facts = host.facts().unwrap();
    assert_eq!(of_vf(&facts), None);
    assert!(!removes_vfs(&more_vfs(&facts)), "it is away for a moment");
    // Another process, which has seen nothing of that.
    let text = more_vfs(&tree.host().facts().unwrap()).problems[0].to_string();
    assert!(text.contains("not seen since"), "{text}");
    // By an address for the link alone nobody else reaches it.
    ip("address add 169.254.0.7/16 dev vf1 scope link");
    let impatient = tree.host().with_protection(Duration::ZERO);
    assert!(removes_vfs(&more_vfs(&impatient.facts().unwrap())), "it was away for long enough");
    protects_next_hops(&tree);
    protects_storage(&tree);
}

/// A default route in another table, through a group of next hops, of which the kernel tells the interfaces or not.
fn protects_next_hops(tree: &Tree) {
    ip("address add 198.51.100.7/24 dev pf0");
    ip("link set pf0 up");
    let of_pf = || tree.host().facts().unwrap().pfs[0].link.as_ref().unwrap().host_use;
    assert_eq!(of_pf(), Some(HostUse::Address));
    ip("nexthop add id 1 via 198.51.100.1 dev pf0");
    ip("nexthop add id 2 group 1");
    ip("route add default nhid 2 table 100");
    for is_told in ["1", "0"] {
        fs::write("/proc/sys/net/ipv4/nexthop_compat_mode", is_told).unwrap();
        assert_eq!(of_pf(), Some(HostUse::DefaultRoute), "{is_told}");
    }
    ip("route del default nhid 2 table 100");
}

/// A session with a server on the other side of a VF, which has no address of its own; and one that leads nowhere now.
fn protects_storage(tree: &Tree) {
    // They are each other's end: what leads through one leads through the other.
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
    assert!(!removes_vfs(&more_vfs(&host().facts().unwrap())), "unknown is not absent");
    fs::remove_dir_all(controller).unwrap();
    host().facts().unwrap();
    assert!(removes_vfs(&more_vfs(&host().facts().unwrap())));
}

fn of_vf(facts: &HostFacts) -> Option<HostUse> {
    facts.pfs[0].vfs[1].link.as_ref().unwrap().host_use
}

/// What it takes to have three VFs instead of two.
fn more_vfs(facts: &HostFacts) -> Plan {
    let wanted = serde_json::json!({"interfaces": [{"pciAddress": PF, "name": "pf0", "numVfs": 3}]});
    plan_node(&serde_json::from_value(wanted).unwrap(), facts)
}

fn removes_vfs(plan: &Plan) -> bool {
    plan.steps.iter().any(|planned| planned.step.to_string() == format!("set {PF} numvfs 0"))
}

fn ip(words: &str) {
    let status = Command::new("ip").args(words.split(' ')).status().unwrap();
    assert!(status.success(), "ip {words}");
}
