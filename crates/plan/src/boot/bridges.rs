//! Bridges that the units create at boot: without those that the agent refused because of what only a running machine
//! shows. Before the network starts there are no addresses, routes and bonds.

use vfleet_api::bridge::Bridges;
use vfleet_api::{Parsed, PciAddress, SriovNetworkNodeStateSpec};

use super::in_use::differing_pfs;
use crate::facts::{BridgeKind, HostFacts};
use crate::node::{existing_bridges, refused_bridges};
use crate::prelude::*;

/// Returns the bridges of `spec` that the units create. The PFs in `held` keep their state at boot, and so do those
/// whose bridge is refused: they get the recorded bridge as in `last` (the spec of the config file) or as desired now,
/// unless that is refused too, and no other one.
pub(super) fn accepted_bridges(
    spec: &SriovNetworkNodeStateSpec,
    facts: &HostFacts,
    last: Option<&SriovNetworkNodeStateSpec>,
    mut held: BTreeSet<PciAddress>,
) -> Option<Bridges> {
    held.extend(refused_bridges(spec, facts));
    let desired = spec.bridges.clone().unwrap_or_default();
    let of_last = last.and_then(|last| last.bridges.clone()).unwrap_or_default();
    let mut accepted = retain_pfs(desired.clone(), |pf| !held.contains(&pf));
    for pf in held {
        let has_interface = facts.pf(pf).is_some_and(|observed| observed.link.is_some());
        if !has_interface && has_bridge(&of_last, pf) {
            // It was accepted when the uses of the PF were known.
            append(&mut accepted, retain_pfs(of_last.clone(), |one| one == pf));
            continue;
        }
        let candidates = [&of_last, &desired].map(|bridges| retain_pfs(bridges.clone(), |one| one == pf));
        let is_acceptable = |bridges: &Bridges| {
            let candidate = SriovNetworkNodeStateSpec { bridges: Some(bridges.clone()), ..spec.clone() };
            is_recorded(bridges, pf, facts) && !refused_bridges(&candidate, facts).contains(&pf)
        };
        append(&mut accepted, candidates.into_iter().find(is_acceptable).unwrap_or_default());
    }
    accepted.into_sorted()
}

/// Returns the PFs with a bridge of ours that the units do not have in `accepted`, or not while bridges are not managed,
/// although the agent would neither remove nor replace it: the units leave such a bridge as it is.
pub fn kept_bridges(
    spec: &SriovNetworkNodeStateSpec,
    accepted: &SriovNetworkNodeStateSpec,
    facts: &HostFacts,
    is_managed: bool,
) -> BTreeSet<PciAddress> {
    let bridges = accepted.bridges.clone().filter(|_| is_managed).unwrap_or_default();
    let existing = existing_bridges(facts);
    let in_use = existing.iter().filter(|(_, is_refused)| **is_refused).map(|(pf, _)| *pf);
    let refused = refused_bridges(spec, facts).into_iter().chain(differing_pfs(spec, accepted)).chain(in_use);
    refused.filter(|pf| existing.contains_key(pf) && !has_bridge(&bridges, *pf)).collect()
}

/// Returns the bridges with which the agent plans while the state of the `refused` PFs is not the desired one: no
/// bridge is created on these.
pub(super) fn bridges_beside_refused_pfs(
    spec: &SriovNetworkNodeStateSpec,
    accepted: &SriovNetworkNodeStateSpec,
    facts: &HostFacts,
    refused: &BTreeSet<PciAddress>,
) -> Option<Bridges> {
    let desired = spec.bridges.clone().unwrap_or_default();
    let is_kept = |pf| !refused.contains(&pf) || is_recorded(&desired, pf, facts);
    let mut bridges = retain_pfs(desired.clone(), is_kept);
    append(&mut bridges, retain_pfs(accepted.bridges.clone().unwrap_or_default(), |pf| !is_kept(pf)));
    bridges.into_sorted()
}

/// Returns whether the record of the PF has its bridge of `bridges`.
fn is_recorded(bridges: &Bridges, pf: PciAddress, facts: &HostFacts) -> bool {
    let Some(recorded) = facts.record(pf).and_then(|record| record.bridge.as_ref()) else { return false };
    let of_pf = retain_pfs(bridges.clone(), |one| one == pf);
    match recorded.kind {
        BridgeKind::Ovs => of_pf.ovs.iter().flatten().any(|bridge| bridge.name == recorded.name),
        BridgeKind::Linux => of_pf.linux.iter().flatten().any(|bridge| bridge.name == recorded.name),
    }
}

fn has_bridge(bridges: &Bridges, pf: PciAddress) -> bool {
    let of_pf = retain_pfs(bridges.clone(), |one| one == pf);
    of_pf.ovs.iter().flatten().count() + of_pf.linux.iter().flatten().count() > 0
}

/// Returns the bridges whose uplinks are retained.
fn retain_pfs(mut bridges: Bridges, is_retained: impl Fn(PciAddress) -> bool) -> Bridges {
    let is_retained = |pf: &Parsed<PciAddress>| pf.value().is_ok_and(|pf| is_retained(*pf));
    if let Some(list) = &mut bridges.ovs {
        list.retain(|bridge| bridge.uplinks.iter().flatten().all(|uplink| is_retained(&uplink.pci_address)));
    }
    if let Some(list) = &mut bridges.linux {
        list.retain(|bridge| bridge.uplinks.iter().flatten().all(|uplink| is_retained(&uplink.pci_address)));
    }
    bridges
}

fn append(bridges: &mut Bridges, more: Bridges) {
    bridges.ovs.get_or_insert_default().extend(more.ovs.into_iter().flatten());
    bridges.linux.get_or_insert_default().extend(more.linux.into_iter().flatten());
}
