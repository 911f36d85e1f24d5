//! Steps that change the whole machine.

use std::io;
use std::path::PathBuf;

use vfleet_api::PciAddress;
use vfleet_plan::files::{is_ours, unit_path};
use vfleet_plan::{BootLoader, FirmwareSettings, HostFile, ModuleState, Step};

use super::{netlink_error, require_pf};
use crate::HostError;
use crate::sim::arguments;
use crate::sim::kernel::Kernel;

const ENOENT: i32 = 2;

pub(super) fn load_module(kernel: &mut Kernel, module: &str, options: &[String]) -> Result<(), HostError> {
    let missing = |_| HostError::ModuleNotFound { module: module.to_owned() };
    kernel.load_module(module, options).map_err(missing)
}

pub(super) fn install_program(kernel: &mut Kernel, path: &str) {
    kernel.programs.insert(path.to_owned());
}

pub(super) fn enable(kernel: &mut Kernel, unit: &str) -> Result<(), HostError> {
    if !kernel.files.contains_key(&unit_path(unit)) {
        return Err(file_not_found("enable", unit_path(unit)));
    }
    kernel.enabled_units.insert(unit.to_owned());
    Ok(())
}

pub(super) fn disable(kernel: &mut Kernel, unit: &str) {
    kernel.enabled_units.remove(unit);
}

pub(super) fn set_arguments(
    kernel: &mut Kernel,
    loader: BootLoader,
    add: &[String],
    remove: &[String],
) -> Result<(), HostError> {
    if kernel.boot_loader() != Some(loader) {
        return Err(HostError::WrongBootLoader { loader: loader.as_str() });
    }
    kernel.next_command_line = arguments::change(&kernel.next_command_line, add, remove);
    Ok(())
}

pub(super) fn set_firmware(
    kernel: &mut Kernel,
    pf: PciAddress,
    settings: &FirmwareSettings,
    step: &Step,
) -> Result<(), HostError> {
    require_firmware(kernel, pf)?;
    kernel.set_firmware(pf, settings).map_err(|refusal| netlink_error(step, &refusal))
}

pub(super) fn reset_firmware(kernel: &mut Kernel, pf: PciAddress, step: &Step) -> Result<(), HostError> {
    require_firmware(kernel, pf)?;
    kernel.reset_firmware(pf).map_err(|refusal| netlink_error(step, &refusal))
}

fn require_firmware(kernel: &Kernel, pf: PciAddress) -> Result<(), HostError> {
    require_pf(kernel, pf)?.firmware.as_ref().map(drop).ok_or(HostError::NoFirmwareTool { pf })
}

pub(super) fn write_file(kernel: &mut Kernel, file: &HostFile) -> Result<(), HostError> {
    require_managed(&file.path)?;
    kernel.files.insert(file.path.clone(), file.text.clone());
    Ok(())
}

pub(super) fn remove_file(kernel: &mut Kernel, path: &str) -> Result<(), HostError> {
    require_managed(path)?;
    kernel.files.remove(path);
    kernel.programs.remove(path);
    Ok(())
}

fn require_managed(path: &str) -> Result<(), HostError> {
    if is_ours(path) { Ok(()) } else { Err(HostError::PathNotAllowed { path: path.into() }) }
}

pub(super) fn is_loaded(kernel: &Kernel, module: &str) -> bool {
    kernel.modules.get(module) == Some(&ModuleState::Loaded)
}

fn file_not_found(attempt: &'static str, path: String) -> HostError {
    HostError::Io { attempt, path: PathBuf::from(path), source: io::Error::from_raw_os_error(ENOENT) }
}
