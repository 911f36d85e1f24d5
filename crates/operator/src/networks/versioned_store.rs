//! Store of the objects of one kind that also takes in results of own writes. Watch events that are older than a write
//! are ignored.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use kube::core::ObjectMeta;
use kube::runtime::watcher::Event;

/// Object with a key and a version.
pub(super) trait VersionedObject {
    type Key: Clone + Eq + Hash;

    fn key(&self) -> Self::Key;
    fn version(&self) -> &ObjectVersion;
}

/// UID and resource version of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ObjectVersion {
    pub(super) uid: String,
    pub(super) resource_version: Option<String>,
}

impl ObjectVersion {
    pub(super) fn of(metadata: &ObjectMeta) -> Self {
        Self {
            uid: metadata.uid.clone().unwrap_or_default(),
            resource_version: metadata.resource_version.clone(),
        }
    }

    /// Returns whether this version is not newer than `other` of the same object. Resource versions are compared as
    /// numbers; others are always newer.
    fn is_not_newer_than(&self, other: &Self) -> bool {
        let number = |version: &Self| version.resource_version.as_ref()?.parse::<u64>().ok();
        let (own_number, other_number) = (number(self), number(other));
        self.uid == other.uid && own_number.is_some() && other_number.is_some() && own_number <= other_number
    }
}

/// Store of objects of one kind, by key.
pub(super) struct VersionedStore<T: VersionedObject> {
    items: HashMap<T::Key, T>,
    /// Keys in the list that is being received. All other objects are removed when it is complete.
    listing: HashSet<T::Key>,
    listed: bool,
    /// UIDs of recently deleted objects, because the result of a write may arrive after the deletion.
    deleted: HashSet<String>,
}

impl<T: VersionedObject> Default for VersionedStore<T> {
    fn default() -> Self {
        Self { items: HashMap::new(), listing: HashSet::new(), listed: false, deleted: HashSet::new() }
    }
}

impl<T: VersionedObject> VersionedStore<T> {
    /// Applies a watch event; returns the keys of the changed objects.
    pub(super) fn update(&mut self, event: Event<T>) -> Vec<T::Key> {
        match event {
            Event::Init => {
                self.listing.clear();
                Vec::new()
            }
            Event::InitApply(object) => {
                self.listing.insert(object.key());
                self.insert(object).into_iter().collect()
            }
            Event::InitDone => {
                self.listed = true;
                let listed = std::mem::take(&mut self.listing);
                let keys: Vec<_> = self.items.keys().filter(|key| !listed.contains(*key)).cloned().collect();
                let removed = keys.iter().filter_map(|key| self.items.remove(key));
                self.deleted.extend(removed.map(|object| object.version().uid.clone()));
                keys
            }
            Event::Apply(object) => self.insert(object).into_iter().collect(),
            Event::Delete(object) => self.remove(&object).into_iter().collect(),
        }
    }

    /// Inserts an object, unless it is older than the stored one or was deleted.
    pub(super) fn insert(&mut self, object: T) -> Option<T::Key> {
        let key = object.key();
        let stored = self.items.get(&key);
        if self.deleted.contains(&object.version().uid) {
            return None;
        }
        if stored.is_some_and(|stored| object.version().is_not_newer_than(stored.version())) {
            return None;
        }
        self.items.insert(key.clone(), object);
        Some(key)
    }

    /// Removes an object. A later object with the same key stays.
    fn remove(&mut self, object: &T) -> Option<T::Key> {
        let key = object.key();
        self.deleted.insert(object.version().uid.clone());
        self.items.get(&key).filter(|stored| stored.version().uid == object.version().uid)?;
        self.items.remove(&key);
        Some(key)
    }

    /// Forgets deleted objects. Allowed when no result of a write is outstanding.
    pub(super) fn forget_deleted(&mut self) {
        self.deleted.clear();
    }

    pub(super) fn get(&self, key: &T::Key) -> Option<&T> {
        self.items.get(key)
    }

    pub(super) fn get_mut(&mut self, key: &T::Key) -> Option<&mut T> {
        self.items.get_mut(key)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &T::Key> {
        self.items.keys()
    }

    /// Returns whether the first list is complete.
    pub(super) fn is_listed(&self) -> bool {
        self.listed
    }
}
