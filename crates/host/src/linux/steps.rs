//! Execution of steps. The effect of every step is verified by reading it back.

pub(super) mod bind;
mod bridge_port;
pub(super) mod links;
mod linux_bridge;
mod num_vfs;
mod ovs;
#[cfg(test)]
mod system_tests;
mod vdpa;

use std::fmt;
use std::time::Duration;

use vfleet_api::PciAddress;
use vfleet_plan::{EswitchMode, Fact, ModeTrial, Step};

use super::devlink::{self, DevlinkHandle};
use super::root::HostRoot;
use super::{boot_loader, files, firmware, modules, pci, records, sysfs, system, udev};
use crate::HostError;

/// Deadline of most steps, which contain at most two waits of ten seconds.
const SHORT: Duration = Duration::from_secs(30);
/// Deadline of steps that create many devices: some cards need a minute for a hundred VFs, and a change of the eswitch
/// mode creates as many representors, which udev has to process.
const LONG: Duration = Duration::from_mins(2);
/// Deadline of tools that write to flash, or create a new boot image.
const VERY_LONG: Duration = Duration::from_mins(5);

/// Returns the deadline of a step.
pub(super) fn deadline(step: &Step) -> Duration {
    match step {
        Step::SetNumVfs { .. } | Step::SetEswitchMode { .. } | Step::ReplayUdev { .. } => LONG,
        Step::SetFirmware { .. } | Step::ResetFirmware { .. } | Step::SetKernelArguments { .. } => VERY_LONG,
        _ => SHORT,
    }
}

/// Executes a step and verifies its effect.
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
            note_if_refused(root, *pf, trial.as_ref(), set_eswitch(root, *pf, *mode, &attempt))
        }
        Step::SetTcOffload { pf, on } => links::set_tc_offload(root, *pf, *on, &attempt),
        Step::SetSoftwareSteering { pf } => set_software_steering(root, *pf, &attempt),
        Step::SetVfMac { vf, mac } => links::set_vf_mac(root, *vf, *mac, &attempt),
        Step::SetVfGuid { vf, guid } => links::set_vf_guid(root, *vf, *guid, &attempt),
        Step::BindVf { vf, driver } => bind::bind(root, *vf, driver, &attempt),
        Step::SetVfMtu { vf, mtu } => links::set_vf_mtu(root, *vf, *mtu, &attempt),
        Step::MakeVdpa { vf, kind } => vdpa::create(root, *vf, *kind, &attempt),
        Step::RemoveVdpa { vf } => vdpa::remove(root, *vf, &attempt),
        Step::SetFirmware { pf, settings } => firmware::set(root, *pf, settings, &attempt),
        Step::ResetFirmware { pf } => firmware::reset(root, *pf),
        Step::ReplayUdev { pf } => udev::replay(root, *pf),
        Step::SetOvsBridge { pf, bridge, observed } => {
            ovs::set_bridge(root, *pf, bridge, observed.as_ref(), &attempt)
        }
        Step::RemoveOvsBridge { observed, .. } => ovs::remove_bridge(root, observed, &attempt),
        Step::RemoveOvsPort { port, observed, .. } => ovs::remove_port(root, port, observed, &attempt),
        Step::EnableOvsOffload => ovs::enable_offload(root, &attempt),
        Step::CreateLinuxBridge { name, alias, .. } => linux_bridge::create(name, alias, &attempt),
        Step::SetLinuxBridge { pf, name, settings } => {
            linux_bridge::set(root, *pf, name, *settings, &attempt)
        }
        Step::AttachUplink { pf, bridge } => bridge_port::attach(root, *pf, bridge, &attempt),
        Step::DetachUplink { pf, bridge } => bridge_port::detach(root, *pf, bridge, &attempt),
        Step::SetBridgePort { pf, bridge, settings } => {
            bridge_port::set(root, *pf, bridge, settings, &attempt)
        }
        Step::RemoveLinuxBridge { name, alias, .. } => linux_bridge::remove(name, alias, &attempt),
        Step::LoadModule { module, options } => modules::load(root, module, options, &attempt),
        Step::WriteFile { file, .. } => files::write(root, file),
        Step::RemoveFile { path, .. } => files::remove(root, path, &attempt),
        Step::InstallProgram { path } => files::install_program(root, path),
        Step::EnableUnit { unit } => files::enable(root, unit, &attempt),
        Step::DisableUnit { unit } => files::disable(root, unit, &attempt),
        Step::SetKernelArguments { loader, add, remove } => {
            boot_loader::change_arguments(root, *loader, add, remove, &attempt)
        }
        Step::CountReboot { reboots } => system::count_reboot(root, reboots),
        Step::ForgetReboots => system::forget_reboots(root),
        Step::Reboot => system::reboot(root, &attempt),
    }
}

fn set_autoprobe(root: &HostRoot, pf: PciAddress, on: bool, attempt: &str) -> Result<(), HostError> {
    pci::require_pf(root, pf)?;
    if pci::read_drivers_autoprobe(root, pf)? != on {
        let switch = root.device(pf).join("sriov_drivers_autoprobe");
        sysfs::write(&switch, if on { "1" } else { "0" })?;
    }
    verify(attempt, &on, &pci::read_drivers_autoprobe(root, pf)?)
}

fn set_eswitch(root: &HostRoot, pf: PciAddress, mode: EswitchMode, attempt: &str) -> Result<(), HostError> {
    pci::require_pf(root, pf)?;
    let device = DevlinkHandle::pci(pf);
    match devlink::read_eswitch_mode(&device)? {
        found if found == Fact::Value(mode) => {}
        // The eswitch is off without VFs.
        Fact::Unknown if mode == EswitchMode::Legacy && pci::read_num_vfs(root, pf)? == 0 => return Ok(()),
        _ => devlink::set_eswitch_mode(&device, mode, attempt)?,
    }
    let found = match devlink::read_eswitch_mode(&device)? {
        Fact::Value(mode) => mode.as_str(),
        Fact::None => "no eswitch",
        Fact::Unknown => "an unknown mode",
    };
    verify(attempt, &mode.as_str(), &found)
}

/// Adds a refusal of the kernel to the record of the PF, if `result` is one. Returns `result`.
fn note_if_refused(
    root: &HostRoot,
    pf: PciAddress,
    trial: Option<&ModeTrial>,
    result: Result<(), HostError>,
) -> Result<(), HostError> {
    if let (Some(trial), Err(error)) = (trial, &result)
        && error.is_refusal()
    {
        records::note_refusal(root, pf, trial, error)?;
    }
    result
}

/// Selects software steering. A card without this parameter is left alone, so the value is not verified.
fn set_software_steering(root: &HostRoot, pf: PciAddress, attempt: &str) -> Result<(), HostError> {
    pci::require_pf(root, pf)?;
    devlink::set_text_if_supported(&DevlinkHandle::pci(pf), "flow_steering_mode", "smfs", attempt)
}

/// Fails if the value that was found differs from the expected one.
pub(super) fn verify<T: PartialEq + fmt::Display>(
    attempt: &str,
    expected: &T,
    found: &T,
) -> Result<(), HostError> {
    if expected == found {
        return Ok(());
    }
    Err(HostError::NotVerified {
        attempt: attempt.to_owned(),
        expected: expected.to_string(),
        found: found.to_string(),
    })
}
