//! The fleet as the API server tells it: policies, pools, nodes, node states and the operator config. Plain data and no
//! client, so that every decision can be tested by calling it.

mod decision;
mod explain;
mod judge;
mod standing;
mod state;
pub(crate) mod tally;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::runtime::watcher::Event;
use vfleet_api::keys::DEVICE_PLUGIN_LABEL;
use vfleet_api::{
    SriovNetworkNodePolicy, SriovNetworkNodeState, SriovNetworkPoolConfig, SriovOperatorConfig,
};
use vfleet_cluster::guarded::Guarded;
use vfleet_cluster::store::{Changed, Known};
use vfleet_plan::gates::Gate;
use vfleet_plan::offload::offload_wanted;
use vfleet_plan::{
    NamedPolicy, NamedPool, NicIds, NodeIdentity, device_plugin_config, pool, runs_agent, selects_node,
};

use crate::components::go_device_plugin::{NodeWish, PluginWish};

pub(crate) use decision::{Decision, Upkeep};
pub(crate) use standing::PoolStanding;
pub(crate) use state::{State, SyncStatus, without_empty_parts};

/// The fleet.
#[derive(Debug, Default)]
pub(crate) struct Fleet {
    policies: Known<SriovNetworkNodePolicy>,
    pools: Known<SriovNetworkPoolConfig>,
    nodes: Known<Labels>,
    states: Known<State>,
    settings: Option<FleetSettings>,
    /// `None`: not looked for yet.
    nic_ids: Option<NicIds>,
    /// Another number whenever rules for policies may find something else.
    policy_rules: u64,
}

type Labels = BTreeMap<String, String>;

/// What counts of the operator config.
#[derive(Clone, Debug, PartialEq)]
struct FleetSettings {
    /// Labels of the nodes that run an agent; the usual ones when empty.
    node_selector: Labels,
    manage_software_bridges: bool,
    /// The unique id of the operator config, which owns the node states.
    owner: String,
}

/// What a change calls for.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Touched {
    /// Nodes to plan.
    pub(crate) nodes: BTreeSet<String>,
    /// Policies to report on.
    pub(crate) policies: BTreeSet<String>,
    /// Pools to report on.
    pub(crate) pools: BTreeSet<String>,
}

impl Fleet {
    /// Takes in a change of a policy: it touches the nodes that it selects, or selected.
    pub(crate) fn policy(&mut self, event: Event<Guarded<SriovNetworkNodePolicy>>) -> Touched {
        let mut policies: BTreeSet<_> = name(&event).into_iter().collect();
        let mut nodes = BTreeSet::new();
        let changed = self.policies.update(event, without_managed_fields);
        for Changed { name, old, was_unknown } in &changed {
            let new = self.policies.get(name);
            let versions = || old.iter().chain(new).map(|policy| NamedPolicy { name, spec: &policy.spec });
            let selected =
                |labels: &Labels| *was_unknown || versions().any(|policy| selects_node(&policy, labels));
            nodes.extend(
                self.nodes.iter().filter(|(_, labels)| selected(labels)).map(|(name, _)| name.clone()),
            );
            policies.insert(name.clone());
        }
        if !changed.is_empty() {
            self.policy_rules += 1;
        }
        Touched { nodes, policies, ..Default::default() }
    }

