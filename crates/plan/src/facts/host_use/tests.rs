use super::*;
use crate::facts::{Fact, LinkKind, PfFacts, Unread, VfFacts};

const HOLD: Duration = PROTECTION;

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
        speed: None,
        switch_port: None,
        host_use,
    }
}

/// A machine with a PF and a VF of it, used for these.
fn machine(pf_use: Option<HostUse>, of_vf: Option<HostUse>) -> HostFacts {
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
        link: Some(link(of_vf)),
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

/// Looks at a machine; returns it with what is remembered.
fn look(memory: &mut UseMemory, facts: HostFacts, now: &ClockReading) -> HostFacts {
    look_at_part(memory, facts, true, now)
}

fn look_at_part(
    memory: &mut UseMemory,
    mut facts: HostFacts,
    is_complete: bool,
    now: &ClockReading,
) -> HostFacts {
    memory.observe(&facts, is_complete, now, HOLD);
    memory.recall(&mut facts, now, HOLD);
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
fn a_use_that_is_away_for_a_moment_protects_all_the_same() {
    let mut memory = UseMemory::default();
    assert_eq!(uses(&look(&mut memory, machine(ROUTE, ADDRESS), &at("a", 100))), [ROUTE, ADDRESS]);
    let facts = look(&mut memory, machine(None, None), &at("a", 101));
    assert_eq!(uses(&facts), [ROUTE, ADDRESS]);
    assert_eq!(facts.protection_ends_in, Some(HOLD));
    assert_eq!(facts.pfs[0].link.as_ref().unwrap().host_use, None, "what is observed is a fact of its own");
    let facts = look(&mut memory, machine(ROUTE, None), &at("a", 102));
    assert_eq!(
        (uses(&facts), facts.protection_ends_in),
        ([ROUTE, ADDRESS], Some(HOLD.saturating_sub(Duration::from_secs(1))))
    );
    assert_eq!(facts.lingering_uses.keys().collect::<Vec<_>>(), [&vf()]);
}

#[test]
fn a_use_ends_when_it_was_absent_for_long() {
    let mut memory = UseMemory::default();
    look(&mut memory, machine(ROUTE, None), &at("a", 100));
    // The look that begins the absence is late: only what was looked at counts.
    look(&mut memory, machine(None, None), &at("a", 4000));
    let facts = look(&mut memory, machine(None, None), &at("a", 4000 + HOLD.as_secs() - 1));
    assert_eq!((uses(&facts), facts.protection_ends_in), ([ROUTE, None], Some(Duration::from_secs(1))));
    let facts = look(&mut memory, machine(None, None), &at("a", 4000 + HOLD.as_secs()));
    assert_eq!((uses(&facts), facts.protection_ends_in), ([None, None], None));
    assert_eq!(memory, UseMemory::default());
}

#[test]
fn a_use_that_returns_begins_anew() {
    let mut memory = UseMemory::default();
    for (seconds, host_use) in [(100, ROUTE), (101, None), (390, ADDRESS), (391, None), (500, None)] {
        look(&mut memory, machine(host_use, None), &at("a", seconds));
    }
    assert_eq!(uses(&look(&mut memory, machine(None, None), &at("a", 690))), [ADDRESS, None]);
    assert_eq!(uses(&look(&mut memory, machine(None, None), &at("a", 691))), [None, None]);
}

#[test]
fn a_restart_of_the_machine_begins_the_count_anew() {
    let mut memory = UseMemory::default();
    look(&mut memory, machine(ROUTE, None), &at("a", 100));
    look(&mut memory, machine(None, None), &at("a", 101));
    for seconds in [5, 304] {
        let facts = look(&mut memory, machine(None, None), &at("b", seconds));
        assert_eq!(uses(&facts), [ROUTE, None]);
        assert_eq!(uses(&facts.without_uses_of_earlier_boots()), [None, None]);
    }
    assert_eq!(uses(&look(&mut memory, machine(None, None), &at("b", 305))), [None, None]);
}

#[test]
fn the_time_of_day_ends_nothing() {
    let mut memory = UseMemory::default();
    look(&mut memory, machine(ROUTE, None), &at("a", 100));
    look(&mut memory, machine(None, None), &at("a", 101));
    let skewed = ClockReading { wall: Moment(i64::MAX), ..at("a", 102) };
    assert_eq!(uses(&look(&mut memory, machine(None, None), &skewed)), [ROUTE, None]);
}

/// Unknown is not absent.
#[test]
fn what_cannot_be_observed_does_not_count_as_absent() {
    let mut memory = UseMemory::default();
    look(&mut memory, machine(ROUTE, ADDRESS), &at("a", 100));
    let seen = memory.clone();
    let mut unread = machine(None, None);
    unread.pfs.clear();
    unread.unread.push(Unread { pf: pf(), error: String::new(), reason: "Deadline" });
    look(&mut memory, unread, &at("a", 200));
    assert_eq!(memory, seen);
    let facts = look_at_part(&mut memory, machine(None, None), false, &at("a", 9000));
    assert_eq!((uses(&facts), facts.protection_ends_in), ([ROUTE, ADDRESS], None));
    assert_eq!(memory, seen);
}

/// The count begins anew, and nobody waits for its end meanwhile.
#[test]
fn the_time_in_which_nothing_can_be_observed_is_no_absence() {
    let mut memory = UseMemory::default();
    look(&mut memory, machine(ROUTE, None), &at("a", 100));
    look(&mut memory, machine(None, None), &at("a", 101));
    let facts = look_at_part(&mut memory, machine(None, None), false, &at("a", 9000));
    assert_eq!((uses(&facts), facts.protection_ends_in), ([ROUTE, None], None));
    let facts = look(&mut memory, machine(None, None), &at("a", 9001));
    assert_eq!((uses(&facts), facts.protection_ends_in), ([ROUTE, None], Some(HOLD)));
}

#[test]
fn a_vf_without_an_interface_is_protected_and_one_that_is_gone_is_forgotten() {
    let mut memory = UseMemory::default();
    look(&mut memory, machine(None, ADDRESS), &at("a", 100));
    let mut facts = machine(None, None);
    facts.pfs[0].vfs[0].link = None;
    assert_eq!(uses(&look(&mut memory, facts.clone(), &at("a", 101))), [None, ADDRESS]);
    facts.pfs[0].vfs.clear();
    look(&mut memory, facts, &at("a", 102));
    assert_eq!(memory, UseMemory::default());
}

#[test]
fn people_are_told_since_when_and_until_when() {
    let mut memory = UseMemory::default();
    look(&mut memory, machine(ROUTE, None), &at("a", 100));
    let facts = look(&mut memory, machine(None, None), &at("a", 160));
    let in_use = facts.in_use(pf(), None).unwrap();
    let text =
        "the default route (not seen since 1970-01-01T00:02:40Z, protected until about 1970-01-01T00:07:40Z)";
    assert_eq!(in_use.to_string(), text);
    assert_eq!(InUse::from(HostUse::DefaultRoute).to_string(), "the default route");
}

#[test]
fn it_is_read_as_it_was_written() {
    let mut memory = UseMemory::default();
    look(&mut memory, machine(ROUTE, Some(HostUse::Storage)), &at("a", 100));
    look(&mut memory, machine(None, Some(HostUse::Address)), &at("a", 101));
    let text = serde_json::to_string(&memory).unwrap();
    assert_eq!(serde_json::from_str::<UseMemory>(&text).unwrap(), memory);
}
