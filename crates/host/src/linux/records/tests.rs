use std::fs::File;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::linux::test_tree::TestTree;

const PF: &str = "0000:3b:00.0";
const OUR_FILE: &str = "/etc/sriov-operator/vfleet/pci/0000:3b:00.0";
const GO_FILE: &str = "/etc/sriov-operator/pci/0000:3b:00.0";
/// Record that the code of the Go daemon wrote, like all files in `go_daemon`.
const WRITTEN_BY_GO: &str = include_str!("../../../tests/go_daemon/one-policy/record-ens1f0.json");

fn record(num_vfs: i64) -> Record {
    let interface = json!({"pciAddress": PF, "numVfs": num_vfs, "name": "ens1f0"});
    let mut record = Record::taken_over(PF.parse().unwrap(), serde_json::from_value(interface).unwrap());
    record.original.mtu = Some(1500);
    record.raised_mtu = Some(9000);
    record
}

/// Sets the modification time of a file to `seconds` from now.
fn set_modified_later(tree: &TestTree, path: &str, seconds: u64) {
    let later = SystemTime::now() + Duration::from_secs(seconds);
    File::options().write(true).open(tree.path(path)).unwrap().set_modified(later).unwrap();
}

/// Returns the error of the only record.
fn only_error(tree: &TestTree) -> HostError {
    let [(_, record)] = read_all(tree.root()).unwrap().try_into().unwrap();
    record.unwrap_err()
}

fn records(tree: &TestTree) -> Vec<Record> {
    read_all(tree.root()).unwrap().into_iter().map(|(_, record)| record.unwrap()).collect()
}

