//! Steps, done the way a real host does them, by asking the simulated kernel.

use std::io;

use vfleet_api::{PciAddress, VfRef};
use vfleet_plan::{Step, VfDriver, is_userspace_driver};

use super::kernel::{Kernel, Pf, Vf};
use super::requests::Refusal;
use crate::HostError;

const EBUSY: i32 = 16;
const ERANGE: i32 = 34;

pub(super) fn execute(kernel: &mut Kernel, step: &Step) -> Result<(), HostError> {
    let refused = |refusal: Refusal| netlink(step, &refusal);
    match step {
        Step::WriteRecord { record } => {
            kernel.records.insert(record.pf, record.clone());
            Ok(())
        }
        Step::RemoveRecord { pf } => {
            kernel.records.remove(pf);
            Ok(())
        }
        Step::SetLinkUp { pf } => {
            require_link(kernel, *pf)?;
            kernel.set_up(*pf, true).map_err(refused)
        }
        Step::SetPfMtu { pf, mtu } => {
            require_link(kernel, *pf)?;
            kernel.set_pf_mtu(*pf, *mtu).map_err(refused)
        }
        Step::SetAutoprobe { pf, on } => {
            require_pf(kernel, *pf)?;
            kernel.set_autoprobe(*pf, *on).map_err(refused)
        }
        Step::SetNumVfs { pf, count } => set_num_vfs(kernel, *pf, *count, step),
        Step::SetVfMac { vf, mac } => {
            require_vf(kernel, *vf)?;
            require_link(kernel, vf.pf)?;
            kernel.set_vf_mac(*vf, *mac).map_err(refused)
        }
        Step::BindVf { vf, driver } => bind(kernel, *vf, driver, step),
        Step::SetVfMtu { vf, mtu } => {
            require_vf_link(kernel, *vf)?;
            kernel.set_vf_mtu(*vf, *mtu).map_err(refused)
        }
        _ => Err(HostError::NotYet { attempt: step.to_string() }),
    }
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

fn bind(kernel: &mut Kernel, vf: VfRef, driver: &VfDriver, step: &Step) -> Result<(), HostError> {
    let refused = |refusal: Refusal| netlink(step, &refusal);
    let bound = require_vf(kernel, vf)?.driver.clone();
    match driver {
        VfDriver::Named(name) if !kernel.has_driver(name) => {
            kernel.set_override(vf, None).map_err(refused)?;
            return Err(HostError::DriverNotLoaded { driver: name.clone() });
        }
        VfDriver::Named(name) if bound.as_ref() == Some(name) => {
            return kernel.set_override(vf, None).map_err(refused);
        }
        VfDriver::Named(name) => kernel.set_override(vf, Some(name)).map_err(refused)?,
        VfDriver::Kernel => {
            kernel.set_override(vf, None).map_err(refused)?;
            if !require_pf(kernel, vf.pf)?.autoprobe {
                return Err(HostError::AutoprobeOff { pf: vf.pf });
            }
        }
    }
    if bound.is_some() {
        kernel.unbind(vf).map_err(refused)?;
    }
    kernel.probe(vf).map_err(refused)?;
    kernel.set_override(vf, None).map_err(refused)?;
    verify_driver(require_vf(kernel, vf)?, driver, step)
}

fn verify_driver(vf: &Vf, wanted: &VfDriver, step: &Step) -> Result<(), HostError> {
    let is_wanted = vf.driver.as_deref().is_some_and(|driver| match wanted {
        VfDriver::Kernel => !is_userspace_driver(driver),
        VfDriver::Named(name) => driver == name,
    });
    if is_wanted {
        return Ok(());
    }
    Err(HostError::Unverified {
        attempt: step.to_string(),
        expected: wanted.to_string(),
        found: vf.driver.clone().unwrap_or_else(|| "no driver".to_owned()),
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
