//! Protection at boot of cards that the node uses. Before the network starts there is no route and no address by which
//! a use could be observed. So the agent, which observes both, writes only accepted parts of the desired state into the
//! config.

use vfleet_api::node_state::{Interface, VfGroup};
use vfleet_api::{Parsed, PciAddress, SriovNetworkNodeStateSpec, VfRange};

use super::bridges::accepted_bridges;
use crate::facts::{HostFacts, HostUse, PfFacts};
use crate::node::{ProtectedPart, refused_parts};
use crate::prelude::*;

/// Returns the part of `spec` that the units apply: everything except PFs that would be changed although the node uses
/// them or one of their VFs. Such a PF keeps its state at boot: that of `last` (the spec of the config file), the last
/// configured one, the desired one without the VFs in use, or the observed one. On an externally managed PF the other
/// VFs are configured immediately. The uses of a card that cannot be read are unknown: it keeps its state too. Bridges
/// are accepted and refused likewise ([`accepted_bridges`]).
pub fn accepted_spec(
    spec: &SriovNetworkNodeStateSpec,
    facts: &HostFacts,
    last: Option<&SriovNetworkNodeStateSpec>,
) -> SriovNetworkNodeStateSpec {
    let Some(desired) = &spec.interfaces else { return spec.clone() };
    let refused = refused(spec, facts);
    let is_refused = |pf: PciAddress| refused.contains_key(&pf) || facts.unreadable(pf).is_some();
    let mut interfaces = Vec::new();
    for interface in desired {
        interfaces.extend(match address(interface).is_some_and(is_refused) {
            false => Some(interface.clone()),
            true if is_external(interface) => Some(without_vfs_in_use(interface, facts)),
            true => boot_state(interface, facts, last),
        });
    }
    // No policy selects these PFs anymore, and they cannot be reset.
    let is_desired = |pf| desired.iter().any(|interface| address(interface) == Some(pf));
    for record in facts.records.iter().filter(|record| is_refused(record.pf)) {
        if !is_desired(record.pf) {
            interfaces.extend(boot_state(&record.interface, facts, last));
        }
    }
    let pfs = desired.iter().filter(|interface| !is_external(interface)).filter_map(address);
    let pfs = pfs.chain(facts.records.iter().map(|record| record.pf));
    let bridges = accepted_bridges(spec, facts, last, pfs.filter(|pf| is_refused(*pf)).collect());
    SriovNetworkNodeStateSpec { interfaces: Some(interfaces), bridges, ..spec.clone() }
}

/// Returns the PFs whose state in `accepted` differs from that in `spec`.
pub(super) fn differing_pfs(
    spec: &SriovNetworkNodeStateSpec,
    accepted: &SriovNetworkNodeStateSpec,
) -> BTreeSet<PciAddress> {
    let only_in = |one: &SriovNetworkNodeStateSpec, other: &SriovNetworkNodeStateSpec| -> Vec<PciAddress> {
        let others = other.interfaces.as_deref().unwrap_or_default();
        let interfaces = one.interfaces.iter().flatten().filter(|interface| !others.contains(interface));
        interfaces.filter_map(address).collect()
    };
    only_in(spec, accepted).into_iter().chain(only_in(accepted, spec)).collect()
}

/// Returns the PFs whose desired state is refused because the node uses them. PFs that had the desired state before are
/// not included: they get it at every boot, before the network starts on them.
fn refused(spec: &SriovNetworkNodeStateSpec, facts: &HostFacts) -> BTreeMap<PciAddress, Vec<ProtectedPart>> {
    let mut refused: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (pf, protected) in refused_parts(spec, facts) {
        if protected != ProtectedPart::Pf || !was_configured(pf, spec, facts) {
            refused.entry(pf).or_default().push(protected);
        }
    }
    refused
}

fn was_configured(pf: PciAddress, spec: &SriovNetworkNodeStateSpec, facts: &HostFacts) -> bool {
    let desired = spec.interfaces.iter().flatten().find(|one| address(one) == Some(pf));
    facts.record(pf).is_some_and(|record| Some(&record.interface) == desired)
}

