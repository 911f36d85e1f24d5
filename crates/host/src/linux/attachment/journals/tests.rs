use std::error::Error;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use proptest::prelude::*;
use vfleet_plan::cni::facts::{Namespace, NamespaceId};
use vfleet_plan::cni::journal::{DeviceChanges, Phase, RdmaChanges};

use super::*;
use crate::linux::test_tree::TestTree;

fn key(container_id: &str) -> AttachmentKey {
    AttachmentKey {
        plugin: Plugin::Infiniband,
        container_id: container_id.to_owned(),
        interface: "net1".to_owned(),
        device: Some("0000:01:10.0".parse().unwrap()),
    }
}

fn journal(container_id: &str) -> Journal {
    Journal {
        version: JOURNAL_VERSION,
        key: key(container_id),
        network: "fast".to_owned(),
        namespace: Namespace {
            path: "/run/netns/a".to_owned(),
            id: NamespaceId { device: 4, inode: 5, cookie: Some(6) },
        },
        boot_id: "b".to_owned(),
        phase: Phase::Attaching,
        pod: None,
        config: serde_json::Value::Null,
        cni_path: "/opt/cni/bin".to_owned(),
        changes: DeviceChanges::Rdma(RdmaChanges { rdma: "mlx5_2".to_owned() }),
        result: None,
    }
}

fn mode(tree: &TestTree, path: &str) -> u32 {
    fs::metadata(tree.path(path)).unwrap().permissions().mode() & 0o7777
}

#[test]
fn a_journal_is_private_and_lives_from_its_first_write_to_its_removal() {
    let tree = TestTree::new();
    let (root, key) = (tree.root(), key("0123"));
    assert_eq!((list(root).unwrap(), read(root, &key).unwrap()), (Vec::new(), None));
    remove(root, &key).unwrap();
    for phase in [Phase::Attaching, Phase::Attached] {
        let journal = Journal { phase, ..journal("0123") };
        write(root, &journal).unwrap();
        assert_eq!(read(root, &key).unwrap(), Some(journal));
    }
    assert_eq!(list(root).unwrap(), std::slice::from_ref(&key));
    let name = "/var/lib/cni/vfleet/ib-sriov:0123:net1:0000:01:10.0";
    assert_eq!((mode(&tree, name), mode(&tree, "/var/lib/cni/vfleet")), (0o600, 0o700));
    remove(root, &key).unwrap();
    assert!(!tree.path(name).exists());
}

#[test]
fn other_files_are_no_journals() {
    let tree = TestTree::new();
    let name = "sriov:0123:net1:0000:01:10.0";
    for other in [&format!(".{name}.tmp"), "lost+found", "sriov:0123:net1", "ovs:0123:net1:0000:01:10.0"] {
        tree.write(&format!("/var/lib/cni/vfleet/{other}"), "");
    }
    assert!(list(tree.root()).unwrap().is_empty());
    tree.write(&format!("/var/lib/cni/vfleet/{name}"), "");
    assert_eq!(list(tree.root()).unwrap().len(), 1, "a file that was cut off is listed");
}

#[test]
fn a_journal_that_cannot_be_read_is_an_error() {
    let tree = TestTree::new();
    let path = "/var/lib/cni/vfleet/ib-sriov:0123:net1:0000:01:10.0";
    let whole = serde_json::to_string(&journal("0123")).unwrap();
    let later = whole.replacen("\"version\":1", "\"version\":9", 1);
    let other = serde_json::to_string(&journal("4567")).unwrap();
    for text in ["", "{}", &whole[..whole.len() / 2], later.as_str(), other.as_str()] {
        tree.write(path, text);
        let error = read(tree.root(), &key("0123")).unwrap_err();
        assert_eq!(error.reason(), "JournalDamaged", "{text}");
        assert!(error.to_string().contains(path), "{error}");
    }
}

#[test]
fn a_journal_of_another_version_is_no_damaged_one() {
    let tree = TestTree::new();
    tree.write("/var/lib/cni/vfleet/ib-sriov:0123:net1:0000:01:10.0", r#"{"version":9,"other":{}}"#);
    let error = read(tree.root(), &key("0123")).unwrap_err();
    assert!(error.to_string().ends_with("install the version of vfleet that wrote it"), "{error}");
    assert_eq!(error.source().map(ToString::to_string).as_deref(), Some("it has the unknown version 9"));
}

#[test]
fn a_key_that_leads_out_of_the_directory_is_refused() {
    let tree = TestTree::new();
    for id in ["../x", "a/b", "a:b"] {
        let error = write(tree.root(), &journal(id)).unwrap_err();
        assert_eq!(error.reason(), "PathNotAllowed", "{id}");
    }
}

/// A directory in place of the draft stands for a disk without space: the draft cannot be written.
#[test]
fn a_journal_that_cannot_be_written_is_an_error_and_the_old_one_stays() {
    let tree = TestTree::new();
    let (attaching, name) = (journal("0123"), "ib-sriov:0123:net1:0000:01:10.0");
    write(tree.root(), &attaching).unwrap();
    fs::create_dir(tree.path(&format!("/var/lib/cni/vfleet/.{name}.tmp"))).unwrap();
    let attached = Journal { phase: Phase::Attached, ..attaching.clone() };
    assert_eq!(write(tree.root(), &attached).unwrap_err().reason(), "HostFileFailed");
    assert_eq!(read(tree.root(), &attaching.key).unwrap(), Some(attaching));
}

#[test]
fn checks_of_the_storage_at_the_same_time_do_not_disturb_each_other() {
    let tree = TestTree::new();
    std::thread::scope(|scope| {
        let check = || (0..50).try_for_each(|_| check_storage(tree.root()));
        let checks = [(); 4].map(|()| scope.spawn(check));
        for result in checks.map(|thread| thread.join().unwrap()) {
            result.unwrap();
        }
    });
    assert!(fs::read_dir(tree.path("/var/lib/cni/vfleet")).unwrap().next().is_none());
}

proptest! {
    #[test]
    fn any_name_that_is_parsed_is_the_name_of_its_key(
        name in "(sriov|ib-sriov|rdma|x)?:?[a-z./:]{0,6}:net[0-9./]{0,2}:(0000:01:10\\.0|0{3,9}:01:10\\.[0-9])?|\\PC{0,40}",
    ) {
        if let Some(key) = parse_file_name(&name) {
            prop_assert_eq!(file_name(&key), name.as_str());
        }
        let _ = parse_journal(name.as_bytes());
    }
}
