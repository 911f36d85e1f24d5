//! Step that binds a VF to a driver.

use std::time::Duration;

use vfleet_api::{PciAddress, VfRef};
use vfleet_plan::{LinkKind, VfDriver, is_userspace_driver};

use super::verify;
use crate::HostError;
use crate::linux::netlink::rtnl::Rtnl;
use crate::linux::root::HostRoot;
use crate::linux::stable_read::read_stable;
use crate::linux::{events, netdev, pci, udev};

/// Limit for loading the module of the driver of a VF.
const MODULE_DEADLINE: Duration = Duration::from_secs(10);
/// Limit for a driver to create an interface after it was bound. Slow drivers communicate with the PF first.
const INTERFACE_DEADLINE: Duration = Duration::from_secs(10);

pub(super) fn bind(root: &HostRoot, vf: VfRef, driver: &VfDriver, attempt: &str) -> Result<(), HostError> {
    let address = pci::read_vf_address(root, vf)?;
    match driver {
        VfDriver::Kernel => bind_to_kernel_driver(root, vf, address, attempt),
        VfDriver::Named(name) => bind_to_named_driver(root, address, name, attempt),
    }
}

/// Binds a VF to the driver that the kernel chooses. Always unbinds it first, because a driver applies the address of
/// the VF only when it is bound.
fn bind_to_kernel_driver(
    root: &HostRoot,
    vf: VfRef,
    address: PciAddress,
    attempt: &str,
) -> Result<(), HostError> {
    let device = pci::bus_device(root, address);
    device.set_override(None)?;
    if !pci::read_drivers_autoprobe(root, vf.pf)? {
        return Err(HostError::AutoprobeOff { pf: vf.pf });
    }
    device.unbind()?;
    device.probe()?;
    // For the first VF of a kind, udev loads the module of the driver, which binds the VF a moment later.
    let found = events::wait_for(MODULE_DEADLINE, || device.driver())?;
    match found {
        Some(driver) if !is_userspace_driver(&driver) => await_interface(root, vf, address, attempt),
        found => Err(HostError::NotVerified {
            attempt: attempt.to_owned(),
            expected: "a network driver of the kernel".to_owned(),
            found: found.unwrap_or_else(|| "no driver: check whether its module is loaded".to_owned()),
        }),
    }
}

/// Binds a function to its driver again, and waits until its interface, if it had one, exists and is named.
pub(in crate::linux) fn rebind(root: &HostRoot, address: PciAddress, attempt: &str) -> Result<(), HostError> {
    let device = pci::bus_device(root, address);
    let read_interface = || read_stable(|| netdev::of_device(&root.device(address)));
    let needs_interface = match device.driver()? {
        Some(driver) if is_userspace_driver(&driver) => false,
        Some(_) => read_interface()?.is_some(),
        // An earlier attempt was interrupted.
        None => true,
    };
    device.rebind()?;
    if events::wait_for(MODULE_DEADLINE, || device.driver())?.is_none() {
        return verify(attempt, &"a driver", &"none: check the kernel log for errors of the driver");
    }
    if !needs_interface {
        return Ok(());
    }
    let named = || Ok(read_interface()?.filter(|netdev| udev::has_named(root, netdev.index)));
    // The names do not matter: steps find interfaces by their device. A machine may name them late.
    if events::wait_for_naming(INTERFACE_DEADLINE, named)?.is_some() || read_interface()?.is_some() {
        return Ok(());
    }
    verify(attempt, &"an interface", &"none: check the kernel log for errors of the driver")
}

/// Waits for the interface of a VF of an Ethernet card.
fn await_interface(root: &HostRoot, vf: VfRef, address: PciAddress, attempt: &str) -> Result<(), HostError> {
    let has_interface = || Ok(read_stable(|| netdev::of_device(&root.device(address)))?.map(drop));
    if has_interface()?.is_some() || !is_ethernet(root, vf)? {
        return Ok(());
    }
    events::wait_for(INTERFACE_DEADLINE, has_interface)?.ok_or_else(|| HostError::NotVerified {
        attempt: attempt.to_owned(),
        expected: "an interface".to_owned(),
        found: "none: check the kernel log for errors of the driver".to_owned(),
    })
}

fn is_ethernet(root: &HostRoot, vf: VfRef) -> Result<bool, HostError> {
    let Some(pf) = read_stable(|| netdev::of_device(&root.device(vf.pf)))? else { return Ok(false) };
    Ok(Rtnl::open()?.link(pf.index)?.kind == LinkKind::Ethernet)
}

fn bind_to_named_driver(root: &HostRoot, vf: PciAddress, name: &str, attempt: &str) -> Result<(), HostError> {
    let device = pci::bus_device(root, vf);
    device.bind_to(name)?;
    let found = device.driver()?;
    if found.is_none() && name == "vfio-pci" && !device.path().join("iommu_group").exists() {
        return Err(HostError::NoIommu { vf });
    }
    verify(attempt, &name, &found.as_deref().unwrap_or("no driver"))
}
