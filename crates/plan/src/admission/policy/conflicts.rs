//! Conflicts between a policy and the others that select the same nodes. Most nodes share a few sets of other policies,
//! and cards that are selected alike have the same conflicts, so each combination is checked once.

use vfleet_api::node_state::InterfaceExt;
use vfleet_api::{SriovNetworkNodePolicySpec, VfRange};

use super::super::Severity;
use super::fleet::{FindingAttributes, MessageTemplate, name_of};
use crate::policy::{
    ConflictKind, PfSetting, PolicyConflict, SelectorFacts, claim_vfs, find_conflict, selects,
};
use crate::prelude::*;
use crate::{LossReason, NamedPolicy};

const CONFLICT: &str = "PolicyConflict";
const OUTRANKED: &str = "Outranked";

/// Peer groups of a policy that were found so far.
pub(super) struct PolicyPeers<'a> {
    candidate: NamedPolicy<'a>,
    manage_software_bridges: bool,
    groups: Vec<PeerGroup<'a>>,
}

/// Policy together with a set of other policies, and the conflicts that were found so far.
pub(super) struct PeerGroup<'a> {
    candidate: NamedPolicy<'a>,
    manage_software_bridges: bool,
    others: &'a [NamedPolicy<'a>],
    cache: BTreeMap<SelectorFacts<'a>, Vec<(MessageTemplate, FindingAttributes)>>,
}

impl<'a> PolicyPeers<'a> {
    pub(super) fn new(candidate: NamedPolicy<'a>, manage_software_bridges: bool) -> Self {
        Self { candidate, manage_software_bridges, groups: Vec::new() }
    }

    pub(super) fn group(&mut self, others: &'a [NamedPolicy<'a>]) -> &mut PeerGroup<'a> {
        let has_others = |group: &PeerGroup<'_>| are_same(group.others, others);
        let index = self.groups.iter().position(has_others).unwrap_or_else(|| {
            let Self { candidate, manage_software_bridges, .. } = *self;
            let cache = BTreeMap::new();
            self.groups.push(PeerGroup { candidate, manage_software_bridges, others, cache });
            self.groups.len() - 1
        });
        &mut self.groups[index]
    }
}

fn are_same(one: &[NamedPolicy<'_>], other: &[NamedPolicy<'_>]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| core::ptr::eq(one.spec, other.spec))
}

impl<'a> PeerGroup<'a> {
    /// Returns the conflicts with other policies on a PF.
    pub(super) fn find_conflicts(
        &mut self,
        card: &'a InterfaceExt,
    ) -> Vec<(MessageTemplate, FindingAttributes)> {
        let key = SelectorFacts::from(card);
        if let Some(cached) = self.cache.get(&key) {
            return cached.clone();
        }
        let found = self.check_card(card);
        self.cache.insert(key, found.clone());
        found
    }

    /// Checks the policy against each other one separately: a third policy that outranks both does not resolve their
    /// conflict.
    fn check_card(&self, card: &InterfaceExt) -> Vec<(MessageTemplate, FindingAttributes)> {
        let gate = self.manage_software_bridges;
        let Some(own) = claim_vfs(self.candidate, card, gate) else { return Vec::new() };
        let mut found = Vec::new();
        for other in self.others.iter().filter(|other| selects(&other.spec.nic_selector, card)) {
            // A policy with faults claims no VFs.
            let Some(theirs) = claim_vfs(*other, card, gate) else { continue };
            let conflict = find_conflict(&own, &theirs);
            let pair = PolicyPair { candidate: self.candidate, other: *other, conflict: &conflict };
            found.extend(conflict.kinds.iter().map(|kind| describe_conflict(pair, name_of(card), kind)));
        }
        found
    }
}

/// Policy that is checked, and another policy that conflicts with it.
#[derive(Clone, Copy)]
struct PolicyPair<'a> {
    candidate: NamedPolicy<'a>,
    other: NamedPolicy<'a>,
    conflict: &'a PolicyConflict<'a>,
}

