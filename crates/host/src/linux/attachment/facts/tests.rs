use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use vfleet_api::{PciAddress, VfRef};
use vfleet_plan::cni::facts::{DevicePart, HolderFacts, HolderNamespace};
use vfleet_plan::cni::journal::{
    AttachmentKey, DeviceChanges, JOURNAL_VERSION, Journal, Phase, Plugin, RdmaChanges,
};

use super::*;
use crate::attachment::AttachmentHost;
use crate::linux::LinuxHost;
use crate::linux::attachment::test_pod::{PATH, run_with_pod, vf};
use crate::linux::attachment::{go_files, journals};
use crate::linux::test_namespace::shell;
use crate::linux::test_tree::TestTree;

const PF: &str = "0000:01:00.0";
const OTHER_PATH: &str = "/run/netns/other";

fn query<'a>(namespace: NamespaceQuery<'a>, key: Option<&'a AttachmentKey>) -> AttachmentQuery<'a> {
    AttachmentQuery { device: Some(vf()), namespace, key, with_addresses: true }
}

fn key(container_id: &str) -> AttachmentKey {
    let (container_id, interface) = (container_id.to_owned(), "net1".to_owned());
    AttachmentKey { plugin: Plugin::Sriov, container_id, interface, device: Some(vf()) }
}

fn journal(container_id: &str, path: &str, boot_id: &str) -> Journal {
    Journal {
        version: JOURNAL_VERSION,
        key: key(container_id),
        network: "fast".to_owned(),
        namespace: Namespace { path: path.to_owned(), id: NamespaceId { device: 4, inode: 5, cookie: None } },
        boot_id: boot_id.to_owned(),
        phase: Phase::Attached,
        pod: None,
        config: serde_json::Value::Null,
        cni_path: String::new(),
        changes: DeviceChanges::Rdma(RdmaChanges { rdma: "mlx5_2".to_owned() }),
        result: None,
    }
}

/// Returns a machine with a VF whose PF has the loopback interface, which every kernel has.
fn machine() -> TestTree {
    let tree = TestTree::new();
    tree.add_card(PF, "0x8086\n");
    let device = |address: &str| format!("/sys/bus/pci/devices/{address}");
    tree.write(&format!("{}/net/lo/ifindex", device(PF)), "1");
    tree.write(&format!("{}/class", device("0000:01:10.0")), "0x020000\n");
    let link = |target: &str, at: String| symlink(target, tree.path(&at)).unwrap();
    link("../0000:01:00.0", format!("{}/physfn", device("0000:01:10.0")));
    // Links need not be contiguous, nor in the order of addresses.
    link("../0000:01:10.4", format!("{}/virtfn0", device(PF)));
    link("../0000:01:10.0", format!("{}/virtfn5", device(PF)));
    link("../../drivers/vfio-pci", format!("{}/driver", device("0000:01:10.0")));
    tree
}

fn facts(tree: &TestTree, query: &AttachmentQuery<'_>) -> AttachmentFacts {
    read(tree.root(), query).unwrap()
}

fn boot_id() -> String {
    system::read_boot_id(TestTree::new().root()).unwrap()
}

#[test]
fn a_vf_has_a_pf_and_a_driver() {
    let tree = machine();
    let facts = facts(&tree, &query(NamespaceQuery::NotGiven, None));
    let device = facts.device.unwrap();
    let pf = device.pf.unwrap();
    assert_eq!(pf.vf, VfRef { pf: PF.parse().unwrap(), index: 5 });
    assert_eq!((pf.name.as_str(), pf.index, pf.settings), ("lo", 1, None));
    assert_eq!((device.exists, device.driver.as_deref()), (true, Some("vfio-pci")));
    assert_eq!((device.link, facts.namespace, facts.holders), (None, NamespaceFacts::NotGiven, Vec::new()));
    assert!(!facts.has_exclusive_rdma && facts.host_names.contains("lo"));
}

