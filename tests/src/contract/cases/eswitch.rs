//! Embedded switches, and the interfaces that stand for VFs on them.

use vfleet_plan::files::UDEV_RULES;
use vfleet_plan::{EswitchMode, Fact, HostFile, ModeOrder, ModeTrial, Record, Step};

use super::{GIVEN_VFS, cases};
use crate::contract::bench::{Bench, Shown, Stop};
use crate::contract::check::{
    agree, agree_on_switch, ensure, execute, facts, look, refused, same, there, vf,
};
use crate::contract::specs;

cases! {
    tells_no_eswitch_of_a_card_without_one: VfsMadeDown,
    refuses_an_eswitch_mode_of_a_card_without_one: NoVfs,
    refuses_to_offload_to_a_card_that_cannot: NoVfs,
    a_card_that_steers_in_no_other_way_is_well: NoVfs,
    sets_the_eswitch_mode: SwitchCard,
    an_eswitch_mode_may_be_changed_under_bound_vfs: SwitchCard,
    an_eswitch_mode_is_not_changed_under_bound_vfs: SwitchForFreeVfs,
    representors_come_and_go_with_the_mode: SwitchCard,
    udev_names_representors_by_its_rule: SwitchCard,
    steers_by_software_only_from_legacy_mode_on: SwitchCard,
    switches_offloading: SwitchCard,
    offloading_comes_and_goes_with_the_mode: SwitchCard,
    a_switch_for_vfs_is_off_without_them: SwitchForVfs,
    new_vfs_have_representors: SwitchForNoVfs,
    an_eswitch_mode_that_vfs_forbid_is_refused_with_the_kernels_reason: SwitchForNoVfs,
    a_mode_that_is_refused_is_noted_in_the_record: SwitchForNoVfs,
    an_eswitch_mode_that_is_refused_is_an_error_with_the_kernels_reason: StuckSwitch,
}

fn set_mode(bench: &dyn Bench, mode: EswitchMode) -> Step {
    Step::SetEswitchMode { pf: bench.pf(), mode, trial: None }
}

fn set_num_vfs(bench: &dyn Bench, count: u16) -> Step {
    Step::SetNumVfs { pf: bench.pf(), count }
}

fn unbind_all(bench: &dyn Bench) -> Shown {
    (0..GIVEN_VFS).try_for_each(|index| bench.outsider().unbind(vf(bench, index)))
}

/// The names of the representors that host and witness agree on.
fn representors(bench: &dyn Bench) -> Result<Vec<String>, Stop> {
    Ok(agree_on_switch(bench)?.representors.into_iter().flatten().collect())
}

fn tells_no_eswitch_of_a_card_without_one(bench: &dyn Bench) -> Shown {
    let switch = agree_on_switch(bench)?;
    same("the representors", &switch.representors, &vec![None; GIVEN_VFS.into()])?;
    same("the mode", &switch.mode, &Fact::None)?;
    same("whether offloading is on", &switch.tc_offload, &None)?;
    same("the port of a switch", &switch.port, &None)
}

fn refuses_an_eswitch_mode_of_a_card_without_one(bench: &dyn Bench) -> Shown {
    let before = look(bench)?;
    for mode in [EswitchMode::Switchdev, EswitchMode::Legacy] {
        refused(bench, &set_mode(bench, mode), "NoEswitch")?;
    }
    same("the card", &look(bench)?, &before)
}

fn refuses_to_offload_to_a_card_that_cannot(bench: &dyn Bench) -> Shown {
    match bench.host().execute(&Step::SetTcOffload { pf: bench.pf(), on: true }) {
        Ok(()) => Err(Stop::Failed("it succeeded".to_owned())),
        Err(_) => same("whether offloading is on", &agree_on_switch(bench)?.tc_offload, &None),
    }
}

fn a_card_that_steers_in_no_other_way_is_well(bench: &dyn Bench) -> Shown {
    execute(bench, &[Step::SetSoftwareSteering { pf: bench.pf() }])
}

fn sets_the_eswitch_mode(bench: &dyn Bench) -> Shown {
    unbind_all(bench)?;
    for mode in [EswitchMode::Switchdev, EswitchMode::Switchdev, EswitchMode::Legacy] {
        execute(bench, &[set_mode(bench, mode)])?;
        same("the mode", &agree_on_switch(bench)?.mode, &Fact::Value(mode))?;
    }
    Ok(())
}

