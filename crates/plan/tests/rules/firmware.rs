//! Firmware of Mellanox cards: output of the tools, and settings to change.

use proptest::prelude::*;
use vfleet_plan::firmware::{DesiredPort, FirmwareChange, FirmwareFault, card_of, parse_query, plan_port};
use vfleet_plan::{
    Fact, FirmwareError, FirmwareFacts, FirmwareLinkType, FirmwareSettings, LinkFacts, LinkKind, PfFacts,
};

use FirmwareLinkType::{Ethernet, Infiniband, Other};

fn printed(file: &str) -> Result<FirmwareFacts, FirmwareError> {
    let path = format!("{}/tests/mstconfig/{file}.txt", env!("CARGO_MANIFEST_DIR"));
    parse_query(&std::fs::read_to_string(path).unwrap())
}

fn settings(
    sriov: Option<bool>,
    num_vfs: Option<u16>,
    link_types: [Option<FirmwareLinkType>; 2],
) -> FirmwareSettings {
    FirmwareSettings { sriov, num_vfs, link_types }
}

/// Returns the facts of a tool that prints only the next boot.
fn next_boot(next_boot: FirmwareSettings) -> FirmwareFacts {
    FirmwareFacts { current: FirmwareSettings::default(), next_boot }
}

#[test]
fn one_column_is_the_next_boot() {
    let vpi = Some(Other("VPI(3)".to_owned()));
    let expected = [
        ("connectx3pro-vpi", settings(Some(true), Some(8), [vpi.clone(), vpi])),
        ("connectx3pro-ib-eth", settings(Some(true), Some(8), [Some(Infiniband), Some(Ethernet)])),
        ("connectx4-ib", settings(Some(false), Some(0), [Some(Infiniband), None])),
        ("connectx5-ib", settings(Some(false), Some(0), [Some(Infiniband), None])),
    ];
    for (file, settings) in expected {
        assert_eq!(printed(file), Ok(next_boot(settings)), "{file}");
    }
}

#[test]
fn three_columns_include_the_current_settings() {
    let expected = settings(Some(true), Some(5), [None, None]);
    let facts = FirmwareFacts { current: expected.clone(), next_boot: expected };
    assert_eq!(printed("connectx4lx-e"), Ok(facts));
}

#[test]
fn a_card_may_have_none_of_the_settings() {
    for file in ["connectx5-e-slingshot", "connectx6lx-e"] {
        assert_eq!(printed(file), Ok(next_boot(FirmwareSettings::default())), "{file}");
    }
}

#[test]
fn the_message_of_the_tool_is_reported() {
    let error = printed("connectx3-failed").unwrap_err();
    assert_eq!(error.reason(), "FirmwareToolFailed");
    assert!(error.to_string().contains("Failed to query device current configuration"), "{error}");
    assert!(printed("connectx5-locked").unwrap_err().to_string().contains("Failed to open the device"));
}

const HEADER: &str =
    "Configurations:                              Default         Current         Next Boot\n";

#[test]
fn marks_are_not_part_of_names() {
    for mark in ["*  ", "RO ", "*RO", "* RO", "   "] {
        let line =
            format!("{mark}     NUM_OF_VFS                          8               5               6\n");
        let facts = parse_query(&format!("{HEADER}{line}")).unwrap();
        assert_eq!((facts.current.num_vfs, facts.next_boot.num_vfs), (Some(5), Some(6)), "{mark:?}");
    }
}

#[test]
fn a_setting_that_the_card_does_not_report_is_unknown() {
    let facts = parse_query(&format!("{HEADER} SRIOV_EN  N/A  N/A  True(1)\n")).unwrap();
    assert_eq!((facts.current.sriov, facts.next_boot.sriov), (None, Some(true)));
}

