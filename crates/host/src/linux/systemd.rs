//! systemd of the host: units, restarts, and programs that run as units of their own.
//!
//! It is asked over the host's system bus, in programs that are built with the feature `systemd`. The others link neither
//! a D-Bus client nor its runtime: there each request is [`HostError::WithoutSystemd`](crate::HostError::WithoutSystemd).

#[cfg(any(test, not(feature = "systemd")))]
mod absent;
#[cfg(feature = "systemd")]
mod bus;
#[cfg(feature = "systemd")]
mod requests;
#[cfg(feature = "systemd")]
mod unit;

use std::time::Duration;

#[cfg(not(feature = "systemd"))]
pub(super) use self::absent::{disable_unit, enable_unit, reboot, reload, run_command};
#[cfg(feature = "systemd")]
pub(super) use self::{
    requests::{disable_unit, enable_unit, reboot, reload},
    unit::run_command,
};
use super::root::HostRoot;

/// How long systemd may take to accept that it shall restart the machine.
pub(super) const ACCEPTING: Duration = Duration::from_secs(25);

/// Returns true if the host has a system bus, on which systemd can be asked.
pub(super) fn is_there(root: &HostRoot) -> bool {
    root.system_bus().exists()
}
