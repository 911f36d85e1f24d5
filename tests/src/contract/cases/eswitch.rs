//! Embedded switches and representors.

use vfleet_plan::files::UDEV_RULES;
use vfleet_plan::{EswitchMode, Fact, HostFile, ModeOrder, ModeTrial, Record, Step};

use super::{INITIAL_VFS, cases};
use crate::contract::check::{
    compare_eswitch, compare_pf, ensure, execute, expect_eq, expect_refusal, expect_some, observe_pf,
    read_pf_facts, vf_ref,
};
use crate::contract::specs;
use crate::contract::testbed::{CaseError, CaseResult, TestBed};

cases! {
    reports_no_eswitch_on_a_card_without_one: VfsCreatedDown,
    refuses_an_eswitch_mode_on_a_card_without_eswitch: NoVfs,
    refuses_tc_offload_on_a_card_that_does_not_support_it: NoVfs,
    software_steering_is_ignored_on_a_card_without_the_setting: NoVfs,
    sets_the_eswitch_mode: EswitchAnyTime,
    an_eswitch_mode_can_be_changed_while_vfs_are_bound: EswitchAnyTime,
    an_eswitch_that_requires_unbound_vfs_refuses_a_mode_while_vfs_are_bound: EswitchRequiresUnboundVfs,
    representors_are_created_and_deleted_with_the_mode: EswitchAnyTime,
    udev_names_representors_by_the_written_rule: EswitchAnyTime,
    software_steering_can_be_set_only_in_legacy_mode: EswitchAnyTime,
    switches_tc_offload: EswitchAnyTime,
    tc_offload_follows_the_eswitch_mode: EswitchAnyTime,
    an_eswitch_that_requires_vfs_is_off_without_vfs: EswitchRequiresVfs,
    new_vfs_have_representors_in_switchdev_mode: EswitchRequiresNoVfs,
    a_mode_that_vfs_prevent_is_refused_with_the_kernels_reason: EswitchRequiresNoVfs,
    a_refused_mode_is_written_to_the_record: EswitchRequiresNoVfs,
    a_refused_mode_is_an_error_with_the_kernels_reason: EswitchRefusesModes,
}

fn set_mode(testbed: &dyn TestBed, mode: EswitchMode) -> Step {
    Step::SetEswitchMode { pf: testbed.pf(), mode, trial: None }
}

fn set_num_vfs(testbed: &dyn TestBed, count: u16) -> Step {
    Step::SetNumVfs { pf: testbed.pf(), count }
}

fn unbind_all(testbed: &dyn TestBed) -> CaseResult {
    (0..INITIAL_VFS).try_for_each(|index| testbed.admin().unbind(vf_ref(testbed, index)))
}

/// Returns the names of the representors, after comparing them with the facts.
fn compare_representors(testbed: &dyn TestBed) -> Result<Vec<String>, CaseError> {
    Ok(compare_eswitch(testbed)?.representors.into_iter().flatten().collect())
}

fn reports_no_eswitch_on_a_card_without_one(testbed: &dyn TestBed) -> CaseResult {
    let switch = compare_eswitch(testbed)?;
    expect_eq("the representors", &switch.representors, &vec![None; INITIAL_VFS.into()])?;
    expect_eq("the mode", &switch.mode, &Fact::None)?;
    expect_eq("hw-tc-offload", &switch.tc_offload, &None)?;
    expect_eq("the switch port", &switch.port, &None)
}

fn refuses_an_eswitch_mode_on_a_card_without_eswitch(testbed: &dyn TestBed) -> CaseResult {
    let before = observe_pf(testbed)?;
    for mode in [EswitchMode::Switchdev, EswitchMode::Legacy] {
        expect_refusal(testbed, &set_mode(testbed, mode), "NoEswitch")?;
    }
    expect_eq("the card", &observe_pf(testbed)?, &before)
}

fn refuses_tc_offload_on_a_card_that_does_not_support_it(testbed: &dyn TestBed) -> CaseResult {
    match testbed.host().execute(&Step::SetTcOffload { pf: testbed.pf(), on: true }) {
        Ok(()) => Err(CaseError::Failed("the step succeeded".to_owned())),
        Err(_) => expect_eq("hw-tc-offload", &compare_eswitch(testbed)?.tc_offload, &None),
    }
}

fn software_steering_is_ignored_on_a_card_without_the_setting(testbed: &dyn TestBed) -> CaseResult {
    execute(testbed, &[Step::SetSoftwareSteering { pf: testbed.pf() }])
}

fn sets_the_eswitch_mode(testbed: &dyn TestBed) -> CaseResult {
    unbind_all(testbed)?;
    for mode in [EswitchMode::Switchdev, EswitchMode::Switchdev, EswitchMode::Legacy] {
        execute(testbed, &[set_mode(testbed, mode)])?;
        expect_eq("the mode", &compare_eswitch(testbed)?.mode, &Fact::Value(mode))?;
    }
    Ok(())
}

