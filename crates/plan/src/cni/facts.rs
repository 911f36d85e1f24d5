//! Facts for one attachment: the device, the namespace of the pod, and who holds the device.

mod ovs;
mod settings;
mod switch;

use core::fmt;

use serde::{Deserialize, Serialize};
use vfleet_api::{Guid, MacAddr, PciAddress, VfRef};

pub use ovs::{
    INTERFACE_KEY, NAMESPACE_KEY, OVS_OWNER, OWNER_KEY, OvsSocket, OvsSwitchBridge, OvsSwitchFacts,
    OvsSwitchInterface, OvsSwitchMirror, OvsSwitchPort, POD_UID_KEY,
};
pub use settings::{LinkState, VfSettings, VfVlan, VlanProtocol};
pub use switch::{
    BondFacts, BridgeVlan, FileFacts, PeerFacts, Representor, SwitchBridge, SwitchFacts, SwitchPort,
    SwitchQuery, UplinkFacts, UplinkVlans, VdpaDeviceFacts,
};

use super::journal::Journal;
use crate::prelude::*;

/// Facts that an ADD, DEL or CHECK for one device is decided on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttachmentFacts {
    /// The device; `None` for an attachment without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceFacts>,
    /// The switch side; `None` for plugins that have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch: Option<SwitchFacts>,
    /// The namespace of the pod.
    pub namespace: NamespaceFacts,
    /// Mode of namespaces of the RDMA subsystem: RDMA devices belong to single namespaces. False without RDMA.
    pub has_exclusive_rdma: bool,
    /// Other attachments of the device: of our journals, and of the Go plugin.
    pub holders: Vec<HolderFacts>,
    /// Interfaces of the host's namespace by name and by alternative name, except those of the device itself.
    pub host_names: BTreeSet<String>,
    /// Current boot of the machine. Settings of a VF and names of interfaces do not survive a boot.
    pub boot_id: String,
}

/// Facts of the PCI function of an attachment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceFacts {
    /// PCI address.
    pub address: PciAddress,
    /// The device exists.
    pub exists: bool,
    /// Driver.
    pub driver: Option<String>,
    /// PF of the device; `None` if the device is no VF.
    pub pf: Option<ParentPf>,
    /// Interface of the device in the namespace of the host.
    pub link: Option<InterfaceFacts>,
    /// Names of the RDMA devices of the device that the namespace of the host shows.
    pub rdma: Vec<String>,
}

impl DeviceFacts {
    /// Returns whether a part of the device is in the namespace of the host.
    pub fn has(&self, part: DevicePart) -> bool {
        match part {
            DevicePart::Interface => self.link.is_some(),
            DevicePart::RdmaDevice => !self.rdma.is_empty(),
        }
    }

    /// Returns whether the driver of the device is for userspace programs, so that there is no interface.
    pub fn is_for_userspace(&self) -> bool {
        self.driver.as_deref().is_some_and(crate::is_userspace_driver)
    }
}

/// Part of a device that is in one network namespace at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DevicePart {
    /// Its interface.
    Interface,
    /// Its RDMA device, in the exclusive mode of the RDMA subsystem.
    RdmaDevice,
}

impl fmt::Display for DevicePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Interface => "interface",
            Self::RdmaDevice => "RDMA device",
        })
    }
}

/// PF of a VF, with the settings that it stores for the VF.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ParentPf {
    /// The VF as the PF counts it.
    pub vf: VfRef,
    /// Name of the PF's interface.
    pub name: String,
    /// Index of the PF's interface.
    pub index: u32,
    /// MTU of the PF's interface.
    pub mtu: u32,
    /// The PF's interface is administratively up.
    pub is_up: bool,
    /// Settings of the VF; `None` if the driver reports none for it.
    pub settings: Option<VfSettings>,
}

