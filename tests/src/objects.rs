//! Objects of any kind in the namespace of a test.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "in a test a failed expectation is the point"
)]
#![allow(clippy::missing_panics_doc, reason = "a failed expectation is explained where it fails")]

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::core::{DynamicObject, GroupVersionKind};
use kube::discovery::ApiResource;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use serde_json::Value;
use vfleet_api::meta::Condition;

use crate::cluster::Cluster;

/// Deadline of waits; generous, because a virtual machine may run at the same time.
const DEADLINE: Duration = Duration::from_mins(2);

/// Kind of namespaced objects that can be watched.
pub trait Watchable:
    Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static
{
}

impl<K> Watchable for K where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + 'static
{
}

impl Cluster {
    /// Returns the API of one kind in the namespace of the test, with all rights.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.admin_client(), self.namespace())
    }

    /// Applies an object of the API group of vfleet in the namespace of the test.
    pub async fn apply(&self, kind: &str, plural: &str, name: &str, spec: &Value) {
        let gvk = GroupVersionKind::gvk("sriovnetwork.openshift.io", "v1", kind);
        let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
        let api: Api<DynamicObject> = Api::namespaced_with(self.admin_client(), self.namespace(), &resource);
        let object = serde_json::json!({
            "apiVersion": "sriovnetwork.openshift.io/v1", "kind": kind, "metadata": { "name": name }, "spec": spec,
        });
        api.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(&object)).await.unwrap();
    }

    /// Waits until the object `name` meets `condition`.
    pub async fn wait_for<K: Watchable>(&self, name: &str, what: &str, condition: impl Fn(&K) -> bool) -> K {
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        self.wait_with(self.api(), config, &format!("{name}: {what}"), condition).await
    }

    /// Waits until a Node meets `condition`.
    pub async fn wait_for_node(&self, name: &str, what: &str, condition: impl Fn(&Node) -> bool) -> Node {
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let nodes = Api::all(self.admin_client());
        self.wait_with(nodes, config, &format!("{name}: {what}"), condition).await
    }

    /// Waits until an object with these labels meets `condition`.
    pub async fn wait_for_any<K: Watchable>(
        &self,
        labels: &str,
        what: &str,
        condition: impl Fn(&K) -> bool,
    ) -> K {
        self.wait_with(self.api(), watcher::Config::default().labels(labels), what, condition).await
    }

    async fn wait_with<K>(
        &self,
        api: Api<K>,
        config: watcher::Config,
        what: &str,
        condition: impl Fn(&K) -> bool,
    ) -> K
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        let mut last = None;
        let mut objects = watcher(api, config).default_backoff().applied_objects().boxed();
        let found = async {
            loop {
                match objects.next().await.unwrap() {
                    Ok(object) if condition(&object) => return object,
                    Ok(object) => last = Some(object),
                    Err(_) => {}
                }
            }
        };
        let Ok(object) = tokio::time::timeout(DEADLINE, found).await else {
            panic!("timed out waiting for {}: {what}; last version: {last:#?}\n{}", K::kind(&()), self.log());
        };
        object
    }
}

/// Returns status, reason and message of a condition; empty texts if it does not exist.
pub fn condition(conditions: Option<&Vec<Condition>>, type_: &str) -> (String, String, String) {
    let found = conditions.into_iter().flatten().find(|condition| condition.type_ == type_);
    found.map_or_else(Default::default, |found| {
        (found.status.clone(), found.reason.clone(), found.message.clone())
    })
}

/// Returns the quantities of the resources of bridges in the capacity of a Node, by the name of the bridge.
pub fn bridge_capacity(node: &Node) -> BTreeMap<String, String> {
    let capacity = node.status.iter().flat_map(|status| status.capacity.iter().flatten());
    let bridge = |name: &str| name.strip_prefix("ovs-cni.network.kubevirt.io/").map(str::to_owned);
    capacity.filter_map(|(name, quantity)| Some((bridge(name)?, quantity.0.clone()))).collect()
}
