//! The fleet as the API server tells it: policies, nodes and node states. Plain data and no client, so that every
//! decision can be tested by calling it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use kube::ResourceExt;
use kube::core::{DeserializeGuard, PartialObjectMeta, Resource};
use kube::runtime::watcher::Event;

use k8s_openapi::api::core::v1::Node;
use vfleet_api::bridge::Bridges;
use vfleet_api::keys::{OS_LABEL, WORKER_LABEL};
use vfleet_api::node_state::{InterfaceExt, System};
use vfleet_api::{
    SriovNetworkNodePolicy, SriovNetworkNodePolicySpec, SriovNetworkNodeState, SriovNetworkNodeStateSpec,
};
use vfleet_plan::{NamedPolicy, NodeInput, NodePlan, PfVerdict, plan_node_spec};

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

impl From<SriovNetworkNodeState> for State {
    fn from(state: SriovNetworkNodeState) -> Self {
        let cards = state.status.and_then(|status| status.interfaces);
        let without_vfs = |card| InterfaceExt { vfs: None, ..card };
        Self { spec: state.spec, cards: cards.map(|cards| cards.into_iter().map(without_vfs).collect()) }
    }
}

/// An object that another version wrote may be unreadable to us; it must not blind us to all others.
fn readable<K: Resource>(guarded: DeserializeGuard<K>) -> Option<K> {
    let name = guarded.name_any();
    guarded
        .0
        .inspect_err(|error| tracing::warn!(name, %error, "an object cannot be read; its last state counts"))
        .ok()
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
    pub(crate) fn policy(
        &mut self,
        event: Event<DeserializeGuard<SriovNetworkNodePolicy>>,
    ) -> BTreeSet<String> {
        let changed = self.policies.update(event, |policy| readable(policy).map(|policy| policy.spec));
        if changed.is_empty() { BTreeSet::new() } else { self.nodes.items.keys().cloned().collect() }
    }

    /// Takes in a change of a node; gives the nodes that it touches.
    pub(crate) fn node(&mut self, event: Event<PartialObjectMeta<Node>>) -> BTreeSet<String> {
        self.nodes.update(event, |node| Some(node.labels().clone()))
    }

    /// Takes in a change of a node state; gives the nodes that it touches.
    pub(crate) fn state(
        &mut self,
        event: Event<DeserializeGuard<SriovNetworkNodeState>>,
    ) -> BTreeSet<String> {
        self.states.update(event, |state| readable(state).map(State::from))
    }

    /// Whether all three kinds were listed: before that, an absent policy may just not have been seen.
    pub(crate) fn is_complete(&self) -> bool {
        self.policies.listed && self.nodes.listed && self.states.listed
    }

    /// What to write for the node `name`, and which policies could not be followed there.
    pub(crate) fn decide(&self, name: &str) -> (Decision, Vec<String>) {
        let Some(labels) = self.nodes.items.get(name).filter(|labels| runs_an_agent(labels)) else {
            return (Decision::Nothing, Vec::new());
        };
        let Some(state) = self.states.items.get(name) else { return (Decision::Create, Vec::new()) };
        let Some(cards) = &state.cards else { return (Decision::Nothing, Vec::new()) };
        let policies: Vec<_> =
            self.policies.items.iter().map(|(name, spec)| NamedPolicy { name, spec }).collect();
        let current = without_empty_parts(&state.spec);
        let node =
            NodeInput { labels, cards, current: &current, rdma_mode: None, manage_software_bridges: false };
        let plan = plan_node_spec(&policies, &self.policies.unreadable, &node);
        let problems = problems(&plan);
        let decision = if plan.spec == current { Decision::Nothing } else { Decision::Apply(plan.spec) };
        (decision, problems)
    }
}

/// The policies that cannot be followed on some card, in one sentence each.
fn problems(plan: &NodePlan) -> Vec<String> {
    let mut problems: Vec<String> = Vec::new();
    for answer in &plan.answers {
        for pf in &answer.pfs {
            if let PfVerdict::Invalid(fault) = &pf.verdict {
                problems.push(format!("policy {}: {fault}", answer.policy));
            }
        }
    }
    problems.dedup();
    problems
}

/// The Go operator writes `bridges: {}` and `system: {}`, which say nothing.
fn without_empty_parts(spec: &SriovNetworkNodeStateSpec) -> SriovNetworkNodeStateSpec {
    SriovNetworkNodeStateSpec {
        interfaces: spec.interfaces.clone(),
        bridges: spec.bridges.clone().filter(|bridges| *bridges != Bridges::default()),
        system: spec.system.clone().filter(|system| *system != System::default()),
    }
}

fn runs_an_agent(labels: &Labels) -> bool {
    labels.contains_key(WORKER_LABEL) && labels.get(OS_LABEL).is_some_and(|os| os == "linux")
}

/// The objects of one kind, by name.
#[derive(Debug)]
struct Known<T> {
    items: HashMap<String, T>,
    /// Names of objects that cannot be read and never could.
    unreadable: BTreeSet<String>,
    /// Names seen in the list that is under way; the others are gone when it ends.
    listing: BTreeSet<String>,
    listed: bool,
}

impl<T> Default for Known<T> {
    fn default() -> Self {
        Self { items: HashMap::new(), unreadable: BTreeSet::new(), listing: BTreeSet::new(), listed: false }
    }
}

impl<T: PartialEq> Known<T> {
    /// Takes in a watch event; gives the names of objects that are different from before. What cannot be `read`
    /// counts as it was.
    fn update<K: ResourceExt>(
        &mut self,
        event: Event<K>,
        read: impl FnOnce(K) -> Option<T>,
    ) -> BTreeSet<String> {
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
                self.unreadable.retain(|name| seen.contains(name));
                gone
            }
            Event::Apply(object) => self.put(object.name_any(), read(object)),
            Event::Delete(object) => {
                let name = object.name_any();
                let was_known = self.items.remove(&name).is_some() | self.unreadable.remove(&name);
                was_known.then_some(name).into_iter().collect()
            }
        }
    }

    fn put(&mut self, name: String, item: Option<T>) -> BTreeSet<String> {
        match item {
            Some(item) if self.items.get(&name) != Some(&item) => {
                self.unreadable.remove(&name);
                self.items.insert(name.clone(), item);
                BTreeSet::from([name])
            }
            None if !self.items.contains_key(&name) => {
                self.unreadable.insert(name);
                BTreeSet::new()
            }
            _ => BTreeSet::new(),
        }
    }
}

#[cfg(test)]
mod tests;
