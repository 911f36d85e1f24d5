//! Naming of interfaces by udev, and replay of its rules.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use vfleet_api::PciAddress;

use super::command::Command;
use super::root::HostRoot;
use super::{cache, pci, sysfs};
use crate::{HostError, format_error_chain};

/// Limit for udev to read its rules and to process its queue, which at boot contains every device of the machine.
const SETTLE_TIMEOUT: Duration = Duration::from_mins(1);

/// Limit for udev to name an interface. An interface that is not named by then keeps its name.
const NAMING_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns whether udev has named the interface. Until then a new interface has the name from the kernel (eth0) and no
/// alternative names. On a machine without udev no interface is renamed.
pub(super) fn has_named(root: &HostRoot, index: u32) -> bool {
    let is_done =
        root.at(&format!("/run/udev/data/n{index}")).exists() || !root.at("/run/udev/control").exists();
    let mut unnamed = cache::lock(&root.cache().unnamed);
    if is_done {
        unnamed.remove(&index);
        return true;
    }
    unnamed.entry(index).or_insert_with(Instant::now).elapsed() >= NAMING_TIMEOUT
}

/// Makes udev read its rules now. By itself it checks for new rules at most every three seconds, so that they would not
/// apply to an interface that is created meanwhile.
pub(super) fn read_rules_now(root: &HostRoot) {
    if !root.at("/run/udev/control").exists() {
        return;
    }
    if let Err(error) = reload(root) {
        let error = format_error_chain(&error);
        tracing::warn!(error, "udev does not read its new rules: they may not apply to the next interfaces");
    }
}

fn reload(root: &HostRoot) -> Result<(), HostError> {
    Command::new("udevadm", SETTLE_TIMEOUT).arguments(["control", "--reload"]).run(root).map(drop)
}

/// Makes udev process the interface of a PF and its representors again, and waits for the end.
pub(super) fn replay(root: &HostRoot, pf: PciAddress) -> Result<(), HostError> {
    pci::require_pf(root, pf)?;
    reload(root)?;
    for interface in list_interfaces(root, pf)? {
        match sysfs::write(&interface.join("uevent"), "add") {
            // udev has already renamed the interface.
            Err(error) if sysfs::has_vanished(&error) => {}
            written => written?,
        }
    }
    // One second less than the limit of the command, so that udevadm ends by itself.
    let limit = format!("--timeout={}", SETTLE_TIMEOUT.as_secs() - 1);
    let settle = Command::new("udevadm", SETTLE_TIMEOUT).arguments(["settle".to_owned(), limit]);
    settle.run(root).map(drop)
}

/// Lists the interfaces of a PF and all ports of its switch.
fn list_interfaces(root: &HostRoot, pf: PciAddress) -> Result<Vec<PathBuf>, HostError> {
    let own = sysfs::list_paths_if_exists(&root.device(pf).join("net"))?;
    let mut switch = None;
    for interface in &own {
        switch = switch.or(read_switch_id(interface)?);
    }
    let Some(switch) = switch else { return Ok(own) };
    let mut ports = own;
    for interface in sysfs::list_paths_if_exists(&root.at("/sys/class/net"))? {
        let is_new = !ports.iter().any(|port| port.file_name() == interface.file_name());
        if is_new && read_switch_id(&interface)?.as_ref() == Some(&switch) {
            ports.push(interface);
        }
    }
    Ok(ports)
}

/// Reads the ID of the switch of an interface; `None` if the interface is no port, or vanishes meanwhile.
fn read_switch_id(interface: &Path) -> Result<Option<String>, HostError> {
    match sysfs::read_if_supported(&interface.join("phys_switch_id")) {
        Err(error) if sysfs::has_vanished(&error) => Ok(None),
        switch => Ok(switch?.filter(|id| !id.is_empty())),
    }
}
