//! Several policies on one PF: whose VF groups stay, and whose settings win.

use vfleet_api::VfRange;
use vfleet_api::node_policy::EswitchMode;
use vfleet_api::node_state::{Interface, VfGroup};

use super::LossReason;
use crate::prelude::*;

/// A group that had to go, and what it has in common with the new ones.
pub(super) struct Displaced {
    /// The policy that wanted it.
    pub(super) policy: String,
    /// Its VFs.
    pub(super) range: VfRange,
    /// Why it had to go.
    pub(super) why: LossReason,
}

/// `new` on top of `old`, and which groups had to go. Old groups stay unless a new one has their resource or one of
/// their VFs, or the new mode makes them impossible. The PF's own settings are the new policy's; VF count and MTU must be
/// enough for all groups that stay, and for both policies where neither outranks the other. Each policy that has VFs on the
/// PF can override the protection of what the node itself uses.
pub(super) fn merge(old: Interface, new: Interface, equal_priority: bool) -> (Interface, Vec<Displaced>) {
    let mut groups = new.vf_groups.clone().unwrap_or_default();
    let new_groups = groups.len();
    let mut displaced = Vec::new();
    for group in old.vf_groups.into_iter().flatten() {
        let collision = groups[..new_groups].iter().find_map(|new| collision(new, &group));
        match collision.or_else(|| without_switchdev(&new, &group)) {
            Some((range, why)) => {
                displaced.push(Displaced { policy: group.policy_name.unwrap_or_default(), range, why });
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

/// The VFs of `old` and why it cannot stay beside `new`; `None` when it can.
fn collision(new: &VfGroup, old: &VfGroup) -> Option<(VfRange, LossReason)> {
    let (new_range, old_range) = (range(new)?, range(old)?);
    if new.resource_name == old.resource_name {
        Some((old_range, LossReason::SameResource))
    } else {
        new_range.overlaps(old_range).then_some((old_range, LossReason::Overlap))
    }
}

/// The VFs of `old` that cannot be vDPA devices in the mode of `new`: the PF could not be made at all with them.
fn without_switchdev(new: &Interface, old: &VfGroup) -> Option<(VfRange, LossReason)> {
    let is_switchdev = new.e_switch_mode.as_deref() == Some(EswitchMode::Switchdev.as_str());
    let is_lost = old.vdpa_type.is_some() && !is_switchdev;
    range(old).filter(|_| is_lost).map(|range| (range, LossReason::NeedsSwitchdev))
}

/// The group's VFs: every group that the planner makes has them.
fn range(group: &VfGroup) -> Option<VfRange> {
    group.vf_range.as_ref()?.value().ok().copied()
}
