//! The objects of one kind, by name, as the API server tells them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use kube::ResourceExt;
use kube::core::{DeserializeGuard, Resource};
use kube::runtime::watcher::Event;
use serde::de::DeserializeOwned;

/// What is kept of an object.
pub(super) trait Counts {
    /// Whether decisions about nodes come out the same with the other one.
    fn same(&self, other: &Self) -> bool;
}

/// The objects of one kind, by name.
#[derive(Debug)]
pub(crate) struct Known<T> {
    items: HashMap<String, T>,
    /// Objects that cannot be read and never could, and why.
    unreadable: BTreeMap<String, String>,
    /// Names seen in the list that is under way; the others are gone when it ends.
    listing: BTreeSet<String>,
    listed: bool,
}

/// An object that is not what it was.
#[derive(Debug)]
pub(super) struct Changed<T> {
    pub(super) name: String,
    /// What it was before.
    pub(super) old: Option<T>,
}

impl<T> Default for Known<T> {
    fn default() -> Self {
        Self { items: HashMap::new(), unreadable: BTreeMap::new(), listing: BTreeSet::new(), listed: false }
    }
}

impl<T> Known<T> {
    pub(super) fn get(&self, name: &str) -> Option<&T> {
        self.items.get(name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, &T)> {
        self.items.iter()
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.items.keys()
    }

    /// Names of objects that cannot be read and never could, and why.
    pub(super) fn unreadable(&self) -> &BTreeMap<String, String> {
        &self.unreadable
    }

    /// Whether they were listed once: before that, an absent object may just not have been seen.
    pub(super) fn is_listed(&self) -> bool {
        self.listed
    }
}

impl<T: Counts> Known<T> {
    /// Takes in a watch event of guarded objects. What cannot be read counts as it was.
    pub(super) fn update<K>(&mut self, event: Event<DeserializeGuard<K>>, keep: impl FnOnce(K) -> T) -> Vec<Changed<T>>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        self.take(event, |guarded| guarded.0.map(keep).map_err(|error| error.error))
    }

    /// Takes in a watch event; gives the objects that are different from before. What cannot be `read` counts as it
    /// was.
    pub(super) fn take<O: ResourceExt>(
        &mut self,
        event: Event<O>,
        read: impl FnOnce(O) -> Result<T, String>,
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
                self.unreadable.retain(|name, _| seen.contains(name));
                let gone = self.items.extract_if(|name, _| !seen.contains(name));
                gone.map(|(name, old)| Changed { name, old: Some(old) }).collect()
            }
            Event::Apply(object) => self.put(object.name_any(), read(object)),
            Event::Delete(object) => {
                let name = object.name_any();
                let was_unreadable = self.unreadable.remove(&name).is_some();
                let old = self.items.remove(&name);
                if old.is_some() || was_unreadable { vec![Changed { name, old }] } else { Vec::new() }
            }
        }
    }

    fn put(&mut self, name: String, item: Result<T, String>) -> Vec<Changed<T>> {
        let item = match item {
            Ok(item) => item,
            Err(error) => {
                tracing::warn!(name, error, "an object cannot be read; its last state counts");
                if !self.items.contains_key(&name) {
                    self.unreadable.insert(name, error);
                }
                return Vec::new();
            }
        };
        let was_unreadable = self.unreadable.remove(&name).is_some();
        let is_same = self.items.get(&name).is_some_and(|old| old.same(&item));
        let old = self.items.insert(name.clone(), item);
        if is_same && !was_unreadable { Vec::new() } else { vec![Changed { name, old }] }
    }
}