#[test]
fn a_record_is_written_for_both_daemons_and_removed_for_both() {
    let tree = TestTree::new();
    write(tree.root(), &record(4)).unwrap();
    assert_eq!(records(&tree), [record(4)]);
    assert_eq!(tree.read(GO_FILE), format!(r#"{{"pciAddress":"{PF}","numVfs":4,"name":"ens1f0"}}"#));
    write(tree.root(), &record(6)).unwrap();
    assert_eq!(records(&tree), [record(6)]);
    remove(tree.root(), PF.parse().unwrap()).unwrap();
    remove(tree.root(), PF.parse().unwrap()).unwrap();
    assert!(!tree.path(OUR_FILE).exists() && !tree.path(GO_FILE).exists());
    assert!(records(&tree).is_empty());
}

#[test]
fn a_card_of_the_go_daemon_is_taken_over() {
    let tree = TestTree::new();
    tree.write(GO_FILE, WRITTEN_BY_GO);
    let [found] = records(&tree).try_into().unwrap();
    assert_eq!(found, Record::taken_over(PF.parse().unwrap(), serde_json::from_str(WRITTEN_BY_GO).unwrap()));
    assert_eq!((found.interface.num_vfs, found.is_external()), (Some(4), false));
    assert_eq!(found.interface.vf_groups.unwrap()[0].resource_name.as_deref(), Some("fast"));
}

#[test]
fn a_record_of_the_go_daemon_is_written_unchanged() {
    let written = [
        WRITTEN_BY_GO,
        include_str!("../../../tests/go_daemon/every-field/record-ens1f0.json"),
        include_str!("../../../tests/go_daemon/every-field/record-ens2f0.json"),
        include_str!("../../../tests/go_daemon/lab/record-enp1s0.json"),
    ];
    for text in written {
        let address = serde_json::from_str::<Interface>(text).unwrap().pci_address.to_string();
        let path = format!("/etc/sriov-operator/pci/{address}");
        let tree = TestTree::new();
        tree.write(&path, text);
        let [found] = records(&tree).try_into().unwrap();
        fs::remove_file(tree.path(&path)).unwrap();
        write(tree.root(), &found).unwrap();
        assert_eq!(tree.read(&path), text);
    }
}

#[test]
fn a_newer_file_of_the_go_daemon_counts_and_the_original_state_is_kept() {
    let tree = TestTree::new();
    write(tree.root(), &record(2)).unwrap();
    tree.write(GO_FILE, WRITTEN_BY_GO);
    set_modified_later(&tree, GO_FILE, 60);
    let [found] = records(&tree).try_into().unwrap();
    assert_eq!(found.interface.num_vfs, Some(4));
    assert_eq!((found.original.mtu, found.raised_mtu), (Some(1500), Some(9000)));
    // vfleet again.
    write(tree.root(), &record(2)).unwrap();
    assert_eq!(records(&tree), [record(2)]);
}

#[test]
fn a_crash_between_the_two_files_leaves_a_complete_record() {
    let tree = TestTree::new();
    tree.write(GO_FILE, WRITTEN_BY_GO);
    tree.write(OUR_FILE, &serde_json::to_string(&record(7)).unwrap());
    set_modified_later(&tree, OUR_FILE, 60);
    assert_eq!(records(&tree), [record(7)]);
    fs::remove_file(tree.path(GO_FILE)).unwrap();
    assert_eq!(records(&tree), [record(7)]);
}

#[test]
fn a_damaged_file_of_the_go_daemon_is_an_error_that_names_it() {
    let longer = format!("{WRITTEN_BY_GO}}}");
    for text in ["", "{", "null", "[]", "{}", &WRITTEN_BY_GO[..60], &longer] {
        let tree = TestTree::new();
        tree.write(GO_FILE, text);
        let error = only_error(&tree);
        assert_eq!(error.reason(), "RecordDamaged", "{text}");
        assert!(error.to_string().contains(GO_FILE), "{error}");
    }
}

#[test]
fn a_file_of_the_go_daemon_for_another_card_is_an_error() {
    let tree = TestTree::new();
    tree.write("/etc/sriov-operator/pci/0000:3b:00.1", WRITTEN_BY_GO);
    let error = only_error(&tree);
    assert_eq!(error.reason(), "RecordDamaged");
    assert!(crate::format_error_chain(&error).contains("it belongs to \"0000:3b:00.0\""), "{error}");
}

/// Damaged records: empty, truncated, of another type, and of another card.
const DAMAGED: [&str; 4] = [
    "",
    r#"{"pf":"0000:3b:00.0","inter"#,
    "[]",
    r#"{"pf":"0000:3b:00.1","interface":{"pciAddress":"0000:3b:00.1"},"firstSeen":{},"making":false}"#,
];

#[test]
fn the_file_of_the_go_daemon_replaces_a_damaged_record_until_it_is_written_again() {
    for text in DAMAGED {
        let tree = TestTree::new();
        write(tree.root(), &record(4)).unwrap();
        tree.write(OUR_FILE, text);
        let [found] = records(&tree).try_into().unwrap();
        assert_eq!(found, Record::taken_over(PF.parse().unwrap(), record(4).interface), "{text}");
        write(tree.root(), &record(4)).unwrap();
        assert_eq!(records(&tree), [record(4)]);
    }
}

#[test]
fn a_damaged_record_without_an_intact_copy_is_an_error_that_names_the_files_to_remove() {
    for text in DAMAGED {
        let tree = TestTree::new();
        tree.write(OUR_FILE, text);
        let alone = only_error(&tree).to_string();
        assert!(alone.contains(OUR_FILE) && !alone.contains(GO_FILE), "{alone}");
        tree.write(GO_FILE, "{");
        let both = only_error(&tree).to_string();
        assert!(both.contains(OUR_FILE) && both.contains(GO_FILE), "{both}");
        remove(tree.root(), PF.parse().unwrap()).unwrap();
        assert!(records(&tree).is_empty());
    }
}

#[test]
fn a_damaged_copy_of_an_intact_record_is_an_error_that_names_the_file_to_remove() {
    let tree = TestTree::new();
    write(tree.root(), &record(4)).unwrap();
    tree.write(GO_FILE, "{");
    let error = only_error(&tree).to_string();
    assert!(error.contains(&format!("remove it to use only {}", tree.path(OUR_FILE).display())), "{error}");
}

/// The cause may be temporary, so the copy is not used instead.
#[test]
fn a_record_that_cannot_be_read_for_another_reason_is_an_error() {
    let tree = TestTree::new();
    tree.write(GO_FILE, WRITTEN_BY_GO);
    fs::create_dir_all(tree.path(OUR_FILE)).unwrap();
    assert_eq!(only_error(&tree).reason(), "HostFileFailed");
}

#[test]
fn other_files_in_the_directory_of_the_go_daemon_are_ignored() {
    let tree = TestTree::new();
    tree.write("/etc/sriov-operator/pci/README", "hello");
    tree.write("/etc/sriov-operator/pci/.0000:3b:00.0.tmp", "{");
    assert!(records(&tree).is_empty());
}

proptest! {
    /// A file with one damaged byte and a truncated end is an error, or a record of the same card.
    #[test]
    fn accepts_damaged_files(at in 0..WRITTEN_BY_GO.len(), byte: u8, length in 0..400_usize, is_ours: bool) {
        let ours = serde_json::to_vec(&record(7)).unwrap();
        let (path, mut bytes) = if is_ours { (OUR_FILE, ours) } else { (GO_FILE, WRITTEN_BY_GO.into()) };
        if let Some(found) = bytes.get_mut(at) {
            *found = byte;
        }
        bytes.truncate(length);
        let tree = TestTree::new();
        tree.write(path, "");
        fs::write(tree.path(path), bytes).unwrap();
        let [(name, read)] = read_all(tree.root()).unwrap().try_into().unwrap();
        prop_assert_eq!(name.to_string(), PF);
        match read {
            Ok(record) => prop_assert_eq!(record.pf.to_string(), PF),
            Err(error) => prop_assert!(crate::format_error_chain(&error).contains(path), "{}", error),
        }
    }
}
