//! Two policies on one PF: what they cannot both have. As if there were no others.

use core::cmp::Ordering;

use vfleet_api::VfRange;
use vfleet_api::node_state::InterfaceExt;

use super::setting::{PfSetting, differing, vdpa_has_no_switchdev};
use super::wish::{is_outside, wanted_vfs};
use super::{LossReason, NamedPolicy};
use crate::prelude::*;

/// A policy, and the VFs of a PF that it wants.
#[derive(Clone, Debug)]
pub(crate) struct Claim<'a> {
    policy: NamedPolicy<'a>,
    ranges: Vec<VfRange>,
}

/// What two policies cannot both have on a PF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rival<'a> {
    /// The policy that gets less.
    pub(crate) loser: &'a str,
    /// The policy that gets all it asks for.
    pub(crate) winner: &'a str,
    /// Neither outranks the other: only their names decide.
    pub(crate) equal_priority: bool,
    /// What it is.
    pub(crate) clashes: Vec<Clash>,
}

/// One thing that two policies cannot both have on a PF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Clash {
    /// The loser's VFs.
    Vfs {
        /// Which.
        range: VfRange,
        /// Why it does not get them.
        why: LossReason,
    },
    /// The loser's wish for the PF itself, which is as the winner wants. The loser has VFs there all the same.
    Setting(PfSetting),
    /// Only one of them says that the PF is managed outside.
    Outside,
}

/// What a policy wants of a PF; `None` when nothing comes of it there.
pub(crate) fn claim<'a>(
    policy: NamedPolicy<'a>,
    card: &InterfaceExt,
    manage_software_bridges: bool,
) -> Option<Claim<'a>> {
    let ranges = wanted_vfs(&policy, card, manage_software_bridges).ok()?;
    Some(Claim { policy, ranges })
}

/// What two policies, which both want something of a PF, cannot both have.
pub(crate) fn rival<'a>(one: &Claim<'a>, other: &Claim<'a>) -> Rival<'a> {
    let is_below = one.policy.in_order(&other.policy) != Ordering::Greater;
    let (below, above) = if is_below { (one, other) } else { (other, one) };
    let (loser, winner) = (below.policy, above.policy);
    let same_resource = loser.spec.resource_name == winner.spec.resource_name;
    let needs_switchdev = vdpa_has_no_switchdev(loser.spec, winner.spec);
    let loss = |range: &VfRange| {
        let overlaps = above.ranges.iter().any(|above| above.overlaps(*range));
        let others = same_resource
            .then_some(LossReason::SameResource)
            .or(needs_switchdev.then_some(LossReason::NeedsSwitchdev));
        if overlaps { Some(LossReason::Overlap) } else { others }
    };
    let vfs = below.ranges.iter().filter_map(|range| Some(Clash::Vfs { range: *range, why: loss(range)? }));
    // Who has no VFs left there has no say in the PF, and is told of the VFs.
    let keeps_some = below.ranges.iter().any(|range| loss(range).is_none());
    let settings = differing(loser.spec, winner.spec).filter(|_| keeps_some).map(Clash::Setting);
    let outside = (is_outside(loser.spec) != is_outside(winner.spec)).then_some(Clash::Outside);
    Rival {
        loser: loser.name,
        winner: winner.name,
        equal_priority: loser.priority() == winner.priority(),
        clashes: vfs.chain(settings).chain(outside).collect(),
    }
}
