//! What is written down about a PF, so that any later process knows what is ours.

use super::planned;
use super::wanted::WantedPf;
use crate::facts::{CardIdentity, FirstSeen, PfFacts, Record};
use crate::mac::own_mac;
use crate::prelude::*;
use crate::step::{Disruption, PlannedStep, Step};

/// Reason of writing a record again that has the same state and other facts by which policies select the card.
const IDENTITY_CHANGED: &str = "the card's names, IDs or network changed";

/// The record of a PF whose VFs are all made.
pub(super) fn record(wanted: &WantedPf, found: &PfFacts, old: Option<&Record>) -> Record {
    let last = old.map(CardIdentity::recorded).unwrap_or_default();
    let identity = CardIdentity::observed(found).or_last(last);
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
        vf_macs: old.map(|record| record.vf_macs.clone()).unwrap_or_default(),
        making: false,
        identity,
        refused_orders: old.map(|record| record.refused_orders.clone()).unwrap_or_default(),
        mtu_changes: BTreeSet::new(),
        representors_replayed: false,
    }
}

fn first_seen(found: &PfFacts) -> FirstSeen {
    FirstSeen {
        mtu: found.link.as_ref().map(|link| link.mtu),
        drivers_autoprobe: found.drivers_autoprobe,
        eswitch: found.eswitch.value(),
    }
}

/// The same, before VFs are made anew: with the addresses that the PF keeps for those that are there now, but for those
/// that they would get anyway. While VFs are being made, what is there may be a driver's own invention.
pub(super) fn with_vf_macs(mut record: Record, found: &PfFacts, is_making: bool) -> Record {
    if is_making {
        return record;
    }
    for vf in &found.vfs {
        let own = own_mac(found, vf.index);
        match vf.admin_mac.filter(|mac| mac.is_usable()) {
            Some(mac) if own != Some(mac) => drop(record.vf_macs.insert(vf.index, mac)),
            _ => drop(record.vf_macs.remove(&vf.index)),
        }
    }
    record
}

/// Writes the record if it is news.
pub(super) fn write(old: Option<&Record>, new: &Record) -> Option<PlannedStep> {
    let why = match old {
        Some(old) if old == new => return None,
        None => "a policy selects it",
        Some(_) if new.making => "its VFs are about to be made",
        Some(old) if old.making => "its VFs are made",
        Some(old) if old.differs_only_in_identity(new) => IDENTITY_CHANGED,
        Some(old) if old.interface == new.interface => "it says what was done",
        Some(_) => "something else is wanted of it",
    };
    Some(planned(Step::WriteRecord { record: new.clone() }, Disruption::None, why))
}
