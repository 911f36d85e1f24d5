//! GUIDs of VFs: from the administrator's file, or derived.

use std::collections::BTreeSet;

use proptest::prelude::*;
use vfleet_api::{Guid, MacAddr, PciAddress, VfRange};
use vfleet_plan::{Fact, GuidDemand, GuidFileError, GuidSource, LinkFacts, LinkKind, PfFacts, RdmaFacts};

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
        rdma: node_guid.map(|guid| RdmaFacts {
            device: "mlx5_0".to_owned(),
            node_guid: guid.parse().unwrap(),
            port_guid: None,
        }),
        firmware: None,
        is_lone_vf: false,
        net_filter: vfleet_plan::Fact::None,
        link: None,
        vfs: Vec::new(),
    }
}

fn with_port_guid(mut pf: PfFacts, port_guid: &str) -> PfFacts {
    pf.rdma.as_mut().unwrap().port_guid = Some(guid(port_guid));
    pf
}

/// Returns the GUIDs of the first VFs of a PF, where `text` is the file of a machine with these PFs and numbers of VFs.
fn give(text: Option<&str>, machine: &[(&PfFacts, u16)], of: usize) -> Result<Vec<Guid>, GuidFileError> {
    let pfs: Vec<PfFacts> = machine.iter().map(|(pf, _)| (*pf).clone()).collect();
    let demand = |(pf, count): &(&PfFacts, u16)| GuidDemand {
        pf: pf.address,
        vfs: VfRange::all(*count).into_iter().collect(),
    };
    let demands: Vec<_> = machine.iter().map(demand).collect();
    let source = GuidSource::read(text, &pfs, &demands);
    source.check(&pfs[of], &demands[of])?;
    Ok((0..machine[of].1).map(|index| source.guid(&pfs[of], index)).collect())
}

/// Returns the GUIDs on a machine with one PF.
fn give_one(text: &str, pf: &PfFacts, count: u16) -> Result<Vec<Guid>, GuidFileError> {
    give(Some(text), &[(pf, count)], 0)
}

fn guid(text: &str) -> Guid {
    text.parse().unwrap()
}

/// Example of the documentation.
const EXAMPLE: &str = r#"[
  {"pci_address": "0000:3b:00.0", "guids": ["02:00:00:00:00:00:00:01", "02:00:00:00:00:00:00:02"]},
  {"pf_guid": "0c42:a103:0016:054c", "guidsRange": {"start": "02:00:00:00:00:aa:00:02", "end": "02:00:00:00:00:aa:00:0a"}}
]"#;

#[test]
fn a_list_is_ordered_by_index() {
    let given = give_one(EXAMPLE, &pf("0000:3b:00.0", None), 2).unwrap();
    assert_eq!(given, [guid("02:00:00:00:00:00:00:01"), guid("02:00:00:00:00:00:00:02")]);
}

#[test]
fn both_ends_of_a_range_belong_to_it() {
    let pf = pf("0000:5e:00.0", Some("0c:42:a1:03:00:16:05:4c"));
    let given = give_one(EXAMPLE, &pf, 9).unwrap();
    assert_eq!((given[0], given[8]), (guid("02:00:00:00:00:aa:00:02"), guid("02:00:00:00:00:aa:00:0a")));
    let error = give_one(EXAMPLE, &pf, 10).unwrap_err();
    assert_eq!(error.reason(), "TooFewGuids");
    let text = error.to_string();
    assert!(
        text.contains("entry 2 (0c42:a103:0016:054c): 10 VFs are requested on PF 0000:5e:00.0"),
        "{text}"
    );
    assert!(text.contains("9 GUIDs"), "{text}");
}

/// Both examples are for the same two PFs.
#[test]
fn the_examples_of_the_documentation_are_read() {
    let page = include_str!("../../../../docs/infiniband-guids.md");
    let examples: Vec<&str> =
        page.split("```json\n").skip(1).filter_map(|rest| Some(rest.split_once("```")?.0)).collect();
    assert_eq!(examples.len(), 2);
    let pfs = [pf("0000:3b:00.0", None), pf("0000:5e:00.0", Some("0c42:a103:0016:054c"))];
    for example in examples {
        for of in [0, 1] {
            assert_eq!(give(Some(example), &[(&pfs[0], 2), (&pfs[1], 2)], of).unwrap().len(), 2, "{example}");
        }
    }
}

