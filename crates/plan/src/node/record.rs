//! What is written down about a PF, so that any later process knows what is ours.

use super::planned;
use super::wanted::WantedPf;
use crate::facts::{FirstSeen, PfFacts, Record};
use crate::step::{Disruption, PlannedStep, Step};

/// The record of a PF whose VFs are all made.
pub(super) fn record(wanted: &WantedPf, found: &PfFacts, old: Option<&Record>) -> Record {
    // Nothing of a PF that was managed outside is our doing: it begins anew when it becomes ours.
    let old = old.filter(|record| wanted.external || !record.is_external());
    let first_seen = old.map_or_else(|| first_seen(found), |record| record.first_seen.clone());
    let sets_mtu = !wanted.external && !found.is_lone_vf;
    let link = found.link.as_ref().filter(|_| sets_mtu);
    let raised = wanted.highest_mtu().filter(|mtu| link.is_some_and(|link| *mtu > link.mtu));
    Record {
        pf: wanted.address,
        interface: wanted.interface.clone(),
        first_seen,
        raised_mtu: raised.or(old.and_then(|record| record.raised_mtu)),
        making: false,
    }
}

fn first_seen(found: &PfFacts) -> FirstSeen {
    FirstSeen {
        mtu: found.link.as_ref().map(|link| link.mtu),
        drivers_autoprobe: found.drivers_autoprobe,
        eswitch: found.eswitch,
    }
}

/// Writes the record if it is news.
pub(super) fn write(old: Option<&Record>, new: &Record) -> Option<PlannedStep> {
    let why = match old {
        Some(old) if old == new => return None,
        None => "a policy selects it",
        Some(_) if new.making => "its VFs are about to be made",
        Some(old) if old.making => "its VFs are made",
        Some(_) => "something else is wanted of it",
    };
    Some(planned(Step::WriteRecord { record: new.clone() }, Disruption::None, why))
}
