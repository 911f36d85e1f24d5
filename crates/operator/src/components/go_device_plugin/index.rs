//! What is known for the separate device plugin. Plain data and no client.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::ResourceExt;
use kube::runtime::watcher::Event;
use vfleet_api::keys::{DEVICE_PLUGIN_STARTED_WITH, DEVICE_PLUGIN_WAITS, DISABLED, ENABLED};
use vfleet_cluster::guarded::Guarded;
use vfleet_cluster::watch::{Sight, Single, readable};
use vfleet_plan::{PluginAction, PluginPod, fingerprint, plugin_action};

use super::config_map::{self, Change};
use super::{NodeWish, PluginWish};

/// Something to work on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Key {
    ConfigMap,
    Node(String),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ConfigMap => f.write_str("config map"),
            Self::Node(node) => write!(f, "node {node}"),
        }
    }
}

/// What is to become of a node's label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LabelChange {
    Set(&'static str),
    TakeOff,
}

/// What counts of a pod of the plugin.
#[derive(Clone, Debug)]
pub(super) struct PodSeen {
    pub(super) name: String,
    pub(super) uid: Option<String>,
    node: String,
    started_with: Option<String>,
    has_started: bool,
    is_ending: bool,
}

/// All that is known.
#[derive(Default)]
pub(super) struct Index {
    wishes: BTreeMap<String, PluginWish>,
    wishes_complete: bool,
    /// Nodes that the label shall go from.
    unlabelled: HashSet<String>,
    /// Nodes that keep what the ConfigMap says of them.
    unchanged: HashSet<String>,
    config_map: Option<ConfigMap>,
    config_map_listed: bool,
    only_config_map: Single<ConfigMap>,
    /// What pods that nothing is noted on found when they were first seen.
    found_at_start: HashMap<String, String>,
    /// By pod.
    pods: HashMap<String, PodSeen>,
    /// Their names by node.
    pods_of: HashMap<String, BTreeSet<String>>,
    pods_listed: bool,
    /// Those of the list that is coming in.
    listing: HashSet<String>,
}

impl Index {
    pub(super) fn is_complete(&self) -> bool {
        self.wishes_complete && self.config_map_listed && self.pods_listed
    }

    /// Every node was told once.
    pub(super) fn complete(&mut self) -> Vec<Key> {
        self.wishes_complete = true;
        vec![Key::ConfigMap]
    }

    pub(super) fn wish(&mut self, node: String, wish: Option<NodeWish>) -> Vec<Key> {
        if wish == Some(NodeWish::Unchanged) && self.wishes.contains_key(&node) {
            return Vec::new();
        }
        self.wishes.remove(&node);
        self.unlabelled.remove(&node);
        self.unchanged.remove(&node);
        match wish {
            Some(NodeWish::Unchanged) => drop(self.unchanged.insert(node.clone())),
            Some(NodeWish::Plugin(wish)) => drop(self.wishes.insert(node.clone(), wish)),
            Some(NodeWish::NoLabel) => drop(self.unlabelled.insert(node.clone())),
            None => {}
        }
        vec![Key::ConfigMap, Key::Node(node)]
    }

    pub(super) fn config_map(&mut self, event: Event<Guarded<ConfigMap>>) -> Vec<Key> {
        let found = match self.only_config_map.take(event) {
            Sight::Nothing => return Vec::new(),
            Sight::Gone => None,
            Sight::There(found) => Some(readable(*found)),
        };
        self.config_map_listed = true;
        match found {
            Some(Some(found)) => return self.replace_config_map(found),
            // When it cannot be read its last state counts.
            Some(None) => {}
            None => self.config_map = None,
        }
        vec![Key::ConfigMap]
    }

    fn replace_config_map(&mut self, found: ConfigMap) -> Vec<Key> {
        let empty = BTreeMap::new();
        let old = self.config_map.as_ref().and_then(|old| old.data.as_ref());
        let new = found.data.as_ref().unwrap_or(&empty);
        let changed: Vec<_> = new
            .iter()
            .filter(|(node, config)| old.is_none_or(|old| old.get(*node) != Some(config)))
            .map(|(node, _)| node.clone())
            .collect();
        self.config_map = Some(found);
        changed.into_iter().map(Key::Node).chain([Key::ConfigMap]).collect()
    }

