//! PFs and VFs as sysfs shows them.

use std::io;
use std::path::Path;

use vfleet_api::{PciAddress, VfRef};
use vfleet_plan::firmware::MELLANOX;

use super::driver::BusDevice;
use super::root::HostRoot;
use super::settle::settled;
use super::{parse, sysfs};
use crate::HostError;

/// What makes a PCI function one of our cards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Card {
    /// A network card that can have this many VFs; none while its firmware shows none.
    Pf { total_vfs: u16 },
    /// A network card that shows none: where a hypervisor hands out VFs, it is one.
    LoneVf,
}

/// Where a card is, and which; an error instead of what cannot be told.
pub(super) type FoundCard = (PciAddress, Result<Card, HostError>);

/// All cards, by address. Lone VFs only when they are asked for.
pub(super) fn cards(root: &HostRoot, with_lone_vfs: bool) -> Result<Vec<FoundCard>, HostError> {
    let found = |address| (address, settled(|| listed_card(root, address, with_lone_vfs)).transpose());
    let found = addresses(root)?.into_iter().map(found);
    Ok(found.filter_map(|(address, card)| Some((address, card?))).collect())
}

/// All PCI functions. What has another name is none.
fn addresses(root: &HostRoot) -> Result<Vec<PciAddress>, HostError> {
    let names = sysfs::names(&root.devices())?;
    let mut addresses: Vec<PciAddress> = names.iter().filter_map(|name| name.parse().ok()).collect();
    addresses.sort();
    Ok(addresses)
}

/// The card that a function is; `None` when it is none that counts, or gone since it was listed.
fn listed_card(root: &HostRoot, address: PciAddress, with_lone_vfs: bool) -> Result<Option<Card>, HostError> {
    let card = match card(root, address) {
        Ok(Some(Card::LoneVf)) if !with_lone_vfs => {
            may_hide_vfs(root, address).map(|hides| hides.then_some(Card::Pf { total_vfs: 0 }))
        }
        card => card,
    };
    match card {
        Err(_) if !root.device(address).exists() => Ok(None),
        card => card,
    }
}

fn address_of(directory: &Path, name: &str) -> Result<PciAddress, HostError> {
    name.parse().map_err(|_| HostError::Unreadable {
        path: directory.to_owned(),
        found: name.to_owned(),
        expected: "a PCI address",
    })
}

/// Which card the function is; `None` when it is none, or not there.
fn card(root: &HostRoot, address: PciAddress) -> Result<Option<Card>, HostError> {
    let device = root.device(address);
    let is_network =
        || sysfs::read_as(&device.join("class"), "the class of a PCI device", parse::is_network_class);
    let total = sysfs::read_if_there(&device.join("sriov_totalvfs"), "a number of VFs", parse::count);
    match total {
        Ok(Some(total_vfs)) if total_vfs > 0 => Ok(is_network()?.then_some(Card::Pf { total_vfs })),
        Ok(_) if !device.join("class").exists() || device.join("physfn").exists() => Ok(None),
        Ok(_) => Ok(is_network()?.then_some(Card::LoneVf)),
        // What other cards say does not matter.
        Err(error) => {
            if is_network()? {
                Err(error)
            } else {
                Ok(None)
            }
        }
    }
}

/// Whether a card that shows no VFs may have some: with SR-IOV switched off, the firmware of a Mellanox card keeps the
/// kernel from seeing that it has it at all.
fn may_hide_vfs(root: &HostRoot, address: PciAddress) -> Result<bool, HostError> {
    Ok(vendor(root, address)? == MELLANOX)
}

pub(super) fn vendor(root: &HostRoot, address: PciAddress) -> Result<u16, HostError> {
    sysfs::read_as(&root.device(address).join("vendor"), "a PCI vendor id", parse::id)
}

/// Fails when there is no such PF. Gives how many VFs it can have.
pub(super) fn require_pf(root: &HostRoot, pf: PciAddress) -> Result<u16, HostError> {
    match card(root, pf)? {
        Some(Card::Pf { total_vfs }) => Ok(total_vfs),
        Some(Card::LoneVf) if may_hide_vfs(root, pf)? => Ok(0),
        Some(Card::LoneVf) | None => Err(HostError::NoSuchPf { pf }),
    }
}

/// The function as a device on its bus.
pub(super) fn device(root: &HostRoot, address: PciAddress) -> BusDevice {
    BusDevice::new(root.pci(), address.to_string())
}

/// Kernels before 4.12 have no such switch and always bind.
pub(super) fn drivers_autoprobe(root: &HostRoot, pf: PciAddress) -> Result<bool, HostError> {
    let path = root.device(pf).join("sriov_drivers_autoprobe");
    Ok(sysfs::read_if_there(&path, "0 or 1", parse::switch)?.unwrap_or(true))
}

/// How many VFs the kernel says that the PF has. Waits for a change of the number that is under way: the kernel
/// locks the device meanwhile. A card whose SR-IOV is switched off has no such file.
pub(super) fn num_vfs(root: &HostRoot, pf: PciAddress) -> Result<u16, HostError> {
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
    let gone = || sysfs::failed("follow", link, io::ErrorKind::NotFound.into());
    address_of(link, &sysfs::target_name(link)?.ok_or_else(gone)?)
}

/// The VF that `vf` names. A lone VF is its own only one.
pub(super) fn vf_address(root: &HostRoot, vf: VfRef) -> Result<PciAddress, HostError> {
    match card(root, vf.pf)? {
        Some(Card::LoneVf) if vf.index == 0 => Ok(vf.pf),
        Some(Card::Pf { .. }) => {
            let link = root.device(vf.pf).join(format!("virtfn{}", vf.index));
            match sysfs::target_name(&link)? {
                Some(name) => address_of(&link, &name),
                None => Err(HostError::NoSuchVf { vf, count: num_vfs(root, vf.pf)?.into() }),
            }
        }
        Some(Card::LoneVf) | None => Err(HostError::NoSuchPf { pf: vf.pf }),
    }
}
