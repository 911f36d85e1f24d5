//! Desired state of one PF according to one policy alone.

use vfleet_api::node_state::{Interface, InterfaceExt, VfGroup};
use vfleet_api::{Parsed, PfSelector, SriovNetworkNodePolicySpec, VfRange};

use super::select::{VfSelection, names_pfs, select};
use super::{NamedPolicy, PfMismatch, PfOutcome, PolicyFault, fault};
use crate::prelude::*;

/// Returns the desired state of `card` according to the policy, or why the policy does not apply to it.
pub(crate) fn derive_interface(
    policy: &NamedPolicy<'_>,
    card: &InterfaceExt,
    manage_software_bridges: bool,
) -> Result<Interface, PfOutcome> {
    let ranges = select_vfs(policy, card, manage_software_bridges)?;
    let spec = policy.spec;
    Ok(Interface {
        pci_address: card.pci_address.clone(),
        name: card.name.clone(),
        num_vfs: Some(spec.num_vfs),
        mtu: spec.mtu,
        link_type: spec.link_type.map(|kind| kind.upper().to_owned()),
        e_switch_mode: spec.e_switch_mode.map(|mode| mode.as_str().to_owned()),
        externally_managed: is_externally_managed(spec).then_some(true),
        override_host_protection: overrides_protection(spec).then_some(true),
        vf_groups: Some(ranges.into_iter().map(|range| build_group(policy, range)).collect()),
    })
}

/// Returns the VFs of `card` that the policy requests, or why the policy does not apply to it.
pub(super) fn select_vfs(
    policy: &NamedPolicy<'_>,
    card: &InterfaceExt,
    manage_software_bridges: bool,
) -> Result<Vec<VfRange>, PfOutcome> {
    let selection = select(policy, card)?;
    let all = VfRange::all(check_count(policy.spec.num_vfs)?).ok_or(PfMismatch::NoVfs)?;
    fault::check(policy.spec, manage_software_bridges)?;
    Ok(resolve_ranges(selection, all)?)
}

/// Returns whether the policy sets externallyManaged.
pub(super) fn is_externally_managed(spec: &SriovNetworkNodePolicySpec) -> bool {
    spec.externally_managed == Some(true)
}

/// Returns whether the policy overrides host protection. It must name its PFs, so that no other PF is affected.
fn overrides_protection(spec: &SriovNetworkNodePolicySpec) -> bool {
    spec.override_host_protection == Some(true) && names_pfs(&spec.nic_selector)
}

/// Returns the faults of numVfs and of VF ranges, independent of PFs, each with its field.
pub(super) fn find_faults(spec: &SriovNetworkNodePolicySpec) -> Vec<(String, PolicyFault)> {
    let count = match check_count(spec.num_vfs) {
        Ok(count) => count,
        Err(fault) => return vec![("numVfs".to_owned(), fault)],
    };
    // With numVfs 0 every range is out of bounds: the ranges are not the mistake.
    let Some(all) = VfRange::all(count) else { return Vec::new() };
    let names = spec.nic_selector.pf_names.iter().flatten().enumerate();
    let fault = |(at, name): (usize, &Parsed<PfSelector>)| {
        let fault = check_bounds(name.value().ok()?.range?, all)?;
        Some((format!("nicSelector.pfNames[{at}]"), fault))
    };
    names.filter_map(fault).collect()
}

fn check_count(requested: i64) -> Result<u16, PolicyFault> {
    u16::try_from(requested).map_err(|_| {
        if requested < 0 {
            PolicyFault::NegativeVfs { requested }
        } else {
            PolicyFault::TooManyVfs { requested }
        }
    })
}

/// Returns the selected ranges, without overlaps.
fn resolve_ranges(selection: VfSelection, all: VfRange) -> Result<Vec<VfRange>, PolicyFault> {
    if let Some(fault) = selection.ranges.iter().find_map(|range| check_bounds(*range, all)) {
        return Err(fault);
    }
    Ok(if selection.all { vec![all] } else { join_overlapping(selection.ranges) })
}

/// Returns a fault if `range` exceeds `all` VFs.
fn check_bounds(range: VfRange, all: VfRange) -> Option<PolicyFault> {
    let count = all.last().saturating_add(1);
    (range.last() > all.last()).then_some(PolicyFault::RangeBeyondCount { range, count })
}

/// Joins ranges that overlap: a policy may name the same VFs twice, for instance by two names of one PF.
fn join_overlapping(mut ranges: Vec<VfRange>) -> Vec<VfRange> {
    ranges.sort_unstable();
    let mut joined: Vec<VfRange> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(previous) if previous.overlaps(range) => {
                let last = previous.last().max(range.last());
                *previous = VfRange::new(previous.first(), last).unwrap_or(range);
            }
            _ => joined.push(range),
        }
    }
    joined
}

fn build_group(policy: &NamedPolicy<'_>, range: VfRange) -> VfGroup {
    let spec = policy.spec;
    VfGroup {
        resource_name: Some(spec.resource_name.clone()),
        device_type: Some(spec.device_type.unwrap_or_default().as_str().to_owned()),
        vf_range: Some(Parsed::from(range)),
        policy_name: Some(policy.name.to_owned()),
        mtu: spec.mtu,
        is_rdma: spec.is_rdma.filter(|rdma| *rdma),
        vdpa_type: spec.vdpa_type.map(|kind| kind.as_str().to_owned()),
    }
}
