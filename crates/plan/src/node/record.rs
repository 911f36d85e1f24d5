//! Records of PFs, from which any later process knows what vfleet changed.

use super::bridge::BridgeSteps;
use super::desired::DesiredPf;
use super::planned;
use crate::facts::{CardIdentity, LinkFacts, OriginalState, PfFacts, Record};
use crate::mac::own_mac;
use crate::prelude::*;
use crate::step::{Disruption, PlannedStep, Step};

/// Reason of writing a record that differs from the previous one only in the identity of the card.
const IDENTITY_CHANGED: &str = "name, ID or network of the card changed";

/// Returns the record of a PF whose VFs are all created.
pub(super) fn build_record(desired: &DesiredPf, observed: &PfFacts, previous: Option<&Record>) -> Record {
    let last = previous.map(CardIdentity::recorded).unwrap_or_default();
    let identity = CardIdentity::observed(observed).or_last(last);
    // vfleet changed nothing on an externally managed PF: its record starts again when the PF is managed by vfleet.
    let previous = previous.filter(|record| desired.external || !record.is_external());
    let original = previous.map_or_else(|| original_state(observed), |record| record.original.clone());
    let sets_mtu = !desired.external && !observed.is_lone_vf;
    let link = observed.link.as_ref().filter(|_| sets_mtu);
    let raised = desired.highest_mtu().filter(|mtu| link.is_some_and(|link| *mtu > link.mtu));
    Record {
        pf: desired.address,
        interface: desired.interface.clone(),
        original,
        raised_mtu: raised.or(previous.and_then(|record| record.raised_mtu)),
        vf_macs: previous.map(|record| record.vf_macs.clone()).unwrap_or_default(),
        creating_vfs: false,
        identity,
        refused_orders: previous.map(|record| record.refused_orders.clone()).unwrap_or_default(),
        mtu_changes: BTreeSet::new(),
        bridge: previous.and_then(|record| record.bridge.clone()),
        representors_replayed: false,
    }
}

fn original_state(observed: &PfFacts) -> OriginalState {
    OriginalState {
        mtu: observed.link.as_ref().map(|link| link.mtu),
        drivers_autoprobe: observed.drivers_autoprobe,
        eswitch: observed.eswitch.value(),
    }
}

/// Returns `record` with the MACs of existing VFs, before they are created again. MACs that vfleet would give them
/// anyway are left out. During VF creation the existing MACs are ignored, since the driver may have generated them.
pub(super) fn with_vf_macs(mut record: Record, observed: &PfFacts, is_creating: bool) -> Record {
    if is_creating {
        return record;
    }
    for vf in &observed.vfs {
        let own = own_mac(observed, vf.index);
        match vf.admin_mac.filter(|mac| mac.is_usable()) {
            Some(mac) if own != Some(mac) => drop(record.vf_macs.insert(vf.index, mac)),
            _ => drop(record.vf_macs.remove(&vf.index)),
        }
    }
    record
}

/// Returns the record of a PF whose MTU Open vSwitch sets to `requested`: a higher one, or another one than it was
/// raised to before.
pub(super) fn with_bridge_mtu(record: Record, requested: Option<u32>, link: &LinkFacts) -> Record {
    let was_raised = record.raised_mtu == Some(link.mtu);
    let raised = requested.filter(|mtu| *mtu > link.mtu || was_raised);
    Record { raised_mtu: raised.or(record.raised_mtu), ..record }
}

/// Returns the steps that write only the bridge of a PF to its record: before bridges are removed, before the desired
/// one is set up, and after that.
pub(super) fn note_bridge(
    record: &Record,
    bridge: &BridgeSteps,
    link: Option<&LinkFacts>,
) -> [Option<PlannedStep>; 3] {
    let removing = Record { bridge: bridge.removing.clone(), ..record.clone() };
    let raised = match link {
        Some(link) => with_bridge_mtu(record.clone(), bridge.requested_mtu(), link),
        None => record.clone(),
    };
    let begun = Record { bridge: bridge.begun.clone(), ..raised };
    let finished = Record { bridge: bridge.finished.clone(), ..begun.clone() };
    [
        write_record(Some(record), &removing),
        write_record(Some(&removing), &begun),
        write_record(Some(&begun), &finished),
    ]
}

/// Returns the step that writes the record, if it changed.
pub(super) fn write_record(previous: Option<&Record>, new: &Record) -> Option<PlannedStep> {
    let why = match previous {
        Some(previous) if previous == new => return None,
        None => "a policy selects the PF",
        Some(_) if new.creating_vfs => "VF creation starts",
        Some(previous) if previous.creating_vfs => "VF creation is complete",
        Some(previous) if previous.differs_only_in_identity(new) => IDENTITY_CHANGED,
        Some(previous) if previous.interface == new.interface => "save the progress",
        Some(_) => "the desired state changed",
    };
    Some(planned(Step::WriteRecord { record: new.clone() }, Disruption::None, why))
}
