//! Files of a node (sysfs, procfs, records, GUIDs) and output of programs.

use std::sync::LazyLock;

use vfleet_api::VfRange;
use vfleet_host::{Host, SimHost, fuzzing};
use vfleet_plan::firmware::parse_query;
use vfleet_plan::{GuidDemand, GuidSource, HostFacts, Reboots};

use crate::driver::{Target, Verdict};

/// PF of the records in the corpus.
const PF: &str = "0000:3b:00.0";

/// Machine with an InfiniBand card and an Ethernet card.
pub(crate) static MACHINE: LazyLock<HostFacts> = LazyLock::new(|| {
    let yaml = include_str!("corpus/sim_machine/two-cards.yaml");
    SimHost::from_yaml(yaml, "fuzz").unwrap().facts().unwrap()
});

#[test]
fn sysfs_word() {
    const WORDS: &[&str] = &["0x", "pf0vf3", "c1pf0sf2", "virtfn", "(null)", "-1", "p0"];
    Target::new("sysfs_word").with_words(WORDS).run(|bytes| {
        let text = String::from_utf8_lossy(bytes);
        let text = text.trim_end();
        let numbers = fuzzing::sysfs_word(text);
        let decimal = |digits: Option<&str>| digits.and_then(|digits| digits.parse::<u128>().ok());
        let hex = |digits: &str| u128::from_str_radix(digits, 16).ok();
        let whole = decimal(Some(text));
        if let Some(count) = numbers.count {
            assert_eq!(whole, Some(count.into()));
        }
        if let Some(index) = numbers.index {
            assert_eq!((whole, index > 0), (Some(index.into()), true));
        }
        if let Some(port) = numbers.port {
            assert_eq!(text.strip_prefix("0x").map_or(whole, hex), Some(port.into()));
        }
        if let Some(id) = numbers.id {
            assert_eq!(text.strip_prefix("0x").and_then(hex), Some(id.into()));
        }
        if let Some(speed) = numbers.speed {
            assert_eq!(text.parse::<i128>().ok(), Some(speed.into()));
        }
        if let Some(vf) = numbers.virtfn {
            assert_eq!(decimal(text.strip_prefix("virtfn")), Some(vf.into()));
        }
        if let Some((pf, vf)) = numbers.vf_port {
            let (pf_digits, vf_digits) = text.strip_prefix("pf").unwrap().split_once("vf").unwrap();
            assert_eq!(
                (decimal(Some(pf_digits)), decimal(Some(vf_digits))),
                (Some(pf.into()), Some(vf.into()))
            );
        }
        Verdict::of(numbers.count.is_some() || numbers.id.is_some() || numbers.vf_port.is_some())
    });
}

#[test]
fn kernel_lists() {
    Target::new("kernel_lists").run(|bytes| {
        let text = String::from_utf8_lossy(bytes);
        let (_, is_locked_down) = (fuzzing::processor(&text), fuzzing::is_locked_down(&text));
        let modules = fuzzing::known_modules(&text);
        let mounted = fuzzing::mount_point(&text, "/dev/vdb");
        assert!(mounted.is_none_or(|path| text.contains(path) && !path.is_empty()));
        Verdict::of(is_locked_down.is_some() || !modules.is_empty() || mounted.is_some())
    });
}

#[test]
fn record() {
    Target::new("record").run(|bytes| {
        assert!(fuzzing::record(bytes, "0000:00:00.0").is_err(), "a record of another PF");
        let record = match fuzzing::record(bytes, PF) {
            Ok(record) => record,
            Err(error) => return check_error(&error),
        };
        assert_eq!(record.pf.to_string(), PF);
        let printed = serde_json::to_vec(&record).unwrap();
        assert_eq!(fuzzing::record(&printed, PF).unwrap(), record);
        Verdict::Accepted
    });
}

#[test]
fn go_record() {
    Target::new("go_record").run(|bytes| {
        let (pf, interface) = match fuzzing::go_record(bytes, PF) {
            Ok(found) => found,
            Err(error) => return check_error(&error),
        };
        assert_eq!((pf.to_string().as_str(), interface.pci_address.text()), (PF, PF));
        let printed = serde_json::to_vec(&interface).unwrap();
        assert_eq!(fuzzing::go_record(&printed, PF).unwrap(), (pf, interface));
        Verdict::Accepted
    });
}

#[test]
fn reboots() {
    Target::new("reboots").run(|bytes| {
        let Ok(reboots) = serde_json::from_slice::<Reboots>(bytes) else { return Verdict::Refused };
        let printed = serde_json::to_vec(&reboots).unwrap();
        assert_eq!(serde_json::from_slice::<Reboots>(&printed).unwrap(), reboots);
        Verdict::Accepted
    });
}

#[test]
fn guid_file() {
    const VFS: u16 = 20;
    Target::new("guid_file").run(|bytes| {
        let vfs = || VfRange::all(VFS).into_iter().collect();
        let demands: Vec<_> =
            MACHINE.pfs.iter().map(|pf| GuidDemand { pf: pf.address, vfs: vfs() }).collect();
        let text = String::from_utf8_lossy(bytes);
        let source = GuidSource::read(Some(&text), &MACHINE.pfs, &demands);
        assert!(source.has_file());
        assert!(source.errors_of_unknown_pfs().all(|error| !error.to_string().is_empty()));
        let mut guids = Vec::new();
        for (pf, demand) in MACHINE.pfs.iter().zip(&demands) {
            match source.check(pf, demand) {
                Ok(()) => guids.extend((0..VFS).map(|index| source.guid(pf, index))),
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
        assert!(guids.iter().all(|guid| guid.0 != [0; 8]), "{guids:?}");
        let count = guids.len();
        guids.sort();
        guids.dedup();
        assert_eq!(guids.len(), count, "a GUID for two VFs");
        Verdict::of(count > 0)
    });
}

#[test]
fn mstconfig() {
    Target::new("mstconfig").with_files("crates/plan/tests/mstconfig").run(|bytes| {
        let text = String::from_utf8_lossy(bytes);
        let facts = match parse_query(&text) {
            Ok(facts) => facts,
            Err(error) => {
                let message = error.to_string();
                assert!(!message.is_empty() && message.len() < text.len() + 1000, "{message}");
                return Verdict::Refused;
            }
        };
        for number in [facts.current.num_vfs, facts.next_boot.num_vfs].into_iter().flatten() {
            let has_it = |line: &str| {
                line.contains("NUM_OF_VFS")
                    && line
                        .split(|c: char| !c.is_ascii_digit())
                        .any(|word| word.parse() == Ok(u128::from(number)))
            };
            assert!(text.lines().any(has_it), "{number} VFs are nowhere in the text");
        }
        Verdict::Accepted
    });
}

/// Asserts that an error has a text.
fn check_error(error: &vfleet_host::HostError) -> Verdict {
    assert!(!error.to_string().is_empty() && !error.reason().is_empty());
    Verdict::Refused
}
