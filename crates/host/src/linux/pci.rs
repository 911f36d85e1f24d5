//! PFs and VFs in sysfs.

use std::io;
use std::path::{Path, PathBuf};

use vfleet_api::{PciAddress, VfRef};
use vfleet_plan::firmware::MELLANOX;

use super::driver::BusDevice;
use super::root::HostRoot;
use super::stable_read::read_stable;
use super::{parse, sysfs};
use crate::HostError;

/// Kind of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CardKind {
    /// PF with this maximum number of VFs; 0 if SR-IOV is disabled in its firmware.
    Pf { total_vfs: u16 },
    /// Network card without VF support. On a cloud platform it is a lone VF.
    LoneVf,
}

/// Address and kind of a card, or the error of reading its kind.
pub(super) type ListedCard = (PciAddress, Result<CardKind, HostError>);

/// Lists all cards, sorted by address. Includes lone VFs if `with_lone_vfs`.
pub(super) fn list_cards(root: &HostRoot, with_lone_vfs: bool) -> Result<Vec<ListedCard>, HostError> {
    let read_kind =
        |address| (address, read_stable(|| listed_card_kind(root, address, with_lone_vfs)).transpose());
    let cards = list_addresses(root)?.into_iter().map(read_kind);
    Ok(cards.filter_map(|(address, kind)| Some((address, kind?))).collect())
}

/// Lists the addresses of all PCI functions. Other names are ignored.
fn list_addresses(root: &HostRoot) -> Result<Vec<PciAddress>, HostError> {
    let names = sysfs::list_names(&root.devices())?;
    let mut addresses: Vec<PciAddress> = names.iter().filter_map(|name| name.parse().ok()).collect();
    addresses.sort();
    Ok(addresses)
}

/// Returns the kind of a card; `None` if the function is not a card to be listed, or vanished since it was listed.
fn listed_card_kind(
    root: &HostRoot,
    address: PciAddress,
    with_lone_vfs: bool,
) -> Result<Option<CardKind>, HostError> {
    let kind = match card_kind(root, address) {
        Ok(Some(CardKind::LoneVf)) if !with_lone_vfs => {
            may_hide_vfs(root, address).map(|hides| hides.then_some(CardKind::Pf { total_vfs: 0 }))
        }
        kind => kind,
    };
    match kind {
        Err(_) if !root.device(address).exists() => Ok(None),
        kind => kind,
    }
}

fn parse_address(directory: &Path, name: &str) -> Result<PciAddress, HostError> {
    name.parse().map_err(|_| HostError::InvalidContent {
        path: directory.to_owned(),
        found: name.to_owned(),
        expected: "a PCI address",
    })
}

/// Returns the kind of a card; `None` if the function is no network card, is a VF of a visible PF, or does not exist.
fn card_kind(root: &HostRoot, address: PciAddress) -> Result<Option<CardKind>, HostError> {
    let device = root.device(address);
    let is_network =
        || sysfs::read_as(&device.join("class"), "the class of a PCI device", parse::is_network_class);
    let total = sysfs::read_if_exists(&device.join("sriov_totalvfs"), "a number of VFs", parse::count);
    match total {
        Ok(Some(total_vfs)) if total_vfs > 0 => Ok(is_network()?.then_some(CardKind::Pf { total_vfs })),
        Ok(_) if !device.join("class").exists() || device.join("physfn").exists() => Ok(None),
        Ok(_) => Ok(is_network()?.then_some(CardKind::LoneVf)),
        // Errors of devices that are no network cards do not matter.
        Err(error) => {
            if is_network()? {
                Err(error)
            } else {
                Ok(None)
            }
        }
    }
}

/// Returns whether a card without VF support may support VFs: a Mellanox card does not report its SR-IOV capability
/// while SR-IOV is disabled in its firmware.
fn may_hide_vfs(root: &HostRoot, address: PciAddress) -> Result<bool, HostError> {
    Ok(vendor(root, address)? == MELLANOX)
}

pub(super) fn vendor(root: &HostRoot, address: PciAddress) -> Result<u16, HostError> {
    sysfs::read_as(&root.device(address).join("vendor"), "a PCI vendor id", parse::id)
}

/// Returns the maximum number of VFs of a PF. Fails if there is no such PF.
pub(super) fn require_pf(root: &HostRoot, pf: PciAddress) -> Result<u16, HostError> {
    match card_kind(root, pf)? {
        Some(CardKind::Pf { total_vfs }) => Ok(total_vfs),
        Some(CardKind::LoneVf) if may_hide_vfs(root, pf)? => Ok(0),
        Some(CardKind::LoneVf) | None => Err(HostError::PfNotFound { pf }),
    }
}

/// Returns the function as a device on the PCI bus.
pub(super) fn bus_device(root: &HostRoot, address: PciAddress) -> BusDevice {
    BusDevice::new(root.pci(), address.to_string())
}

