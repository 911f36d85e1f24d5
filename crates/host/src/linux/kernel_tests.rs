//! Tests on a kernel with netdevsim, vdpa_sim and soft RDMA. The program `lab` of `vfleet-tests` runs them in the lab.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use vfleet_api::PciAddress;
use vfleet_api::pool_config::RdmaMode;
use vfleet_plan::{EswitchMode, Fact, HostUse, VdpaKind};

use super::devlink::{self, DevlinkHandle};
use super::netlink::rtnl::Rtnl;
use super::network::Network;
use super::representor::{self, SwitchPf};
use super::root::HostRoot;
use super::{LinuxHost, ethtool, events, netdev, rdma, sysfs, vdpa};
use crate::{Host, format_error_chain};

fn shell(script: &str) {
    let status = Command::new("bash").args(["-euxc", script]).status().unwrap();
    assert!(status.success(), "{script}");
}

#[test]
#[ignore = "needs netdevsim, which the lab has"]
fn an_eswitch_changes_its_mode_and_has_representors() {
    shell("modprobe netdevsim; echo '9 1 4' > /sys/bus/netdevsim/new_device; udevadm settle");
    let handle = DevlinkHandle { bus: "netdevsim", name: "netdevsim9".to_owned() };
    assert_eq!(devlink::read_eswitch_mode(&handle).unwrap(), Fact::Value(EswitchMode::Legacy));
    let path = std::path::Path::new("/sys/bus/netdevsim/devices/netdevsim9");
    fs::write(path.join("sriov_numvfs"), "2").unwrap();
    devlink::set_eswitch_mode(&handle, EswitchMode::Switchdev, "set it").unwrap();
    assert_eq!(devlink::read_eswitch_mode(&handle).unwrap(), Fact::Value(EswitchMode::Switchdev));
    shell("udevadm settle; ip -d link");

    let netdevs = netdev::list(path).unwrap();
    assert_eq!(netdevs.indexes.len(), 3);
    let network = Network::read(&HostRoot::default(), &[], None).unwrap();
    let link = network.link(netdevs.own.unwrap().index).unwrap();
    for own in [&netdevs.indexes, &BTreeSet::new()] {
        let found = representor::find_representors(&SwitchPf { link, function: 0, own }, network.links());
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), [0, 1], "{found:?}");
        assert!(found[&1].ends_with("pf0vf1"), "{found:?}");
    }

    // The card names the same representors itself.
    let ports = devlink::list_ports(&handle).unwrap();
    assert_eq!(ports.len(), 3, "the uplink and two VFs: {ports:?}");
    for vf in 0..2 {
        let index = representor::interface_of_port(vf, &ports).unwrap();
        assert!(network.link(index).unwrap().name.ends_with(&format!("pf0vf{vf}")), "{ports:?}");
    }
    assert_eq!(representor::interface_of_port(2, &ports), None);

    assert_eq!(ethtool::read_tc_offload(link.index).unwrap(), Some(false));
    for on in [true, false] {
        ethtool::set_tc_offload(link.index, on, "switch it").unwrap();
        assert_eq!(ethtool::read_tc_offload(link.index).unwrap(), Some(on));
    }
    devlink::set_text_if_supported(&handle, "flow_steering_mode", "smfs", "steer").unwrap();
    devlink::set_eswitch_mode(&handle, EswitchMode::Legacy, "set it back").unwrap();
    assert_eq!(devlink::read_eswitch_mode(&handle).unwrap(), Fact::Value(EswitchMode::Legacy));
    shell("echo 9 > /sys/bus/netdevsim/del_device");
}

#[test]
#[ignore = "needs vdpa_sim, which the lab has"]
fn a_vdpa_device_is_bound_to_one_driver_after_the_other() {
    shell("modprobe -a vdpa_sim_net vhost_vdpa virtio_vdpa");
    let root = HostRoot::default();
    let vf: PciAddress = "0000:01:10.0".parse().unwrap();
    // vdpa_sim is on no bus and has a fixed number of queues; otherwise it behaves like a VF.
    vdpa::create_on(None, "vdpasim_net", &format!("vdpa:{vf}"), "create it").unwrap();
    for kind in [VdpaKind::Vhost, VdpaKind::Virtio, VdpaKind::Vhost] {
        let device = vdpa::device(&root, vf);
        device.bind_to(kind.driver()).unwrap();
        assert_eq!(vdpa::read_kind(&root, vf).unwrap(), Some(kind));
    }
    for _ in 0..2 {
        vdpa::remove(vf, "remove it").unwrap();
        assert_eq!(vdpa::read_kind(&root, vf).unwrap(), None);
        assert!(!vdpa::device(&root, vf).path().exists());
    }
    let error = vdpa::create(vf, "create one without a VF").unwrap_err();
    assert_eq!(error.errno(), Some(19), "{error:?}");
}

