use serde::{Deserialize, Serialize};
use vfleet_api::MacAddr;

use crate::prelude::*;

/// A network interface.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkFacts {
    /// Name.
    pub name: String,
    /// Alternative names.
    pub alt_names: Vec<String>,
    /// Whether udev has given it its names: until then they are the kernel's, and others a moment later.
    pub is_named: bool,
    /// What it speaks.
    pub kind: LinkKind,
    /// Its Ethernet address.
    pub mac: Option<MacAddr>,
    /// The Ethernet address that the hardware came with, where the driver tells.
    pub permanent_mac: Option<MacAddr>,
    /// MTU.
    pub mtu: u32,
    /// The highest MTU that its driver takes, if it says.
    pub max_mtu: Option<u32>,
    /// Whether it is set up.
    pub admin_up: bool,
    /// Speed in Mbit/s, while there is a carrier.
    pub speed: Option<u32>,
    /// Which switch it is a port of (`phys_switch_id`), and which port (`phys_port_name`), in switchdev mode.
    pub switch_port: Option<(String, String)>,
    /// Use by the node itself that is observed now: of the interface, or of a bond, bridge, VLAN... on top of it.
    pub host_use: Option<HostUse>,
}

/// Why an interface must not be disturbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HostUse {
    /// A default route leads through it.
    DefaultRoute,
    /// It carries an address that the node is known by.
    NodeAddress,
    /// A session with a storage server leads through it.
    Storage,
    /// It carries another address that means something beyond the link.
    Address,
}

impl HostUse {
    /// For people.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DefaultRoute => "the default route",
            Self::NodeAddress => "the node's own address",
            Self::Storage => "an iSCSI or NVMe session",
            Self::Address => "an IP address",
        }
    }
}

/// What an interface speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LinkKind {
    /// Ethernet.
    Ethernet,
    /// InfiniBand.
    Infiniband,
    /// Anything else, by the kernel's number (ARPHRD).
    Other(u16),
}

impl LinkKind {
    /// As a node state spells it; empty for what it has no word for.
    pub const fn as_api(self) -> &'static str {
        match self {
            Self::Ethernet => "ETH",
            Self::Infiniband => "IB",
            Self::Other(_) => "",
        }
    }
}