#[test]
fn invalid_output_is_refused() {
    for text in
        ["", "mstconfig: command not found", "Configurations:\n NUM_OF_VFS 8\n", "Configurations: New\n"]
    {
        assert!(matches!(parse_query(text), Err(FirmwareError::NoTable { .. })), "{text}");
    }
    for line in [
        "NUM_OF_VFS 8 8",
        "NUM_OF_VFS 8 8 8 8",
        "NUM_OF_VFS",
        "NUM_OF_VFS 8 -1 8",
        "NUM_OF_VFS 8 8 65536",
        "NUM_OF_VFS Array[0..7] Array[0..7] Array[0..7]",
        "SRIOV_EN True(1) Perhaps(2) True(1)",
    ] {
        let error = parse_query(&format!("{HEADER}{line}\n")).unwrap_err();
        assert_eq!(error, FirmwareError::Line { line: line.to_owned() });
    }
}

proptest! {
    #![proptest_config(crate::config(1000))]

    #[test]
    fn any_text_is_read_or_refused(text in r"(\PC|\n){0,200}") {
        let _ = parse_query(&text);
    }

    /// Words of real output, shuffled.
    #[test]
    fn any_words_are_read_or_refused(words in prop::collection::vec(prop::sample::select(vec![
        "Configurations:", "Default", "Current", "Next", "Boot", "New", "\n", "\n", "*", "RO", "NUM_OF_VFS", "SRIOV_EN",
        "LINK_TYPE_P1", "LINK_TYPE_P2", "True(1)", "False(0)", "ETH(2)", "IB(1)", "VPI(3)", "8", "(", ")", "N/A", "Array[0..7]",
        "99999999999999999999",
    ]), 0..60)) {
        let _ = parse_query(&words.join(" "));
    }

    /// A printed table is read back.
    #[test]
    fn a_table_is_read_back(now in 0..1000_u16, next in 0..1000_u16, on in any::<bool>(), port in 0..2_usize) {
        let link = ["ETH(2)", "IB(1)"][port];
        let text = format!(
            "{HEADER}*  NUM_OF_VFS 0 {now} {next}\n   SRIOV_EN False(0) {} True(1)\n   LINK_TYPE_P2 IB(1) IB(1) {link}\n",
            if on { "True(1)" } else { "False(0)" },
        );
        let kinds = [Ethernet, Infiniband];
        prop_assert_eq!(parse_query(&text), Ok(FirmwareFacts {
            current: settings(Some(on), Some(now), [None, Some(Infiniband)]),
            next_boot: settings(Some(true), Some(next), [None, Some(kinds[port].clone())]),
        }));
    }
}

fn pf(address: &str, total_vfs: u16, kind: LinkKind) -> PfFacts {
    PfFacts {
        address: address.parse().unwrap(),
        vendor: 0x15b3,
        device: 0x1017,
        driver: Some("mlx5_core".to_owned()),
        numa_node: None,
        total_vfs,
        drivers_autoprobe: true,
        eswitch: Fact::None,
        tc_offload: None,
        rdma: None,
        firmware: None,
        is_lone_vf: false,
        net_filter: vfleet_plan::Fact::None,
        link: Some(LinkFacts {
            name: "ens1f0".to_owned(),
            alt_names: Vec::new(),
            is_named: true,
            kind,
            mac: None,
            permanent_mac: None,
            mtu: 1500,
            max_mtu: None,
            admin_up: true,
            has_carrier: true,
            speed: None,
            switch_port: None,
            master: None,
            host_use: None,
            possible_use: None,
        }),
        vfs: Vec::new(),
    }
}

/// Returns the change for a card with one Ethernet port of `total` VFs, on which `desired` are desired.
fn one_port(total: u16, desired: u16, firmware: &FirmwareFacts) -> Result<FirmwareChange, FirmwareFault> {
    let found = pf("0000:3b:00.0", total, LinkKind::Ethernet);
    let port = DesiredPort { observed: &found, num_vfs: desired, link: None };
    plan_port(&port, Some(firmware), false)
}

