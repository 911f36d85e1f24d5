//! Host facts: everything that was read from one machine. Nothing is derived or guessed. A value that could not be read
//! is an error of the reader, an [`UnreadableCard`] or an unknown [`Fact`], never an empty value.

mod attachment;
mod bridge;
mod fact;
mod host_use;
mod identity;
mod link;
mod record;
mod system;

pub use attachment::{UnreadAttachments, VfAttachment};
pub use bridge::{
    BridgeFacts, BridgeKind, LinuxBridgeFacts, LinuxPortFacts, OvsBridgeFacts, OvsDatabase, OvsFacts,
    OvsInterfaceFacts, OvsPortFacts, RecordedBridge,
};
pub use fact::Fact;
pub use host_use::{
    Absence, ClockReading, DEFAULT_PROTECTION_TIME, LingeringUse, ProtectingUse, RememberedUse, UseHistory,
};
pub use identity::CardIdentity;
pub(crate) use identity::hex;
pub use link::{HostUse, LinkFacts, LinkKind, Master};
pub use record::{ModeOrder, ModeTrial, OriginalState, Record, RefusedOrder};
pub use system::{BootLoader, KernelFacts, ModuleState, Processor, RebootCount, Reboots};

use core::time::Duration;

use serde::{Deserialize, Serialize};
use vfleet_api::{Guid, MacAddr, PciAddress};

use crate::firmware::FirmwareFacts;
use crate::prelude::*;

/// Host facts of one machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostFacts {
    /// Network cards that can have VFs, by PCI address.
    pub pfs: Vec<PfFacts>,
    /// Cards that are present and cannot be read now, by PCI address.
    pub unreadable: Vec<UnreadableCard>,
    /// Queries about readable cards that failed, by PCI address.
    pub failed_queries: Vec<FailedQuery>,
    /// Failed read of the attachments of VFs. All of them are unknown then.
    pub unread_attachments: Option<UnreadAttachments>,
    /// Records of PFs, by PCI address. A record can belong to a PF that is no longer present.
    pub records: Vec<Record>,
    /// Facts of the kernel and its boot configuration.
    pub kernel: KernelFacts,
    /// Content of each file of [`crate::files`] that exists, by path below the host's root.
    pub files: BTreeMap<String, String>,
    /// Enabled systemd units of [`crate::files::UNITS`].
    pub enabled_units: BTreeSet<String>,
    /// Systemd units of [`crate::files::UNITS`] whose process is running.
    pub running_units: BTreeSet<String>,
    /// True if the program at [`crate::files::BOOT_PROGRAM`] is identical to the running one.
    pub has_boot_program: bool,
    /// Content of the InfiniBand GUID file; `None` without a file.
    pub guid_file: Option<String>,
    /// PFs whose record exists and cannot be read, so that it is unknown what vfleet changed there. Each of them is
    /// also in [`HostFacts::unreadable`], which has the error, even if the card is not present.
    pub unreadable_records: BTreeSet<PciAddress>,
    /// Uses of PFs and VFs by the node that are not observed now and still protect them.
    pub lingering_uses: BTreeMap<PciAddress, LingeringUse>,
    /// Software bridges.
    pub bridges: BridgeFacts,
    /// Time until the first of these protections ends, if the use does not return.
    pub protection_ends_in: Option<Duration>,
}

impl HostFacts {
    /// Returns the PF at `address`.
    pub fn pf(&self, address: PciAddress) -> Option<&PfFacts> {
        self.pfs.iter().find(|pf| pf.address == address)
    }

    /// Returns the error of the card at `address`; `None` if the card can be read.
    pub fn unreadable(&self, address: PciAddress) -> Option<&UnreadableCard> {
        self.unreadable.iter().find(|card| card.pf == address)
    }

    /// Returns the record of the PF at `address`.
    pub fn record(&self, address: PciAddress) -> Option<&Record> {
        self.records.iter().find(|record| record.pf == address)
    }
}

/// Card that cannot be read now, because its driver hangs or a file of it has an invalid value. Other cards are not
/// affected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableCard {
    /// PCI address of the card.
    pub pf: PciAddress,
    /// Error of the read.
    pub error: String,
    /// Reason of the error, for conditions, Events and metrics.
    pub reason: &'static str,
}

/// Failed query about a card that something other than the kernel answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedQuery {
    /// PCI address of the card.
    pub pf: PciAddress,
    /// Fact that was queried.
    pub query: ExternalQuery,
    /// Error of the query.
    pub error: String,
    /// Reason of the error, for conditions, Events and metrics.
    pub reason: &'static str,
}

