//! Index of the separate device plugin: desired states, ConfigMap and pods. It has no client.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::ResourceExt;
use kube::runtime::watcher::Event;
use vfleet_api::keys::{DEVICE_PLUGIN_STARTED_WITH, DEVICE_PLUGIN_WAITS, DISABLED, ENABLED};
use vfleet_cluster::guarded::Guarded;
use vfleet_cluster::watch::{SingleObject, SingleObjectState, into_readable};
use vfleet_plan::{PluginAction, PluginPod, fingerprint, plugin_action};

use super::config_map::{ConfigMapChange, plan_config_map};
use super::{DesiredNodePlugin, DesiredPlugin};

/// Object to reconcile.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum PluginKey {
    ConfigMap,
    Node(String),
}

impl fmt::Display for PluginKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ConfigMap => f.write_str("config map"),
            Self::Node(node) => write!(f, "node {node}"),
        }
    }
}

/// Change of the label of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LabelChange {
    Set(&'static str),
    Remove,
}

/// Pod of the plugin, reduced to the values that decisions depend on.
#[derive(Clone, Debug)]
pub(super) struct PluginPodState {
    pub(super) name: String,
    pub(super) uid: Option<String>,
    node: String,
    started_with: Option<String>,
    has_started: bool,
    is_ending: bool,
}

/// Desired and observed state of the plugin on all nodes.
#[derive(Default)]
pub(super) struct PluginIndex {
    desired: BTreeMap<String, DesiredPlugin>,
    desired_complete: bool,
    /// Nodes whose label has to be removed.
    to_unlabel: HashSet<String>,
    /// Nodes that keep their current config in the ConfigMap.
    unchanged: HashSet<String>,
    config_map: Option<ConfigMap>,
    config_map_listed: bool,
    config_map_watch: SingleObject<ConfigMap>,
    /// Fingerprints that pods without an annotation started with.
    fingerprints_at_start: HashMap<String, String>,
    /// Pods by name.
    pods: HashMap<String, PluginPodState>,
    /// Names of pods by node.
    pods_of: HashMap<String, BTreeSet<String>>,
    pods_listed: bool,
    /// Names in the list that is being received.
    listing: HashSet<String>,
}

impl PluginIndex {
    pub(super) fn is_complete(&self) -> bool {
        self.desired_complete && self.config_map_listed && self.pods_listed
    }

    /// Records that the desired states of all nodes are known.
    pub(super) fn set_complete(&mut self) -> Vec<PluginKey> {
        self.desired_complete = true;
        vec![PluginKey::ConfigMap]
    }

    pub(super) fn set_desired(&mut self, node: String, desired: Option<DesiredNodePlugin>) -> Vec<PluginKey> {
        if desired == Some(DesiredNodePlugin::Unchanged) && self.desired.contains_key(&node) {
            return Vec::new();
        }
        self.desired.remove(&node);
        self.to_unlabel.remove(&node);
        self.unchanged.remove(&node);
        match desired {
            Some(DesiredNodePlugin::Unchanged) => drop(self.unchanged.insert(node.clone())),
            Some(DesiredNodePlugin::Plugin(plugin)) => drop(self.desired.insert(node.clone(), plugin)),
            Some(DesiredNodePlugin::NoLabel) => drop(self.to_unlabel.insert(node.clone())),
            None => {}
        }
        vec![PluginKey::ConfigMap, PluginKey::Node(node)]
    }

    pub(super) fn apply_config_map(&mut self, event: Event<Guarded<ConfigMap>>) -> Vec<PluginKey> {
        let current = match self.config_map_watch.update(event) {
            SingleObjectState::Listing => return Vec::new(),
            SingleObjectState::Absent => None,
            SingleObjectState::Present(object) => Some(into_readable(*object)),
        };
        self.config_map_listed = true;
        match current {
            Some(Some(config_map)) => return self.replace_config_map(config_map),
            // An unreadable version is ignored: the last one stays in effect.
            Some(None) => {}
            None => self.config_map = None,
        }
        vec![PluginKey::ConfigMap]
    }

    fn replace_config_map(&mut self, config_map: ConfigMap) -> Vec<PluginKey> {
        let empty = BTreeMap::new();
        let old = self.config_map.as_ref().and_then(|old| old.data.as_ref());
        let new = config_map.data.as_ref().unwrap_or(&empty);
        let changed: Vec<_> = new
            .iter()
            .filter(|(node, config)| old.is_none_or(|old| old.get(*node) != Some(config)))
            .map(|(node, _)| node.clone())
            .collect();
        self.config_map = Some(config_map);
        changed.into_iter().map(PluginKey::Node).chain([PluginKey::ConfigMap]).collect()
    }

    pub(super) fn apply_pod(&mut self, event: Event<Guarded<Pod>>) -> Vec<PluginKey> {
        match event {
            Event::Init => {
                self.listing.clear();
                Vec::new()
            }
            Event::InitApply(pod) => {
                self.listing.insert(pod.name_any());
                self.insert_pod(pod)
            }
            Event::Apply(pod) => self.insert_pod(pod),
            Event::InitDone => {
                self.pods_listed = true;
                let listed = std::mem::take(&mut self.listing);
                let deleted: Vec<_> =
                    self.pods.keys().filter(|name| !listed.contains(*name)).cloned().collect();
                for name in &deleted {
                    self.remove_pod(name);
                }
                Vec::new()
            }
            Event::Delete(pod) => {
                self.remove_pod(&pod.name_any());
                Vec::new()
            }
        }
    }

