//! What a node shall be like: policies and the node's reported cards => node state spec.

mod merge;
mod select;

use alloc::collections::{BTreeMap, BTreeSet};

use thiserror::Error;
use vfleet_api::keys::IGNORED_POLICY;
use vfleet_api::node_state::InterfaceExt;
use vfleet_api::{Invalid, SriovNetworkNodePolicySpec, SriovNetworkNodeStateSpec};

use crate::prelude::*;

/// The priority of a policy that gives none.
const DEFAULT_PRIORITY: i64 = 99;

/// A policy, by name.
#[derive(Clone, Copy, Debug)]
pub struct NamedPolicy<'a> {
    /// Its name.
    pub name: &'a str,
    /// What it wants.
    pub spec: &'a SriovNetworkNodePolicySpec,
}

impl NamedPolicy<'_> {
    fn priority(&self) -> i64 {
        self.spec.priority.unwrap_or(DEFAULT_PRIORITY)
    }
}

/// A policy that cannot be followed on a node.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("policy {policy}: {invalid}")]
pub struct PolicyProblem {
    /// The policy.
    pub policy: String,
    /// What is wrong with it.
    pub invalid: Invalid,
}

/// What the node with these labels and cards shall be like, and which policies could not be followed. A card that such
/// a policy, or one of the `unreadable` ones, selected until now stays as `current` has it: a slip of the pen must not
/// remove VFs that pods use.
///
/// `interfaces` of the result is always there, also when no policy selects anything: that the list is empty is
/// what tells the agent that it was worked out.
pub fn plan_node_spec(
    policies: &[NamedPolicy<'_>],
    unreadable: &BTreeSet<String>,
    labels: &BTreeMap<String, String>,
    cards: &[InterfaceExt],
    current: &SriovNetworkNodeStateSpec,
) -> (SriovNetworkNodeStateSpec, Vec<PolicyProblem>) {
    let mut problems = Vec::new();
    let policies = in_order_of_application(policies, labels);
    let current = current.interfaces.as_deref().unwrap_or_default();
    let interface = |card: &InterfaceExt| {
        let current = current.iter().find(|entry| entry.pci_address.value() == card.pci_address.value());
        match current.filter(|entry| merge::has_group_of(entry, |policy| unreadable.contains(policy))) {
            Some(entry) => Some(entry.clone()),
            None => merge::interface(&policies, card, current, &mut problems),
        }
    };
    let interfaces = cards.iter().filter_map(interface).collect();
    problems.dedup();
    (SriovNetworkNodeStateSpec { interfaces: Some(interfaces), ..Default::default() }, problems)
}

/// Policies that select the node; the one that wins comes last.
fn in_order_of_application<'a>(
    policies: &[NamedPolicy<'a>],
    labels: &BTreeMap<String, String>,
) -> Vec<NamedPolicy<'a>> {
    let mut list: Vec<_> =
        policies.iter().copied().filter(|policy| select::selects_node(policy, labels)).collect();
    list.sort_by(|a, b| b.priority().cmp(&a.priority()).then_with(|| a.name.cmp(b.name)));
    list
}

/// Whether a policy of this name selects anything at all.
fn is_ignored(name: &str) -> bool {
    name == IGNORED_POLICY
}
