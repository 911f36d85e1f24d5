//! Deployed objects in the namespace of the operator, from watches.

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

/// Kind of a deployed object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ComponentKind {
    ServiceAccount,
    DaemonSet,
}

impl ComponentKind {
    const ALL: [Self; 2] = [Self::ServiceAccount, Self::DaemonSet];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ServiceAccount => "ServiceAccount",
            Self::DaemonSet => "DaemonSet",
        }
    }

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

/// Kind and name of an object in the namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ComponentId {
    pub(crate) kind: ComponentKind,
    pub(crate) name: String,
}

/// Watch event of one kind.
pub(crate) struct ComponentChange {
    kind: ComponentKind,
    event: Event<DynamicObject>,
}

/// Watches all objects of these kinds, also those of others: an object with the name of a component may be the Go
/// operator's.
pub(crate) fn watch_components(context: &Context) -> impl Stream<Item = ComponentChange> + use<> {
    let watch_kind = |kind: ComponentKind| {
        let api = kind.api(&context.client, &context.config.namespace);
        let events =
            watch::resume_after_errors(kind.resource().kind.into(), watcher(api, watcher::Config::default()));
        events.map(move |event| ComponentChange { kind, event }).boxed()
    };
    futures::stream::select_all(ComponentKind::ALL.map(watch_kind))
}

/// Objects by kind and name.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeployedObjects {
    objects: BTreeMap<ComponentId, DynamicObject>,
    /// Objects in the list that is being received. All others of the kind are removed when it is complete.
    listing: BTreeSet<ComponentId>,
    listed: BTreeSet<ComponentKind>,
}

impl DeployedObjects {
    /// Applies an event; returns whether something relevant changed. The status of a DaemonSet is not relevant.
    pub(crate) fn apply(&mut self, change: ComponentChange) -> bool {
        let ComponentChange { kind, event } = change;
        let id = |object: &DynamicObject| ComponentId { kind, name: object.name_any() };
        match event {
            Event::Init => {
                self.listing.retain(|id| id.kind != kind);
                false
            }
            Event::InitApply(object) => {
                self.listing.insert(id(&object));
                self.insert(id(&object), object)
            }
            Event::InitDone => {
                self.objects.retain(|id, _| id.kind != kind || self.listing.contains(id));
                self.listed.insert(kind);
                true
            }
            Event::Apply(object) => self.insert(id(&object), object),
            Event::Delete(object) => self.objects.remove(&id(&object)).is_some(),
        }
    }

    fn insert(&mut self, id: ComponentId, object: DynamicObject) -> bool {
        let is_changed = self
            .objects
            .get(&id)
            .is_none_or(|current| strip_volatile_fields(current) != strip_volatile_fields(&object));
        self.objects.insert(id, object);
        is_changed
    }

    /// Returns whether the first lists of all kinds are complete.
    pub(crate) fn is_complete(&self) -> bool {
        self.listed.len() == ComponentKind::ALL.len()
    }

    pub(crate) fn get(&self, id: &ComponentId) -> Option<&DynamicObject> {
        self.objects.get(id)
    }

    pub(crate) fn find_daemon_set(&self, name: &str) -> Option<&DynamicObject> {
        self.get(&ComponentId { kind: ComponentKind::DaemonSet, name: name.to_owned() })
    }

    /// Returns the objects that were deployed for the operator config with the UID `owner`.
    pub(crate) fn owned_by(&self, owner: &str) -> impl Iterator<Item = (&ComponentId, &DynamicObject)> {
        self.objects.iter().filter(move |(_, object)| {
            let label = object.labels().get(MANAGED_BY_LABEL).map(String::as_str);
            label == Some(OPERATOR_FIELD_MANAGER) && is_controlled_by(object, owner)
        })
    }
}

/// Returns whether the object with the UID `owner` is the controller of `object`.
pub(crate) fn is_controlled_by(object: &DynamicObject, owner: &str) -> bool {
    object
        .owner_references()
        .iter()
        .any(|reference| reference.controller == Some(true) && reference.uid == owner)
}

/// Returns the object without status, resource version and field managers.
fn strip_volatile_fields(object: &DynamicObject) -> DynamicObject {
    let mut stripped = object.clone();
    stripped.metadata.resource_version = None;
    stripped.metadata.managed_fields = None;
    if let Some(content) = stripped.data.as_object_mut() {
        content.remove("status");
    }
    stripped
}
