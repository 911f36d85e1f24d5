//! Desired state of a PF, with every value of the node state validated.

use vfleet_api::node_state::{Interface, VfGroup};
use vfleet_api::{PciAddress, VfRange};

use super::problem::{Cause, Problem};
use crate::external::DesiredExternalPf;
use crate::facts::{EswitchMode, VdpaKind};
use crate::modules;
use crate::mtu::read_mtu;
use crate::prelude::*;
use crate::step::VfDriver;

/// Desired state of a PF.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DesiredPf {
    /// PCI address.
    pub(crate) address: PciAddress,
    /// Interface of the node state, for the record.
    pub(super) interface: Interface,
    /// Number of VFs.
    pub(super) num_vfs: u16,
    /// Minimum MTU of the PF.
    pub(super) mtu: Option<u32>,
    /// Eswitch mode.
    pub(super) eswitch: EswitchMode,
    /// The PF is externally managed.
    pub(super) external: bool,
    /// VF groups.
    pub(super) groups: Vec<DesiredVfGroup>,
}

/// Desired state of a VF group.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DesiredVfGroup {
    /// VF indexes of the group.
    pub(super) range: VfRange,
    /// Policy of the group.
    pub(super) policy: String,
    /// Settings of each VF.
    pub(super) settings: VfSettings,
}

/// Desired settings of a VF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct VfSettings {
    /// Driver.
    pub(super) driver: VfDriver,
    /// MTU.
    pub(super) mtu: Option<u32>,
    /// The VF is used for RDMA.
    pub(super) rdma: bool,
    /// Driver of the vDPA device to create.
    pub(super) vdpa: Option<VdpaKind>,
}

impl VfSettings {
    /// Returns whether the driver is vfio-pci, which needs an IOMMU.
    pub(super) fn is_vfio(&self) -> bool {
        matches!(&self.driver, VfDriver::Named(name) if name == "vfio-pci")
    }

    /// Returns the kernel modules that the VF needs.
    pub(super) fn modules(&self) -> impl Iterator<Item = &'static str> {
        let driver = match &self.driver {
            VfDriver::Kernel => None,
            VfDriver::Named(name) => modules::of_driver(name),
        };
        driver.into_iter().chain(self.vdpa.map(VdpaKind::driver))
    }
}

impl DesiredPf {
    /// Validates `interface`.
    pub(crate) fn read(interface: &Interface) -> Result<Self, Problem> {
        let address = match interface.pci_address.value() {
            Ok(address) => *address,
            Err(invalid) => return Err(problem(interface, None, Cause::InvalidValue(invalid.clone()))),
        };
        read(address, interface).map_err(|cause| problem(interface, Some(address), cause))
    }

    /// Returns the group of the VF with this index; `None` for a VF in no group.
    pub(crate) fn vf(&self, index: u16) -> Option<&DesiredVfGroup> {
        self.groups.iter().find(|group| group.range.contains(index))
    }

    /// Returns the MTU that the PF needs for itself and all of its VFs.
    pub(super) fn highest_mtu(&self) -> Option<u32> {
        self.groups.iter().filter_map(|group| group.settings.mtu).chain(self.mtu).max()
    }

    /// Returns whether a policy overrides the protection of PF and VFs that the node uses.
    pub(super) fn overrides_protection(&self) -> bool {
        self.interface.override_host_protection == Some(true)
    }

    /// Returns whether switchdev mode is desired.
    pub(super) fn is_switchdev(&self) -> bool {
        self.eswitch == EswitchMode::Switchdev
    }

    /// Returns the required link type; empty for any.
    pub(super) fn link_type(&self) -> &str {
        self.interface.link_type.as_deref().unwrap_or("")
    }

    /// Returns the state that an externally managed PF must have.
    pub(super) fn external_requirements(&self) -> DesiredExternalPf {
        DesiredExternalPf {
            num_vfs: self.num_vfs,
            mtu: self.highest_mtu().map(i64::from),
            link_type: self.link_type().to_owned(),
            eswitch: self.eswitch,
        }
    }

    /// Returns the policies of the PF, for messages.
    pub(super) fn policies(&self) -> String {
        let mut names: Vec<_> = self.groups.iter().map(|group| group.policy.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        format!("{} {}", if names.len() == 1 { "policy" } else { "policies" }, names.join(", "))
    }

    /// Returns a problem of this PF.
    pub(super) fn problem(&self, cause: Cause) -> Problem {
        problem(&self.interface, Some(self.address), cause)
    }
}

fn read(address: PciAddress, interface: &Interface) -> Result<DesiredPf, Cause> {
    let requested = interface.num_vfs.unwrap_or(0);
    let num_vfs = u16::try_from(requested)
        .map_err(|_| Cause::OutOfRange { what: "number of VFs", value: requested })?;
    let eswitch = eswitch(interface.e_switch_mode.as_deref().unwrap_or(""))?;
    let groups = interface.vf_groups.iter().flatten();
    Ok(DesiredPf {
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
        other => Err(unknown_word("eSwitchMode", other, "legacy or switchdev")),
    }
}

fn read_group(group: &VfGroup, num_vfs: u16, eswitch: EswitchMode) -> Result<DesiredVfGroup, Cause> {
    let range = match &group.vf_range {
        Some(range) => *range.value().map_err(|invalid| Cause::InvalidValue(invalid.clone()))?,
        None => VfRange::all(num_vfs).ok_or(Cause::OutOfRange { what: "number of VFs", value: 0 })?,
    };
    if range.last() >= num_vfs {
        return Err(Cause::RangeBeyondCount { range, count: num_vfs });
    }
    let settings = VfSettings {
        driver: driver(group.device_type.as_deref().unwrap_or(""))?,
        mtu: mtu(group.mtu)?,
        rdma: group.is_rdma.unwrap_or(false),
        vdpa: vdpa(group.vdpa_type.as_deref().unwrap_or(""))?,
    };
    if settings.vdpa.is_some() && (eswitch != EswitchMode::Switchdev || settings.driver != VfDriver::Kernel) {
        return Err(Cause::VdpaNotSupported);
    }
    Ok(DesiredVfGroup { range, policy: group.policy_name.clone().unwrap_or_default(), settings })
}

fn driver(word: &str) -> Result<VfDriver, Cause> {
    match word {
        "netdevice" | "" => Ok(VfDriver::Kernel),
        other if modules::of_driver(other).is_some() => Ok(VfDriver::Named(other.to_owned())),
        other => Err(unknown_word("deviceType", other, "netdevice, vfio-pci, uio_pci_generic or igb_uio")),
    }
}

fn vdpa(word: &str) -> Result<Option<VdpaKind>, Cause> {
    match word {
        "" => Ok(None),
        "virtio" => Ok(Some(VdpaKind::Virtio)),
        "vhost" => Ok(Some(VdpaKind::Vhost)),
        other => Err(unknown_word("vdpaType", other, "virtio or vhost")),
    }
}

fn unknown_word(field: &'static str, word: &str, valid: &'static str) -> Cause {
    Cause::UnknownWord { field, word: word.to_owned(), valid }
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
