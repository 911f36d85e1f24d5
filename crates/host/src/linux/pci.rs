//! PFs and VFs as sysfs shows them.

use std::path::Path;

use vfleet_api::{PciAddress, VfRef};

use super::netdev::{self, Netdev};
use super::root::HostRoot;
use super::{parse, sysfs};
use crate::HostError;

/// A network card that can have VFs.
#[derive(Debug)]
pub(super) struct PfDevice {
    pub(super) function: Function,
    pub(super) total_vfs: u16,
    pub(super) drivers_autoprobe: bool,
    /// By index.
    pub(super) vfs: Vec<Function>,
}

/// A PCI function.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) address: PciAddress,
    pub(super) vendor: u16,
    pub(super) device: u16,
    pub(super) driver: Option<String>,
    pub(super) netdev: Option<Netdev>,
}

/// All PFs, by address.
pub(super) fn pfs(root: &HostRoot) -> Result<Vec<PfDevice>, HostError> {
    let mut pfs = Vec::new();
    for address in addresses(root)? {
        if let Some(total_vfs) = total_vfs(root, address)? {
            pfs.push(read_pf(root, address, total_vfs)?);
        }
    }
    Ok(pfs)
}

fn addresses(root: &HostRoot) -> Result<Vec<PciAddress>, HostError> {
    let mut addresses = sysfs::names(&root.devices())?
        .iter()
        .map(|name| address_of(&root.devices(), name))
        .collect::<Result<Vec<_>, _>>()?;
    addresses.sort();
    Ok(addresses)
}

fn address_of(directory: &Path, name: &str) -> Result<PciAddress, HostError> {
    name.parse().map_err(|_| HostError::Unreadable {
        path: directory.to_owned(),
        found: name.to_owned(),
        expected: "a PCI address",
    })
}

/// How many VFs the function can have; `None` when it is no network card that can have any.
fn total_vfs(root: &HostRoot, address: PciAddress) -> Result<Option<u16>, HostError> {
    let device = root.device(address);
    let total = sysfs::read_if_there(&device.join("sriov_totalvfs"), "a number of VFs", parse::count)?;
    let Some(total) = total.filter(|total| *total > 0) else { return Ok(None) };
    let is_network =
        sysfs::read_as(&device.join("class"), "the class of a PCI device", parse::is_network_class)?;
    Ok(Some(total).filter(|_| is_network))
}

/// Fails when there is no such PF.
pub(super) fn require_pf(root: &HostRoot, pf: PciAddress) -> Result<u16, HostError> {
    total_vfs(root, pf)?.ok_or(HostError::NoSuchPf { pf })
}

fn read_pf(root: &HostRoot, address: PciAddress, total_vfs: u16) -> Result<PfDevice, HostError> {
    let vfs = vf_addresses(root, address)?;
    Ok(PfDevice {
        function: read_function(root, address)?,
        total_vfs,
        drivers_autoprobe: drivers_autoprobe(root, address)?,
        vfs: vfs.into_iter().map(|vf| read_function(root, vf)).collect::<Result<_, _>>()?,
    })
}

/// Kernels before 4.12 have no such switch and always bind.
pub(super) fn drivers_autoprobe(root: &HostRoot, pf: PciAddress) -> Result<bool, HostError> {
    let path = root.device(pf).join("sriov_drivers_autoprobe");
    Ok(sysfs::read_if_there(&path, "0 or 1", parse::switch)?.unwrap_or(true))
}

fn read_function(root: &HostRoot, address: PciAddress) -> Result<Function, HostError> {
    let device = root.device(address);
    Ok(Function {
        address,
        vendor: sysfs::read_as(&device.join("vendor"), "a PCI vendor id", parse::id)?,
        device: sysfs::read_as(&device.join("device"), "a PCI device id", parse::id)?,
        driver: driver(root, address)?,
        netdev: netdev::of_device(&device)?,
    })
}

/// The driver that a function is bound to.
pub(super) fn driver(root: &HostRoot, address: PciAddress) -> Result<Option<String>, HostError> {
    sysfs::target_name(&root.device(address).join("driver"))
}

/// How many VFs the kernel says that the PF has. Waits for a change of the number that is under way: the kernel
/// locks the device meanwhile.
pub(super) fn num_vfs(root: &HostRoot, pf: PciAddress) -> Result<u16, HostError> {
    sysfs::read_as(&root.device(pf).join("sriov_numvfs"), "a number of VFs", parse::count)
}

/// The VFs of a PF, by index. Exactly as many as the kernel says there are, without gaps.
pub(super) fn vf_addresses(root: &HostRoot, pf: PciAddress) -> Result<Vec<PciAddress>, HostError> {
    let device = root.device(pf);
    let count = num_vfs(root, pf)?;
    let mut links: Vec<(u16, String)> =
        sysfs::names(&device)?.into_iter().filter_map(|name| Some((parse::virtfn(&name)?, name))).collect();
    links.sort();
    if !links.iter().map(|(index, _)| *index).eq(0..count) {
        let what = format!("{}, with {count} VFs and {} links to them,", device.display(), links.len());
        return Err(HostError::Unsettled { what });
    }
    links.iter().map(|(_, name)| vf_behind(&device.join(name))).collect()
}

fn vf_behind(link: &Path) -> Result<PciAddress, HostError> {
    let gone = || sysfs::failed("follow", link, std::io::ErrorKind::NotFound.into());
    address_of(link, &sysfs::target_name(link)?.ok_or_else(gone)?)
}

/// The VF that `vf` names.
pub(super) fn vf_address(root: &HostRoot, vf: VfRef) -> Result<PciAddress, HostError> {
    require_pf(root, vf.pf)?;
    let vfs = vf_addresses(root, vf.pf)?;
    vfs.get(usize::from(vf.index)).copied().ok_or(HostError::NoSuchVf { vf, count: vfs.len() })
}
