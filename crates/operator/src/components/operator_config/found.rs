//! What is deployed in the operator's namespace, as last seen.

use std::collections::{BTreeMap, BTreeSet};

use futures::{Stream, StreamExt};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, ResourceExt};
use vfleet_api::keys::{MANAGED_BY_LABEL, OPERATOR_FIELD_MANAGER};
use vfleet_cluster::watch;

use crate::replica::context::Context;

/// A kind of object that is deployed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    ServiceAccount,
    DaemonSet,
}

impl Kind {
    const ALL: [Self; 2] = [Self::ServiceAccount, Self::DaemonSet];

    pub(crate) fn resource(self) -> ApiResource {
        match self {
            Self::ServiceAccount => ApiResource::erase::<ServiceAccount>(&()),
            Self::DaemonSet => ApiResource::erase::<DaemonSet>(&()),
        }
    }

    pub(crate) fn api(self, client: &Client, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(client.clone(), namespace, &self.resource())
    }
}

/// An object of the namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Id {
    pub(crate) kind: Kind,
    pub(crate) name: String,
}

/// Something changed.
pub(crate) struct Change {
    kind: Kind,
    event: Event<DynamicObject>,
}

/// All changes of objects of these kinds. Objects of others are among them: one with a name that we want may be the Go
/// operator's.
pub(crate) fn changes(context: &Context) -> impl Stream<Item = Change> + use<> {
    let follow = |kind: Kind| {
        let api = kind.api(&context.client, &context.config.namespace);
        let changes =
            watch::uninterrupted(kind.resource().kind.into(), watcher(api, watcher::Config::default()));
        changes.map(move |event| Change { kind, event }).boxed()
    };
    futures::stream::select_all(Kind::ALL.map(follow))
}

/// The objects, by kind and name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    objects: BTreeMap<Id, DynamicObject>,
    /// Objects of a list that is under way; the others of the kind are gone when it ends.
    listing: BTreeSet<Id>,
    listed: BTreeSet<Kind>,
}

impl Found {
    /// Takes in a change; says whether it means anything to us. The status of a DaemonSet does not.
    pub(crate) fn take(&mut self, change: Change) -> bool {
        let Change { kind, event } = change;
        let id = |object: &DynamicObject| Id { kind, name: object.name_any() };
        match event {
            Event::Init => {
                self.listing.retain(|id| id.kind != kind);
                false
            }
            Event::InitApply(object) => {
                self.listing.insert(id(&object));
                self.put(id(&object), object)
            }
            Event::InitDone => {
                self.objects.retain(|id, _| id.kind != kind || self.listing.contains(id));
                self.listed.insert(kind);
                true
            }
            Event::Apply(object) => self.put(id(&object), object),
            Event::Delete(object) => self.objects.remove(&id(&object)).is_some(),
        }
    }

    fn put(&mut self, id: Id, object: DynamicObject) -> bool {
        let is_news = self.objects.get(&id).is_none_or(|known| essence(known) != essence(&object));
        self.objects.insert(id, object);
        is_news
    }

    /// Whether all kinds were listed: before that, what is absent may just not have been seen.
    pub(crate) fn is_complete(&self) -> bool {
        self.listed.len() == Kind::ALL.len()
    }

    pub(crate) fn get(&self, id: &Id) -> Option<&DynamicObject> {
        self.objects.get(id)
    }

    pub(crate) fn daemon_set(&self, name: &str) -> Option<&DynamicObject> {
        self.get(&Id { kind: Kind::DaemonSet, name: name.to_owned() })
    }

    /// What we deployed for the operator config with this UID.
    pub(crate) fn ours(&self, owner: &str) -> impl Iterator<Item = (&Id, &DynamicObject)> {
        self.objects.iter().filter(move |(_, object)| {
            let label = object.labels().get(MANAGED_BY_LABEL).map(String::as_str);
            label == Some(OPERATOR_FIELD_MANAGER) && is_controlled_by(object, owner)
        })
    }
}

/// Whether the object with the UID `owner` controls it.
pub(crate) fn is_controlled_by(object: &DynamicObject, owner: &str) -> bool {
    object
        .owner_references()
        .iter()
        .any(|reference| reference.controller == Some(true) && reference.uid == owner)
}

/// An object without what changes by itself.
fn essence(object: &DynamicObject) -> DynamicObject {
    let mut essence = object.clone();
    essence.metadata.resource_version = None;
    essence.metadata.managed_fields = None;
    if let Some(content) = essence.data.as_object_mut() {
        content.remove("status");
    }
    essence
}
