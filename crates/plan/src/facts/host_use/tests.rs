use super::*;
use crate::facts::{BridgeFacts, Fact, LinkKind, OvsDatabase, PfFacts, UnreadableCard, VfFacts};

const HOLD: Duration = DEFAULT_PROTECTION_TIME;

fn pf() -> PciAddress {
    "0000:3b:00.0".parse().unwrap()
}

fn vf() -> PciAddress {
    "0000:3b:02.0".parse().unwrap()
}

fn link(host_use: Option<HostUse>) -> LinkFacts {
    LinkFacts {
        name: "ens1f0".to_owned(),
        alt_names: Vec::new(),
        is_named: true,
        kind: LinkKind::Ethernet,
        mac: None,
        permanent_mac: None,
        mtu: 1500,
        max_mtu: None,
        admin_up: true,
        has_carrier: true,
        speed: None,
        switch_port: None,
        master: None,
        host_use,
        possible_use: None,
    }
}

/// Returns a machine with a PF and a VF, with these uses.
fn machine(pf_use: Option<HostUse>, vf_use: Option<HostUse>) -> HostFacts {
    let vf = VfFacts {
        index: 0,
        address: vf(),
        vendor: 0x8086,
        device: 0x154c,
        driver: Some("iavf".to_owned()),
        admin_mac: None,
        admin_guid: None,
        rdma: None,
        vdpa: None,
        representor: None,
        link: Some(link(vf_use)),
        attachment: Fact::None,
    };
    let pf = PfFacts {
        address: pf(),
        vendor: 0x8086,
        device: 0x158b,
        driver: Some("i40e".to_owned()),
        numa_node: None,
        total_vfs: 64,
        drivers_autoprobe: true,
        eswitch: Fact::None,
        tc_offload: None,
        rdma: None,
        firmware: None,
        is_lone_vf: false,
        net_filter: Fact::None,
        link: Some(link(pf_use)),
        vfs: vec![vf],
    };
    HostFacts { pfs: vec![pf], ..Default::default() }
}

fn at(boot: &str, seconds: u64) -> ClockReading {
    ClockReading {
        boot_id: boot.to_owned(),
        since_boot: Duration::from_secs(seconds),
        wall: Moment(i64::try_from(seconds).unwrap() * 1_000_000),
    }
}

/// Updates the history with the facts. Returns them with the remembered uses.
fn update(history: &mut UseHistory, facts: HostFacts, now: &ClockReading) -> HostFacts {
    update_partly(history, facts, true, now)
}

fn update_partly(
    history: &mut UseHistory,
    mut facts: HostFacts,
    is_complete: bool,
    now: &ClockReading,
) -> HostFacts {
    history.update(&facts, is_complete, now, HOLD);
    history.add_lingering_uses(&mut facts, now, HOLD);
    facts
}

fn uses(facts: &HostFacts) -> [Option<HostUse>; 2] {
    let found = &facts.pfs[0];
    let vf = found.vfs.first().and_then(|vf| facts.in_use(vf.address, vf.link.as_ref()));
    [facts.in_use(found.address, found.link.as_ref()), vf].map(|in_use| in_use.map(|in_use| in_use.host_use))
}

const ROUTE: Option<HostUse> = Some(HostUse::DefaultRoute);
const ADDRESS: Option<HostUse> = Some(HostUse::NodeAddress);

#[test]
fn a_use_that_is_briefly_absent_still_protects() {
    let mut history = UseHistory::default();
    assert_eq!(uses(&update(&mut history, machine(ROUTE, ADDRESS), &at("a", 100))), [ROUTE, ADDRESS]);
    let facts = update(&mut history, machine(None, None), &at("a", 101));
    assert_eq!(uses(&facts), [ROUTE, ADDRESS]);
    assert_eq!(facts.protection_ends_in, Some(HOLD));
    assert_eq!(facts.pfs[0].link.as_ref().unwrap().host_use, None, "the observed use is a separate fact");
    let facts = update(&mut history, machine(ROUTE, None), &at("a", 102));
    assert_eq!(
        (uses(&facts), facts.protection_ends_in),
        ([ROUTE, ADDRESS], Some(HOLD.saturating_sub(Duration::from_secs(1))))
    );
    assert_eq!(facts.lingering_uses.keys().collect::<Vec<_>>(), [&vf()]);
}