impl PolicyPair<'_> {
    /// Returns whether both policies name PFs. Then both are meant to have the PF, so priorities do not resolve an
    /// overlap.
    fn both_name_pfs(&self) -> bool {
        names_pfs(self.candidate.spec) && names_pfs(self.other.spec)
    }

    fn describe(&self, policy: &str) -> String {
        if policy == self.candidate.name { "this policy".to_owned() } else { format!("policy {policy}") }
    }
}

/// Returns whether a policy names PFs, instead of only describing them.
fn names_pfs(spec: &SriovNetworkNodePolicySpec) -> bool {
    let nic = &spec.nic_selector;
    nic.pf_names.as_ref().is_some_and(|names| !names.is_empty())
        || nic.root_devices.as_ref().is_some_and(|addresses| !addresses.is_empty())
}

/// Returns the finding about one conflict.
fn describe_conflict(
    pair: PolicyPair<'_>,
    pf: &str,
    kind: &ConflictKind,
) -> (MessageTemplate, FindingAttributes) {
    use Severity::{Error, Warning};
    let (other, conflict) = (pair.other.name, pair.conflict);
    let (loser, winner) = (pair.describe(conflict.loser), pair.describe(conflict.winner));
    let subject = format!("{pf} {other}");
    let (rule, reason, severity, field, (before, after)) = match (kind, conflict.equal_priority) {
        (ConflictKind::Vfs { range, why: LossReason::Overlap }, is_equal)
            if is_equal || pair.both_name_pfs() =>
        {
            (
                "D13",
                CONFLICT,
                Error,
                "spec.nicSelector",
                (format!("on {pf} of "), describe_overlap(&pair, *range)),
            )
        }
        (ConflictKind::Vfs { range, why: LossReason::Overlap }, _) => {
            let after = format!(
                ": VFs {range} of {loser} go to {winner}, which has a lower priority number: if both need VFs, set ranges that do not overlap"
            );
            ("D14", OUTRANKED, Warning, "spec.nicSelector", (format!("on {pf} of "), after))
        }
        (ConflictKind::Vfs { why: LossReason::SameResource, .. }, true) => {
            let after = format!(
                ": policy {other}, of the same priority, offers VFs as the same resource: put both ranges into one policy, or use different resources"
            );
            ("D15", CONFLICT, Error, "spec.resourceName", (format!("on {pf} of "), after))
        }
        (ConflictKind::Vfs { range, why: LossReason::SameResource }, false) => {
            let after = format!(
                ": VFs {range} of {loser} are not created, because {winner} offers VFs as the same resource and has a lower priority number: put both ranges into one policy, or use different resources"
            );
            ("D16", OUTRANKED, Warning, "spec.resourceName", (format!("on {pf} of "), after))
        }
        (ConflictKind::Vfs { why: LossReason::NeedsSwitchdev, .. }, is_equal) => {
            let rank = if is_equal { "of the same priority" } else { "with a lower priority number" };
            let after = format!(
                ": {loser} creates vDPA devices, which need switchdev, but {winner}, {rank}, uses legacy mode: set eSwitchMode to switchdev in both, or use another PF for the vDPA devices"
            );
            let (rule, reason, severity) = select_rule(is_equal, "D21", "D22");
            (rule, reason, severity, "spec.eSwitchMode", (format!("on {pf} of "), after))
        }
        (ConflictKind::Setting(setting), is_equal) => {
            let ((rule, reason, severity), field) = match setting {
                PfSetting::EswitchMode { .. } => (select_rule(is_equal, "D21", "D22"), "spec.eSwitchMode"),
                PfSetting::LinkType { .. } => (select_rule(is_equal, "D23", "D24"), "spec.linkType"),
                PfSetting::Bridge { .. } => (select_rule(is_equal, "D25", "D26"), "spec.bridge"),
            };
            (rule, reason, severity, field, (format!("on {pf} of "), describe_setting(&pair, *setting)))
        }
        (ConflictKind::ExternallyManaged, _) => {
            let before = format!("policy {other} sets externallyManaged differently on {pf} of ");
            let after = ": set it in both, or in neither".to_owned();
            ("D17", CONFLICT, Error, "spec.externallyManaged", (before, after))
        }
    };
    (
        MessageTemplate { rule, before, after },
        FindingAttributes { reason, severity, field, subject: Some(subject) },
    )
}

