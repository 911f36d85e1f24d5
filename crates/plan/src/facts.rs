//! What a machine is like, as its kernel reports it. Nothing derived, nothing guessed: a fact that could not be
//! read is an error of the reader or an [`Unread`] card, never an empty value here.

mod fact;
mod host_use;
mod identity;
mod link;
mod record;
mod system;

pub use fact::Fact;
pub use host_use::{Absence, ClockReading, InUse, LingeringUse, PROTECTION, RememberedUse, UseMemory};
pub use identity::CardIdentity;
pub(crate) use identity::hex;
pub use link::{HostUse, LinkFacts, LinkKind};
pub use record::{FirstSeen, ModeOrder, ModeTrial, Record, RefusedOrder};
pub use system::{BootLoader, KernelFacts, ModuleState, Processor, Reboots, Tries};

use core::time::Duration;

use serde::{Deserialize, Serialize};
use vfleet_api::{Guid, MacAddr, PciAddress};

use crate::firmware::FirmwareFacts;
use crate::prelude::*;

/// A machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostFacts {
    /// Network cards that can have VFs, by PCI address.
    pub pfs: Vec<PfFacts>,
    /// Cards that are there, but what they are like cannot be told now, by PCI address.
    pub unread: Vec<Unread>,
    /// What is not known of cards that are read otherwise, by PCI address.
    pub unanswered: Vec<Unanswered>,
    /// What vfleet itself wrote down about PFs, by PCI address. May name a PF that is no longer there.
    pub records: Vec<Record>,
    /// The kernel, and how it is started.
    pub kernel: KernelFacts,
    /// Those of the files in [`crate::files`] that are there, by path (as seen from the host's own root): their text.
    pub files: BTreeMap<String, String>,
    /// Units of systemd in [`crate::files::UNITS`] that are started at boot.
    pub enabled_units: BTreeSet<String>,
    /// Those of them whose program runs.
    pub working_units: BTreeSet<String>,
    /// Whether the program at [`crate::files::BOOT_PROGRAM`] is the one that looks, byte by byte.
    pub has_boot_program: bool,
    /// The file of InfiniBand GUIDs, as it is written; `None` when there is none.
    pub guid_file: Option<String>,
    /// PFs whose record is there and cannot be read: nobody can tell what is ours of them. Each is [`HostFacts::unread`],
    /// which says why, whether or not the card is there.
    pub unread_records: BTreeSet<PciAddress>,
    /// Uses of PFs and VFs by the node itself that are not observed now, and protect them for a while still.
    pub lingering_uses: BTreeMap<PciAddress, LingeringUse>,
    /// When the first of these protections ends, unless the use returns.
    pub protection_ends_in: Option<Duration>,
}

impl HostFacts {
    /// The PF at `address`.
    pub fn pf(&self, address: PciAddress) -> Option<&PfFacts> {
        self.pfs.iter().find(|pf| pf.address == address)
    }

    /// Why the card at `address` cannot be read, if that is so.
    pub fn unread(&self, address: PciAddress) -> Option<&Unread> {
        self.unread.iter().find(|unread| unread.pf == address)
    }

    /// What was written down about the PF at `address`.
    pub fn record(&self, address: PciAddress) -> Option<&Record> {
        self.records.iter().find(|record| record.pf == address)
    }
}

/// A card that cannot be read now: its driver hangs, or a file of it makes no sense. Others are not affected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// The card.
    pub pf: PciAddress,
    /// What was tried, and what came of it.
    pub error: String,
    /// The same in one word, for conditions, events and metrics.
    pub reason: &'static str,
}

/// A question about a card that was asked of somebody other than the kernel, and not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unanswered {
    /// The card.
    pub pf: PciAddress,
    /// What was asked.
    pub question: Question,
    /// What was tried, and what came of it.
    pub error: String,
    /// The same in one word, for conditions, events and metrics.
    pub reason: &'static str,
}

/// What is asked of others than the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// [`PfFacts::firmware`], of a vendor's tool that is there.
    Firmware,
    /// [`PfFacts::net_filter`], of a cloud.
    Network,
}

