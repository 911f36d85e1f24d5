//! Steps, done the way a real host does them, by asking the simulated kernel.

mod bind;
mod machine;

use std::io;
use std::time::Duration;

use vfleet_api::{PciAddress, VfRef};
use vfleet_plan::{EswitchMode, Fact, ModeTrial, Record, RefusedOrder, Step, VdpaKind};

use super::kernel::Kernel;
use super::parts::{Pf, Vf};
use super::requests::Refusal;
use crate::{HostError, with_causes};

const EBUSY: i32 = 16;
const ENODEV: i32 = 19;
const ERANGE: i32 = 34;
const EOPNOTSUPP: i32 = 95;

/// How long a real host waits for a card that does not answer.
pub(super) const DEADLINE: Duration = Duration::from_mins(2);

pub(super) fn execute(kernel: &mut Kernel, step: &Step) -> Result<(), HostError> {
    require_answer(kernel, step)?;
    let refused = |refusal: Refusal| netlink(step, &refusal);
    match step {
        Step::WriteRecord { record } => write_record(kernel, record),
        Step::RemoveRecord { pf } => remove_record(kernel, *pf),
        Step::SetLinkUp { pf } => on_link(kernel, *pf, step, |kernel| kernel.set_up(*pf, true))?,
        Step::SetPfMtu { pf, mtu } => on_link(kernel, *pf, step, |kernel| kernel.set_pf_mtu(*pf, *mtu))?,
        Step::SetAutoprobe { pf, on } => kernel.set_autoprobe(*pf, *on).map_err(refused)?,
        Step::SetNumVfs { pf, count } => set_num_vfs(kernel, *pf, *count, step)?,
        Step::SetEswitchMode { pf, mode, trial } => {
            let set = set_eswitch(kernel, *pf, *mode, step);
            noting_refusals(kernel, *pf, trial.as_ref(), set)?;
        }
        Step::SetTcOffload { pf, on } => {
            on_link(kernel, *pf, step, |kernel| kernel.set_tc_offload(*pf, *on))?;
        }
        Step::SetSoftwareSteering { pf } => {
            unless(EOPNOTSUPP, kernel.set_software_steering(*pf)).map_err(refused)?;
        }
        Step::SetFirmware { pf, settings } => machine::set_firmware(kernel, *pf, settings, step)?,
        Step::ResetFirmware { pf } => machine::reset_firmware(kernel, *pf, step)?,
        Step::ReplayUdev { pf } => kernel.replay_udev(*pf).map_err(refused)?,
        Step::SetVfMac { vf, mac } => on_link(kernel, vf.pf, step, |kernel| kernel.set_vf_mac(*vf, *mac))?,
        Step::SetVfGuid { vf, guid } => {
            on_link(kernel, vf.pf, step, |kernel| kernel.set_vf_guid(*vf, *guid))?;
        }
        Step::BindVf { vf, driver } => bind::bind(kernel, *vf, driver, step)?,
        Step::SetVfMtu { vf, mtu } => {
            require_vf_link(kernel, *vf)?;
            kernel.set_vf_mtu(*vf, *mtu).map_err(refused)?;
        }
        Step::MakeVdpa { vf, kind } => make_vdpa(kernel, *vf, *kind, step)?,
        Step::RemoveVdpa { vf } => unless(ENODEV, kernel.remove_vdpa(*vf)).map_err(refused)?,
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

/// That the card or the VF of a step is there, and its driver does not hang. What is written about a card needs none.
fn require_answer(kernel: &Kernel, step: &Step) -> Result<(), HostError> {
    let (Some(pf), false) = (step.pf(), is_written_down(step)) else { return Ok(()) };
    if require_pf(kernel, pf)?.hangs {
        return Err(HostError::Deadline { attempt: step.to_string(), after: DEADLINE });
    }
    step.vf().map_or(Ok(()), |vf| require_vf(kernel, vf).map(drop))
}

fn is_written_down(step: &Step) -> bool {
    matches!(
        step,
        Step::WriteRecord { .. }
            | Step::RemoveRecord { .. }
            | Step::WriteFile { .. }
            | Step::RemoveFile { .. }
    )
}

/// Beside the record the file of the Go daemon is kept, for the way back to it.
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

/// Asks the kernel for something that goes through a PF's interface.
fn on_link(
    kernel: &mut Kernel,
    pf: PciAddress,
    step: &Step,
    ask: impl FnOnce(&mut Kernel) -> Result<(), Refusal>,
) -> Result<(), HostError> {
    if require_pf(kernel, pf)?.link.is_none() {
        return Err(HostError::NoInterface { device: pf.to_string() });
    }
    ask(kernel).map_err(|refusal| netlink(step, &refusal))
}

/// A refusal that means that there is nothing to do.
fn unless(harmless: i32, done: Result<(), Refusal>) -> Result<(), Refusal> {
    done.or_else(|refusal| if refusal.errno == harmless { Ok(()) } else { Err(refusal) })
}

fn set_eswitch(kernel: &mut Kernel, pf: PciAddress, mode: EswitchMode, step: &Step) -> Result<(), HostError> {
    let is_without_vfs = require_pf(kernel, pf)?.vfs.is_empty();
    match kernel.eswitch_mode(pf) {
        Fact::None => return Err(HostError::NoEswitch { device: pf.to_string() }),
        Fact::Unknown if mode == EswitchMode::Legacy && is_without_vfs => return Ok(()),
        _ => {}
    }
    kernel.set_eswitch_mode(pf, mode).map_err(|refusal| netlink(step, &refusal))
}

/// Notes in the PF's record that the kernel refused the mode, if it did.
fn noting_refusals(
    kernel: &mut Kernel,
    pf: PciAddress,
    trial: Option<&ModeTrial>,
    set: Result<(), HostError>,
) -> Result<(), HostError> {
    if let (Some(trial), Err(error)) = (trial, &set)
        && error.is_refusal()
        && let Some(record) = kernel.records.get_mut(&pf)
    {
        record.note_refusal(RefusedOrder { trial: trial.clone(), error: with_causes(error) });
    }
    set
}

fn make_vdpa(kernel: &mut Kernel, vf: VfRef, kind: VdpaKind, step: &Step) -> Result<(), HostError> {
    if !machine::is_loaded(kernel, kind.driver()) {
        return Err(HostError::DriverNotLoaded { driver: kind.driver().to_owned() });
    }
    kernel.make_vdpa(vf, kind).map_err(|refusal| netlink(step, &refusal))
}

fn set_num_vfs(kernel: &mut Kernel, pf: PciAddress, count: u16, step: &Step) -> Result<(), HostError> {
    let before = require_pf(kernel, pf)?;
    let (found, total) = (before.vfs.len(), before.vf_addresses.len());
    kernel.set_num_vfs(pf, count).map_err(|refusal| match refusal.errno {
        EBUSY => HostError::VfsExist { pf, found, asked: count },
        ERANGE => HostError::TooManyVfs { pf, asked: count, total: u16::try_from(total).unwrap_or(u16::MAX) },
        _ => netlink(step, &refusal),
    })
}

fn require_pf(kernel: &Kernel, pf: PciAddress) -> Result<&Pf, HostError> {
    kernel.pf(pf).ok_or(HostError::NoSuchPf { pf })
}

fn require_vf(kernel: &Kernel, vf: VfRef) -> Result<&Vf, HostError> {
    let vfs = &require_pf(kernel, vf.pf)?.vfs;
    vfs.get(usize::from(vf.index)).ok_or(HostError::NoSuchVf { vf, count: vfs.len() })
}

fn require_vf_link(kernel: &Kernel, vf: VfRef) -> Result<(), HostError> {
    let found = require_vf(kernel, vf)?;
    let is_here = found.link.is_some() && !found.is_held_elsewhere;
    if is_here { Ok(()) } else { Err(HostError::NoInterface { device: vf.to_string() }) }
}

fn netlink(step: &Step, refusal: &Refusal) -> HostError {
    HostError::Netlink {
        attempt: step.to_string(),
        message: refusal.message.map(str::to_owned),
        source: io::Error::from_raw_os_error(refusal.errno),
    }
}
