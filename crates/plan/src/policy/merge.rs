//! Merging the desired states of several policies for one PF.

use vfleet_api::VfRange;
use vfleet_api::node_policy::EswitchMode;
use vfleet_api::node_state::{Interface, VfGroup};

use super::LossReason;
use crate::prelude::*;

/// VF group that was removed in favor of another policy.
pub(super) struct DisplacedGroup {
    /// Policy that requested the group.
    pub(super) policy: String,
    /// VFs of the group.
    pub(super) range: VfRange,
    /// Reason for the removal.
    pub(super) why: LossReason,
}

/// Merges `new` over `old` and returns the groups that were removed. Old groups stay unless a new group has their
/// resource or one of their VFs, or the new mode makes them impossible. Settings of the PF are taken from `new`; VF
/// count and MTU must be enough for all groups that stay, and for both policies if their priority is equal. Each policy
/// that has VFs on the PF can override host protection.
pub(super) fn merge(
    old: Interface,
    new: Interface,
    equal_priority: bool,
) -> (Interface, Vec<DisplacedGroup>) {
    let mut groups = new.vf_groups.clone().unwrap_or_default();
    let new_groups = groups.len();
    let mut displaced = Vec::new();
    for group in old.vf_groups.into_iter().flatten() {
        let collision = groups[..new_groups].iter().find_map(|new| find_collision(new, &group));
        match collision.or_else(|| needs_switchdev(&new, &group)) {
            Some((range, why)) => {
                displaced.push(DisplacedGroup { policy: group.policy_name.unwrap_or_default(), range, why });
            }
            None => groups.push(group),
        }
    }
    if groups.len() == new_groups && !equal_priority {
        return (new, displaced);
    }
    let (num_vfs, mtu) = (new.num_vfs.max(old.num_vfs), new.mtu.max(old.mtu));
    let override_host_protection = new.override_host_protection.or(old.override_host_protection);
    (Interface { num_vfs, mtu, vf_groups: Some(groups), override_host_protection, ..new }, displaced)
}

/// Returns the VFs of `old` and why the group cannot stay next to `new`; `None` if it can.
fn find_collision(new: &VfGroup, old: &VfGroup) -> Option<(VfRange, LossReason)> {
    let (new_range, old_range) = (range(new)?, range(old)?);
    if new.resource_name == old.resource_name {
        Some((old_range, LossReason::SameResource))
    } else {
        new_range.overlaps(old_range).then_some((old_range, LossReason::Overlap))
    }
}

/// Returns the VFs of `old` if they are vDPA devices, which the mode of `new` does not support.
fn needs_switchdev(new: &Interface, old: &VfGroup) -> Option<(VfRange, LossReason)> {
    let is_switchdev = new.e_switch_mode.as_deref() == Some(EswitchMode::Switchdev.as_str());
    let is_lost = old.vdpa_type.is_some() && !is_switchdev;
    range(old).filter(|_| is_lost).map(|range| (range, LossReason::NeedsSwitchdev))
}

/// Returns the VFs of a group; groups of the planner always have a range.
fn range(group: &VfGroup) -> Option<VfRange> {
    group.vf_range.as_ref()?.value().ok().copied()
}
