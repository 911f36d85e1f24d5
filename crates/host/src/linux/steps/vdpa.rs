//! Steps that create and remove vDPA devices.

use vfleet_api::VfRef;
use vfleet_plan::VdpaKind;

use super::verify;
use crate::HostError;
use crate::linux::root::HostRoot;
use crate::linux::{pci, vdpa};

/// Creates the vDPA device of a VF if it does not exist, and binds it.
pub(super) fn create(root: &HostRoot, vf: VfRef, kind: VdpaKind, attempt: &str) -> Result<(), HostError> {
    let vf = pci::read_vf_address(root, vf)?;
    let device = vdpa::device(root, vf);
    if !device.path().exists() {
        vdpa::create(vf, attempt)?;
    }
    // The kernel has already bound it to one of the two drivers, the one that was loaded first.
    device.bind_to(kind.driver())?;
    verify(attempt, &kind.driver(), &vdpa::read_kind(root, vf)?.map_or("no driver", VdpaKind::driver))
}

/// Removes the vDPA device of a VF.
pub(super) fn remove(root: &HostRoot, vf: VfRef, attempt: &str) -> Result<(), HostError> {
    let vf = pci::read_vf_address(root, vf)?;
    vdpa::remove(vf, attempt)?;
    let found = if vdpa::device(root, vf).path().exists() { "a vDPA device" } else { "no vDPA device" };
    verify(attempt, &"no vDPA device", &found)
}