fn an_eswitch_mode_may_be_changed_under_bound_vfs(bench: &dyn Bench) -> Shown {
    let before = look(bench)?;
    for mode in [EswitchMode::Switchdev, EswitchMode::Legacy] {
        execute(bench, &[set_mode(bench, mode)])?;
        same("the mode", &agree_on_switch(bench)?.mode, &Fact::Value(mode))?;
        same("the card", &agree(bench)?, &before)?;
    }
    Ok(())
}

fn an_eswitch_mode_is_not_changed_under_bound_vfs(bench: &dyn Bench) -> Shown {
    let text = refused(bench, &set_mode(bench, EswitchMode::Switchdev), "NetlinkRefused")?;
    ensure(text.contains("A driver holds a VF") && text.contains("Invalid argument"), text)?;
    same("the mode", &agree_on_switch(bench)?.mode, &Fact::Value(EswitchMode::Legacy))?;
    execute(bench, &[set_mode(bench, EswitchMode::Legacy)])?;
    unbind_all(bench)?;
    execute(bench, &[set_mode(bench, EswitchMode::Switchdev)])?;
    same("the mode", &agree_on_switch(bench)?.mode, &Fact::Value(EswitchMode::Switchdev))
}

fn representors_come_and_go_with_the_mode(bench: &dyn Bench) -> Shown {
    same("the representors", &representors(bench)?, &Vec::new())?;
    execute(bench, &[set_mode(bench, EswitchMode::Switchdev)])?;
    let pf = there("the interface", facts(bench)?.link)?.name;
    let expected: Vec<String> = (0..GIVEN_VFS).map(|index| format!("{pf}r{index}")).collect();
    same("the representors", &representors(bench)?, &expected)?;
    ensure(agree_on_switch(bench)?.port.is_some_and(|(_, port)| port == "p0"), "the PF is a port, too")?;
    execute(bench, &[set_mode(bench, EswitchMode::Legacy)])?;
    same("the representors", &representors(bench)?, &Vec::new())
}

/// A rule that names the representors of a switch, and keeps the name of its PF.
fn rule(bench: &dyn Bench) -> Result<Step, Stop> {
    let pf = there("the interface", look(bench)?.link)?.name;
    let (switch, port) = there("the port", bench.witness().switch(bench.pf())?.port)?;
    let line = |port: &str, name: &str| {
        format!(
            "SUBSYSTEM==\"net\", ACTION==\"add\", ATTR{{phys_switch_id}}==\"{switch}\", \
             ATTR{{phys_port_name}}==\"{port}\", NAME=\"{name}\"\n"
        )
    };
    let of_vfs = (0..GIVEN_VFS).map(|index| line(&format!("pf0vf{index}"), &format!("{pf}_{index}")));
    let text = std::iter::once(line(&port, &pf)).chain(of_vfs).collect();
    let path = format!("{UDEV_RULES}/20-switchdev-{}.rules", bench.pf());
    Ok(Step::WriteFile { pf: Some(bench.pf()), file: HostFile { path, text, is_program: false } })
}

fn udev_names_representors_by_its_rule(bench: &dyn Bench) -> Shown {
    let pf = there("the interface", look(bench)?.link)?.name;
    execute(bench, &[set_mode(bench, EswitchMode::Switchdev)])?;
    let before = representors(bench)?;
    execute(bench, &[rule(bench)?])?;
    same("the representors, when only the rule was written", &representors(bench)?, &before)?;
    execute(bench, &[Step::ReplayUdev { pf: bench.pf() }])?;
    let expected: Vec<String> = (0..GIVEN_VFS).map(|index| format!("{pf}_{index}")).collect();
    same("the representors", &representors(bench)?, &expected)?;
    same("the name of the PF", &look(bench)?.link.map(|link| link.name), &Some(pf))
}

fn steers_by_software_only_from_legacy_mode_on(bench: &dyn Bench) -> Shown {
    let steering = || Ok::<_, Stop>(agree_on_switch(bench)?.software_steering);
    let steer = Step::SetSoftwareSteering { pf: bench.pf() };
    execute(bench, &[set_mode(bench, EswitchMode::Switchdev), steer.clone()])?;
    same("whether software steers, chosen too late", &steering()?, &Some(false))?;
    execute(bench, &[set_mode(bench, EswitchMode::Legacy), steer.clone(), steer])?;
    same("whether software steers", &steering()?, &Some(true))
}

