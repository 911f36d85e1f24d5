//! The objects of one kind, by name, as the API server tells them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use kube::ResourceExt;
use kube::core::Resource;
use kube::runtime::watcher::Event;
use serde::de::DeserializeOwned;
use vfleet_api::{SriovNetworkNodePolicy, SriovNetworkPoolConfig};

use crate::guarded::{Guarded, Unreadable};

/// What is kept of an object.
pub trait Counts {
    /// Whether decisions come out the same with the other one.
    fn same(&self, other: &Self) -> bool;

    /// Where it stands among all versions of all objects. What is older than what we know already says nothing.
    fn version(&self) -> u64 {
        0
    }
}

impl Counts for SriovNetworkNodePolicy {
    fn same(&self, other: &Self) -> bool {
        self.spec == other.spec
    }
}

impl Counts for SriovNetworkPoolConfig {
    fn same(&self, other: &Self) -> bool {
        self.spec == other.spec
    }
}

impl Counts for BTreeMap<String, String> {
    fn same(&self, other: &Self) -> bool {
        self == other
    }
}

/// The objects of one kind, by name.
#[derive(Debug)]
pub struct Known<T> {
    items: HashMap<String, T>,
    /// Objects that cannot be read as they are now, and why. What could be read of them before is in `items`.
    unreadable: BTreeMap<String, Unreadable>,
    /// Names seen in the list that is under way; the others are gone when it ends.
    listing: BTreeSet<String>,
    listed: bool,
}

/// An object that is not what it was.
#[derive(Debug)]
pub struct Changed<T> {
    pub name: String,
    /// What it was before.
    pub old: Option<T>,
    /// It could never be read before, so that nobody knows what it was.
    pub was_unknown: bool,
}

impl<T> Default for Known<T> {
    fn default() -> Self {
        Self { items: HashMap::new(), unreadable: BTreeMap::new(), listing: BTreeSet::new(), listed: false }
    }
}

impl<T> Known<T> {
    pub fn get(&self, name: &str) -> Option<&T> {
        self.items.get(name)
    }

    pub fn len(&self) -> usize {
        self.items.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&String, &T)> {
        self.items.iter()
    }

    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.items.keys()
    }

    /// Why the object of this name cannot be read as it is now.
    pub fn unreadable(&self, name: &str) -> Option<&Unreadable> {
        self.unreadable.get(name)
    }

    /// All objects that cannot be read as they are now.
    pub fn unreadable_ones(&self) -> impl Iterator<Item = (&String, &Unreadable)> {
        self.unreadable.iter()
    }

    /// Names of objects that cannot be read and never could.
    pub fn unknown(&self) -> BTreeSet<String> {
        self.unreadable.keys().filter(|name| !self.items.contains_key(*name)).cloned().collect()
    }

    /// Whether they were listed once: before that, an absent object may just not have been seen.
    pub fn is_listed(&self) -> bool {
        self.listed
    }
}

impl<T: Counts> Known<T> {
    /// Takes in a watch event of guarded objects. What cannot be read counts as it was.
    pub fn update<K>(&mut self, event: Event<Guarded<K>>, keep: impl FnOnce(K) -> T) -> Vec<Changed<T>>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        self.take(event, |guarded| guarded.0.map(keep))
    }

    /// Takes in a watch event; gives the objects that are different from before. What cannot be `read` counts as it
    /// was.
    pub fn take<O: ResourceExt>(
        &mut self,
        event: Event<O>,
        read: impl FnOnce(O) -> Result<T, Box<Unreadable>>,
    ) -> Vec<Changed<T>> {
        match event {
            Event::Init => {
                self.listing.clear();
                Vec::new()
            }
            Event::InitApply(object) => {
                self.listing.insert(object.name_any());
                self.put(object.name_any(), read(object))
            }
            Event::InitDone => {
                self.listed = true;
                let seen = std::mem::take(&mut self.listing);
                let is_gone = |name: &String| !seen.contains(name);
                let unknown = self.unknown();
                self.unreadable.retain(|name, _| !is_gone(name));
                let gone = self.items.extract_if(|name, _| is_gone(name));
                let gone = gone.map(|(name, old)| Changed { name, old: Some(old), was_unknown: false });
                let unknown = unknown.into_iter().filter(is_gone);
                gone.chain(unknown.map(|name| Changed { name, old: None, was_unknown: true })).collect()
            }
            Event::Apply(object) => self.put(object.name_any(), read(object)),
            Event::Delete(object) => {
                let name = object.name_any();
                let was_unreadable = self.unreadable.remove(&name).is_some();
                let old = self.items.remove(&name);
                let was_unknown = was_unreadable && old.is_none();
                let was_there = old.is_some() || was_unknown;
                if was_there { vec![Changed { name, old, was_unknown }] } else { Vec::new() }
            }
        }
    }

    fn put(&mut self, name: String, item: Result<T, Box<Unreadable>>) -> Vec<Changed<T>> {
        let item = match item {
            Ok(item) => item,
            Err(unreadable) => {
                tracing::warn!(
                    name,
                    error = unreadable.error,
                    "an object cannot be read; its last state counts"
                );
                self.unreadable.insert(name, *unreadable);
                return Vec::new();
            }
        };
        if self.items.get(&name).is_some_and(|known| known.version() > item.version()) {
            return Vec::new();
        }
        let was_unreadable = self.unreadable.remove(&name).is_some();
        let is_same = self.items.get(&name).is_some_and(|old| old.same(&item));
        let old = self.items.insert(name.clone(), item);
        let was_unknown = was_unreadable && old.is_none();
        if is_same { Vec::new() } else { vec![Changed { name, old, was_unknown }] }
    }
}
