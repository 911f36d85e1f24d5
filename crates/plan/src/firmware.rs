//! Firmware settings of Mellanox cards: the firmware limits the number of VFs, and new settings take effect after a
//! reset.

mod decide;
mod parse;

pub use decide::{DesiredPort, FirmwareChange, FirmwareFault, MAX_VFS, MELLANOX, card_of, plan_port};
pub use parse::{FirmwareError, parse_query};

use core::fmt;

use crate::prelude::*;

/// Firmware settings of a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirmwareFacts {
    /// Current settings; all `None` if the tool does not report them.
    pub current: FirmwareSettings,
    /// Settings after the next reset.
    pub next_boot: FirmwareSettings,
}

/// Values of firmware settings; `None` for a setting that the card does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FirmwareSettings {
    /// `SRIOV_EN`.
    pub sriov: Option<bool>,
    /// `NUM_OF_VFS`, for each port.
    pub num_vfs: Option<u16>,
    /// `LINK_TYPE_P1` and `LINK_TYPE_P2`, by port.
    pub link_types: [Option<FirmwareLinkType>; 2],
}

/// Link type of a port in the firmware.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FirmwareLinkType {
    Ethernet,
    Infiniband,
    /// Automatic or unknown type, as the tool prints it.
    Other(String),
}

impl fmt::Display for FirmwareLinkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ethernet => f.write_str("ETH"),
            Self::Infiniband => f.write_str("IB"),
            Self::Other(text) => f.write_str(text),
        }
    }
}

impl fmt::Display for FirmwareSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sriov = self.sriov.map(|on| format!("SRIOV_EN={}", if on { "True" } else { "False" }));
        let num_vfs = self.num_vfs.map(|count| format!("NUM_OF_VFS={count}"));
        let [first, second] = &self.link_types;
        let first = first.as_ref().map(|kind| format!("LINK_TYPE_P1={kind}"));
        let second = second.as_ref().map(|kind| format!("LINK_TYPE_P2={kind}"));
        let all: Vec<String> = [sriov, num_vfs, first, second].into_iter().flatten().collect();
        f.write_str(&all.join(" "))
    }
}
