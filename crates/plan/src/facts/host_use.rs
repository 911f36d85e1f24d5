//! Uses of PFs and VFs by the node itself, observed now or recently.
//!
//! A default route or an address can disappear for a moment (`netplan apply`, `nmcli con up`, an expired router
//! advertisement). So a use is remembered, and ends only after it was absent for some time. That time is measured since
//! boot, so that setting the clock does not end it, and starts again after each boot.

use alloc::boxed::Box;
use core::fmt;
use core::time::Duration;

use serde::{Deserialize, Serialize};
use vfleet_api::PciAddress;

use super::{HostFacts, HostUse, LinkFacts, OvsFacts};
use crate::drain::Moment;
use crate::prelude::*;

/// Default time that a use must be absent before its protection ends: longer than a network service takes to restart
/// and to time out while it waits for an address.
pub const DEFAULT_PROTECTION_TIME: Duration = Duration::from_mins(5);

/// Clocks of the machine, read at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// Boot ID.
    pub boot_id: String,
    /// Time since boot, which cannot be set.
    pub since_boot: Duration,
    /// Time of day, for messages only.
    pub wall: Moment,
}

/// Observed uses that have not ended yet, by the PCI address of the PF or VF. Stored on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UseHistory {
    /// Uses by PCI function.
    pub functions: BTreeMap<PciAddress, RememberedUse>,
}

/// Use that was observed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RememberedUse {
    /// PCI address of the PF: the function itself, or the PF of the VF.
    pub pf: PciAddress,
    /// Last observed use.
    pub host_use: HostUse,
    /// The use was never observed, only possible ([`LinkFacts::possible_use`]).
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub is_possible: bool,
    /// Boot ID at the last observation.
    #[serde(rename = "seenIn")]
    pub last_boot_id: String,
    /// Start of the absence; `None` while the use is present or cannot be observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absence: Option<Absence>,
}

/// Start of an absence: the first read without the use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Absence {
    /// Boot ID of that read.
    pub boot_id: String,
    /// Milliseconds since boot.
    pub since_boot_ms: u64,
    /// Time of day in microseconds since 1970, for messages only.
    pub wall_us: i64,
}

impl Absence {
    fn starting(now: &ClockReading) -> Self {
        let since_boot_ms = u64::try_from(now.since_boot.as_millis()).unwrap_or(u64::MAX);
        Self { boot_id: now.boot_id.clone(), since_boot_ms, wall_us: now.wall.0 }
    }

    /// Returns the duration of an absence that began in this boot; `None` for one of another boot.
    fn duration(&self, now: &ClockReading) -> Option<Duration> {
        let start = Duration::from_millis(self.since_boot_ms);
        (self.boot_id == now.boot_id).then(|| now.since_boot.checked_sub(start)).flatten()
    }
}

/// Use that protects a PF or VF and is not observed now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LingeringUse {
    /// Last observed use.
    pub host_use: HostUse,
    /// The use was last observed before the last boot.
    pub is_of_earlier_boot: bool,
    /// Start of the absence and approximate end of the protection, for messages only.
    pub absent: Option<(Moment, Moment)>,
}

/// Use that protects a PF or VF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtectingUse {
    /// Kind of use.
    pub host_use: HostUse,
    /// Start of the absence and approximate end of the protection; `None` if the use is observed now.
    pub absent: Option<Box<(Moment, Moment)>>,
    /// The use is assumed, since the members of a used bridge of Open vSwitch are not known.
    pub is_possible: bool,
}

impl From<HostUse> for ProtectingUse {
    fn from(host_use: HostUse) -> Self {
        Self { host_use, absent: None, is_possible: false }
    }
}

impl fmt::Display for ProtectingUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.host_use.as_str())?;
        if self.is_possible {
            return f.write_str(" (assumed, since the ports of its Open vSwitch bridge are not known)");
        }
        let Some((since, until)) = self.absent.as_deref() else { return Ok(()) };
        // Messages have whole seconds.
        let text = |moment: Moment| Moment(moment.0 - moment.0.rem_euclid(1_000_000)).text();
        write!(f, " (not observed since {}, protected until about {})", text(*since), text(*until))
    }
}