/// Reads `sriov_drivers_autoprobe`. Kernels before 4.12 have no such file and always bind VFs.
pub(super) fn read_drivers_autoprobe(root: &HostRoot, pf: PciAddress) -> Result<bool, HostError> {
    let path = root.device(pf).join("sriov_drivers_autoprobe");
    Ok(sysfs::read_if_exists(&path, "0 or 1", parse::switch)?.unwrap_or(true))
}

/// Reads the number of VFs of a PF. Blocks while the kernel changes the number, because it locks the device. A card
/// whose SR-IOV is disabled has no such file.
pub(super) fn read_num_vfs(root: &HostRoot, pf: PciAddress) -> Result<u16, HostError> {
    let device = root.device(pf);
    match sysfs::read_as(&device.join("sriov_numvfs"), "a number of VFs", parse::count) {
        Err(HostError::Io { source, .. })
            if source.kind() == io::ErrorKind::NotFound && !device.join("sriov_totalvfs").exists() =>
        {
            Ok(0)
        }
        read => read,
    }
}

/// Reads the addresses of the VFs of a PF, sorted by index. There are as many as `sriov_numvfs` says, without gaps.
pub(super) fn read_vf_addresses(root: &HostRoot, pf: PciAddress) -> Result<Vec<PciAddress>, HostError> {
    let device = root.device(pf);
    let count = read_num_vfs(root, pf)?;
    let mut links: Vec<(u16, String)> = sysfs::list_names(&device)?
        .into_iter()
        .filter_map(|name| Some((parse::virtfn(&name)?, name)))
        .collect();
    links.sort();
    if !links.iter().map(|(index, _)| *index).eq(0..count) {
        let subject = format!("{} ({count} VFs, {} virtfn links)", device.display(), links.len());
        return Err(HostError::ConcurrentChange { subject });
    }
    links.iter().map(|(_, name)| read_virtfn(&device.join(name))).collect()
}

fn read_virtfn(link: &Path) -> Result<PciAddress, HostError> {
    let missing = || sysfs::failed("follow", link, io::ErrorKind::NotFound.into());
    parse_address(link, &sysfs::target_name(link)?.ok_or_else(missing)?)
}

/// Reads the PF of a VF, and its index; `None` if the function is no VF. The links of a PF need not be contiguous.
pub(super) fn read_parent(root: &HostRoot, address: PciAddress) -> Result<Option<VfRef>, HostError> {
    let physfn = root.device(address).join("physfn");
    let Some(name) = sysfs::target_name(&physfn)? else { return Ok(None) };
    let pf = parse_address(&physfn, &name)?;
    let own = address.to_string();
    for index in 0..=u16::MAX {
        let vf = VfRef { pf, index };
        match sysfs::target_name(&virtfn(root, vf))? {
            Some(name) if name == own => return Ok(Some(vf)),
            Some(_) => {}
            None => break,
        }
    }
    read_listed_parent(root, pf, &own).map(Some)
}

/// Finds the link to a VF behind a gap.
fn read_listed_parent(root: &HostRoot, pf: PciAddress, own: &str) -> Result<VfRef, HostError> {
    let device = root.device(pf);
    for name in sysfs::list_names(&device)? {
        if let Some(index) = parse::virtfn(&name)
            && sysfs::target_name(&device.join(&name))?.as_deref() == Some(own)
        {
            return Ok(VfRef { pf, index });
        }
    }
    Err(HostError::ConcurrentChange { subject: format!("{} (no virtfn link to {own})", device.display()) })
}

/// Checks that a VF exists.
pub(super) fn require_vf(root: &HostRoot, vf: VfRef) -> Result<(), HostError> {
    // Usually its PF has a link to it. Otherwise the reason is found out.
    if virtfn(root, vf).exists() { Ok(()) } else { read_vf_address(root, vf).map(drop) }
}

fn virtfn(root: &HostRoot, vf: VfRef) -> PathBuf {
    root.device(vf.pf).join(format!("virtfn{}", vf.index))
}

/// Reads the address of a VF. A lone VF is its own and only VF.
pub(super) fn read_vf_address(root: &HostRoot, vf: VfRef) -> Result<PciAddress, HostError> {
    match card_kind(root, vf.pf)? {
        Some(CardKind::LoneVf) if vf.index == 0 => Ok(vf.pf),
        Some(CardKind::Pf { .. }) => {
            let link = virtfn(root, vf);
            match sysfs::target_name(&link)? {
                Some(name) => parse_address(&link, &name),
                None => Err(HostError::VfNotFound { vf, count: read_num_vfs(root, vf.pf)?.into() }),
            }
        }
        Some(CardKind::LoneVf) | None => Err(HostError::PfNotFound { pf: vf.pf }),
    }
}