#[test]
fn guids_are_needed_only_for_configured_vfs() {
    let pf = pf("0000:3b:00.0", None);
    let pfs = [pf.clone()];
    let source = GuidSource::read(Some(EXAMPLE), &pfs, &[]);
    let demand = |range: &str| GuidDemand { pf: pf.address, vfs: vec![range.parse().unwrap()] };
    source.check(&pf, &demand("0-1")).unwrap();
    assert_eq!(source.check(&pf, &demand("2-3")).unwrap_err().reason(), "TooFewGuids");
}

#[test]
fn field_names_are_case_insensitive() {
    let pf = pf("0000:5e:00.0", Some("0c42:a103:0016:054c"));
    let expected = give_one(EXAMPLE, &pf, 9).unwrap();
    for [pf_guid, range, start] in [
        ["pfGuid", "guidsRange", "start"],
        ["PFGUID", "GUIDSRANGE", "Start"],
        ["PfGuid", "guids_range", "START"],
    ] {
        let file = EXAMPLE.replace("pf_guid", pf_guid).replace("guidsRange", range).replace("start", start);
        assert_eq!(give_one(&file, &pf, 9).unwrap(), expected, "{file}");
    }
    let twice = r#"[{"pciAddress": "0000:5e:00.0", "pci_address": "0000:5E:00.0", "guids": ["0x1"], "GUIDs": ["0x1"]}]"#;
    assert_eq!(give_one(twice, &pf, 1).unwrap(), [guid("00:00:00:00:00:00:00:01")]);
}