#[test]
fn a_device_that_does_not_exist_is_no_error_and_a_pf_may_lack_its_interface() {
    let tree = TestTree::new();
    fs::create_dir_all(tree.path("/sys/bus/pci/devices")).unwrap();
    let device = facts(&tree, &query(NamespaceQuery::NotGiven, None)).device.unwrap();
    assert!(!device.exists && device.pf.is_none() && device.driver.is_none() && device.rdma.is_empty());
    let tree = machine();
    fs::remove_dir_all(tree.path(&format!("/sys/bus/pci/devices/{PF}/net"))).unwrap();
    let pf = facts(&tree, &query(NamespaceQuery::NotGiven, None)).device.unwrap().pf.unwrap();
    assert_eq!((pf.vf.index, pf.name.as_str(), pf.settings), (5, "", None));
}

#[test]
fn the_interface_of_the_device_has_no_other_holder_of_its_names() {
    let tree = machine();
    tree.write("/sys/bus/pci/devices/0000:01:10.0/net/lo/ifindex", "1");
    tree.write("/sys/bus/pci/devices/0000:01:10.0/infiniband/mlx5_2/node_guid", "");
    let facts = facts(&tree, &query(NamespaceQuery::NotGiven, None));
    let device = facts.device.unwrap();
    assert_eq!(device.link.unwrap().name, "lo");
    assert!(!facts.host_names.contains("lo"));
    assert_eq!(device.rdma, ["mlx5_2"]);
}

#[test]
fn a_device_is_awaited_until_it_has_an_interface_and_an_rdma_device() {
    let tree = machine();
    let host = LinuxHost::new(tree.root().clone());
    let (interface, both) = ([DevicePart::Interface], [DevicePart::Interface, DevicePart::RdmaDevice]);
    let wait = |parts: &[DevicePart]| {
        let parts = parts.iter().copied().collect();
        host.wait_for_device(vf(), &parts, Duration::from_millis(10)).unwrap()
    };
    assert!(!wait(&interface) && !wait(&both));
    tree.write("/sys/bus/pci/devices/0000:01:10.0/net/lo/ifindex", "1");
    assert!(wait(&interface) && !wait(&both));
    tree.write("/sys/bus/pci/devices/0000:01:10.0/infiniband/mlx5_2/node_guid", "");
    assert!(wait(&both));
}

#[test]
fn only_a_missing_file_another_inode_or_another_boot_is_a_namespace_that_is_gone() {
    let tree = machine();
    let read = |namespace| facts(&tree, &query(namespace, None)).namespace;
    let recorded = Namespace { path: PATH.to_owned(), id: NamespaceId { device: 4, inode: 5, cookie: None } };
    let boot_id = boot_id();
    let recorded_in = |boot_id| NamespaceQuery::Recorded { namespace: &recorded, boot_id };
    assert_eq!(read(NamespaceQuery::Path(PATH)), NamespaceFacts::Gone);
    assert_eq!(read(recorded_in(&boot_id)), NamespaceFacts::Gone);
    tree.write(PATH, "the mount of the namespace is not visible here");
    for query in [NamespaceQuery::Path(PATH), recorded_in(&boot_id)] {
        assert!(matches!(read(query), NamespaceFacts::Unknown { .. }), "{query:?}");
    }
    assert_eq!(read(recorded_in("another")), NamespaceFacts::Gone);
    fs::remove_file(tree.path(PATH)).unwrap();
    symlink("/proc/self/ns/net", tree.path(PATH)).unwrap();
    assert_eq!(read(recorded_in(&boot_id)), NamespaceFacts::Gone, "another inode");
    fs::remove_file(tree.path(PATH)).unwrap();
    symlink(PATH, tree.path(PATH)).unwrap();
    assert!(matches!(read(NamespaceQuery::Path(PATH)), NamespaceFacts::Gone), "a link that leads nowhere");
    fs::remove_file(tree.path(PATH)).unwrap();
    symlink("pod", tree.path(PATH)).unwrap();
    assert!(matches!(read(NamespaceQuery::Path(PATH)), NamespaceFacts::Unknown { .. }), "a loop of links");
}

