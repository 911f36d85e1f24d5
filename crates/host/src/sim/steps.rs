//! Steps, done the way a real host does them, by asking the simulated kernel.

mod bind;
mod machine;

use std::io;
use std::time::Duration;

use vfleet_api::{PciAddress, VfRef};
use vfleet_plan::{Record, Step};

use super::kernel::Kernel;
use super::parts::{Pf, Vf};
use super::requests::Refusal;
use crate::HostError;

const EBUSY: i32 = 16;
const ENODEV: i32 = 19;
const ERANGE: i32 = 34;
const EOPNOTSUPP: i32 = 95;

/// How long a real host waits for a card that does not answer.
pub(super) const DEADLINE: Duration = Duration::from_mins(2);

pub(super) fn execute(kernel: &mut Kernel, step: &Step) -> Result<(), HostError> {
    match step {
        Step::WriteRecord { record } => {
            write_record(kernel, record);
            Ok(())
        }
        Step::RemoveRecord { pf } => {
            kernel.records.remove(pf);
            kernel.go_records.remove(pf);
            Ok(())
        }
        Step::WriteFile { file, .. } => machine::write_file(kernel, file),
        Step::RemoveFile { path, .. } => machine::remove_file(kernel, path),
        _ => match step.pf() {
            None => machine::execute(kernel, step),
            Some(pf) if require_pf(kernel, pf)?.hangs => {
                Err(HostError::Deadline { attempt: step.to_string(), after: DEADLINE })
            }
            Some(_) if step.vf().is_some() => change_vf(kernel, step),
            Some(pf) => change_pf(kernel, pf, step),
        },
    }
}

/// Beside the record the file of the Go daemon is kept, for the way back to it.
fn write_record(kernel: &mut Kernel, record: &Record) {
    kernel.go_records.insert(record.pf, record.interface.clone());
    kernel.records.insert(record.pf, record.clone());
}

fn change_pf(kernel: &mut Kernel, pf: PciAddress, step: &Step) -> Result<(), HostError> {
    let done = match step {
        Step::SetLinkUp { .. } => {
            require_link(kernel, pf)?;
            kernel.set_up(pf, true)
        }
        Step::SetPfMtu { mtu, .. } => {
            require_link(kernel, pf)?;
            kernel.set_pf_mtu(pf, *mtu)
        }
        Step::SetAutoprobe { on, .. } => kernel.set_autoprobe(pf, *on),
        Step::SetNumVfs { count, .. } => return set_num_vfs(kernel, pf, *count, step),
        Step::SetEswitchMode { .. } if require_pf(kernel, pf)?.eswitch.is_none() => {
            return Err(HostError::NoEswitch { device: pf.to_string() });
        }
        Step::SetEswitchMode { mode, .. } => kernel.set_eswitch_mode(pf, *mode),
        Step::SetTcOffload { on, .. } => {
            require_link(kernel, pf)?;
            kernel.set_tc_offload(pf, *on)
        }
        Step::SetSoftwareSteering { .. } => match kernel.set_software_steering(pf) {
            Err(refusal) if refusal.errno == EOPNOTSUPP => Ok(()),
            done => done,
        },
        Step::SetFirmware { settings, .. } => return machine::set_firmware(kernel, pf, settings, step),
        Step::ResetFirmware { .. } => return machine::reset_firmware(kernel, pf, step),
        Step::ReplayUdev { .. } => kernel.replay_udev(pf),
        _ => return Err(HostError::NotYet { attempt: step.to_string() }),
    };
    done.map_err(|refusal| netlink(step, &refusal))
}

fn change_vf(kernel: &mut Kernel, step: &Step) -> Result<(), HostError> {
    if let Some(vf) = step.vf() {
        require_vf(kernel, vf)?;
    }
    let done = match step {
        Step::SetVfMac { vf, mac } => {
            require_link(kernel, vf.pf)?;
            kernel.set_vf_mac(*vf, *mac)
        }
        Step::SetVfGuid { vf, guid } => {
            require_link(kernel, vf.pf)?;
            kernel.set_vf_guid(*vf, *guid)
        }
        Step::BindVf { vf, driver } => return bind::bind(kernel, *vf, driver, step),
        Step::UnbindVf { vf } => match kernel.unbind(*vf) {
            Err(refusal) if refusal.errno == ENODEV => Ok(()),
            done => done,
        },
        Step::SetVfMtu { vf, mtu } => {
            require_vf_link(kernel, *vf)?;
            kernel.set_vf_mtu(*vf, *mtu)
        }
        Step::MakeVdpa { kind, .. } if !machine::is_loaded(kernel, kind.driver()) => {
            return Err(HostError::DriverNotLoaded { driver: kind.driver().to_owned() });
        }
        Step::MakeVdpa { vf, kind } => kernel.make_vdpa(*vf, *kind),
        Step::RemoveVdpa { vf } => match kernel.remove_vdpa(*vf) {
            Err(refusal) if refusal.errno == ENODEV => Ok(()),
            done => done,
        },
        _ => return Err(HostError::NotYet { attempt: step.to_string() }),
    };
    done.map_err(|refusal| netlink(step, &refusal))
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

fn require_link(kernel: &Kernel, pf: PciAddress) -> Result<(), HostError> {
    let link = require_pf(kernel, pf)?.link.as_ref();
    link.map(drop).ok_or_else(|| HostError::NoInterface { device: pf.to_string() })
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