/// A PF: a network card that can have VFs, or could if its firmware showed them.
#[derive(Clone, Debug, PartialEq)]
pub struct PfFacts {
    /// PCI address.
    pub address: PciAddress,
    /// PCI vendor id.
    pub vendor: u16,
    /// PCI device id.
    pub device: u16,
    /// Driver that it is bound to.
    pub driver: Option<String>,
    /// The NUMA node that it is near to, on a machine that has several.
    pub numa_node: Option<u16>,
    /// How many VFs it can have; 0 while its firmware shows none.
    pub total_vfs: u16,
    /// Whether the kernel binds its VFs to a driver by itself when they appear.
    pub drivers_autoprobe: bool,
    /// Mode of its embedded switch. None: there is no switch. Unknown: its driver does not tell, as mlx5 before Linux 6.0
    /// while there are no VFs.
    pub eswitch: Fact<EswitchMode>,
    /// Whether traffic control may be offloaded to it (`hw-tc-offload`); `None` when that cannot be switched.
    pub tc_offload: Option<bool>,
    /// Its RDMA device.
    pub rdma: Option<RdmaFacts>,
    /// Settings of its firmware, where a tool told.
    pub firmware: Option<FirmwareFacts>,
    /// A hypervisor gave it: it is a VF whose PF is not on this machine. [`PfFacts::vfs`] has the card itself then.
    pub is_lone_vf: bool,
    /// The network that a cloud says that it is on. Unknown while the cloud cannot be asked, or about which card.
    pub net_filter: Fact<String>,
    /// Its network interface, when a kernel driver made one in the host's own network namespace.
    pub link: Option<LinkFacts>,
    /// The VFs that it has, by index, without gaps.
    pub vfs: Vec<VfFacts>,
}

/// A VF.
#[derive(Clone, Debug, PartialEq)]
pub struct VfFacts {
    /// Its index on the PF.
    pub index: u16,
    /// PCI address.
    pub address: PciAddress,
    /// PCI vendor id.
    pub vendor: u16,
    /// PCI device id.
    pub device: u16,
    /// Driver that it is bound to.
    pub driver: Option<String>,
    /// The address that the PF keeps for it; zero when none was ever set, `None` when the PF keeps none.
    pub admin_mac: Option<MacAddr>,
    /// The node GUID that the PF keeps for it, on InfiniBand; `None` when the kernel does not tell.
    pub admin_guid: Option<Guid>,
    /// Its RDMA device, when a driver made one.
    pub rdma: Option<RdmaFacts>,
    /// The vDPA device made of it.
    pub vdpa: Option<VdpaKind>,
    /// Name of the interface that stands for it on the embedded switch.
    pub representor: Option<String>,
    /// Its network interface, when a kernel driver made one and it is in the host's own network namespace (a pod
    /// may hold it).
    pub link: Option<LinkFacts>,
}

/// An RDMA device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RdmaFacts {
    /// Its name.
    pub device: String,
    /// Its node GUID; zero when it has none.
    pub node_guid: Guid,
    /// GUID of its first port, which an IPoIB interface has at the end of its hardware address; `None` when it has none.
    pub port_guid: Option<Guid>,
}

/// Mode of an embedded switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EswitchMode {
    /// The card forwards by address and VLAN alone.
    Legacy,
    /// Each VF has a representor, and software decides.
    Switchdev,
}

impl EswitchMode {
    /// As the API and devlink spell it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Switchdev => "switchdev",
        }
    }
}

/// Which driver a vDPA device is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VdpaKind {
    /// To a network interface of the kernel (`virtio_vdpa`).
    Virtio,
    /// To a character device for programs (`vhost_vdpa`).
    Vhost,
}

impl VdpaKind {
    /// As the API spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Virtio => "virtio",
            Self::Vhost => "vhost",
        }
    }

    /// The driver on the vDPA bus, which is also its module.
    pub const fn driver(self) -> &'static str {
        match self {
            Self::Virtio => "virtio_vdpa",
            Self::Vhost => "vhost_vdpa",
        }
    }
}
