//! What a node shall be like: policies and the node's reported cards => node state spec; and for each policy and card,
//! why it is not as that policy wants.

mod answer;
mod bridges;
mod fault;
mod merge;
mod pf;
mod rival;
mod rule;
mod select;
mod setting;
mod wish;

use alloc::collections::{BTreeMap, BTreeSet};
use core::cmp::Ordering;

use vfleet_api::node_state::{InterfaceExt, System};
use vfleet_api::pool_config::RdmaMode;
use vfleet_api::{SriovNetworkNodePolicySpec, SriovNetworkNodeStateSpec};

use crate::facts::Fact;
use crate::prelude::*;
pub use answer::{LossReason, LostGroup, Overruled, PfAnswer, PfVerdict, PolicyAnswer};
pub use fault::{PolicyFault, wants_bridge};
use pf::{Outcome, plan_pf};
pub(crate) use rival::{Clash, Rival, claim, rival};
pub use rule::{NodeRule, PfRule};
pub(crate) use select::{SelectedBy, has_name, is_empty, is_on_network, is_pci_id, names_pfs, selects};
pub use select::{selects_node, why_not_node};
pub use setting::PfSetting;
pub(crate) use wish::wish;

/// The priority of a policy that gives none.
pub(crate) const DEFAULT_PRIORITY: i64 = 99;

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

    /// The one that wins comes last.
    fn in_order(&self, other: &Self) -> Ordering {
        other.priority().cmp(&self.priority()).then_with(|| self.name.cmp(other.name))
    }
}

/// All that counts of a node.
#[derive(Clone, Copy, Debug)]
pub struct NodeInput<'a> {
    /// The node's labels.
    pub labels: &'a BTreeMap<String, String>,
    /// Its cards, as its node state reports them.
    pub cards: &'a [InterfaceExt],
    /// What its node state wants until now.
    pub current: &'a SriovNetworkNodeStateSpec,
    /// The RDMA mode of its pool. Unknown while it is not known which pool the node belongs to.
    pub rdma_mode: Fact<RdmaMode>,
    /// Whether software bridges are managed: a feature gate.
    pub manage_software_bridges: bool,
}

impl NodePlan {
    /// Returns whether VFs could be lost by a slip: a policy cannot be read, followed or decided on, and the node state,
    /// which is new, does not tell what was made for it before. Then the spec stays unwritten, and the agent leaves
    /// everything as it is.
    pub fn is_guesswork(&self, node: &NodeInput<'_>, unreadable: &BTreeSet<String>) -> bool {
        let is_open = |pf: &PfAnswer| matches!(pf.verdict, PfVerdict::Invalid(_) | PfVerdict::Undecided(_));
        let is_new = node.current.interfaces.is_none();
        // A card that cannot be read may have VFs.
        let has_vfs =
            node.cards.iter().any(|card| card.num_vfs.unwrap_or(0) > 0 || card.unknown_facts.is_some());
        is_new
            && has_vfs
            && (!unreadable.is_empty() || self.answers.iter().any(|answer| answer.pfs.iter().any(is_open)))
    }
}

/// What a node shall be like, and what each policy is told about it.
#[derive(Clone, Debug, PartialEq)]
pub struct NodePlan {
    /// What the node shall be like. `interfaces` is always there, also when no policy selects anything: that the list
    /// is empty is what tells the agent that it was worked out.
    pub spec: SriovNetworkNodeStateSpec,
    /// The policies that select the node, the winner last.
    pub answers: Vec<PolicyAnswer>,
}

/// Returns the desired state of the node, and what each policy is told about it. A card whose VFs belong to a policy that
/// cannot be followed, or to one of the `unreadable` ones, stays as it is: a slip of the pen must not remove VFs that
/// pods use. So does a card of which facts are unknown by which a policy would select it, and a node that reports no card
/// at all: unknown is not absent (decision 16).
pub fn plan_node_spec(
    policies: &[NamedPolicy<'_>],
    unreadable: &BTreeSet<String>,
    node: &NodeInput<'_>,
) -> NodePlan {
    let policies = in_order_of_application(policies, node.labels);
    let mut answers: Vec<_> = policies
        .iter()
        .map(|policy| PolicyAnswer { policy: policy.name.to_owned(), pfs: Vec::new() })
        .collect();
    let mut interfaces = Vec::new();
    let mut bridges = bridges::Collected::new(node);
    for card in node.cards {
        let plan = plan_pf(&policies, unreadable, node, card);
        for (answer, verdict) in answers.iter_mut().zip(plan.verdicts) {
            answer.pfs.push(PfAnswer {
                pci_address: card.pci_address.clone(),
                name: card.name.clone(),
                verdict,
            });
        }
        match plan.outcome {
            Outcome::Nobodys => {}
            Outcome::Wanted { interface, winner } => {
                // A PF that is managed outside is no uplink of ours, also if its winner thinks that it is.
                if interface.externally_managed != Some(true) {
                    bridges.add(winner.spec, card);
                }
                interfaces.push((plan.touched_by, interface));
            }
            Outcome::Held(interface) => {
                bridges.keep(card);
                interfaces.push((plan.touched_by, interface));
            }
        }
    }
    // The order in which the Go operator lists them, so that a take-over changes nothing.
    interfaces.sort_by_key(|(touched_by, _)| *touched_by);
    let system = match node.rdma_mode {
        Fact::Value(mode) => Some(System { rdma_mode: Some(mode) }),
        Fact::None => None,
        Fact::Unknown => node.current.system.clone(),
    };
    let (interfaces, bridges) = if node.cards.is_empty() {
        (node.current.interfaces.clone().unwrap_or_default(), node.current.bridges.clone())
    } else {
        (interfaces.into_iter().map(|(_, interface)| interface).collect(), bridges.by_name())
    };
    NodePlan { spec: SriovNetworkNodeStateSpec { interfaces: Some(interfaces), bridges, system }, answers }
}

/// All that keeps a policy from being followed, wherever it selects a PF: each with its field in the policy's spec.
pub(crate) fn faults(
    spec: &SriovNetworkNodePolicySpec,
    manage_software_bridges: bool,
) -> impl Iterator<Item = (String, PolicyFault)> {
    let together = fault::faults(spec, manage_software_bridges);
    select::faults(&spec.nic_selector)
        .chain(wish::faults(spec))
        .chain(together.map(|(field, fault)| (field.to_owned(), fault)))
}

/// Policies that select the node; the one that wins comes last.
pub(crate) fn in_order_of_application<'a>(
    policies: &[NamedPolicy<'a>],
    labels: &BTreeMap<String, String>,
) -> Vec<NamedPolicy<'a>> {
    let mut list: Vec<_> = policies.iter().copied().filter(|policy| selects_node(policy, labels)).collect();
    list.sort_by(NamedPolicy::in_order);
    list
}
