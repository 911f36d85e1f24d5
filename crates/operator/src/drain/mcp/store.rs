//! Stored machine config pools and the machine configs of nodes.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use kube::api::DynamicObject;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::Event;
use serde_json::Value;
use vfleet_api::keys::{DESIRED_MACHINE_CONFIG, NODE_DRAIN_STATE, mcp_state};
use vfleet_plan::drain::McpFacts;

/// Facts of an unknown pool, which counts as updating.
const UNKNOWN: McpFacts =
    McpFacts { is_marked: false, is_paused: false, is_updating: true, others_drain: false };

/// Write to a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PauseWrite {
    Pause,
    Unpause,
}

/// Store of pools, nodes and owners of machine configs.
#[derive(Debug, Default)]
pub(super) struct McpStore {
    /// The cluster has machine config pools; `None` if that is not known yet.
    is_available: Option<bool>,
    pools: HashMap<String, StoredMcp>,
    /// Facts of each pool at its last reported change.
    reported: HashMap<String, [bool; 3]>,
    /// Desired machine config of each node.
    nodes: HashMap<String, String>,
    /// Pool that owns a machine config, if any.
    owners: HashMap<String, Option<String>>,
    /// Machine configs whose owner is to be read.
    lookups: BTreeSet<String>,
    listed: ListProgress,
    /// Error of the last failed list or watch.
    error: Option<String>,
}

/// Reason why a drain has to wait for the machine config pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum McpHold {
    /// This pool rolls out a new configuration.
    Updating(String),
    /// The pools cannot be read because of this error.
    Unreadable(String),
    /// The pool of this machine config is not known yet.
    UnknownOwner(String),
}

/// Progress of lists: which were complete once, and the names of the running ones.
#[derive(Debug, Default)]
struct ListProgress {
    pools: bool,
    nodes: bool,
    pools_so_far: BTreeSet<String>,
    nodes_so_far: BTreeSet<String>,
}

/// State of a machine config pool that drains depend on.
#[allow(clippy::struct_excessive_bools, reason = "independent facts")]
#[derive(Clone, Debug, PartialEq, Eq)]
struct StoredMcp {
    version: Option<String>,
    /// The operator's annotation says that it paused the pool.
    is_marked: bool,
    is_paused: bool,
    is_updating: bool,
    /// The operator is about to unpause it.
    is_being_unpaused: bool,
}

impl StoredMcp {
    fn of(object: &DynamicObject) -> Self {
        let name = |path: &str| object.data.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let (desired, current) = (name("/spec/configuration/name"), name("/status/configuration/name"));
        Self {
            version: object.resource_version(),
            is_marked: object
                .annotations()
                .get(NODE_DRAIN_STATE)
                .is_some_and(|state| state == mcp_state::PAUSED),
            is_paused: object.data.pointer("/spec/paused").and_then(Value::as_bool).unwrap_or(false),
            is_updating: desired.is_empty() || desired != current,
            is_being_unpaused: false,
        }
    }

    fn facts(&self) -> [bool; 3] {
        [self.is_marked, self.is_paused, self.is_updating]
    }

    /// Compares resource versions; `None` if they are not numbers.
    fn compare_version(&self, other: &Self) -> Option<Ordering> {
        let number = |pool: &Self| pool.version.as_ref()?.parse::<u64>().ok();
        Some(number(self)?.cmp(&number(other)?))
    }
}

/// Returns the pool among the owners of a machine config.
pub(super) fn find_owner(owners: &[OwnerReference]) -> Option<String> {
    owners.iter().find(|owner| owner.kind == "MachineConfigPool").map(|owner| owner.name.clone())
}

impl McpStore {
    /// Sets whether the cluster has machine config pools.
    pub(super) fn set_available(&mut self, is_available: bool) {
        self.is_available = Some(is_available);
    }

    pub(super) fn is_complete(&self) -> bool {
        match self.is_available {
            None => false,
            Some(false) => true,
            Some(true) => self.listed.pools && self.listed.nodes,
        }
    }

    /// Stores the error of a failed list or watch.
    pub(super) fn set_error(&mut self, error: String) {
        self.error = Some(error);
    }

