//! A PF as a node state wants it, with every value checked once.

use vfleet_api::node_state::{Interface, VfGroup};
use vfleet_api::{PciAddress, VfRange};

use super::problem::{Cause, Problem};
use crate::prelude::*;
use crate::step::VfDriver;

/// A PF as wanted.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct WantedPf {
    /// PCI address.
    pub(super) address: PciAddress,
    /// As the node state has it, for the record.
    pub(super) interface: Interface,
    /// How many VFs.
    pub(super) num_vfs: u16,
    /// The MTU at least.
    pub(super) mtu: Option<u32>,
    /// Made by somebody else.
    pub(super) external: bool,
    /// How its VFs are set up.
    pub(super) groups: Vec<WantedVfs>,
}

/// VFs of a PF as wanted.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct WantedVfs {
    /// Which.
    pub(super) range: VfRange,
    /// The policy that wants them.
    pub(super) policy: String,
    /// Their driver.
    pub(super) driver: VfDriver,
    /// Their MTU.
    pub(super) mtu: Option<u32>,
}

impl WantedPf {
    /// What is wanted of the VF with this index; `None` for a VF that nobody asked for.
    pub(super) fn vf(&self, index: u16) -> Option<&WantedVfs> {
        self.groups.iter().find(|group| group.range.contains(index))
    }

    /// The MTU that the PF needs for itself and all of its VFs.
    pub(super) fn highest_mtu(&self) -> Option<u32> {
        self.groups.iter().filter_map(|group| group.mtu).chain(self.mtu).max()
    }

    /// A problem with this PF.
    pub(super) fn problem(&self, cause: Cause) -> Problem {
        problem(&self.interface, Some(self.address), cause)
    }
}

/// `interface` with every value checked.
pub(super) fn wanted(interface: &Interface) -> Result<WantedPf, Problem> {
    let address = match interface.pci_address.value() {
        Ok(address) => *address,
        Err(invalid) => return Err(problem(interface, None, Cause::Unreadable(invalid.clone()))),
    };
    read(address, interface).map_err(|cause| problem(interface, Some(address), cause))
}

fn read(address: PciAddress, interface: &Interface) -> Result<WantedPf, Cause> {
    if interface.e_switch_mode.as_deref().is_some_and(|mode| !mode.is_empty() && mode != "legacy") {
        return Err(Cause::Unsupported("eSwitchMode switchdev"));
    }
    let asked = interface.num_vfs.unwrap_or(0);
    let num_vfs =
        u16::try_from(asked).map_err(|_| Cause::OutOfRange { what: "number of VFs", value: asked })?;
    let groups = interface.vf_groups.iter().flatten();
    Ok(WantedPf {
        address,
        interface: interface.clone(),
        num_vfs,
        mtu: mtu(interface.mtu)?,
        external: interface.externally_managed.unwrap_or(false),
        groups: groups.map(|group| read_group(group, num_vfs)).collect::<Result<_, _>>()?,
    })
}

fn read_group(group: &VfGroup, num_vfs: u16) -> Result<WantedVfs, Cause> {
    if group.vdpa_type.as_deref().is_some_and(|kind| !kind.is_empty()) {
        return Err(Cause::Unsupported("vdpaType"));
    }
    let range = match &group.vf_range {
        Some(range) => *range.value().map_err(|invalid| Cause::Unreadable(invalid.clone()))?,
        None => VfRange::all(num_vfs).ok_or(Cause::OutOfRange { what: "number of VFs", value: 0 })?,
    };
    if range.last() >= num_vfs {
        return Err(Cause::RangeBeyondCount { range, count: num_vfs });
    }
    let driver = match group.device_type.as_deref().unwrap_or("netdevice") {
        "netdevice" | "" => VfDriver::Kernel,
        "vfio-pci" => VfDriver::Named("vfio-pci".to_owned()),
        other => return Err(Cause::DeviceType(other.to_owned())),
    };
    Ok(WantedVfs {
        range,
        policy: group.policy_name.clone().unwrap_or_default(),
        driver,
        mtu: mtu(group.mtu)?,
    })
}

/// Zero is "not given", as the Go API writes it.
fn mtu(value: Option<i64>) -> Result<Option<u32>, Cause> {
    match value {
        None | Some(0) => Ok(None),
        Some(value) => u32::try_from(value).map(Some).map_err(|_| Cause::OutOfRange { what: "MTU", value }),
    }
}

fn problem(interface: &Interface, pf: Option<PciAddress>, cause: Cause) -> Problem {
    let mut policies: Vec<String> =
        interface.vf_groups.iter().flatten().filter_map(|group| group.policy_name.clone()).collect();
    policies.sort();
    policies.dedup();
    Problem { pf, name: interface.name.clone(), policies, cause }
}
