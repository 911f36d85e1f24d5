//! A PF as a node state wants it, with every value checked once.

use vfleet_api::node_state::{Interface, VfGroup};
use vfleet_api::{PciAddress, VfRange};

use super::problem::{Cause, Problem};
use crate::external::ExternalWish;
use crate::facts::{EswitchMode, VdpaKind};
use crate::modules;
use crate::mtu::read_mtu;
use crate::prelude::*;
use crate::step::VfDriver;

/// A PF as wanted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WantedPf {
    /// PCI address.
    pub(crate) address: PciAddress,
    /// As the node state has it, for the record.
    pub(super) interface: Interface,
    /// How many VFs.
    pub(super) num_vfs: u16,
    /// The MTU at least.
    pub(super) mtu: Option<u32>,
    /// The mode of its embedded switch.
    pub(super) eswitch: EswitchMode,
    /// Made by somebody else.
    pub(super) external: bool,
    /// How its VFs are set up.
    pub(super) groups: Vec<WantedVfs>,
}

/// VFs of a PF as wanted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WantedVfs {
    /// Which.
    pub(super) range: VfRange,
    /// The policy that wants them.
    pub(super) policy: String,
    /// What they shall be.
    pub(super) wish: VfWish,
}

/// What a VF shall be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct VfWish {
    /// Its driver.
    pub(super) driver: VfDriver,
    /// Its MTU.
    pub(super) mtu: Option<u32>,
    /// Used for RDMA.
    pub(super) rdma: bool,
    /// The vDPA device to make of it.
    pub(super) vdpa: Option<VdpaKind>,
}

impl VfWish {
    /// Whether a program gets it, by the driver that needs an IOMMU.
    pub(super) fn is_vfio(&self) -> bool {
        matches!(&self.driver, VfDriver::Named(name) if name == "vfio-pci")
    }

    /// The modules that it needs.
    pub(super) fn modules(&self) -> impl Iterator<Item = &'static str> {
        let driver = match &self.driver {
            VfDriver::Kernel => None,
            VfDriver::Named(name) => modules::of_driver(name),
        };
        driver.into_iter().chain(self.vdpa.map(VdpaKind::driver))
    }
}

impl WantedPf {
    /// Returns `interface` with every value checked.
    pub(crate) fn read(interface: &Interface) -> Result<Self, Problem> {
        let address = match interface.pci_address.value() {
            Ok(address) => *address,
            Err(invalid) => return Err(problem(interface, None, Cause::Unreadable(invalid.clone()))),
        };
        read(address, interface).map_err(|cause| problem(interface, Some(address), cause))
    }

    /// What is wanted of the VF with this index; `None` for a VF that nobody asked for.
    pub(crate) fn vf(&self, index: u16) -> Option<&WantedVfs> {
        self.groups.iter().find(|group| group.range.contains(index))
    }

    /// The MTU that the PF needs for itself and all of its VFs.
    pub(super) fn highest_mtu(&self) -> Option<u32> {
        self.groups.iter().filter_map(|group| group.wish.mtu).chain(self.mtu).max()
    }

    /// Whether a policy has the PF changed although the node itself uses it, or one of its VFs.
    pub(super) fn overrides_protection(&self) -> bool {
        self.interface.override_host_protection == Some(true)
    }

    /// The link type that it must have; empty when any will do.
    pub(super) fn link_type(&self) -> &str {
        self.interface.link_type.as_deref().unwrap_or("")
    }

    /// What somebody else must have made of the PF.
    pub(super) fn external_wish(&self) -> ExternalWish {
        ExternalWish {
            num_vfs: self.num_vfs,
            mtu: self.highest_mtu().map(i64::from),
            link_type: self.link_type().to_owned(),
            eswitch: self.eswitch,
        }
    }