fn an_eswitch_mode_can_be_changed_while_vfs_are_bound(testbed: &dyn TestBed) -> CaseResult {
    let before = observe_pf(testbed)?;
    for mode in [EswitchMode::Switchdev, EswitchMode::Legacy] {
        execute(testbed, &[set_mode(testbed, mode)])?;
        expect_eq("the mode", &compare_eswitch(testbed)?.mode, &Fact::Value(mode))?;
        expect_eq("the card", &compare_pf(testbed)?, &before)?;
    }
    Ok(())
}

fn an_eswitch_that_requires_unbound_vfs_refuses_a_mode_while_vfs_are_bound(
    testbed: &dyn TestBed,
) -> CaseResult {
    let text = expect_refusal(testbed, &set_mode(testbed, EswitchMode::Switchdev), "NetlinkRefused")?;
    ensure(text.contains("A driver holds a VF") && text.contains("Invalid argument"), text)?;
    expect_eq("the mode", &compare_eswitch(testbed)?.mode, &Fact::Value(EswitchMode::Legacy))?;
    execute(testbed, &[set_mode(testbed, EswitchMode::Legacy)])?;
    unbind_all(testbed)?;
    execute(testbed, &[set_mode(testbed, EswitchMode::Switchdev)])?;
    expect_eq("the mode", &compare_eswitch(testbed)?.mode, &Fact::Value(EswitchMode::Switchdev))
}

fn representors_are_created_and_deleted_with_the_mode(testbed: &dyn TestBed) -> CaseResult {
    expect_eq("the representors", &compare_representors(testbed)?, &Vec::new())?;
    execute(testbed, &[set_mode(testbed, EswitchMode::Switchdev)])?;
    let pf = expect_some("the interface", read_pf_facts(testbed)?.link)?.name;
    let expected: Vec<String> = (0..INITIAL_VFS).map(|index| format!("{pf}r{index}")).collect();
    expect_eq("the representors", &compare_representors(testbed)?, &expected)?;
    ensure(
        compare_eswitch(testbed)?.port.is_some_and(|(_, port)| port == "p0"),
        "the PF is not port p0 of the switch",
    )?;
    execute(testbed, &[set_mode(testbed, EswitchMode::Legacy)])?;
    expect_eq("the representors", &compare_representors(testbed)?, &Vec::new())
}

/// Returns the step that writes a udev rule that names the representors and keeps the name of the PF.
fn rule_step(testbed: &dyn TestBed) -> Result<Step, CaseError> {
    let pf = expect_some("the interface", observe_pf(testbed)?.link)?.name;
    let (switch, port) = expect_some("the port", testbed.observer().eswitch(testbed.pf())?.port)?;
    let line = |port: &str, name: &str| {
        format!(
            "SUBSYSTEM==\"net\", ACTION==\"add\", ATTR{{phys_switch_id}}==\"{switch}\", \
             ATTR{{phys_port_name}}==\"{port}\", NAME=\"{name}\"\n"
        )
    };
    let of_vfs = (0..INITIAL_VFS).map(|index| line(&format!("pf0vf{index}"), &format!("{pf}_{index}")));
    let text = std::iter::once(line(&port, &pf)).chain(of_vfs).collect();
    let path = format!("{UDEV_RULES}/20-switchdev-{}.rules", testbed.pf());
    Ok(Step::WriteFile { pf: Some(testbed.pf()), file: HostFile { path, text, is_program: false } })
}

fn udev_names_representors_by_the_written_rule(testbed: &dyn TestBed) -> CaseResult {
    let pf = expect_some("the interface", observe_pf(testbed)?.link)?.name;
    execute(testbed, &[set_mode(testbed, EswitchMode::Switchdev)])?;
    let before = compare_representors(testbed)?;
    execute(testbed, &[rule_step(testbed)?])?;
    expect_eq(
        "the representors before the udev events are replayed",
        &compare_representors(testbed)?,
        &before,
    )?;
    execute(testbed, &[Step::ReplayUdev { pf: testbed.pf() }])?;
    let expected: Vec<String> = (0..INITIAL_VFS).map(|index| format!("{pf}_{index}")).collect();
    expect_eq("the representors", &compare_representors(testbed)?, &expected)?;
    expect_eq("the name of the PF", &observe_pf(testbed)?.link.map(|link| link.name), &Some(pf))
}

fn software_steering_can_be_set_only_in_legacy_mode(testbed: &dyn TestBed) -> CaseResult {
    let read_steering = || Ok::<_, CaseError>(compare_eswitch(testbed)?.software_steering);
    let set_steering = Step::SetSoftwareSteering { pf: testbed.pf() };
    execute(testbed, &[set_mode(testbed, EswitchMode::Switchdev), set_steering.clone()])?;
    expect_eq("software steering, set in switchdev mode", &read_steering()?, &Some(false))?;
    execute(testbed, &[set_mode(testbed, EswitchMode::Legacy), set_steering.clone(), set_steering])?;
    expect_eq("software steering", &read_steering()?, &Some(true))
}

