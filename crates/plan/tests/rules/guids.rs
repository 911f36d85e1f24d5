//! GUIDs for VFs: the administrator's file, and GUIDs that are made.

use std::collections::BTreeSet;

use proptest::prelude::*;
use vfleet_api::{Guid, MacAddr, PciAddress};
use vfleet_plan::{Fact, GuidFileError, GuidSource, LinkFacts, LinkKind, PfFacts, RdmaFacts};

fn pf(address: &str, node_guid: Option<&str>) -> PfFacts {
    PfFacts {
        address: address.parse().unwrap(),
        vendor: 0x15b3,
        device: 0x1017,
        driver: Some("mlx5_core".to_owned()),
        numa_node: None,
        total_vfs: 16,
        drivers_autoprobe: true,
        eswitch: Fact::None,
        tc_offload: None,
        rdma: node_guid
            .map(|guid| RdmaFacts { device: "mlx5_0".to_owned(), node_guid: guid.parse().unwrap() }),
        firmware: None,
        is_lone_vf: false,
        net_filter: vfleet_plan::Fact::None,
        link: None,
        vfs: Vec::new(),
    }
}

fn read(text: &str) -> Result<GuidSource, GuidFileError> {
    GuidSource::read(Some(text))
}

fn guid(text: &str) -> Guid {
    text.parse().unwrap()
}

/// The example of the file's description.
const EXAMPLE: &str = r#"[
  {"pci_address": "0000:3b:00.0", "guids": ["02:00:00:00:00:00:00:01", "02:00:00:00:00:00:00:02"]},
  {"pf_guid": "0c42:a103:0016:054c", "guidsRange": {"start": "02:00:00:00:00:aa:00:02", "end": "02:00:00:00:00:aa:00:0a"}}
]"#;

#[test]
fn a_list_goes_by_index() {
    let (source, pf) = (read(EXAMPLE).unwrap(), pf("0000:3b:00.0", None));
    source.check(&pf, 2).unwrap();
    assert_eq!(source.guid(&pf, 0), guid("02:00:00:00:00:00:00:01"));
    assert_eq!(source.guid(&pf, 1), guid("02:00:00:00:00:00:00:02"));
}

#[test]
fn both_ends_of_a_range_belong_to_it() {
    let (source, pf) = (read(EXAMPLE).unwrap(), pf("0000:5e:00.0", Some("0c:42:a1:03:00:16:05:4c")));
    source.check(&pf, 9).unwrap();
    assert_eq!(source.guid(&pf, 0), guid("02:00:00:00:00:aa:00:02"));
    assert_eq!(source.guid(&pf, 8), guid("02:00:00:00:00:aa:00:0a"));
    let error = source.check(&pf, 10).unwrap_err();
    assert_eq!(error.reason(), "TooFewGuids");
    let text = error.to_string();
    assert!(text.contains("entry 2 (0c:42:a1:03:00:16:05:4c): 10 VFs are wanted on 0000:5e:00.0"), "{text}");
    assert!(text.contains("9 GUIDs"), "{text}");
}

#[test]
fn camel_case_is_read_as_well() {
    let camel = EXAMPLE.replace("pci_address", "pciAddress").replace("pf_guid", "pfGuid");
    assert_eq!(read(&camel), read(EXAMPLE));
}

#[test]
fn empty_values_are_not_given() {
    let padded = r#"[{"pciAddress": "0000:3b:00.0", "pfGuid": "", "guids": ["02:00:00:00:00:00:00:01"],
        "guidsRange": null, "comment": "unknown fields do not matter"}]"#;
    read(padded).unwrap().check(&pf("0000:3b:00.0", None), 1).unwrap();
}

#[test]
fn a_pf_without_an_entry_is_named_with_its_guid() {
    let source = read(EXAMPLE).unwrap();
    let error = source.check(&pf("0000:af:00.1", Some("0c42:a103:0016:0550")), 1).unwrap_err();
    assert_eq!(error.reason(), "NoGuidsForPf");
    let text = error.to_string();
    assert!(text.contains("0000:af:00.1 (or its GUID 0c:42:a1:03:00:16:05:50)"), "{text}");
    let text = source.check(&pf("0000:af:00.1", Some("0000:0000:0000:0000")), 1).unwrap_err().to_string();
    assert!(text.contains("no entry for 0000:af:00.1: add one"), "{text}");
}

