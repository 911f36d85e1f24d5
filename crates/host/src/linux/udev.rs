//! udev: whether it has named an interface, and what it does when its rules have changed.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use vfleet_api::PciAddress;

use super::command::Command;
use super::root::HostRoot;
use super::{kept, pci, sysfs};
use crate::HostError;

/// How long udev may take for reading its rules, and for what it has to do: at boot that is every device of the machine.
const SETTLING: Duration = Duration::from_mins(1);

/// How long udev may take for naming an interface. One that it does not name in that time keeps its names.
const NAMING: Duration = Duration::from_secs(30);

/// Returns whether udev has given the interface its names. An interface that just came has the kernel's name (eth0) and no
/// alternative ones until udev is done with it. Where no udev runs, nobody renames interfaces.
pub(super) fn has_named(root: &HostRoot, index: u32) -> bool {
    let is_done =
        root.at(&format!("/run/udev/data/n{index}")).exists() || !root.at("/run/udev/control").exists();
    let mut unnamed = kept::lock(&root.kept().unnamed);
    if is_done {
        unnamed.remove(&index);
        return true;
    }
    unnamed.entry(index).or_insert_with(Instant::now).elapsed() >= NAMING
}

/// Has udev look at a PF's interface and at its representors again, and waits until it has.
pub(super) fn replay(root: &HostRoot, pf: PciAddress) -> Result<(), HostError> {
    pci::require_pf(root, pf)?;
    let udevadm = || Command::new("udevadm", SETTLING);
    udevadm().arguments(["control", "--reload"]).run(root)?;
    for interface in interfaces(root, pf)? {
        match sysfs::write(&interface.join("uevent"), "add") {
            // It has another name now, which is what this is for.
            Err(error) if sysfs::has_vanished(&error) => {}
            written => written?,
        }
    }
    // One second less than we wait for it, so that it ends by itself.
    let limit = format!("--timeout={}", SETTLING.as_secs() - 1);
    udevadm().arguments(["settle".to_owned(), limit]).run(root).map(drop)
}

/// The interfaces of the PF, and all that are ports of the same switch.
fn interfaces(root: &HostRoot, pf: PciAddress) -> Result<Vec<PathBuf>, HostError> {
    let own = sysfs::entries_if_there(&root.device(pf).join("net"))?;
    let mut switch = None;
    for interface in &own {
        switch = switch.or(switch_of(interface)?);
    }
    let Some(switch) = switch else { return Ok(own) };
    let mut ports = own;
    for interface in sysfs::entries_if_there(&root.at("/sys/class/net"))? {
        let is_new = !ports.iter().any(|port| port.file_name() == interface.file_name());
        if is_new && switch_of(&interface)?.as_ref() == Some(&switch) {
            ports.push(interface);
        }
    }
    Ok(ports)
}

/// The switch that an interface is a port of. One that goes away meanwhile is a port of none.
fn switch_of(interface: &Path) -> Result<Option<String>, HostError> {
    match sysfs::read_if_said(&interface.join("phys_switch_id")) {
        Err(error) if sysfs::has_vanished(&error) => Ok(None),
        switch => Ok(switch?.filter(|id| !id.is_empty())),
    }
}
