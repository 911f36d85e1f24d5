//! vDPA devices made of VFs.

use vfleet_api::PciAddress;
use vfleet_plan::VdpaKind;

use super::driver::BusDevice;
use super::genl::Family;
use super::netlink::Attributes;
use super::root::HostRoot;
use crate::HostError;

const VDPA_CMD_DEV_NEW: u8 = 3;
const VDPA_CMD_DEV_DEL: u8 = 4;
const VDPA_ATTR_MGMTDEV_BUS_NAME: u16 = 1;
const VDPA_ATTR_MGMTDEV_DEV_NAME: u16 = 2;
const VDPA_ATTR_DEV_NAME: u16 = 4;
const VDPA_ATTR_DEV_NET_CFG_MAX_VQP: u16 = 12;
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
    let mut vdpa = Family::open("vdpa")?.ok_or_else(not_loaded)?;
    let mut request = Attributes::default().with_text(VDPA_ATTR_DEV_NAME, name);
    if let Some(bus) = bus {
        request = request.with_text(VDPA_ATTR_MGMTDEV_BUS_NAME, bus);
    }
    request = request.with_text(VDPA_ATTR_MGMTDEV_DEV_NAME, of);
    let with_queues = request.clone().with(VDPA_ATTR_DEV_NET_CFG_MAX_VQP, &QUEUE_PAIRS.to_ne_bytes());
    match vdpa.change(VDPA_CMD_DEV_NEW, &with_queues, attempt) {
        // Not every card lets the number of queues be chosen.
        Err(error) if error.errno() == Some(EOPNOTSUPP) => vdpa.change(VDPA_CMD_DEV_NEW, &request, attempt),
        made => made,
    }
}

/// Removes the vDPA device of a VF. There may be none.
pub(super) fn remove(vf: PciAddress, attempt: &str) -> Result<(), HostError> {
    let Some(mut vdpa) = Family::open("vdpa")? else { return Ok(()) };
    let what = Attributes::default().with_text(VDPA_ATTR_DEV_NAME, &name(vf));
    match vdpa.change(VDPA_CMD_DEV_DEL, &what, attempt) {
        Err(error) if matches!(error.errno(), Some(ENOENT | ENODEV)) => Ok(()),
        removed => removed,
    }
}