#[test]
fn guids_are_read_in_every_notation() {
    let pf = pf("0000:3b:00.0", None);
    for text in [
        "02:00:00:00:00:Aa:00:02",
        "02-00-00-00-00-aa-00-02",
        "02.00.00.00.00.aa.00.02",
        "0200.0000.00aa.0002",
        "0200:0000:00aa:0002",
        "0200-0000-00AA-0002",
        "0x0200000000aa0002",
        "0X200000000AA0002",
        "0200000000aa0002",
    ] {
        let file = format!(r#"[{{"pciAddress": "0000:3b:00.0", "guids": ["{text}"]}}]"#);
        assert_eq!(give_one(&file, &pf, 1), Ok(vec![guid("02:00:00:00:00:aa:00:02")]), "{text}");
    }
    for text in [
        "200000000aa0002",
        "02:00:00:00:00:aa:00",
        "02:00:00:00:00:aa-00-02",
        "0200:0000:00aa:00:02",
        "0x0200:0000:00aa:0002",
        "0x",
        "0x10200000000aa0002",
        "+200000000aa0002",
        "0200000000aa000é",
        ":",
    ] {
        let file = format!(r#"[{{"pciAddress": "0000:3b:00.0", "guids": ["{text}"]}}]"#);
        assert_eq!(give_one(&file, &pf, 1).unwrap_err().reason(), "InvalidGuidFile", "{text}");
    }
}

#[test]
fn a_pf_is_named_by_its_node_guid_its_port_guid_or_its_ipoib_interface() {
    let node = pf("0000:3b:00.0", Some("0c42:a103:0016:054c"));
    let port = with_port_guid(pf("0000:3b:00.0", Some("0c42:a103:0016:0001")), "0c42:a103:0016:054c");
    for name in [
        "0c42:a103:0016:054c",
        "0x0c42a1030016054c",
        "00:00:10:29:fe:80:00:00:00:00:00:00:0c:42:a1:03:00:16:05:4c",
        "a0-00-02-20-fe-80-00-00-00-00-00-01-0c-42-a1-03-00-16-05-4c",
    ] {
        let file = format!(r#"[{{"pfGuid": "{name}", "guids": ["0x7"]}}]"#);
        for pf in [&node, &port] {
            assert_eq!(give_one(&file, pf, 1).unwrap(), [guid("00:00:00:00:00:00:00:07")], "{name}");
        }
        // The node GUID of any PF comes before the port GUID of any other.
        let other = PfFacts { address: "0000:5e:00.0".parse().unwrap(), ..port.clone() };
        let machine = [(&other, 1), (&node, 1)];
        assert_eq!(give(Some(&file), &machine, 0).unwrap_err().reason(), "NoGuidsForPf", "{name}");
        assert_eq!(give(Some(&file), &machine, 1).unwrap(), [guid("00:00:00:00:00:00:00:07")], "{name}");
    }
}

#[test]
fn empty_values_count_as_missing() {
    let padded = r#"[{"pciAddress": "0000:3b:00.0", "pfGuid": "", "guids": ["02:00:00:00:00:00:00:01"],
        "guidsRange": null, "comment": "unknown fields do not matter"}]"#;
    give_one(padded, &pf("0000:3b:00.0", None), 1).unwrap();
    give_one(&padded.replace("null", r#"{"start": ""}"#), &pf("0000:3b:00.0", None), 1).unwrap();
}

#[test]
fn a_pf_without_an_entry_is_reported_with_its_guid() {
    let error = give_one(EXAMPLE, &pf("0000:af:00.1", Some("0c42:a103:0016:0550")), 1).unwrap_err();
    assert_eq!(error.reason(), "NoGuidsForPf");
    let text = error.to_string();
    assert!(text.contains("0000:af:00.1 (or its GUID 0c:42:a1:03:00:16:05:50)"), "{text}");
    let text =
        give_one(EXAMPLE, &pf("0000:af:00.1", Some("0000:0000:0000:0000")), 1).unwrap_err().to_string();
    assert!(text.contains("no entry for 0000:af:00.1: add one"), "{text}");
}

#[test]
fn the_first_entry_of_a_device_wins() {
    let twice = r#"[
      {"pci_address": "0000:3b:00.0", "guids": ["02:00:00:00:00:00:00:01"]},
      {"pciAddress": "0000:3B:00.0", "guids": ["02:00:00:00:00:00:00:01", "02:00:00:00:00:00:00:09"]}
    ]"#;
    let port = pf("0000:3b:00.0", None);
    assert_eq!(give_one(twice, &port, 1).unwrap(), [guid("02:00:00:00:00:00:00:01")]);
    assert_eq!(give_one(twice, &port, 2).unwrap_err().reason(), "TooFewGuids");

    let both_names = r#"[
      {"pf_guid": "0c42:a103:0016:054c", "guids": ["02:00:00:00:00:00:00:07"]},
      {"pci_address": "0000:3b:00.0", "guids": ["02:00:00:00:00:00:00:07"]}
    ]"#;
    let port = pf("0000:3b:00.0", Some("0c42:a103:0016:054c"));
    assert_eq!(give_one(both_names, &port, 1).unwrap(), [guid("02:00:00:00:00:00:00:07")]);
}

#[test]
fn a_guid_that_two_vfs_would_get_is_refused_for_both() {
    let shared = r#"[
      {"pci_address": "0000:3b:00.0", "guids": ["02:00:00:00:00:00:00:01", "02:00:00:00:00:00:00:05"]},
      {"pci_address": "0000:3b:00.1", "guidsRange": {"start": "02:00:00:00:00:00:00:04", "end": "02:00:00:00:00:00:00:06"}},
      {"pci_address": "0000:5e:00.0", "guids": ["02:00:00:00:00:00:00:07"]}
    ]"#;
    let pfs = [pf("0000:3b:00.0", None), pf("0000:3b:00.1", None), pf("0000:5e:00.0", None)];
    let machine = |first, second| [(&pfs[0], first), (&pfs[1], second), (&pfs[2], 1)];
    for of in [0, 1] {
        let text = give(Some(shared), &machine(2, 2), of).unwrap_err().to_string();
        let expected = "02:00:00:00:00:00:00:05 belongs to VF 1 of 0000:3b:00.0, by entry 1 (0000:3b:00.0) \
                        and to VF 1 of 0000:3b:00.1, by entry 2 (0000:3b:00.1)";
        assert!(text.contains(expected), "{text}");
    }
    give(Some(shared), &machine(2, 2), 2).unwrap();
    for counts in [(1, 2), (2, 1), (0, 3)] {
        for of in 0..3 {
            give(Some(shared), &machine(counts.0, counts.1), of).unwrap();
        }
    }
    // A PF that is not desired has no VFs, even if the file has an entry.
    give(Some(shared), &[(&pfs[0], 2)], 0).unwrap();
}

