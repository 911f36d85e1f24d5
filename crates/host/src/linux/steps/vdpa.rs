use vfleet_api::VfRef;
use vfleet_plan::VdpaKind;

use super::verify;
use crate::HostError;
use crate::linux::root::HostRoot;
use crate::linux::{pci, vdpa};

/// Makes a vDPA device of a VF, or takes the one that is there, and binds it.
pub(super) fn make(root: &HostRoot, vf: VfRef, kind: VdpaKind, attempt: &str) -> Result<(), HostError> {
    let vf = pci::vf_address(root, vf)?;
    let device = vdpa::device(root, vf);
    if !device.path().exists() {
        vdpa::make(vf, attempt)?;
    }
    // The kernel has bound it already, to whichever of the two drivers was loaded first.
    device.bind_to(kind.driver())?;
    verify(attempt, &Some(kind), &vdpa::kind(root, vf)?)
}

pub(super) fn remove(root: &HostRoot, vf: VfRef, attempt: &str) -> Result<(), HostError> {
    let vf = pci::vf_address(root, vf)?;
    vdpa::remove(vf, attempt)?;
    verify(attempt, &false, &vdpa::device(root, vf).path().exists())
}
