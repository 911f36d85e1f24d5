//! What the node itself uses is not touched.

use vfleet_plan::drain::Moment;
use vfleet_plan::{
    Disruption, EswitchMode, Fact, HostFacts, HostUse, LingeringUse, PfFacts, Step, Unread, plan_node,
};

use super::machine::{
    PF, address, expect, machine, nothing, pf, reasons, recorded, spec, steps, two, use_vf,
};

#[test]
fn a_vf_in_use_is_left_as_it_is_and_its_neighbour_goes_on() {
    let mut pf = pf(2);
    use_vf(&mut pf, 0);
    let plan = plan_node(&two("deviceType: vfio-pci"), &machine(pf));
    assert_eq!(steps(&plan), ["bind 0000:3b:00.0 vf 1 to vfio-pci"]);
    assert_eq!(reasons(&plan), ["VfInUse"]);
    let text = plan.problems[0].to_string();
    assert!(
        text.contains("VF 0") && text.contains("the default route") && text.contains("leave it out"),
        "{text}"
    );
}

#[test]
fn a_vf_in_use_that_is_as_wanted_is_no_problem() {
    let mut pf = pf(2);
    use_vf(&mut pf, 0);
    expect(machine(pf), None, &two("deviceType: netdevice"), &[], Disruption::None);
}

#[test]
fn a_vf_in_use_in_no_group_is_no_problem() {
    let mut pf = pf(2);
    use_vf(&mut pf, 0);
    let wanted = spec("numVfs: 2, vfGroups: [{vfRange: 1-1, deviceType: vfio-pci}]");
    expect(machine(pf), None, &wanted, &["bind 0000:3b:00.0 vf 1 to vfio-pci"], Disruption::Drain);
}

/// Whatever would remove all VFs: another count, another mode, a policy that goes.
#[test]
fn vfs_are_not_removed_while_one_is_in_use() {
    let mut pf = pf(2);
    use_vf(&mut pf, 1);
    let other_count = spec("numVfs: 3, vfGroups: [{vfRange: 0-0}]");
    let other_mode = spec("numVfs: 2, eSwitchMode: switchdev, vfGroups: [{vfRange: 0-0}]");
    for wanted in [other_count, other_mode, nothing()] {
        let facts = recorded(machine(pf.clone()), &two("deviceType: netdevice"));
        let plan = plan_node(&wanted, &facts);
        assert!(plan.steps.iter().all(|planned| planned.step.pf().is_none()), "{plan:#?}");
        assert_eq!(reasons(&plan), ["VfInUse"]);
        assert!(plan.problems[0].to_string().contains("VF 1"), "{}", plan.problems[0]);
        assert!(!plan.problems[0].is_worth_a_retry());
    }
}

#[test]
fn a_pf_in_use_keeps_its_mtu_and_mode_and_stays_ours_until_it_is_restored() {
    let mut pf = pf(2);
    pf.eswitch = Fact::Value(EswitchMode::Switchdev);
    let link = pf.link.as_mut().unwrap();
    (link.mtu, link.host_use) = (9000, Some(HostUse::NodeAddress));
    let mut facts = recorded(machine(pf), &two("mtu: 9000"));
    facts.records[0].raised_mtu = Some(9000);
    facts.records[0].first_seen.eswitch = Some(EswitchMode::Legacy);
    let plan = plan_node(&nothing(), &facts);
    assert_eq!(steps(&plan), ["set 0000:3b:00.0 numvfs 0"], "the record stays");
    assert_eq!(reasons(&plan), ["PfInUse"]);
    let text = plan.problems[0].to_string();
    for said in ["mode legacy", "MTU is not set back to 1500", "the node's own address", "restored"] {
        assert!(text.contains(said), "{text}");
    }
    let without_vfs = PfFacts { vfs: Vec::new(), ..facts.pfs[0].clone() };
    let plan = plan_node(&nothing(), &HostFacts { pfs: vec![without_vfs], ..facts.clone() });
    assert_eq!((steps(&plan), reasons(&plan)), (Vec::new(), vec!["PfInUse"]), "nothing is done twice");
    facts.pfs[0].link.as_mut().unwrap().host_use = None;
    let free = [
        "set 0000:3b:00.0 numvfs 0",
        "set 0000:3b:00.0 eswitch legacy",
        "set 0000:3b:00.0 mtu 1500",
        "forget 0000:3b:00.0",
    ];
    expect(facts, None, &nothing(), &free, Disruption::Drain);
}