fn switches_tc_offload(testbed: &dyn TestBed) -> CaseResult {
    for on in [true, true, false] {
        execute(testbed, &[Step::SetTcOffload { pf: testbed.pf(), on }])?;
        expect_eq("hw-tc-offload", &compare_eswitch(testbed)?.tc_offload, &Some(on))?;
    }
    Ok(())
}

fn tc_offload_follows_the_eswitch_mode(testbed: &dyn TestBed) -> CaseResult {
    expect_eq("hw-tc-offload", &compare_eswitch(testbed)?.tc_offload, &Some(false))?;
    for (mode, on) in [(EswitchMode::Switchdev, true), (EswitchMode::Legacy, false)] {
        execute(testbed, &[set_mode(testbed, mode)])?;
        expect_eq("hw-tc-offload", &compare_eswitch(testbed)?.tc_offload, &Some(on))?;
    }
    Ok(())
}

fn an_eswitch_that_requires_vfs_is_off_without_vfs(testbed: &dyn TestBed) -> CaseResult {
    execute(testbed, &[set_mode(testbed, EswitchMode::Switchdev), set_num_vfs(testbed, 0)])?;
    expect_eq("the mode without VFs", &compare_eswitch(testbed)?.mode, &Fact::Unknown)?;
    let text = expect_refusal(testbed, &set_mode(testbed, EswitchMode::Switchdev), "NetlinkRefused")?;
    ensure(text.contains("not supported"), text)?;
    // Without VFs, legacy mode is the same as off: the step succeeds.
    execute(testbed, &[set_mode(testbed, EswitchMode::Legacy), set_num_vfs(testbed, 2)])?;
    let switch = compare_eswitch(testbed)?;
    expect_eq("the mode with new VFs", &switch.mode, &Fact::Value(EswitchMode::Legacy))?;
    expect_eq("their representors", &switch.representors, &vec![None; 2])
}

fn a_refused_mode_is_written_to_the_record(testbed: &dyn TestBed) -> CaseResult {
    let record = Record::taken_over(testbed.pf(), specs::interface(testbed.pf(), 1));
    execute(testbed, &[Step::WriteRecord { record }, set_num_vfs(testbed, 1)])?;
    let trial = ModeTrial { order: ModeOrder::VfsFirst, boot_id: "this".to_owned() };
    let mode = EswitchMode::Switchdev;
    let try_mode = Step::SetEswitchMode { pf: testbed.pf(), mode, trial: Some(trial.clone()) };
    let refused_orders = || {
        let records = testbed.new_host().facts()?.records;
        Ok::<_, CaseError>(expect_some("the record", records.into_iter().next())?.refused_orders)
    };
    for _ in 0..2 {
        let text = expect_refusal(testbed, &try_mode, "NetlinkRefused")?;
        let orders = refused_orders()?;
        let [order] = &orders[..] else {
            return Err(CaseError::Failed(format!("not one refused order: {orders:?}")));
        };
        expect_eq("the refused order in the record", &(&order.trial, &order.error), &(&trial, &text))?;
    }
    let content = expect_some("the record", testbed.observer().record(testbed.pf())?)?.parse_json()?;
    expect_eq("the refused order", &content["refusedOrders"][0]["order"], &"vfsFirst".into())?;
    execute(testbed, &[set_num_vfs(testbed, 0), try_mode])?;
    expect_eq("the number of refused orders", &refused_orders()?.len(), &1)
}

fn new_vfs_have_representors_in_switchdev_mode(testbed: &dyn TestBed) -> CaseResult {
    execute(testbed, &[set_mode(testbed, EswitchMode::Switchdev), set_num_vfs(testbed, 2)])?;
    expect_eq("the number of representors", &compare_representors(testbed)?.len(), &2)
}

fn a_mode_that_vfs_prevent_is_refused_with_the_kernels_reason(testbed: &dyn TestBed) -> CaseResult {
    execute(testbed, &[set_num_vfs(testbed, 1)])?;
    let text = expect_refusal(testbed, &set_mode(testbed, EswitchMode::Switchdev), "NetlinkRefused")?;
    ensure(text.contains("VFs") && text.contains("not supported"), text)?;
    expect_eq("the mode", &compare_eswitch(testbed)?.mode, &Fact::Value(EswitchMode::Legacy))
}

fn a_refused_mode_is_an_error_with_the_kernels_reason(testbed: &dyn TestBed) -> CaseResult {
    let text = expect_refusal(testbed, &set_mode(testbed, EswitchMode::Switchdev), "NetlinkRefused")?;
    ensure(text.contains("Asked to fail") && text.contains("busy"), text)?;
    expect_eq("the mode", &compare_eswitch(testbed)?.mode, &Fact::Value(EswitchMode::Legacy))
}
