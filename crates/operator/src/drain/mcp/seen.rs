//! What was seen of machine config pools and of nodes that belong to them.

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

/// A pool that is not known yet.
const UNKNOWN: McpFacts =
    McpFacts { is_marked: false, is_paused: false, is_updating: true, others_drain: false };

/// What is written to a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Write {
    Pause,
    Unpause,
}

/// All that was seen.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Whether there are such pools here; `None`: not looked for yet.
    are_there: Option<bool>,
    pools: HashMap<String, Pool>,
    /// What counts of each, as those who follow were told.
    told: HashMap<String, [bool; 3]>,
    /// The machine config that each node shall have.
    nodes: HashMap<String, String>,
    /// The pool that a machine config is for, if any.
    owners: HashMap<String, Option<String>>,
    /// Machine configs that are to be looked at.
    questions: BTreeSet<String>,
    listed: Listed,
    /// Why the pools could not be seen when they were last looked for.
    refused: Option<String>,
}

/// Why a node's pool counts as at work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AtWork {
    /// It brings a new config to its nodes.
    Updates(String),
    /// Nobody can see the pools.
    Refused(String),
    /// It is not known yet whose the node's machine config is.
    Unknown(String),
}

/// What a list under way has shown, and which lists were complete once.
#[derive(Debug, Default)]
struct Listed {
    pools: bool,
    nodes: bool,
    pools_so_far: BTreeSet<String>,
    nodes_so_far: BTreeSet<String>,
}

#[allow(clippy::struct_excessive_bools, reason = "four facts, none of which follows from the others")]
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pool {
    version: Option<String>,
    /// Our annotation says that it is paused.
    is_marked: bool,
    is_paused: bool,
    is_updating: bool,
    /// We are about to let it go on.
    is_being_unpaused: bool,
}

impl Pool {
    fn of(object: &DynamicObject) -> Self {
        let name = |path: &str| object.data.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let (wanted, had) = (name("/spec/configuration/name"), name("/status/configuration/name"));
        Self {
            version: object.resource_version(),
            is_marked: object
                .annotations()
                .get(NODE_DRAIN_STATE)
                .is_some_and(|state| state == mcp_state::PAUSED),
            is_paused: object.data.pointer("/spec/paused").and_then(Value::as_bool).unwrap_or(false),
            is_updating: wanted.is_empty() || wanted != had,
            is_being_unpaused: false,
        }
    }

    fn counts(&self) -> [bool; 3] {
        [self.is_marked, self.is_paused, self.is_updating]
    }

    /// Whether this came after `other`. Versions are growing numbers; where they are not, nothing is known.
    fn order(&self, other: &Self) -> Option<Ordering> {
        let number = |pool: &Self| pool.version.as_ref()?.parse::<u64>().ok();
        Some(number(self)?.cmp(&number(other)?))
    }
}

/// The pool among the owners of a machine config.
pub(super) fn owner(owners: &[OwnerReference]) -> Option<String> {
    owners.iter().find(|owner| owner.kind == "MachineConfigPool").map(|owner| owner.name.clone())
}

impl Seen {
    /// It is known now whether there are such pools.
    pub(super) fn begin(&mut self, are_there: bool) {
        self.are_there = Some(are_there);
    }

    pub(super) fn is_complete(&self) -> bool {
        match self.are_there {
            None => false,
            Some(false) => true,
            Some(true) => self.listed.pools && self.listed.nodes,
        }
    }

    /// They cannot be seen.
    pub(super) fn refused(&mut self, why: String) {
        self.refused = Some(why);
    }

    pub(super) fn is_settled(&self) -> bool {
        self.is_complete() || self.refused.is_some()
    }

    pub(super) fn at_work(&self, node: &str) -> AtWork {
        match (&self.refused, self.pool_of(node)) {
            (_, Some(pool)) if self.is_complete() => AtWork::Updates(pool.to_owned()),
            (Some(why), _) if !self.is_complete() => AtWork::Refused(why.clone()),
            _ => AtWork::Unknown(self.nodes.get(node).cloned().unwrap_or_default()),
        }
    }

