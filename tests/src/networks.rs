//! Networks and their NetworkAttachmentDefinitions (NADs) on a control plane with one operator.
//!
//! The operator serves the networks of all namespaces, so one operator works for all tests of the program. Tests that
//! stop it, or take the NADs' definition away, have it for themselves meanwhile.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "in a test a failed expectation is the point"
)]
#![allow(clippy::missing_panics_doc, reason = "what fails a test is said where it fails")]

mod keeper;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use fixture_kube::ControlPlane;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DeserializeGuard, GroupVersionKind, ObjectMeta};
use kube::runtime::wait::await_condition;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use vfleet_api::network::NetworkAttachmentDefinition as Nad;

use keeper::Keeper;

use crate::plane::{Plane, root};

/// Generous: the machine that runs the tests may be busy.
const DEADLINE: Duration = Duration::from_mins(2);

/// On a network: where its NAD was put.
pub const LAST_NAMESPACE: &str = "operator.sriovnetwork.openshift.io/last-network-namespace";
/// On a NAD: the network that it was made for.
pub const OWNER: &str = "sriovnetwork.openshift.io/owner-ref";
/// On a NAD: where its devices are taken from.
pub const RESOURCE: &str = "k8s.v1.cni.cncf.io/resourceName";
/// On networks in the operator's namespace.
pub const FINALIZER: &str = "netattdef.finalizers.sriovnetwork.openshift.io";

static TURN: RwLock<()> = RwLock::const_new(());

/// The control plane, with the operator running.
pub struct World {
    keeper: &'static Keeper,
    plane: Arc<ControlPlane>,
    client: Client,
    turn: Turn,
}

