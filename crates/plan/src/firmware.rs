//! Settings in the firmware of Mellanox cards: a card shows as many VFs as its firmware was told to, and only after a
//! restart.

mod decide;
mod parse;

pub use decide::{FirmwareChange, FirmwareFault, MELLANOX, MOST_VFS, WantedPort, card_of, plan_port};
pub use parse::{FirmwareError, parse_query};

use core::fmt;

use crate::prelude::*;

/// What a card's firmware is set to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirmwareFacts {
    /// As it works now; all `None` when the tool does not tell.
    pub current: FirmwareSettings,
    /// As it will work after the next restart.
    pub next_boot: FirmwareSettings,
}

/// Settings of a card's firmware; `None` for one that the card does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FirmwareSettings {
    /// `SRIOV_EN`.
    pub sriov: Option<bool>,
    /// `NUM_OF_VFS`, for each port.
    pub num_vfs: Option<u16>,
    /// `LINK_TYPE_P1` and `LINK_TYPE_P2`, by port.
    pub link_types: [Option<FirmwareLinkType>; 2],
}

/// What a port speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FirmwareLinkType {
    Ethernet,
    Infiniband,
    /// The port finds out by itself, or something that we do not know: as the tool writes it.
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
