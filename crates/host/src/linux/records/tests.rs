use std::fs::File as FsFile;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::linux::tree::Tree;

const PF: &str = "0000:3b:00.0";
const OURS: &str = "/etc/sriov-operator/vfleet/pci/0000:3b:00.0";
const THEIRS: &str = "/etc/sriov-operator/pci/0000:3b:00.0";
/// A record by the Go daemon's own code, as all in `go_daemon`.
const WRITTEN_BY_GO: &str = include_str!("../../../tests/go_daemon/one-policy/record-ens1f0.json");

fn record(num_vfs: i64) -> Record {
    let interface = json!({"pciAddress": PF, "numVfs": num_vfs, "name": "ens1f0"});
    let mut record = Record::taken_over(PF.parse().unwrap(), serde_json::from_value(interface).unwrap());
    record.first_seen.mtu = Some(1500);
    record.raised_mtu = Some(9000);
    record
}

/// Sets when a file was written: so much later than now.
fn written_later(tree: &Tree, path: &str, seconds: u64) {
    let later = SystemTime::now() + Duration::from_secs(seconds);
    FsFile::options().write(true).open(tree.path(path)).unwrap().set_modified(later).unwrap();
}

/// The error of the one record that there is.
fn error(tree: &Tree) -> HostError {
    let [(_, record)] = read_all(tree.root()).unwrap().try_into().unwrap();
    record.unwrap_err()
}

fn records(tree: &Tree) -> Vec<Record> {
    read_all(tree.root()).unwrap().into_iter().map(|(_, record)| record.unwrap()).collect()
}