#[test]
fn a_guid_twice_in_a_list_is_refused_where_two_vfs_would_get_it() {
    let twice = r#"[{"pci_address": "0000:3b:00.0", "guids": ["0x1", "0x2", "0200:0000:0000:0002", "0x2"]}]"#;
    let port = pf("0000:3b:00.0", None);
    give_one(twice, &port, 3).unwrap();
    let text = give_one(twice, &port, 4).unwrap_err().to_string();
    assert!(
        text.contains("belongs to VF 1 of 0000:3b:00.0, by entry 1 (0000:3b:00.0) and to VF 3 of"),
        "{text}"
    );
}

#[test]
fn one_entry_for_two_pfs_is_refused() {
    let file = r#"[{"pf_guid": "0c42:a103:0016:054c", "guids": ["0x1", "0x2"]}]"#;
    let pfs = ["0000:3b:00.0", "0000:3b:00.1"].map(|address| pf(address, Some("0c42:a103:0016:054c")));
    let error = give(Some(file), &[(&pfs[0], 1), (&pfs[1], 1)], 1).unwrap_err();
    assert_eq!(error.reason(), "InvalidGuidFile");
    give(Some(file), &[(&pfs[0], 1), (&pfs[1], 0)], 0).unwrap();
}

/// Entries with a fault, and its message.
const FAULTS_OF_A_PF: &[(&str, &str)] = &[
    (
        r#"{"pci_address": "0000:3b:00.0", "pf_guid": "0c42:a103:0016:054c", "guids": ["02:00:00:00:00:00:00:02"]}"#,
        "entry 2 (0000:3b:00.0): exactly one of pci_address",
    ),
    (
        r#"{"pci_address": "0000:3b:00.0", "pciAddress": "0000:3b:00.1", "guids": ["02:00:00:00:00:00:00:02"]}"#,
        "exactly one of pci_address",
    ),
    (r#"{"pci_address": "0000:3b:00.0"}"#, "entry 2 (0000:3b:00.0): exactly one of guids and guidsRange"),
    (r#"{"pci_address": "0000:3b:00.0", "guids": []}"#, "exactly one of guids and guidsRange"),
    (r#"{"pci_address": "0000:3b:00.0", "guids": "0x1"}"#, "entry 2 (0000:3b:00.0): guids is not a list"),
    (
        r#"{"pci_address": "0000:3b:00.0", "guids": [1]}"#,
        "entry 2 (0000:3b:00.0): a GUID is 1 and not a string",
    ),
    (
        r#"{"pci_address": "0000:3b:00.0", "guids": ["02:00:00:00:00:00:00:02"],
            "guidsRange": {"start": "02:00:00:00:00:00:00:02", "end": "02:00:00:00:00:00:00:02"}}"#,
        "entry 2 (0000:3b:00.0): exactly one of guids and guidsRange",
    ),
    (
        r#"{"pci_address": "0000:3b:00.0", "guids": ["02:00:00:00:00:00:00:0x"]}"#,
        r#"entry 2 (0000:3b:00.0): "02:00:00:00:00:00:00:0x" is not a GUID"#,
    ),
    (
        r#"{"pci_address": "0000:3b:00.0", "guidsRange": {"start": "02:00:00:00:00:00:00:02"}}"#,
        "entry 2 (0000:3b:00.0): guidsRange must have exactly one end",
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
];

#[test]
fn a_bad_entry_affects_only_the_pfs_that_it_names() {
    let good = r#"{"pci_address": "0000:01:00.0", "guids": ["02:00:00:00:00:00:00:01"]}"#;
    let last = r#"{"pci_address": "0000:02:00.0", "guids": ["02:00:00:00:00:00:00:0a"]}"#;
    let pfs = ["0000:01:00.0", "0000:3b:00.0", "0000:02:00.0"].map(|address| pf(address, None));
    let machine = [(&pfs[0], 1), (&pfs[1], 1), (&pfs[2], 1)];
    for (entry, expected) in FAULTS_OF_A_PF {
        let file = format!("[{good}, {entry}, {last}]");
        let error = give(Some(&file), &machine, 1).expect_err(entry);
        assert_eq!(error.reason(), "InvalidGuidFile", "{entry}");
        assert!(error.to_string().contains(expected), "{entry}: {error}");
        for of in [0, 2] {
            give(Some(&file), &machine, of).expect(entry);
        }
        assert_eq!(GuidSource::read(Some(&file), &[], &[]).errors_of_unknown_pfs().count(), 0, "{entry}");
    }
    // An entry that names two PFs affects both.
    let both = r#"[{"pci_address": "0000:01:00.0", "pf_guid": "0c42:a103:0016:054c", "guids": ["0x1"]},
        {"pci_address": "0000:3b:00.0", "guids": ["0x2"]}]"#;
    let pfs = [pf("0000:01:00.0", None), pf("0000:3b:00.0", Some("0c42:a103:0016:054c"))];
    for of in [0, 1] {
        give(Some(both), &[(&pfs[0], 1), (&pfs[1], 1)], of).unwrap_err();
    }
}

#[test]
fn an_entry_with_an_invalid_pf_affects_every_pf_without_an_earlier_entry() {
    let good = r#"{"pci_address": "0000:01:00.0", "guids": ["02:00:00:00:00:00:00:01"]}"#;
    let last = r#"{"pci_address": "0000:02:00.0", "guids": ["02:00:00:00:00:00:00:0a"]}"#;
    let pfs = ["0000:01:00.0", "0000:02:00.0", "0000:03:00.0"].map(|address| pf(address, None));
    let machine = [(&pfs[0], 1), (&pfs[1], 1), (&pfs[2], 1)];
    for (entry, expected) in [
        (r#""text""#, "entry 2: not an object"),
        (r#"{"pci_address": 7}"#, "entry 2: pciAddress is 7 and not a string"),
        (r#"{"guids": ["02:00:00:00:00:00:00:02"]}"#, "entry 2: exactly one of pci_address"),
        (
            r#"{"pci_address": "3b:00.0", "guids": ["02:00:00:00:00:00:00:02"]}"#,
            r#"entry 2 (3b:00.0): "3b:00.0" is not a PCI address"#,
        ),
        (r#"{"pf_guid": "054c", "guids": []}"#, r#"entry 2 (054c): "054c" is not a GUID"#),
        (
            r#"{"pci_address": "0000:01:00.0", "pf_guid": "054c", "guids": ["0x2"]}"#,
            r#""054c" is not a GUID such as 02:00:00:00:00:aa:00:02, or the 20-byte hardware address"#,
        ),
    ] {
        let file = format!("[{good}, {entry}, {last}]");
        give(Some(&file), &machine, 0).expect(entry);
        for of in [1, 2] {
            let error = give(Some(&file), &machine, of).expect_err(entry);
            assert_eq!(error.reason(), "InvalidGuidFile", "{entry}");
            assert!(error.to_string().contains(expected), "{entry}: {error}");
        }
        let source = GuidSource::read(Some(&file), &[], &[]);
        let faults: Vec<String> = source.errors_of_unknown_pfs().map(|error| error.to_string()).collect();
        assert!(faults.len() == 1 && faults[0].contains(expected), "{faults:?}");
    }
}

#[test]
fn a_file_that_is_no_list_is_refused_with_line_and_column() {
    let port = pf("0000:3b:00.0", None);
    for text in ["", "{}", "[", "[1,]", "null", "\u{0}"] {
        let error = give_one(text, &port, 1).unwrap_err();
        assert!(error.to_string().contains(" line 1 column "), "{text}: {error}");
    }
    assert_eq!(give_one("[]", &port, 1).unwrap_err().reason(), "NoGuidsForPf");
}

#[test]
fn the_largest_range_needs_no_memory() {
    let all = r#"[{"pci_address": "0000:3b:00.0",
        "guidsRange": {"start": "00:00:00:00:00:00:00:01", "end": "ff:ff:ff:ff:ff:ff:ff:ff"}}]"#;
    let port = pf("0000:3b:00.0", None);
    let given = give_one(all, &port, u16::MAX).unwrap();
    assert_eq!(given.last(), Some(&guid("00:00:00:00:00:00:ff:ff")));

    let last = all.replace("00:00:00:00:00:00:00:01", "ff:ff:ff:ff:ff:ff:ff:fe");
    assert_eq!(give_one(&last, &port, 2).unwrap()[1], guid("ff:ff:ff:ff:ff:ff:ff:ff"));
    assert_eq!(give_one(&last, &port, 3).unwrap_err().reason(), "TooFewGuids");
}

#[test]
fn without_a_file_guids_are_derived_and_stable() {
    assert!(!GuidSource::read(None, &[], &[]).has_file());
    let ports = [
        pf("0000:3b:00.0", Some("0c42:a103:0016:054c")),
        pf("0000:3b:00.1", Some("0c42:a103:0016:054c")),
        pf("0000:5e:00.0", Some("0c42:a103:0016:0550")),
    ];
    let machine = [(&ports[0], 2048), (&ports[1], 2048), (&ports[2], 2048)];
    let mut unique = BTreeSet::new();
    for of in 0..ports.len() {
        let derived = give(None, &machine, of).unwrap();
        assert_eq!(derived, give(None, &machine, of).unwrap());
        for derived in derived {
            assert_eq!(derived.0[0] & 3, 2, "{derived}");
            assert!(unique.insert(derived), "{derived} twice");
        }
    }
}

#[test]
fn a_pf_without_identity_gets_no_guids() {
    let mut port = pf("0000:3b:00.0", Some("0000:0000:0000:0000"));
    assert_eq!(give(None, &[(&port, 1)], 0).unwrap_err().reason(), "NoRdmaDevice");
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
        has_carrier: true,
        speed: None,
        switch_port: None,
        master: None,
        host_use: None,
        possible_use: None,
    });
    give(None, &[(&port, 1)], 0).unwrap();
}

fn any_guid() -> impl Strategy<Value = Guid> {
    prop_oneof![Just(0), Just(u64::MAX), any::<u64>(), (u64::MAX - 9)..]
        .prop_map(|number| Guid(number.to_be_bytes()))
}

proptest! {
    #![proptest_config(crate::config(2000))]

    #[test]
    fn any_text_is_read_or_refused(text in r#"[\[\]{}":,a-zA-Z0-9_. ]{0,60}|\PC{0,40}"#) {
        let _ = give_one(&text, &pf("0000:3b:00.0", None), 1);
        let quoted = serde_json::to_string(&text).unwrap();
        let file = format!(r#"[{{"pciAddress": "0000:3b:00.0", "guids": [{quoted}]}}, {{"pfGuid": {quoted}}}]"#);
        let _ = give_one(&file, &pf("0000:3b:00.1", None), 1);
    }

    /// All GUIDs that are read can be used: they are distinct and not zero.
    #[test]
    fn any_range_is_refused_or_usable(start in any_guid(), end in any_guid(), count in 0..2000_u16) {
        let text = format!(
            r#"[{{"pci_address": "0000:3b:00.0", "guidsRange": {{"start": "{start}", "end": "{end}"}}}}]"#
        );
        let given = give_one(&text, &pf("0000:3b:00.0", None), count);
        let is_good = start.0 != [0; 8] && start <= end;
        let distance = u64::from_be_bytes(end.0).saturating_sub(u64::from_be_bytes(start.0));
        let is_enough = count == 0 || u64::from(count - 1) <= distance;
        prop_assert_eq!(given.is_ok(), is_good && is_enough);
        if let Ok(given) = given {
            let guids: BTreeSet<Guid> = given.into_iter().collect();
            prop_assert_eq!(guids.len(), usize::from(count));
            prop_assert!(guids.iter().all(|guid| start <= *guid && *guid <= end));
        }
    }

    /// Two PFs are refused exactly if a VF of each would get the same GUID, from a list or a range.
    #[test]
    fn pfs_clash_when_two_vfs_would_get_one_guid(
        first in prop::collection::btree_set(1..30_u64, 1..6),
        second in prop::collection::btree_set(1..30_u64, 1..6),
        ranges in any::<[bool; 2]>(),
        counts in any::<[prop::sample::Index; 2]>(),
    ) {
        let (one, one_has) = entry("0000:3b:00.0", &first, ranges[0]);
        let (two, two_has) = entry("0000:3b:00.1", &second, ranges[1]);
        let file = format!("[{one},{two}]");
        let counts = [counts[0].index(one_has.len() + 1), counts[1].index(two_has.len() + 1)];
        let one_uses: BTreeSet<_> = one_has.iter().take(counts[0]).collect();
        let clash = two_has.iter().take(counts[1]).any(|guid| one_uses.contains(guid));
        let pfs = [pf("0000:3b:00.0", None), pf("0000:3b:00.1", None)];
        let counts = counts.map(|count| u16::try_from(count).unwrap());
        for of in [0, 1] {
            let given = give(Some(&file), &[(&pfs[0], counts[0]), (&pfs[1], counts[1])], of);
            prop_assert_eq!(given.is_err(), clash);
        }
    }
}

/// Returns an entry with these GUIDs, or with the range from the lowest to the highest of them, and its GUIDs.
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
