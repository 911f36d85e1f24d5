//! Settings in the firmware of cards.

use vfleet_plan::{FirmwareSettings, Step};

use super::cases;
use crate::contract::bench::{Bench, Shown, Stop};
use crate::contract::check::{agree_on_firmware, execute, facts, look, refused, same, there};

cases! {
    tells_no_firmware_where_no_tool_can: NoVfs,
    refuses_firmware_settings_where_no_tool_can: NoVfs,
    firmware_settings_count_after_a_restart_of_the_firmware: RdmaCard,
    firmware_is_not_restarted_under_vfs: RdmaCard,
    other_firmware_settings_stay: RdmaCard,
}

fn set(bench: &dyn Bench, num_vfs: u16) -> Step {
    let settings = FirmwareSettings { num_vfs: Some(num_vfs), ..FirmwareSettings::default() };
    Step::SetFirmware { pf: bench.pf(), settings }
}

/// How many VFs the firmware shows now, and will show.
fn told(bench: &dyn Bench) -> Result<(Option<u16>, Option<u16>), Stop> {
    let firmware = there("the firmware", agree_on_firmware(bench)?)?;
    Ok((firmware.current.num_vfs, firmware.next_boot.num_vfs))
}

fn tells_no_firmware_where_no_tool_can(bench: &dyn Bench) -> Shown {
    same("the firmware", &agree_on_firmware(bench)?, &None)
}

fn refuses_firmware_settings_where_no_tool_can(bench: &dyn Bench) -> Shown {
    for step in [set(bench, 4), Step::ResetFirmware { pf: bench.pf() }] {
        refused(bench, &step, "NoFirmwareTool")?;
    }
    Ok(())
}

fn firmware_settings_count_after_a_restart_of_the_firmware(bench: &dyn Bench) -> Shown {
    same("the number of VFs it shows", &look(bench)?.total_vfs, &8)?;
    execute(bench, &[set(bench, 16), set(bench, 16)])?;
    same("now, and after a restart", &told(bench)?, &(Some(8), Some(16)))?;
    same("the number of VFs it shows", &look(bench)?.total_vfs, &8)?;
    let pf = bench.pf();
    execute(bench, &[Step::SetNumVfs { pf, count: 0 }, Step::ResetFirmware { pf }])?;
    same("now, and after a restart", &told(bench)?, &(Some(16), Some(16)))?;
    same("the number of VFs it shows", &look(bench)?.total_vfs, &16)
}

fn firmware_is_not_restarted_under_vfs(bench: &dyn Bench) -> Shown {
    let before = facts(bench)?;
    match bench.host().execute(&Step::ResetFirmware { pf: bench.pf() }) {
        Ok(()) => Err(Stop::Failed("it succeeded".to_owned())),
        Err(_) => same("the facts", &facts(bench)?, &before),
    }
}

fn other_firmware_settings_stay(bench: &dyn Bench) -> Shown {
    execute(bench, &[set(bench, 4)])?;
    let firmware = there("the firmware", agree_on_firmware(bench)?)?;
    same("whether it shows VFs at all", &firmware.next_boot.sriov, &Some(true))
}
