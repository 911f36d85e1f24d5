//! Files that vfleet keeps for other programs, and units of systemd.

use std::collections::BTreeSet;

use vfleet_plan::files::{BOOT_PROGRAM, DISABLE_NM_SCRIPT, GUIDS, UDEV_RULES, UNIT_DIRECTORY, UNITS};
use vfleet_plan::{HostFile, Reboots, Step};

use super::cases;
use crate::contract::bench::{Bench, SeenFile, Shown, Stop};
use crate::contract::check::{ensure, execute, refused, same, there};

cases! {
    writes_a_file: NoVfs,
    replaces_a_file: NoVfs,
    removes_a_file: NoVfs,
    a_program_may_be_started_and_a_rule_only_read: NoVfs,
    tells_files_that_others_wrote: NoVfs,
    refuses_files_that_are_not_ours: NoVfs,
    installs_its_own_program: NoVfs,
    enables_and_disables_a_unit: NoVfs,
    refuses_to_enable_a_unit_that_is_not_there: NoVfs,
    tells_the_file_of_guids: NoVfs,
    counts_and_forgets_reboots: NoVfs,
}

const TEXT: &str = "# a rule of the contract\n";

fn rule(bench: &dyn Bench) -> String {
    format!("{UDEV_RULES}/10-nm-disable-{}.rules", bench.pf())
}

fn write(path: &str, text: &str) -> Step {
    let file =
        HostFile { path: path.to_owned(), text: text.to_owned(), is_program: path == DISABLE_NM_SCRIPT };
    Step::WriteFile { pf: None, file }
}

fn remove(path: &str) -> Step {
    Step::RemoveFile { pf: None, path: path.to_owned() }
}

/// What host and witness agree that the file says.
fn agreed(bench: &dyn Bench, path: &str) -> Result<Option<String>, Stop> {
    let seen = bench.witness().file(path)?.map(|file| file.text);
    same(path, &bench.host().facts()?.files.get(path).cloned(), &seen)?;
    Ok(seen)
}

fn writes_a_file(bench: &dyn Bench) -> Shown {
    let path = rule(bench);
    same("the file", &agreed(bench, &path)?, &None)?;
    execute(bench, &[write(&path, TEXT)])?;
    same("the file", &agreed(bench, &path)?.as_deref(), &Some(TEXT))
}

fn replaces_a_file(bench: &dyn Bench) -> Shown {
    let path = rule(bench);
    execute(bench, &[write(&path, "a longer text that is to go\n"), write(&path, TEXT), write(&path, TEXT)])?;
    same("the file", &agreed(bench, &path)?.as_deref(), &Some(TEXT))
}

fn removes_a_file(bench: &dyn Bench) -> Shown {
    let path = rule(bench);
    execute(bench, &[write(&path, TEXT), remove(&path)])?;
    same("the file", &agreed(bench, &path)?, &None)?;
    execute(bench, &[remove(&path)])
}

fn a_program_may_be_started_and_a_rule_only_read(bench: &dyn Bench) -> Shown {
    let path = rule(bench);
    execute(bench, &[write(DISABLE_NM_SCRIPT, "#!/bin/sh\n"), write(&path, TEXT)])?;
    let modes = [DISABLE_NM_SCRIPT, &path].map(|path| bench.witness().file(path));
    for (file, expected) in modes.into_iter().zip([0o755, 0o644]) {
        let no_mode = || Stop::CannotShow("its files have no permissions".to_owned());
        let mode = there("the file", file?)?.mode.ok_or_else(no_mode)?;
        ensure(mode == expected, format!("permissions {mode:o}, expected {expected:o}"))?;
    }
    Ok(())
}

