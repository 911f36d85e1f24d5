//! Facts of the switch side of an attachment: the representor of a VF, the uplinks of its card, software bridges, and other
//! attachments that share them.

use serde::{Deserialize, Serialize};
use vfleet_api::{MacAddr, PciAddress, VfRef};

use super::ovs::{OvsSocket, OvsSwitchFacts};
use super::HolderNamespace;
use crate::cni::journal::{DeviceChanges, Journal, Phase, Plugin};
use crate::facts::Master;
use crate::prelude::*;

/// Subject of a read of [`SwitchFacts`]. Nothing else is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SwitchQuery {
    /// VF whose representor, uplinks and vDPA devices are read; `None` for veth pairs and mirrors.
    pub device: Option<PciAddress>,
    /// Open vSwitch whose database is read.
    pub ovs: Option<OvsSocket>,
    /// All Linux bridges are read, and the VLANs of their ports.
    pub with_linux_bridges: bool,
    /// The vDPA devices of the VF are read.
    pub with_vdpa: bool,
    /// Interfaces of the host that are read by their names.
    pub interfaces: BTreeSet<String>,
    /// Plugin whose other attachments are read.
    pub peers_of: Option<Plugin>,
    /// Device-info file that is read.
    pub device_info: Option<String>,
}

/// Facts of the switch side of an attachment, as far as the query asks for them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SwitchFacts {
    /// The eswitch of the PF is in switchdev mode. False without a VF.
    pub is_switchdev: bool,
    /// Representor of the VF, found by its port (devlink, `phys_port_name`); `None` if there is none.
    pub representor: Option<SwitchPort>,
    /// Interfaces by which the PF of the VF reaches the network; `None` if the PF has no interface.
    pub uplink: Option<UplinkFacts>,
    /// vDPA devices of the VF.
    pub vdpa: Vec<VdpaDeviceFacts>,
    /// Open vSwitch; `None` if it was not asked for.
    pub ovs: Option<OvsSwitchFacts>,
    /// Linux bridges, by name.
    pub linux_bridges: Vec<SwitchBridge>,
    /// Interfaces of the host that were asked for and exist, by name.
    pub interfaces: Vec<SwitchPort>,
    /// Other attachments of the plugin since the machine was booted, of our journals and of the caches of the Go plugin.
    pub peers: Vec<PeerFacts>,
    /// Device-info file; `None` if it was not asked for.
    pub device_info: Option<FileFacts>,
}

impl SwitchFacts {
    /// Returns the Linux bridge with this name.
    pub fn linux_bridge(&self, name: &str) -> Option<&SwitchBridge> {
        self.linux_bridges.iter().find(|bridge| bridge.name == name)
    }

    /// Returns whether a port of Open vSwitch may be left over by a pod that is gone, so that other attachments matter.
    pub fn may_have_stale_ports(&self) -> bool {
        let Some(OvsSwitchFacts::Running { bridges }) = &self.ovs else { return false };
        let mut ports = bridges.iter().flat_map(|bridge| &bridge.ports);
        ports.any(|port| port.is_owned() && port.namespace == Some(HolderNamespace::Gone))
    }

    /// Returns the interface of the host with this name, if it was asked for and exists.
    pub fn interface(&self, name: &str) -> Option<&SwitchPort> {
        self.interfaces.iter().find(|interface| interface.name == name)
    }
}

/// Interface of the host that is a port of a software bridge, or may become one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SwitchPort {
    /// Index.
    pub index: u32,
    /// Name.
    pub name: String,
    /// Kind in the kernel (`veth`, `bond`, `bridge`); empty for an interface of a device.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// MAC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddr>,
    /// MTU.
    pub mtu: u32,
    /// Highest MTU that the driver accepts, if the kernel reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_mtu: Option<u32>,
    /// The interface is administratively up.
    pub is_up: bool,
    /// Interface of which it is a port or member.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub master: Option<Master>,
    /// VLANs as a port of a Linux bridge, by their IDs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vlans: Vec<BridgeVlan>,
}

