//! Steps, one function each. Every one is read back.

mod bind;
mod links;
mod num_vfs;
#[cfg(test)]
mod system_tests;
mod vdpa;

use std::fmt;
use std::time::Duration;

use vfleet_api::PciAddress;
use vfleet_plan::{EswitchMode, Fact, ModeTrial, Step};

use super::devlink::{self, Handle};
use super::root::HostRoot;
use super::{boot_loader, files, firmware, modules, pci, records, sysfs, system, udev};
use crate::HostError;

/// For most: the longest waits inside them are two of ten seconds.
const SHORT: Duration = Duration::from_secs(30);
/// Making a hundred VFs takes some cards a minute, and a change of the eswitch mode makes as many representors. udev looks
/// at all of them.
const LONG: Duration = Duration::from_mins(2);
/// Tools that write to flash, or make a new image of the system to boot.
const LONGEST: Duration = Duration::from_mins(5);

/// How long a step may take.
pub(super) fn deadline(step: &Step) -> Duration {
    match step {
        Step::SetNumVfs { .. } | Step::SetEswitchMode { .. } | Step::ReplayUdev { .. } => LONG,
        Step::SetFirmware { .. } | Step::ResetFirmware { .. } | Step::SetKernelArguments { .. } => LONGEST,
        _ => SHORT,
    }
}

pub(super) fn execute(root: &HostRoot, step: &Step) -> Result<(), HostError> {
    let attempt = step.to_string();
    match step {
        Step::WriteRecord { record } => records::write(root, record),
        Step::RemoveRecord { pf } => records::remove(root, *pf),
        Step::SetLinkUp { pf } => links::set_up(root, *pf, &attempt),
        Step::SetPfMtu { pf, mtu } => links::set_pf_mtu(root, *pf, *mtu, &attempt),
        Step::SetAutoprobe { pf, on } => set_autoprobe(root, *pf, *on, &attempt),
        Step::SetNumVfs { pf, count } => num_vfs::set(root, *pf, *count, &attempt),
        Step::SetEswitchMode { pf, mode, trial } => {
            noting_refusals(root, *pf, trial.as_ref(), set_eswitch(root, *pf, *mode, &attempt))
        }
        Step::SetTcOffload { pf, on } => links::set_tc_offload(root, *pf, *on, &attempt),
        Step::SetSoftwareSteering { pf } => set_software_steering(root, *pf, &attempt),
        Step::SetVfMac { vf, mac } => links::set_vf_mac(root, *vf, *mac, &attempt),
        Step::SetVfGuid { vf, guid } => links::set_vf_guid(root, *vf, *guid, &attempt),
        Step::BindVf { vf, driver } => bind::bind(root, *vf, driver, &attempt),
        Step::SetVfMtu { vf, mtu } => links::set_vf_mtu(root, *vf, *mtu, &attempt),
        Step::MakeVdpa { vf, kind } => vdpa::make(root, *vf, *kind, &attempt),
        Step::RemoveVdpa { vf } => vdpa::remove(root, *vf, &attempt),
        Step::SetFirmware { pf, settings } => firmware::set(root, *pf, settings, &attempt),
        Step::ResetFirmware { pf } => firmware::reset(root, *pf),
        Step::ReplayUdev { pf } => udev::replay(root, *pf),
        Step::LoadModule { module, options } => modules::load(root, module, options, &attempt),
        Step::WriteFile { file, .. } => files::write(root, file),
        Step::RemoveFile { path, .. } => files::remove(root, path, &attempt),
        Step::InstallProgram { path } => files::install_program(root, path),
        Step::EnableUnit { unit } => files::enable(root, unit, &attempt),
        Step::DisableUnit { unit } => files::disable(root, unit, &attempt),
        Step::SetKernelArguments { loader, add, remove } => {
            boot_loader::change(root, *loader, add, remove, &attempt)
        }
        Step::CountReboot { reboots } => system::count_reboot(root, reboots),
        Step::ForgetReboots => system::forget_reboots(root),
        Step::Reboot => system::reboot(root, &attempt),
    }
}

fn set_autoprobe(root: &HostRoot, pf: PciAddress, on: bool, attempt: &str) -> Result<(), HostError> {
    pci::require_pf(root, pf)?;
    if pci::drivers_autoprobe(root, pf)? != on {
        let switch = root.device(pf).join("sriov_drivers_autoprobe");
        sysfs::write(&switch, if on { "1" } else { "0" })?;
    }
    verify(attempt, &on, &pci::drivers_autoprobe(root, pf)?)
}

fn set_eswitch(root: &HostRoot, pf: PciAddress, mode: EswitchMode, attempt: &str) -> Result<(), HostError> {
    pci::require_pf(root, pf)?;
    let device = Handle::pci(pf);
    match devlink::eswitch(&device)? {
        found if found == Fact::Value(mode) => {}
        // It is off.
        Fact::Unknown if mode == EswitchMode::Legacy && pci::num_vfs(root, pf)? == 0 => return Ok(()),
        _ => devlink::set_eswitch(&device, mode, attempt)?,
    }
    verify(attempt, &Fact::Value(mode), &devlink::eswitch(&device)?)
}

/// Notes in the PF's record that the kernel refused the mode, if it did.
fn noting_refusals(
    root: &HostRoot,
    pf: PciAddress,
    trial: Option<&ModeTrial>,
    set: Result<(), HostError>,
) -> Result<(), HostError> {
    if let (Some(trial), Err(error)) = (trial, &set)
        && error.is_refusal()
    {
        records::note_refusal(root, pf, trial, error)?;
    }
    set
}

/// What is not taken is not read back: a card that steers flows in another way is as well.
fn set_software_steering(root: &HostRoot, pf: PciAddress, attempt: &str) -> Result<(), HostError> {
    pci::require_pf(root, pf)?;
    devlink::set_text_if_taken(&Handle::pci(pf), "flow_steering_mode", "smfs", attempt)
}

/// That the kernel did what it accepted to do.
fn verify<T: PartialEq + fmt::Debug>(attempt: &str, expected: &T, found: &T) -> Result<(), HostError> {
    if expected == found {
        return Ok(());
    }
    Err(HostError::Unverified {
        attempt: attempt.to_owned(),
        expected: format!("{expected:?}"),
        found: format!("{found:?}"),
    })
}
