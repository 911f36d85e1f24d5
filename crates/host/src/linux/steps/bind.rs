//! Binding a VF to a driver.

use std::time::Duration;

use vfleet_api::{PciAddress, VfRef};
use vfleet_plan::{LinkKind, VfDriver, is_userspace_driver};

use super::verify;
use crate::HostError;
use crate::linux::netlink::rtnl::Rtnl;
use crate::linux::root::HostRoot;
use crate::linux::settle::settled;
use crate::linux::{events, netdev, pci};

/// How long it may take until the module of a VF's driver is loaded.
const MODULE_DEADLINE: Duration = Duration::from_secs(10);
/// How long a driver may take to make an interface after it was bound. Those that take time at all ask the PF first.
const INTERFACE_DEADLINE: Duration = Duration::from_secs(10);

pub(super) fn bind(root: &HostRoot, vf: VfRef, driver: &VfDriver, attempt: &str) -> Result<(), HostError> {
    let address = pci::vf_address(root, vf)?;
    match driver {
        VfDriver::Kernel => bind_by_kernel(root, vf, address, attempt),
        VfDriver::Named(name) => bind_by_name(root, address, name, attempt),
    }
}

/// Always anew: a driver takes up the VF's address when it is bound.
fn bind_by_kernel(root: &HostRoot, vf: VfRef, address: PciAddress, attempt: &str) -> Result<(), HostError> {
    let device = pci::device(root, address);
    device.set_override(None)?;
    if !pci::drivers_autoprobe(root, vf.pf)? {
        return Err(HostError::AutoprobeOff { pf: vf.pf });
    }
    device.unbind()?;
    device.probe()?;
    // The first VF of its kind makes udev load the driver's module, and that binds it a moment later.
    let found = events::wait_for(MODULE_DEADLINE, || device.driver())?;
    match found {
        Some(driver) if !is_userspace_driver(&driver) => await_interface(root, vf, address, attempt),
        found => Err(HostError::Unverified {
            attempt: attempt.to_owned(),
            expected: "a driver of the kernel's network stack".to_owned(),
            found: found.unwrap_or_else(|| "no driver: is its module loaded?".to_owned()),
        }),
    }
}

/// A VF of an Ethernet card is of use with its interface.
fn await_interface(root: &HostRoot, vf: VfRef, address: PciAddress, attempt: &str) -> Result<(), HostError> {
    let has_interface = || Ok(settled(|| netdev::of_device(&root.device(address)))?.map(drop));
    if has_interface()?.is_some() || !is_ethernet(root, vf)? {
        return Ok(());
    }
    events::wait_for(INTERFACE_DEADLINE, has_interface)?.ok_or_else(|| HostError::Unverified {
        attempt: attempt.to_owned(),
        expected: "a network interface".to_owned(),
        found: "none: the kernel's log may say why the driver made none".to_owned(),
    })
}

fn is_ethernet(root: &HostRoot, vf: VfRef) -> Result<bool, HostError> {
    let Some(pf) = settled(|| netdev::of_device(&root.device(vf.pf)))? else { return Ok(false) };
    Ok(Rtnl::open()?.link(pf.index)?.kind == LinkKind::Ethernet)
}

fn bind_by_name(root: &HostRoot, vf: PciAddress, name: &str, attempt: &str) -> Result<(), HostError> {
    let device = pci::device(root, vf);
    device.bind_to(name)?;
    let found = device.driver()?;
    if found.is_none() && name == "vfio-pci" && !device.path().join("iommu_group").exists() {
        return Err(HostError::NoIommu { vf });
    }
    verify(attempt, &Some(name), &found.as_deref())
}
