//! Index of the fleet: policies, pools, nodes, node states and the operator config. It has no client, so that every
//! decision can be unit-tested.

mod checks;
mod decision;
mod node_status;
mod state;
mod summary;
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
use vfleet_cluster::store::{ObjectChange, ObjectStore};
use vfleet_plan::gates::FeatureGate;
use vfleet_plan::offload::requested_offload_pool;
use vfleet_plan::{
    NamedPolicy, NamedPool, NicIds, NodeIdentity, NodeStateAction, build_device_plugin_config, pool,
    runs_agent, selects_node,
};

use crate::components::go_device_plugin::{DesiredNodePlugin, DesiredPlugin};

pub(crate) use node_status::PoolNodeStatus;
pub(crate) use state::{FleetNodeState, SyncStatus, remove_empty_sections};

/// Stored objects of the fleet.
#[derive(Debug, Default)]
pub(crate) struct FleetIndex {
    policies: ObjectStore<SriovNetworkNodePolicy>,
    pools: ObjectStore<SriovNetworkPoolConfig>,
    nodes: ObjectStore<Labels>,
    states: ObjectStore<FleetNodeState>,
    settings: Option<FleetSettings>,
    /// `None` until the ConfigMap was looked up.
    nic_ids: Option<NicIds>,
    /// Changes when the rules for policies may have another result.
    rules_revision: u64,
}

type Labels = BTreeMap<String, String>;

/// Values of the operator config that the fleet depends on.
#[derive(Clone, Debug, PartialEq)]
struct FleetSettings {
    /// Labels of the nodes that run an agent; the default selector when empty.
    node_selector: Labels,
    manage_software_bridges: bool,
    /// UID of the operator config, which owns the node states.
    owner: String,
}

/// Objects to reconcile after a change.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct AffectedObjects {
    /// Nodes to plan.
    pub(crate) nodes: BTreeSet<String>,
    /// Policies to report on.
    pub(crate) policies: BTreeSet<String>,
    /// Pools to report on.
    pub(crate) pools: BTreeSet<String>,
}

impl FleetIndex {
    /// Applies a change of a policy. It affects the nodes that the policy selects or selected.
    pub(crate) fn apply_policy(&mut self, event: Event<Guarded<SriovNetworkNodePolicy>>) -> AffectedObjects {
        let mut policies: BTreeSet<_> = changed_name(&event).into_iter().collect();
        let mut nodes = BTreeSet::new();
        let changed = self.policies.update(event, without_managed_fields);
        for ObjectChange { name, old, was_unreadable } in &changed {
            let new = self.policies.get(name);
            let versions = || old.iter().chain(new).map(|policy| NamedPolicy { name, spec: &policy.spec });
            let selected =
                |labels: &Labels| *was_unreadable || versions().any(|policy| selects_node(&policy, labels));
            nodes.extend(
                self.nodes.iter().filter(|(_, labels)| selected(labels)).map(|(name, _)| name.clone()),
            );
            policies.insert(name.clone());
        }
        if !changed.is_empty() {
            self.rules_revision += 1;
        }
        AffectedObjects { nodes, policies, ..Default::default() }
    }

