//! Requests to systemd about units and reboots.

use std::time::Duration;

use super::{REBOOT_TIMEOUT, bus};
use crate::HostError;
use crate::linux::root::HostRoot;

/// Limit for requests that make systemd read all units, of which some machines have many.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(25);

/// Enables `unit`, so that it starts at every boot.
pub(in crate::linux) fn enable_unit(root: &HostRoot, unit: &str, attempt: &str) -> Result<(), HostError> {
    bus::with_systemd(root, attempt, RELOAD_TIMEOUT, async |systemd| {
        systemd.call("EnableUnitFiles", &(vec![unit], false, true)).await?;
        systemd.call("Reload", &()).await.map(drop)
    })
}

/// Disables `unit`, so that it does not start at boot.
pub(in crate::linux) fn disable_unit(root: &HostRoot, unit: &str, attempt: &str) -> Result<(), HostError> {
    bus::with_systemd(root, attempt, RELOAD_TIMEOUT, async |systemd| {
        systemd.call("DisableUnitFiles", &(vec![unit], false)).await?;
        systemd.call("Reload", &()).await.map(drop)
    })
}

/// Makes systemd read all units again.
pub(in crate::linux) fn reload(root: &HostRoot, attempt: &str) -> Result<(), HostError> {
    bus::with_systemd(root, attempt, RELOAD_TIMEOUT, async |systemd| {
        systemd.call("Reload", &()).await.map(drop)
    })
}

/// Requests a reboot of the machine, as `systemctl reboot` does. Returns when systemd has accepted the request.
pub(in crate::linux) fn reboot(root: &HostRoot, attempt: &str) -> Result<(), HostError> {
    bus::with_systemd(root, attempt, REBOOT_TIMEOUT, async |systemd| {
        systemd.call("StartUnit", &("reboot.target", "replace-irreversibly")).await.map(drop)
    })
}
