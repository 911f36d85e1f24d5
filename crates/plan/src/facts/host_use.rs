//! What the node itself uses, now and a little while ago.
//!
//! A default route or an address that is away for a moment (`netplan apply`, `nmcli con up`, a router advertisement that
//! expires) is not one that is gone. A use is therefore remembered, and ends when it was absent for long: counted in
//! the machine's own time since its start, so that no clock that is set ends it, and anew after each start.

use alloc::boxed::Box;
use core::fmt;
use core::time::Duration;

use serde::{Deserialize, Serialize};
use vfleet_api::PciAddress;

use super::{HostFacts, HostUse, LinkFacts};
use crate::drain::Moment;
use crate::prelude::*;

/// How long a use must be absent before its protection ends, unless somebody says otherwise: longer than a network
/// service takes to start again, and to wait for an address in vain.
pub const PROTECTION: Duration = Duration::from_mins(5);

/// The machine's clocks, read at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// Boot in which they were read.
    pub boot_id: String,
    /// Time since the start of the machine, which nobody can set.
    pub since_boot: Duration,
    /// Time of day. For people: nothing is decided by it.
    pub wall: Moment,
}

/// Uses that were observed and have not ended yet, by the PCI address of the PF or VF. Kept on the disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UseMemory {
    /// Uses by function.
    pub functions: BTreeMap<PciAddress, RememberedUse>,
}

/// A use that was observed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RememberedUse {
    /// The PF, or the one that the VF belongs to.
    pub pf: PciAddress,
    /// The use as it was last observed.
    pub host_use: HostUse,
    /// Boot in which it was last observed.
    pub seen_in: String,
    /// Since when it is absent; `None` while it is there, or cannot be observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absence: Option<Absence>,
}

/// Beginning of an absence: the first look that did not show the use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Absence {
    /// Boot of that look.
    pub boot_id: String,
    /// Milliseconds since the start of the machine.
    pub since_boot_ms: u64,
    /// Time of day, in microseconds since 1970. For people.
    pub wall_us: i64,
}

impl Absence {
    fn begin(now: &ClockReading) -> Self {
        let since_boot_ms = u64::try_from(now.since_boot.as_millis()).unwrap_or(u64::MAX);
        Self { boot_id: now.boot_id.clone(), since_boot_ms, wall_us: now.wall.0 }
    }

    /// Returns how long it has lasted in this boot; `None` for one of another boot.
    fn lasts(&self, now: &ClockReading) -> Option<Duration> {
        let begin = Duration::from_millis(self.since_boot_ms);
        (self.boot_id == now.boot_id).then(|| now.since_boot.checked_sub(begin)).flatten()
    }
}

/// A use that protects a PF or VF although it is not observed now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LingeringUse {
    /// The use as it was last observed.
    pub host_use: HostUse,
    /// It was last observed before the machine started.
    pub is_of_earlier_boot: bool,
    /// Since when it is absent, and when its protection ends: about, for people.
    pub absent: Option<(Moment, Moment)>,
}

/// Use that protects a PF or VF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InUse {
    /// The use.
    pub host_use: HostUse,
    /// Set when the use is remembered only: since when it is absent, and when the protection ends.
    pub absent: Option<Box<(Moment, Moment)>>,
}

impl From<HostUse> for InUse {
    fn from(host_use: HostUse) -> Self {
        Self { host_use, absent: None }
    }
}

impl fmt::Display for InUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.host_use.as_str())?;
        let Some((since, until)) = self.absent.as_deref() else { return Ok(()) };
        // Whole seconds are enough.
        let text = |moment: Moment| Moment(moment.0 - moment.0.rem_euclid(1_000_000)).text();
        write!(f, " (not seen since {}, protected until about {})", text(*since), text(*until))
    }
}

