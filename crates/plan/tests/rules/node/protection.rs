//! What the node itself uses is not touched.

use vfleet_plan::{Disruption, EswitchMode, Fact, HostFacts, HostUse, PfFacts, Step, Unread, plan_node};

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
