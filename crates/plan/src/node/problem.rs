//! What is wanted and cannot be.

use core::fmt;

use thiserror::Error;
use vfleet_api::{Invalid, PciAddress, SriovNetworkNodeStateSpec, VfRange};

use crate::prelude::*;

/// Something that is wanted of a node and cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The PF that it is about; `None` for the whole node.
    pub pf: Option<PciAddress>,
    /// The PF's name for people, where it is known.
    pub name: Option<String>,
    /// The policies that want it.
    pub policies: Vec<String>,
    /// Why it cannot be.
    pub cause: Cause,
}

impl Problem {
    /// One of the whole node, that no policy in particular wants.
    pub(crate) fn of_the_node(cause: Cause) -> Self {
        Self { pf: None, name: None, policies: Vec::new(), cause }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.pf, &self.name) {
            (Some(pf), Some(name)) => write!(f, "{name} ({pf}): ")?,
            (Some(pf), None) => write!(f, "{pf}: ")?,
            (None, _) => {}
        }
        write!(f, "{}", self.cause)?;
        match self.policies.as_slice() {
            [] => Ok(()),
            [one] => write!(f, " (policy {one})"),
            several => write!(f, " (policies {})", several.join(", ")),
        }
    }
}

/// Why something cannot be. The text says what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Cause {
    #[error("{0}; correct the node state or let the operator write it anew")]
    Unreadable(Invalid),
    #[error("there is no such network card on this node that can have VFs")]
    NoSuchPf,
    #[error(
        "the card has no network interface: is its driver loaded, and is the interface in the host's own network namespace?"
    )]
    NoLink,
    #[error("{asked} VFs are wanted, but the card can have at most {total}: lower numVfs")]
    TooManyVfs { asked: i64, total: u16 },
    #[error(
        "{asked} VFs are wanted on a PF that is managed outside, but it has {found}: create them there, or lower numVfs"
    )]
    TooFewVfs { asked: u16, found: usize },
    #[error(
        "MTU {asked} is wanted on a PF that is managed outside, but it has {found}: raise it there, or lower mtu"
    )]
    ExternalMtu { asked: u32, found: u32 },
    #[error("MTU {asked} is wanted, but the card takes at most {max}: lower mtu")]
    MtuTooHigh { asked: u32, max: u32 },
    #[error("{value} is not a possible {what}")]
    OutOfRange { what: &'static str, value: i64 },
    #[error("VFs {range} are wanted, but numVfs is {count}: raise numVfs or lower the range")]
    RangeBeyondCount { range: VfRange, count: u16 },
    #[error("link type {asked} is wanted, but the port is {found}")]
    LinkType { asked: String, found: &'static str },
    #[error("{0} is not supported by this version of vfleet")]
    Unsupported(&'static str),
    #[error("device type {0:?} is not known: netdevice and vfio-pci are")]
    DeviceType(String),
    #[error("at boot: {error}")]
    BootFailed { error: String },
    #[error(
        "the cards are not configured yet: see `systemctl status sriov-config-post-network.service` if this lasts"
    )]
    BootUnfinished,
    #[error(
        "the machine is not any more as the units of systemd left it, which takes a restart to mend ({step}): restart the node"
    )]
    ChangedSinceBoot { step: String },
    #[error(
        "the machine was restarted {restarts} times, but the units of systemd left no result: see `journalctl -b -u sriov-config.service`, then restart the node"
    )]
    UnitsDidNotRun { restarts: u32 },
}

impl Cause {
    /// In one word, for conditions, events and metrics.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Unreadable(_) | Self::OutOfRange { .. } | Self::DeviceType(_) => "InvalidSpec",
            Self::NoSuchPf => "NoSuchDevice",
            Self::NoLink => "NoInterface",
            Self::TooManyVfs { .. } => "TooManyVfs",
            Self::TooFewVfs { .. } => "TooFewVfs",
            Self::ExternalMtu { .. } | Self::MtuTooHigh { .. } => "MtuNotPossible",
            Self::RangeBeyondCount { .. } => "VfRangeNotPossible",
            Self::LinkType { .. } => "LinkTypeNotPossible",
            Self::Unsupported(_) => "Unsupported",
            Self::BootFailed { .. } => "BootFailed",
            Self::BootUnfinished => "BootUnfinished",
            Self::ChangedSinceBoot { .. } => "ChangedSinceBoot",
            Self::UnitsDidNotRun { .. } => "UnitsDidNotRun",
        }
    }
}

/// Parts of the API that the planner does not know yet. Saying so beats doing half of it.
pub(super) fn unsupported(spec: &SriovNetworkNodeStateSpec) -> Vec<Problem> {
    let mut found = Vec::new();
    if spec.bridges.as_ref().is_some_and(|bridges| {
        bridges.ovs.as_ref().is_some_and(|list| !list.is_empty())
            || bridges.linux.as_ref().is_some_and(|list| !list.is_empty())
    }) {
        found.push("a software bridge");
    }
    if spec.system.as_ref().is_some_and(|system| system.rdma_mode.is_some()) {
        found.push("rdmaMode");
    }
    found
        .into_iter()
        .map(|what| Problem { pf: None, name: None, policies: Vec::new(), cause: Cause::Unsupported(what) })
        .collect()
}
