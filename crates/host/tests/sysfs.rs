//! Reads of unusual file trees: a missing or damaged file makes a card unreadable, with an error that names the file,
//! and never hides a card.

#![expect(clippy::unwrap_used, reason = "in a test a failed expectation is the point")]

#[path = "sysfs/file_watch.rs"]
mod file_watch;
#[path = "sysfs/kinds.rs"]
mod kinds;
#[path = "sysfs/node_address.rs"]
mod node_address;
#[path = "sysfs/tree.rs"]
mod tree;

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use tempfile::TempDir;
use vfleet_api::VfRef;
use vfleet_host::Host;
use vfleet_plan::{Step, VfDriver};

use crate::tree::{PF, Tree, write};

#[test]
fn a_complete_tree_is_read() {
    let facts = Tree::new(2).facts();
    let pf = &facts.pfs[0];
    assert_eq!((pf.vendor, pf.device, pf.total_vfs), (0x8086, 0x10c9, 7));
    assert_eq!((pf.driver.as_deref(), pf.drivers_autoprobe, &pf.link), (None, true, &None));
    assert_eq!((pf.vfs[1].index, pf.vfs[1].address.to_string().as_str()), (1, "0000:01:10.1"));
    assert_eq!(pf.vfs[1].driver.as_deref(), Some("vfio-pci"));
    assert_eq!((pf.vfs[1].admin_mac, &pf.vfs[1].link), (None, &None));
    assert!(facts.records.is_empty());
}

#[test]
fn devices_that_are_no_network_cards_with_vfs_are_left_out() {
    let tree = Tree::new(0);
    write(&tree.device("0000:05:00.0").join("class"), "0x010802\n");
    write(&tree.device("0000:05:00.0").join("sriov_totalvfs"), "32\n");
    write(&tree.device("0000:06:00.0").join("class"), "0x020000\n");
    write(&tree.device("0000:06:00.0").join("sriov_totalvfs"), "0\n");
    write(&tree.device("0000:07:00.0").join("class"), "0x020000\n");
    let addresses: Vec<String> = tree.facts().pfs.iter().map(|pf| pf.address.to_string()).collect();
    assert_eq!(addresses, [PF]);
}

#[test]
fn a_machine_without_pci_is_an_error() {
    let empty = Tree { root: TempDir::new().unwrap() };
    let error = empty.host().facts().unwrap_err();
    assert_eq!(error.reason(), "HostFileFailed");
    assert!(error.to_string().contains("sys/bus/pci/devices"), "{error}");
}

#[test]
fn the_error_names_a_missing_file() {
    for name in ["vendor", "device", "class", "sriov_numvfs"] {
        let tree = Tree::new(1);
        let path = tree.device(PF).join(name);
        fs::remove_file(&path).unwrap();
        assert_eq!(tree.error_about(&path).0, "HostFileFailed", "{name}");
    }
}

#[test]
fn the_error_names_an_invalid_file_and_its_content() {
    for (name, garbage) in [
        ("sriov_totalvfs", "seven"),
        ("sriov_numvfs", "-1"),
        ("sriov_drivers_autoprobe", "2"),
        ("vendor", "8086"),
        ("class", "0xnet"),
        ("device", ""),
    ] {
        let tree = Tree::new(1);
        let path = tree.device(PF).join(name);
        fs::write(&path, garbage).unwrap();
        let (reason, text) = tree.error_about(&path);
        assert_eq!(reason, "HostFileInvalid", "{name}");
        assert!(text.contains(&format!("{garbage:?}")), "{text}");
    }
}

#[test]
fn a_file_that_is_not_text_is_an_error() {
    let tree = Tree::new(0);
    let path = tree.device(PF).join("vendor");
    fs::write(&path, [0xff, 0xfe, 0x00]).unwrap();
    assert_eq!(tree.error_about(&path).0, "HostFileInvalid");
}

#[test]
fn a_file_that_cannot_be_read_is_an_error() {
    let tree = Tree::new(1);
    let path = tree.device(PF).join("sriov_numvfs");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert_eq!(tree.error_about(&path).0, "HostFileFailed");
}

#[test]
fn a_gap_among_the_vfs_is_an_error() {
    let tree = Tree::new(3);
    fs::remove_file(tree.device(PF).join("virtfn1")).unwrap();
    let (reason, text) = tree.error_about(&tree.device(PF));
    assert_eq!(reason, "HostStateUnstable");
    assert!(text.contains("(3 VFs, 2 virtfn links)"), "{text}");
}

