//! Networks and their NetworkAttachmentDefinitions (NADs) on a control plane with one operator.
//!
//! The operator reconciles networks of all namespaces, so all tests of the program share one operator. Tests that stop
//! the operator, or remove the CRD of NADs, run exclusively.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "in a test a failed expectation is the point"
)]
#![allow(clippy::missing_panics_doc, reason = "a failed expectation is explained where it fails")]

mod operator_thread;

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

use operator_thread::OperatorThread;

use crate::plane::{Plane, root};

/// Deadline of waits; generous, because the machine may be busy.
const DEADLINE: Duration = Duration::from_mins(2);

/// Annotation of a network with the namespace of its NAD.
pub const LAST_NAMESPACE: &str = "operator.sriovnetwork.openshift.io/last-network-namespace";
/// Annotation of a NAD with its network.
pub const OWNER: &str = "sriovnetwork.openshift.io/owner-ref";
/// Annotation of a NAD with the resource of its devices.
pub const RESOURCE: &str = "k8s.v1.cni.cncf.io/resourceName";
/// Finalizer of networks in the namespace of the operator.
pub const FINALIZER: &str = "netattdef.finalizers.sriovnetwork.openshift.io";

static ACCESS: RwLock<()> = RwLock::const_new(());

/// Control plane for networks, with a running operator.
pub struct NetworkCluster {
    operator: &'static OperatorThread,
    plane: Arc<ControlPlane>,
    client: Client,
    access: Access,
}

