//! Protection of PFs and VFs that the node uses.

use vfleet_plan::drain::Moment;
use vfleet_plan::{
    Disruption, EswitchMode, Fact, HostFacts, HostUse, LingeringUse, PfFacts, Step, UnreadableCard, plan_node,
};

use super::machine::{
    PF, address, expect, machine, nothing, pf, reasons, recorded, spec, steps, two, use_vf,
};

#[test]
fn a_vf_in_use_is_not_changed_and_others_are() {
    let mut pf = pf(2);
    use_vf(&mut pf, 0);
    let plan = plan_node(&two("deviceType: vfio-pci"), &machine(pf));
    assert_eq!(steps(&plan), ["bind 0000:3b:00.0 vf 1 to vfio-pci"]);
    assert_eq!(reasons(&plan), ["VfInUse"]);
    let text = plan.problems[0].to_string();
    assert!(
        text.contains("VF 0")
            && text.contains("the default route")
            && text.contains("exclude it from the VF range"),
        "{text}"
    );
}

#[test]
fn a_configured_vf_in_use_is_no_problem() {
    let mut pf = pf(2);
    use_vf(&mut pf, 0);
    expect(machine(pf), None, &two("deviceType: netdevice"), &[], Disruption::None);
}

#[test]
fn a_vf_in_use_in_no_group_is_no_problem() {
    let mut pf = pf(2);
    use_vf(&mut pf, 0);
    let desired = spec("numVfs: 2, vfGroups: [{vfRange: 1-1, deviceType: vfio-pci}]");
    expect(machine(pf), None, &desired, &["bind 0000:3b:00.0 vf 1 to vfio-pci"], Disruption::Drain);
}

/// All VFs would be removed by another number, another mode, or the removal of the policy.
#[test]
fn vfs_are_not_removed_while_one_is_in_use() {
    let mut pf = pf(2);
    use_vf(&mut pf, 1);
    let other_count = spec("numVfs: 3, vfGroups: [{vfRange: 0-0}]");
    let other_mode = spec("numVfs: 2, eSwitchMode: switchdev, vfGroups: [{vfRange: 0-0}]");
    for desired in [other_count, other_mode, nothing()] {
        let facts = recorded(machine(pf.clone()), &two("deviceType: netdevice"));
        let plan = plan_node(&desired, &facts);
        assert!(plan.steps.iter().all(|planned| planned.step.pf().is_none()), "{plan:#?}");
        assert_eq!(reasons(&plan), ["VfInUse"]);
        assert!(plan.problems[0].to_string().contains("VF 1"), "{}", plan.problems[0]);
        assert!(!plan.problems[0].is_retryable());
    }
}

#[test]
fn a_pf_in_use_keeps_its_mtu_mode_and_record_until_it_is_free() {
    let mut pf = pf(2);
    pf.eswitch = Fact::Value(EswitchMode::Switchdev);
    let link = pf.link.as_mut().unwrap();
    (link.mtu, link.host_use) = (9000, Some(HostUse::NodeAddress));
    let mut facts = recorded(machine(pf), &two("mtu: 9000"));
    facts.records[0].raised_mtu = Some(9000);
    facts.records[0].original.eswitch = Some(EswitchMode::Legacy);
    let plan = plan_node(&nothing(), &facts);
    assert_eq!(steps(&plan), ["set 0000:3b:00.0 numvfs 0"], "the record stays");
    assert_eq!(reasons(&plan), ["PfInUse"]);
    let text = plan.problems[0].to_string();
    for part in ["mode is not reset to legacy", "MTU is not reset to 1500", "the node's own address"] {
        assert!(text.contains(part), "{text}");
    }
    let without_vfs = PfFacts { vfs: Vec::new(), ..facts.pfs[0].clone() };
    let plan = plan_node(&nothing(), &HostFacts { pfs: vec![without_vfs], ..facts.clone() });
    assert_eq!((steps(&plan), reasons(&plan)), (Vec::new(), vec!["PfInUse"]), "no step is repeated");
    facts.pfs[0].link.as_mut().unwrap().host_use = None;
    let free = [
        "set 0000:3b:00.0 numvfs 0",
        "set 0000:3b:00.0 eswitch mode legacy",
        "set 0000:3b:00.0 mtu 1500",
        "remove state file of 0000:3b:00.0",
    ];
    expect(facts, None, &nothing(), &free, Disruption::Drain);
}