    fn remove_pod(&mut self, pod: &str) {
        self.fingerprints_at_start.remove(pod);
        let Some(PluginPodState { node, .. }) = self.pods.remove(pod) else { return };
        if let Some(names) = self.pods_of.get_mut(&node) {
            names.remove(pod);
            if names.is_empty() {
                self.pods_of.remove(&node);
            }
        }
    }

    fn insert_pod(&mut self, pod: Guarded<Pod>) -> Vec<PluginKey> {
        let Some(pod) = into_readable(pod).as_ref().and_then(PluginPodState::read) else { return Vec::new() };
        let key = PluginKey::Node(pod.node.clone());
        // A pod that started before the operator is assumed to have started with the current state.
        let had_started = self.pods.get(&pod.name).is_some_and(|previous| previous.has_started);
        if self.is_complete() && pod.has_started && !had_started {
            let fingerprint = self.fingerprint_node(&pod.node).unwrap_or_default();
            self.fingerprints_at_start.insert(pod.name.clone(), fingerprint);
        }
        self.pods_of.entry(pod.node.clone()).or_default().insert(pod.name.clone());
        self.pods.insert(pod.name.clone(), pod);
        vec![key]
    }

    pub(super) fn plan_config_map(&self) -> ConfigMapChange {
        let unchanged =
            self.unchanged.iter().filter_map(|node| Some((node.clone(), self.current_config(node)?.clone())));
        let desired = self.desired.iter().map(|(node, plugin)| (node.clone(), plugin.config.clone()));
        plan_config_map(self.config_map.as_ref(), unchanged.chain(desired).collect())
    }

    /// Returns the change of the node's label; `None` if it is up to date. The plugin may start only when the node is
    /// settled, because it would have to restart otherwise.
    pub(super) fn plan_label(&self, node: &str) -> Option<LabelChange> {
        if self.to_unlabel.contains(node) {
            return Some(LabelChange::Remove);
        }
        let plugin = self.desired.get(node)?;
        let label = if plugin.has_resources { ENABLED } else { DISABLED };
        let may_change = !plugin.has_resources || self.is_settled(node, plugin);
        (may_change && plugin.label.as_deref() != Some(label)).then_some(LabelChange::Set(label))
    }

    fn current_config(&self, node: &str) -> Option<&String> {
        self.config_map.as_ref()?.data.as_ref()?.get(node)
    }

    /// Returns whether the agent has finished and the ConfigMap is up to date for the node.
    fn is_settled(&self, node: &str, plugin: &DesiredPlugin) -> bool {
        plugin.is_settled && self.current_config(node) == Some(&plugin.config)
    }

    /// Returns the fingerprint of config and VFs that a plugin would start with now.
    fn fingerprint_node(&self, node: &str) -> Option<String> {
        Some(fingerprint([self.current_config(node)?.as_str(), self.desired.get(node)?.vfs.as_str()]))
    }

    /// Returns the action on the plugin's pod on the node.
    pub(super) fn plan_pod(&self, node: &str) -> Option<(PluginPodState, PluginAction)> {
        let plugin = self.desired.get(node)?;
        let mut pods = self.pods_of.get(node)?.iter().filter_map(|name| self.pods.get(name));
        let pod = pods.find(|pod| !pod.is_ending)?;
        let fingerprint = self.fingerprint_node(node)?;
        let pod_facts = PluginPod {
            started_with: pod
                .started_with
                .as_ref()
                .or(self.fingerprints_at_start.get(&pod.name))
                .map(String::as_str),
            is_stored: pod.started_with.is_some(),
            has_started: pod.has_started,
            is_ending: pod.is_ending,
        };
        Some((pod.clone(), plugin_action(pod_facts, &fingerprint, self.is_settled(node, plugin))))
    }
}

impl PluginPodState {
    /// Returns `None` for a pod that is not scheduled yet.
    fn read(pod: &Pod) -> Option<Self> {
        Some(Self {
            node: pod.spec.as_ref()?.node_name.clone()?,
            started_with: pod.annotations().get(DEVICE_PLUGIN_STARTED_WITH).cloned(),
            has_started: has_started(pod),
            is_ending: pod.metadata.deletion_timestamp.is_some(),
            uid: pod.uid(),
            name: pod.name_any(),
        })
    }
}

/// Returns whether the plugin itself has started. Before that, an init container may wait for the VFs of the node.
fn has_started(pod: &Pod) -> bool {
    let has_init_containers = pod.spec.as_ref().and_then(|spec| spec.init_containers.as_ref()).is_some();
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let is_initialized =
        conditions.iter().any(|condition| condition.type_ == "Initialized" && condition.status == "True");
    !pod.annotations().contains_key(DEVICE_PLUGIN_WAITS) && (is_initialized || !has_init_containers)
}

#[cfg(test)]
mod tests;
