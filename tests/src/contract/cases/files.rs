//! Files for other programs, and systemd units.

use std::collections::BTreeSet;

use vfleet_plan::files::{BOOT_PROGRAM, DISABLE_NM_SCRIPT, GUIDS, UDEV_RULES, UNIT_DIRECTORY, UNITS};
use vfleet_plan::{HostFile, Reboots, Step};

use super::cases;
use crate::contract::check::{ensure, execute, expect_eq, expect_refusal, expect_some};
use crate::contract::testbed::{CaseError, CaseResult, ObservedFile, TestBed};

cases! {
    writes_a_file: NoVfs,
    replaces_a_file: NoVfs,
    removes_a_file: NoVfs,
    a_script_is_executable_and_a_rule_is_not: NoVfs,
    reports_files_written_by_others: NoVfs,
    refuses_files_that_vfleet_does_not_own: NoVfs,
    installs_its_own_program: NoVfs,
    enables_and_disables_a_unit: NoVfs,
    refuses_to_enable_a_missing_unit: NoVfs,
    reports_the_guid_file: NoVfs,
    counts_reboots_and_clears_the_count: NoVfs,
}

const TEXT: &str = "# a rule of the contract\n";

fn rule_path(testbed: &dyn TestBed) -> String {
    format!("{UDEV_RULES}/10-nm-disable-{}.rules", testbed.pf())
}

fn write(path: &str, text: &str) -> Step {
    let file =
        HostFile { path: path.to_owned(), text: text.to_owned(), is_program: path == DISABLE_NM_SCRIPT };
    Step::WriteFile { pf: None, file }
}

fn remove(path: &str) -> Step {
    Step::RemoveFile { pf: None, path: path.to_owned() }
}

/// Returns the text of a file, after comparing it with the facts.
fn compare_file(testbed: &dyn TestBed, path: &str) -> Result<Option<String>, CaseError> {
    let observed = testbed.observer().file(path)?.map(|file| file.text);
    expect_eq(path, &testbed.host().facts()?.files.get(path).cloned(), &observed)?;
    Ok(observed)
}

fn writes_a_file(testbed: &dyn TestBed) -> CaseResult {
    let path = rule_path(testbed);
    expect_eq("the file", &compare_file(testbed, &path)?, &None)?;
    execute(testbed, &[write(&path, TEXT)])?;
    expect_eq("the file", &compare_file(testbed, &path)?.as_deref(), &Some(TEXT))
}

fn replaces_a_file(testbed: &dyn TestBed) -> CaseResult {
    let path = rule_path(testbed);
    execute(
        testbed,
        &[write(&path, "a longer text that is replaced\n"), write(&path, TEXT), write(&path, TEXT)],
    )?;
    expect_eq("the file", &compare_file(testbed, &path)?.as_deref(), &Some(TEXT))
}

fn removes_a_file(testbed: &dyn TestBed) -> CaseResult {
    let path = rule_path(testbed);
    execute(testbed, &[write(&path, TEXT), remove(&path)])?;
    expect_eq("the file", &compare_file(testbed, &path)?, &None)?;
    execute(testbed, &[remove(&path)])
}

fn a_script_is_executable_and_a_rule_is_not(testbed: &dyn TestBed) -> CaseResult {
    let path = rule_path(testbed);
    execute(testbed, &[write(DISABLE_NM_SCRIPT, "#!/bin/sh\n"), write(&path, TEXT)])?;
    let modes = [DISABLE_NM_SCRIPT, &path].map(|path| testbed.observer().file(path));
    for (file, expected) in modes.into_iter().zip([0o755, 0o644]) {
        let no_mode = || CaseError::Unsupported("files of the test bed have no permissions".to_owned());
        let mode = expect_some("the file", file?)?.mode.ok_or_else(no_mode)?;
        ensure(mode == expected, format!("permissions {mode:o}, expected {expected:o}"))?;
    }
    Ok(())
}

