//! Decisions of the plugin `ib-sriov`.

mod add;
mod release;

pub use add::plan_add;
pub(super) use release::plan_release;

use vfleet_api::Guid;

use super::attachment::{CheckedAttachment, expect};
use super::facts::VfSettings;
use super::journal::InfinibandChanges;
use super::protocol::CniError;
use crate::prelude::*;

/// The driver of devices that a program or a virtual machine in the pod uses.
const VFIO: &str = "vfio-pci";
/// GUID of a VF that has none.
const NO_GUID: Guid = Guid([0; 8]);
/// GUID that drivers take for none.
const UNSET_GUID: Guid = Guid([0xff; 8]);

/// Compares a device with what ADD left.
pub(super) fn check(changes: &InfinibandChanges, checked: CheckedAttachment<'_>) -> Result<(), CniError> {
    checked.check_settings(&VfSettings { link_state: changes.link_state, ..VfSettings::default() })?;
    if let Some(rdma) = &changes.rdma {
        checked.check_rdma(rdma)?;
    }
    if changes.interface.is_none() {
        let device = checked.require_device()?;
        checked.check_settings(&VfSettings { port_guid: changes.guid, ..VfSettings::default() })?;
        let driver = device.driver.as_deref().unwrap_or("none");
        return expect(&format!("driver of device {}", device.address), "vfio-pci", Some(driver));
    }
    checked.check_interface()?;
    match (changes.guid, checked.find_interface()) {
        (Some(guid), Some(link)) => expect(&format!("GUID of {}", link.name), guid, link.guid()),
        _ => Ok(()),
    }
}