#[test]
fn a_pf_in_use_with_nothing_to_restore_is_reset() {
    let mut pf = pf(2);
    pf.link.as_mut().unwrap().host_use = Some(HostUse::NodeAddress);
    let expected = ["set 0000:3b:00.0 numvfs 0", "remove state file of 0000:3b:00.0"];
    expect(machine(pf), Some(&two("mtu: 1400")), &nothing(), &expected, Disruption::Drain);
}

#[test]
fn vfs_that_need_a_temporary_mode_are_not_created_on_a_pf_in_use() {
    let mut pf = pf(0);
    pf.eswitch = Fact::Value(EswitchMode::Switchdev);
    pf.link.as_mut().unwrap().host_use = Some(HostUse::DefaultRoute);
    let desired = spec("numVfs: 2, eSwitchMode: switchdev, vfGroups: [{vfRange: 0-1}]");
    assert_eq!(reasons(&plan_node(&desired, &machine(pf.clone()))), ["PfInUse"]);
    pf.driver = Some("ice".to_owned());
    let plan = plan_node(&desired, &machine(pf));
    assert_eq!(reasons(&plan), Vec::<&str>::new());
    assert!(!plan.steps.iter().any(|planned| matches!(planned.step, Step::SetEswitchMode { .. })));
}

#[test]
fn an_unreadable_record_is_a_problem_with_and_without_a_policy() {
    let desired = two("deviceType: netdevice");
    let mut facts = machine(pf(2));
    facts.pfs.clear();
    let error = "the record x is damaged: remove it".to_owned();
    facts.unreadable = vec![UnreadableCard { pf: address(PF), error, reason: "RecordDamaged" }];
    // A card that hangs and has no record is no problem.
    assert_eq!(reasons(&plan_node(&nothing(), &facts)), [""; 0]);
    facts.unreadable_records.insert(address(PF));
    for spec in [desired, nothing()] {
        let plan = plan_node(&spec, &facts);
        assert!(plan.steps.iter().all(|planned| planned.step.pf().is_none()), "{plan:#?}");
        assert_eq!(reasons(&plan), ["RecordDamaged"]);
        assert!(plan.problems[0].is_retryable());
    }
}

#[test]
fn an_unreadable_card_is_not_changed_and_is_retried() {
    let desired = two("deviceType: netdevice");
    let mut facts = recorded(machine(pf(2)), &desired);
    facts.pfs.clear();
    let error = "reading sriov_numvfs took longer than 10 s: look at the driver".to_owned();
    facts.unreadable = vec![UnreadableCard { pf: address(PF), error, reason: "Deadline" }];
    for spec in [desired, nothing()] {
        let plan = plan_node(&spec, &facts);
        assert!(plan.steps.iter().all(|planned| planned.step.pf().is_none()), "{plan:#?}");
        assert_eq!(reasons(&plan), ["Deadline"]);
        assert!(plan.problems[0].is_retryable());
    }
}

/// Adds a use that is remembered, and not observed now.
fn add_lingering_use(facts: &mut HostFacts, function: &str, is_of_earlier_boot: bool) {
    let absent = Some((Moment(0), Moment(300_000_000)));
    let lingering = LingeringUse { host_use: HostUse::DefaultRoute, is_of_earlier_boot, absent };
    facts.lingering_uses.insert(address(function), lingering);
}

const VF_0: &str = "0000:3b:01.0";

