//! Step that changes the MAC address of an interface.

use vfleet_api::{MacAddr, PciAddress};

use crate::HostError;
use crate::linux::attachment::settle::settle;
use crate::linux::netdev;
use crate::linux::netlink::rtnl::Rtnl;
use crate::linux::root::HostRoot;
use crate::linux::stable_read::read_stable;
use crate::linux::steps::bind;

/// Errors of drivers that let only the PF choose the address of a VF: EPERM, EADDRNOTAVAIL.
const ONLY_THROUGH_PF: [i32; 2] = [1, 99];

/// Sets the MAC address of the interface of a device in this namespace. If the driver refuses it, binds the device to its
/// driver again, which applies the address that the PF stores. The interface may have another index and name then.
pub(super) fn set_on_host(root: &HostRoot, device: PciAddress, mac: MacAddr) -> Result<(), HostError> {
    set_or_rebind(root, &mut Rtnl::open()?, device, require_index(root, device)?, mac).map(drop)
}

/// Like [`set_on_host`], for an interface with this index. Returns its index afterwards.
pub(super) fn set_or_rebind(
    root: &HostRoot,
    rtnl: &mut Rtnl,
    device: PciAddress,
    index: u32,
    mac: MacAddr,
) -> Result<u32, HostError> {
    let attempt = format!("set the MAC address of {device} to {mac}");
    match set(rtnl, index, mac, &attempt) {
        Err(error) if error.errno().is_some_and(|errno| ONLY_THROUGH_PF.contains(&errno)) => {
            bind::rebind(root, device, &attempt)?;
            let index = require_index(root, device)?;
            settle(|| verify(rtnl, index, mac, &attempt))?;
            Ok(index)
        }
        result => result.map(|()| index),
    }
}

/// Sets the MAC address of an interface in this namespace. Drivers may apply it later.
pub(super) fn set(rtnl: &mut Rtnl, index: u32, mac: MacAddr, attempt: &str) -> Result<(), HostError> {
    let mut is_sent = false;
    settle(|| {
        if !is_sent {
            if rtnl.link(index)?.mac() == Some(mac) {
                return Ok(());
            }
            rtnl.set_mac(index, mac, attempt)?;
            is_sent = true;
        }
        verify(rtnl, index, mac, attempt)
    })
}

fn verify(rtnl: &mut Rtnl, index: u32, mac: MacAddr, attempt: &str) -> Result<(), HostError> {
    let found = rtnl.link(index)?.mac();
    if found == Some(mac) {
        return Ok(());
    }
    Err(HostError::NotVerified {
        attempt: attempt.to_owned(),
        expected: mac.to_string(),
        found: found.map_or_else(|| "no MAC address".to_owned(), |mac| mac.to_string()),
    })
}

/// Returns the index of the interface of a device in this namespace.
pub(super) fn require_index(root: &HostRoot, device: PciAddress) -> Result<u32, HostError> {
    let netdev = read_stable(|| netdev::of_device(&root.device(device)))?;
    netdev.map(|netdev| netdev.index).ok_or_else(|| HostError::NoInterface { device: device.to_string() })
}
