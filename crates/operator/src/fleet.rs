//! The fleet as the API server tells it: policies, nodes and node states. Plain data and no client, so that every
//! decision can be tested by calling it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use kube::ResourceExt;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::Event;

use k8s_openapi::api::core::v1::Node;
use vfleet_api::keys::{OS_LABEL, WORKER_LABEL};
use vfleet_api::node_state::InterfaceExt;
use vfleet_api::{
    SriovNetworkNodePolicy, SriovNetworkNodePolicySpec, SriovNetworkNodeState, SriovNetworkNodeStateSpec,
};
use vfleet_plan::{NamedPolicy, PolicyProblem, plan_node_spec};

/// The fleet.
#[derive(Debug, Default)]
pub(crate) struct Fleet {
    policies: Known<SriovNetworkNodePolicySpec>,
    nodes: Known<Labels>,
    states: Known<State>,
}

type Labels = BTreeMap<String, String>;

/// What counts of a node state.
#[derive(Debug, PartialEq)]
struct State {
    spec: SriovNetworkNodeStateSpec,
    /// The node's cards, without their VFs: no policy looks at those.
    cards: Option<Vec<InterfaceExt>>,
}

/// What to write for one node.
#[derive(Debug, PartialEq)]
pub(crate) enum Decision {
    /// All is as it shall be, or nothing can be said yet.
    Nothing,
    /// Create the node state, so that the agent has something to report to. Its spec is left out: what the node
    /// shall be like is not known before its cards are.
    Create,
    /// Write this spec.
    Apply(SriovNetworkNodeStateSpec),
}

impl Fleet {
    /// Takes in a change of a policy; gives the nodes that it touches.
    pub(crate) fn policy(&mut self, event: Event<SriovNetworkNodePolicy>) -> BTreeSet<String> {
        let changed = self.policies.update(event, |policy| policy.spec);
        if changed.is_empty() { BTreeSet::new() } else { self.nodes.items.keys().cloned().collect() }
    }

    /// Takes in a change of a node; gives the nodes that it touches.
    pub(crate) fn node(&mut self, event: Event<PartialObjectMeta<Node>>) -> BTreeSet<String> {
        self.nodes.update(event, |node| node.labels().clone())
    }

    /// Takes in a change of a node state; gives the nodes that it touches.
    pub(crate) fn state(&mut self, event: Event<SriovNetworkNodeState>) -> BTreeSet<String> {
        self.states.update(event, |state| State {
            spec: state.spec,
            cards: state
                .status
                .and_then(|status| status.interfaces)
                .map(|cards| cards.into_iter().map(|card| InterfaceExt { vfs: None, ..card }).collect()),
        })
    }

    /// Whether all three kinds were listed: before that, an absent policy may just not have been seen.
    pub(crate) fn is_complete(&self) -> bool {
        self.policies.listed && self.nodes.listed && self.states.listed
    }

    /// What to write for the node `name`, and which policies could not be followed there.
    pub(crate) fn decide(&self, name: &str) -> (Decision, Vec<PolicyProblem>) {
        let Some(labels) = self.nodes.items.get(name).filter(|labels| runs_an_agent(labels)) else {
            return (Decision::Nothing, Vec::new());
        };
        let Some(state) = self.states.items.get(name) else { return (Decision::Create, Vec::new()) };
        let Some(cards) = &state.cards else { return (Decision::Nothing, Vec::new()) };
        let policies: Vec<_> =
            self.policies.items.iter().map(|(name, spec)| NamedPolicy { name, spec }).collect();
        let (spec, problems) = plan_node_spec(&policies, labels, cards);
        let decision = if spec == state.spec { Decision::Nothing } else { Decision::Apply(spec) };
        (decision, problems)
    }
}

fn runs_an_agent(labels: &Labels) -> bool {
    labels.contains_key(WORKER_LABEL) && labels.get(OS_LABEL).is_some_and(|os| os == "linux")
}

/// The objects of one kind, by name.
#[derive(Debug)]
struct Known<T> {
    items: HashMap<String, T>,
    /// Names seen in the list that is under way; the others are gone when it ends.
    listing: BTreeSet<String>,
    listed: bool,
}

impl<T> Default for Known<T> {
    fn default() -> Self {
        Self { items: HashMap::new(), listing: BTreeSet::new(), listed: false }
    }
}

impl<T: PartialEq> Known<T> {
    /// Takes in a watch event; gives the names of objects that are different from before.
    fn update<K: ResourceExt>(&mut self, event: Event<K>, read: impl FnOnce(K) -> T) -> BTreeSet<String> {
        match event {
            Event::Init => {
                self.listing.clear();
                BTreeSet::new()
            }
            Event::InitApply(object) => {
                self.listing.insert(object.name_any());
                self.put(object.name_any(), read(object))
            }
            Event::InitDone => {
                self.listed = true;
                let seen = std::mem::take(&mut self.listing);
                let gone: BTreeSet<_> =
                    self.items.keys().filter(|name| !seen.contains(*name)).cloned().collect();
                self.items.retain(|name, _| seen.contains(name));
                gone
            }
            Event::Apply(object) => self.put(object.name_any(), read(object)),
            Event::Delete(object) => {
                let name = object.name_any();
                self.items.remove(&name).map(|_| name).into_iter().collect()
            }
        }
    }

    fn put(&mut self, name: String, item: T) -> BTreeSet<String> {
        if self.items.get(&name) == Some(&item) {
            return BTreeSet::new();
        }
        self.items.insert(name.clone(), item);
        BTreeSet::from([name])
    }
}

#[cfg(test)]
mod tests;