#[test]
fn a_use_ends_after_a_long_absence() {
    let mut history = UseHistory::default();
    update(&mut history, machine(ROUTE, None), &at("a", 100));
    // The absence starts with the first read without the use, even if that is late.
    update(&mut history, machine(None, None), &at("a", 4000));
    let facts = update(&mut history, machine(None, None), &at("a", 4000 + HOLD.as_secs() - 1));
    assert_eq!((uses(&facts), facts.protection_ends_in), ([ROUTE, None], Some(Duration::from_secs(1))));
    let facts = update(&mut history, machine(None, None), &at("a", 4000 + HOLD.as_secs()));
    assert_eq!((uses(&facts), facts.protection_ends_in), ([None, None], None));
    assert_eq!(history, UseHistory::default());
}

/// Returns the facts with a content of Open vSwitch.
fn readable(facts: HostFacts) -> HostFacts {
    let ovs = OvsFacts::Database(OvsDatabase::default());
    HostFacts { bridges: BridgeFacts { ovs, ..facts.bridges }, ..facts }
}

/// The card was taken for a member of the bridge that carries the address of the node, as long as Open vSwitch could not
/// be read.
#[test]
fn a_possible_use_ends_when_it_proves_wrong() {
    let mut history = UseHistory::default();
    let mut unknown = machine(None, None);
    unknown.pfs[0].link.as_mut().unwrap().possible_use = ADDRESS;
    let facts = update(&mut history, unknown.clone(), &at("a", 100));
    assert_eq!(uses(&facts), [ADDRESS, None]);
    let text = facts.in_use(pf(), facts.pfs[0].link.as_ref()).unwrap().to_string();
    assert!(text.contains("the ports of its Open vSwitch bridge are not known"), "{text}");
    // The address disappears for a moment, or the members of the bridge are found out.
    let facts = update(&mut history.clone(), machine(None, None), &at("a", 101));
    assert_eq!((uses(&facts), facts.protection_ends_in), ([ADDRESS, None], Some(HOLD)));
    let facts = update(&mut history, readable(machine(None, None)), &at("a", 101));
    assert_eq!((uses(&facts), facts.protection_ends_in), ([None, None], None));
    assert_eq!(history, UseHistory::default());
}

#[test]
fn an_observed_use_does_not_end_while_it_is_possible() {
    let mut history = UseHistory::default();
    let mut unknown = machine(None, None);
    unknown.pfs[0].link.as_mut().unwrap().possible_use = ADDRESS;
    update(&mut history, readable(machine(ROUTE, None)), &at("a", 200));
    update(&mut history, readable(machine(None, None)), &at("a", 201));
    let facts = update(&mut history, unknown, &at("a", 202 + HOLD.as_secs()));
    assert_eq!((uses(&facts), facts.protection_ends_in), ([ADDRESS, None], None));
    let facts = update(&mut history, readable(machine(None, None)), &at("a", 203 + HOLD.as_secs()));
    assert_eq!((uses(&facts), facts.protection_ends_in), ([ROUTE, None], Some(HOLD)));
}

#[test]
fn a_use_that_returns_starts_the_count_again() {
    let mut history = UseHistory::default();
    for (seconds, host_use) in [(100, ROUTE), (101, None), (390, ADDRESS), (391, None), (500, None)] {
        update(&mut history, machine(host_use, None), &at("a", seconds));
    }
    assert_eq!(uses(&update(&mut history, machine(None, None), &at("a", 690))), [ADDRESS, None]);
    assert_eq!(uses(&update(&mut history, machine(None, None), &at("a", 691))), [None, None]);
}