#[test]
fn fewer_links_than_vfs_is_an_error() {
    let tree = Tree::new(2);
    fs::write(tree.device(PF).join("sriov_numvfs"), "4\n").unwrap();
    assert_eq!(tree.error_about(&tree.device(PF)).0, "HostStateUnstable");
}

#[test]
fn a_vf_that_is_gone_is_an_error() {
    let tree = Tree::new(2);
    fs::remove_dir_all(tree.device("0000:01:10.1")).unwrap();
    tree.error_about(&tree.device("0000:01:10.1").join("vendor"));
}

#[test]
fn a_kernel_without_the_autoprobe_file_always_binds_vfs() {
    let tree = Tree::new(0);
    fs::remove_file(tree.device(PF).join("sriov_drivers_autoprobe")).unwrap();
    assert!(tree.facts().pfs[0].drivers_autoprobe);
}

#[test]
fn facts_of_an_interface_are_read_by_index() {
    let tree = Tree::new(0);
    tree.add_interface("pf0vf0rep", "0\n", "pf0vf0\n");
    fs::write(tree.add_interface("eth9", "0x1\n", "p0\n").join("speed"), "25000\n").unwrap();
    let link = tree.facts().pfs[0].link.clone().unwrap();
    // The interface is read from the kernel by index, which is that of the loopback interface.
    assert_eq!((link.name.as_str(), link.speed), ("lo", Some(25_000)));
}

#[test]
fn representors_are_not_the_interface_of_a_pf() {
    let tree = Tree::new(0);
    tree.add_interface("rep", "0\n", "pf0vf0\n");
    assert_eq!(tree.facts().pfs[0].link, None);
}

#[test]
fn an_interface_that_the_kernel_does_not_know_is_an_error() {
    let tree = Tree::new(0);
    let interface = tree.add_interface("eth9", "0\n", "p0\n");
    fs::write(interface.join("ifindex"), "999999\n").unwrap();
    let facts = tree.facts();
    let unread = facts.unreadable(PF.parse().unwrap()).unwrap();
    assert_eq!(unread.reason, "NetlinkRefused");
    assert!(unread.error.starts_with("cannot read interface 999999: No such device"), "{}", unread.error);

    fs::write(interface.join("ifindex"), "none\n").unwrap();
    tree.error_about(&interface.join("ifindex"));
}

#[test]
fn an_interface_that_is_being_removed_makes_its_card_unreadable_until_it_is_gone() {
    let tree = Tree::new(0);
    let interface = tree.add_interface("eth9", "0\n", "p0\n");
    // This file returns the same error as the files of an interface that is being unregistered.
    fs::remove_file(interface.join("ifindex")).unwrap();
    std::os::unix::fs::symlink("/sys/class/net/lo/speed", interface.join("ifindex")).unwrap();
    assert_eq!(tree.error_about(&interface.join("ifindex")).0, "HostStateUnstable");
    fs::remove_dir_all(interface).unwrap();
    let facts = tree.facts();
    assert_eq!((facts.pfs.len(), &facts.pfs[0].link, facts.unreadable.len()), (1, &None, 0));
}

#[test]
fn the_name_of_an_interface_may_contain_any_bytes() {
    let tree = Tree::new(0);
    let interface = tree.add_interface("eth9", "0\n", "p0\n");
    let odd = interface.with_file_name(std::ffi::OsStr::from_bytes(b"eth\xff"));
    fs::rename(interface, odd).unwrap();
    assert_eq!(tree.facts().pfs[0].link.as_ref().unwrap().name, "lo");
}

#[test]
fn other_files_among_pci_functions_and_records_are_ignored() {
    let tree = Tree::new(0);
    write(&tree.device("of_node").join("class"), "0x020000\n");
    for name in ["0000:01:00.0.bak", "0000:01:00.0~", "README", "0000:0B:00.0"] {
        write(&tree.record(name), "{");
    }
    fs::create_dir(tree.record("lost+found")).unwrap();
    write(&tree.record("").join(std::ffi::OsStr::from_bytes(b"\xff")), "{");
    let facts = tree.facts();
    assert_eq!((facts.pfs.len(), facts.records.len(), facts.unreadable.len()), (1, 0, 0));
}

#[test]
fn the_error_names_a_damaged_record() {
    let tree = Tree::new(0);
    let path = tree.record(PF);
    for garbage in ["", "{", "[]", "{\"pf\": \"0000:01:00.0\"}"] {
        write(&path, garbage);
        let (reason, text) = tree.error_about(&path);
        assert_eq!(reason, "RecordDamaged");
        assert!(text.contains("remove it"), "{text}");
        assert!(tree.facts().unreadable_records.iter().eq([&PF.parse().unwrap()]));
    }
}

