//! Firmware settings of cards.

use vfleet_plan::{FirmwareSettings, Step};

use super::cases;
use crate::contract::check::{
    compare_firmware, execute, expect_eq, expect_refusal, expect_some, observe_pf, read_pf_facts,
};
use crate::contract::testbed::{CaseError, CaseResult, TestBed};

cases! {
    reports_no_firmware_settings_without_a_firmware_tool: NoVfs,
    refuses_firmware_settings_without_a_firmware_tool: NoVfs,
    firmware_settings_take_effect_after_a_firmware_reset: RdmaCard,
    firmware_is_not_reset_while_vfs_exist: RdmaCard,
    other_firmware_settings_are_kept: RdmaCard,
}

fn set_step(testbed: &dyn TestBed, num_vfs: u16) -> Step {
    let settings = FirmwareSettings { num_vfs: Some(num_vfs), ..FirmwareSettings::default() };
    Step::SetFirmware { pf: testbed.pf(), settings }
}

/// Returns the number of VFs in the firmware settings, now and after a reset.
fn compare_num_vfs(testbed: &dyn TestBed) -> Result<(Option<u16>, Option<u16>), CaseError> {
    let firmware = expect_some("the firmware", compare_firmware(testbed)?)?;
    Ok((firmware.current.num_vfs, firmware.next_boot.num_vfs))
}

fn reports_no_firmware_settings_without_a_firmware_tool(testbed: &dyn TestBed) -> CaseResult {
    expect_eq("the firmware", &compare_firmware(testbed)?, &None)
}

fn refuses_firmware_settings_without_a_firmware_tool(testbed: &dyn TestBed) -> CaseResult {
    for step in [set_step(testbed, 4), Step::ResetFirmware { pf: testbed.pf() }] {
        expect_refusal(testbed, &step, "NoFirmwareTool")?;
    }
    Ok(())
}

fn firmware_settings_take_effect_after_a_firmware_reset(testbed: &dyn TestBed) -> CaseResult {
    expect_eq("the total number of VFs", &observe_pf(testbed)?.total_vfs, &8)?;
    execute(testbed, &[set_step(testbed, 16), set_step(testbed, 16)])?;
    expect_eq(
        "the number of VFs in the firmware, now and after a reset",
        &compare_num_vfs(testbed)?,
        &(Some(8), Some(16)),
    )?;
    expect_eq("the total number of VFs", &observe_pf(testbed)?.total_vfs, &8)?;
    let pf = testbed.pf();
    execute(testbed, &[Step::SetNumVfs { pf, count: 0 }, Step::ResetFirmware { pf }])?;
    expect_eq(
        "the number of VFs in the firmware, now and after a reset",
        &compare_num_vfs(testbed)?,
        &(Some(16), Some(16)),
    )?;
    expect_eq("the total number of VFs", &observe_pf(testbed)?.total_vfs, &16)
}

fn firmware_is_not_reset_while_vfs_exist(testbed: &dyn TestBed) -> CaseResult {
    let before = read_pf_facts(testbed)?;
    match testbed.host().execute(&Step::ResetFirmware { pf: testbed.pf() }) {
        Ok(()) => Err(CaseError::Failed("the step succeeded".to_owned())),
        Err(_) => expect_eq("the facts", &read_pf_facts(testbed)?, &before),
    }
}

fn other_firmware_settings_are_kept(testbed: &dyn TestBed) -> CaseResult {
    execute(testbed, &[set_step(testbed, 4)])?;
    let firmware = expect_some("the firmware", compare_firmware(testbed)?)?;
    expect_eq("whether SR-IOV is enabled", &firmware.next_boot.sriov, &Some(true))
}