    /// The node's pool, if it is known.
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
        let is_another_of_it = |other: &str| other != node && self.pool_of(other) == Some(name);
        Some(McpFacts {
            is_marked,
            is_paused: pool.is_paused && !pool.is_being_unpaused,
            is_updating: pool.is_updating,
            // Nobody asks otherwise. Where many drain, one of them is found soon.
            others_drain: is_marked && draining.into_iter().any(is_another_of_it),
        })
    }

    /// The version to write on; `None` when there is nothing to write any more.
    pub(super) fn version_to_write(&self, pool: &str, write: Write) -> Option<String> {
        let pool = self.pools.get(pool)?;
        let is_wanted = match write {
            Write::Pause => {
                let is_paused = pool.is_paused && pool.is_marked && !pool.is_being_unpaused;
                !is_paused && (!pool.is_updating || pool.is_paused)
            }
            Write::Unpause => pool.is_marked,
        };
        pool.version.clone().filter(|_| is_wanted)
    }

    /// Only our own pause is ended.
    pub(super) fn begin_unpause(&mut self, pool: &str) {
        self.pools.entry(pool.to_owned()).and_modify(|pool| pool.is_being_unpaused = pool.is_marked);
    }

    /// It was refused.
    pub(super) fn end_unpause(&mut self, pool: &str) {
        self.pools.entry(pool.to_owned()).and_modify(|pool| pool.is_being_unpaused = false);
    }

    /// Takes in what a write has given, also when there was nothing to change.
    pub(super) fn written(&mut self, object: &DynamicObject) {
        let (name, new) = (object.name_any(), Pool::of(object));
        if self.pools.get(&name).and_then(|old| new.order(old)) != Some(Ordering::Less) {
            self.pools.insert(name, new);
        }
    }

    /// What a watch tells may be older than what a write has given.
    fn put_pool(&mut self, object: &DynamicObject) -> BTreeSet<String> {
        let (name, new) = (object.name_any(), Pool::of(object));
        if self.pools.get(&name).and_then(|old| new.order(old)) == Some(Ordering::Less) {
            return BTreeSet::new();
        }
        // Touched also by our own write: nobody was told of it then.
        let is_same = self.told.get(&name) == Some(&new.counts());
        let keeps_unpausing =
            self.pools.get(&name).is_some_and(|old| old.is_being_unpaused && old.version == new.version);
        self.told.insert(name.clone(), new.counts());
        self.pools.insert(name.clone(), Pool { is_being_unpaused: keeps_unpausing, ..new });
        if is_same { BTreeSet::new() } else { self.nodes_of(&name).map(str::to_owned).collect() }
    }

    /// Takes in a change of a pool; gives the nodes that it changes something for.
    pub(super) fn pool(&mut self, event: Event<DynamicObject>) -> BTreeSet<String> {
        match event {
            Event::Init => {
                self.listed.pools_so_far.clear();
                BTreeSet::new()
            }
            Event::InitApply(object) => {
                self.listed.pools_so_far.insert(object.name_any());
                self.put_pool(&object)
            }
            Event::InitDone => {
                self.listed.pools = true;
                let seen = std::mem::take(&mut self.listed.pools_so_far);
                let gone: Vec<_> = self.pools.keys().filter(|name| !seen.contains(*name)).cloned().collect();
                gone.iter().flat_map(|name| self.remove_pool(name)).collect()
            }
            Event::Apply(object) => self.put_pool(&object),
            Event::Delete(object) => self.remove_pool(&object.name_any()),
        }
    }

    fn remove_pool(&mut self, name: &str) -> BTreeSet<String> {
        self.pools.remove(name);
        self.told.remove(name);
        self.nodes_of(name).map(str::to_owned).collect()
    }

    /// Takes in a change of a node; gives the nodes that it changes something for.
    pub(super) fn node(&mut self, event: Event<PartialObjectMeta<Node>>) -> BTreeSet<String> {
        match event {
            Event::Init => {
                self.listed.nodes_so_far.clear();
                BTreeSet::new()
            }
            Event::InitApply(node) => {
                self.listed.nodes_so_far.insert(node.name_any());
                self.put_node(&node)
            }
            Event::InitDone => {
                self.listed.nodes = true;
                let seen = std::mem::take(&mut self.listed.nodes_so_far);
                let gone: Vec<_> = self.nodes.keys().filter(|name| !seen.contains(*name)).cloned().collect();
                gone.into_iter().flat_map(|name| self.set_config(name, None)).collect()
            }
            Event::Apply(node) => self.put_node(&node),
            Event::Delete(node) => self.set_config(node.name_any(), None),
        }
    }

    fn put_node(&mut self, node: &PartialObjectMeta<Node>) -> BTreeSet<String> {
        let config = node.annotations().get(DESIRED_MACHINE_CONFIG).filter(|name| !name.is_empty());
        self.set_config(node.name_any(), config.cloned())
    }

    /// The node shall have this machine config. When it leaves a pool, others of it may have to unpause it.
    fn set_config(&mut self, node: String, config: Option<String>) -> BTreeSet<String> {
        if self.nodes.get(&node) == config.as_ref() {
            return BTreeSet::new();
        }
        let left = self.pool_of(&node).map(str::to_owned);
        match config {
            Some(config) => {
                if !self.owners.contains_key(&config) {
                    self.questions.insert(config.clone());
                }
                self.nodes.insert(node.clone(), config);
            }
            None => {
                self.nodes.remove(&node);
            }
        }
        let stays = left.as_deref() == self.pool_of(&node);
        let mut touched: BTreeSet<_> = match left {
            Some(left) if !stays => self.nodes_of(&left).map(str::to_owned).collect(),
            _ => BTreeSet::new(),
        };
        touched.insert(node);
        touched
    }

    /// Machine configs that are to be looked at, each once.
    pub(super) fn take_questions(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.questions)
    }

    /// Whether a node names this machine config.
    pub(super) fn is_named(&self, config: &str) -> bool {
        self.nodes.values().any(|named| named == config)
    }

    /// It is known now whose the machine config is. Gives the nodes that name it.
    pub(super) fn learn(&mut self, config: String, owner: Option<String>) -> BTreeSet<String> {
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