/// Fact of a card that something other than the kernel answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExternalQuery {
    /// [`PfFacts::firmware`], answered by the firmware tool of the vendor.
    Firmware,
    /// [`PfFacts::net_filter`], answered by the metadata of the cloud.
    Network,
}

/// Facts of a PF: a card that can have VFs, or could if its firmware enabled them.
#[derive(Clone, Debug, PartialEq)]
pub struct PfFacts {
    /// PCI address.
    pub address: PciAddress,
    /// PCI vendor ID.
    pub vendor: u16,
    /// PCI device ID.
    pub device: u16,
    /// Driver of the PF.
    pub driver: Option<String>,
    /// NUMA node of the PF, on a machine with several.
    pub numa_node: Option<u16>,
    /// Maximum number of VFs; 0 while the firmware enables none.
    pub total_vfs: u16,
    /// `sriov_drivers_autoprobe`: the kernel binds new VFs to a driver.
    pub drivers_autoprobe: bool,
    /// Eswitch mode. None: the card has no eswitch. Unknown: the driver does not report it, as mlx5 before Linux 6.0
    /// does while there are no VFs.
    pub eswitch: Fact<EswitchMode>,
    /// `hw-tc-offload`: traffic control is offloaded to the PF; `None` if that cannot be changed.
    pub tc_offload: Option<bool>,
    /// RDMA device of the PF.
    pub rdma: Option<RdmaFacts>,
    /// Firmware settings, if a firmware tool reported them.
    pub firmware: Option<FirmwareFacts>,
    /// The card is a lone VF, whose PF is not on this machine. [`PfFacts::vfs`] then contains the card itself.
    pub is_lone_vf: bool,
    /// Network of the card according to the cloud. Unknown while the metadata cannot be read, or does not identify the
    /// card.
    pub net_filter: Fact<String>,
    /// Interface of the PF, if a kernel driver created one in the host's network namespace.
    pub link: Option<LinkFacts>,
    /// VFs of the PF, by index, without gaps.
    pub vfs: Vec<VfFacts>,
}

/// Facts of a VF.
#[derive(Clone, Debug, PartialEq)]
pub struct VfFacts {
    /// Index of the VF on its PF.
    pub index: u16,
    /// PCI address.
    pub address: PciAddress,
    /// PCI vendor ID.
    pub vendor: u16,
    /// PCI device ID.
    pub device: u16,
    /// Driver of the VF.
    pub driver: Option<String>,
    /// Administrative MAC that the PF stores for the VF; zero if none was ever set, `None` if the PF stores none.
    pub admin_mac: Option<MacAddr>,
    /// Node GUID that the PF stores for the VF, on InfiniBand; `None` if the kernel does not report it.
    pub admin_guid: Option<Guid>,
    /// RDMA device of the VF.
    pub rdma: Option<RdmaFacts>,
    /// Driver of the VF's vDPA device.
    pub vdpa: Option<VdpaKind>,
    /// Name of the VF's representor.
    pub representor: Option<String>,
    /// Interface of the VF, if a kernel driver created one and it is in the host's network namespace, not in that of a
    /// pod.
    pub link: Option<LinkFacts>,
    /// Attachment of the VF to a pod, from the files of CNI plugins. Unknown if they cannot be read.
    pub attachment: Fact<VfAttachment>,
}

impl VfFacts {
    /// Returns whether a CNI plugin has attached the VF to a pod, also while it is attaching or releasing it.
    pub const fn is_attached(&self) -> bool {
        matches!(self.attachment, Fact::Value(_))
    }
}

/// Facts of an RDMA device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RdmaFacts {
    /// Name of the device.
    pub device: String,
    /// Node GUID; zero if the device has none.
    pub node_guid: Guid,
    /// GUID of the first port, which ends the hardware address of an IPoIB interface; `None` if there is none.
    pub port_guid: Option<Guid>,
}

/// Eswitch mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EswitchMode {
    /// The card forwards by MAC and VLAN only.
    Legacy,
    /// Each VF has a representor, and software controls the forwarding.
    Switchdev,
}

impl EswitchMode {
    /// Returns the name that the API and devlink use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Switchdev => "switchdev",
        }
    }
}

/// Driver of a vDPA device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VdpaKind {
    /// `virtio_vdpa`: the device becomes a network interface.
    Virtio,
    /// `vhost_vdpa`: the device becomes a character device for programs.
    Vhost,
}

impl VdpaKind {
    /// Returns the name that the API uses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Virtio => "virtio",
            Self::Vhost => "vhost",
        }
    }

    /// Returns the driver on the vDPA bus, which is also the name of its module.
    pub const fn driver(self) -> &'static str {
        match self {
            Self::Virtio => "virtio_vdpa",
            Self::Vhost => "vhost_vdpa",
        }
    }
}
