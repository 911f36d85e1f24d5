//! What a machine is like, as its kernel reports it. Nothing derived, nothing guessed: a fact that could not be
//! read is an error of the reader, never an empty value here.

use serde::{Deserialize, Serialize};
use vfleet_api::node_state::Interface;
use vfleet_api::{MacAddr, PciAddress};

use crate::prelude::*;

/// A machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostFacts {
    /// Network cards that can have VFs, by PCI address.
    pub pfs: Vec<PfFacts>,
    /// What vfleet itself wrote down about PFs, by PCI address. May name a PF that is no longer there.
    pub records: Vec<Record>,
}

impl HostFacts {
    /// The PF at `address`.
    pub fn pf(&self, address: PciAddress) -> Option<&PfFacts> {
        self.pfs.iter().find(|pf| pf.address == address)
    }

    /// What was written down about the PF at `address`.
    pub fn record(&self, address: PciAddress) -> Option<&Record> {
        self.records.iter().find(|record| record.pf == address)
    }
}

/// A PF: a network card that can have VFs.
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
    /// How many VFs it can have.
    pub total_vfs: u16,
    /// Whether the kernel binds its VFs to a driver by itself when they appear.
    pub drivers_autoprobe: bool,
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
    /// Its network interface, when a kernel driver made one and it is in the host's own network namespace (a pod
    /// may hold it).
    pub link: Option<LinkFacts>,
}

/// A network interface.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkFacts {
    /// Name.
    pub name: String,
    /// Alternative names.
    pub alt_names: Vec<String>,
    /// What it speaks.
    pub kind: LinkKind,
    /// Its Ethernet address.
    pub mac: Option<MacAddr>,
    /// MTU.
    pub mtu: u32,
    /// The highest MTU that its driver takes, if it says.
    pub max_mtu: Option<u32>,
    /// Whether it is set up.
    pub admin_up: bool,
    /// Speed in Mbit/s, while there is a carrier.
    pub speed: Option<u32>,
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

/// What vfleet writes down about a PF before it changes it, so that any later process knows what is ours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The PF.
    pub pf: PciAddress,
    /// What it was last wanted to be like.
    pub interface: Interface,
    /// What it was like before vfleet touched it.
    pub first_seen: FirstSeen,
    /// The MTU that vfleet raised it to, if it did.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub raised_mtu: Option<u32>,
    /// Its VFs are being made: whoever finds this goes on with setting them up.
    pub making: bool,
}

/// A PF before vfleet touched it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FirstSeen {
    /// MTU; absent when the PF had no interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Whether the kernel bound its VFs by itself.
    pub drivers_autoprobe: bool,
}

impl Default for FirstSeen {
    fn default() -> Self {
        Self { mtu: None, drivers_autoprobe: true }
    }
}
