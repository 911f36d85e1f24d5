use std::time::Duration;

use vfleet_api::PciAddress;

use crate::HostError;
use crate::linux::root::HostRoot;
use crate::linux::{events, pci, sysfs};

const EBUSY: i32 = 16;
const ERANGE: i32 = 34;
/// How long VFs may take to appear after the kernel accepted their number. Most are there at once.
const VFS_DEADLINE: Duration = Duration::from_secs(10);

/// Makes or removes VFs, and waits until there are as many.
pub(super) fn set(root: &HostRoot, pf: PciAddress, count: u16, attempt: &str) -> Result<(), HostError> {
    let total = pci::require_pf(root, pf)?;
    if total == 0 && count > 0 {
        // There is no file to ask for them.
        return Err(HostError::TooManyVfs { pf, asked: count, total });
    }
    let found = pci::num_vfs(root, pf)?;
    if found != count {
        let path = root.device(pf).join("sriov_numvfs");
        sysfs::write(&path, &count.to_string()).map_err(|error| match error.errno() {
            Some(EBUSY) if found > 0 => HostError::VfsExist { pf, found: found.into(), asked: count },
            Some(ERANGE) => HostError::TooManyVfs { pf, asked: count, total },
            _ => error,
        })?;
    }
    let mut seen = Ok(0);
    let is_done = events::wait_for(VFS_DEADLINE, || {
        seen = pci::vf_addresses(root, pf).map(|vfs| vfs.len());
        match &seen {
            Ok(seen) => Ok((*seen == usize::from(count)).then_some(())),
            // As many as the kernel says, and not all of them are there yet.
            Err(error) if sysfs::has_vanished(error) => Ok(None),
            Err(_) => Ok(Some(())),
        }
    })?;
    match (is_done, seen) {
        (Some(()), Ok(_)) => Ok(()),
        (None, Ok(seen)) => super::verify(attempt, &usize::from(count), &seen),
        (_, Err(error)) => Err(error),
    }
}