#[test]
fn a_pf_in_use_of_which_nothing_is_to_be_restored_is_forgotten() {
    let mut pf = pf(2);
    pf.link.as_mut().unwrap().host_use = Some(HostUse::NodeAddress);
    let expected = ["set 0000:3b:00.0 numvfs 0", "forget 0000:3b:00.0"];
    expect(machine(pf), Some(&two("mtu: 1400")), &nothing(), &expected, Disruption::Drain);
}

#[test]
fn on_a_pf_in_use_vfs_are_not_made_where_that_takes_another_mode_for_a_while() {
    let mut pf = pf(0);
    pf.eswitch = Fact::Value(EswitchMode::Switchdev);
    pf.link.as_mut().unwrap().host_use = Some(HostUse::DefaultRoute);
    let wanted = spec("numVfs: 2, eSwitchMode: switchdev, vfGroups: [{vfRange: 0-1}]");
    assert_eq!(reasons(&plan_node(&wanted, &machine(pf.clone()))), ["PfInUse"]);
    pf.driver = Some("ice".to_owned());
    let plan = plan_node(&wanted, &machine(pf));
    assert_eq!(reasons(&plan), Vec::<&str>::new());
    assert!(!plan.steps.iter().any(|planned| matches!(planned.step, Step::SetEswitchMode { .. })));
}

#[test]
fn a_record_that_cannot_be_read_is_a_problem_whoever_wants_the_pf() {
    let wanted = two("deviceType: netdevice");
    let mut facts = machine(pf(2));
    facts.pfs.clear();
    let error = "the record x is damaged: remove it".to_owned();
    facts.unread = vec![Unread { pf: address(PF), error, reason: "RecordDamaged" }];
    // What hangs and is not ours is nobody's problem here.
    assert_eq!(reasons(&plan_node(&nothing(), &facts)), [""; 0]);
    facts.unread_records.insert(address(PF));
    for spec in [wanted, nothing()] {
        let plan = plan_node(&spec, &facts);
        assert!(plan.steps.iter().all(|planned| planned.step.pf().is_none()), "{plan:#?}");
        assert_eq!(reasons(&plan), ["RecordDamaged"]);
        assert!(plan.problems[0].is_worth_a_retry());
    }
}

#[test]
fn with_a_card_that_cannot_be_read_nothing_is_done_and_it_is_tried_again() {
    let wanted = two("deviceType: netdevice");
    let mut facts = recorded(machine(pf(2)), &wanted);
    facts.pfs.clear();
    let error = "reading sriov_numvfs took longer than 10 s: look at the driver".to_owned();
    facts.unread = vec![Unread { pf: address(PF), error, reason: "Deadline" }];
    for spec in [wanted, nothing()] {
        let plan = plan_node(&spec, &facts);
        assert!(plan.steps.iter().all(|planned| planned.step.pf().is_none()), "{plan:#?}");
        assert_eq!(reasons(&plan), ["Deadline"]);
        assert!(plan.problems[0].is_worth_a_retry());
    }
}

/// A use that is not seen any more, and is remembered.
fn lingers(facts: &mut HostFacts, function: &str, is_of_earlier_boot: bool) {
    let absent = Some((Moment(0), Moment(300_000_000)));
    let lingering = LingeringUse { host_use: HostUse::DefaultRoute, is_of_earlier_boot, absent };
    facts.lingering_uses.insert(address(function), lingering);
}

const VF_0: &str = "0000:3b:01.0";