/// VLAN of a port of a Linux bridge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BridgeVlan {
    /// ID.
    pub id: u16,
    /// Frames without a tag that enter the bridge belong to this VLAN (`pvid`).
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub is_native: bool,
    /// Frames of this VLAN leave the bridge without a tag.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub is_untagged: bool,
}

impl BridgeVlan {
    /// Returns a VLAN whose frames are tagged.
    pub const fn tagged(id: u16) -> Self {
        Self { id, is_native: false, is_untagged: false }
    }

    /// Returns the VLAN of frames without a tag.
    pub const fn native(id: u16) -> Self {
        Self { id, is_native: true, is_untagged: true }
    }
}

/// Uplinks of a card: the interface of the PF, or the bond that it is a member of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UplinkFacts {
    /// Interface of the PF itself: never a representor of a VF.
    pub pf: SwitchPort,
    /// Bond of which the PF is a member.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bond: Option<BondFacts>,
}

impl UplinkFacts {
    /// Returns the interface that is the port of a software bridge: the bond, else the PF.
    pub fn port(&self) -> &SwitchPort {
        self.bond.as_ref().map_or(&self.pf, |bond| &bond.port)
    }
}

/// Bond of PFs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BondFacts {
    /// Interface of the bond.
    pub port: SwitchPort,
    /// Names of all its members, sorted.
    pub members: Vec<String>,
}

/// vDPA device of a VF.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VdpaDeviceFacts {
    /// Name.
    pub name: String,
    /// Driver on the bus of vDPA devices: `vhost_vdpa`, `virtio_vdpa`.
    pub driver: Option<String>,
    /// MAC; `None` if it cannot be read.
    pub mac: Option<MacAddr>,
    /// MTU; `None` if it cannot be read.
    #[serde(default)]
    pub mtu: Option<u32>,
}

/// Linux bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SwitchBridge {
    /// Name.
    pub name: String,
    /// VLAN filtering is enabled.
    pub filters_vlans: bool,
}

/// Other attachment of the same plugin on the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PeerFacts {
    /// ID of the container.
    pub container_id: String,
    /// Name of the interface in the container.
    pub interface: String,
    /// Path of the namespace of the pod; empty if unknown, for an attachment of a Go plugin.
    #[serde(default)]
    pub namespace: String,
    /// Progress.
    pub phase: Phase,
    /// VLANs of the attachment on an uplink.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uplink: Option<UplinkVlans>,
}

impl PeerFacts {
    /// Returns the attachment of a journal.
    pub fn of_journal(journal: &Journal) -> Self {
        let uplink = match &journal.changes {
            DeviceChanges::AcceleratedBridge(changes) => changes.uplink.clone(),
            _ => None,
        };
        Self {
            container_id: journal.key.container_id.clone(),
            interface: journal.key.interface.clone(),
            namespace: journal.namespace.path.clone(),
            phase: journal.phase,
            uplink,
        }
    }
}

/// VLANs that an attachment needs on an uplink of a Linux bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UplinkVlans {
    /// Index of the uplink; 0 if unknown, for an attachment of the Go plugin.
    pub index: u32,
    /// Name of the uplink; that of the PF for an attachment of the Go plugin.
    pub name: String,
    /// VLANs that the attachment needs.
    pub needed: BTreeSet<u16>,
    /// VLANs among them that an attachment has added: the last one that needs such a VLAN removes it.
    pub added: BTreeSet<u16>,
}

/// Small file of the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "state")]
pub enum FileFacts {
    /// It does not exist.
    Missing {
        /// Path.
        path: String,
    },
    /// It cannot be read.
    Unreadable {
        /// Path.
        path: String,
        /// Reason.
        reason: String,
    },
    /// It exists.
    Present {
        /// Path.
        path: String,
        /// Content.
        content: String,
    },
}

/// Representor of a VF in a step: the interface with this name, which must represent this VF.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Representor {
    /// The VF.
    pub vf: VfRef,
    /// Name of the interface.
    pub name: String,
}
