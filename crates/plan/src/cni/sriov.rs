//! Decisions of the plugin `sriov`.

mod add;
mod release;

pub use add::plan_add;
pub(super) use add::plan_vf;
pub(super) use release::plan_release;

use super::attachment::{CheckedAttachment, expect};
use super::journal::VfChanges;
use super::protocol::CniError;
use crate::prelude::*;

/// Compares a VF with what ADD left.
pub(super) fn check(changes: &VfChanges, checked: CheckedAttachment<'_>) -> Result<(), CniError> {
    checked.check_settings(&changes.changed)?;
    if changes.interface.is_some() {
        return checked.check_interface();
    }
    let device = checked.require_device()?;
    let kind = if device.is_for_userspace() { "for userspace" } else { "of the kernel" };
    expect(&format!("driver of device {}", device.address), "for userspace", Some(kind))
}
