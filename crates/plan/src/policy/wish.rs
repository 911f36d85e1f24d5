//! What one policy alone wants of one PF.

use vfleet_api::node_state::{Interface, InterfaceExt, VfGroup};
use vfleet_api::{PfSelector, SriovNetworkNodePolicySpec, VfRange, Written};

use super::select::{Selection, names_pfs, select};
use super::{NamedPolicy, PfRule, PfVerdict, PolicyFault, fault};
use crate::prelude::*;

/// What the policy wants of `card`, or why nothing comes of it there.
pub(crate) fn wish(
    policy: &NamedPolicy<'_>,
    card: &InterfaceExt,
    manage_software_bridges: bool,
) -> Result<Interface, PfVerdict> {
    let ranges = wanted_vfs(policy, card, manage_software_bridges)?;
    let spec = policy.spec;
    Ok(Interface {
        pci_address: card.pci_address.clone(),
        name: card.name.clone(),
        num_vfs: Some(spec.num_vfs),
        mtu: spec.mtu,
        link_type: spec.link_type.map(|kind| kind.upper().to_owned()),
        e_switch_mode: spec.e_switch_mode.map(|mode| mode.as_str().to_owned()),
        externally_managed: is_outside(spec).then_some(true),
        override_host_protection: overrides_protection(spec).then_some(true),
        vf_groups: Some(ranges.into_iter().map(|range| group(policy, range)).collect()),
    })
}

/// The VFs of `card` that the policy wants, or why nothing comes of it there.
pub(super) fn wanted_vfs(
    policy: &NamedPolicy<'_>,
    card: &InterfaceExt,
    manage_software_bridges: bool,
) -> Result<Vec<VfRange>, PfVerdict> {
    let selection = select(policy, card)?;
    let all = VfRange::all(count(policy.spec.num_vfs)?).ok_or(PfRule::NoVfs)?;
    fault::check(policy.spec, manage_software_bridges)?;
    Ok(ranges(selection, all)?)
}

/// Whether the policy says that its PFs are managed outside.
pub(super) fn is_outside(spec: &SriovNetworkNodePolicySpec) -> bool {
    spec.externally_managed == Some(true)
}

/// Whether the policy overrides the protection of the PFs that it selects: it names them, so that it can be meant for no
/// others.
fn overrides_protection(spec: &SriovNetworkNodePolicySpec) -> bool {
    spec.override_host_protection == Some(true) && names_pfs(&spec.nic_selector)
}

/// What is wrong with the number of VFs, and with the ranges of them, wherever they are: each with its field.
pub(super) fn faults(spec: &SriovNetworkNodePolicySpec) -> Vec<(String, PolicyFault)> {
    let count = match count(spec.num_vfs) {
        Ok(count) => count,
        Err(fault) => return vec![("numVfs".to_owned(), fault)],
    };
    // Of no VFs, no range is right: the number is to blame.
    let Some(all) = VfRange::all(count) else { return Vec::new() };
    let names = spec.nic_selector.pf_names.iter().flatten().enumerate();
    let fault = |(at, name): (usize, &Written<PfSelector>)| {
        let fault = beyond(name.value().ok()?.range?, all)?;
        Some((format!("nicSelector.pfNames[{at}]"), fault))
    };
    names.filter_map(fault).collect()
}

fn count(asked: i64) -> Result<u16, PolicyFault> {
    u16::try_from(asked).map_err(|_| {
        if asked < 0 { PolicyFault::NegativeVfs { asked } } else { PolicyFault::TooManyVfs { asked } }
    })
}

/// The ranges that are meant, none of which overlap.
fn ranges(selection: Selection, all: VfRange) -> Result<Vec<VfRange>, PolicyFault> {
    if let Some(fault) = selection.ranges.iter().find_map(|range| beyond(*range, all)) {
        return Err(fault);
    }
    Ok(if selection.all { vec![all] } else { without_overlaps(selection.ranges) })
}

/// What is wrong with a range that goes beyond `all` VFs.
fn beyond(range: VfRange, all: VfRange) -> Option<PolicyFault> {
    let count = all.last().saturating_add(1);
    (range.last() > all.last()).then_some(PolicyFault::RangeBeyondCount { range, count })
}

/// A policy may name the same VFs twice, for instance by two names of one PF.
fn without_overlaps(mut ranges: Vec<VfRange>) -> Vec<VfRange> {
    ranges.sort_unstable();
    let mut joined: Vec<VfRange> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(before) if before.overlaps(range) => {
                let last = before.last().max(range.last());
                *before = VfRange::new(before.first(), last).unwrap_or(range);
            }
            _ => joined.push(range),
        }
    }
    joined
}

fn group(policy: &NamedPolicy<'_>, range: VfRange) -> VfGroup {
    let spec = policy.spec;
    VfGroup {
        resource_name: Some(spec.resource_name.clone()),
        device_type: Some(spec.device_type.unwrap_or_default().as_str().to_owned()),
        vf_range: Some(Written::from(range)),
        policy_name: Some(policy.name.to_owned()),
        mtu: spec.mtu,
        is_rdma: spec.is_rdma.filter(|rdma| *rdma),
        vdpa_type: spec.vdpa_type.map(|kind| kind.as_str().to_owned()),
    }
}
