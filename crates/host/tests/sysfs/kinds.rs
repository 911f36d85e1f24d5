//! Other kinds of cards, and optional facts.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use vfleet_api::VfRef;
use vfleet_host::Host;
use vfleet_plan::report::{self, ReportContext};
use vfleet_plan::{Fact, Step, VdpaKind, VfDriver};

use crate::tree::{PF, Tree, write};

#[test]
fn optional_facts_are_read() {
    let tree = Tree::new(2);
    write(&tree.device(PF).join("numa_node"), "1\n");
    write(&tree.device(PF).join("infiniband/mlx5_0/node_guid"), "506b:4b03:00aa:000f\n");
    let gid = tree.device(PF).join("infiniband/mlx5_0/ports/1/gids/0");
    write(&gid, "fe80:0000:0000:0000:506b:4b03:00aa:0010\n");
    let vf = tree.device("0000:01:10.1").join("infiniband/mlx5_3");
    write(&vf.join("node_guid"), "0000:0000:0000:0000\n");
    write(&vf.join("ports/1/gids/0"), "0000:0000:0000:0000:0000:0000:0000:0000\n");
    for (index, driver) in [(0, "vhost_vdpa"), (1, "virtio_vdpa")] {
        let device = tree.root.path().join(format!("sys/bus/vdpa/devices/vdpa:0000:01:10.{index}"));
        fs::create_dir_all(&device).unwrap();
        symlink(format!("../../drivers/{driver}"), device.join("driver")).unwrap();
    }
    let facts = tree.facts();
    let pf = &facts.pfs[0];
    assert_eq!((pf.numa_node, pf.eswitch, pf.is_lone_vf), (Some(1), Fact::None, false));
    let rdma = pf.rdma.as_ref().unwrap();
    assert_eq!(
        (rdma.device.as_str(), rdma.node_guid.to_string().as_str()),
        ("mlx5_0", "50:6b:4b:03:00:aa:00:0f")
    );
    assert_eq!(rdma.port_guid, Some("50:6b:4b:03:00:aa:00:10".parse().unwrap()));
    let of_vf = pf.vfs[1].rdma.as_ref().unwrap();
    assert_eq!((of_vf.node_guid.0, of_vf.port_guid), ([0; 8], None));
    assert_eq!((pf.vfs[0].vdpa, pf.vfs[1].vdpa), (Some(VdpaKind::Vhost), Some(VdpaKind::Virtio)));
    assert_eq!(facts.kernel.rdma_mode, None);

    fs::remove_file(&gid).unwrap();
    assert_eq!(tree.facts().pfs[0].rdma.as_ref().unwrap().port_guid, None);
    write(&tree.device(PF).join("infiniband/mlx5_0/node_guid"), "none\n");
    assert_eq!(tree.error_about(&tree.device(PF).join("infiniband/mlx5_0/node_guid")).0, "HostFileInvalid");
}

/// Such a card looks like one without SR-IOV, which cards of other vendors then are.
#[test]
fn a_mellanox_card_with_disabled_sriov_is_listed_without_vfs() {
    let tree = Tree::new(1);
    tree.add_interface("eth9", "0\n", "p0\n");
    let pf = PF.parse().unwrap();
    fs::remove_file(tree.device("0000:01:10.0").join("physfn")).unwrap();
    fs::remove_dir_all(tree.device("0000:01:10.0")).unwrap();
    for name in ["virtfn0", "sriov_totalvfs", "sriov_numvfs", "sriov_drivers_autoprobe"] {
        fs::remove_file(tree.device(PF).join(name)).unwrap();
    }
    assert!(tree.facts().pfs.is_empty());

    write(&tree.device(PF).join("vendor"), "0x15b3\n");
    let facts = tree.facts();
    let card = facts.pf(pf).unwrap();
    assert_eq!((card.total_vfs, card.vfs.len(), card.is_lone_vf), (0, 0, false));
    // The number of supported VFs is unknown, not 0.
    let reported = report::interfaces(&facts, &ReportContext::default());
    assert_eq!((reported.len(), reported[0].totalvfs, reported[0].num_vfs), (1, None, None));

    let host = tree.host();
    host.execute(&Step::SetNumVfs { pf, count: 0 }).unwrap();
    assert_eq!(host.execute(&Step::SetNumVfs { pf, count: 1 }).unwrap_err().reason(), "TooManyVfs");
    // On a cloud platform such a card is a lone VF.
    assert!(tree.host().with_lone_vfs(true).facts().unwrap().pfs[0].is_lone_vf);

    fs::remove_file(tree.device(PF).join("vendor")).unwrap();
    assert_eq!(tree.error_about(&tree.device(PF).join("vendor")).0, "HostFileFailed");
    write(&tree.device(PF).join("class"), "0x020700\n");
    write(&tree.device(PF).join("vendor"), "0x15b3\n");
    assert_eq!(tree.facts().pfs.len(), 1, "InfiniBand too");
    write(&tree.device(PF).join("class"), "0x088000\n");
    assert!(tree.facts().pfs.is_empty(), "a management function is no network card");
}

/// Adds a network card without SR-IOV, with a virtio device.
fn add_lone_vf(tree: &Tree) -> PathBuf {
    let device = tree.device("0000:05:00.0");
    for (name, text) in [("class", "0x020000\n"), ("vendor", "0x1af4\n"), ("device", "0x1041\n")] {
        write(&device.join(name), text);
    }
    symlink("../../drivers/virtio-pci", device.join("driver")).unwrap();
    write(&device.join("virtio3/net/eth9/ifindex"), "1\n");
    device
}

#[test]
fn a_card_without_vf_support_is_a_lone_vf_if_enabled() {
    let tree = Tree::new(1);
    add_lone_vf(&tree);
    assert_eq!(tree.facts().pfs.len(), 1);
    let facts = tree.host().with_lone_vfs(true).facts().unwrap();
    // The VF of the other card is no lone VF, because its PF is visible.
    assert_eq!(facts.pfs.len(), 2);
    let lone = &facts.pfs[1];
    assert_eq!((lone.is_lone_vf, lone.total_vfs, lone.vfs.len()), (true, 1, 1));
    assert_eq!((lone.vfs[0].index, lone.vfs[0].address), (0, lone.address));
    assert_eq!(lone.link.as_ref().map(|link| link.name.as_str()), Some("lo"));
    assert_eq!(lone.link, lone.vfs[0].link);
    assert!(!facts.pfs[0].is_lone_vf);
}

#[test]
fn a_lone_vf_can_be_bound_but_cannot_create_vfs() {
    let tree = Tree::new(0);
    let device = add_lone_vf(&tree);
    let pf = "0000:05:00.0".parse().unwrap();
    fs::remove_file(device.join("driver")).unwrap();
    let host = tree.host();
    let driver = VfDriver::Named("no-such-driver".to_owned());
    let refused = |index| {
        let step = Step::BindVf { vf: VfRef { pf, index }, driver: driver.clone() };
        host.execute(&step).unwrap_err().reason()
    };
    assert_eq!([refused(0), refused(1)], ["DriverNotLoaded", "NoSuchDevice"]);
    assert_eq!(host.execute(&Step::SetNumVfs { pf, count: 1 }).unwrap_err().reason(), "NoSuchDevice");
}
