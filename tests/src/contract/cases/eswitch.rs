//! Embedded switches, and the interfaces that stand for VFs on them.

use vfleet_plan::files::UDEV_RULES;
use vfleet_plan::{EswitchMode, HostFile, Step};

use super::{GIVEN_VFS, cases};
use crate::contract::bench::{Bench, Shown, Stop};
use crate::contract::check::{ensure, execute, facts, look, refused, same, there, vf};

cases! {
    tells_no_eswitch_of_a_card_without_one: VfsMadeDown,
    refuses_an_eswitch_mode_of_a_card_without_one: NoVfs,
    refuses_to_offload_to_a_card_that_cannot: NoVfs,
    a_card_that_steers_in_no_other_way_is_well: NoVfs,
    sets_the_eswitch_mode: SwitchCard,
    an_eswitch_mode_is_not_changed_under_bound_vfs: SwitchCard,
    representors_come_and_go_with_the_mode: SwitchCard,
    udev_names_representors_by_its_rule: SwitchCard,
    new_vfs_have_representors: SwitchCard,
    switches_offloading: SwitchCard,
}

fn set_mode(bench: &dyn Bench, mode: EswitchMode) -> Step {
    Step::SetEswitchMode { pf: bench.pf(), mode }
}

fn unbind_all(bench: &dyn Bench) -> Shown {
    (0..GIVEN_VFS).try_for_each(|index| bench.outsider().unbind(vf(bench, index)))
}

fn representors(bench: &dyn Bench) -> Result<Vec<String>, Stop> {
    Ok(facts(bench)?.vfs.into_iter().filter_map(|vf| vf.representor).collect())
}

fn tells_no_eswitch_of_a_card_without_one(bench: &dyn Bench) -> Shown {
    same("the representors", &representors(bench)?, &Vec::new())?;
    let facts = facts(bench)?;
    same("the mode", &facts.eswitch, &None)?;
    same("whether offloading is on", &facts.tc_offload, &None)?;
    same("the port of a switch", &there("the interface", facts.link)?.switch_port, &None)
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
        Err(_) => same("whether offloading is on", &facts(bench)?.tc_offload, &None),
    }
}

fn a_card_that_steers_in_no_other_way_is_well(bench: &dyn Bench) -> Shown {
    execute(bench, &[Step::SetSoftwareSteering { pf: bench.pf() }])
}

fn sets_the_eswitch_mode(bench: &dyn Bench) -> Shown {
    unbind_all(bench)?;
    for mode in [EswitchMode::Switchdev, EswitchMode::Switchdev, EswitchMode::Legacy] {
        execute(bench, &[set_mode(bench, mode)])?;
        same("the mode", &facts(bench)?.eswitch, &Some(mode))?;
    }
    Ok(())
}

fn an_eswitch_mode_is_not_changed_under_bound_vfs(bench: &dyn Bench) -> Shown {
    refused(bench, &set_mode(bench, EswitchMode::Switchdev), "NetlinkRefused")?;
    same("the mode", &facts(bench)?.eswitch, &Some(EswitchMode::Legacy))?;
    execute(bench, &[set_mode(bench, EswitchMode::Legacy)])
}

fn representors_come_and_go_with_the_mode(bench: &dyn Bench) -> Shown {
    unbind_all(bench)?;
    same("the representors", &representors(bench)?, &Vec::new())?;
    execute(bench, &[set_mode(bench, EswitchMode::Switchdev)])?;
    let mut names = representors(bench)?;
    same("the number of representors", &names.len(), &GIVEN_VFS.into())?;
    names.dedup();
    same("the number of their names", &names.len(), &GIVEN_VFS.into())?;
    ensure(facts(bench)?.link.is_some_and(|link| link.switch_port.is_some()), "the PF is a port, too")?;
    execute(bench, &[set_mode(bench, EswitchMode::Legacy)])?;
    same("the representors", &representors(bench)?, &Vec::new())
}

fn udev_names_representors_by_its_rule(bench: &dyn Bench) -> Shown {
    unbind_all(bench)?;
    execute(bench, &[set_mode(bench, EswitchMode::Switchdev)])?;
    let before = representors(bench)?;
    let path = format!("{UDEV_RULES}/20-switchdev-{}.rules", bench.pf());
    let file = HostFile { path, text: "# names representors\n".to_owned(), is_program: false };
    execute(bench, &[Step::WriteFile { pf: Some(bench.pf()), file }])?;
    same("the representors, when only the rule was written", &representors(bench)?, &before)?;
    execute(bench, &[Step::ReplayUdev { pf: bench.pf() }])?;
    let pf = there("the interface", facts(bench)?.link)?.name;
    let expected: Vec<String> = (0..GIVEN_VFS).map(|index| format!("{pf}_{index}")).collect();
    same("the representors", &representors(bench)?, &expected)
}

fn new_vfs_have_representors(bench: &dyn Bench) -> Shown {
    let set_num_vfs = |count| Step::SetNumVfs { pf: bench.pf(), count };
    execute(bench, &[set_num_vfs(0), set_mode(bench, EswitchMode::Switchdev), set_num_vfs(2)])?;
    same("the number of representors", &representors(bench)?.len(), &2)
}

fn switches_offloading(bench: &dyn Bench) -> Shown {
    for on in [true, true, false] {
        execute(bench, &[Step::SetTcOffload { pf: bench.pf(), on }])?;
        same("whether offloading is on", &facts(bench)?.tc_offload, &Some(on))?;
    }
    Ok(())
}