    pub(super) fn pod(&mut self, event: Event<Guarded<Pod>>) -> Vec<Key> {
        match event {
            Event::Init => {
                self.listing.clear();
                Vec::new()
            }
            Event::InitApply(pod) => {
                self.listing.insert(pod.name_any());
                self.put(pod)
            }
            Event::Apply(pod) => self.put(pod),
            Event::InitDone => {
                self.pods_listed = true;
                let seen = std::mem::take(&mut self.listing);
                let gone: Vec<_> = self.pods.keys().filter(|name| !seen.contains(*name)).cloned().collect();
                for name in &gone {
                    self.forget(name);
                }
                Vec::new()
            }
            Event::Delete(pod) => {
                self.forget(&pod.name_any());
                Vec::new()
            }
        }
    }

    fn forget(&mut self, pod: &str) {
        self.found_at_start.remove(pod);
        let Some(PodSeen { node, .. }) = self.pods.remove(pod) else { return };
        if let Some(names) = self.pods_of.get_mut(&node) {
            names.remove(pod);
            if names.is_empty() {
                self.pods_of.remove(&node);
            }
        }
    }

    fn put(&mut self, pod: Guarded<Pod>) -> Vec<Key> {
        let Some(pod) = readable(pod).as_ref().and_then(PodSeen::of) else { return Vec::new() };
        let key = Key::Node(pod.node.clone());
        // Those that started before us are taken to know what is there now.
        let had_started = self.pods.get(&pod.name).is_some_and(|known| known.has_started);
        if self.is_complete() && pod.has_started && !had_started {
            let found = self.found_on(&pod.node).unwrap_or_default();
            self.found_at_start.insert(pod.name.clone(), found);
        }
        self.pods_of.entry(pod.node.clone()).or_default().insert(pod.name.clone());
        self.pods.insert(pod.name.clone(), pod);
        vec![key]
    }

    pub(super) fn config_map_change(&self) -> Change {
        let unchanged =
            self.unchanged.iter().filter_map(|node| Some((node.clone(), self.told(node)?.clone())));
        let wishes = self.wishes.iter().map(|(node, wish)| (node.clone(), wish.config.clone()));
        let wanted = unchanged.chain(wishes).collect();
        config_map::change(self.config_map.as_ref(), wanted)
    }

    /// What is to become of the node's label; `None` when it is right. The plugin may start when all is there that it
    /// looks for, and not before, or it would have to start twice.
    pub(super) fn wanted_label(&self, node: &str) -> Option<LabelChange> {
        if self.unlabelled.contains(node) {
            return Some(LabelChange::TakeOff);
        }
        let wish = self.wishes.get(node)?;
        let wanted = if wish.has_resources { ENABLED } else { DISABLED };
        let is_time = !wish.has_resources || self.is_settled(node, wish);
        (is_time && wish.label.as_deref() != Some(wanted)).then_some(LabelChange::Set(wanted))
    }

    fn told(&self, node: &str) -> Option<&String> {
        self.config_map.as_ref()?.data.as_ref()?.get(node)
    }

    /// Whether the node has what the plugin shall find there.
    fn is_settled(&self, node: &str, wish: &PluginWish) -> bool {
        wish.is_settled && self.told(node) == Some(&wish.config)
    }

    /// A fingerprint of what a plugin that starts on the node now finds there.
    fn found_on(&self, node: &str) -> Option<String> {
        Some(fingerprint([self.told(node)?.as_str(), self.wishes.get(node)?.vfs.as_str()]))
    }

    /// What to do with the plugin's pod on the node.
    pub(super) fn pod_action(&self, node: &str) -> Option<(PodSeen, PluginAction)> {
        let wish = self.wishes.get(node)?;
        let mut pods = self.pods_of.get(node)?.iter().filter_map(|name| self.pods.get(name));
        let pod = pods.find(|pod| !pod.is_ending)?;
        let now = self.found_on(node)?;
        let seen = PluginPod {
            started_with: pod
                .started_with
                .as_ref()
                .or(self.found_at_start.get(&pod.name))
                .map(String::as_str),
            is_noted: pod.started_with.is_some(),
            has_started: pod.has_started,
            is_ending: pod.is_ending,
        };
        Some((pod.clone(), plugin_action(seen, &now, self.is_settled(node, wish))))
    }
}

impl PodSeen {
    /// `None` for a pod that is on no node yet.
    fn of(pod: &Pod) -> Option<Self> {
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

/// Whether the plugin itself runs: an init container may wait for the node's VFs before.
fn has_started(pod: &Pod) -> bool {
    let waits_first = pod.spec.as_ref().and_then(|spec| spec.init_containers.as_ref()).is_some();
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let is_past_that = conditions.iter().any(|is| is.type_ == "Initialized" && is.status == "True");
    !pod.annotations().contains_key(DEVICE_PLUGIN_WAITS) && (is_past_that || !waits_first)
}

#[cfg(test)]
mod tests;