impl UseMemory {
    /// Takes in what a look at the machine showed. `is_complete` is false when not all uses could be observed: then none
    /// is taken for absent. A use ends when it was absent for `hold`, from the first look that did not show it to this
    /// one; and at once with the VF that had it.
    pub fn observe(&mut self, facts: &HostFacts, is_complete: bool, now: &ClockReading, hold: Duration) {
        let used = observed(facts);
        self.functions.retain(|address, remembered| {
            if used.contains_key(address) {
                return true;
            }
            // It may be there: the time in which nobody can tell is no absence, and the count begins anew.
            if !is_complete || facts.unread(remembered.pf).is_some() {
                remembered.absence = None;
                return true;
            }
            if is_vf_that_is_gone(*address, remembered.pf, facts) {
                return false;
            }
            let lasts = remembered.absence.as_ref().and_then(|absence| absence.lasts(now));
            if lasts.is_none() {
                remembered.absence = Some(Absence::begin(now));
            }
            lasts.unwrap_or_default() < hold
        });
        for (address, (pf, host_use)) in used {
            let seen_in = now.boot_id.clone();
            self.functions.insert(address, RememberedUse { pf, host_use, seen_in, absence: None });
        }
    }

    /// Adds to `facts` what still protects functions that the node does not use now, and for how long.
    pub fn recall(&self, facts: &mut HostFacts, now: &ClockReading, hold: Duration) {
        let used = observed(facts);
        let absent = self.functions.iter().filter(|(address, _)| !used.contains_key(*address));
        facts.lingering_uses =
            absent.clone().map(|(address, use_)| (*address, use_.lingering(now, hold))).collect();
        let ends =
            absent.filter_map(|(_, use_)| Some(hold.saturating_sub(use_.absence.as_ref()?.lasts(now)?)));
        facts.protection_ends_in = ends.min();
    }
}

impl RememberedUse {
    fn lingering(&self, now: &ClockReading, hold: Duration) -> LingeringUse {
        let seconds = i64::try_from(hold.as_secs()).unwrap_or(i64::MAX);
        let times = |absence: &Absence| {
            let since = Moment(absence.wall_us);
            (since, since.plus_seconds(seconds))
        };
        LingeringUse {
            host_use: self.host_use,
            is_of_earlier_boot: self.seen_in != now.boot_id,
            absent: self.absence.as_ref().map(times),
        }
    }
}

/// Returns the functions that are in use now, each with its PF.
fn observed(facts: &HostFacts) -> BTreeMap<PciAddress, (PciAddress, HostUse)> {
    let mut used = BTreeMap::new();
    for pf in &facts.pfs {
        let vfs = pf.vfs.iter().map(|vf| (vf.address, vf.link.as_ref()));
        for (address, link) in vfs.chain([(pf.address, pf.link.as_ref())]) {
            if let Some(host_use) = link.and_then(|link| link.host_use) {
                used.insert(address, (pf.address, host_use));
            }
        }
    }
    used
}

/// Returns whether the PF is there and known not to have the VF any more.
fn is_vf_that_is_gone(address: PciAddress, pf: PciAddress, facts: &HostFacts) -> bool {
    let has = |pf: &super::PfFacts| pf.vfs.iter().any(|vf| vf.address == address);
    address != pf && facts.pf(pf).is_some_and(|pf| !has(pf))
}

impl HostFacts {
    /// Returns the use that protects the PF or VF at `address`, whose interface is `link`: one that is observed now, or
    /// one that is remembered.
    pub fn in_use(&self, address: PciAddress, link: Option<&LinkFacts>) -> Option<InUse> {
        let now = link.and_then(|link| link.host_use).map(InUse::from);
        now.or_else(|| {
            let lingering = self.lingering_uses.get(&address)?;
            Some(InUse { host_use: lingering.host_use, absent: lingering.absent.map(Box::new) })
        })
    }

    /// Returns the same machine, without uses that were last observed before it started.
    #[must_use]
    pub fn without_uses_of_earlier_boots(mut self) -> Self {
        self.lingering_uses.retain(|_, lingering| !lingering.is_of_earlier_boot);
        self
    }
}

#[cfg(test)]
mod tests;
