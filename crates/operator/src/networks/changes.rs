//! All changes that networks can depend on, as plain data.

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
use vfleet_plan::network::{NadFacts, NetworkFault, NetworkId, NetworkKind, NetworkSpec, OwnerFacts};

use crate::networks::objects::{Object, Version};

/// Something changed.
pub(super) enum Change {
    Network(NetworkKind, Box<Event<Network>>),
    Nad(Box<Event<SeenNad>>),
    /// The cluster does not know what a NAD is.
    NoNads,
    Namespace(Event<SeenNamespace>),
    /// Of the operator's namespace.
    Policy(Box<Event<Guarded<SriovNetworkNodePolicy>>>),
}

/// What counts of a network.
#[derive(Clone, Debug)]
pub(super) struct Network {
    pub(super) id: NetworkId,
    pub(super) version: Version,
    pub(super) generation: Option<i64>,
    pub(super) deleting: bool,
    pub(super) finalizers: Vec<String>,
    /// Its annotation, whatever that says.
    pub(super) last_namespace: Option<String>,
    /// `None` when it cannot be read.
    pub(super) conditions: Option<Vec<Condition>>,
    pub(super) spec: Result<NetworkSpec, NetworkFault>,
}

/// A place where a NAD can be.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) namespace: String,
    pub(super) name: String,
}

/// What counts of a NAD.
#[derive(Clone, Debug)]
pub(super) struct SeenNad {
    pub(super) place: Place,
    pub(super) version: Version,
    pub(super) facts: NadFacts,
}

/// What counts of a namespace.
#[derive(Clone, Debug)]
pub(super) struct SeenNamespace {
    pub(super) name: String,
    pub(super) version: Version,
    pub(super) ending: bool,
}

/// One of the four kinds.
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

/// All changes: of policies in the operator's namespace, of everything else in all of them.
pub(super) fn all(client: &Client, operator_namespace: &str) -> impl Stream<Item = Change> + use<> {
    let policies = Api::namespaced(client.clone(), operator_namespace);
    let policies = watch::changes(policies, watcher::Config::default());
    futures::stream::select_all([
        networks::<SriovNetwork>(client).boxed(),
        networks::<SriovIBNetwork>(client).boxed(),
        networks::<OVSNetwork>(client).boxed(),
        networks::<BridgeNetwork>(client).boxed(),
        nads(client).boxed(),
        namespaces(client).boxed(),
        policies.map(|event| Change::Policy(Box::new(event))).boxed(),
    ])
}

fn networks<K: NetworkObject>(client: &Client) -> impl Stream<Item = Change> + use<K> {
    watch::changes::<K>(Api::all(client.clone()), watcher::Config::default())
        .map(|event| Change::Network(K::KIND, Box::new(map(event, network))))
}

/// Guarded: a NAD need not have a spec, and is then unreadable.
fn nads(client: &Client) -> impl Stream<Item = Change> + use<> {
    let api: Api<Guarded<NetworkAttachmentDefinition>> = Api::all(client.clone());
    watcher(api, watcher::Config::default()).default_backoff().filter_map(async |change| match change {
        Ok(event) => Some(Change::Nad(Box::new(map(event, |nad| SeenNad::from(&nad))))),
        Err(watcher::Error::InitialListFailed(kube::Error::Api(status))) if status.code == 404 => {
            Some(Change::NoNads)
        }
        Err(error) => {
            tracing::warn!(%error, "watching NetworkAttachmentDefinitions is interrupted, will go on");
            None
        }
    })
}

fn namespaces(client: &Client) -> impl Stream<Item = Change> + use<> {
    watch::metadata_changes::<Namespace>(Api::all(client.clone()))
        .map(|event| Change::Namespace(map(event, |object| namespace(&object))))
}

fn map<A, B>(event: Event<A>, with: impl FnOnce(A) -> B) -> Event<B> {
    match event {
        Event::Init => Event::Init,
        Event::InitApply(object) => Event::InitApply(with(object)),
        Event::InitDone => Event::InitDone,
        Event::Apply(object) => Event::Apply(with(object)),
        Event::Delete(object) => Event::Delete(with(object)),
    }
}

fn network<K: NetworkObject>(guarded: Guarded<K>) -> Network {
    let id = NetworkId {
        kind: K::KIND,
        namespace: guarded.namespace().unwrap_or_default(),
        name: guarded.name_any(),
    };
    let metadata = guarded.meta();
    let mut network = Network {
        id,
        version: Version::of(metadata),
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
            tracing::warn!(network = %network.id, error = error.error, "a network cannot be read and is left as it is");
            network.spec = Err(NetworkFault::Unreadable { problem: error.error });
        }
    }
    network
}

impl From<&Guarded<NetworkAttachmentDefinition>> for SeenNad {
    fn from(nad: &Guarded<NetworkAttachmentDefinition>) -> Self {
        let place = Place { namespace: nad.namespace().unwrap_or_default(), name: nad.name_any() };
        let facts = NadFacts {
            namespace: place.namespace.clone(),
            deleting: nad.meta().deletion_timestamp.is_some(),
            owner: nad.annotations().get(NAD_OWNER).filter(|owner| !owner.is_empty()).cloned(),
            resource: nad.annotations().get(NAD_RESOURCE).cloned(),
            owner_references: nad.owner_references().iter().map(owner).collect(),
            config: nad.0.as_ref().ok().and_then(|nad| nad.spec.config.clone()),
        };
        Self { version: Version::of(nad.meta()), place, facts }
    }
}

fn owner(reference: &OwnerReference) -> OwnerFacts {
    OwnerFacts { kind: reference.kind.clone(), name: reference.name.clone(), uid: reference.uid.clone() }
}

fn namespace(namespace: &PartialObjectMeta<Namespace>) -> SeenNamespace {
    SeenNamespace {
        name: namespace.name_any(),
        version: Version::of(&namespace.metadata),
        ending: namespace.metadata.deletion_timestamp.is_some(),
    }
}

impl Object for Network {
    type Key = NetworkId;

    fn key(&self) -> NetworkId {
        self.id.clone()
    }

    fn version(&self) -> &Version {
        &self.version
    }
}

impl Object for SeenNad {
    type Key = Place;

    fn key(&self) -> Place {
        self.place.clone()
    }

    fn version(&self) -> &Version {
        &self.version
    }
}

impl Object for SeenNamespace {
    type Key = String;

    fn key(&self) -> String {
        self.name.clone()
    }

    fn version(&self) -> &Version {
        &self.version
    }
}
