//! Desired state of a node: policies and the reported cards of the node => node state spec, and the result of each
//! policy on each card.

mod bridges;
mod conflict;
mod desired;
mod evaluation;
mod fault;
mod merge;
mod mismatch;
mod pf;
mod select;
mod setting;

use alloc::collections::{BTreeMap, BTreeSet};
use core::cmp::Ordering;

use vfleet_api::node_state::{InterfaceExt, System};
use vfleet_api::pool_config::RdmaMode;
use vfleet_api::{SriovNetworkNodePolicySpec, SriovNetworkNodeStateSpec};

use crate::facts::Fact;
use crate::prelude::*;
pub(crate) use bridges::bridge_name;
pub(crate) use conflict::{ConflictKind, PolicyConflict, claim_vfs, find_conflict};
pub(crate) use desired::derive_interface;
pub use evaluation::{LossReason, LostVfGroup, OverruledSetting, PfEvaluation, PfOutcome, PolicyEvaluation};
pub use fault::{PolicyFault, requests_bridge};
pub use mismatch::{NodeMismatch, PfMismatch};
use pf::{PfDecision, plan_pf};
pub(crate) use select::{SelectorFacts, has_name, is_empty, is_on_network, is_pci_id, names_pfs, selects};
pub use select::{find_node_mismatch, selects_node};
pub use setting::PfSetting;

/// Priority of a policy without one.
pub(crate) const DEFAULT_PRIORITY: i64 = 99;

/// Policy with its name.
#[derive(Clone, Copy, Debug)]
pub struct NamedPolicy<'a> {
    /// Name of the policy.
    pub name: &'a str,
    /// Spec of the policy.
    pub spec: &'a SriovNetworkNodePolicySpec,
}

impl NamedPolicy<'_> {
    fn priority(&self) -> i64 {
        self.spec.priority.unwrap_or(DEFAULT_PRIORITY)
    }

    /// Compares by precedence: the policy that wins is the greater one.
    fn cmp_precedence(&self, other: &Self) -> Ordering {
        other.priority().cmp(&self.priority()).then_with(|| self.name.cmp(other.name))
    }
}

/// Facts of a node that decide its desired state.
#[derive(Clone, Copy, Debug)]
pub struct NodeInput<'a> {
    /// Labels of the node.
    pub labels: &'a BTreeMap<String, String>,
    /// Cards that the node state reports.
    pub cards: &'a [InterfaceExt],
    /// Current spec of the node state.
    pub current: &'a SriovNetworkNodeStateSpec,
    /// RDMA mode of the pool of the node; unknown while the pool is unknown.
    pub rdma_mode: Fact<RdmaMode>,
    /// Feature gate manageSoftwareBridges is enabled.
    pub manage_software_bridges: bool,
}

impl NodePlan {
    /// Returns whether writing the spec could remove VFs by mistake: a policy is unreadable, invalid or undecided, and
    /// the node state is new, so that its previous VFs are unknown. Then the spec must not be written, and the agent
    /// changes nothing.
    pub fn could_lose_vfs(&self, node: &NodeInput<'_>, unreadable: &BTreeSet<String>) -> bool {
        let is_open =
            |pf: &PfEvaluation| matches!(pf.outcome, PfOutcome::Invalid(_) | PfOutcome::Undecided(_));
        let is_new = node.current.interfaces.is_none();
        // An unreadable card may have VFs.
        let has_vfs =
            node.cards.iter().any(|card| card.num_vfs.unwrap_or(0) > 0 || card.unknown_facts.is_some());
        is_new
            && has_vfs
            && (!unreadable.is_empty()
                || self.evaluations.iter().any(|evaluation| evaluation.pfs.iter().any(is_open)))
    }
}

/// Desired state of a node, with the result of each policy.
#[derive(Clone, Debug, PartialEq)]
pub struct NodePlan {
    /// Desired state. `interfaces` is always set, even if no policy selects a PF: an empty list tells the agent that
    /// the operator has planned the node.
    pub spec: SriovNetworkNodeStateSpec,
    /// Results of the policies that select the node, by ascending precedence.
    pub evaluations: Vec<PolicyEvaluation>,
}

/// Returns the desired state of the node and the result of each policy. A card whose VFs belong to an invalid or
/// `unreadable` policy keeps its current desired state: a typing mistake must not remove VFs that pods use. So does a
/// card whose selection depends on unknown facts, and a node that reports no card at all: unknown is not absent
/// (decision 16).
pub fn plan_node_spec(
    policies: &[NamedPolicy<'_>],
    unreadable: &BTreeSet<String>,
    node: &NodeInput<'_>,
) -> NodePlan {
    let policies = select_policies(policies, node.labels);
    let mut evaluations: Vec<_> = policies
        .iter()
        .map(|policy| PolicyEvaluation { policy: policy.name.to_owned(), pfs: Vec::new() })
        .collect();
    let mut interfaces = Vec::new();
    let mut bridges = bridges::BridgeCollector::new(node);
    for card in node.cards {
        let plan = plan_pf(&policies, unreadable, node, card);
        for (evaluation, outcome) in evaluations.iter_mut().zip(plan.outcomes) {
            evaluation.pfs.push(PfEvaluation {
                pci_address: card.pci_address.clone(),
                name: card.name.clone(),
                outcome,
            });
        }
        match plan.desired {
            PfDecision::Unmanaged => {}
            PfDecision::Configured { interface, winner } => {
                // An externally managed PF is no uplink, even if the winning policy requests a bridge.
                if interface.externally_managed != Some(true) {
                    bridges.add(winner.spec, card);
                }
                interfaces.push((plan.first_policy, interface));
            }
            PfDecision::Kept(interface) => {
                bridges.keep(card);
                interfaces.push((plan.first_policy, interface));
            }
        }
    }
    // Same order as the Go operator, so that a take-over changes nothing.
    interfaces.sort_by_key(|(first_policy, _)| *first_policy);
    let system = match node.rdma_mode {
        Fact::Value(mode) => Some(System { rdma_mode: Some(mode) }),
        Fact::None => None,
        Fact::Unknown => node.current.system.clone(),
    };
    let (interfaces, bridges) = if node.cards.is_empty() {
        (node.current.interfaces.clone().unwrap_or_default(), node.current.bridges.clone())
    } else {
        (interfaces.into_iter().map(|(_, interface)| interface).collect(), bridges.into_sorted())
    };
    NodePlan {
        spec: SriovNetworkNodeStateSpec { interfaces: Some(interfaces), bridges, system },
        evaluations,
    }
}

/// Returns the faults of a policy that do not depend on the PF, each with its field in the spec.
pub(crate) fn find_faults(
    spec: &SriovNetworkNodePolicySpec,
    manage_software_bridges: bool,
) -> impl Iterator<Item = (String, PolicyFault)> {
    let combinations = fault::find_faults(spec, manage_software_bridges);
    select::find_faults(&spec.nic_selector)
        .chain(desired::find_faults(spec))
        .chain(combinations.map(|(field, fault)| (field.to_owned(), fault)))
        .chain(fault::find_uplink_faults(spec))
}

/// Returns the policies that select the node, by ascending precedence: the last one wins.
pub(crate) fn select_policies<'a>(
    policies: &[NamedPolicy<'a>],
    labels: &BTreeMap<String, String>,
) -> Vec<NamedPolicy<'a>> {
    let mut list: Vec<_> = policies.iter().copied().filter(|policy| selects_node(policy, labels)).collect();
    list.sort_by(NamedPolicy::cmp_precedence);
    list
}