    /// The policies that want it, for people.
    pub(super) fn policies(&self) -> String {
        let mut names: Vec<_> = self.groups.iter().map(|group| group.policy.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        format!("{} {}", if names.len() == 1 { "policy" } else { "policies" }, names.join(", "))
    }

    /// A problem with this PF.
    pub(super) fn problem(&self, cause: Cause) -> Problem {
        problem(&self.interface, Some(self.address), cause)
    }
}

fn read(address: PciAddress, interface: &Interface) -> Result<WantedPf, Cause> {
    let asked = interface.num_vfs.unwrap_or(0);
    let num_vfs =
        u16::try_from(asked).map_err(|_| Cause::OutOfRange { what: "number of VFs", value: asked })?;
    let eswitch = eswitch(interface.e_switch_mode.as_deref().unwrap_or(""))?;
    let groups = interface.vf_groups.iter().flatten();
    Ok(WantedPf {
        address,
        interface: interface.clone(),
        num_vfs,
        mtu: mtu(interface.mtu)?,
        eswitch,
        external: interface.externally_managed.unwrap_or(false),
        groups: groups.map(|group| read_group(group, num_vfs, eswitch)).collect::<Result<_, _>>()?,
    })
}

fn eswitch(word: &str) -> Result<EswitchMode, Cause> {
    match word {
        "" | "legacy" => Ok(EswitchMode::Legacy),
        "switchdev" => Ok(EswitchMode::Switchdev),
        other => Err(unknown_word("eSwitchMode", other, "legacy and switchdev")),
    }
}

fn read_group(group: &VfGroup, num_vfs: u16, eswitch: EswitchMode) -> Result<WantedVfs, Cause> {
    let range = match &group.vf_range {
        Some(range) => *range.value().map_err(|invalid| Cause::Unreadable(invalid.clone()))?,
        None => VfRange::all(num_vfs).ok_or(Cause::OutOfRange { what: "number of VFs", value: 0 })?,
    };
    if range.last() >= num_vfs {
        return Err(Cause::RangeBeyondCount { range, count: num_vfs });
    }
    let wish = VfWish {
        driver: driver(group.device_type.as_deref().unwrap_or(""))?,
        mtu: mtu(group.mtu)?,
        rdma: group.is_rdma.unwrap_or(false),
        vdpa: vdpa(group.vdpa_type.as_deref().unwrap_or(""))?,
    };
    if wish.vdpa.is_some() && (eswitch != EswitchMode::Switchdev || wish.driver != VfDriver::Kernel) {
        return Err(Cause::VdpaNotPossible);
    }
    Ok(WantedVfs { range, policy: group.policy_name.clone().unwrap_or_default(), wish })
}

fn driver(word: &str) -> Result<VfDriver, Cause> {
    match word {
        "netdevice" | "" => Ok(VfDriver::Kernel),
        other if modules::of_driver(other).is_some() => Ok(VfDriver::Named(other.to_owned())),
        other => Err(unknown_word("deviceType", other, "netdevice, vfio-pci, uio_pci_generic and igb_uio")),
    }
}

fn vdpa(word: &str) -> Result<Option<VdpaKind>, Cause> {
    match word {
        "" => Ok(None),
        "virtio" => Ok(Some(VdpaKind::Virtio)),
        "vhost" => Ok(Some(VdpaKind::Vhost)),
        other => Err(unknown_word("vdpaType", other, "virtio and vhost")),
    }
}

fn unknown_word(field: &'static str, word: &str, known: &'static str) -> Cause {
    Cause::UnknownWord { field, word: word.to_owned(), known }
}

fn mtu(value: Option<i64>) -> Result<Option<u32>, Cause> {
    read_mtu(value).map_err(|value| Cause::OutOfRange { what: "MTU", value })
}

fn problem(interface: &Interface, pf: Option<PciAddress>, cause: Cause) -> Problem {
    let mut policies: Vec<String> =
        interface.vf_groups.iter().flatten().filter_map(|group| group.policy_name.clone()).collect();
    policies.sort();
    policies.dedup();
    Problem { pf, name: interface.name.clone(), policies, cause }
}
