//! Several policies on one PF: whose VF groups stay, and whose settings win.

use vfleet_api::node_state::{Interface, InterfaceExt, VfGroup};
use vfleet_api::{VfRange, Written};

use super::select::{Selection, select};
use super::{NamedPolicy, PolicyProblem};
use crate::prelude::*;

/// What `card` shall be like after all policies, the winner last; `None` when no policy selects it.
pub(super) fn interface(
    policies: &[NamedPolicy<'_>],
    card: &InterfaceExt,
    current: Option<&Interface>,
    problems: &mut Vec<PolicyProblem>,
) -> Option<Interface> {
    let mut merged: Option<(Interface, i64)> = None;
    for policy in policies {
        let next = match select(policy, card).map(|selection| wanted(policy, card, &selection)) {
            Ok(Some(next)) => next,
            Ok(None) => continue,
            Err(invalid) => {
                problems.push(PolicyProblem { policy: policy.name.to_owned(), invalid });
                match current.filter(|entry| has_group_of(entry, |name| name == policy.name)) {
                    Some(entry) => return Some(entry.clone()),
                    None => continue,
                }
            }
        };
        merged = Some(match merged {
            None => (next, policy.priority()),
            Some((old, priority)) => (merge(&old, next, priority == policy.priority()), policy.priority()),
        });
    }
    merged.map(|(interface, _)| interface)
}

/// Whether the entry has VFs of such a policy.
pub(super) fn has_group_of(entry: &Interface, is_such: impl Fn(&str) -> bool) -> bool {
    entry.vf_groups.iter().flatten().filter_map(|group| group.policy_name.as_deref()).any(is_such)
}

/// What one policy alone wants of `card`.
fn wanted(policy: &NamedPolicy<'_>, card: &InterfaceExt, selection: &Selection) -> Option<Interface> {
    let spec = policy.spec;
    let all = VfRange::all(u16::try_from(spec.num_vfs).unwrap_or(u16::MAX))?;
    let ranges = match selection {
        Selection::Nothing => return None,
        Selection::AllVfs => vec![all],
        Selection::Ranges(ranges) => ranges.clone(),
    };
    Some(Interface {
        pci_address: card.pci_address.clone(),
        name: card.name.clone(),
        num_vfs: Some(spec.num_vfs),
        mtu: spec.mtu,
        link_type: spec.link_type.map(|kind| kind.upper().to_owned()),
        e_switch_mode: spec.e_switch_mode.map(|mode| mode.as_str().to_owned()),
        externally_managed: spec.externally_managed.filter(|external| *external),
        vf_groups: Some(ranges.into_iter().map(|range| group(policy, range)).collect()),
    })
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

/// `new` on top of `old`. Old groups stay unless a new one has their resource or one of their VFs. The PF's own
/// settings are the new policy's; VF count and MTU must be enough for all groups that stay, and for both
/// policies where neither outranks the other.
fn merge(old: &Interface, new: Interface, equal_priority: bool) -> Interface {
    let new_groups = new.vf_groups.clone().unwrap_or_default();
    let surviving: Vec<VfGroup> = old
        .vf_groups
        .iter()
        .flatten()
        .filter(|old| !new_groups.iter().any(|new| displaces(new, old)))
        .cloned()
        .collect();
    if surviving.is_empty() && !equal_priority {
        return new;
    }
    Interface {
        num_vfs: new.num_vfs.max(old.num_vfs),
        mtu: new.mtu.max(old.mtu),
        vf_groups: Some(new_groups.into_iter().chain(surviving).collect()),
        ..new
    }
}

fn displaces(new: &VfGroup, old: &VfGroup) -> bool {
    let range = |group: &VfGroup| group.vf_range.as_ref().and_then(|range| range.value().ok().copied());
    let overlap = match (range(new), range(old)) {
        (Some(new), Some(old)) => new.overlaps(old),
        _ => false,
    };
    new.resource_name == old.resource_name || overlap
}
