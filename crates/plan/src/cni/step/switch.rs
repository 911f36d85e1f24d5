//! Steps on the switch side of an attachment: veth pairs, representors, ports of software bridges, mirrors.

mod text;

pub(in crate::cni) use text::{BridgeVlans, Ranges};

use core::time::Duration;

use serde::{Deserialize, Serialize};
use vfleet_api::{MacAddr, PciAddress};

use crate::cni::facts::{BridgeVlan, Namespace, OvsSocket, Representor};
use crate::prelude::*;

/// One change on the switch side of an attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SwitchStep {
    /// Creates a veth pair, both ends down: one on the host, the other one in the namespace of a pod. A pair that exists
    /// with these names and MACs stays; another interface of one of the names is an error.
    CreateVeth {
        /// Name of the end on the host.
        host_name: String,
        /// MAC of the end on the host.
        host_mac: MacAddr,
        /// Namespace of the pod.
        namespace: Namespace,
        /// Name of the end in the pod.
        name: String,
        /// MAC of the end in the pod.
        mac: MacAddr,
        /// MTU of both ends.
        mtu: u32,
    },
    /// Deletes a veth pair by its end on the host. An interface of this name that is no veth, or has another MAC than the
    /// one given, is left alone, and so is one that does not exist.
    DeleteVeth {
        /// Name of the end on the host.
        host_name: String,
        /// MAC of the end on the host, if it is known.
        host_mac: Option<MacAddr>,
    },
    /// Deletes a veth pair by its end in the namespace of a pod. An interface of this name that is no veth is left alone,
    /// and so is one that does not exist.
    DeleteVethInPod {
        /// Namespace of the pod.
        namespace: Namespace,
        /// Name of the end in the pod.
        name: String,
    },
    /// Sets an interface of the host up: the end of a veth pair.
    SetHostInterfaceUp {
        /// Name.
        name: String,
    },
    /// Configures the representor of a VF.
    SetRepresentor {
        /// Representor.
        representor: Representor,
        /// MTU to set.
        mtu: Option<u32>,
        /// Sets it administratively up or down.
        is_up: Option<bool>,
    },
    /// Sets the MTU of the interface of a device in the host's namespace.
    SetDeviceMtu {
        /// The device.
        device: PciAddress,
        /// MTU.
        mtu: u32,
    },
    /// Sets the MAC of a vDPA device.
    SetVdpaMac {
        /// VF of the vDPA device.
        device: PciAddress,
        /// Name of the vDPA device.
        name: String,
        /// MAC.
        mac: MacAddr,
    },
    /// Adds a port with one interface of the same name to a bridge of Open vSwitch in one transaction, and waits until
    /// ovs-vswitchd has configured the interface. A port that exists on the bridge with the same `external_ids` gets the
    /// settings; any other port or interface of the name is an error, and so is an error of ovs-vswitchd.
    AddOvsPort {
        /// Open vSwitch.
        socket: OvsSocket,
        /// Name of the bridge.
        bridge: String,
        /// Port.
        port: OvsPort,
    },
    /// Removes a port from Open vSwitch, from whichever bridge has it, if its `external_ids` have all these entries. Any
    /// other port of the name is left alone.
    RemoveOvsPort {
        /// Open vSwitch.
        socket: OvsSocket,
        /// Name of the port.
        name: String,
        /// Entries of `external_ids`, the owner among them.
        external_ids: BTreeMap<String, String>,
    },
    /// Waits until Open vSwitch reports that the link of an interface is up. It is an error if it is not within the limit.
    AwaitOvsLink {
        /// Open vSwitch.
        socket: OvsSocket,
        /// Name of the interface.
        name: String,
        /// Limit.
        limit: Duration,
    },
    /// Adds a port to a mirror of a bridge of Open vSwitch. A mirror that does not exist is created, with the owner of
    /// the CNI plugins. A mirror that has another output than the port is an error for a consumer.
    AttachMirror {
        /// Open vSwitch.
        socket: OvsSocket,
        /// Name of the bridge.
        bridge: String,
        /// Name of the mirror.
        mirror: String,
        /// Name of the port.
        port: String,
        /// Part of the port.
        role: MirrorRole,
    },
    /// Takes a port out of a mirror of a bridge of Open vSwitch. A mirror of the CNI plugins that nothing uses any more is
    /// removed.
    DetachMirror {
        /// Open vSwitch.
        socket: OvsSocket,
        /// Name of the bridge.
        bridge: String,
        /// Name of the mirror.
        mirror: String,
        /// Name of the port.
        port: String,
        /// Part of the port.
        role: MirrorRole,
    },
    /// Removes a mirror of the CNI plugins from a bridge of Open vSwitch, if nothing uses it.
    RemoveUnusedMirror {
        /// Open vSwitch.
        socket: OvsSocket,
        /// Name of the bridge.
        bridge: String,
        /// Name of the mirror.
        mirror: String,
    },
    /// Attaches the representor of a VF to a Linux bridge as a port. With `vlans` it has these VLANs afterwards and no others;
    /// without, those that the bridge gives to a new port.
    AttachBridgePort {
        /// Representor.
        representor: Representor,
        /// Name of the bridge.
        bridge: String,
        /// VLANs, by their IDs.
        vlans: Option<Vec<BridgeVlan>>,
    },
    /// Takes the representor of a VF out of a Linux bridge, if it is a port of it.
    DetachBridgePort {
        /// Representor.
        representor: Representor,
        /// Name of the bridge.
        bridge: String,
    },
    /// Adds tagged VLANs to the uplink of a Linux bridge. Those that it has stay as they are.
    AddUplinkVlans {
        /// Name of the uplink.
        uplink: String,
        /// IDs.
        vlans: BTreeSet<u16>,
    },
    /// Removes VLANs from the uplink of a Linux bridge.
    RemoveUplinkVlans {
        /// Name of the uplink.
        uplink: String,
        /// IDs.
        vlans: BTreeSet<u16>,
    },
    /// Replaces a device-info file, which everybody may read and nobody write (mode 0444).
    WriteDeviceInfo {
        /// Path.
        path: String,
        /// Content.
        content: String,
    },
}

/// Port of Open vSwitch with one interface of the same name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OvsPort {
    /// Name of port and interface.
    pub name: String,
    /// VLANs.
    pub vlans: OvsVlans,
    /// `external_ids` of the port.
    pub external_ids: BTreeMap<String, String>,
    /// Type of the interface.
    pub interface_type: Option<String>,
    /// `external_ids` of the interface.
    pub interface_ids: BTreeMap<String, String>,
    /// Requested number of the OpenFlow port.
    pub ofport_request: Option<u32>,
}

/// VLANs of a port of Open vSwitch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OvsVlans {
    /// Access port of one VLAN.
    Access(u16),
    /// Trunk port of these VLANs; of all if there are none.
    Trunk(BTreeSet<u16>),
}

impl Default for OvsVlans {
    fn default() -> Self {
        Self::Trunk(BTreeSet::new())
    }
}

impl OvsVlans {
    /// Returns the column vlan_mode.
    pub const fn mode(&self) -> &'static str {
        match self {
            Self::Access(_) => "access",
            Self::Trunk(_) => "trunk",
        }
    }
}

/// Part of a port in a mirror of Open vSwitch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum MirrorRole {
    /// Its frames are mirrored.
    Source {
        /// Frames that the port receives from the pod (`select_src_port`).
        ingress: bool,
        /// Frames that the port sends to the pod (`select_dst_port`).
        egress: bool,
    },
    /// It gets the mirrored frames.
    Output,
}
