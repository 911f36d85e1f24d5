//! Steps that change the machine as a whole, and what it keeps on its disk.

use vfleet_plan::Step;

use crate::HostError;
use crate::linux::root::HostRoot;
use crate::linux::{boot_loader, files, firmware, modules, system, udev};

/// Does `step`; `None` when it is not one of these.
pub(super) fn execute(root: &HostRoot, step: &Step, attempt: &str) -> Option<Result<(), HostError>> {
    Some(match step {
        Step::SetFirmware { pf, settings } => firmware::set(root, *pf, settings, attempt),
        Step::ResetFirmware { pf } => firmware::reset(root, *pf),
        Step::ReplayUdev { pf } => udev::replay(root, *pf),
        Step::LoadModule { module, options } => modules::load(root, module, options, attempt),
        Step::WriteFile { file, .. } => files::write(root, file),
        Step::RemoveFile { path, .. } => files::remove(root, path),
        Step::InstallProgram { path } => files::install_program(root, path),
        Step::EnableUnit { unit } => files::enable(root, unit, attempt),
        Step::DisableUnit { unit } => files::disable(root, unit, attempt),
        Step::SetKernelArguments { loader, add, remove } => {
            boot_loader::change(root, *loader, add, remove, attempt)
        }
        Step::CountReboot { reboots } => system::count_reboot(root, reboots),
        Step::ForgetReboots => system::forget_reboots(root),
        Step::Reboot => system::reboot(root, attempt),
        _ => return None,
    })
}

#[cfg(test)]
#[path = "system_tests.rs"]
mod tests;
