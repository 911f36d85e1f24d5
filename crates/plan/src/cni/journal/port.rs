//! Changes of the plugins that attach pods to software bridges.

use serde::{Deserialize, Serialize};
use vfleet_api::{MacAddr, VfRef};

use super::VfChanges;
use crate::cni::facts::{BridgeVlan, OvsSocket, UplinkVlans};
use crate::cni::step::{MirrorRole, OvsVlans};
use crate::prelude::*;

/// Changes of the plugin `ovs`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OvsChanges {
    /// Open vSwitch.
    pub socket: OvsSocket,
    /// Bridge.
    pub bridge: String,
    /// Name of the port; `None` if only its `external_ids` are known, for an attachment of the Go plugin.
    pub port: Option<String>,
    /// Entries of `external_ids` by which the port is recognized.
    pub port_ids: BTreeMap<String, String>,
    /// VLANs of the port.
    pub vlans: OvsVlans,
    /// Link between the port and the pod.
    pub link: OvsLink,
}

/// Link between a port of Open vSwitch and a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "kind")]
pub enum OvsLink {
    /// Veth pair. The port is its end on the host.
    Veth {
        /// MAC of the end on the host; `None` for an attachment of the Go plugin.
        host_mac: Option<MacAddr>,
    },
    /// VF. The port is its representor.
    Vf {
        /// Changes of the VF.
        vf: VfChanges,
        /// Changes of its representor.
        representor: RepresentorChanges,
    },
    /// vDPA device of a VF, which a program in the pod uses. The port is the representor of the VF.
    Vdpa {
        /// Changes of the vDPA device.
        device: VdpaChanges,
        /// Changes of the representor.
        representor: RepresentorChanges,
    },
}

/// Changes of the representor of a VF.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RepresentorChanges {
    /// Name at ADD. It may have another one later.
    pub name: String,
    /// MTU before ADD, if ADD sets it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub original_mtu: Option<u32>,
    /// The representor was administratively up before ADD.
    pub was_up: bool,
}

/// Changes of a vDPA device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VdpaChanges {
    /// VF of the device.
    pub vf: VfRef,
    /// Name.
    pub name: String,
    /// MAC that ADD sets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddr>,
    /// MAC before ADD, if ADD sets it and it could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original_mac: Option<MacAddr>,
    /// MTU of the interface of the VF before ADD, if ADD sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original_mtu: Option<u32>,
}

/// Changes of the plugin `accelerated-bridge`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AcceleratedBridgeChanges {
    /// Linux bridge.
    pub bridge: String,
    /// VLANs of the port; `None` for those that the bridge gives to a new port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlans: Option<Vec<BridgeVlan>>,
    /// VLANs of the uplink.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uplink: Option<UplinkVlans>,
    /// Changes of the VF.
    pub vf: VfChanges,
    /// Changes of its representor.
    pub representor: RepresentorChanges,
}

/// Changes of the plugins for mirrors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MirrorChanges {
    /// Open vSwitch.
    pub socket: OvsSocket,
    /// Bridge of the mirrors; `None` if it is unknown, for an attachment of the Go plugin.
    pub bridge: Option<String>,
    /// Interfaces of the attachment, of which the first that is a port counts.
    pub ports: Vec<String>,
    /// Part of the port in each mirror, by the name of the mirror; `None` for all mirrors that the CNI plugins created, for
    /// an attachment of the Go plugin.
    pub mirrors: Option<BTreeMap<String, MirrorRole>>,
}
