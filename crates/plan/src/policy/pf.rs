//! Desired state of one PF, decided from all policies.

use alloc::collections::BTreeSet;

use vfleet_api::node_state::{Interface, InterfaceExt, UnknownFact};

use super::desired::derive_interface;
use super::merge::{DisplacedGroup, merge};
use super::setting::differing_settings;
use super::{LostVfGroup, NamedPolicy, NodeInput, OverruledSetting, PfOutcome, PolicyFault};
use crate::prelude::*;

/// Desired state of a PF, with the outcome for each policy.
pub(super) struct PfPlan<'a> {
    /// Desired state.
    pub(super) desired: PfDecision<'a>,
    /// Outcome for each policy.
    pub(super) outcomes: Vec<PfOutcome>,
    /// Position of the first policy that selects the PF, or may select it.
    pub(super) first_policy: usize,
}

/// Decision about the desired state of a PF.
pub(super) enum PfDecision<'a> {
    /// No policy selects the PF.
    Unmanaged,
    /// Policies select the PF.
    Configured {
        /// Desired state.
        interface: Interface,
        /// Policy that decides the settings of the whole PF.
        winner: NamedPolicy<'a>,
    },
    /// The current desired state is kept: one of the policies is invalid, or its selection of the PF is undecided.
    Kept(Interface),
}

/// Desired state of a PF according to each policy.
type DesiredInterfaces = Vec<Result<Interface, PfOutcome>>;

/// Decides the desired state of `card`. `policies` are sorted by ascending precedence.
pub(super) fn plan_pf<'a>(
    policies: &[NamedPolicy<'a>],
    unreadable: &BTreeSet<String>,
    node: &NodeInput<'_>,
    card: &InterfaceExt,
) -> PfPlan<'a> {
    let desired: DesiredInterfaces =
        policies.iter().map(|policy| derive_interface(policy, card, node.manage_software_bridges)).collect();
    let is_unselected = |desired: &Result<_, _>| matches!(desired, Err(PfOutcome::NotSelected(_)));
    let first_policy = desired.iter().position(|desired| !is_unselected(desired)).unwrap_or(policies.len());
    let entries = node.current.interfaces.iter().flatten();
    let current = entries.into_iter().find(|entry| entry.pci_address.value() == card.pci_address.value());
    let undecided = desired.iter().any(|desired| matches!(desired, Err(PfOutcome::Undecided(_))));
    let invalid = current.and_then(|entry| find_invalid_policy(entry, policies, &desired, unreadable));
    let (desired, outcomes) = match (current, invalid) {
        (Some(entry), Some(by)) => {
            (PfDecision::Kept(entry.clone()), kept_for_invalid(policies, entry, by, desired))
        }
        (Some(entry), None) if undecided => {
            (PfDecision::Kept(entry.clone()), kept_for_undecided(policies, entry, desired))
        }
        (None, _) if undecided => (PfDecision::Unmanaged, undecided_outcomes(desired)),
        _ => merge_all(policies, current, desired),
    };
    PfPlan { desired, outcomes, first_policy }
}

/// Returns a policy with VFs on the PF that is invalid or unreadable.
fn find_invalid_policy<'a>(
    entry: &'a Interface,
    policies: &[NamedPolicy<'_>],
    desired: &DesiredInterfaces,
    unreadable: &BTreeSet<String>,
) -> Option<&'a str> {
    let is_invalid = |name: &str| {
        unreadable.contains(name)
            || policies
                .iter()
                .zip(desired)
                .any(|(policy, desired)| policy.name == name && matches!(desired, Err(PfOutcome::Invalid(_))))
    };
    let groups = entry.vf_groups.iter().flatten();
    groups.filter_map(|group| group.policy_name.as_deref()).find(|name| is_invalid(name))
}