#[test]
#[ignore = "needs vdpa_sim, which the lab has"]
fn the_mac_of_a_vdpa_device_is_set() {
    shell("modprobe -a vdpa_sim_net vhost_vdpa");
    let name = "vfleet-vdpa";
    vdpa::create_on(None, "vdpasim_net", name, "create it").unwrap();
    for mac in ["02:00:00:00:00:09", "02:00:00:00:00:0a"] {
        let mac = mac.parse().unwrap();
        vdpa::set_mac(name, mac, "set it").unwrap();
        assert_eq!(vdpa::read_config(name).unwrap().mac, Some(mac));
        shell(&format!("vdpa dev config show {name} | grep {mac}"));
    }
    assert!(vdpa::named(&HostRoot::default(), name).driver().unwrap().is_some());
    // It is on no PCI function.
    let vf: PciAddress = "0000:01:10.0".parse().unwrap();
    assert!(!vdpa::list_names(&HostRoot::default(), vf).unwrap().contains(&name.to_owned()));
    shell(&format!("vdpa dev del {name}"));
    assert_eq!(vdpa::read_config(name).unwrap_err().errno(), Some(19));
}

#[test]
#[ignore = "needs the RDMA tools, which the lab has"]
fn the_rdma_mode_of_namespaces_is_read() {
    shell("modprobe rdma_rxe; rdma system set netns shared");
    let root = HostRoot::default();
    assert_eq!(rdma::read_mode(&root).unwrap(), Some(RdmaMode::Shared));
    shell("rdma system set netns exclusive");
    assert_eq!(rdma::read_mode(&root).unwrap(), Some(RdmaMode::Exclusive));
    shell("rdma system set netns shared");
}

#[test]
#[ignore = "changes the machine's network: for the lab"]
fn uses_by_the_node_are_found_below_bonds_and_vlans_and_changes_are_events() {
    let index = |name: &str| {
        let mut links = Rtnl::open().unwrap().links().unwrap().into_iter();
        links.find(|link| link.name == name).unwrap().index
    };
    let node = ["192.0.2.7".parse().unwrap()];
    let read = || Network::read(&HostRoot::default(), &node, None).unwrap();
    shell(
        "modprobe -a bonding 8021q; ip link add b0 type bond; ip link set enp1s0 down; \
         ip link set enp1s0 master b0; ip link set b0 up; ip link add link b0 name b0.5 type vlan id 5; \
         ip link set b0.5 up; ip link add veth-a type veth peer name veth-b; udevadm settle",
    );
    let (sender, events) = mpsc::channel();
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let watch = events::watch(
        &HostRoot::default(),
        &node,
        Box::new(move || {
            count.fetch_add(1, Ordering::SeqCst);
            let _ = sender.send(());
        }),
    )
    .unwrap();
    let has_event = || events.recv_timeout(Duration::from_secs(5)).is_ok();
    let drain = || while events.recv_timeout(Duration::from_secs(5)).is_ok() {};
    drain();
    shell("ip link set veth-a up; ip route add 198.51.100.128/25 dev veth-a");
    assert!(!has_event(), "the interface of a pod is not relevant");

    assert_eq!(read().host_use(index("enp1s0")), None);
    shell("ip address add 192.0.2.7/24 dev b0.5");
    assert!(has_event());
    assert_eq!(read().host_use(index("enp1s0")), Some(HostUse::NodeAddress));
    drain();
    shell("ip route add default via 192.0.2.1 dev b0.5");
    assert!(has_event());
    let network = read();
    assert_eq!(network.host_use(index("enp1s0")), Some(HostUse::DefaultRoute));
    assert_eq!(network.host_use(index("enp2s0")), None);
    drop(watch);
    shell("ip link del b0; ip link del veth-a; ip link set enp1s0 down");
}

/// One thread reads the machine: no card is ever unreadable. Another thread reads only interfaces while they are being
/// removed: the only error is that they vanished.
#[test]
#[ignore = "unbinds network cards: for the lab"]
fn a_card_that_is_unbound_and_bound_meanwhile_is_always_read() {
    let vf = [("igbvf", "0000:01:10.0"); 20];
    let pf = [("igb", "0000:02:00.0"); 4];
    shell("ip link set enp1s0 up; echo 1 > /sys/bus/pci/devices/0000:01:00.0/sriov_numvfs; udevadm settle");
    let is_over = AtomicBool::new(false);
    let repeat = |read: &dyn Fn()| {
        let mut reads = 0;
        while !is_over.load(Ordering::SeqCst) {
            read();
            reads += 1;
        }
        reads
    };
    let host = LinuxHost::new(HostRoot::default());
    let read_machine = || {
        let facts = host.facts().unwrap();
        assert_eq!((facts.unreadable, facts.pfs.len()), (Vec::new(), 2));
    };
    let read_interfaces = || {
        for (_, address) in [vf[0], pf[0]] {
            let device = HostRoot::default().device(address.parse().unwrap());
            if let Err(error) = netdev::list(&device) {
                assert!(sysfs::has_vanished(&error), "{}", format_error_chain(&error));
            }
        }
    };
    thread::scope(|scope| {
        let readers = [scope.spawn(|| repeat(&read_machine)), scope.spawn(|| repeat(&read_interfaces))];
        for (driver, address) in vf.into_iter().chain(pf) {
            for act in ["unbind", "bind"] {
                fs::write(format!("/sys/bus/pci/drivers/{driver}/{act}"), address).unwrap();
            }
        }
        is_over.store(true, Ordering::SeqCst);
        let reads = readers.map(|reader| reader.join().unwrap());
        assert!(reads.iter().all(|count| *count > 0), "{reads:?}");
        eprintln!("{reads:?} reads");
    });
    shell("echo 0 > /sys/bus/pci/devices/0000:01:00.0/sriov_numvfs; ip link set enp1s0 down; udevadm settle");
}
