//! Stores of the objects of one kind, fed by a watch.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use kube::ResourceExt;
use kube::core::Resource;
use kube::runtime::watcher::Event;
use serde::de::DeserializeOwned;
use vfleet_api::{SriovNetworkNodePolicy, SriovNetworkPoolConfig};

use crate::guarded::{Guarded, UnreadableObject};

/// Representation of an object in an [`ObjectStore`].
pub trait StoredObject {
    /// Returns whether every decision that uses `self` would be the same with `other`.
    fn is_equivalent(&self, other: &Self) -> bool;

    /// Returns the resource version of the object. Events that are older than the stored object are ignored.
    fn version(&self) -> u64 {
        0
    }
}

impl StoredObject for SriovNetworkNodePolicy {
    fn is_equivalent(&self, other: &Self) -> bool {
        self.spec == other.spec
    }
}

impl StoredObject for SriovNetworkPoolConfig {
    fn is_equivalent(&self, other: &Self) -> bool {
        self.spec == other.spec
    }
}

impl StoredObject for BTreeMap<String, String> {
    fn is_equivalent(&self, other: &Self) -> bool {
        self == other
    }
}

/// Objects of one kind, by name.
#[derive(Debug)]
pub struct ObjectStore<T> {
    items: HashMap<String, T>,
    /// Objects whose current version cannot be parsed. Their last readable version stays in `items`.
    unreadable: BTreeMap<String, UnreadableObject>,
    /// Names in the list that is being received. All other objects are removed when it is complete.
    listing: BTreeSet<String>,
    listed: bool,
}

/// Change of a stored object.
#[derive(Debug)]
pub struct ObjectChange<T> {
    pub name: String,
    /// Previous version.
    pub old: Option<T>,
    /// No previous version could be parsed, so that `old` is unknown.
    pub was_unreadable: bool,
}

impl<T> Default for ObjectStore<T> {
    fn default() -> Self {
        Self { items: HashMap::new(), unreadable: BTreeMap::new(), listing: BTreeSet::new(), listed: false }
    }
}

impl<T> ObjectStore<T> {
    pub fn get(&self, name: &str) -> Option<&T> {
        self.items.get(name)
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
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

    /// Returns the parse error of the object `name`, if its current version cannot be parsed.
    pub fn unreadable(&self, name: &str) -> Option<&UnreadableObject> {
        self.unreadable.get(name)
    }

    /// Returns all objects whose current version cannot be parsed.
    pub fn all_unreadable(&self) -> impl Iterator<Item = (&String, &UnreadableObject)> {
        self.unreadable.iter()
    }

    /// Returns the names of objects of which no version could be parsed.
    pub fn never_readable(&self) -> BTreeSet<String> {
        self.unreadable.keys().filter(|name| !self.items.contains_key(*name)).cloned().collect()
    }

    /// Returns whether the first list is complete. Before that, a missing object may still be received.
    pub fn is_listed(&self) -> bool {
        self.listed
    }
}

impl<T: StoredObject> ObjectStore<T> {
    /// Applies a watch event and returns the objects that changed. An object that cannot be parsed keeps its last
    /// version.
    pub fn update<K>(&mut self, event: Event<Guarded<K>>, keep: impl FnOnce(K) -> T) -> Vec<ObjectChange<T>>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        self.update_with(event, |guarded| guarded.0.map(keep))
    }

    /// Applies a watch event whose objects are parsed by `read`; see [`Self::update`].
    pub fn update_with<O: ResourceExt>(
        &mut self,
        event: Event<O>,
        read: impl FnOnce(O) -> Result<T, Box<UnreadableObject>>,
    ) -> Vec<ObjectChange<T>> {
        match event {
            Event::Init => {
                self.listing.clear();
                Vec::new()
            }
            Event::InitApply(object) => {
                self.listing.insert(object.name_any());
                self.insert(object.name_any(), read(object))
            }
            Event::InitDone => {
                self.listed = true;
                let listed = std::mem::take(&mut self.listing);
                let is_deleted = |name: &String| !listed.contains(name);
                let never_readable = self.never_readable();
                self.unreadable.retain(|name, _| !is_deleted(name));
                let deleted = self.items.extract_if(|name, _| is_deleted(name));
                let deleted =
                    deleted.map(|(name, old)| ObjectChange { name, old: Some(old), was_unreadable: false });
                let never_readable = never_readable.into_iter().filter(is_deleted);
                let never_readable =
                    never_readable.map(|name| ObjectChange { name, old: None, was_unreadable: true });
                deleted.chain(never_readable).collect()
            }
            Event::Apply(object) => self.insert(object.name_any(), read(object)),
            Event::Delete(object) => {
                let name = object.name_any();
                let is_unreadable = self.unreadable.remove(&name).is_some();
                let old = self.items.remove(&name);
                let was_unreadable = is_unreadable && old.is_none();
                let was_stored = old.is_some() || was_unreadable;
                if was_stored { vec![ObjectChange { name, old, was_unreadable }] } else { Vec::new() }
            }
        }
    }

    fn insert(&mut self, name: String, item: Result<T, Box<UnreadableObject>>) -> Vec<ObjectChange<T>> {
        let item = match item {
            Ok(item) => item,
            Err(unreadable) => {
                tracing::warn!(
                    name,
                    error = unreadable.error,
                    "object cannot be parsed: its last state stays in effect"
                );
                self.unreadable.insert(name, *unreadable);
                return Vec::new();
            }
        };
        if self.items.get(&name).is_some_and(|stored| stored.version() > item.version()) {
            return Vec::new();
        }
        let was_unreadable = self.unreadable.remove(&name).is_some();
        let is_equivalent = self.items.get(&name).is_some_and(|old| old.is_equivalent(&item));
        let old = self.items.insert(name.clone(), item);
        let was_unreadable = was_unreadable && old.is_none();
        if is_equivalent { Vec::new() } else { vec![ObjectChange { name, old, was_unreadable }] }
    }
}
