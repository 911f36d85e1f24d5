use serde_json::json;
use vfleet_plan::cni::facts::{Namespace, NamespaceId};
use vfleet_plan::cni::journal::{AttachmentKey, DeviceChanges, JOURNAL_VERSION, Phase, Plugin, RdmaChanges};

use super::*;

const PHASES: [Phase; 4] = [Phase::Attaching, Phase::Attached, Phase::Releasing, Phase::Returned];

/// Returns a journal whose texts contain what looks like its phase.
fn journal(phase: Phase, result: Option<Value>) -> Journal {
    Journal {
        version: JOURNAL_VERSION,
        key: AttachmentKey {
            plugin: Plugin::Sriov,
            container_id: "0123".to_owned(),
            interface: "net1".to_owned(),
            device: "0000:01:10.0".parse().unwrap(),
        },
        network: "\"phase\":\"attached\"".to_owned(),
        namespace: Namespace { path: "/run/netns/a".to_owned(), id: NamespaceId { device: 4, inode: 5 } },
        boot_id: "b".to_owned(),
        phase,
        pod: None,
        config: json!({ "phase": "attached", "phases": [{ "phase": "attaching" }] }),
        cni_path: "/opt/cni/bin".to_owned(),
        changes: DeviceChanges::Rdma(RdmaChanges { rdma: "mlx5_2".to_owned() }),
        result,
    }
}

fn text(phase: Phase, result: Option<Value>) -> JournalText {
    JournalText::new(&journal(phase, result)).unwrap()
}

/// Applies the first `count` writes to a file.
fn apply(old: &[u8], writes: &[InPlaceWrite<'_>], count: usize) -> Vec<u8> {
    let mut file = old.to_vec();
    for (at, bytes) in &writes[..count] {
        let at = usize::try_from(*at).unwrap();
        file.resize(file.len().max(at + bytes.len()), 0);
        file[at..at + bytes.len()].copy_from_slice(bytes);
    }
    file
}

#[test]
fn every_update_of_phase_and_result_is_in_place_and_whole_after_each_write() {
    let result = || Some(json!({ "ips": [] }));
    for (old_phase, new_phase) in PHASES.iter().flat_map(|old| PHASES.map(|new| (*old, new))) {
        for (old_result, new_result) in [(None, None), (None, result()), (result(), result())] {
            let old = text(old_phase, old_result.clone()).to_bytes();
            let new = text(new_phase, new_result.clone());
            let writes = new.changes_of(&old).unwrap();
            assert_eq!(writes.is_empty(), new.to_bytes() == old);
            assert_eq!(apply(&old, &writes, writes.len()), new.to_bytes());
            for count in 0..=writes.len() {
                let found = parse(&apply(&old, &writes, count)).unwrap();
                assert!(found == journal(found.phase, found.result.clone()), "{found:?}");
                assert!([old_phase, new_phase].contains(&found.phase), "{found:?}");
                assert!(found.phase == old_phase || found.result == new_result, "the result is the first");
            }
        }
    }
}

#[test]
fn another_difference_is_no_update() {
    let old = text(Phase::Attached, Some(json!({ "ips": [] }))).to_bytes();
    let other_result = text(Phase::Attached, Some(json!({ "dns": {} })));
    let moved = Journal { boot_id: "c".to_owned(), ..journal(Phase::Attached, None) };
    let longer = Journal { cni_path: String::new(), ..journal(Phase::Attached, None) };
    for new in [other_result, JournalText::new(&moved).unwrap(), JournalText::new(&longer).unwrap()] {
        assert_eq!(new.changes_of(&old), None);
    }
    let plain = serde_json::to_vec(&journal(Phase::Attaching, None)).unwrap();
    for old in [&b""[..], b"{}", &plain] {
        assert_eq!(text(Phase::Attaching, None).changes_of(old), None);
    }
}

#[test]
fn a_result_that_was_cut_off_is_ignored_and_a_journal_that_was_cut_off_is_an_error() {
    let whole = text(Phase::Attached, Some(json!({ "ips": [] })));
    let (bytes, line) = (whole.to_bytes(), whole.line.len());
    for length in 0..line - 1 {
        assert!(parse(&bytes[..length]).is_err(), "{length}");
    }
    for length in line - 1..bytes.len() - 2 {
        assert_eq!(parse(&bytes[..length]).unwrap(), journal(Phase::Attached, None), "{length}");
    }
    assert_eq!(parse(&bytes).unwrap(), journal(Phase::Attached, Some(json!({ "ips": [] }))));
    let of_one_line = serde_json::to_vec(&journal(Phase::Attached, Some(json!(7)))).unwrap();
    assert_eq!(parse(&of_one_line).unwrap().result, Some(json!(7)));
}
