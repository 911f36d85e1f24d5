//! Steps on network interfaces.

use std::time::Duration;

use vfleet_api::{Guid, MacAddr, PciAddress, VfRef};
use vfleet_plan::is_userspace_driver;

use super::verify;
use crate::HostError;
use crate::linux::netdev::{self, Netdev};
use crate::linux::netlink::rtnl::Rtnl;
use crate::linux::root::HostRoot;
use crate::linux::settle::settled;
use crate::linux::{ethtool, events, pci};

/// How long a driver may take to make an interface after it was bound.
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

fn set_mtu(index: u32, mtu: u32, attempt: &str) -> Result<(), HostError> {
    let mut rtnl = Rtnl::open()?;
    if rtnl.link(index)?.mtu != mtu {
        rtnl.set_mtu(index, mtu, attempt)?;
    }
    verify(attempt, &mtu, &rtnl.link(index)?.mtu)
}

pub(super) fn set_vf_mac(root: &HostRoot, vf: VfRef, mac: MacAddr, attempt: &str) -> Result<(), HostError> {
    pci::vf_address(root, vf)?;
    let (index, mut rtnl) = (pf_index(root, vf.pf)?, Rtnl::open()?);
    // Also when the PF keeps this address already: it may be one that the VF chose itself, and the VF could
    // choose another. Set by the PF, it stays.
    rtnl.set_vf_mac(index, vf.index, mac, attempt)?;
    verify(attempt, &Some(&mac), &rtnl.link(index)?.vf_macs.get(&vf.index.into()))
}

/// Node and port GUID are the same, as they are on a card with one port.
pub(super) fn set_vf_guid(root: &HostRoot, vf: VfRef, guid: Guid, attempt: &str) -> Result<(), HostError> {
    pci::vf_address(root, vf)?;
    let (index, mut rtnl) = (pf_index(root, vf.pf)?, Rtnl::open()?);
    rtnl.set_vf_guid(index, vf.index, guid, attempt)?;
    // Kernels before 5.6 do not tell what they keep.
    match rtnl.link(index)?.vf_guids.get(&vf.index.into()) {
        Some(found) => verify(attempt, &guid, found),
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
    if ethtool::tc_offload(index)? != Some(on) {
        ethtool::set_tc_offload(index, on, attempt)?;
    }
    verify(attempt, &Some(on), &ethtool::tc_offload(index)?)
}

fn pf_index(root: &HostRoot, pf: PciAddress) -> Result<u32, HostError> {
    pci::require_pf(root, pf)?;
    let netdev = settled(|| netdev::of_device(&root.device(pf)))?;
    netdev.map(|netdev| netdev.index).ok_or_else(|| HostError::NoInterface { device: pf.to_string() })
}

/// The index of a VF's interface, which comes a moment after the driver was bound.
fn await_vf_index(root: &HostRoot, vf: VfRef) -> Result<u32, HostError> {
    let none = || HostError::NoInterface { device: vf.to_string() };
    let address = pci::vf_address(root, vf)?;
    let driver = pci::device(root, address).driver()?.ok_or_else(none)?;
    let look = || settled(|| netdev::of_device(&root.device(address)));
    let netdev: Option<Netdev> =
        if is_userspace_driver(&driver) { None } else { events::wait_for(INTERFACE_DEADLINE, look)? };
    netdev.map(|netdev| netdev.index).ok_or_else(none)
}
