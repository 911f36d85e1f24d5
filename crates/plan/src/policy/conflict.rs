//! Conflicts between two policies on one PF, without regard to other policies.

use core::cmp::Ordering;

use vfleet_api::VfRange;
use vfleet_api::node_state::InterfaceExt;

use super::desired::{is_externally_managed, select_vfs};
use super::setting::{differing_settings, lacks_switchdev_for_vdpa};
use super::{LossReason, NamedPolicy, PfSetting};
use crate::prelude::*;

/// VFs of a PF that one policy requests.
#[derive(Clone, Debug)]
pub(crate) struct VfClaim<'a> {
    policy: NamedPolicy<'a>,
    ranges: Vec<VfRange>,
}

/// Requests of two policies for one PF that exclude each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PolicyConflict<'a> {
    /// Policy whose requests are not all met.
    pub(crate) loser: &'a str,
    /// Policy whose requests are all met.
    pub(crate) winner: &'a str,
    /// Both policies have the same priority: only their names decide.
    pub(crate) equal_priority: bool,
    /// Single conflicts.
    pub(crate) kinds: Vec<ConflictKind>,
}

/// One request that two policies cannot both have met on a PF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConflictKind {
    /// VFs of the loser.
    Vfs {
        /// Range that the loser does not get.
        range: VfRange,
        /// Reason for the loss.
        why: LossReason,
    },
    /// Setting of the whole PF, which is taken from the winner. The loser keeps its VFs.
    Setting(PfSetting),
    /// Only one of the policies sets externallyManaged.
    ExternallyManaged,
}

/// Returns the VFs that `policy` requests of a PF; `None` if it gets none there.
pub(crate) fn claim_vfs<'a>(
    policy: NamedPolicy<'a>,
    card: &InterfaceExt,
    manage_software_bridges: bool,
) -> Option<VfClaim<'a>> {
    let ranges = select_vfs(&policy, card, manage_software_bridges).ok()?;
    Some(VfClaim { policy, ranges })
}

/// Returns the conflict between two policies that both request VFs of a PF.
pub(crate) fn find_conflict<'a>(one: &VfClaim<'a>, other: &VfClaim<'a>) -> PolicyConflict<'a> {
    let one_loses = one.policy.cmp_precedence(&other.policy) != Ordering::Greater;
    let (weaker, stronger) = if one_loses { (one, other) } else { (other, one) };
    let (loser, winner) = (weaker.policy, stronger.policy);
    let same_resource = loser.spec.resource_name == winner.spec.resource_name;
    let needs_switchdev = lacks_switchdev_for_vdpa(loser.spec, winner.spec);
    let reason = |range: &VfRange| {
        let overlaps = stronger.ranges.iter().any(|claimed| claimed.overlaps(*range));
        let other_reason = same_resource
            .then_some(LossReason::SameResource)
            .or(needs_switchdev.then_some(LossReason::NeedsSwitchdev));
        if overlaps { Some(LossReason::Overlap) } else { other_reason }
    };
    let vfs = weaker
        .ranges
        .iter()
        .filter_map(|range| Some(ConflictKind::Vfs { range: *range, why: reason(range)? }));
    // A policy without VFs on the PF has no say in its settings: only the lost VFs are reported.
    let keeps_vfs = weaker.ranges.iter().any(|range| reason(range).is_none());
    let settings =
        differing_settings(loser.spec, winner.spec).filter(|_| keeps_vfs).map(ConflictKind::Setting);
    let external = (is_externally_managed(loser.spec) != is_externally_managed(winner.spec))
        .then_some(ConflictKind::ExternallyManaged);
    PolicyConflict {
        loser: loser.name,
        winner: winner.name,
        equal_priority: loser.priority() == winner.priority(),
        kinds: vfs.chain(settings).chain(external).collect(),
    }
}
