use serde::{Deserialize, Serialize};
use vfleet_api::MacAddr;

use crate::prelude::*;

/// Facts of a network interface.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkFacts {
    /// Name of the interface.
    pub name: String,
    /// Alternative names of the interface.
    pub alt_names: Vec<String>,
    /// udev has named the interface. Before that it has the kernel's names, which are about to change.
    pub is_named: bool,
    /// Link type.
    pub kind: LinkKind,
    /// Ethernet address.
    pub mac: Option<MacAddr>,
    /// Permanent Ethernet address of the hardware, if the driver reports it.
    pub permanent_mac: Option<MacAddr>,
    /// MTU.
    pub mtu: u32,
    /// Maximum MTU, if the driver reports it.
    pub max_mtu: Option<u32>,
    /// The interface is administratively up.
    pub admin_up: bool,
    /// The interface is up and has a carrier.
    pub has_carrier: bool,
    /// Speed in Mbit/s while there is a carrier, if the driver reports it.
    pub speed: Option<u32>,
    /// Switch (`phys_switch_id`) and port (`phys_port_name`) of the interface, in switchdev mode.
    pub switch_port: Option<(String, String)>,
    /// Interface that this one is a port or member of.
    pub master: Option<Master>,
    /// Observed use by the node: of the interface, or of a bond, bridge or VLAN on top of it.
    pub host_use: Option<HostUse>,
    /// Use that is possible while it is not known which cards a used bridge of Open vSwitch has. It protects as an
    /// observed one does, until the members of the bridge are known.
    pub possible_use: Option<HostUse>,
}

/// Interface that has others as ports or members: a bridge or a bond.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Master {
    /// Name of the interface.
    pub name: String,
    /// Kind of its ports in the kernel: `bridge`, `bond`, `openvswitch`; empty if the kernel does not report it.
    pub kind: String,
}

/// Use of an interface by the node, which must not be disturbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HostUse {
    /// A default route uses the interface.
    DefaultRoute,
    /// The interface has an address of the node.
    NodeAddress,
    /// A session with a storage server uses the interface.
    Storage,
    /// The interface has another address that is valid beyond the link.
    Address,
}

impl HostUse {
    /// Returns the text for messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DefaultRoute => "the default route",
            Self::NodeAddress => "the node's own address",
            Self::Storage => "an iSCSI or NVMe session",
            Self::Address => "an IP address",
        }
    }
}

/// Link type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LinkKind {
    /// Ethernet.
    Ethernet,
    /// InfiniBand.
    Infiniband,
    /// Other type, by the kernel's number (ARPHRD).
    Other(u16),
}

impl LinkKind {
    /// Returns the name that node states use; empty for other types.
    pub const fn as_api(self) -> &'static str {
        match self {
            Self::Ethernet => "ETH",
            Self::Infiniband => "IB",
            Self::Other(_) => "",
        }
    }
}