#[test]
fn a_record_is_written_for_both_daemons_and_removed_for_both() {
    let tree = Tree::new();
    write(tree.root(), &record(4)).unwrap();
    assert_eq!(records(&tree), [record(4)]);
    assert_eq!(tree.read(THEIRS), format!(r#"{{"pciAddress":"{PF}","numVfs":4,"name":"ens1f0"}}"#));
    write(tree.root(), &record(6)).unwrap();
    assert_eq!(records(&tree), [record(6)]);
    remove(tree.root(), PF.parse().unwrap()).unwrap();
    remove(tree.root(), PF.parse().unwrap()).unwrap();
    assert!(!tree.path(OURS).exists() && !tree.path(THEIRS).exists());
    assert!(records(&tree).is_empty());
}

#[test]
fn a_card_of_the_go_daemon_is_taken_over() {
    let tree = Tree::new();
    tree.write(THEIRS, WRITTEN_BY_GO);
    let [found] = records(&tree).try_into().unwrap();
    assert_eq!(found, Record::taken_over(PF.parse().unwrap(), serde_json::from_str(WRITTEN_BY_GO).unwrap()));
    assert_eq!((found.interface.num_vfs, found.is_external()), (Some(4), false));
    assert_eq!(found.interface.vf_groups.unwrap()[0].resource_name.as_deref(), Some("fast"));
}

#[test]
fn the_go_daemon_gets_its_record_back_as_it_wrote_it() {
    let written = [
        WRITTEN_BY_GO,
        include_str!("../../../tests/go_daemon/every-field/record-ens1f0.json"),
        include_str!("../../../tests/go_daemon/every-field/record-ens2f0.json"),
        include_str!("../../../tests/go_daemon/lab/record-enp1s0.json"),
    ];
    for text in written {
        let address = serde_json::from_str::<Interface>(text).unwrap().pci_address.to_string();
        let path = format!("/etc/sriov-operator/pci/{address}");
        let tree = Tree::new();
        tree.write(&path, text);
        let [found] = records(&tree).try_into().unwrap();
        fs::remove_file(tree.path(&path)).unwrap();
        write(tree.root(), &found).unwrap();
        assert_eq!(tree.read(&path), text);
    }
}

#[test]
fn what_the_go_daemon_did_after_us_counts_and_what_was_first_is_kept() {
    let tree = Tree::new();
    write(tree.root(), &record(2)).unwrap();
    tree.write(THEIRS, WRITTEN_BY_GO);
    written_later(&tree, THEIRS, 60);
    let [found] = records(&tree).try_into().unwrap();
    assert_eq!(found.interface.num_vfs, Some(4));
    assert_eq!((found.first_seen.mtu, found.raised_mtu), (Some(1500), Some(9000)));
    // And back again.
    write(tree.root(), &record(2)).unwrap();
    assert_eq!(records(&tree), [record(2)]);
}

#[test]
fn a_writer_that_was_cut_off_between_the_files_left_a_whole_record() {
    let tree = Tree::new();
    tree.write(THEIRS, WRITTEN_BY_GO);
    tree.write(OURS, &serde_json::to_string(&record(7)).unwrap());
    written_later(&tree, OURS, 60);
    assert_eq!(records(&tree), [record(7)]);
    fs::remove_file(tree.path(THEIRS)).unwrap();
    assert_eq!(records(&tree), [record(7)]);
}

#[test]
fn a_damaged_file_of_the_go_daemon_is_named_and_never_no_record() {
    let longer = format!("{WRITTEN_BY_GO}}}");
    for text in ["", "{", "null", "[]", "{}", &WRITTEN_BY_GO[..60], &longer] {
        let tree = Tree::new();
        tree.write(THEIRS, text);
        let error = error(&tree);
        assert_eq!(error.reason(), "RecordDamaged", "{text}");
        assert!(error.to_string().contains(THEIRS), "{error}");
    }
}

#[test]
fn a_file_of_the_go_daemon_for_another_card_is_an_error() {
    let tree = Tree::new();
    tree.write("/etc/sriov-operator/pci/0000:3b:00.1", WRITTEN_BY_GO);
    let error = error(&tree);
    assert_eq!(error.reason(), "RecordDamaged");
    assert!(crate::with_causes(&error).contains("it is about \"0000:3b:00.0\""), "{error}");
}

/// Empty, torn, of another form, and about another card.
const DAMAGED: [&str; 4] = [
    "",
    r#"{"pf":"0000:3b:00.0","inter"#,
    "[]",
    r#"{"pf":"0000:3b:00.1","interface":{"pciAddress":"0000:3b:00.1"},"firstSeen":{},"making":false}"#,
];

#[test]
fn the_go_daemons_copy_stands_for_a_damaged_record_until_it_is_written_again() {
    for text in DAMAGED {
        let tree = Tree::new();
        write(tree.root(), &record(4)).unwrap();
        tree.write(OURS, text);
        let [found] = records(&tree).try_into().unwrap();
        assert_eq!(found, Record::taken_over(PF.parse().unwrap(), record(4).interface), "{text}");
        write(tree.root(), &record(4)).unwrap();
        assert_eq!(records(&tree), [record(4)]);
    }
}

#[test]
fn a_damaged_record_without_an_intact_copy_is_an_error_that_says_what_to_remove() {
    for text in DAMAGED {
        let tree = Tree::new();
        tree.write(OURS, text);
        let alone = error(&tree).to_string();
        assert!(alone.contains(OURS) && !alone.contains(THEIRS), "{alone}");
        tree.write(THEIRS, "{");
        let both = error(&tree).to_string();
        assert!(both.contains(OURS) && both.contains(THEIRS), "{both}");
        remove(tree.root(), PF.parse().unwrap()).unwrap();
        assert!(records(&tree).is_empty());
    }
}

#[test]
fn a_damaged_copy_of_an_intact_record_is_an_error_that_says_what_to_remove() {
    let tree = Tree::new();
    write(tree.root(), &record(4)).unwrap();
    tree.write(THEIRS, "{");
    let error = error(&tree).to_string();
    assert!(error.contains(&format!("remove it to go by {}", tree.path(OURS).display())), "{error}");
}

/// It may be well in a moment: its copy does not stand for it.
#[test]
fn a_record_that_cannot_be_read_for_another_reason_is_an_error() {
    let tree = Tree::new();
    tree.write(THEIRS, WRITTEN_BY_GO);
    fs::create_dir_all(tree.path(OURS)).unwrap();
    assert_eq!(error(&tree).reason(), "HostFileFailed");
}

#[test]
fn what_else_is_in_the_go_daemons_directory_does_not_matter() {
    let tree = Tree::new();
    tree.write("/etc/sriov-operator/pci/README", "hello");
    tree.write("/etc/sriov-operator/pci/.0000:3b:00.0.tmp", "{");
    assert!(records(&tree).is_empty());
}

proptest! {
    /// Each file damaged in one place and cut: an error, or a record of this card.
    #[test]
    fn takes_damaged_files(at in 0..WRITTEN_BY_GO.len(), byte: u8, length in 0..400_usize, is_ours: bool) {
        let ours = serde_json::to_vec(&record(7)).unwrap();
        let (path, mut bytes) = if is_ours { (OURS, ours) } else { (THEIRS, WRITTEN_BY_GO.into()) };
        if let Some(found) = bytes.get_mut(at) {
            *found = byte;
        }
        bytes.truncate(length);
        let tree = Tree::new();
        tree.write(path, "");
        fs::write(tree.path(path), bytes).unwrap();
        let [(name, read)] = read_all(tree.root()).unwrap().try_into().unwrap();
        prop_assert_eq!(name.to_string(), PF);
        match read {
            Ok(record) => prop_assert_eq!(record.pf.to_string(), PF),
            Err(error) => prop_assert!(crate::with_causes(&error).contains(path), "{}", error),
        }
    }
}