#[test]
fn the_first_entry_of_a_device_wins() {
    let twice = r#"[
      {"pci_address": "0000:3b:00.0", "guids": ["02:00:00:00:00:00:00:01"]},
      {"pciAddress": "0000:3B:00.0", "guids": ["02:00:00:00:00:00:00:01", "02:00:00:00:00:00:00:09"]}
    ]"#;
    let (source, port) = (read(twice).unwrap(), pf("0000:3b:00.0", None));
    source.check(&port, 1).unwrap();
    assert_eq!(source.guid(&port, 0), guid("02:00:00:00:00:00:00:01"));
    assert_eq!(source.check(&port, 2).unwrap_err().reason(), "TooFewGuids");

    let both_names = r#"[
      {"pf_guid": "0c42:a103:0016:054c", "guids": ["02:00:00:00:00:00:00:07"]},
      {"pci_address": "0000:3b:00.0", "guids": ["02:00:00:00:00:00:00:07"]}
    ]"#;
    let port = pf("0000:3b:00.0", Some("0c42:a103:0016:054c"));
    let source = read(both_names).unwrap();
    source.check(&port, 1).unwrap();
    assert_eq!(source.guid(&port, 0), guid("02:00:00:00:00:00:00:07"));
}

#[test]
fn a_guid_of_two_pfs_is_refused_for_both() {
    let shared = r#"[
      {"pci_address": "0000:3b:00.0", "guids": ["02:00:00:00:00:00:00:01", "02:00:00:00:00:00:00:05"]},
      {"pci_address": "0000:3b:00.1", "guidsRange": {"start": "02:00:00:00:00:00:00:04", "end": "02:00:00:00:00:00:00:06"}},
      {"pci_address": "0000:5e:00.0", "guids": ["02:00:00:00:00:00:00:07"]}
    ]"#;
    let source = read(shared).unwrap();
    for address in ["0000:3b:00.0", "0000:3b:00.1"] {
        let text = source.check(&pf(address, None), 1).unwrap_err().to_string();
        let expected = "02:00:00:00:00:00:00:05 is in entry 1 (0000:3b:00.0) and in entry 2 (0000:3b:00.1)";
        assert!(text.contains(expected), "{text}");
    }
    source.check(&pf("0000:5e:00.0", None), 1).unwrap();
}