    /// Takes in a change of a pool: it touches the nodes that it selects, or selected.
    pub(crate) fn pool(&mut self, event: Event<Guarded<SriovNetworkPoolConfig>>) -> Touched {
        let mut pools: BTreeSet<_> = name(&event).into_iter().collect();
        let mut nodes = BTreeSet::new();
        for Changed { name, old, was_unknown } in self.pools.update(event, without_managed_fields) {
            let new = self.pools.get(&name);
            let versions = || old.iter().chain(new).map(|pool| NamedPool { name: &name, spec: &pool.spec });
            let selected = |node: NodeIdentity<'_>| {
                was_unknown || versions().any(|pool| pool::selects(&pool, node).unwrap_or(true))
            };
            let selected = self.nodes.iter().filter(|(name, labels)| selected(NodeIdentity { name, labels }));
            nodes.extend(selected.map(|(name, _)| name.clone()));
            // Each tells of those that it shares nodes with.
            pools.extend(self.pools.names().cloned());
            pools.insert(name);
        }
        Touched { nodes, pools, ..Default::default() }
    }

    /// Takes in a change of a node.
    pub(crate) fn node(&mut self, event: Event<Guarded<Node>>) -> Touched {
        let changed = self.nodes.take(event, |node| Ok(node.labels().clone()));
        if !changed.is_empty() {
            self.policy_rules += 1;
        }
        Touched::nodes(&changed)
    }

    /// Takes in a change of a node state.
    pub(crate) fn state(&mut self, event: Event<Guarded<SriovNetworkNodeState>>) -> Touched {
        let changed = self.states.update(event, State::from);
        if changed.iter().any(|changed| self.is_new_to_rules(changed)) {
            self.policy_rules += 1;
        }
        let blocked = |state: Option<&State>| state.and_then(|state| state.blocked.clone());
        let is_news = |changed: &&Changed<State>| {
            blocked(changed.old.as_ref()) != blocked(self.states.get(&changed.name))
        };
        // A pool tells what blocks one of its nodes.
        let pools = changed.iter().filter(is_news).flat_map(|changed| self.pool_standings(&changed.name));
        Touched { pools: pools.map(|(pool, _)| pool.to_owned()).collect(), ..Touched::nodes(&changed) }
    }

    /// Takes in the operator config: when something in it counts for nodes, all of them are touched.
    pub(crate) fn settings(&mut self, config: Option<&SriovOperatorConfig>) -> Touched {
        let settings = config.map(FleetSettings::from);
        if self.settings == settings {
            return Touched::default();
        }
        self.settings = settings;
        self.policy_rules += 1;
        let nodes = self.nodes.names().chain(self.states.names()).cloned().collect();
        Touched { nodes, ..Default::default() }
    }

    /// Takes in which devices the VFs of which cards are: all nodes may be touched.
    pub(crate) fn nic_ids(&mut self, nic_ids: Option<NicIds>) -> Touched {
        if self.nic_ids == nic_ids {
            return Touched::default();
        }
        self.nic_ids = nic_ids;
        self.policy_rules += 1;
        let nodes = self.nodes.names().cloned().collect();
        Touched { nodes, ..Default::default() }
    }

    /// There is news about Open vSwitch hardware offload, which some pools ask for.
    pub(crate) fn offload_pools(&self) -> Touched {
        let asks = |pool: &SriovNetworkPoolConfig| offload_wanted(&pool.spec).is_some();
        let pools = self.pools.iter().filter(|(_, pool)| asks(pool)).map(|(name, _)| name.clone());
        Touched { pools: pools.collect(), ..Default::default() }
    }

    /// Whether all is known that decisions need: before that, an absent policy may just not have been seen.
    pub(crate) fn is_complete(&self) -> bool {
        self.policies.is_listed()
            && self.pools.is_listed()
            && self.nodes.is_listed()
            && self.states.is_listed()
            && self.settings.is_some()
            && self.nic_ids.is_some()
    }

    /// The labels of the node, if it runs an agent.
    fn agent_node(&self, name: &str) -> Option<&Labels> {
        self.nodes
            .get(name)
            .filter(|labels| self.settings.as_ref().is_some_and(|settings| settings.selects(labels)))
    }

    /// The pool that the node belongs to.
    fn pool_of(&self, name: &str, labels: &Labels) -> Option<&str> {
        let pools: Vec<_> =
            self.pools.iter().map(|(name, pool)| NamedPool { name, spec: &pool.spec }).collect();
        let found = pool::pool_of(&pools, NodeIdentity { name, labels }).map(|pool| pool.name)?;
        self.pools.iter().find(|(name, _)| *name == found).map(|(name, _)| name.as_str())
    }

    /// What the node's separate device plugin shall be told.
    pub(crate) fn plugin_wish(&self, node: &str, decision: &Decision) -> Option<NodeWish> {
        let Some(labels) = self.agent_node(node) else {
            let has_label = self.nodes.get(node)?.contains_key(DEVICE_PLUGIN_LABEL);
            return has_label.then_some(NodeWish::NoLabel);
        };
        let (state, nic_ids) = (self.states.get(node)?, self.nic_ids.as_ref()?);
        let cards = state.cards.as_deref().unwrap_or_default();
        if cards.is_empty() && state.spec.interfaces.iter().flatten().next().is_some() {
            return Some(NodeWish::Unchanged);
        }
        let list = device_plugin_config(&self.named_policies(), labels, cards, &state.spec, nic_ids);
        Some(NodeWish::Plugin(PluginWish {
            has_resources: list.resources.is_some(),
            config: serde_json::to_string(&list).ok()?,
            vfs: state.vfs.clone(),
            is_settled: *decision == Decision::Nothing
                && matches!(state.sync, SyncStatus::Succeeded | SyncStatus::Failed),
            label: labels.get(DEVICE_PLUGIN_LABEL).cloned(),
        }))
    }

    /// All readable policies.
    fn named_policies(&self) -> Vec<NamedPolicy<'_>> {
        self.policies.iter().map(|(name, policy)| NamedPolicy { name, spec: &policy.spec }).collect()
    }
}

impl Touched {
    fn nodes<T>(changed: &[Changed<T>]) -> Self {
        Self { nodes: changed.iter().map(|changed| changed.name.clone()).collect(), ..Default::default() }
    }
}

impl FleetSettings {
    fn selects(&self, labels: &Labels) -> bool {
        runs_agent(&self.node_selector, labels)
    }
}

impl From<&SriovOperatorConfig> for FleetSettings {
    fn from(config: &SriovOperatorConfig) -> Self {
        Self {
            node_selector: config.spec.config_daemon_node_selector.clone().unwrap_or_default(),
            manage_software_bridges: Gate::ManageSoftwareBridges.is_on(&config.spec),
            owner: config.uid().unwrap_or_default(),
        }
    }
}

/// The name of an object that came or changed: its status may need to be put right although nothing else is new.
fn name<K: ResourceExt>(event: &Event<K>) -> Option<String> {
    match event {
        Event::Apply(object) | Event::InitApply(object) => Some(object.name_any()),
        Event::Delete(_) | Event::Init | Event::InitDone => None,
    }
}

fn without_managed_fields<K: ResourceExt>(mut object: K) -> K {
    object.meta_mut().managed_fields = None;
    object
}

#[cfg(test)]
mod tests;
