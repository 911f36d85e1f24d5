//! Step that sets the number of VFs.

use std::time::Duration;

use vfleet_api::PciAddress;

use crate::HostError;
use crate::linux::root::HostRoot;
use crate::linux::{events, pci, sysfs};

const EBUSY: i32 = 16;
const ERANGE: i32 = 34;
/// Limit for VFs to appear after the kernel accepted their number. Most appear immediately.
const VFS_DEADLINE: Duration = Duration::from_secs(10);

/// Creates or removes VFs, and waits until their number matches.
pub(super) fn set(root: &HostRoot, pf: PciAddress, count: u16, attempt: &str) -> Result<(), HostError> {
    let total = pci::require_pf(root, pf)?;
    if total == 0 && count > 0 {
        // Such a card has no `sriov_numvfs`.
        return Err(HostError::TooManyVfs { pf, requested: count, total });
    }
    let found = pci::read_num_vfs(root, pf)?;
    if found != count {
        let path = root.device(pf).join("sriov_numvfs");
        sysfs::write(&path, &count.to_string()).map_err(|error| match error.errno() {
            Some(EBUSY) if found > 0 => HostError::VfsExist { pf, found: found.into(), requested: count },
            Some(ERANGE) => HostError::TooManyVfs { pf, requested: count, total },
            _ => error,
        })?;
    }
    let mut observed = Ok(0);
    let is_done = events::wait_for(VFS_DEADLINE, || {
        observed = pci::read_vf_addresses(root, pf).map(|vfs| vfs.len());
        match &observed {
            Ok(observed) => Ok((*observed == usize::from(count)).then_some(())),
            // Not all VFs that the kernel counts have appeared yet.
            Err(error) if sysfs::has_vanished(error) => Ok(None),
            Err(_) => Ok(Some(())),
        }
    })?;
    match (is_done, observed) {
        (Some(()), Ok(_)) => Ok(()),
        (None, Ok(observed)) => super::verify(attempt, &usize::from(count), &observed),
        (_, Err(error)) => Err(error),
    }
}
