//! What the node state says of a machine.

use std::collections::BTreeMap;

use vfleet_api::node_state::InterfaceExt;
use vfleet_api::{Guid, MacAddr};
use vfleet_plan::report::{View, interfaces};
use vfleet_plan::{EswitchMode, Fact, HostFacts, HostUse, NicIds, Unread, VdpaKind};

use super::machine::{PF, address, link, machine, pf, rdma, recorded, two, use_vf};

#[test]
fn everything_is_said() {
    let mut pf = pf(2);
    pf.eswitch = Fact::Value(EswitchMode::Switchdev);
    pf.net_filter = Fact::Value("aws/NetworkID:a".to_owned());
    pf.numa_node = Some(1);
    pf.link.as_mut().unwrap().host_use = Some(HostUse::NodeAddress);
    use_vf(&mut pf, 1);
    pf.vfs[0].vdpa = Some(VdpaKind::Vhost);
    pf.vfs[0].representor = Some("ens1f0_0".to_owned());
    pf.vfs[0].rdma = Some(rdma([2, 0, 0, 0, 0, 0, 0, 9]));
    pf.vfs[1].admin_guid = Some(Guid([2, 0, 0, 0, 0, 0, 0, 8]));
    let card = interfaces(&machine(pf), &View::default()).remove(0);
    assert_eq!(card.e_switch_mode.as_deref(), Some("switchdev"));
    assert_eq!(card.net_filter.as_deref(), Some("aws/NetworkID:a"));
    assert_eq!((card.numa_node, card.in_use_by.as_deref()), (Some(1), Some("the node's own address")));
    let vfs = card.vfs.unwrap();
    assert_eq!(vfs[0].vdpa_type.as_deref(), Some("vhost"));
    assert_eq!(vfs[0].representor_name.as_deref(), Some("ens1f0_0"));
    assert_eq!(vfs[0].guid.as_deref(), Some("02:00:00:00:00:00:00:09"));
    assert_eq!(vfs[1].guid.as_deref(), Some("02:00:00:00:00:00:00:08"));
    assert_eq!((vfs[0].in_use_by.as_deref(), vfs[1].in_use_by.as_deref()), (None, Some("the default route")));
}

#[test]
fn a_card_that_cannot_be_read_is_as_it_was_last_seen() {
    let readable = recorded(machine(pf(2)), &two("deviceType: netdevice"));
    let known = interfaces(&readable, &View::default());
    let mut facts = readable;
    facts.pfs.clear();
    facts.unread = vec![Unread { pf: address(PF), error: "it hangs".to_owned(), reason: "Deadline" }];
    assert_eq!(interfaces(&facts, &View { known: &known, narrow: None }), known);
    let only_recorded = interfaces(&facts, &View::default());
    assert_eq!((only_recorded[0].name.as_deref(), &only_recorded[0].num_vfs), (Some("ens1f0"), &None));
    facts.records.clear();
    assert_eq!(interfaces(&facts, &View::default()), []);
}

/// A driver resets, or a namespace has the interface: policies that select the card by its names keep it.
#[test]
fn names_and_networks_are_reported_as_last_known_while_the_interface_is_away() {
    let mut named = pf(2);
    named.net_filter = Fact::Value("aws/NetworkID:a".to_owned());
    named.link.as_mut().unwrap().alt_names = vec!["enp59s0f0".to_owned()];
    let spec = two("deviceType: netdevice");
    let plan = vfleet_plan::plan_node(&spec, &machine(named.clone()));
    let record = plan.steps.into_iter().find_map(|planned| match planned.step {
        vfleet_plan::Step::WriteRecord { record } => Some(record),
        _ => None,
    });
    let identity = |facts: &HostFacts, known: &[InterfaceExt]| {
        let card = interfaces(facts, &View { known, narrow: None }).remove(0);
        (card.name, card.alt_names, card.net_filter, card.unknown_facts)
    };
    let whole = machine(named.clone());
    let expected = identity(&whole, &[]);
    let mut away = named.clone();
    (away.link, away.net_filter) = (None, Fact::Unknown);
    let mut unnamed = named.clone();
    let link = unnamed.link.as_mut().unwrap();
    (link.name, link.alt_names, link.is_named) = ("eth0".to_owned(), Vec::new(), false);
    for pf in [away.clone(), unnamed] {
        let mut facts = machine(pf);
        assert_eq!(identity(&facts, &interfaces(&whole, &View::default())), expected, "as last reported");
        facts.records.extend(record.clone());
        assert_eq!(identity(&facts, &[]), expected, "as recorded, by another process");
    }
    // The Go daemon wrote down only the name, and nobody has reported the card.
    let facts = recorded(machine(away), &spec);
    let unknown = vec!["altNames".to_owned(), "netFilter".to_owned()];
    assert_eq!(identity(&facts, &[]), (Some("ens1f0".to_owned()), None, None, Some(unknown)));
    // Another name is a fact: what was before does not count.
    let mut renamed = named;
    renamed.link.as_mut().unwrap().alt_names = Vec::new();
    let facts = HostFacts { records: record.into_iter().collect(), ..machine(renamed) };
    assert_eq!(identity(&facts, &[]).1, None);
}

#[test]
fn cards_of_other_kinds_are_left_out_unless_they_are_ours() {
    let list = |line: &str| {
        let data = BTreeMap::from([("card".to_owned(), line.to_owned())]);
        NicIds::parse(&data).0
    };
    let (listed, other) = (list("15B3 101d 101e"), list("8086 159b 1889"));
    let facts = machine(pf(0));
    let count =
        |facts: &HostFacts, ids: &NicIds| interfaces(facts, &View { known: &[], narrow: Some(ids) }).len();
    assert_eq!((count(&facts, &listed), count(&facts, &other)), (1, 0));
    let ours = recorded(facts, &two("deviceType: netdevice"));
    assert_eq!(count(&ours, &other), 1);
}

#[test]
fn a_lone_vf_is_reported_also_while_a_program_has_it() {
    let mut lone = pf(1);
    lone.is_lone_vf = true;
    lone.link = None;
    assert_eq!(interfaces(&machine(lone), &View::default()).len(), 1);
}

/// Somebody may change the address of a PF; its VFs keep theirs.
#[test]
fn addresses_of_vfs_come_from_the_hardware() {
    let macs = |mac: u8, permanent: Option<u8>| {
        let mut pf = pf(0);
        let mut link = link("ens1f0", mac);
        link.permanent_mac = permanent.map(|last| MacAddr([2, 0, 0, 0, 0, last]));
        pf.link = Some(link);
        let plan = vfleet_plan::plan_node(&two("deviceType: netdevice"), &machine(pf));
        let texts = plan.steps.iter().map(|planned| planned.step.to_string());
        texts.filter(|text| text.contains(" mac ")).collect::<Vec<_>>()
    };
    assert_eq!(macs(1, Some(7)), macs(2, Some(7)));
    assert_eq!(macs(7, None), macs(1, Some(7)));
    assert_ne!(macs(1, None), macs(2, None));
}
