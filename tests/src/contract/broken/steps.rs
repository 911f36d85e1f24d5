//! Steps beyond links, VFs and records that are done wrongly.

use vfleet_api::PciAddress;
use vfleet_plan::Step;

use super::{Wrong, defects};

defects! {
    "module_is_not_loaded", caught by "loads_a_module",
        Wrong::Skips(|step| matches!(step, Step::LoadModule { .. }));
    "file_is_not_written", caught by "writes_a_file",
        Wrong::Skips(|step| matches!(step, Step::WriteFile { .. }));
    "file_is_added_to", caught by "replaces_a_file", Wrong::Changes(file_is_added_to);
    "file_is_not_removed", caught by "removes_a_file",
        Wrong::Skips(|step| matches!(step, Step::RemoveFile { .. }));
    "program_is_not_installed", caught by "installs_its_own_program",
        Wrong::Skips(|step| matches!(step, Step::InstallProgram { .. }));
    "unit_is_not_enabled", caught by "enables_and_disables_a_unit",
        Wrong::Skips(|step| matches!(step, Step::EnableUnit { .. }));
    "unit_is_not_disabled", caught by "enables_and_disables_a_unit",
        Wrong::Skips(|step| matches!(step, Step::DisableUnit { .. }));
    "reboot_is_not_counted", caught by "counts_and_forgets_reboots",
        Wrong::Skips(|step| matches!(step, Step::CountReboot { .. }));
    "reboots_are_not_forgotten", caught by "counts_and_forgets_reboots",
        Wrong::Skips(|step| matches!(step, Step::ForgetReboots));
    "arguments_are_not_changed", caught by "refuses_arguments_for_a_boot_loader_that_is_not_there",
        Wrong::Skips(|step| matches!(step, Step::SetKernelArguments { .. }));
    "eswitch_mode_is_not_asked_for", caught by "refuses_an_eswitch_mode_of_a_card_without_one",
        Wrong::Skips(|step| matches!(step, Step::SetEswitchMode { .. }));
    "eswitch_mode_stays", caught by "sets_the_eswitch_mode",
        Wrong::Skips(|step| matches!(step, Step::SetEswitchMode { .. }));
    "offloading_is_not_asked_for", caught by "refuses_to_offload_to_a_card_that_cannot",
        Wrong::Skips(|step| matches!(step, Step::SetTcOffload { .. }));
    "offloading_stays", caught by "switches_offloading",
        Wrong::Skips(|step| matches!(step, Step::SetTcOffload { .. }));
    "udev_is_not_told", caught by "udev_names_representors_by_its_rule",
        Wrong::Skips(|step| matches!(step, Step::ReplayUdev { .. }));
    "guid_is_not_asked_for", caught by "refuses_a_guid_on_ethernet",
        Wrong::Skips(|step| matches!(step, Step::SetVfGuid { .. }));
    "guid_of_the_neighbour", caught by "sets_the_guid_of_the_right_vf", Wrong::Changes(guid_of_the_neighbour);
    "vdpa_device_is_not_made", caught by "makes_and_removes_vdpa_devices",
        Wrong::Skips(|step| matches!(step, Step::MakeVdpa { .. }));
    "vdpa_device_is_not_removed", caught by "makes_and_removes_vdpa_devices",
        Wrong::Skips(|step| matches!(step, Step::RemoveVdpa { .. }));
    "firmware_is_not_asked", caught by "refuses_firmware_settings_where_no_tool_can",
        Wrong::Skips(|step| matches!(step, Step::SetFirmware { .. } | Step::ResetFirmware { .. }));
    "firmware_is_not_restarted", caught by "firmware_settings_count_after_a_restart_of_the_firmware",
        Wrong::Skips(|step| matches!(step, Step::ResetFirmware { .. }));
}

fn file_is_added_to(step: &mut Step, _: PciAddress) {
    if let Step::WriteFile { file, .. } = step {
        file.text.push_str("# and more\n");
    }
}

fn guid_of_the_neighbour(step: &mut Step, _: PciAddress) {
    if let Step::SetVfGuid { vf, .. } = step {
        vf.index ^= 1;
    }
}