/// Returns the state that a refused PF gets at boot; `None` if the units leave it alone.
fn boot_state(
    desired: &Interface,
    facts: &HostFacts,
    last: Option<&SriovNetworkNodeStateSpec>,
) -> Option<Interface> {
    let pf = address(desired)?;
    let on_disk = last.into_iter().flat_map(|last| last.interfaces.iter().flatten());
    let on_disk = on_disk.into_iter().find(|interface| address(interface) == Some(pf)).cloned();
    let recorded = facts.record(pf).map(|record| record.interface.clone());
    if facts.unreadable(pf).is_some() {
        return on_disk.or(recorded);
    }
    let has_record = recorded.is_some();
    let candidates = [on_disk, recorded, Some(without_vfs_in_use(desired, facts))];
    let is_acceptable = |candidate: &Interface| !refused(&spec_of(candidate), facts).contains_key(&pf);
    let acceptable = candidates.into_iter().flatten().find(is_acceptable);
    let as_observed = || Some(as_observed(desired, facts.pf(pf).filter(|_| has_record)?));
    acceptable.or_else(as_observed)
}

fn spec_of(interface: &Interface) -> SriovNetworkNodeStateSpec {
    SriovNetworkNodeStateSpec { interfaces: Some(vec![interface.clone()]), ..Default::default() }
}

/// Returns `desired` with the refused VFs in no group, so that the kernel binds them.
fn without_vfs_in_use(desired: &Interface, facts: &HostFacts) -> Interface {
    let refused = refused(&spec_of(desired), facts);
    let in_use: BTreeSet<u16> = refused
        .into_values()
        .flatten()
        .filter_map(|protected| match protected {
            ProtectedPart::Vf(index) => Some(index),
            ProtectedPart::Pf | ProtectedPart::AllVfs => None,
        })
        .collect();
    let all = desired.num_vfs.and_then(|count| u16::try_from(count).ok()).and_then(VfRange::all);
    let groups = desired.vf_groups.iter().flatten();
    let groups = groups.flat_map(|group| split(group, all, &in_use)).collect();
    Interface { vf_groups: Some(groups), ..desired.clone() }
}

/// Returns the group split into ranges without these VFs.
fn split(group: &VfGroup, all: Option<VfRange>, without: &BTreeSet<u16>) -> Vec<VfGroup> {
    let range = match &group.vf_range {
        Some(range) => range.value().ok().copied(),
        None => all,
    };
    let Some(range) = range.filter(|range| without.iter().any(|index| range.contains(*index))) else {
        return vec![group.clone()];
    };
    let mut parts: Vec<VfRange> = Vec::new();
    for index in (range.first()..=range.last()).filter(|index| !without.contains(index)) {
        match parts.last_mut() {
            Some(part) if u32::from(part.last()) + 1 == u32::from(index) => {
                *part = VfRange::new(part.first(), index).unwrap_or(*part);
            }
            _ => parts.extend(VfRange::new(index, index)),
        }
    }
    parts.into_iter().map(|part| VfGroup { vf_range: Some(Parsed::from(part)), ..group.clone() }).collect()
}

/// Returns the observed state of the PF, with all VFs in no group.
fn as_observed(desired: &Interface, observed: &PfFacts) -> Interface {
    Interface {
        num_vfs: i64::try_from(observed.vfs.len()).ok(),
        mtu: None,
        e_switch_mode: observed.eswitch.value().map(|mode| mode.as_str().to_owned()),
        vf_groups: None,
        ..desired.clone()
    }
}

fn address(interface: &Interface) -> Option<PciAddress> {
    interface.pci_address.value().ok().copied()
}

fn is_external(interface: &Interface) -> bool {
    interface.externally_managed == Some(true)
}

/// Returns the facts with uses that an agent of an earlier version wrote into the config. Uses before the last boot do
/// not count: the units restore the state that was there then.
pub(super) fn with_recorded_uses(facts: &HostFacts, in_use: &BTreeMap<PciAddress, HostUse>) -> HostFacts {
    let mut facts = facts.clone().without_uses_of_earlier_boots();
    for pf in &mut facts.pfs {
        if let (Some(link), Some(host_use)) = (&mut pf.link, in_use.get(&pf.address)) {
            link.host_use.get_or_insert(*host_use);
        }
    }
    facts
}
