//! Watches of networks and of the objects that they depend on.

use std::fmt::Debug;

use futures::{Stream, StreamExt};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::{PartialObjectMeta, Resource};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use serde::de::DeserializeOwned;
use vfleet_api::keys::{LAST_NETWORK_NAMESPACE, NAD_OWNER, NAD_RESOURCE};
use vfleet_api::meta::Condition;
use vfleet_api::network::{NetworkAttachmentDefinition, NetworkStatus};
use vfleet_api::{BridgeNetwork, OVSNetwork, SriovIBNetwork, SriovNetwork, SriovNetworkNodePolicy};
use vfleet_cluster::guarded::Guarded;
use vfleet_cluster::watch;
use vfleet_plan::network::{
    NadFacts, NetworkFault, NetworkId, NetworkKind, NetworkSpec, OwnerReferenceFacts,
};

use crate::networks::versioned_store::{ObjectVersion, VersionedObject};

/// Change of a network or of an object that networks depend on.
pub(super) enum NetworkChange {
    Network(NetworkKind, Box<Event<StoredNetwork>>),
    Nad(Box<Event<StoredNad>>),
    /// The CustomResourceDefinition of NADs is not installed.
    NadsUnavailable,
    Namespace(Event<StoredNamespace>),
    /// Policy in the namespace of the operator.
    Policy(Box<Event<Guarded<SriovNetworkNodePolicy>>>),
}

/// Network, reduced to the values that decisions depend on.
#[derive(Clone, Debug)]
pub(super) struct StoredNetwork {
    pub(super) id: NetworkId,
    pub(super) version: ObjectVersion,
    pub(super) generation: Option<i64>,
    pub(super) deleting: bool,
    pub(super) finalizers: Vec<String>,
    /// Annotation with the namespace of the last NAD, unchecked.
    pub(super) last_namespace: Option<String>,
    /// `None` if the network cannot be parsed.
    pub(super) conditions: Option<Vec<Condition>>,
    pub(super) spec: Result<NetworkSpec, NetworkFault>,
}

/// Namespace and name of a NAD.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct NadKey {
    pub(super) namespace: String,
    pub(super) name: String,
}

/// NAD, reduced to the values that decisions depend on.
#[derive(Clone, Debug)]
pub(super) struct StoredNad {
    pub(super) key: NadKey,
    pub(super) version: ObjectVersion,
    pub(super) facts: NadFacts,
}

/// Namespace, reduced to the values that decisions depend on.
#[derive(Clone, Debug)]
pub(super) struct StoredNamespace {
    pub(super) name: String,
    pub(super) version: ObjectVersion,
    pub(super) is_terminating: bool,
}

/// One of the four kinds of networks.
pub(super) trait NetworkObject:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + DeserializeOwned
    + Debug
    + Send
    + Sync
    + 'static
{
    const KIND: NetworkKind;

    fn split(self) -> (NetworkSpec, Option<NetworkStatus>);
}

macro_rules! network_object {
    ($type:ty, $kind:ident) => {
        impl NetworkObject for $type {
            const KIND: NetworkKind = NetworkKind::$kind;

            fn split(self) -> (NetworkSpec, Option<NetworkStatus>) {
                (NetworkSpec::$kind(self.spec), self.status)
            }
        }
    };
}

network_object!(SriovNetwork, Sriov);
network_object!(SriovIBNetwork, InfiniBand);
network_object!(OVSNetwork, Ovs);
network_object!(BridgeNetwork, Bridge);

/// Watches policies in the namespace of the operator, and all other objects in all namespaces.
pub(super) fn watch_all(
    client: &Client,
    operator_namespace: &str,
) -> impl Stream<Item = NetworkChange> + use<> {
    let policies = Api::namespaced(client.clone(), operator_namespace);
    let policies = watch::watch_objects(policies, watcher::Config::default());
    futures::stream::select_all([
        watch_networks::<SriovNetwork>(client).boxed(),
        watch_networks::<SriovIBNetwork>(client).boxed(),
        watch_networks::<OVSNetwork>(client).boxed(),
        watch_networks::<BridgeNetwork>(client).boxed(),
        watch_nads(client).boxed(),
        watch_namespaces(client).boxed(),
        policies.map(|event| NetworkChange::Policy(Box::new(event))).boxed(),
    ])
}

fn watch_networks<K: NetworkObject>(client: &Client) -> impl Stream<Item = NetworkChange> + use<K> {
    watch::watch_objects::<K>(Api::all(client.clone()), watcher::Config::default())
        .map(|event| NetworkChange::Network(K::KIND, Box::new(map_event(event, read_network))))
}

