//! Requests to systemd of the host: units, reboots, and programs as transient units.
//!
//! Requests use the D-Bus system bus of the host and need the feature `systemd`. A program without the feature links no
//! D-Bus client, and every request fails with
//! [`HostError::SystemdUnsupported`](crate::HostError::SystemdUnsupported).

#[cfg(feature = "systemd")]
mod bus;
#[cfg(feature = "systemd")]
mod requests;
#[cfg(feature = "systemd")]
mod unit;
#[cfg(any(test, not(feature = "systemd")))]
mod unsupported;

use std::time::Duration;

#[cfg(not(feature = "systemd"))]
pub(super) use self::unsupported::{disable_unit, enable_unit, reboot, reload, run_command};
#[cfg(feature = "systemd")]
pub(super) use self::{
    requests::{disable_unit, enable_unit, reboot, reload},
    unit::run_command,
};
use super::root::HostRoot;

/// Limit for systemd to accept a reboot request.
pub(super) const REBOOT_TIMEOUT: Duration = Duration::from_secs(25);

/// Returns whether the host has a system bus, which systemd needs for requests.
pub(super) fn is_available(root: &HostRoot) -> bool {
    root.system_bus().exists()
}
