//! Report of a machine in its node state.

use std::collections::BTreeMap;

use vfleet_api::node_state::InterfaceExt;
use vfleet_api::{Guid, MacAddr};
use vfleet_plan::report::{ReportContext, interfaces};
use vfleet_plan::{EswitchMode, Fact, HostFacts, HostUse, NicIds, UnreadableCard, VdpaKind};

use super::machine::{PF, address, link, machine, pf, rdma, recorded, two, use_vf};

#[test]
fn all_facts_are_reported() {
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
    let card = interfaces(&machine(pf), &ReportContext::default()).remove(0);
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
fn an_unreadable_card_is_reported_as_before() {
    let readable = recorded(machine(pf(2)), &two("deviceType: netdevice"));
    let known = interfaces(&readable, &ReportContext::default());
    let mut facts = readable;
    facts.pfs.clear();
    facts.unreadable =
        vec![UnreadableCard { pf: address(PF), error: "it hangs".to_owned(), reason: "Deadline" }];
    assert_eq!(interfaces(&facts, &ReportContext { last_reported: &known, nic_ids: None }), known);
    let only_recorded = interfaces(&facts, &ReportContext::default());
    assert_eq!((only_recorded[0].name.as_deref(), &only_recorded[0].num_vfs), (Some("ens1f0"), &None));
    facts.records.clear();
    assert_eq!(interfaces(&facts, &ReportContext::default()), []);
}

/// A driver resets, or another namespace has the interface: policies that select the card by name still select it.
#[test]
fn the_last_known_identity_is_reported_while_the_interface_is_missing() {
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
        let card = interfaces(facts, &ReportContext { last_reported: known, nic_ids: None }).remove(0);
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
        assert_eq!(
            identity(&facts, &interfaces(&whole, &ReportContext::default())),
            expected,
            "as last reported"
        );
        facts.records.extend(record.clone());
        assert_eq!(identity(&facts, &[]), expected, "as recorded");
    }
    // The record of the Go daemon has only the name, and there is no earlier report.
    let facts = recorded(machine(away), &spec);
    let unknown = vec!["altNames".to_owned(), "netFilter".to_owned()];
    assert_eq!(identity(&facts, &[]), (Some("ens1f0".to_owned()), None, None, Some(unknown)));
    // A new name replaces the old one.
    let mut renamed = named;
    renamed.link.as_mut().unwrap().alt_names = Vec::new();
    let facts = HostFacts { records: record.into_iter().collect(), ..machine(renamed) };
    assert_eq!(identity(&facts, &[]).1, None);
}

#[test]
fn unsupported_cards_are_left_out_unless_they_have_a_record() {
    let list = |line: &str| {
        let data = BTreeMap::from([("card".to_owned(), line.to_owned())]);
        NicIds::parse(&data).0
    };
    let (listed, other) = (list("15B3 101d 101e"), list("8086 159b 1889"));
    let facts = machine(pf(0));
    let count = |facts: &HostFacts, ids: &NicIds| {
        interfaces(facts, &ReportContext { last_reported: &[], nic_ids: Some(ids) }).len()
    };
    assert_eq!((count(&facts, &listed), count(&facts, &other)), (1, 0));
    let ours = recorded(facts, &two("deviceType: netdevice"));
    assert_eq!(count(&ours, &other), 1);
}

#[test]
fn a_lone_vf_is_reported_while_a_program_uses_it() {
    let mut lone = pf(1);
    lone.is_lone_vf = true;
    lone.link = None;
    assert_eq!(interfaces(&machine(lone), &ReportContext::default()).len(), 1);
}

/// VFs keep their MACs when the MAC of the PF changes.
#[test]
fn macs_of_vfs_are_derived_from_the_permanent_mac() {
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