#[test]
fn a_remembered_use_protects_a_vf() {
    let desired = two("deviceType: netdevice");
    for (spec, expected) in [(two("deviceType: vfio-pci"), 1), (nothing(), 0)] {
        let mut facts = recorded(machine(pf(2)), &desired);
        add_lingering_use(&mut facts, VF_0, false);
        let plan = plan_node(&spec, &facts);
        let binds = plan.steps.iter().filter(|planned| planned.step.vf().is_some()).count();
        assert_eq!((binds, reasons(&plan)), (expected, vec!["VfInUse"]));
        assert!(!plan.steps.iter().any(|planned| matches!(planned.step, Step::SetNumVfs { .. })));
        let text = plan.problems[0].to_string();
        assert!(text.contains("not observed since") && text.contains("protected until about"), "{text}");
    }
}

#[test]
fn a_remembered_use_protects_a_pf() {
    let mut facts = machine(pf(2));
    add_lingering_use(&mut facts, PF, false);
    assert_eq!(reasons(&plan_node(&two("mtu: 9000"), &facts)), ["PfInUse"]);
    let mut raised = recorded(facts, &two("mtu: 9000"));
    raised.records[0].raised_mtu = Some(9000);
    raised.pfs[0].link.as_mut().unwrap().mtu = 9000;
    let given_back = plan_node(&nothing(), &raised);
    assert!(!given_back.steps.iter().any(|planned| matches!(planned.step, Step::SetPfMtu { .. })));
}

#[test]
fn a_vf_in_use_that_lost_its_driver_gets_it_back() {
    let desired = two("deviceType: netdevice");
    let mut facts = recorded(machine(pf(2)), &desired);
    add_lingering_use(&mut facts, VF_0, false);
    (facts.pfs[0].vfs[0].driver, facts.pfs[0].vfs[0].link) = (None, None);
    let plan = plan_node(&desired, &facts);
    assert!(steps(&plan).contains(&"bind 0000:3b:00.0 vf 0 to the kernel driver".to_owned()), "{plan:#?}");
    assert_eq!(reasons(&plan), Vec::<&str>::new());
    facts.pfs[0].vfs[1].driver = Some("vfio-pci".to_owned());
    assert_eq!(reasons(&plan_node(&two("deviceType: vfio-pci"), &facts)), ["VfInUse"]);
}

/// A reboot loses the configuration, which is then applied again.
#[test]
fn a_use_before_a_reboot_prevents_only_new_changes() {
    let desired = two("mtu: 9000");
    for (is_of_earlier_boot, expected) in [(false, vec!["PfInUse"]), (true, Vec::new())] {
        let mut facts = recorded(machine(pf(0)), &desired);
        add_lingering_use(&mut facts, PF, is_of_earlier_boot);
        assert_eq!(reasons(&plan_node(&desired, &facts)), expected);
        assert_eq!(reasons(&plan_node(&two("mtu: 9001"), &facts)), ["PfInUse"]);
    }
}

#[test]
fn a_policy_overrides_the_protection_of_a_pf_and_its_vfs() {
    let mut pf = pf(2);
    use_vf(&mut pf, 1);
    pf.link.as_mut().unwrap().host_use = Some(HostUse::Address);
    let mut facts = machine(pf);
    add_lingering_use(&mut facts, VF_0, false);
    let switchdev = "eSwitchMode: switchdev, mtu: 9000, vfGroups: [{vfRange: 0-0, mtu: 9000}]";
    let plan = plan_node(&spec(&format!("numVfs: 3, {switchdev}")), &facts);
    assert_eq!(reasons(&plan), ["PfInUse", "PfInUse", "VfInUse"]);
    let plan = plan_node(&spec(&format!("numVfs: 3, overrideHostProtection: true, {switchdev}")), &facts);
    assert_eq!(reasons(&plan), Vec::<&str>::new());
    assert!(steps(&plan).contains(&format!("set {PF} numvfs 0")), "{plan:#?}");
}