/// Returns the rule about a setting of the whole PF: the first one is an error, and the second one applies if priorities
/// decide.
const fn select_rule(
    equal_priority: bool,
    conflict: &'static str,
    outranked: &'static str,
) -> (&'static str, &'static str, Severity) {
    if equal_priority {
        (conflict, CONFLICT, Severity::Error)
    } else {
        (outranked, OUTRANKED, Severity::Warning)
    }
}

fn describe_setting(pair: &PolicyPair<'_>, setting: PfSetting) -> String {
    let (field, (requested, effective)) = (setting.field(), setting.values());
    let (loser, winner) = (pair.describe(pair.conflict.loser), pair.describe(pair.conflict.winner));
    if let PfSetting::Bridge { .. } = setting {
        return if pair.conflict.equal_priority {
            format!(
                ": {loser} requests {requested} and {winner}, of the same priority, {effective}, but a PF has only one: set bridge alike in both"
            )
        } else {
            format!(
                ": the PF gets {effective}, because {winner} has a lower priority number, and not {requested} as in {loser}: set bridge alike in both"
            )
        };
    }
    if pair.conflict.equal_priority {
        format!(
            ": {loser} sets {field} {requested} and {winner}, of the same priority, {effective}, but a PF has only one: set {field} alike in both"
        )
    } else {
        format!(
            ": {field} is {effective} for the whole PF, because {winner} has a lower priority number, and not {requested} as in {loser}: set {field} alike in both"
        )
    }
}

fn describe_overlap(pair: &PolicyPair<'_>, range: VfRange) -> String {
    let other = pair.other.name;
    let remedy = "set ranges that do not overlap";
    match (pair.both_name_pfs(), pair.conflict.equal_priority) {
        (false, _) => format!(
            ": policy {other}, of the same priority, requests some of the same VFs ({range}): {remedy}, or different priorities"
        ),
        (true, true) => {
            format!(
                ": policy {other}, of the same priority, requests some of the same VFs ({range}): {remedy}"
            )
        }
        (true, false) => format!(
            ": policy {other} names this PF too, and requests some of the same VFs ({range}): {remedy}, or select the PF by vendor and deviceID in the policy that shall lose them"
        ),
    }
}

/// Checks D18: all VFs of a resource are reported to the kubelet in the same way.
pub(super) fn check_topology(
    spec: &SriovNetworkNodePolicySpec,
    others: &[NamedPolicy<'_>],
) -> impl Iterator<Item = (MessageTemplate, FindingAttributes)> {
    let is_excluded = |spec: &SriovNetworkNodePolicySpec| spec.exclude_topology.unwrap_or(false);
    let own = is_excluded(spec);
    let differs = move |other: &&NamedPolicy<'_>| {
        other.spec.resource_name == spec.resource_name && is_excluded(other.spec) != own
    };
    others.iter().filter(differs).map(move |other| {
        let before =
            format!("policy {} offers the same resource with excludeTopology {} on ", other.name, !own);
        let after = ": set excludeTopology alike in both, or use different resources".to_owned();
        let (severity, field) = (Severity::Error, "spec.excludeTopology");
        let attributes = FindingAttributes { reason: CONFLICT, severity, field, subject: None };
        (MessageTemplate { rule: "D18", before, after }, attributes)
    })
}