    /// Applies a change of a pool. It affects the nodes that the pool selects or selected, and all pools, because the
    /// status of a pool names the pools that it shares nodes with.
    pub(crate) fn apply_pool(&mut self, event: Event<Guarded<SriovNetworkPoolConfig>>) -> AffectedObjects {
        let mut pools: BTreeSet<_> = changed_name(&event).into_iter().collect();
        let mut nodes = BTreeSet::new();
        for ObjectChange { name, old, was_unreadable } in self.pools.update(event, without_managed_fields) {
            let new = self.pools.get(&name);
            let versions = || old.iter().chain(new).map(|pool| NamedPool { name: &name, spec: &pool.spec });
            let selected = |node: NodeIdentity<'_>| {
                was_unreadable || versions().any(|pool| pool::selects(&pool, node).unwrap_or(true))
            };
            let selected = self.nodes.iter().filter(|(name, labels)| selected(NodeIdentity { name, labels }));
            nodes.extend(selected.map(|(name, _)| name.clone()));
            pools.extend(self.pools.names().cloned());
            pools.insert(name);
        }
        AffectedObjects { nodes, pools, ..Default::default() }
    }

    /// Applies a change of a node.
    pub(crate) fn apply_node(&mut self, event: Event<Guarded<Node>>) -> AffectedObjects {
        let changed = self.nodes.update_with(event, |node| Ok(node.labels().clone()));
        if !changed.is_empty() {
            self.rules_revision += 1;
        }
        AffectedObjects {
            policies: self.policies_of_nodes_without_agent(&changed),
            ..AffectedObjects::of_nodes(&changed)
        }
    }

    /// Returns the policies that select a changed node which runs no agent, or selected it: the status of a policy that
    /// matches no other node names such a node.
    fn policies_of_nodes_without_agent(&self, changed: &[ObjectChange<Labels>]) -> BTreeSet<String> {
        let runs_agent =
            |labels: &Labels| self.settings.as_ref().is_some_and(|settings| settings.selects(labels));
        let versions =
            changed.iter().flat_map(|change| change.old.iter().chain(self.nodes.get(&change.name)));
        let labels: Vec<_> = versions.filter(|labels| !runs_agent(labels)).collect();
        if labels.is_empty() {
            return BTreeSet::new();
        }
        let policies = self.named_policies().into_iter();
        let selects = |policy: &NamedPolicy<'_>| labels.iter().any(|labels| selects_node(policy, labels));
        policies.filter(selects).map(|policy| policy.name.to_owned()).collect()
    }

    /// Applies a change of a node state.
    pub(crate) fn apply_state(&mut self, event: Event<Guarded<SriovNetworkNodeState>>) -> AffectedObjects {
        let changed = self.states.update(event, FleetNodeState::from);
        if changed.iter().any(|changed| self.affects_rules(changed)) {
            self.rules_revision += 1;
        }
        let blocked = |state: Option<&FleetNodeState>| state.and_then(|state| state.blocked.clone());
        let is_blocked_changed = |changed: &&ObjectChange<FleetNodeState>| {
            blocked(changed.old.as_ref()) != blocked(self.states.get(&changed.name))
        };
        // The status of a pool names what blocks one of its nodes.
        let pools =
            changed.iter().filter(is_blocked_changed).flat_map(|changed| self.pool_statuses(&changed.name));
        AffectedObjects {
            pools: pools.map(|(pool, _)| pool.to_owned()).collect(),
            ..AffectedObjects::of_nodes(&changed)
        }
    }

    /// Applies the operator config. A relevant change affects all nodes.
    pub(crate) fn apply_config(&mut self, config: Option<&SriovOperatorConfig>) -> AffectedObjects {
        let settings = config.map(FleetSettings::from);
        if self.settings == settings {
            return AffectedObjects::default();
        }
        self.settings = settings;
        self.rules_revision += 1;
        let nodes = self.nodes.names().chain(self.states.names()).cloned().collect();
        AffectedObjects { nodes, policies: self.policies.names().cloned().collect(), ..Default::default() }
    }

    /// Applies the supported NIC IDs. A change affects all nodes.
    pub(crate) fn apply_nic_ids(&mut self, nic_ids: Option<NicIds>) -> AffectedObjects {
        if self.nic_ids == nic_ids {
            return AffectedObjects::default();
        }
        self.nic_ids = nic_ids;
        self.rules_revision += 1;
        let nodes = self.nodes.names().cloned().collect();
        AffectedObjects { nodes, ..Default::default() }
    }

    /// Returns the pools that request Open vSwitch hardware offload.
    pub(crate) fn find_offload_pools(&self) -> AffectedObjects {
        let requests_offload = |pool: &SriovNetworkPoolConfig| requested_offload_pool(&pool.spec).is_some();
        let pools =
            self.pools.iter().filter(|(_, pool)| requests_offload(pool)).map(|(name, _)| name.clone());
        AffectedObjects { pools: pools.collect(), ..Default::default() }
    }

    /// Returns whether the first lists of all kinds are complete. Before that, nothing can be decided, because a
    /// missing policy may still be received.
    pub(crate) fn is_complete(&self) -> bool {
        self.policies.is_listed()
            && self.pools.is_listed()
            && self.nodes.is_listed()
            && self.states.is_listed()
            && self.settings.is_some()
            && self.nic_ids.is_some()
    }

    /// Returns the labels of the node, if it runs an agent.
    fn find_agent_node(&self, name: &str) -> Option<&Labels> {
        self.nodes
            .get(name)
            .filter(|labels| self.settings.as_ref().is_some_and(|settings| settings.selects(labels)))
    }

    /// Returns the pool of the node.
    fn find_pool_of(&self, name: &str, labels: &Labels) -> Option<&str> {
        let pools: Vec<_> =
            self.pools.iter().map(|(name, pool)| NamedPool { name, spec: &pool.spec }).collect();
        let found = pool::find_pool_of_node(&pools, NodeIdentity { name, labels }).map(|pool| pool.name)?;
        self.pools.iter().find(|(name, _)| *name == found).map(|(name, _)| name.as_str())
    }

    /// Returns the desired state of the separate device plugin on the node.
    pub(crate) fn desired_plugin(&self, node: &str, action: &NodeStateAction) -> Option<DesiredNodePlugin> {
        let Some(labels) = self.find_agent_node(node) else {
            let has_label = self.nodes.get(node)?.contains_key(DEVICE_PLUGIN_LABEL);
            return has_label.then_some(DesiredNodePlugin::NoLabel);
        };
        let (state, nic_ids) = (self.states.get(node)?, self.nic_ids.as_ref()?);
        let cards = state.cards.as_deref().unwrap_or_default();
        if cards.is_empty() && state.spec.interfaces.iter().flatten().next().is_some() {
            return Some(DesiredNodePlugin::Unchanged);
        }
        let list = build_device_plugin_config(&self.named_policies(), labels, cards, &state.spec, nic_ids);
        Some(DesiredNodePlugin::Plugin(DesiredPlugin {
            has_resources: list.resources.is_some(),
            config: serde_json::to_string(&list).ok()?,
            vfs: state.vfs.clone(),
            is_settled: *action == NodeStateAction::None
                && matches!(state.sync, SyncStatus::Succeeded | SyncStatus::Failed),
            label: labels.get(DEVICE_PLUGIN_LABEL).cloned(),
        }))
    }

    /// Returns all readable policies.
    fn named_policies(&self) -> Vec<NamedPolicy<'_>> {
        self.policies.iter().map(|(name, policy)| NamedPolicy { name, spec: &policy.spec }).collect()
    }
}

impl AffectedObjects {
    fn of_nodes<T>(changed: &[ObjectChange<T>]) -> Self {
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
            manage_software_bridges: FeatureGate::ManageSoftwareBridges.is_enabled(&config.spec),
            owner: config.uid().unwrap_or_default(),
        }
    }
}

/// Returns the name of an object that was added or changed. Its status may have to be corrected even if nothing else
/// changed.
fn changed_name<K: ResourceExt>(event: &Event<K>) -> Option<String> {
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