enum Turn {
    Shared(#[expect(dead_code, reason = "held, not read")] RwLockReadGuard<'static, ()>),
    Alone(#[expect(dead_code, reason = "held, not read")] RwLockWriteGuard<'static, ()>),
}

impl World {
    /// Together with other tests.
    pub async fn shared() -> Self {
        Self::new(Turn::Shared(TURN.read().await)).await
    }

    /// With no other test at the same time.
    pub async fn alone() -> Self {
        Self::new(Turn::Alone(TURN.write().await)).await
    }

    async fn new(turn: Turn) -> Self {
        let keeper = tokio::task::spawn_blocking(Keeper::get).await.unwrap();
        let plane = Plane::Networks.get();
        let client = plane.client().await.unwrap();
        Self { keeper, plane, client, turn }
    }

    /// The operator's namespace.
    pub fn home(&self) -> &str {
        self.keeper.namespace()
    }

    /// As if its machine's power had failed.
    pub fn kill_operator(&self) {
        self.alone_only();
        self.keeper.kill();
    }

    pub fn start_operator(&self) {
        self.alone_only();
        self.keeper.start();
    }

    fn alone_only(&self) {
        assert!(matches!(self.turn, Turn::Alone(_)), "others need the operator now");
    }

    /// Takes the definition of NADs away, and all of them with it.
    pub fn uninstall_nads(&self) {
        self.alone_only();
        let crd = "network-attachment-definitions.k8s.cni.cncf.io";
        self.kubectl(&["delete", "crd", crd, "--wait=true"]);
    }

    pub fn install_nads(&self) {
        self.plane.apply_crds(&root().join("fixtures/kube/crds/multus")).unwrap();
    }

    pub fn kubectl(&self, arguments: &[&str]) -> String {
        self.plane.kubectl(arguments).unwrap().into_stdout().unwrap()
    }

    /// A new namespace.
    pub async fn namespace(&self, prefix: &str) -> String {
        self.plane.namespace(prefix).await.unwrap()
    }

    /// A new namespace of this very name.
    pub async fn create_namespace(&self, name: &str) {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..Default::default() };
        let namespace = Namespace { metadata, ..Default::default() };
        Api::all(self.client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
    }

    pub async fn delete_namespace(&self, name: &str) {
        let api: Api<Namespace> = Api::all(self.client.clone());
        api.delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// As the administrator.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    pub fn networks(&self, kind: &str, namespace: &str) -> Api<DynamicObject> {
        let gvk = GroupVersionKind::gvk("sriovnetwork.openshift.io", "v1", kind);
        let plural = format!("{}s", kind.to_lowercase());
        let resource = ApiResource::from_gvk_with_plural(&gvk, &plural);
        Api::namespaced_with(self.client.clone(), namespace, &resource)
    }

    pub fn nads(&self, namespace: &str) -> Api<Nad> {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Applies a network; `spec` gets a resource name.
    pub async fn apply(&self, kind: &str, namespace: &str, name: &str, mut spec: Value) {
        spec["resourceName"] = json!("nics");
        let network = json!({
            "apiVersion": "sriovnetwork.openshift.io/v1", "kind": kind, "metadata": { "name": name }, "spec": spec,
        });
        let params = PatchParams::apply("test").force();
        self.networks(kind, namespace).patch(name, &params, &Patch::Apply(&network)).await.unwrap();
    }

    /// A SriovNetwork in the operator's namespace.
    pub async fn apply_sriov(&self, name: &str, spec: Value) {
        self.apply("SriovNetwork", self.home(), name, spec).await;
    }

    pub async fn delete(&self, kind: &str, namespace: &str, name: &str) {
        self.networks(kind, namespace).delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Waits for a network whose Ready condition, of its spec as it is now, has this reason.
    pub async fn wait_for(&self, kind: &str, namespace: &str, name: &str, reason: &str) -> Network {
        let api = self.networks(kind, namespace);
        let is_it = |found: Option<&DynamicObject>| {
            found.is_some_and(|found| Network(found.clone()).is_current(reason))
        };
        Network(self.wait(api, name, reason, is_it).await.expect("it is there"))
    }

    /// The same for a SriovNetwork in the operator's namespace.
    pub async fn wait_for_sriov(&self, name: &str, reason: &str) -> Network {
        self.wait_for("SriovNetwork", self.home(), name, reason).await
    }

    pub async fn wait_for_nad(
        &self,
        namespace: &str,
        name: &str,
        what: &str,
        like: impl Fn(&Nad) -> bool,
    ) -> Nad {
        // Guarded: on its way it may have no spec, which makes it unreadable.
        let api: Api<DeserializeGuard<Nad>> = Api::namespaced(self.client.clone(), namespace);
        let readable = |found: Option<&DeserializeGuard<Nad>>| found?.0.as_ref().ok().cloned();
        let is_it = |found: Option<&DeserializeGuard<Nad>>| readable(found).is_some_and(|nad| like(&nad));
        readable(self.wait(api, name, what, is_it).await.as_ref()).expect("it is there")
    }

    pub async fn wait_until_gone<K>(&self, api: Api<K>, name: &str)
    where
        K: kube::Resource + Clone + Debug + Send + DeserializeOwned + 'static,
    {
        self.wait(api, name, "gone", |found: Option<&K>| found.is_none()).await;
    }

    /// Waits until `is_it` holds for the object.
    pub async fn wait<K>(
        &self,
        api: Api<K>,
        name: &str,
        what: &str,
        is_it: impl Fn(Option<&K>) -> bool,
    ) -> Option<K>
    where
        K: kube::Resource + Clone + Debug + Send + DeserializeOwned + 'static,
    {
        let found = Box::pin(await_condition(api.clone(), name, is_it));
        let found = tokio::select! {
            found = tokio::time::timeout(DEADLINE, found) => found,
            () = self.keeper.failure() => panic!("the operator has ended\n{}", self.keeper.log()),
        };
        let Ok(found) = found else {
            let is = api.get_opt(name).await;
            panic!("{name} never came to: {what}; it is {is:#?}\n{}", self.keeper.log())
        };
        found.unwrap()
    }

    pub async fn expect_event(&self, namespace: &str, name: &str, type_: &str, reason: &str) {
        let api: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let is_it = |event: &Event| {
            event.reason.as_deref() == Some(reason)
                && event.type_.as_deref() == Some(type_)
                && event.regarding.as_ref().and_then(|about| about.name.as_deref()) == Some(name)
                && event.note.as_ref().is_some_and(|note| !note.is_empty())
        };
        let mut events = watcher(api, watcher::Config::default()).default_backoff().applied_objects().boxed();
        let found = async { while !events.next().await.unwrap().as_ref().is_ok_and(is_it) {} };
        tokio::time::timeout(DEADLINE, found)
            .await
            .unwrap_or_else(|_| panic!("no {type_} event {reason} about {name}"));
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // The next test finds all as it needs it, also after one that failed in the middle.
        if matches!(self.turn, Turn::Alone(_)) {
            self.install_nads();
            self.keeper.start();
        }
    }
}

/// A network, with what the tests ask of it.
#[derive(Clone, Debug)]
pub struct Network(pub DynamicObject);

impl Network {
    fn ready(&self) -> Option<&Value> {
        let conditions = self.0.data.pointer("/status/conditions")?.as_array()?;
        conditions.iter().find(|condition| condition["type"] == "Ready")
    }

    fn is_current(&self, reason: &str) -> bool {
        self.ready().is_some_and(|ready| {
            ready["reason"] == reason && ready["observedGeneration"].as_i64() == self.0.metadata.generation
        })
    }

    pub fn status(&self) -> &str {
        self.ready().and_then(|ready| ready["status"].as_str()).unwrap_or_default()
    }

    pub fn message(&self) -> &str {
        self.ready().and_then(|ready| ready["message"].as_str()).unwrap_or_default()
    }

    #[track_caller]
    pub fn expect_message(&self, parts: &[&str]) {
        for part in parts {
            assert!(self.message().contains(part), "{part:?} is missing in {:?}", self.message());
        }
    }

    pub fn finalizers(&self) -> &[String] {
        self.0.metadata.finalizers.as_deref().unwrap_or_default()
    }

    pub fn last_namespace(&self) -> Option<&str> {
        self.0.metadata.annotations.as_ref()?.get(LAST_NAMESPACE).map(String::as_str)
    }

    pub fn version(&self) -> Option<String> {
        self.0.metadata.resource_version.clone()
    }
}

/// The CNI configuration of a NAD.
pub fn config(nad: &Nad) -> Value {
    serde_json::from_str(nad.spec.config.as_deref().unwrap_or_default()).unwrap()
}

/// An annotation of a NAD.
pub fn annotation<'a>(nad: &'a Nad, key: &str) -> Option<&'a str> {
    nad.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}