/// Interface in some namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InterfaceFacts {
    /// Index.
    pub index: u32,
    /// Name.
    pub name: String,
    /// Alternative names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alt_names: Vec<String>,
    /// Hardware address: 6 bytes of Ethernet, 20 bytes of InfiniBand.
    pub address: Vec<u8>,
    /// MTU.
    pub mtu: u32,
    /// Lowest MTU that the driver accepts, if the kernel reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_mtu: Option<u32>,
    /// Highest MTU that the driver accepts, if the kernel reports it (0 is no limit, and is `None` here).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_mtu: Option<u32>,
    /// The interface is administratively up.
    pub is_up: bool,
    /// PCI function of the interface; `None` for a virtual one, and if the kernel does not report it (before 5.14).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<PciAddress>,
    /// IP addresses with the length of their prefix, as `192.0.2.7/24`, without link-local ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<String>,
}

impl InterfaceFacts {
    /// Returns whether the interface has `name` as its name or an alternative name.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.alt_names.iter().any(|alt_name| alt_name == name)
    }

    /// Returns the MAC address of an Ethernet interface.
    pub fn mac(&self) -> Option<MacAddr> {
        self.address.as_slice().try_into().ok().map(MacAddr)
    }

    /// Returns the GUID of an InfiniBand interface: the last 8 bytes of its hardware address.
    pub fn guid(&self) -> Option<Guid> {
        let (_, guid) = self.address.split_last_chunk().filter(|_| self.is_infiniband())?;
        Some(Guid(*guid))
    }

    /// Returns whether this is an InfiniBand interface.
    pub fn is_infiniband(&self) -> bool {
        self.address.len() == 20
    }
}

/// Identity of a network namespace, which distinguishes it from a later one at the same path during one boot. Compare
/// identities with [`NamespaceId::is_same`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceId {
    /// Device of the namespace file.
    pub device: u64,
    /// Inode of the namespace file. That of a deleted namespace is used again.
    pub inode: u64,
    /// Number that the kernel gives to no later namespace; `None` if it is unknown (kernels before 5.14, journals of
    /// earlier versions).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cookie: Option<u64>,
}

impl NamespaceId {
    /// Identity of no namespace, for an attachment whose namespace is unknown.
    pub const NONE: Self = Self { device: 0, inode: 0, cookie: None };

    /// Returns whether both identities are of one namespace, as far as both are known.
    pub fn is_same(&self, other: &Self) -> bool {
        let has_other_cookie = self.cookie.zip(other.cookie).is_some_and(|(one, other)| one != other);
        (self.device, self.inode) == (other.device, other.inode) && !has_other_cookie
    }
}

/// Network namespace of a pod that is open or was open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Namespace {
    /// Path, as the runtime gave it.
    pub path: String,
    /// Identity.
    pub id: NamespaceId,
}

/// Facts of the namespace of a pod.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "state")]
pub enum NamespaceFacts {
    /// The runtime named none.
    NotGiven,
    /// There is no namespace at the path, or another one than the attachment had, or the machine was booted since.
    Gone,
    /// The path exists, but it could not be determined whether it still is the namespace.
    Unknown {
        /// Reason.
        reason: String,
    },
    /// The namespace exists.
    Present {
        /// The namespace.
        namespace: Namespace,
        /// It is the namespace of this process, which no container may have.
        is_own: bool,
        /// All its interfaces.
        links: Vec<InterfaceFacts>,
        /// RDMA devices that it shows.
        rdma: Vec<String>,
    },
}

impl NamespaceFacts {
    /// Returns the path of a namespace that exists.
    pub fn path(&self) -> Option<&str> {
        match self {
            Self::Present { namespace, .. } => Some(&namespace.path),
            Self::NotGiven | Self::Gone | Self::Unknown { .. } => None,
        }
    }
}

/// Attachment that holds a device.
#[expect(clippy::large_enum_variant, reason = "a device has at most a few holders")]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "kind")]
pub enum HolderFacts {
    /// Attachment of ours.
    Journal {
        /// Journal.
        journal: Journal,
        /// State of its namespace.
        namespace: HolderNamespace,
    },
    /// Allocation of the Go plugin, which names only the path of a namespace.
    GoAllocation {
        /// Path of the namespace.
        path: String,
        /// State of the namespace.
        namespace: HolderNamespace,
    },
}

/// State of the namespace of a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HolderNamespace {
    /// It still exists.
    Alive,
    /// It does not exist any more.
    Gone,
    /// It could not be determined.
    Unknown,
}