/// Returns firmware with SR-IOV on or off and a number of VFs, now and after the next reset.
fn firmware(now: (bool, u16), next: (bool, u16)) -> FirmwareFacts {
    let both = [Some(Ethernet), Some(Ethernet)];
    FirmwareFacts {
        current: settings(Some(now.0), Some(now.1), both.clone()),
        next_boot: settings(Some(next.0), Some(next.1), both),
    }
}

fn change(sriov: Option<bool>, num_vfs: Option<u16>, needs_reset: bool) -> FirmwareChange {
    FirmwareChange { settings: settings(sriov, num_vfs, [None, None]), needs_reset }
}

#[test]
fn vfs_are_raised_and_never_lowered() {
    let cases = [
        ("enough", 8, 8, firmware((true, 8), (true, 8)), change(None, None, false)),
        ("fewer", 8, 5, firmware((true, 8), (true, 8)), change(None, None, false)),
        ("none", 8, 0, firmware((true, 8), (true, 8)), change(None, None, false)),
        ("more", 8, 16, firmware((true, 8), (true, 8)), change(None, Some(16), true)),
        ("off", 0, 4, firmware((false, 0), (false, 0)), change(Some(true), Some(4), true)),
        ("off, count set", 0, 4, firmware((false, 8), (false, 8)), change(Some(true), None, true)),
        ("set already", 8, 16, firmware((true, 8), (true, 16)), change(None, None, true)),
        ("lower next time", 8, 8, firmware((true, 8), (true, 5)), change(None, Some(8), false)),
        ("off next time", 8, 8, firmware((true, 8), (false, 8)), change(Some(true), None, false)),
        ("limited by something else", 8, 16, firmware((true, 16), (true, 16)), change(None, None, false)),
    ];
    for (name, total, desired, firmware, expected) in cases {
        assert_eq!(one_port(total, desired, &firmware), Ok(expected), "{name}");
    }
}

#[test]
fn current_settings_may_be_unknown() {
    let facts = next_boot(settings(Some(true), Some(16), [None, None]));
    assert_eq!(one_port(8, 16, &facts), Ok(change(None, None, true)));
    let facts = next_boot(settings(Some(false), Some(0), [None, None]));
    assert_eq!(one_port(0, 4, &facts), Ok(change(Some(true), Some(4), true)));
}

#[test]
fn a_card_without_the_setting_is_a_fault() {
    let facts = next_boot(FirmwareSettings::default());
    assert_eq!(one_port(0, 4, &facts), Err(FirmwareFault::NoSetting("NUM_OF_VFS")));
    assert_eq!(one_port(8, 4, &facts), Ok(FirmwareChange::default()));
}

#[test]
fn ports_of_a_card_share_the_highest_number() {
    let ports = [pf("0000:3b:00.0", 8, LinkKind::Ethernet), pf("0000:3b:00.1", 8, LinkKind::Ethernet)];
    assert_eq!(card_of(ports[0].address), card_of(ports[1].address));
    let desired = |counts: [u16; 2]| {
        let facts = firmware((true, 8), (true, 8));
        let [first, second] = [0, 1].map(|at| {
            let port = DesiredPort { observed: &ports[at], num_vfs: counts[at], link: None };
            plan_port(&port, Some(&facts), false).unwrap()
        });
        first.with(second)
    };
    for counts in [[12, 20], [20, 12], [4, 20]] {
        assert_eq!(desired(counts), change(None, Some(20), true));
    }
}

#[test]
fn without_a_tool_only_the_current_state_is_possible() {
    let found = pf("0000:3b:00.0", 8, LinkKind::Ethernet);
    let plan = |num_vfs, link| plan_port(&DesiredPort { observed: &found, num_vfs, link }, None, true);
    assert_eq!(plan(8, Some(LinkKind::Ethernet)), Ok(FirmwareChange::default()));
    let fault = |num_vfs, link| plan(num_vfs, link).unwrap_err().to_string();
    let vfs = fault(9, None);
    assert!(
        vfs.contains("changed for 9 VFs (the card reports 8), and") && vfs.contains("install mstflint"),
        "{vfs}"
    );
    let both = fault(9, Some(LinkKind::Infiniband));
    assert!(both.contains("for 9 VFs (the card reports 8) and link type IB, and"), "{both}");
}

