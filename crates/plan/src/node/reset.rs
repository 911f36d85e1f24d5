//! A PF that is ours and no longer wanted goes back to what it was like before.

use super::planned;
use crate::facts::{PfFacts, Record};
use crate::prelude::*;
use crate::step::{Disruption, PlannedStep, Step};

/// The steps that give a PF back. The record goes last: until then the PF is ours, whatever happens.
pub(super) fn reset_pf(record: &Record, found: Option<&PfFacts>) -> Vec<PlannedStep> {
    let mut steps = Vec::new();
    let is_ours = !record.interface.externally_managed.unwrap_or(false);
    if let (Some(found), true) = (found, is_ours) {
        steps.extend(undo(record, found));
    }
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
    if !found.drivers_autoprobe {
        steps.push(planned(Step::SetAutoprobe { pf, on: true }, Disruption::None, "as before"));
    }
    let now = found.link.as_ref().map(|link| link.mtu);
    if let (Some(before), Some(now)) = (record.first_seen.mtu, now)
        && before != now
    {
        steps.push(planned(Step::SetPfMtu { pf, mtu: before }, Disruption::Pf, "as before"));
    }
    steps
}
