use std::error::Error;

use vfleet_api::{MacAddr, PciAddress, VfRef};
use vfleet_host::{Host, HostError};

use super::seen::SeenPf;

/// Where a case is tried: a machine with two cards, each with MTU 1500 and autoprobe on, set down, and without
/// records. Neither has VFs, unless the case wants to be given some (`Case::given`): then [`Bench::pf`] has them.
pub trait Bench {
    /// The host under test.
    fn host(&self) -> &dyn Host;
    /// Another process with a host of its own on the same machine.
    fn new_host(&self) -> Box<dyn Host + '_>;
    /// The card to work on.
    fn pf(&self) -> PciAddress;
    /// The other card.
    fn other_pf(&self) -> PciAddress;
    /// Looks at the machine.
    fn witness(&self) -> &dyn Witness;
    /// Changes the machine.
    fn outsider(&self) -> &dyn Outsider;
    /// Whether changes cost milliseconds, so that a case can try all of something and not only some.
    fn is_fast(&self) -> bool;
}

/// Looks at the machine by means of its own, never through a host's facts.
pub trait Witness: Send + Sync {
    /// All cards that can have VFs.
    fn pfs(&self) -> Result<Vec<SeenPf>, Stop>;
    /// The record of a PF.
    fn record(&self, pf: PciAddress) -> Result<Option<SeenRecord>, Stop>;

    /// One card.
    fn pf(&self, pf: PciAddress) -> Result<SeenPf, Stop> {
        let found = self.pfs()?.into_iter().find(|seen| seen.address == pf);
        found.ok_or_else(|| Stop::Failed(format!("the witness sees no PF at {pf}")))
    }
}

/// A record as it is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct SeenRecord {
    /// What it says.
    pub content: serde_json::Value,
    /// Permissions of its file, where there is a file.
    pub mode: Option<u32>,
}

/// Somebody else on the machine, who has all effects when a call returns.
pub trait Outsider: Send + Sync {
    fn set_num_vfs(&self, pf: PciAddress, count: u16) -> Shown;
    fn set_autoprobe(&self, pf: PciAddress, on: bool) -> Shown;
    fn set_up(&self, pf: PciAddress, up: bool) -> Shown;
    fn set_mtu(&self, pf: PciAddress, mtu: u32) -> Shown;
    fn set_alt_name(&self, pf: PciAddress, name: &str) -> Shown;
    fn set_vf_mac(&self, vf: VfRef, mac: MacAddr) -> Shown;
    fn set_override(&self, vf: VfRef, driver: Option<&str>) -> Shown;
    fn unbind(&self, vf: VfRef) -> Shown;
    /// Gives the VF's interface another name, as udev does a moment after it appeared.
    fn rename(&self, vf: VfRef, name: &str) -> Shown;
    /// Moves the VF's interface into another network namespace, as a pod's.
    fn hold_elsewhere(&self, vf: VfRef) -> Shown;
    /// Waits until those who follow the kernel's events (udev) have finished.
    fn settle(&self) -> Shown;
}

/// The outcome of a case, or of a part of one.
pub type Shown = Result<(), Stop>;

/// Why a case ended before its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The host does not do what the contract says.
    Failed(String),
    /// It cannot be shown on this bench, and why.
    CannotShow(String),
}

impl From<HostError> for Stop {
    fn from(error: HostError) -> Self {
        Self::Failed(in_full(&error))
    }
}

/// An error with its causes.
pub fn in_full(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
