//! vdpa: devices that are made of others.

use super::attribute::Attributes;
use super::generic::Command;

/// The family's name. A kernel has it while the module `vdpa` is loaded.
pub(in crate::linux) const FAMILY: &str = "vdpa";

const VDPA_CMD_DEV_NEW: u8 = 3;
const VDPA_CMD_DEV_DEL: u8 = 4;
const VDPA_ATTR_MGMTDEV_BUS_NAME: u16 = 1;
const VDPA_ATTR_MGMTDEV_DEV_NAME: u16 = 2;
const VDPA_ATTR_DEV_NAME: u16 = 4;
const VDPA_ATTR_DEV_NET_CFG_MAX_VQP: u16 = 12;

/// Makes a device of this name, of the device `of` on a bus; with as many pairs of queues, where they can be chosen.
pub(in crate::linux) fn make(name: &str, bus: Option<&str>, of: &str, queue_pairs: Option<u16>) -> Command {
    let mut attributes = Attributes::default().with_text(VDPA_ATTR_DEV_NAME, name);
    if let Some(bus) = bus {
        attributes = attributes.with_text(VDPA_ATTR_MGMTDEV_BUS_NAME, bus);
    }
    attributes = attributes.with_text(VDPA_ATTR_MGMTDEV_DEV_NAME, of);
    if let Some(queue_pairs) = queue_pairs {
        attributes = attributes.with_u16(VDPA_ATTR_DEV_NET_CFG_MAX_VQP, queue_pairs);
    }
    Command { number: VDPA_CMD_DEV_NEW, attributes }
}

/// Removes the device of this name.
pub(in crate::linux) fn remove(name: &str) -> Command {
    Command {
        number: VDPA_CMD_DEV_DEL,
        attributes: Attributes::default().with_text(VDPA_ATTR_DEV_NAME, name),
    }
}
