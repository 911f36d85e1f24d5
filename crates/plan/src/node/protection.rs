//! Protection of PFs and VFs that the node uses, unless a policy that names the PF overrides it.

use super::desired::DesiredPf;
use super::problem::Cause;
use crate::facts::{HostFacts, PfFacts, ProtectingUse, VfFacts};

/// Protection of a PF and its VFs from changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostProtection<'a> {
    facts: &'a HostFacts,
    /// A policy overrides the protection.
    is_overridden: bool,
    /// The desired state was configured before. A reboot loses it, and it is configured again before or while the
    /// network starts: uses before the reboot do not prevent that.
    was_configured: bool,
}

impl<'a> HostProtection<'a> {
    /// Returns the protection of a desired PF.
    pub(super) fn for_desired(desired: &DesiredPf, facts: &'a HostFacts) -> Self {
        let was_configured =
            facts.record(desired.address).is_some_and(|record| record.interface == desired.interface);
        Self { facts, is_overridden: desired.overrides_protection(), was_configured }
    }

    /// Returns the protection of a PF that no policy selects anymore.
    pub(super) const fn for_reset(facts: &'a HostFacts) -> Self {
        Self { facts, is_overridden: false, was_configured: false }
    }

    /// Returns the protection from a change of the PF's bridge. One that vfleet did not configure before is not desired
    /// because of a reboot.
    pub(super) fn for_bridge(self, is_recorded: bool) -> Self {
        Self { was_configured: self.was_configured && is_recorded, ..self }
    }

    /// Returns the use that protects the PF.
    pub(super) fn pf(&self, observed: &PfFacts) -> Option<ProtectingUse> {
        let in_use = self.facts.in_use(observed.address, observed.link.as_ref());
        in_use.filter(|_| self.applies(observed.address))
    }

    /// Returns the use that protects the VF.
    pub(super) fn vf(&self, observed: &VfFacts) -> Option<ProtectingUse> {
        let in_use = self.facts.in_use(observed.address, observed.link.as_ref());
        in_use.filter(|_| self.applies(observed.address))
    }

    /// Returns the cause that prevents removing all VFs.
    pub(super) fn removal_cause(&self, observed: &PfFacts) -> Option<Cause> {
        observed.vfs.iter().find_map(|vf| {
            let in_use = self.vf(vf)?;
            Some(Cause::RemovalOfVfInUse { index: vf.index, in_use })
        })
    }

    fn applies(&self, address: vfleet_api::PciAddress) -> bool {
        let is_of_earlier_boot =
            || self.facts.lingering_uses.get(&address).is_some_and(|lingering| lingering.is_of_earlier_boot);
        !(self.is_overridden || self.was_configured && is_of_earlier_boot())
    }
}