fn switches_offloading(bench: &dyn Bench) -> Shown {
    for on in [true, true, false] {
        execute(bench, &[Step::SetTcOffload { pf: bench.pf(), on }])?;
        same("whether offloading is on", &agree_on_switch(bench)?.tc_offload, &Some(on))?;
    }
    Ok(())
}

fn offloading_comes_and_goes_with_the_mode(bench: &dyn Bench) -> Shown {
    same("whether offloading is on", &agree_on_switch(bench)?.tc_offload, &Some(false))?;
    for (mode, on) in [(EswitchMode::Switchdev, true), (EswitchMode::Legacy, false)] {
        execute(bench, &[set_mode(bench, mode)])?;
        same("whether offloading is on", &agree_on_switch(bench)?.tc_offload, &Some(on))?;
    }
    Ok(())
}

fn a_switch_for_vfs_is_off_without_them(bench: &dyn Bench) -> Shown {
    execute(bench, &[set_mode(bench, EswitchMode::Switchdev), set_num_vfs(bench, 0)])?;
    same("the mode without VFs", &agree_on_switch(bench)?.mode, &Fact::Unknown)?;
    let text = refused(bench, &set_mode(bench, EswitchMode::Switchdev), "NetlinkRefused")?;
    ensure(text.contains("not supported"), text)?;
    // Off is what legacy mode is without VFs.
    execute(bench, &[set_mode(bench, EswitchMode::Legacy), set_num_vfs(bench, 2)])?;
    let switch = agree_on_switch(bench)?;
    same("the mode of new VFs", &switch.mode, &Fact::Value(EswitchMode::Legacy))?;
    same("their representors", &switch.representors, &vec![None; 2])
}

fn a_mode_that_is_refused_is_noted_in_the_record(bench: &dyn Bench) -> Shown {
    let record = Record::taken_over(bench.pf(), specs::interface(bench.pf(), 1));
    execute(bench, &[Step::WriteRecord { record }, set_num_vfs(bench, 1)])?;
    let trial = ModeTrial { order: ModeOrder::VfsFirst, boot_id: "this".to_owned() };
    let mode = EswitchMode::Switchdev;
    let try_mode = Step::SetEswitchMode { pf: bench.pf(), mode, trial: Some(trial.clone()) };
    let refused_orders = || {
        let records = bench.new_host().facts()?.records;
        Ok::<_, Stop>(there("the record", records.into_iter().next())?.refused_orders)
    };
    for _ in 0..2 {
        let text = refused(bench, &try_mode, "NetlinkRefused")?;
        let noted = refused_orders()?;
        let [noted] = &noted[..] else { return Err(Stop::Failed(format!("noted once: {noted:?}"))) };
        same("what was noted", &(&noted.trial, &noted.error), &(&trial, &text))?;
    }
    let content = there("the record", bench.witness().record(bench.pf())?)?.content()?;
    same("the order that was refused", &content["refusedOrders"][0]["order"], &"vfsFirst".into())?;
    execute(bench, &[set_num_vfs(bench, 0), try_mode])?;
    same("the number of notes", &refused_orders()?.len(), &1)
}

fn new_vfs_have_representors(bench: &dyn Bench) -> Shown {
    execute(bench, &[set_mode(bench, EswitchMode::Switchdev), set_num_vfs(bench, 2)])?;
    same("the number of representors", &representors(bench)?.len(), &2)
}

fn an_eswitch_mode_that_vfs_forbid_is_refused_with_the_kernels_reason(bench: &dyn Bench) -> Shown {
    execute(bench, &[set_num_vfs(bench, 1)])?;
    let text = refused(bench, &set_mode(bench, EswitchMode::Switchdev), "NetlinkRefused")?;
    ensure(text.contains("VFs") && text.contains("not supported"), text)?;
    same("the mode", &agree_on_switch(bench)?.mode, &Fact::Value(EswitchMode::Legacy))
}

fn an_eswitch_mode_that_is_refused_is_an_error_with_the_kernels_reason(bench: &dyn Bench) -> Shown {
    let text = refused(bench, &set_mode(bench, EswitchMode::Switchdev), "NetlinkRefused")?;
    ensure(text.contains("Asked to fail") && text.contains("busy"), text)?;
    same("the mode", &agree_on_switch(bench)?.mode, &Fact::Value(EswitchMode::Legacy))
}
