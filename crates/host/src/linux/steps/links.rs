//! Steps that configure interfaces.

use std::time::Duration;

use vfleet_api::{Guid, MacAddr, PciAddress, VfRef};
use vfleet_plan::is_userspace_driver;

use super::verify;
use crate::HostError;
use crate::linux::netdev::{self, Netdev};
use crate::linux::netlink::rtnl::{Rtnl, VfSetting};
use crate::linux::root::HostRoot;
use crate::linux::stable_read::read_stable;
use crate::linux::{ethtool, events, pci};

/// Limit for a driver to create an interface after it was bound.
const INTERFACE_DEADLINE: Duration = Duration::from_secs(10);

pub(super) fn set_up(root: &HostRoot, pf: PciAddress, attempt: &str) -> Result<(), HostError> {
    let (index, mut rtnl) = (pf_index(root, pf)?, Rtnl::open()?);
    if !rtnl.link(index)?.is_up {
        rtnl.set_up(index, attempt)?;
    }
    verify(attempt, &true, &rtnl.link(index)?.is_up)
}

pub(super) fn set_pf_mtu(root: &HostRoot, pf: PciAddress, mtu: u32, attempt: &str) -> Result<(), HostError> {
    set_mtu(pf_index(root, pf)?, mtu, attempt)
}

pub(super) fn set_vf_mtu(root: &HostRoot, vf: VfRef, mtu: u32, attempt: &str) -> Result<(), HostError> {
    set_mtu(await_vf_index(root, vf)?, mtu, attempt)
}

/// Sets the MTU of an interface.
pub(in crate::linux) fn set_mtu(index: u32, mtu: u32, attempt: &str) -> Result<(), HostError> {
    let mut rtnl = Rtnl::open()?;
    if rtnl.link(index)?.mtu != mtu {
        rtnl.set_mtu(index, mtu, attempt)?;
    }
    verify(attempt, &mtu, &rtnl.link(index)?.mtu)
}

pub(super) fn set_vf_mac(root: &HostRoot, vf: VfRef, mac: MacAddr, attempt: &str) -> Result<(), HostError> {
    pci::read_vf_address(root, vf)?;
    let (index, mut rtnl) = (pf_index(root, vf.pf)?, Rtnl::open()?);
    // Also if the PF already stores this address: the VF may have chosen it and could choose another one. An address
    // that is set through the PF stays.
    rtnl.set_vf(index, vf.index, &[VfSetting::Mac(mac)], attempt)?;
    let found = rtnl.link(index)?.vfs.get(&vf.index.into()).and_then(|vf| vf.mac);
    let found = found.map_or_else(|| "none".to_owned(), |mac| mac.to_string());
    verify(attempt, &mac.to_string(), &found)
}

/// Sets node and port GUID to the same value, as on a card with one port.
pub(in crate::linux) fn set_vf_guid(
    root: &HostRoot,
    vf: VfRef,
    guid: Guid,
    attempt: &str,
) -> Result<(), HostError> {
    pci::read_vf_address(root, vf)?;
    let (index, mut rtnl) = (pf_index(root, vf.pf)?, Rtnl::open()?);
    rtnl.set_vf_guid(index, vf.index, guid, attempt)?;
    // Kernels before 5.6 do not report the GUID.
    match rtnl.link(index)?.vfs.get(&vf.index.into()).and_then(|vf| vf.node_guid) {
        Some(found) => verify(attempt, &guid, &found),
        None => Ok(()),
    }
}

pub(super) fn set_tc_offload(
    root: &HostRoot,
    pf: PciAddress,
    on: bool,
    attempt: &str,
) -> Result<(), HostError> {
    let index = pf_index(root, pf)?;
    if ethtool::read_tc_offload(index)? != Some(on) {
        ethtool::set_tc_offload(index, on, attempt)?;
    }
    let found =
        ethtool::read_tc_offload(index)?.map_or_else(|| "not supported".to_owned(), |on| on.to_string());
    verify(attempt, &on.to_string(), &found)
}

/// Returns the index of the interface of a PF.
pub(in crate::linux) fn pf_index(root: &HostRoot, pf: PciAddress) -> Result<u32, HostError> {
    pci::require_pf(root, pf)?;
    let netdev = read_stable(|| netdev::of_device(&root.device(pf)))?;
    netdev.map(|netdev| netdev.index).ok_or_else(|| HostError::NoInterface { device: pf.to_string() })
}

/// Waits for the interface of a VF, which appears a moment after the driver was bound, and returns its index.
fn await_vf_index(root: &HostRoot, vf: VfRef) -> Result<u32, HostError> {
    let no_interface = || HostError::NoInterface { device: vf.to_string() };
    let address = pci::read_vf_address(root, vf)?;
    let driver = pci::bus_device(root, address).driver()?.ok_or_else(no_interface)?;
    let find = || read_stable(|| netdev::of_device(&root.device(address)));
    let netdev: Option<Netdev> =
        if is_userspace_driver(&driver) { None } else { events::wait_for(INTERFACE_DEADLINE, find)? };
    netdev.map(|netdev| netdev.index).ok_or_else(no_interface)
}