impl UseHistory {
    /// Updates the history with host facts. `is_complete` is false if some uses could not be observed: then no use
    /// counts as absent. A use ends when it was absent for `hold`, from the first read without it to this one, or
    /// immediately when its VF is removed.
    pub fn update(&mut self, facts: &HostFacts, is_complete: bool, now: &ClockReading, hold: Duration) {
        let (used, possible) = (observed_uses(facts), possible_uses(facts));
        let has_members = matches!(&facts.bridges.ovs, OvsFacts::Database(ovs) if !ovs.is_behind);
        self.functions.retain(|address, remembered| {
            if used.contains_key(address) {
                return true;
            }
            // The use may be present: time without observation does not count as absence, and the count starts again.
            if !is_complete || possible.contains_key(address) || facts.unreadable(remembered.pf).is_some() {
                remembered.absence = None;
                return true;
            }
            // An assumption ends when it proves wrong.
            if is_removed_vf(*address, remembered.pf, facts) || remembered.is_possible && has_members {
                return false;
            }
            let duration = remembered.absence.as_ref().and_then(|absence| absence.duration(now));
            if duration.is_none() {
                remembered.absence = Some(Absence::starting(now));
            }
            duration.unwrap_or_default() < hold
        });
        let remembered = |(pf, host_use), is_possible| {
            let last_boot_id = now.boot_id.clone();
            RememberedUse { pf, host_use, is_possible, last_boot_id, absence: None }
        };
        for (address, possible) in possible {
            // An observation is worth more than an assumption.
            if self.functions.get(&address).is_none_or(|remembered| remembered.is_possible) {
                self.functions.insert(address, remembered(possible, true));
            }
        }
        for (address, used) in used {
            self.functions.insert(address, remembered(used, false));
        }
    }

    /// Adds the uses that are not observed now and still protect functions to `facts`.
    pub fn add_lingering_uses(&self, facts: &mut HostFacts, now: &ClockReading, hold: Duration) {
        let (used, possible) = (observed_uses(facts), possible_uses(facts));
        let is_absent = |address: &PciAddress| !used.contains_key(address) && !possible.contains_key(address);
        let absent: Vec<_> = self.functions.iter().filter(|(address, _)| is_absent(address)).collect();
        facts.lingering_uses =
            absent.iter().map(|(address, use_)| (**address, use_.lingering(now, hold))).collect();
        let ends = absent
            .iter()
            .filter_map(|(_, use_)| Some(hold.saturating_sub(use_.absence.as_ref()?.duration(now)?)));
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
            is_of_earlier_boot: self.last_boot_id != now.boot_id,
            absent: self.absence.as_ref().map(times),
        }
    }
}

/// Uses of functions, each with the PF of the function.
type Uses = BTreeMap<PciAddress, (PciAddress, HostUse)>;

/// Returns the functions that are in use now.
fn observed_uses(facts: &HostFacts) -> Uses {
    links(facts).filter_map(|(pf, address, link)| Some((address, (pf, link.host_use?)))).collect()
}

/// Returns the functions that may be in use now.
fn possible_uses(facts: &HostFacts) -> Uses {
    links(facts).filter_map(|(pf, address, link)| Some((address, (pf, link.possible_use?)))).collect()
}

/// Returns the interfaces of all functions, each with the addresses of its PF and of itself.
fn links(facts: &HostFacts) -> impl Iterator<Item = (PciAddress, PciAddress, &LinkFacts)> {
    facts.pfs.iter().flat_map(|pf| {
        let vfs = pf.vfs.iter().map(|vf| (vf.address, vf.link.as_ref()));
        let functions = vfs.chain([(pf.address, pf.link.as_ref())]);
        functions.filter_map(|(address, link)| Some((pf.address, address, link?)))
    })
}

/// Returns whether the PF was read and no longer has the VF.
fn is_removed_vf(address: PciAddress, pf: PciAddress, facts: &HostFacts) -> bool {
    let has = |pf: &super::PfFacts| pf.vfs.iter().any(|vf| vf.address == address);
    address != pf && facts.pf(pf).is_some_and(|pf| !has(pf))
}

impl HostFacts {
    /// Returns the observed, possible or remembered use that protects the PF or VF at `address`, whose interface is `link`.
    pub fn in_use(&self, address: PciAddress, link: Option<&LinkFacts>) -> Option<ProtectingUse> {
        let now = link.and_then(|link| link.host_use).map(ProtectingUse::from);
        let possible = || {
            let host_use = link?.possible_use?;
            Some(ProtectingUse { is_possible: true, ..ProtectingUse::from(host_use) })
        };
        now.or_else(possible).or_else(|| {
            let lingering = self.lingering_uses.get(&address)?;
            let absent = lingering.absent.map(Box::new);
            Some(ProtectingUse { absent, ..ProtectingUse::from(lingering.host_use) })
        })
    }

    /// Returns the facts without uses that were last observed before the last boot.
    #[must_use]
    pub fn without_uses_of_earlier_boots(mut self) -> Self {
        self.lingering_uses.retain(|_, lingering| !lingering.is_of_earlier_boot);
        self
    }
}

#[cfg(test)]
mod tests;
