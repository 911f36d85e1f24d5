//! Messages of vDPA: devices that are created on others.

use super::attribute::Attributes;
use super::generic::FamilyCommand;

/// Name of the family. The kernel has it while the module `vdpa` is loaded.
pub(in crate::linux) const FAMILY: &str = "vdpa";

const VDPA_CMD_DEV_NEW: u8 = 3;
const VDPA_CMD_DEV_DEL: u8 = 4;
const VDPA_ATTR_MGMTDEV_BUS_NAME: u16 = 1;
const VDPA_ATTR_MGMTDEV_DEV_NAME: u16 = 2;
const VDPA_ATTR_DEV_NAME: u16 = 4;
const VDPA_ATTR_DEV_NET_CFG_MAX_VQP: u16 = 12;

/// Returns the request that creates a device with this name on the device `parent` of a bus, with a number of queue
/// pairs if that can be chosen.
pub(in crate::linux) fn create(
    name: &str,
    bus: Option<&str>,
    parent: &str,
    queue_pairs: Option<u16>,
) -> FamilyCommand {
    let mut attributes = Attributes::default().with_text(VDPA_ATTR_DEV_NAME, name);
    if let Some(bus) = bus {
        attributes = attributes.with_text(VDPA_ATTR_MGMTDEV_BUS_NAME, bus);
    }
    attributes = attributes.with_text(VDPA_ATTR_MGMTDEV_DEV_NAME, parent);
    if let Some(queue_pairs) = queue_pairs {
        attributes = attributes.with_u16(VDPA_ATTR_DEV_NET_CFG_MAX_VQP, queue_pairs);
    }
    FamilyCommand { number: VDPA_CMD_DEV_NEW, attributes }
}

/// Returns the request that removes the device with this name.
pub(in crate::linux) fn remove(name: &str) -> FamilyCommand {
    FamilyCommand {
        number: VDPA_CMD_DEV_DEL,
        attributes: Attributes::default().with_text(VDPA_ATTR_DEV_NAME, name),
    }
}