fn reports_files_written_by_others(testbed: &dyn TestBed) -> CaseResult {
    let (ours, foreign) = (rule_path(testbed), format!("{UDEV_RULES}/99-contract.rules"));
    testbed.admin().write_file(&ours, Some(TEXT))?;
    testbed.admin().write_file(&foreign, Some(TEXT))?;
    let reported = testbed.host().facts()?.files;
    testbed.admin().write_file(&foreign, None)?;
    expect_eq("the rule of vfleet", &reported.get(&ours).map(String::as_str), &Some(TEXT))?;
    ensure(!reported.contains_key(&foreign), "a foreign rule is reported")
}

fn refuses_files_that_vfleet_does_not_own(testbed: &dyn TestBed) -> CaseResult {
    let path = "/etc/udev/rules.d/99-contract.rules";
    for step in [write(path, TEXT), remove(path)] {
        let text = expect_refusal(testbed, &step, "PathNotAllowed")?;
        ensure(text.contains(path), text)?;
    }
    expect_eq("the file", &testbed.observer().file(path)?, &None::<ObservedFile>)
}

fn installs_its_own_program(testbed: &dyn TestBed) -> CaseResult {
    ensure(!testbed.observer().has_program(BOOT_PROGRAM)?, "the program exists already")?;
    let install = Step::InstallProgram { path: BOOT_PROGRAM.to_owned() };
    execute(testbed, &[install.clone(), install])?;
    ensure(testbed.observer().has_program(BOOT_PROGRAM)?, "the program is missing or not executable")
}

fn enables_and_disables_a_unit(testbed: &dyn TestBed) -> CaseResult {
    let unit = UNITS[0].to_owned();
    let path = format!("{UNIT_DIRECTORY}/{unit}");
    let text = "[Service]\nType=oneshot\nExecStart=/bin/true\n\n[Install]\nWantedBy=multi-user.target\n";
    let is_enabled = || {
        let observed = testbed.observer().is_unit_enabled(&unit)?;
        expect_eq(
            "whether the unit is enabled",
            &testbed.host().facts()?.enabled_units.contains(&unit),
            &observed,
        )?;
        Ok::<_, CaseError>(observed)
    };
    let (enable, disable) =
        (Step::EnableUnit { unit: unit.clone() }, Step::DisableUnit { unit: unit.clone() });
    execute(testbed, &[write(&path, text)])?;
    ensure(!is_enabled()?, "the unit is enabled before the step")?;
    execute(testbed, &[enable.clone(), enable])?;
    ensure(is_enabled()?, "the unit is not enabled")?;
    execute(testbed, &[disable.clone(), disable])?;
    ensure(!is_enabled()?, "the unit is still enabled")?;
    execute(testbed, &[remove(&path)])
}

fn refuses_to_enable_a_missing_unit(testbed: &dyn TestBed) -> CaseResult {
    let step = Step::EnableUnit { unit: UNITS[1].to_owned() };
    match testbed.host().execute(&step) {
        Ok(()) => Err(CaseError::Failed("the step succeeded".to_owned())),
        Err(_) => expect_eq("the enabled units", &testbed.host().facts()?.enabled_units, &BTreeSet::new()),
    }
}

fn reports_the_guid_file(testbed: &dyn TestBed) -> CaseResult {
    expect_eq("the GUID file", &testbed.host().facts()?.guid_file, &None)?;
    testbed.admin().write_file(GUIDS, Some("[]\n"))?;
    expect_eq("the GUID file", &testbed.host().facts()?.guid_file.as_deref(), &Some("[]\n"))?;
    testbed.admin().write_file(GUIDS, None)
}

fn counts_reboots_and_clears_the_count(testbed: &dyn TestBed) -> CaseResult {
    let boot_id = testbed.observer().boot_id()?;
    let [reboots, again] = [1, 2].map(|count| Reboots::for_need("the contract", count, &boot_id));
    let read_reboots = || Ok::<_, CaseError>(testbed.new_host().facts()?.kernel.reboots);
    expect_eq("the reboots", &read_reboots()?, &None)?;
    execute(testbed, &[Step::CountReboot { reboots }, Step::CountReboot { reboots: again.clone() }])?;
    expect_eq("the reboots", &read_reboots()?, &Some(again))?;
    execute(testbed, &[Step::ForgetReboots, Step::ForgetReboots])?;
    expect_eq("the reboots", &read_reboots()?, &None)
}
