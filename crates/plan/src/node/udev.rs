//! Rules for udev: names of representors, and what NetworkManager shall leave alone.

use vfleet_api::PciAddress;

use super::wanted::WantedPf;
use crate::facts::{HostFacts, PfFacts};
use crate::prelude::*;
use crate::step::PlannedStep;

/// The steps that give a PF its rules. Right after its record.
pub(super) fn plan_rules(_wanted: &WantedPf, _found: &PfFacts, _facts: &HostFacts) -> Vec<PlannedStep> {
    Vec::new()
}

/// The steps that take away the rules of a PF that is given back.
pub(super) fn remove_rules(_pf: PciAddress, _facts: &HostFacts) -> Vec<PlannedStep> {
    Vec::new()
}
