//! The objects of one kind as the API server tells of them.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use kube::core::ObjectMeta;
use kube::runtime::watcher::Event;

/// Which object of a kind, and in which state.
pub(super) trait Object {
    type Key: Clone + Eq + Hash;

    fn key(&self) -> Self::Key;
    fn version(&self) -> &Version;
}

/// A state of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) uid: String,
    pub(super) resource_version: Option<String>,
}

impl Version {
    pub(super) fn of(metadata: &ObjectMeta) -> Self {
        Self {
            uid: metadata.uid.clone().unwrap_or_default(),
            resource_version: metadata.resource_version.clone(),
        }
    }

    /// Whether this state of the same object is known to be no later than `other`. Versions are growing numbers; where
    /// they are not, nothing is known.
    fn is_no_news_after(&self, other: &Self) -> bool {
        let number = |version: &Self| version.resource_version.as_ref()?.parse::<u64>().ok();
        let (this, other_number) = (number(self), number(other));
        self.uid == other.uid && this.is_some() && other_number.is_some() && this <= other_number
    }
}

/// All objects of one kind.
pub(super) struct Objects<T: Object> {
    items: HashMap<T::Key, T>,
    /// What was seen in the list that is under way; the others are gone when it ends.
    listing: HashSet<T::Key>,
    listed: bool,
    /// UIDs of what went lately: what was written to it may be told only afterwards.
    gone: HashSet<String>,
}

impl<T: Object> Default for Objects<T> {
    fn default() -> Self {
        Self { items: HashMap::new(), listing: HashSet::new(), listed: false, gone: HashSet::new() }
    }
}

impl<T: Object> Objects<T> {
    /// Takes in a change; gives the keys of what is different.
    pub(super) fn take(&mut self, event: Event<T>) -> Vec<T::Key> {
        match event {
            Event::Init => {
                self.listing.clear();
                Vec::new()
            }
            Event::InitApply(object) => {
                self.listing.insert(object.key());
                self.put(object).into_iter().collect()
            }
            Event::InitDone => {
                self.listed = true;
                let seen = std::mem::take(&mut self.listing);
                let gone: Vec<_> = self.items.keys().filter(|key| !seen.contains(*key)).cloned().collect();
                let removed = gone.iter().filter_map(|key| self.items.remove(key));
                self.gone.extend(removed.map(|object| object.version().uid.clone()));
                gone
            }
            Event::Apply(object) => self.put(object).into_iter().collect(),
            Event::Delete(object) => self.remove(&object).into_iter().collect(),
        }
    }

    /// Takes in an object as it is now.
    pub(super) fn put(&mut self, object: T) -> Option<T::Key> {
        let key = object.key();
        let known = self.items.get(&key);
        if self.gone.contains(&object.version().uid) {
            return None;
        }
        if known.is_some_and(|known| object.version().is_no_news_after(known.version())) {
            return None;
        }
        self.items.insert(key.clone(), object);
        Some(key)
    }

    /// One of the same name that came later stays.
    fn remove(&mut self, object: &T) -> Option<T::Key> {
        let key = object.key();
        self.gone.insert(object.version().uid.clone());
        self.items.get(&key).filter(|known| known.version().uid == object.version().uid)?;
        self.items.remove(&key);
        Some(key)
    }

    /// All that was written has been told: nobody speaks of what went before.
    pub(super) fn forget_gone(&mut self) {
        self.gone.clear();
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

    /// Whether all that there are were seen once.
    pub(super) fn is_listed(&self) -> bool {
        self.listed
    }
}