#[test]
fn a_record_in_the_wrong_file_is_an_error() {
    let tree = Tree::new(0);
    let record =
        r#"{"pf":"0000:01:00.0","interface":{"pciAddress":"0000:01:00.0"},"firstSeen":{},"making":false}"#;
    write(&tree.record(PF), record);
    assert_eq!(tree.facts().records.len(), 1);
    write(&tree.record("0000:02:00.0"), record);
    let facts = tree.facts();
    assert_eq!(facts.unreadable[0].pf.to_string(), "0000:02:00.0");
    assert_eq!((facts.unreadable[0].reason, facts.pfs.len()), ("RecordDamaged", 1));
}

#[test]
fn an_incomplete_draft_of_a_record_is_ignored() {
    let tree = Tree::new(0);
    write(&tree.record(".0000:01:00.0.tmp"), "{\"pf\":");
    assert!(tree.facts().records.is_empty());
}

#[test]
fn a_write_without_effect_is_an_error() {
    let tree = Tree::new(0);
    let pf = PF.parse().unwrap();
    // A plain file accepts every number, but no VF appears.
    let host = tree.host().with_deadline(Duration::from_millis(200));
    let error = host.execute(&Step::SetNumVfs { pf, count: 2 }).unwrap_err();
    assert_eq!(error.reason(), "DeadlineExceeded");
    // The step is still waiting for the VFs, and the card is fenced.
    let facts = host.facts().unwrap();
    assert_eq!((facts.pfs.len(), facts.unreadable[0].reason), (0, "StepStillRunning"));
    assert!(facts.unreadable[0].error.contains("still running (set 0000:01:00.0 numvfs 2)"), "{facts:?}");
}

#[test]
fn the_error_names_a_file_that_cannot_be_written() {
    let tree = Tree::new(0);
    let pf = PF.parse().unwrap();
    let path = tree.device(PF).join("sriov_drivers_autoprobe");
    fs::remove_file(&path).unwrap();
    let error = tree.host().execute(&Step::SetAutoprobe { pf, on: false }).unwrap_err();
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    assert!(!path.exists(), "no file is created");
}

#[test]
fn an_unreadable_card_does_not_hide_others() {
    let tree = Tree::new(1);
    let other = tree.device("0000:09:00.0");
    for (name, text) in
        [("class", "0x020000"), ("vendor", "0x15b3"), ("sriov_totalvfs", "8"), ("sriov_numvfs", "x")]
    {
        write(&other.join(name), text);
    }
    let facts = tree.facts();
    assert_eq!((facts.pfs.len(), facts.pfs[0].address.to_string().as_str()), (1, PF));
    assert_eq!((facts.unreadable.len(), facts.unreadable[0].pf.to_string().as_str()), (1, "0000:09:00.0"));
}

#[test]
fn a_read_that_hangs_makes_its_card_unreadable() {
    let tree = Tree::new(0);
    let (path, host) =
        (tree.device(PF).join("numa_node"), tree.host().with_deadline(Duration::from_millis(300)));
    // A pipe without a writer behaves like a driver that hangs.
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    for reason in ["DeadlineExceeded", "StepStillRunning"] {
        let facts = host.facts().unwrap();
        assert_eq!((facts.pfs.len(), facts.unreadable[0].reason), (0, reason));
    }
}

#[test]
fn the_error_explains_that_vfio_needs_an_iommu() {
    let tree = Tree::new(1);
    let vf = tree.device("0000:01:10.0");
    fs::remove_file(vf.join("driver")).unwrap();
    write(&vf.join("driver_override"), "(null)\n");
    fs::create_dir_all(tree.root.path().join("sys/bus/pci/drivers/vfio-pci")).unwrap();
    write(&tree.root.path().join("sys/bus/pci/drivers_probe"), "");
    let step = Step::BindVf {
        vf: VfRef { pf: PF.parse().unwrap(), index: 0 },
        driver: VfDriver::Named("vfio-pci".to_owned()),
    };
    let error = tree.host().execute(&step).unwrap_err();
    assert_eq!(error.reason(), "NoIommu");
    assert!(error.to_string().contains("BIOS"), "{error}");
    assert_eq!(fs::read_to_string(vf.join("driver_override")).unwrap().trim(), "", "the override is reset");
}
