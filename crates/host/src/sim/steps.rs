//! Execution of steps on the simulated kernel, with the same requests as on a real host.

mod bind;
mod bridge;
mod machine;
mod ovs;

use std::io;
use std::time::Duration;

use vfleet_api::{PciAddress, VfRef};
use vfleet_plan::{EswitchMode, Fact, ModeTrial, Record, RefusedOrder, Step, VdpaKind};

use super::devices::{SimPf, SimVf};
use super::kernel::Kernel;
use super::requests::Refusal;
use crate::{HostError, format_error_chain};

const EBUSY: i32 = 16;
const ENODEV: i32 = 19;
const ERANGE: i32 = 34;
const EOPNOTSUPP: i32 = 95;

/// Time that a real host waits for a card that hangs.
pub(super) const DEADLINE: Duration = Duration::from_mins(2);

/// Executes a step on the simulated kernel.
pub(super) fn execute(kernel: &mut Kernel, step: &Step) -> Result<(), HostError> {
    check_target(kernel, step)?;
    let refused = |refusal: Refusal| netlink_error(step, &refusal);
    match step {
        Step::WriteRecord { record } => write_record(kernel, record),
        Step::RemoveRecord { pf } => remove_record(kernel, *pf),
        Step::SetLinkUp { pf } => request_on_link(kernel, *pf, step, |kernel| kernel.set_link_up(*pf, true))?,
        Step::SetPfMtu { pf, mtu } => {
            request_on_link(kernel, *pf, step, |kernel| kernel.set_pf_mtu(*pf, *mtu))?;
        }
        Step::SetAutoprobe { pf, on } => kernel.set_autoprobe(*pf, *on).map_err(refused)?,
        Step::SetNumVfs { pf, count } => set_num_vfs(kernel, *pf, *count, step)?,
        Step::SetEswitchMode { pf, mode, trial } => {
            let set = set_eswitch(kernel, *pf, *mode, step);
            note_if_refused(kernel, *pf, trial.as_ref(), set)?;
        }
        Step::SetTcOffload { pf, on } => {
            request_on_link(kernel, *pf, step, |kernel| kernel.set_tc_offload(*pf, *on))?;
        }
        Step::SetSoftwareSteering { pf } => {
            ignore_errno(EOPNOTSUPP, kernel.set_software_steering(*pf)).map_err(refused)?;
        }
        Step::SetFirmware { pf, settings } => machine::set_firmware(kernel, *pf, settings, step)?,
        Step::ResetFirmware { pf } => machine::reset_firmware(kernel, *pf, step)?,
        Step::ReplayUdev { pf } => kernel.replay_udev(*pf).map_err(refused)?,
        Step::SetVfMac { vf, mac } => {
            request_on_link(kernel, vf.pf, step, |kernel| kernel.set_vf_mac(*vf, *mac))?;
        }
        Step::SetVfGuid { vf, guid } => {
            request_on_link(kernel, vf.pf, step, |kernel| kernel.set_vf_guid(*vf, *guid))?;
        }
        Step::BindVf { vf, driver } => bind::bind(kernel, *vf, driver, step)?,
        Step::SetVfMtu { vf, mtu } => {
            require_vf_link(kernel, *vf)?;
            kernel.set_vf_mtu(*vf, *mtu).map_err(refused)?;
        }
        Step::MakeVdpa { vf, kind } => create_vdpa(kernel, *vf, *kind, step)?,
        Step::RemoveVdpa { vf } => ignore_errno(ENODEV, kernel.remove_vdpa(*vf)).map_err(refused)?,
        Step::SetOvsBridge { pf, bridge, observed } => {
            ovs::set(kernel, *pf, bridge, observed.as_ref(), step)?;
        }
        Step::RemoveOvsBridge { observed, .. } => ovs::remove(kernel, observed, step)?,
        Step::RemoveOvsPort { port, observed, .. } => ovs::remove_port(kernel, port, observed, step)?,
        Step::EnableOvsOffload => ovs::enable_offload(kernel, step)?,
        Step::CreateLinuxBridge { name, alias, .. } => bridge::create(kernel, name, alias, step)?,
        Step::SetLinuxBridge { pf, name, settings } => bridge::set(kernel, *pf, name, *settings, step)?,
        Step::AttachUplink { pf, bridge } => bridge::attach(kernel, *pf, bridge, step)?,
        Step::DetachUplink { pf, bridge } => bridge::detach(kernel, *pf, bridge, step)?,
        Step::SetBridgePort { pf, bridge, settings } => {
            bridge::set_port(kernel, *pf, bridge, settings, step)?;
        }
        Step::RemoveLinuxBridge { name, alias, .. } => bridge::remove(kernel, name, alias, step)?,
        Step::LoadModule { module, options } => machine::load_module(kernel, module, options)?,
        Step::WriteFile { file, .. } => machine::write_file(kernel, file)?,
        Step::RemoveFile { path, .. } => machine::remove_file(kernel, path)?,
        Step::InstallProgram { path } => machine::install_program(kernel, path),
        Step::EnableUnit { unit } => machine::enable(kernel, unit)?,
        Step::DisableUnit { unit } => machine::disable(kernel, unit),
        Step::SetKernelArguments { loader, add, remove } => {
            machine::set_arguments(kernel, *loader, add, remove)?;
        }
        Step::CountReboot { reboots } => kernel.reboots = Some(reboots.clone()),
        Step::ForgetReboots => kernel.reboots = None,
        Step::Reboot => kernel.reboot(),
    }
    Ok(())
}

/// Executes the first request of a step that sends several to the kernel with states between them that matter; other
/// steps are executed to their end.
pub(super) fn execute_first_request(kernel: &mut Kernel, step: &Step) -> Result<(), HostError> {
    match step {
        Step::CreateLinuxBridge { name, .. } => bridge::begin_creation(kernel, name, step),
        _ => execute(kernel, step),
    }
}

