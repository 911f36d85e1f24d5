//! Binding a VF to a driver.

use std::time::Duration;

use vfleet_api::{PciAddress, VfRef};
use vfleet_plan::{VfDriver, is_userspace_driver};

use super::verify;
use crate::HostError;
use crate::linux::root::HostRoot;
use crate::linux::{events, parse, pci, sysfs};

/// How long it may take until the module of a VF's driver is loaded.
const MODULE_DEADLINE: Duration = Duration::from_secs(10);

/// Binds a VF, and leaves no `driver_override` behind in any case: it would decide over the VF for good.
pub(super) fn bind(root: &HostRoot, vf: VfRef, driver: &VfDriver, attempt: &str) -> Result<(), HostError> {
    let address = pci::vf_address(root, vf)?;
    match driver {
        VfDriver::Kernel => {
            set_override(root, address, None)?;
            bind_by_kernel(root, vf.pf, address, attempt)
        }
        VfDriver::Named(name) => {
            let bound = bind_by_name(root, address, name, attempt);
            set_override(root, address, None).and(bound)
        }
    }
}

/// Always anew: a driver takes up the VF's address when it is bound.
fn bind_by_kernel(root: &HostRoot, pf: PciAddress, vf: PciAddress, attempt: &str) -> Result<(), HostError> {
    if !pci::drivers_autoprobe(root, pf)? {
        return Err(HostError::AutoprobeOff { pf });
    }
    unbind(root, vf)?;
    probe(root, vf)?;
    // The first VF of its kind makes udev load the driver's module, and that binds it a moment later.
    let found = events::wait_for(MODULE_DEADLINE, || pci::driver(root, vf))?;
    if found.as_deref().is_some_and(|driver| !is_userspace_driver(driver)) {
        return Ok(());
    }
    Err(HostError::Unverified {
        attempt: attempt.to_owned(),
        expected: "a driver of the kernel's network stack".to_owned(),
        found: found.unwrap_or_else(|| "no driver: is its module loaded?".to_owned()),
    })
}

fn bind_by_name(root: &HostRoot, vf: PciAddress, name: &str, attempt: &str) -> Result<(), HostError> {
    if !root.driver(name).exists() {
        return Err(HostError::DriverNotLoaded { driver: name.to_owned() });
    }
    if pci::driver(root, vf)?.as_deref() == Some(name) {
        return Ok(());
    }
    set_override(root, vf, Some(name))?;
    unbind(root, vf)?;
    probe(root, vf)?;
    verify(attempt, &Some(name), &pci::driver(root, vf)?.as_deref())
}

fn set_override(root: &HostRoot, vf: PciAddress, driver: Option<&str>) -> Result<(), HostError> {
    let path = root.device(vf).join("driver_override");
    let read = |text: &str| Some(parse::driver_override(text).map(str::to_owned));
    if sysfs::read_as(&path, "a driver's name", read)?.as_deref() == driver {
        return Ok(());
    }
    // An empty line takes the old name away.
    sysfs::write(&path, driver.unwrap_or("\n"))?;
    let found = sysfs::read_as(&path, "a driver's name", read)?;
    verify("set driver_override", &driver, &found.as_deref())
}

fn unbind(root: &HostRoot, vf: PciAddress) -> Result<(), HostError> {
    let Some(driver) = pci::driver(root, vf)? else { return Ok(()) };
    sysfs::write(&root.driver(&driver).join("unbind"), &vf.to_string())?;
    verify("unbind a VF", &None, &pci::driver(root, vf)?)
}

/// Lets the kernel look for a driver. It reports no failure of a driver here: the caller looks itself.
fn probe(root: &HostRoot, vf: PciAddress) -> Result<(), HostError> {
    sysfs::write(&root.drivers_probe(), &vf.to_string())
}