/// Access of a test to the shared operator.
enum Access {
    Shared(#[expect(dead_code, reason = "held, not read")] RwLockReadGuard<'static, ()>),
    Exclusive(#[expect(dead_code, reason = "held, not read")] RwLockWriteGuard<'static, ()>),
}

impl NetworkCluster {
    /// Returns shared access, at the same time as other tests.
    pub async fn shared() -> Self {
        Self::new(Access::Shared(ACCESS.read().await)).await
    }

    /// Returns exclusive access, while no other test runs.
    pub async fn exclusive() -> Self {
        Self::new(Access::Exclusive(ACCESS.write().await)).await
    }

    async fn new(access: Access) -> Self {
        let operator = tokio::task::spawn_blocking(OperatorThread::get).await.unwrap();
        let plane = Plane::Networks.get();
        let client = plane.client().await.unwrap();
        Self { operator, plane, client, access }
    }

    /// Returns the namespace of the operator.
    pub fn operator_namespace(&self) -> &str {
        self.operator.namespace()
    }

    /// Kills the operator with SIGKILL.
    pub fn kill_operator(&self) {
        self.require_exclusive();
        self.operator.kill();
    }

    pub fn start_operator(&self) {
        self.require_exclusive();
        self.operator.start();
    }

    fn require_exclusive(&self) {
        assert!(matches!(self.access, Access::Exclusive(_)), "this needs exclusive access to the operator");
    }

    /// Removes the CRD of NADs, and with it all NADs.
    pub fn uninstall_nads(&self) {
        self.require_exclusive();
        let crd = "network-attachment-definitions.k8s.cni.cncf.io";
        self.kubectl(&["delete", "crd", crd, "--wait=true"]);
    }

    pub fn install_nads(&self) {
        self.plane.apply_crds(&root().join("fixtures/kube/crds/multus")).unwrap();
    }

    pub fn kubectl(&self, arguments: &[&str]) -> String {
        self.plane.kubectl(arguments).unwrap().into_stdout().unwrap()
    }

    /// Creates a namespace with a generated name.
    pub async fn namespace(&self, prefix: &str) -> String {
        self.plane.namespace(prefix).await.unwrap()
    }

    /// Creates a namespace with this name.
    pub async fn create_namespace(&self, name: &str) {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..Default::default() };
        let namespace = Namespace { metadata, ..Default::default() };
        Api::all(self.client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
    }

    pub async fn delete_namespace(&self, name: &str) {
        let api: Api<Namespace> = Api::all(self.client.clone());
        api.delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Returns a client with all rights.
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

    /// Applies a network. Adds a resource name to `spec`.
    pub async fn apply(&self, kind: &str, namespace: &str, name: &str, mut spec: Value) {
        spec["resourceName"] = json!("nics");
        let network = json!({
            "apiVersion": "sriovnetwork.openshift.io/v1", "kind": kind, "metadata": { "name": name }, "spec": spec,
        });
        let params = PatchParams::apply("test").force();
        self.networks(kind, namespace).patch(name, &params, &Patch::Apply(&network)).await.unwrap();
    }

    /// Applies a SriovNetwork in the namespace of the operator.
    pub async fn apply_sriov(&self, name: &str, spec: Value) {
        self.apply("SriovNetwork", self.operator_namespace(), name, spec).await;
    }

    pub async fn delete(&self, kind: &str, namespace: &str, name: &str) {
        self.networks(kind, namespace).delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Waits until the Ready condition for the current spec of a network has this reason.
    pub async fn wait_for(&self, kind: &str, namespace: &str, name: &str, reason: &str) -> Network {
        let api = self.networks(kind, namespace);
        let matches = |found: Option<&DynamicObject>| {
            found.is_some_and(|found| Network(found.clone()).is_current(reason))
        };
        Network(self.wait(api, name, reason, matches).await.expect("the object exists"))
    }

    /// Waits until the Ready condition of a SriovNetwork in the namespace of the operator has this reason.
    pub async fn wait_for_sriov(&self, name: &str, reason: &str) -> Network {
        self.wait_for("SriovNetwork", self.operator_namespace(), name, reason).await
    }

    pub async fn wait_for_nad(
        &self,
        namespace: &str,
        name: &str,
        what: &str,
        condition: impl Fn(&Nad) -> bool,
    ) -> Nad {
        // The guard tolerates a NAD without spec, which may exist for a moment.
        let api: Api<DeserializeGuard<Nad>> = Api::namespaced(self.client.clone(), namespace);
        let parse = |found: Option<&DeserializeGuard<Nad>>| found?.0.as_ref().ok().cloned();
        let matches = |found: Option<&DeserializeGuard<Nad>>| parse(found).is_some_and(|nad| condition(&nad));
        parse(self.wait(api, name, what, matches).await.as_ref()).expect("the object exists")
    }

    pub async fn wait_until_deleted<K>(&self, api: Api<K>, name: &str)
    where
        K: kube::Resource + Clone + Debug + Send + DeserializeOwned + 'static,
    {
        self.wait(api, name, "gone", |found: Option<&K>| found.is_none()).await;
    }

    /// Waits until the object meets `condition`.
    pub async fn wait<K>(
        &self,
        api: Api<K>,
        name: &str,
        what: &str,
        condition: impl Fn(Option<&K>) -> bool,
    ) -> Option<K>
    where
        K: kube::Resource + Clone + Debug + Send + DeserializeOwned + 'static,
    {
        let found = Box::pin(await_condition(api.clone(), name, condition));
        let found = tokio::select! {
            found = tokio::time::timeout(DEADLINE, found) => found,
            () = self.operator.failure() => panic!("the operator ended unexpectedly\n{}", self.operator.log()),
        };
        let Ok(found) = found else {
            let current = api.get_opt(name).await;
            panic!(
                "timed out waiting for {name}: {what}; current object: {current:#?}\n{}",
                self.operator.log()
            )
        };
        found.unwrap()
    }

    pub async fn expect_event(&self, namespace: &str, name: &str, type_: &str, reason: &str) {
        let api: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let matches = |event: &Event| {
            event.reason.as_deref() == Some(reason)
                && event.type_.as_deref() == Some(type_)
                && event.regarding.as_ref().and_then(|object| object.name.as_deref()) == Some(name)
                && event.note.as_ref().is_some_and(|note| !note.is_empty())
        };
        let mut events = watcher(api, watcher::Config::default()).default_backoff().applied_objects().boxed();
        let found = async { while !events.next().await.unwrap().as_ref().is_ok_and(matches) {} };
        tokio::time::timeout(DEADLINE, found)
            .await
            .unwrap_or_else(|_| panic!("no {type_} event {reason} about {name}"));
    }
}

impl Drop for NetworkCluster {
    fn drop(&mut self) {
        // Restore the state for the next test, also after a failed test.
        if matches!(self.access, Access::Exclusive(_)) {
            self.install_nads();
            self.operator.start();
        }
    }
}

/// Network with accessors for tests.
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

/// Returns the CNI configuration of a NAD.
pub fn config(nad: &Nad) -> Value {
    serde_json::from_str(nad.spec.config.as_deref().unwrap_or_default()).unwrap()
}

/// Returns an annotation of a NAD.
pub fn annotation<'a>(nad: &'a Nad, key: &str) -> Option<&'a str> {
    nad.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}