/// Fails if the card or VF of a step does not exist, or its driver hangs. Steps on files and the
/// removal of bridges do not need the card.
fn check_target(kernel: &Kernel, step: &Step) -> Result<(), HostError> {
    let (Some(pf), false) = (step.pf(), needs_no_card(step)) else { return Ok(()) };
    if require_pf(kernel, pf)?.is_hanging {
        return Err(HostError::DeadlineExceeded { attempt: step.to_string(), after: DEADLINE });
    }
    step.vf().map_or(Ok(()), |vf| require_vf(kernel, vf).map(drop))
}

fn needs_no_card(step: &Step) -> bool {
    matches!(
        step,
        Step::WriteRecord { .. }
            | Step::RemoveRecord { .. }
            | Step::WriteFile { .. }
            | Step::RemoveFile { .. }
            | Step::RemoveOvsBridge { .. }
            | Step::RemoveOvsPort { .. }
            | Step::RemoveLinuxBridge { .. }
    )
}

/// Writes a record, and the record of the Go daemon for a migration back to it.
fn write_record(kernel: &mut Kernel, record: &Record) {
    remove_record(kernel, record.pf);
    kernel.go_records.insert(record.pf, record.interface.clone());
    kernel.records.insert(record.pf, record.clone());
}

fn remove_record(kernel: &mut Kernel, pf: PciAddress) {
    kernel.records.remove(&pf);
    kernel.go_records.remove(&pf);
    kernel.damaged_records.remove(&pf);
    kernel.damaged_go_records.remove(&pf);
}

/// Sends a request to the interface of a PF.
fn request_on_link(
    kernel: &mut Kernel,
    pf: PciAddress,
    step: &Step,
    request: impl FnOnce(&mut Kernel) -> Result<(), Refusal>,
) -> Result<(), HostError> {
    if require_pf(kernel, pf)?.link.is_none() {
        return Err(HostError::NoInterface { device: pf.to_string() });
    }
    request(kernel).map_err(|refusal| netlink_error(step, &refusal))
}

/// Converts an error with this errno, which means that there is nothing to do, to success.
fn ignore_errno(harmless: i32, result: Result<(), Refusal>) -> Result<(), Refusal> {
    result.or_else(|refusal| if refusal.errno == harmless { Ok(()) } else { Err(refusal) })
}

fn set_eswitch(kernel: &mut Kernel, pf: PciAddress, mode: EswitchMode, step: &Step) -> Result<(), HostError> {
    let has_no_vfs = require_pf(kernel, pf)?.vfs.is_empty();
    match kernel.eswitch_mode(pf) {
        Fact::None => return Err(HostError::NoEswitch { device: pf.to_string() }),
        Fact::Unknown if mode == EswitchMode::Legacy && has_no_vfs => return Ok(()),
        _ => {}
    }
    kernel.set_eswitch_mode(pf, mode).map_err(|refusal| netlink_error(step, &refusal))
}

/// Adds a refusal of the kernel to the record of the PF, if `result` is one. Returns `result`.
fn note_if_refused(
    kernel: &mut Kernel,
    pf: PciAddress,
    trial: Option<&ModeTrial>,
    result: Result<(), HostError>,
) -> Result<(), HostError> {
    if let (Some(trial), Err(error)) = (trial, &result)
        && error.is_refusal()
        && let Some(record) = kernel.records.get_mut(&pf)
    {
        record.note_refusal(RefusedOrder { trial: trial.clone(), error: format_error_chain(error) });
    }
    result
}

fn create_vdpa(kernel: &mut Kernel, vf: VfRef, kind: VdpaKind, step: &Step) -> Result<(), HostError> {
    if !machine::is_loaded(kernel, kind.driver()) {
        return Err(HostError::DriverNotLoaded { driver: kind.driver().to_owned() });
    }
    kernel.create_vdpa(vf, kind).map_err(|refusal| netlink_error(step, &refusal))
}

fn set_num_vfs(kernel: &mut Kernel, pf: PciAddress, count: u16, step: &Step) -> Result<(), HostError> {
    let before = require_pf(kernel, pf)?;
    let (found, total) = (before.vfs.len(), before.vf_addresses.len());
    kernel.set_num_vfs(pf, count).map_err(|refusal| match refusal.errno {
        EBUSY => HostError::VfsExist { pf, found, requested: count },
        ERANGE => {
            HostError::TooManyVfs { pf, requested: count, total: u16::try_from(total).unwrap_or(u16::MAX) }
        }
        _ => netlink_error(step, &refusal),
    })
}

fn require_pf(kernel: &Kernel, pf: PciAddress) -> Result<&SimPf, HostError> {
    kernel.pf(pf).ok_or(HostError::PfNotFound { pf })
}

fn require_vf(kernel: &Kernel, vf: VfRef) -> Result<&SimVf, HostError> {
    let vfs = &require_pf(kernel, vf.pf)?.vfs;
    vfs.get(usize::from(vf.index)).ok_or(HostError::VfNotFound { vf, count: vfs.len() })
}

fn require_vf_link(kernel: &Kernel, vf: VfRef) -> Result<(), HostError> {
    let found = require_vf(kernel, vf)?;
    let is_visible = found.link.is_some() && found.namespace.is_none();
    if is_visible { Ok(()) } else { Err(HostError::NoInterface { device: vf.to_string() }) }
}

fn netlink_error(step: &Step, refusal: &Refusal) -> HostError {
    HostError::Netlink {
        attempt: step.to_string(),
        message: refusal.message.map(str::to_owned),
        source: io::Error::from_raw_os_error(refusal.errno),
    }
}