fn tells_files_that_others_wrote(bench: &dyn Bench) -> Shown {
    let (ours, foreign) = (rule(bench), format!("{UDEV_RULES}/99-contract.rules"));
    bench.outsider().write_file(&ours, Some(TEXT))?;
    bench.outsider().write_file(&foreign, Some(TEXT))?;
    let told = bench.host().facts()?.files;
    bench.outsider().write_file(&foreign, None)?;
    same("our rule", &told.get(&ours).map(String::as_str), &Some(TEXT))?;
    ensure(!told.contains_key(&foreign), "a rule of others is none of our files")
}

fn refuses_files_that_are_not_ours(bench: &dyn Bench) -> Shown {
    let path = "/etc/udev/rules.d/99-contract.rules";
    for step in [write(path, TEXT), remove(path)] {
        let text = refused(bench, &step, "NotOurFile")?;
        ensure(text.contains(path), text)?;
    }
    same("the file", &bench.witness().file(path)?, &None::<SeenFile>)
}

fn installs_its_own_program(bench: &dyn Bench) -> Shown {
    ensure(!bench.witness().has_program(BOOT_PROGRAM)?, "it is there already")?;
    let install = Step::InstallProgram { path: BOOT_PROGRAM.to_owned() };
    execute(bench, &[install.clone(), install])?;
    ensure(bench.witness().has_program(BOOT_PROGRAM)?, "it is not there, or may not be started")
}

fn enables_and_disables_a_unit(bench: &dyn Bench) -> Shown {
    let unit = UNITS[0].to_owned();
    let path = format!("{UNIT_DIRECTORY}/{unit}");
    let text = "[Service]\nType=oneshot\nExecStart=/bin/true\n\n[Install]\nWantedBy=multi-user.target\n";
    let is_enabled = || {
        let seen = bench.witness().is_enabled(&unit)?;
        same("whether it is enabled", &bench.host().facts()?.enabled_units.contains(&unit), &seen)?;
        Ok::<_, Stop>(seen)
    };
    let (enable, disable) =
        (Step::EnableUnit { unit: unit.clone() }, Step::DisableUnit { unit: unit.clone() });
    execute(bench, &[write(&path, text)])?;
    ensure(!is_enabled()?, "a unit that is only there is not enabled")?;
    execute(bench, &[enable.clone(), enable])?;
    ensure(is_enabled()?, "the unit is not enabled")?;
    execute(bench, &[disable.clone(), disable])?;
    ensure(!is_enabled()?, "the unit is still enabled")?;
    execute(bench, &[remove(&path)])
}

fn refuses_to_enable_a_unit_that_is_not_there(bench: &dyn Bench) -> Shown {
    let step = Step::EnableUnit { unit: UNITS[1].to_owned() };
    match bench.host().execute(&step) {
        Ok(()) => Err(Stop::Failed("it succeeded".to_owned())),
        Err(_) => same("the units", &bench.host().facts()?.enabled_units, &BTreeSet::new()),
    }
}

fn tells_the_file_of_guids(bench: &dyn Bench) -> Shown {
    same("the file of GUIDs", &bench.host().facts()?.guid_file, &None)?;
    bench.outsider().write_file(GUIDS, Some("[]\n"))?;
    same("the file of GUIDs", &bench.host().facts()?.guid_file.as_deref(), &Some("[]\n"))?;
    bench.outsider().write_file(GUIDS, None)
}

fn counts_and_forgets_reboots(bench: &dyn Bench) -> Shown {
    let boot_id = bench.witness().boot_id()?;
    let [reboots, again] = [1, 2].map(|count| Reboots::for_one("the contract", count, &boot_id));
    let told = || Ok::<_, Stop>(bench.new_host().facts()?.kernel.reboots);
    same("the reboots", &told()?, &None)?;
    execute(bench, &[Step::CountReboot { reboots }, Step::CountReboot { reboots: again.clone() }])?;
    same("the reboots", &told()?, &Some(again))?;
    execute(bench, &[Step::ForgetReboots, Step::ForgetReboots])?;
    same("the reboots", &told()?, &None)
}