#[test]
fn a_use_that_is_away_for_a_moment_protects_a_vf() {
    let wanted = two("deviceType: netdevice");
    for (spec, expected) in [(two("deviceType: vfio-pci"), 1), (nothing(), 0)] {
        let mut facts = recorded(machine(pf(2)), &wanted);
        lingers(&mut facts, VF_0, false);
        let plan = plan_node(&spec, &facts);
        let binds = plan.steps.iter().filter(|planned| planned.step.vf().is_some()).count();
        assert_eq!((binds, reasons(&plan)), (expected, vec!["VfInUse"]));
        assert!(!plan.steps.iter().any(|planned| matches!(planned.step, Step::SetNumVfs { .. })));
        let text = plan.problems[0].to_string();
        assert!(text.contains("not seen since") && text.contains("protected until about"), "{text}");
    }
}

#[test]
fn a_use_that_is_away_for_a_moment_protects_a_pf() {
    let mut facts = machine(pf(2));
    lingers(&mut facts, PF, false);
    assert_eq!(reasons(&plan_node(&two("mtu: 9000"), &facts)), ["PfInUse"]);
    let mut raised = recorded(facts, &two("mtu: 9000"));
    raised.records[0].raised_mtu = Some(9000);
    raised.pfs[0].link.as_mut().unwrap().mtu = 9000;
    let given_back = plan_node(&nothing(), &raised);
    assert!(!given_back.steps.iter().any(|planned| matches!(planned.step, Step::SetPfMtu { .. })));
}

#[test]
fn a_vf_in_use_that_lost_its_driver_gets_it_back() {
    let wanted = two("deviceType: netdevice");
    let mut facts = recorded(machine(pf(2)), &wanted);
    lingers(&mut facts, VF_0, false);
    (facts.pfs[0].vfs[0].driver, facts.pfs[0].vfs[0].link) = (None, None);
    let plan = plan_node(&wanted, &facts);
    assert!(steps(&plan).contains(&"bind 0000:3b:00.0 vf 0 to the kernel's driver".to_owned()), "{plan:#?}");
    assert_eq!(reasons(&plan), Vec::<&str>::new());
    facts.pfs[0].vfs[1].driver = Some("vfio-pci".to_owned());
    assert_eq!(reasons(&plan_node(&two("deviceType: vfio-pci"), &facts)), ["VfInUse"]);
}

/// A machine that starts loses what it was made, and gets it again.
#[test]
fn what_the_node_used_before_a_start_stands_against_news_only() {
    let wanted = two("mtu: 9000");
    for (is_of_earlier_boot, expected) in [(false, vec!["PfInUse"]), (true, Vec::new())] {
        let mut facts = recorded(machine(pf(0)), &wanted);
        lingers(&mut facts, PF, is_of_earlier_boot);
        assert_eq!(reasons(&plan_node(&wanted, &facts)), expected);
        assert_eq!(reasons(&plan_node(&two("mtu: 9001"), &facts)), ["PfInUse"]);
    }
}

#[test]
fn a_policy_overrides_the_protection_of_a_pf_and_its_vfs() {
    let mut pf = pf(2);
    use_vf(&mut pf, 1);
    pf.link.as_mut().unwrap().host_use = Some(HostUse::Address);
    let mut facts = machine(pf);
    lingers(&mut facts, VF_0, false);
    let switchdev = "eSwitchMode: switchdev, mtu: 9000, vfGroups: [{vfRange: 0-0, mtu: 9000}]";
    let plan = plan_node(&spec(&format!("numVfs: 3, {switchdev}")), &facts);
    assert_eq!(reasons(&plan), ["PfInUse", "PfInUse", "VfInUse"]);
    let plan = plan_node(&spec(&format!("numVfs: 3, overrideHostProtection: true, {switchdev}")), &facts);
    assert_eq!(reasons(&plan), Vec::<&str>::new());
    assert!(steps(&plan).contains(&format!("set {PF} numvfs 0")), "{plan:#?}");
}
