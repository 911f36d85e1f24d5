//! A PF that is ours and no longer wanted is given back: without VFs, and without what vfleet changed of the rest.

use super::{planned, udev};
use crate::facts::{HostFacts, PfFacts, Record};
use crate::prelude::*;
use crate::step::{Disruption, PlannedStep, Step};

/// The steps that give a PF back. The record goes last: until then the PF is ours, whatever happens.
pub(super) fn reset_pf(record: &Record, found: Option<&PfFacts>, facts: &HostFacts) -> Vec<PlannedStep> {
    let mut steps = Vec::new();
    let is_ours = !record.interface.externally_managed.unwrap_or(false);
    if let (Some(found), true) = (found, is_ours) {
        steps.extend(undo(record, found));
    }
    steps.extend(udev::remove_rules(record.pf, facts));
    steps.push(planned(
        Step::RemoveRecord { pf: record.pf },
        Disruption::None,
        "no policy wants it any more",
    ));
    steps
}

fn undo(record: &Record, found: &PfFacts) -> Vec<PlannedStep> {
    let pf = record.pf;
    let mut steps = Vec::new();
    if !found.vfs.is_empty() {
        steps.push(planned(
            Step::SetNumVfs { pf, count: 0 },
            Disruption::Drain,
            "no policy wants its VFs any more",
        ));
    }
    let before = &record.first_seen;
    if record.making && found.drivers_autoprobe != before.drivers_autoprobe {
        let on = before.drivers_autoprobe;
        steps.push(planned(Step::SetAutoprobe { pf, on }, Disruption::None, "as before"));
    }
    // Only while it is the one that vfleet set: another was set by somebody who wants it.
    let now = found.link.as_ref().map(|link| link.mtu);
    if let (Some(mtu), true) = (before.mtu, record.raised_mtu.is_some() && record.raised_mtu == now) {
        steps.push(planned(Step::SetPfMtu { pf, mtu }, Disruption::Pf, "as before"));
    }
    steps
}
