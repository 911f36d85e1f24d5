//! What becomes of one PF.

use alloc::collections::BTreeSet;

use vfleet_api::node_state::{Interface, InterfaceExt, UnknownFact};

use super::merge::{Displaced, merge};
use super::setting::differing;
use super::wish::wish;
use super::{LostGroup, NamedPolicy, NodeInput, Overruled, PfVerdict, PolicyFault};
use crate::prelude::*;

/// What becomes of a PF.
pub(super) struct PfPlan<'a> {
    /// What it shall be like.
    pub(super) outcome: Outcome<'a>,
    /// What each policy is told.
    pub(super) verdicts: Vec<PfVerdict>,
    /// The place of the first policy that does not leave it alone.
    pub(super) touched_by: usize,
}

/// What a PF shall be like.
pub(super) enum Outcome<'a> {
    /// No policy selects it.
    Nobodys,
    /// As the policies want it.
    Wanted {
        /// What it shall be like.
        interface: Interface,
        /// The policy whose settings count for the PF itself.
        winner: NamedPolicy<'a>,
    },
    /// As it is, since one of its policies cannot be followed, or it is not known whether one selects it.
    Held(Interface),
}

type Wishes = Vec<Result<Interface, PfVerdict>>;

/// What becomes of `card`, by policies in their order of application.
pub(super) fn plan_pf<'a>(
    policies: &[NamedPolicy<'a>],
    unreadable: &BTreeSet<String>,
    node: &NodeInput<'_>,
    card: &InterfaceExt,
) -> PfPlan<'a> {
    let wishes: Wishes =
        policies.iter().map(|policy| wish(policy, card, node.manage_software_bridges)).collect();
    let leaves_alone = |wish: &Result<_, _>| matches!(wish, Err(PfVerdict::NotSelected(_)));
    let touched_by = wishes.iter().position(|wish| !leaves_alone(wish)).unwrap_or(policies.len());
    let entries = node.current.interfaces.iter().flatten();
    let current = entries.into_iter().find(|entry| entry.pci_address.value() == card.pci_address.value());
    let undecided = wishes.iter().any(|wish| matches!(wish, Err(PfVerdict::Undecided(_))));
    let at_fault = current.and_then(|entry| at_fault_on(entry, policies, &wishes, unreadable));
    let (outcome, verdicts) = match (current, at_fault) {
        (Some(entry), Some(by)) => (Outcome::Held(entry.clone()), held_back(policies, entry, by, wishes)),
        (Some(entry), None) if undecided => {
            (Outcome::Held(entry.clone()), held_undecided(policies, entry, wishes))
        }
        (None, _) if undecided => (Outcome::Nobodys, undecided_verdicts(wishes)),
        _ => merged(policies, current, wishes),
    };
    PfPlan { outcome, verdicts, touched_by }
}

/// A policy with VFs on the PF that cannot be followed, or read.
fn at_fault_on<'a>(
    entry: &'a Interface,
    policies: &[NamedPolicy<'_>],
    wishes: &Wishes,
    unreadable: &BTreeSet<String>,
) -> Option<&'a str> {
    let at_fault = |name: &str| {
        unreadable.contains(name)
            || policies
                .iter()
                .zip(wishes)
                .any(|(policy, wish)| policy.name == name && matches!(wish, Err(PfVerdict::Invalid(_))))
    };
    let groups = entry.vf_groups.iter().flatten();
    groups.filter_map(|group| group.policy_name.as_deref()).find(|name| at_fault(name))
}