#[test]
fn nothing_is_changed_under_lockdown() {
    let found = pf("0000:3b:00.0", 8, LinkKind::Ethernet);
    let plan = |num_vfs, firmware: &FirmwareFacts| {
        plan_port(&DesiredPort { observed: &found, num_vfs, link: None }, Some(firmware), true)
    };
    let fault = plan(16, &firmware((true, 8), (true, 8))).unwrap_err();
    assert_eq!(fault.reason(), "KernelLockedDown");
    assert!(fault.to_string().contains("NUM_OF_VFS=16"), "{fault}");
    assert_eq!(plan(8, &firmware((true, 8), (true, 8))), Ok(FirmwareChange::default()));
    // The setting is already there: only a reset is needed.
    assert_eq!(plan(16, &firmware((true, 8), (true, 16))), Ok(change(None, None, true)));
}

#[test]
fn the_link_type_of_a_port_is_set() {
    let facts = |now: [Option<FirmwareLinkType>; 2], next| FirmwareFacts {
        current: settings(Some(true), Some(8), now),
        next_boot: settings(Some(true), Some(8), next),
    };
    let both = |kind: FirmwareLinkType| [Some(kind.clone()), Some(kind)];
    let plan = |address, is, desired, firmware: &FirmwareFacts| {
        let found = pf(address, 8, is);
        let port = DesiredPort { observed: &found, num_vfs: 4, link: Some(desired) };
        plan_port(&port, Some(firmware), false)
    };
    let (eth, ib) = (LinkKind::Ethernet, LinkKind::Infiniband);
    let all_eth = facts(both(Ethernet), both(Ethernet));
    let set = |link_types, needs_reset| {
        Ok(FirmwareChange { settings: settings(None, None, link_types), needs_reset })
    };
    assert_eq!(plan("0000:3b:00.0", eth, eth, &all_eth), set([None, None], false));
    assert_eq!(plan("0000:3b:00.0", eth, ib, &all_eth), set([Some(Infiniband), None], true));
    assert_eq!(plan("0000:3b:00.1", eth, ib, &all_eth), set([None, Some(Infiniband)], true));
    assert_eq!(plan("0000:3b:00.2", eth, ib, &all_eth).unwrap_err().reason(), "FirmwareNotSupported");
    // Set already, and not in effect yet.
    assert_eq!(
        plan("0000:3b:00.0", eth, ib, &facts(both(Ethernet), both(Infiniband))),
        set([None, None], true)
    );
    // In effect, and different after the next reset.
    assert_eq!(
        plan("0000:3b:00.0", eth, eth, &facts(both(Ethernet), both(Infiniband))),
        set([Some(Ethernet), None], false)
    );
    // The firmware already has the type: a reset does not help.
    assert_eq!(
        plan("0000:3b:00.0", eth, ib, &facts(both(Infiniband), both(Infiniband))),
        set([None, None], false)
    );
    let vpi = facts(both(Other("VPI(3)".to_owned())), both(Other("VPI(3)".to_owned())));
    assert_eq!(plan("0000:3b:00.0", eth, eth, &vpi), set([None, None], false));
    let fault = plan("0000:3b:00.0", eth, ib, &vpi).unwrap_err();
    assert!(fault.to_string().contains("LINK_TYPE_P1=VPI(3)"), "{fault}");
    let none = facts([None, None], [None, None]);
    assert_eq!(plan("0000:3b:00.1", eth, ib, &none), Err(FirmwareFault::NoSetting("LINK_TYPE_P2")));
}