#[test]
fn every_fault_names_its_entry() {
    let good = r#"{"pci_address": "0000:01:00.0", "guids": ["02:00:00:00:00:00:00:01"]}"#;
    let cases = [
        (r#""text""#, "entry 2: it is not an object"),
        (r#"{"pci_address": 7}"#, "entry 2: invalid type: integer `7`"),
        (r#"{"guids": ["02:00:00:00:00:00:00:02"]}"#, "entry 2: it must have exactly one of pci_address"),
        (
            r#"{"pci_address": "0000:3b:00.0", "pf_guid": "0c42:a103:0016:054c", "guids": ["02:00:00:00:00:00:00:02"]}"#,
            "entry 2 (0000:3b:00.0): it must have exactly one of pci_address",
        ),
        (
            r#"{"pci_address": "0000:3b:00.0", "pciAddress": "0000:3b:00.0", "guids": ["02:00:00:00:00:00:00:02"]}"#,
            "entry 2 (0000:3b:00.0): it must have exactly one of pci_address",
        ),
        (
            r#"{"pci_address": "3b:00.0", "guids": ["02:00:00:00:00:00:00:02"]}"#,
            r#"entry 2 (3b:00.0): "3b:00.0" is not a PCI address"#,
        ),
        (r#"{"pf_guid": "054c", "guids": []}"#, r#"entry 2 (054c): "054c" is not a GUID"#),
        (
            r#"{"pci_address": "0000:3b:00.0"}"#,
            "entry 2 (0000:3b:00.0): it must have exactly one of guids and guidsRange",
        ),
        (r#"{"pci_address": "0000:3b:00.0", "guids": []}"#, "exactly one of guids and guidsRange"),
        (
            r#"{"pci_address": "0000:3b:00.0", "guids": ["02:00:00:00:00:00:00:02"],
                "guidsRange": {"start": "02:00:00:00:00:00:00:02", "end": "02:00:00:00:00:00:00:02"}}"#,
            "entry 2 (0000:3b:00.0): it must have exactly one of guids and guidsRange",
        ),
        (
            r#"{"pci_address": "0000:3b:00.0", "guids": ["02:00:00:00:00:00:00:0x"]}"#,
            r#"entry 2 (0000:3b:00.0): "02:00:00:00:00:00:00:0x" is not a GUID"#,
        ),
        (
            r#"{"pci_address": "0000:3b:00.0", "guidsRange": {"start": "02:00:00:00:00:00:00:02"}}"#,
            "entry 2: missing field `end`",
        ),
        (
            r#"{"pci_address": "0000:3b:00.0",
                "guidsRange": {"start": "02:00:00:00:00:00:00:02", "end": "02:00:00:00:00:00:00:01"}}"#,
            "ends at 02:00:00:00:00:00:00:01, before its start 02:00:00:00:00:00:00:02",
        ),
        (
            r#"{"pci_address": "0000:3b:00.0", "guids": ["00:00:00:00:00:00:00:00"]}"#,
            "entry 2 (0000:3b:00.0): a GUID of zeros means none",
        ),
        (
            r#"{"pci_address": "0000:3b:00.0", "guids": ["02:00:00:00:00:00:00:02", "0200:0000:0000:0002"]}"#,
            "entry 2 (0000:3b:00.0): 02:00:00:00:00:00:00:02 is listed twice",
        ),
    ];
    for (entry, expected) in cases {
        let error = read(&format!("[{good}, {entry}]")).expect_err(entry);
        assert_eq!(error.reason(), "InvalidGuidFile", "{entry}");
        assert!(error.to_string().contains(expected), "{entry}: {error}");
    }
}

#[test]
fn what_is_no_list_is_refused_with_its_place() {
    for text in ["", "{}", "[", "[1,]", "null", "\u{0}"] {
        let error = read(text).unwrap_err();
        assert!(error.to_string().contains(" line 1 column "), "{text}: {error}");
    }
    assert_eq!(read("[]").unwrap().check(&pf("0000:3b:00.0", None), 1).unwrap_err().reason(), "NoGuidsForPf");
}

#[test]
fn the_greatest_range_takes_no_room_and_ends_where_it_ends() {
    let all = r#"[{"pci_address": "0000:3b:00.0",
        "guidsRange": {"start": "00:00:00:00:00:00:00:01", "end": "ff:ff:ff:ff:ff:ff:ff:ff"}}]"#;
    let port = pf("0000:3b:00.0", None);
    let source = read(all).unwrap();
    source.check(&port, u16::MAX).unwrap();
    assert_eq!(source.guid(&port, u16::MAX), guid("00:00:00:00:00:01:00:00"));

    let last = all.replace("00:00:00:00:00:00:00:01", "ff:ff:ff:ff:ff:ff:ff:fe");
    let source = read(&last).unwrap();
    source.check(&port, 2).unwrap();
    assert_eq!(source.guid(&port, 1), guid("ff:ff:ff:ff:ff:ff:ff:ff"));
    assert_eq!(source.check(&port, 3).unwrap_err().reason(), "TooFewGuids");
}

#[test]
fn without_a_file_guids_are_made_and_stay() {
    let source = GuidSource::read(None).unwrap();
    assert!(!source.is_file());
    let ports = [
        pf("0000:3b:00.0", Some("0c42:a103:0016:054c")),
        pf("0000:3b:00.1", Some("0c42:a103:0016:054c")),
        pf("0000:5e:00.0", Some("0c42:a103:0016:0550")),
    ];
    let mut seen = BTreeSet::new();
    for port in &ports {
        source.check(port, 2048).unwrap();
        for index in 0..2048 {
            let made = source.guid(port, index);
            assert_eq!(made.0[0] & 3, 2, "{made}");
            assert_eq!(made, source.guid(port, index));
            assert!(seen.insert(made), "{made} twice");
        }
    }
}

#[test]
fn a_pf_of_which_nothing_is_known_gets_no_guids_that_others_have_too() {
    let source = GuidSource::read(None).unwrap();
    let mut port = pf("0000:3b:00.0", Some("0000:0000:0000:0000"));
    assert_eq!(source.check(&port, 1).unwrap_err().reason(), "NoRdmaDevice");
    port.link = Some(LinkFacts {
        name: "ib0".to_owned(),
        alt_names: Vec::new(),
        is_named: true,
        kind: LinkKind::Infiniband,
        mac: None,
        permanent_mac: Some(MacAddr([0x0c, 0x42, 0xa1, 0, 0, 1])),
        mtu: 2044,
        max_mtu: None,
        admin_up: true,
        speed: None,
        switch_port: None,
        host_use: None,
    });
    source.check(&port, 1).unwrap();
}

fn any_guid() -> impl Strategy<Value = Guid> {
    prop_oneof![Just(0), Just(u64::MAX), any::<u64>(), (u64::MAX - 9)..]
        .prop_map(|number| Guid(number.to_be_bytes()))
}

proptest! {
    #![proptest_config(crate::config(2000))]

    #[test]
    fn any_text_is_read_or_refused(text in r#"[\[\]{}":,a-zA-Z0-9_. ]{0,60}|\PC{0,40}"#) {
        let _ = read(&text);
    }

    /// What is read can be used: as many GUIDs as there are, all different, none of them zero.
    #[test]
    fn any_range_is_refused_or_usable(start in any_guid(), end in any_guid(), count in 0..2000_u16) {
        let text = format!(
            r#"[{{"pci_address": "0000:3b:00.0", "guidsRange": {{"start": "{start}", "end": "{end}"}}}}]"#
        );
        let port = pf("0000:3b:00.0", None);
        let is_good = start.0 != [0; 8] && start <= end;
        prop_assert_eq!(read(&text).is_ok(), is_good);
        if let Ok(source) = read(&text) {
            let distance = u64::from_be_bytes(end.0) - u64::from_be_bytes(start.0);
            let is_enough = count == 0 || u64::from(count - 1) <= distance;
            prop_assert_eq!(source.check(&port, count).is_ok(), is_enough);
            if is_enough {
                let guids: BTreeSet<Guid> = (0..count).map(|index| source.guid(&port, index)).collect();
                prop_assert_eq!(guids.len(), usize::from(count));
                prop_assert!(guids.iter().all(|guid| start <= *guid && *guid <= end));
            }
        }
    }

    /// Two entries clash exactly when a GUID is in both, whether it is listed or in a range.
    #[test]
    fn entries_clash_when_they_share_a_guid(
        first in prop::collection::btree_set(1..30_u64, 1..6),
        second in prop::collection::btree_set(1..30_u64, 1..6),
        ranges in any::<[bool; 2]>(),
    ) {
        let (one, one_has) = entry("0000:3b:00.0", &first, ranges[0]);
        let (two, two_has) = entry("0000:3b:00.1", &second, ranges[1]);
        let source = read(&format!("[{one},{two}]")).unwrap();
        let clash = !one_has.is_disjoint(&two_has);
        for address in ["0000:3b:00.0", "0000:3b:00.1"] {
            prop_assert_eq!(source.check(&pf(address, None), 1).is_err(), clash);
        }
    }
}

/// An entry with these GUIDs, or with the range from the least to the greatest of them; and what it has then.
fn entry(address: &str, numbers: &BTreeSet<u64>, as_range: bool) -> (String, BTreeSet<u64>) {
    let text = |number: &u64| Guid(number.to_be_bytes()).to_string();
    let address: PciAddress = address.parse().unwrap();
    let (least, greatest) = (numbers.first().unwrap(), numbers.last().unwrap());
    if as_range {
        let range = format!(r#""guidsRange": {{"start": "{}", "end": "{}"}}"#, text(least), text(greatest));
        (format!(r#"{{"pci_address": "{address}", {range}}}"#), (*least..=*greatest).collect())
    } else {
        let list: Vec<String> = numbers.iter().map(|number| format!("\"{}\"", text(number))).collect();
        (format!(r#"{{"pci_address": "{address}", "guids": [{}]}}"#, list.join(",")), numbers.clone())
    }
}