/// Watches NADs. A NAD without a spec cannot be parsed, which must not end the watch.
fn watch_nads(client: &Client) -> impl Stream<Item = NetworkChange> + use<> {
    let api: Api<Guarded<NetworkAttachmentDefinition>> = Api::all(client.clone());
    watcher(api, watcher::Config::default()).default_backoff().filter_map(async |event| match event {
        Ok(event) => Some(NetworkChange::Nad(Box::new(map_event(event, |nad| StoredNad::from(&nad))))),
        Err(watcher::Error::InitialListFailed(kube::Error::Api(status))) if status.code == 404 => {
            Some(NetworkChange::NadsUnavailable)
        }
        Err(error) => {
            tracing::warn!(%error, "watch of NetworkAttachmentDefinitions interrupted: retrying");
            None
        }
    })
}

fn watch_namespaces(client: &Client) -> impl Stream<Item = NetworkChange> + use<> {
    watch::watch_metadata::<Namespace>(Api::all(client.clone()))
        .map(|event| NetworkChange::Namespace(map_event(event, |object| read_namespace(&object))))
}

fn map_event<A, B>(event: Event<A>, convert: impl FnOnce(A) -> B) -> Event<B> {
    match event {
        Event::Init => Event::Init,
        Event::InitApply(object) => Event::InitApply(convert(object)),
        Event::InitDone => Event::InitDone,
        Event::Apply(object) => Event::Apply(convert(object)),
        Event::Delete(object) => Event::Delete(convert(object)),
    }
}

fn read_network<K: NetworkObject>(guarded: Guarded<K>) -> StoredNetwork {
    let id = NetworkId {
        kind: K::KIND,
        namespace: guarded.namespace().unwrap_or_default(),
        name: guarded.name_any(),
    };
    let metadata = guarded.meta();
    let mut network = StoredNetwork {
        id,
        version: ObjectVersion::of(metadata),
        generation: metadata.generation,
        deleting: metadata.deletion_timestamp.is_some(),
        finalizers: guarded.finalizers().to_vec(),
        last_namespace: guarded.annotations().get(LAST_NETWORK_NAMESPACE).cloned(),
        conditions: None,
        spec: Err(NetworkFault::Unreadable { problem: String::new() }),
    };
    match guarded.0 {
        Ok(object) => {
            let (spec, status) = object.split();
            network.spec = Ok(spec);
            network.conditions = Some(status.and_then(|status| status.conditions).unwrap_or_default());
        }
        Err(error) => {
            tracing::warn!(network = %network.id, error = error.error, "network cannot be parsed and is left unchanged");
            network.spec = Err(NetworkFault::Unreadable { problem: error.error });
        }
    }
    network
}

impl From<&Guarded<NetworkAttachmentDefinition>> for StoredNad {
    fn from(nad: &Guarded<NetworkAttachmentDefinition>) -> Self {
        let key = NadKey { namespace: nad.namespace().unwrap_or_default(), name: nad.name_any() };
        let facts = NadFacts {
            namespace: key.namespace.clone(),
            deleting: nad.meta().deletion_timestamp.is_some(),
            owner: nad.annotations().get(NAD_OWNER).filter(|owner| !owner.is_empty()).cloned(),
            resource: nad.annotations().get(NAD_RESOURCE).cloned(),
            owner_references: nad.owner_references().iter().map(read_owner).collect(),
            config: nad.0.as_ref().ok().and_then(|nad| nad.spec.config.clone()),
        };
        Self { version: ObjectVersion::of(nad.meta()), key, facts }
    }
}

fn read_owner(reference: &OwnerReference) -> OwnerReferenceFacts {
    OwnerReferenceFacts {
        kind: reference.kind.clone(),
        name: reference.name.clone(),
        uid: reference.uid.clone(),
    }
}

fn read_namespace(namespace: &PartialObjectMeta<Namespace>) -> StoredNamespace {
    StoredNamespace {
        name: namespace.name_any(),
        version: ObjectVersion::of(&namespace.metadata),
        is_terminating: namespace.metadata.deletion_timestamp.is_some(),
    }
}

impl VersionedObject for StoredNetwork {
    type Key = NetworkId;

    fn key(&self) -> NetworkId {
        self.id.clone()
    }

    fn version(&self) -> &ObjectVersion {
        &self.version
    }
}

impl VersionedObject for StoredNad {
    type Key = NadKey;

    fn key(&self) -> NadKey {
        self.key.clone()
    }

    fn version(&self) -> &ObjectVersion {
        &self.version
    }
}

impl VersionedObject for StoredNamespace {
    type Key = String;

    fn key(&self) -> String {
        self.name.clone()
    }

    fn version(&self) -> &ObjectVersion {
        &self.version
    }
}
