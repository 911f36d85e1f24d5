//! Defects in steps about the kernel, files, embedded switches, GUIDs, vDPA and firmware.

use vfleet_api::PciAddress;
use vfleet_plan::Step;

use super::{DefectKind, defects};

defects! {
    "module_is_not_loaded", detected by "loads_a_module",
        DefectKind::SkipsSteps(|step| matches!(step, Step::LoadModule { .. }));
    "file_is_not_written", detected by "writes_a_file",
        DefectKind::SkipsSteps(|step| matches!(step, Step::WriteFile { .. }));
    "file_has_additional_text", detected by "replaces_a_file", DefectKind::AltersSteps(append_to_file);
    "file_is_not_removed", detected by "removes_a_file",
        DefectKind::SkipsSteps(|step| matches!(step, Step::RemoveFile { .. }));
    "program_is_not_installed", detected by "installs_its_own_program",
        DefectKind::SkipsSteps(|step| matches!(step, Step::InstallProgram { .. }));
    "unit_is_not_enabled", detected by "enables_and_disables_a_unit",
        DefectKind::SkipsSteps(|step| matches!(step, Step::EnableUnit { .. }));
    "unit_is_not_disabled", detected by "enables_and_disables_a_unit",
        DefectKind::SkipsSteps(|step| matches!(step, Step::DisableUnit { .. }));
    "reboot_is_not_counted", detected by "counts_reboots_and_clears_the_count",
        DefectKind::SkipsSteps(|step| matches!(step, Step::CountReboot { .. }));
    "reboot_count_is_not_cleared", detected by "counts_reboots_and_clears_the_count",
        DefectKind::SkipsSteps(|step| matches!(step, Step::ForgetReboots));
    "kernel_arguments_are_not_changed", detected by "refuses_kernel_arguments_for_a_missing_boot_loader",
        DefectKind::SkipsSteps(|step| matches!(step, Step::SetKernelArguments { .. }));
    "eswitch_mode_on_a_card_without_eswitch_is_ignored", detected by "refuses_an_eswitch_mode_on_a_card_without_eswitch",
        DefectKind::SkipsSteps(|step| matches!(step, Step::SetEswitchMode { .. }));
    "eswitch_mode_is_not_changed", detected by "sets_the_eswitch_mode",
        DefectKind::SkipsSteps(|step| matches!(step, Step::SetEswitchMode { .. }));
    "unsupported_tc_offload_is_ignored", detected by "refuses_tc_offload_on_a_card_that_does_not_support_it",
        DefectKind::SkipsSteps(|step| matches!(step, Step::SetTcOffload { .. }));
    "tc_offload_is_not_changed", detected by "switches_tc_offload",
        DefectKind::SkipsSteps(|step| matches!(step, Step::SetTcOffload { .. }));
    "udev_events_are_not_replayed", detected by "udev_names_representors_by_the_written_rule",
        DefectKind::SkipsSteps(|step| matches!(step, Step::ReplayUdev { .. }));
    "guid_on_ethernet_is_ignored", detected by "refuses_a_guid_on_ethernet",
        DefectKind::SkipsSteps(|step| matches!(step, Step::SetVfGuid { .. }));
    "guid_is_set_on_another_vf", detected by "sets_the_guid_of_the_right_vf", DefectKind::AltersSteps(set_guid_of_another_vf);
    "vdpa_device_is_not_created", detected by "creates_and_removes_vdpa_devices",
        DefectKind::SkipsSteps(|step| matches!(step, Step::MakeVdpa { .. }));
    "vdpa_device_is_not_removed", detected by "creates_and_removes_vdpa_devices",
        DefectKind::SkipsSteps(|step| matches!(step, Step::RemoveVdpa { .. }));
    "firmware_settings_without_a_tool_are_ignored", detected by "refuses_firmware_settings_without_a_firmware_tool",
        DefectKind::SkipsSteps(|step| matches!(step, Step::SetFirmware { .. } | Step::ResetFirmware { .. }));
    "firmware_is_not_reset", detected by "firmware_settings_take_effect_after_a_firmware_reset",
        DefectKind::SkipsSteps(|step| matches!(step, Step::ResetFirmware { .. }));
}

fn append_to_file(step: &mut Step, _: PciAddress) {
    if let Step::WriteFile { file, .. } = step {
        file.text.push_str("# and more\n");
    }
}

fn set_guid_of_another_vf(step: &mut Step, _: PciAddress) {
    if let Step::SetVfGuid { vf, .. } = step {
        vf.index ^= 1;
    }
}
