//! Requests to systemd, each a conversation of its own.

use std::time::Duration;

use super::{ACCEPTING, bus};
use crate::HostError;
use crate::linux::root::HostRoot;

/// systemd reads all units again, which are many on some machines.
const RELOADING: Duration = Duration::from_secs(25);

/// Starts `unit` at every boot from now on.
pub(in crate::linux) fn enable_unit(root: &HostRoot, unit: &str, attempt: &str) -> Result<(), HostError> {
    bus::talk(root, attempt, RELOADING, async |systemd| {
        systemd.call("EnableUnitFiles", &(vec![unit], false, true)).await?;
        systemd.call("Reload", &()).await.map(drop)
    })
}

/// Starts `unit` no more at boot.
pub(in crate::linux) fn disable_unit(root: &HostRoot, unit: &str, attempt: &str) -> Result<(), HostError> {
    bus::talk(root, attempt, RELOADING, async |systemd| {
        systemd.call("DisableUnitFiles", &(vec![unit], false)).await?;
        systemd.call("Reload", &()).await.map(drop)
    })
}

/// Has systemd read all units again.
pub(in crate::linux) fn reload(root: &HostRoot, attempt: &str) -> Result<(), HostError> {
    bus::talk(root, attempt, RELOADING, async |systemd| systemd.call("Reload", &()).await.map(drop))
}

/// Asks for a restart of the machine, as `systemctl reboot` does. It is over when systemd has accepted.
pub(in crate::linux) fn reboot(root: &HostRoot, attempt: &str) -> Result<(), HostError> {
    bus::talk(root, attempt, ACCEPTING, async |systemd| {
        systemd.call("StartUnit", &("reboot.target", "replace-irreversibly")).await.map(drop)
    })
}