#[test]
fn a_reboot_starts_the_count_again() {
    let mut history = UseHistory::default();
    update(&mut history, machine(ROUTE, None), &at("a", 100));
    update(&mut history, machine(None, None), &at("a", 101));
    for seconds in [5, 304] {
        let facts = update(&mut history, machine(None, None), &at("b", seconds));
        assert_eq!(uses(&facts), [ROUTE, None]);
        assert_eq!(uses(&facts.without_uses_of_earlier_boots()), [None, None]);
    }
    assert_eq!(uses(&update(&mut history, machine(None, None), &at("b", 305))), [None, None]);
}

#[test]
fn the_time_of_day_ends_nothing() {
    let mut history = UseHistory::default();
    update(&mut history, machine(ROUTE, None), &at("a", 100));
    update(&mut history, machine(None, None), &at("a", 101));
    let skewed = ClockReading { wall: Moment(i64::MAX), ..at("a", 102) };
    assert_eq!(uses(&update(&mut history, machine(None, None), &skewed)), [ROUTE, None]);
}

/// Unknown is not absent.
#[test]
fn a_use_that_cannot_be_observed_is_not_absent() {
    let mut history = UseHistory::default();
    update(&mut history, machine(ROUTE, ADDRESS), &at("a", 100));
    let before = history.clone();
    let mut unread = machine(None, None);
    unread.pfs.clear();
    unread.unreadable.push(UnreadableCard { pf: pf(), error: String::new(), reason: "Deadline" });
    update(&mut history, unread, &at("a", 200));
    assert_eq!(history, before);
    let facts = update_partly(&mut history, machine(None, None), false, &at("a", 9000));
    assert_eq!((uses(&facts), facts.protection_ends_in), ([ROUTE, ADDRESS], None));
    assert_eq!(history, before);
}

/// The count starts again, and there is no end to wait for.
#[test]
fn time_without_observation_is_no_absence() {
    let mut history = UseHistory::default();
    update(&mut history, machine(ROUTE, None), &at("a", 100));
    update(&mut history, machine(None, None), &at("a", 101));
    let facts = update_partly(&mut history, machine(None, None), false, &at("a", 9000));
    assert_eq!((uses(&facts), facts.protection_ends_in), ([ROUTE, None], None));
    let facts = update(&mut history, machine(None, None), &at("a", 9001));
    assert_eq!((uses(&facts), facts.protection_ends_in), ([ROUTE, None], Some(HOLD)));
}

#[test]
fn a_vf_without_an_interface_is_protected_and_a_removed_one_is_not() {
    let mut history = UseHistory::default();
    update(&mut history, machine(None, ADDRESS), &at("a", 100));
    let mut facts = machine(None, None);
    facts.pfs[0].vfs[0].link = None;
    assert_eq!(uses(&update(&mut history, facts.clone(), &at("a", 101))), [None, ADDRESS]);
    facts.pfs[0].vfs.clear();
    update(&mut history, facts, &at("a", 102));
    assert_eq!(history, UseHistory::default());
}

#[test]
fn the_text_has_start_and_end() {
    let mut history = UseHistory::default();
    update(&mut history, machine(ROUTE, None), &at("a", 100));
    let facts = update(&mut history, machine(None, None), &at("a", 160));
    let in_use = facts.in_use(pf(), None).unwrap();
    let text = "the default route (not observed since 1970-01-01T00:02:40Z, protected until about 1970-01-01T00:07:40Z)";
    assert_eq!(in_use.to_string(), text);
    assert_eq!(ProtectingUse::from(HostUse::DefaultRoute).to_string(), "the default route");
}

#[test]
fn the_history_is_read_back() {
    let mut history = UseHistory::default();
    update(&mut history, machine(ROUTE, Some(HostUse::Storage)), &at("a", 100));
    update(&mut history, machine(None, Some(HostUse::Address)), &at("a", 101));
    let text = serde_json::to_string(&history).unwrap();
    assert_eq!(serde_json::from_str::<UseHistory>(&text).unwrap(), history);
}