    pub(super) fn is_settled(&self) -> bool {
        self.is_complete() || self.error.is_some()
    }

    pub(super) fn find_hold(&self, node: &str) -> McpHold {
        match (&self.error, self.pool_of(node)) {
            (_, Some(pool)) if self.is_complete() => McpHold::Updating(pool.to_owned()),
            (Some(error), _) if !self.is_complete() => McpHold::Unreadable(error.clone()),
            _ => McpHold::UnknownOwner(self.nodes.get(node).cloned().unwrap_or_default()),
        }
    }

    /// Returns the node's pool, if it is known.
    pub(super) fn pool_of(&self, node: &str) -> Option<&str> {
        self.owners.get(self.nodes.get(node)?)?.as_deref()
    }

    pub(super) fn facts<'a>(
        &self,
        node: &str,
        draining: impl IntoIterator<Item = &'a str>,
    ) -> Option<McpFacts> {
        if !self.is_complete() {
            return Some(UNKNOWN);
        }
        let config = self.nodes.get(node)?;
        let Some(owner) = self.owners.get(config) else { return Some(UNKNOWN) };
        let name = owner.as_deref()?;
        let pool = self.pools.get(name)?;
        let is_marked = pool.is_marked && !pool.is_being_unpaused;
        let is_other_node = |other: &str| other != node && self.pool_of(other) == Some(name);
        Some(McpFacts {
            is_marked,
            is_paused: pool.is_paused && !pool.is_being_unpaused,
            is_updating: pool.is_updating,
            // Only needed for marked pools.
            others_drain: is_marked && draining.into_iter().any(is_other_node),
        })
    }

    /// Returns the resource version for a write; `None` if the write is not needed or not allowed any more.
    pub(super) fn version_to_write(&self, pool: &str, write: PauseWrite) -> Option<String> {
        let pool = self.pools.get(pool)?;
        let is_needed = match write {
            PauseWrite::Pause => {
                let is_paused = pool.is_paused && pool.is_marked && !pool.is_being_unpaused;
                !is_paused && (!pool.is_updating || pool.is_paused)
            }
            PauseWrite::Unpause => pool.is_marked,
        };
        pool.version.clone().filter(|_| is_needed)
    }

    /// Marks the pool as being unpaused, if the operator paused it.
    pub(super) fn begin_unpause(&mut self, pool: &str) {
        self.pools.entry(pool.to_owned()).and_modify(|pool| pool.is_being_unpaused = pool.is_marked);
    }

    /// Resets the pool after a rejected unpause.
    pub(super) fn cancel_unpause(&mut self, pool: &str) {
        self.pools.entry(pool.to_owned()).and_modify(|pool| pool.is_being_unpaused = false);
    }

    /// Stores the result of a write.
    pub(super) fn handle_written(&mut self, object: &DynamicObject) {
        let (name, new) = (object.name_any(), StoredMcp::of(object));
        if self.pools.get(&name).and_then(|old| new.compare_version(old)) != Some(Ordering::Less) {
            self.pools.insert(name, new);
        }
    }

    /// Stores a watched pool, unless the result of a write is newer. Returns the touched nodes.
    fn store_pool(&mut self, object: &DynamicObject) -> BTreeSet<String> {
        let (name, new) = (object.name_any(), StoredMcp::of(object));
        if self.pools.get(&name).and_then(|old| new.compare_version(old)) == Some(Ordering::Less) {
            return BTreeSet::new();
        }
        // Compared with the last reported facts, because own writes are stored without touching nodes.
        let is_same = self.reported.get(&name) == Some(&new.facts());
        let is_being_unpaused =
            self.pools.get(&name).is_some_and(|old| old.is_being_unpaused && old.version == new.version);
        self.reported.insert(name.clone(), new.facts());
        self.pools.insert(name.clone(), StoredMcp { is_being_unpaused, ..new });
        if is_same { BTreeSet::new() } else { self.nodes_of(&name).map(str::to_owned).collect() }
    }

    /// Stores a change of a pool and returns the touched nodes.
    pub(super) fn update_pool(&mut self, event: Event<DynamicObject>) -> BTreeSet<String> {
        match event {
            Event::Init => {
                self.listed.pools_so_far.clear();
                BTreeSet::new()
            }
            Event::InitApply(object) => {
                self.listed.pools_so_far.insert(object.name_any());
                self.store_pool(&object)
            }
            Event::InitDone => {
                self.listed.pools = true;
                let listed = std::mem::take(&mut self.listed.pools_so_far);
                let gone: Vec<_> =
                    self.pools.keys().filter(|name| !listed.contains(*name)).cloned().collect();
                gone.iter().flat_map(|name| self.remove_pool(name)).collect()
            }
            Event::Apply(object) => self.store_pool(&object),
            Event::Delete(object) => self.remove_pool(&object.name_any()),
        }
    }

    fn remove_pool(&mut self, name: &str) -> BTreeSet<String> {
        self.pools.remove(name);
        self.reported.remove(name);
        self.nodes_of(name).map(str::to_owned).collect()
    }

    /// Stores a change of a node and returns the touched nodes.
    pub(super) fn update_node(&mut self, event: Event<PartialObjectMeta<Node>>) -> BTreeSet<String> {
        match event {
            Event::Init => {
                self.listed.nodes_so_far.clear();
                BTreeSet::new()
            }
            Event::InitApply(node) => {
                self.listed.nodes_so_far.insert(node.name_any());
                self.store_node(&node)
            }
            Event::InitDone => {
                self.listed.nodes = true;
                let listed = std::mem::take(&mut self.listed.nodes_so_far);
                let gone: Vec<_> =
                    self.nodes.keys().filter(|name| !listed.contains(*name)).cloned().collect();
                gone.into_iter().flat_map(|name| self.set_config(name, None)).collect()
            }
            Event::Apply(node) => self.store_node(&node),
            Event::Delete(node) => self.set_config(node.name_any(), None),
        }
    }

    fn store_node(&mut self, node: &PartialObjectMeta<Node>) -> BTreeSet<String> {
        let config = node.annotations().get(DESIRED_MACHINE_CONFIG).filter(|name| !name.is_empty());
        self.set_config(node.name_any(), config.cloned())
    }

    /// Sets the desired machine config of a node. If the node leaves a pool, the other nodes of that pool are touched,
    /// because one of them may have to unpause it.
    fn set_config(&mut self, node: String, config: Option<String>) -> BTreeSet<String> {
        if self.nodes.get(&node) == config.as_ref() {
            return BTreeSet::new();
        }
        let old_pool = self.pool_of(&node).map(str::to_owned);
        match config {
            Some(config) => {
                if !self.owners.contains_key(&config) {
                    self.lookups.insert(config.clone());
                }
                self.nodes.insert(node.clone(), config);
            }
            None => {
                self.nodes.remove(&node);
            }
        }
        let stays = old_pool.as_deref() == self.pool_of(&node);
        let mut touched: BTreeSet<_> = match old_pool {
            Some(old_pool) if !stays => self.nodes_of(&old_pool).map(str::to_owned).collect(),
            _ => BTreeSet::new(),
        };
        touched.insert(node);
        touched
    }

    /// Takes the machine configs whose owner is to be read.
    pub(super) fn take_lookups(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.lookups)
    }

    /// Returns whether a node names this machine config.
    pub(super) fn is_used(&self, config: &str) -> bool {
        self.nodes.values().any(|named| named == config)
    }

    /// Stores the owner of a machine config and returns the nodes that name it.
    pub(super) fn set_owner(&mut self, config: String, owner: Option<String>) -> BTreeSet<String> {
        let touched = self.nodes.iter().filter(|(_, named)| **named == config).map(|(node, _)| node.clone());
        let touched = touched.collect();
        self.owners.insert(config, owner);
        let named: BTreeSet<_> = self.nodes.values().collect();
        self.owners.retain(|config, _| named.contains(config));
        touched
    }

    fn nodes_of(&self, pool: &str) -> impl Iterator<Item = &str> {
        let is_in_it = move |config: &String| {
            self.owners.get(config).is_some_and(|owner| owner.as_deref() == Some(pool))
        };
        self.nodes.iter().filter(move |(_, config)| is_in_it(config)).map(|(node, _)| node.as_str())
    }
}

#[cfg(test)]
mod tests;
