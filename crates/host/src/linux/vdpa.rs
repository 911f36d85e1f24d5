//! vDPA devices of VFs.

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

/// Queue pairs of a device. Programs use as many as they have processors.
const QUEUE_PAIRS: u16 = 32;

/// Returns the vDPA device of the VF at `vf`, which need not exist.
pub(super) fn device(root: &HostRoot, vf: PciAddress) -> BusDevice {
    BusDevice::new(root.vdpa(), name(vf))
}

fn name(vf: PciAddress) -> String {
    format!("vdpa:{vf}")
}

/// Reads the kind of the vDPA device of a VF; `None` if there is no device, or it has no driver.
pub(super) fn read_kind(root: &HostRoot, vf: PciAddress) -> Result<Option<VdpaKind>, HostError> {
    let driver = device(root, vf).driver()?;
    let is_bound = |kind: &VdpaKind| driver.as_deref() == Some(kind.driver());
    Ok([VdpaKind::Virtio, VdpaKind::Vhost].into_iter().find(is_bound))
}

/// Creates the vDPA device of a VF.
pub(super) fn create(vf: PciAddress, attempt: &str) -> Result<(), HostError> {
    create_on(Some("pci"), &vf.to_string(), &name(vf), attempt)
}

/// Creates a vDPA device of this name on the device `parent` of a bus.
pub(super) fn create_on(bus: Option<&str>, parent: &str, name: &str, attempt: &str) -> Result<(), HostError> {
    let not_loaded = || HostError::DriverNotLoaded { driver: "vdpa".to_owned() };
    let mut vdpa = Family::open(wire::FAMILY)?.ok_or_else(not_loaded)?;
    match vdpa.change(&wire::create(name, bus, parent, Some(QUEUE_PAIRS)), attempt) {
        // Not every card supports a chosen number of queues.
        Err(error) if error.errno() == Some(EOPNOTSUPP) => {
            vdpa.change(&wire::create(name, bus, parent, None), attempt)
        }
        result => result,
    }
}

/// Removes the vDPA device of a VF, if there is one.
pub(super) fn remove(vf: PciAddress, attempt: &str) -> Result<(), HostError> {
    let Some(mut vdpa) = Family::open(wire::FAMILY)? else { return Ok(()) };
    match vdpa.change(&wire::remove(&name(vf)), attempt) {
        Err(error) if matches!(error.errno(), Some(ENOENT | ENODEV)) => Ok(()),
        removed => removed,
    }
}
