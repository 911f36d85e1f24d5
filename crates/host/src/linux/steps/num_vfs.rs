use vfleet_api::PciAddress;

use super::verify;
use crate::HostError;
use crate::linux::root::HostRoot;
use crate::linux::{pci, sysfs};

const EBUSY: i32 = 16;
const ERANGE: i32 = 34;

/// Makes or removes VFs.
pub(super) fn set(root: &HostRoot, pf: PciAddress, count: u16, attempt: &str) -> Result<(), HostError> {
    let total = pci::require_pf(root, pf)?;
    let found = pci::num_vfs(root, pf)?;
    if found != count {
        let path = root.device(pf).join("sriov_numvfs");
        sysfs::write(&path, &count.to_string()).map_err(|error| match error.errno() {
            Some(EBUSY) if found > 0 => HostError::VfsExist { pf, found: found.into(), asked: count },
            Some(ERANGE) => HostError::TooManyVfs { pf, asked: count, total },
            _ => error,
        })?;
    }
    verify(attempt, &usize::from(count), &pci::vf_addresses(root, pf)?.len())
}