#[test]
fn holders_are_other_journals_and_allocations_of_other_namespaces() {
    let tree = machine();
    let boot_id = boot_id();
    for journal in [journal("own", PATH, &boot_id), journal("gone", "/run/netns/gone", &boot_id)] {
        journals::write(tree.root(), &journal).unwrap();
    }
    journals::write(tree.root(), &journal("earlier", OTHER_PATH, "another boot")).unwrap();
    let elsewhere: PciAddress = "0000:01:10.2".parse().unwrap();
    let other_device = AttachmentKey { device: Some(elsewhere), ..key("x") };
    journals::write(tree.root(), &Journal { key: other_device, ..journal("x", PATH, &boot_id) }).unwrap();
    let own = key("own");
    let holders = || {
        let facts = facts(&tree, &query(NamespaceQuery::Path(PATH), Some(&own)));
        facts.holders.into_iter().map(|holder| match holder {
            HolderFacts::Journal { journal, namespace } => (journal.key.container_id, namespace),
            HolderFacts::GoAllocation { path, namespace } => (path, namespace),
        })
    };
    let gone =
        || vec![("earlier".to_owned(), HolderNamespace::Gone), ("gone".to_owned(), HolderNamespace::Gone)];
    for path in [PATH, OTHER_PATH, "/run/netns/gone"] {
        go_files::write_allocation(tree.root(), vf(), path).unwrap();
        assert!(holders().eq(gone()), "{path}");
    }
    for (path, state) in [
        ("/run/netns/go", HolderNamespace::Gone),
        ("/sys/bus/pci/devices/0000:01:10.0/class", HolderNamespace::Unknown),
        ("", HolderNamespace::Gone),
    ] {
        go_files::write_allocation(tree.root(), vf(), path).unwrap();
        assert!(holders().eq([gone(), vec![(path.to_owned(), state)]].concat()), "{path}");
    }
}

#[test]
fn a_damaged_journal_of_the_device_is_an_error_and_one_of_another_device_is_not() {
    let tree = machine();
    tree.write("/var/lib/cni/vfleet/sriov:a:net1:0000:01:10.2", "");
    facts(&tree, &query(NamespaceQuery::NotGiven, None));
    tree.write("/var/lib/cni/vfleet/sriov:a:net1:0000:01:10.0", "");
    let error = read(tree.root(), &query(NamespaceQuery::NotGiven, None)).unwrap_err();
    assert_eq!(error.reason(), "JournalDamaged");
    let own = key("a");
    facts(&tree, &query(NamespaceQuery::NotGiven, Some(&own)));
}

#[test]
#[ignore = "needs the privilege to create network namespaces: for the lab"]
fn a_namespace_of_a_pod_has_interfaces_and_addresses() {
    run_with_pod(|pod| {
        pod.shell(
            "ip link set lo up; ip link add net1 type veth peer name other; ip link set net1 up mtu 1400",
        );
        pod.shell("ip link property add dev net1 altname first; ip address add 192.0.2.7/24 dev net1");
        pod.shell("ip address add 2001:db8::7/64 dev net1 nodad");
        let read = |namespace, with_addresses| {
            let query = AttachmentQuery { with_addresses, ..query(namespace, None) };
            facts(&pod.tree, &query).namespace
        };
        let boot_id = boot_id();
        let recorded = NamespaceQuery::Recorded { namespace: &pod.namespace, boot_id: &boot_id };
        for namespace in [NamespaceQuery::Path(PATH), recorded] {
            let NamespaceFacts::Present { namespace, is_own, links, rdma } = read(namespace, true) else {
                panic!("{namespace:?}")
            };
            assert_eq!((&namespace, is_own, rdma.len()), (&pod.namespace, false, 0));
            let net1 = links.iter().find(|link| link.name == "net1").unwrap();
            assert_eq!((net1.mtu, net1.is_up, net1.device), (1400, true, None));
            assert!(net1.is_called("first") && net1.mac().is_some());
            assert_eq!(net1.ips, ["192.0.2.7/24", "2001:db8::7/64"]);
            let lo = links.iter().find(|link| link.name == "lo").unwrap();
            assert!(lo.ips.is_empty(), "{lo:?}");
        }
        let NamespaceFacts::Present { links, .. } = read(NamespaceQuery::Path(PATH), false) else { panic!() };
        assert!(links.iter().all(|link| link.ips.is_empty()));

        fs::remove_file(pod.tree.path(PATH)).unwrap();
        symlink("/proc/thread-self/ns/net", pod.tree.path(PATH)).unwrap();
        let NamespaceFacts::Present { is_own, .. } = read(NamespaceQuery::Path(PATH), false) else {
            panic!()
        };
        assert!(is_own);
        fs::remove_file(pod.tree.path(PATH)).unwrap();
        symlink("/proc/self/ns/uts", pod.tree.path(PATH)).unwrap();
        let error = super::read(pod.tree.root(), &query(NamespaceQuery::Path(PATH), None)).unwrap_err();
        assert_eq!(error.reason(), "NotANamespace");
    });
}

