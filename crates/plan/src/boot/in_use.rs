//! What carries the node's own traffic is not touched at boot either. Before the network there is neither a route nor an
//! address to tell it by. So the config has only what the agent, which sees both, does not refuse.

use vfleet_api::node_state::{Interface, VfGroup};
use vfleet_api::{PciAddress, SriovNetworkNodeStateSpec, VfRange, Written};

use crate::facts::{HostFacts, HostUse, PfFacts};
use crate::node::{Protected, refusals};
use crate::prelude::*;

/// Returns what the units shall do of `spec`: all of it, but for PFs that would be changed although the node itself uses
/// them, or one of their VFs. Such a PF stays what it is at boot: as in `last`, the spec of the config on the disk, or as
/// it was last configured, or what is wanted without the VFs in use, or as it is found. On a PF that is managed outside the
/// other VFs go on at once. What a card is used for that cannot be read now is not known: it stays what it is, too.
pub fn accepted(
    spec: &SriovNetworkNodeStateSpec,
    facts: &HostFacts,
    last: Option<&SriovNetworkNodeStateSpec>,
) -> SriovNetworkNodeStateSpec {
    let Some(wanted) = &spec.interfaces else { return spec.clone() };
    let refused = refused(spec, facts);
    let is_refused = |pf: PciAddress| refused.contains_key(&pf) || facts.unread(pf).is_some();
    let mut interfaces = Vec::new();
    for interface in wanted {
        interfaces.extend(match address(interface).is_some_and(is_refused) {
            false => Some(interface.clone()),
            true if is_external(interface) => Some(without_vfs_in_use(interface, facts)),
            true => kept(interface, facts, last),
        });
    }
    // No policy wants these any more, and they cannot be given back.
    let is_wanted = |pf| wanted.iter().any(|interface| address(interface) == Some(pf));
    for record in facts.records.iter().filter(|record| is_refused(record.pf)) {
        if !is_wanted(record.pf) {
            interfaces.extend(kept(&record.interface, facts, last));
        }
    }
    SriovNetworkNodeStateSpec { interfaces: Some(interfaces), ..spec.clone() }
}

/// Returns the PFs of which `accepted` wants something else than `spec`.
pub(super) fn held(
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

/// Returns the PFs that are not as wanted, and left so because of what the node itself uses. Not those that were once
/// made what is wanted now: they are so at every boot, and then the network starts on them.
fn refused(spec: &SriovNetworkNodeStateSpec, facts: &HostFacts) -> BTreeMap<PciAddress, Vec<Protected>> {
    let mut refused: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (pf, protected) in refusals(spec, facts) {
        if protected != Protected::Pf || !was_once(pf, spec, facts) {
            refused.entry(pf).or_default().push(protected);
        }
    }
    refused
}

fn was_once(pf: PciAddress, spec: &SriovNetworkNodeStateSpec, facts: &HostFacts) -> bool {
    let wanted = spec.interfaces.iter().flatten().find(|one| address(one) == Some(pf));
    facts.record(pf).is_some_and(|record| Some(&record.interface) == wanted)
}

/// Returns what the units make of a PF at boot that cannot be made what is wanted; `None` for one that they leave alone.
fn kept(
    wanted: &Interface,
    facts: &HostFacts,
    last: Option<&SriovNetworkNodeStateSpec>,
) -> Option<Interface> {
    let pf = address(wanted)?;
    let on_disk = last.into_iter().flat_map(|last| last.interfaces.iter().flatten());
    let on_disk = on_disk.into_iter().find(|interface| address(interface) == Some(pf)).cloned();
    let recorded = facts.record(pf).map(|record| record.interface.clone());
    if facts.unread(pf).is_some() {
        return on_disk.or(recorded);
    }
    let is_ours = recorded.is_some();
    let candidates = [on_disk, recorded, Some(without_vfs_in_use(wanted, facts))];
    let is_acceptable = |candidate: &Interface| !refused(&alone(candidate), facts).contains_key(&pf);
    let acceptable = candidates.into_iter().flatten().find(is_acceptable);
    let as_found = || Some(as_found(wanted, facts.pf(pf).filter(|_| is_ours)?));
    acceptable.or_else(as_found)
}

fn alone(interface: &Interface) -> SriovNetworkNodeStateSpec {
    SriovNetworkNodeStateSpec { interfaces: Some(vec![interface.clone()]), ..Default::default() }
}

/// Returns `wanted`, with the VFs that are refused in no group: they are the kernel's business then.
fn without_vfs_in_use(wanted: &Interface, facts: &HostFacts) -> Interface {
    let refused = refused(&alone(wanted), facts);
    let in_use: BTreeSet<u16> = refused
        .into_values()
        .flatten()
        .filter_map(|protected| match protected {
            Protected::Vf(index) => Some(index),
            Protected::Pf | Protected::AllVfs => None,
        })
        .collect();
    let all = wanted.num_vfs.and_then(|count| u16::try_from(count).ok()).and_then(VfRange::all);
    let groups = wanted.vf_groups.iter().flatten();
    let groups = groups.flat_map(|group| split(group, all, &in_use)).collect();
    Interface { vf_groups: Some(groups), ..wanted.clone() }
}

/// Returns the group in parts that leave out these VFs.
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
    parts.into_iter().map(|part| VfGroup { vf_range: Some(Written::from(part)), ..group.clone() }).collect()
}

/// Returns the PF as it is, with VFs that are nobody's.
fn as_found(wanted: &Interface, found: &PfFacts) -> Interface {
    Interface {
        num_vfs: i64::try_from(found.vfs.len()).ok(),
        mtu: None,
        e_switch_mode: found.eswitch.value().map(|mode| mode.as_str().to_owned()),
        vf_groups: None,
        ..wanted.clone()
    }
}

fn address(interface: &Interface) -> Option<PciAddress> {
    interface.pci_address.value().ok().copied()
}

fn is_external(interface: &Interface) -> bool {
    interface.externally_managed == Some(true)
}

/// The machine, with what an agent of an earlier version wrote down of it. What was used before the machine started does
/// not count: the units make what was there then.
pub(super) fn known(facts: &HostFacts, in_use: &BTreeMap<PciAddress, HostUse>) -> HostFacts {
    let mut facts = facts.clone().without_uses_of_earlier_boots();
    for pf in &mut facts.pfs {
        if let (Some(link), Some(host_use)) = (&mut pf.link, in_use.get(&pf.address)) {
            link.host_use.get_or_insert(*host_use);
        }
    }
    facts
}
