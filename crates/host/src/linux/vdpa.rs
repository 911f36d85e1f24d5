//! vDPA devices made of VFs.

use vfleet_api::PciAddress;
use vfleet_plan::VdpaKind;

use super::driver::BusDevice;
use super::netlink::generic::Family;
use super::netlink::vdpa as wire;
use super::root::HostRoot;
use crate::HostError;

const ENOENT: i32 = 2;
const ENODEV: i32 = 19;
const EOPNOTSUPP: i32 = 95;

/// Pairs of queues of a device. The programs that use it take as many as they have processors.
const QUEUE_PAIRS: u16 = 32;

/// The device made of the VF at `vf`, whether it is there or not.
pub(super) fn device(root: &HostRoot, vf: PciAddress) -> BusDevice {
    BusDevice::new(root.vdpa(), name(vf))
}

fn name(vf: PciAddress) -> String {
    format!("vdpa:{vf}")
}

/// What the vDPA device made of a VF is for; `None` when there is none, or no driver has it.
pub(super) fn kind(root: &HostRoot, vf: PciAddress) -> Result<Option<VdpaKind>, HostError> {
    let driver = device(root, vf).driver()?;
    let is_its = |kind: &VdpaKind| driver.as_deref() == Some(kind.driver());
    Ok([VdpaKind::Virtio, VdpaKind::Vhost].into_iter().find(is_its))
}

/// Makes a vDPA device of a VF.
pub(super) fn make(vf: PciAddress, attempt: &str) -> Result<(), HostError> {
    make_of(Some("pci"), &vf.to_string(), &name(vf), attempt)
}

/// Makes a device of this name, of the device `of` on a bus.
pub(super) fn make_of(bus: Option<&str>, of: &str, name: &str, attempt: &str) -> Result<(), HostError> {
    let not_loaded = || HostError::DriverNotLoaded { driver: "vdpa".to_owned() };
    let mut vdpa = Family::open(wire::FAMILY)?.ok_or_else(not_loaded)?;
    match vdpa.change(&wire::make(name, bus, of, Some(QUEUE_PAIRS)), attempt) {
        // Not every card lets the number of queues be chosen.
        Err(error) if error.errno() == Some(EOPNOTSUPP) => {
            vdpa.change(&wire::make(name, bus, of, None), attempt)
        }
        made => made,
    }
}

/// Removes the vDPA device of a VF. There may be none.
pub(super) fn remove(vf: PciAddress, attempt: &str) -> Result<(), HostError> {
    let Some(mut vdpa) = Family::open(wire::FAMILY)? else { return Ok(()) };
    match vdpa.change(&wire::remove(&name(vf)), attempt) {
        Err(error) if matches!(error.errno(), Some(ENOENT | ENODEV)) => Ok(()),
        removed => removed,
    }
}