#[test]
#[ignore = "needs the privilege to create network namespaces: for the lab"]
fn a_journal_whose_namespace_exists_is_a_living_holder_until_the_pod_is_deleted() {
    run_with_pod(|pod| {
        let living = Journal { namespace: pod.namespace.clone(), ..journal("a", PATH, &boot_id()) };
        journals::write(pod.tree.root(), &living).unwrap();
        let state = |pod: &crate::linux::attachment::test_pod::TestPod| match facts(
            &pod.tree,
            &query(NamespaceQuery::NotGiven, None),
        )
        .holders
        .as_slice()
        {
            [HolderFacts::Journal { namespace, .. }] => *namespace,
            other => panic!("{other:?}"),
        };
        assert_eq!(state(pod), HolderNamespace::Alive);
        go_files::write_allocation(pod.tree.root(), vf(), PATH).unwrap();
        assert_eq!(state(pod), HolderNamespace::Alive, "its own allocation is no other holder");
        pod.delete();
        assert_eq!(state(pod), HolderNamespace::Gone);
    });
}

#[test]
#[ignore = "needs the privilege to create network namespaces: for the lab"]
fn a_namespace_with_the_inode_of_the_recorded_one_and_another_cookie_is_another_one() {
    run_with_pod(|pod| {
        let host = LinuxHost::new(pod.tree.root().clone());
        let boot_id = boot_id();
        let recorded = |cookie| {
            let id = NamespaceId { cookie, ..pod.namespace.id };
            Journal { namespace: Namespace { id, ..pod.namespace.clone() }, ..journal("a", PATH, &boot_id) }
        };
        let cookie = pod.namespace.id.cookie.expect("Linux 5.14");
        let states = [(Some(cookie), true), (Some(cookie + 1), false), (None, true)];
        for (cookie, is_same) in states {
            let journal = recorded(cookie);
            let expected = if is_same { HolderNamespace::Alive } else { HolderNamespace::Gone };
            assert_eq!(host.namespace_state(&journal).unwrap(), expected, "{cookie:?}");
            let query =
                query(NamespaceQuery::Recorded { namespace: &journal.namespace, boot_id: &boot_id }, None);
            match facts(&pod.tree, &query).namespace {
                // The journal of an earlier version learns nothing, but a new one has the cookie.
                NamespaceFacts::Present { namespace, .. } if is_same => assert_eq!(namespace, pod.namespace),
                NamespaceFacts::Gone if !is_same => {}
                other => panic!("{cookie:?}: {other:?}"),
            }
        }
        let other = shell("readlink /proc/self/ns/net");
        assert_ne!(other, pod.shell("readlink /proc/self/ns/net"));
        assert_ne!(read_cookie().unwrap(), Some(cookie));
    });
}

#[test]
#[ignore = "needs the privilege to create network namespaces: for the lab"]
fn a_namespace_can_be_entered_while_the_process_stays_in_its_own() {
    run_with_pod(|pod| {
        let before = shell("readlink /proc/self/ns/net");
        let inside = pod.shell("readlink /proc/self/ns/net");
        assert_eq!(inside.trim(), format!("net:[{}]", pod.namespace.id.inode));
        assert_eq!(shell("readlink /proc/self/ns/net"), before);
    });
}
