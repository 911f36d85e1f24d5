//! What the node itself uses is not touched, unless a policy says so for a PF that it names.

use super::problem::Cause;
use super::wanted::WantedPf;
use crate::facts::{HostFacts, InUse, PfFacts, VfFacts};

/// Protection of a PF and its VFs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guard<'a> {
    facts: &'a HostFacts,
    /// A policy overrides the protection.
    is_overridden: bool,
    /// What is wanted was so once. A machine that starts loses it, and gets it again before or while its network starts:
    /// what it was used for before the start does not stand against that.
    was_so: bool,
}

impl<'a> Guard<'a> {
    /// Returns the protection of a wanted PF.
    pub(super) fn of_wanted(wanted: &WantedPf, facts: &'a HostFacts) -> Self {
        let was_so = facts.record(wanted.address).is_some_and(|record| record.interface == wanted.interface);
        Self { facts, is_overridden: wanted.overrides_protection(), was_so }
    }

    /// Returns the protection of a PF that no policy wants any more.
    pub(super) const fn of_unwanted(facts: &'a HostFacts) -> Self {
        Self { facts, is_overridden: false, was_so: false }
    }

    /// Returns the use that protects the PF.
    pub(super) fn pf(&self, found: &PfFacts) -> Option<InUse> {
        let in_use = self.facts.in_use(found.address, found.link.as_ref());
        in_use.filter(|_| self.counts(found.address))
    }

    /// Returns the use that protects the VF.
    pub(super) fn vf(&self, found: &VfFacts) -> Option<InUse> {
        let in_use = self.facts.in_use(found.address, found.link.as_ref());
        in_use.filter(|_| self.counts(found.address))
    }

    /// Returns what stands against the removal of all VFs.
    pub(super) fn any_vf(&self, found: &PfFacts) -> Option<Cause> {
        found.vfs.iter().find_map(|vf| {
            let in_use = self.vf(vf)?;
            Some(Cause::RemovalOfVfInUse { index: vf.index, in_use })
        })
    }

    fn counts(&self, address: vfleet_api::PciAddress) -> bool {
        let is_of_earlier_boot =
            || self.facts.lingering_uses.get(&address).is_some_and(|lingering| lingering.is_of_earlier_boot);
        !(self.is_overridden || self.was_so && is_of_earlier_boot())
    }
}