/// Returns what policies are told of a PF that stays as it is because of the policy `by`.
fn held_back(policies: &[NamedPolicy<'_>], entry: &Interface, by: &str, wishes: Wishes) -> Vec<PfVerdict> {
    held(policies, entry, wishes, &PfVerdict::Invalid(PolicyFault::HeldBack { policy: by.to_owned() }))
}

/// Returns what policies are told of a PF that stays as it is because facts that decide about it are unknown.
fn held_undecided(policies: &[NamedPolicy<'_>], entry: &Interface, wishes: Wishes) -> Vec<PfVerdict> {
    let verdict = PfVerdict::Undecided(undecided_facts(&wishes));
    held(policies, entry, wishes, &verdict)
}

/// Returns what policies are told of a PF for which nothing was decided yet, and cannot be.
fn undecided_verdicts(wishes: Wishes) -> Vec<PfVerdict> {
    let undecided = PfVerdict::Undecided(undecided_facts(&wishes));
    wishes.into_iter().map(|wish| wish.err().unwrap_or_else(|| undecided.clone())).collect()
}

fn undecided_facts(wishes: &Wishes) -> Vec<UnknownFact> {
    let undecided = wishes.iter().filter_map(|wish| match wish {
        Err(PfVerdict::Undecided(facts)) => Some(facts),
        _ => None,
    });
    let facts: BTreeSet<_> = undecided.flatten().copied().collect();
    facts.into_iter().collect()
}

/// Returns what policies are told of a PF that stays as `entry` has it: those that have all they want there are fine,
/// others are told why.
fn held(policies: &[NamedPolicy<'_>], entry: &Interface, wishes: Wishes, why: &PfVerdict) -> Vec<PfVerdict> {
    let groups = entry.vf_groups.as_deref().unwrap_or_default();
    let has_all = |wish: &Interface| {
        entry.num_vfs >= wish.num_vfs && wish.vf_groups.iter().flatten().all(|group| groups.contains(group))
    };
    let has_vfs = |policy: &NamedPolicy<'_>| {
        groups.iter().any(|group| group.policy_name.as_deref() == Some(policy.name))
    };
    let verdict = |(policy, wish)| match wish {
        Err(PfVerdict::Undecided(_)) if has_vfs(policy) => PfVerdict::as_asked(),
        Err(verdict) => verdict,
        Ok(wish) if has_all(&wish) => PfVerdict::as_asked(),
        Ok(_) => why.clone(),
    };
    policies.iter().zip(wishes).map(verdict).collect()
}

/// One policy on top of the other.
fn merged<'a>(
    policies: &[NamedPolicy<'a>],
    current: Option<&Interface>,
    wishes: Wishes,
) -> (Outcome<'a>, Vec<PfVerdict>) {
    let sides = Sides::of(policies, &wishes);
    let mut verdicts = Vec::new();
    let mut pf: Option<(Interface, NamedPolicy<'a>)> = None;
    for (policy, wish) in policies.iter().zip(wishes) {
        let wish = match wish {
            Ok(wish) => wish,
            Err(verdict) => {
                verdicts.push(verdict);
                continue;
            }
        };
        let interface = match pf {
            None => wish,
            Some((below, previous)) => {
                let (interface, displaced) = merge(below, wish, previous.priority() == policy.priority());
                tell_losers(&mut verdicts, policies, policy, displaced);
                interface
            }
        };
        verdicts.push(PfVerdict::as_asked());
        pf = Some((interface, *policy));
    }
    sides.tell(policies, &mut verdicts);
    if let Some((interface, winner)) = &pf {
        tell_overruled(&mut verdicts, policies, winner, interface);
    }
    let outcome = pf.map_or(Outcome::Nobodys, |(interface, winner)| Outcome::Wanted {
        interface: sides.settle(with_spelling_of(current, interface)),
        winner,
    });
    (outcome, verdicts)
}

/// Who says that the PF is managed outside, and who says that it is ours: the strongest of each side. Where they
/// disagree it is taken to be managed outside, which destroys nothing, and both are told.
struct Sides {
    outside: Option<String>,
    ours: Option<String>,
}

impl Sides {
    fn of(policies: &[NamedPolicy<'_>], wishes: &Wishes) -> Self {
        let strongest = |outside: bool| {
            let of_side = |wish: &Interface| (wish.externally_managed == Some(true)) == outside;
            let mut all = policies.iter().zip(wishes).rev();
            all.find(|(_, wish)| wish.as_ref().is_ok_and(of_side)).map(|(policy, _)| policy.name.to_owned())
        };
        Self { outside: strongest(true), ours: strongest(false) }
    }

    fn settle(&self, interface: Interface) -> Interface {
        Interface { externally_managed: self.outside.is_some().then_some(true), ..interface }
    }

    fn tell(&self, policies: &[NamedPolicy<'_>], verdicts: &mut [PfVerdict]) {
        let (Some(outside), Some(ours)) = (&self.outside, &self.ours) else { return };
        for (policy, verdict) in policies.iter().zip(verdicts) {
            if let PfVerdict::Selected { disagrees_with, .. } = verdict {
                let says_outside = policy.spec.externally_managed == Some(true);
                *disagrees_with = Some(if says_outside { ours } else { outside }.clone());
            }
        }
    }
}

fn tell_losers(
    verdicts: &mut [PfVerdict],
    policies: &[NamedPolicy<'_>],
    winner: &NamedPolicy<'_>,
    displaced: Vec<Displaced>,
) {
    for Displaced { policy, range, why } in displaced {
        for (loser, verdict) in policies.iter().zip(&mut *verdicts) {
            if let PfVerdict::Selected { lost, .. } = verdict
                && loser.name == policy
            {
                let equal_priority = loser.priority() == winner.priority();
                lost.push(LostGroup { range, to: winner.name.to_owned(), why, equal_priority });
            }
        }
    }
}

/// Tells those who have VFs on the PF in which of its settings it is not as they want.
fn tell_overruled(
    verdicts: &mut [PfVerdict],
    policies: &[NamedPolicy<'_>],
    winner: &NamedPolicy<'_>,
    interface: &Interface,
) {
    let groups = interface.vf_groups.iter().flatten();
    for (policy, verdict) in policies.iter().zip(verdicts) {
        let has_vfs = groups.clone().any(|group| group.policy_name.as_deref() == Some(policy.name));
        if let PfVerdict::Selected { overruled, .. } = verdict
            && has_vfs
        {
            let equal_priority = policy.priority() == winner.priority();
            let told = |setting| Overruled { setting, by: winner.name.to_owned(), equal_priority };
            overruled.extend(differing(policy.spec, winner.spec).map(told));
        }
    }
}

/// The Go operator writes a link type as the policy spells it. Another spelling alone is no reason to write.
fn with_spelling_of(current: Option<&Interface>, wanted: Interface) -> Interface {
    let spelled = current.and_then(|entry| entry.link_type.as_ref());
    match (spelled, &wanted.link_type) {
        (Some(spelled), Some(kind)) if spelled.eq_ignore_ascii_case(kind) => {
            Interface { link_type: Some(spelled.clone()), ..wanted }
        }
        _ => wanted,
    }
}