/// Returns the outcomes on a PF that is kept because the policy `by` is invalid.
fn kept_for_invalid(
    policies: &[NamedPolicy<'_>],
    entry: &Interface,
    by: &str,
    desired: DesiredInterfaces,
) -> Vec<PfOutcome> {
    let fault = PolicyFault::BlockedByInvalidPolicy { policy: by.to_owned() };
    kept_outcomes(policies, entry, desired, &PfOutcome::Invalid(fault))
}

/// Returns the outcomes on a PF that is kept because facts that decide about it are unknown.
fn kept_for_undecided(
    policies: &[NamedPolicy<'_>],
    entry: &Interface,
    desired: DesiredInterfaces,
) -> Vec<PfOutcome> {
    let outcome = PfOutcome::Undecided(undecided_facts(&desired));
    kept_outcomes(policies, entry, desired, &outcome)
}

/// Returns the outcomes on a PF without current desired state about which facts are unknown.
fn undecided_outcomes(desired: DesiredInterfaces) -> Vec<PfOutcome> {
    let undecided = PfOutcome::Undecided(undecided_facts(&desired));
    desired.into_iter().map(|desired| desired.err().unwrap_or_else(|| undecided.clone())).collect()
}

fn undecided_facts(desired: &DesiredInterfaces) -> Vec<UnknownFact> {
    let undecided = desired.iter().filter_map(|desired| match desired {
        Err(PfOutcome::Undecided(facts)) => Some(facts),
        _ => None,
    });
    let facts: BTreeSet<_> = undecided.flatten().copied().collect();
    facts.into_iter().collect()
}

/// Returns the outcomes on a PF that is kept as `entry`: policies whose VFs are all in `entry` are satisfied, the
/// others get `why`.
fn kept_outcomes(
    policies: &[NamedPolicy<'_>],
    entry: &Interface,
    desired: DesiredInterfaces,
    why: &PfOutcome,
) -> Vec<PfOutcome> {
    let groups = entry.vf_groups.as_deref().unwrap_or_default();
    let has_all = |desired: &Interface| {
        entry.num_vfs >= desired.num_vfs
            && desired.vf_groups.iter().flatten().all(|group| groups.contains(group))
    };
    let has_vfs = |policy: &NamedPolicy<'_>| {
        groups.iter().any(|group| group.policy_name.as_deref() == Some(policy.name))
    };
    let outcome = |(policy, desired)| match desired {
        Err(PfOutcome::Undecided(_)) if has_vfs(policy) => PfOutcome::satisfied(),
        Err(outcome) => outcome,
        Ok(desired) if has_all(&desired) => PfOutcome::satisfied(),
        Ok(_) => why.clone(),
    };
    policies.iter().zip(desired).map(outcome).collect()
}

/// Merges the desired states of all policies.
fn merge_all<'a>(
    policies: &[NamedPolicy<'a>],
    current: Option<&Interface>,
    desired: DesiredInterfaces,
) -> (PfDecision<'a>, Vec<PfOutcome>) {
    let ownership = PfOwnership::new(policies, &desired);
    let mut outcomes = Vec::new();
    let mut pf: Option<(Interface, NamedPolicy<'a>)> = None;
    for (policy, desired) in policies.iter().zip(desired) {
        let desired = match desired {
            Ok(desired) => desired,
            Err(outcome) => {
                outcomes.push(outcome);
                continue;
            }
        };
        let interface = match pf {
            None => desired,
            Some((lower, previous)) => {
                let (interface, displaced) = merge(lower, desired, previous.priority() == policy.priority());
                add_lost_groups(&mut outcomes, policies, policy, displaced);
                interface
            }
        };
        outcomes.push(PfOutcome::satisfied());
        pf = Some((interface, *policy));
    }
    ownership.add_contradictions(policies, &mut outcomes);
    if let Some((interface, winner)) = &pf {
        add_overruled_settings(&mut outcomes, policies, winner, interface);
    }
    let decision = pf.map_or(PfDecision::Unmanaged, |(interface, winner)| PfDecision::Configured {
        interface: ownership.apply(keep_link_type_spelling(current, interface)),
        winner,
    });
    (decision, outcomes)
}

/// Policy of highest precedence that sets externallyManaged, and the one that does not. If there are both, the PF is
/// treated as externally managed, which destroys nothing, and both policies are told.
struct PfOwnership {
    external: Option<String>,
    internal: Option<String>,
}

impl PfOwnership {
    fn new(policies: &[NamedPolicy<'_>], desired: &DesiredInterfaces) -> Self {
        let find_winner = |external: bool| {
            let agrees = |desired: &Interface| (desired.externally_managed == Some(true)) == external;
            let mut all = policies.iter().zip(desired).rev();
            all.find(|(_, desired)| desired.as_ref().is_ok_and(agrees))
                .map(|(policy, _)| policy.name.to_owned())
        };
        Self { external: find_winner(true), internal: find_winner(false) }
    }

    fn apply(&self, interface: Interface) -> Interface {
        Interface { externally_managed: self.external.is_some().then_some(true), ..interface }
    }

    fn add_contradictions(&self, policies: &[NamedPolicy<'_>], outcomes: &mut [PfOutcome]) {
        let (Some(external), Some(internal)) = (&self.external, &self.internal) else { return };
        for (policy, outcome) in policies.iter().zip(outcomes) {
            if let PfOutcome::Selected { disagrees_with, .. } = outcome {
                let is_external = policy.spec.externally_managed == Some(true);
                *disagrees_with = Some(if is_external { internal } else { external }.clone());
            }
        }
    }
}

/// Adds displaced groups to the outcomes of the policies that lost them.
fn add_lost_groups(
    outcomes: &mut [PfOutcome],
    policies: &[NamedPolicy<'_>],
    winner: &NamedPolicy<'_>,
    displaced: Vec<DisplacedGroup>,
) {
    for DisplacedGroup { policy, range, why } in displaced {
        for (loser, outcome) in policies.iter().zip(&mut *outcomes) {
            if let PfOutcome::Selected { lost, .. } = outcome
                && loser.name == policy
            {
                let equal_priority = loser.priority() == winner.priority();
                lost.push(LostVfGroup { range, to: winner.name.to_owned(), why, equal_priority });
            }
        }
    }
}

/// Adds the settings that the winner decides to the outcomes of the other policies with VFs on the PF.
fn add_overruled_settings(
    outcomes: &mut [PfOutcome],
    policies: &[NamedPolicy<'_>],
    winner: &NamedPolicy<'_>,
    interface: &Interface,
) {
    let groups = interface.vf_groups.iter().flatten();
    for (policy, outcome) in policies.iter().zip(outcomes) {
        let has_vfs = groups.clone().any(|group| group.policy_name.as_deref() == Some(policy.name));
        if let PfOutcome::Selected { overruled, .. } = outcome
            && has_vfs
        {
            let equal_priority = policy.priority() == winner.priority();
            let by_winner =
                |setting| OverruledSetting { setting, by: winner.name.to_owned(), equal_priority };
            overruled.extend(differing_settings(policy.spec, winner.spec).map(by_winner));
        }
    }
}

/// Keeps the current spelling of the link type: the Go operator writes it as the policy spells it, and a different
/// spelling alone must not cause a write.
fn keep_link_type_spelling(current: Option<&Interface>, desired: Interface) -> Interface {
    let spelled = current.and_then(|entry| entry.link_type.as_ref());
    match (spelled, &desired.link_type) {
        (Some(spelled), Some(kind)) if spelled.eq_ignore_ascii_case(kind) => {
            Interface { link_type: Some(spelled.clone()), ..desired }
        }
        _ => desired,
    }
}
