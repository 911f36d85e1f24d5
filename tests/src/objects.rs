//! Objects of any kind in a test's namespace.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "in a test a failed expectation is the point"
)]
#![allow(clippy::missing_panics_doc, reason = "what fails a test is said where it fails")]

use std::fmt::Debug;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::NamespaceResourceScope;
use kube::api::{Patch, PatchParams};
use kube::core::{DynamicObject, GroupVersionKind};
use kube::discovery::ApiResource;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use serde_json::Value;
use vfleet_api::meta::Condition;

use crate::cluster::Cluster;

/// Generous: the machine that runs the tests may be busy with a virtual machine.
const DEADLINE: Duration = Duration::from_mins(2);

/// Objects of a namespace that can be waited for.
pub trait Watched:
    Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static
{
}

impl<K> Watched for K where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + 'static
{
}

impl Cluster {
    /// The objects of one kind in the test's namespace, as the administrator.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.administrator(), self.namespace())
    }

    /// Applies an object of this API group in the test's namespace, as its user would.
    pub async fn apply(&self, kind: &str, plural: &str, name: &str, spec: &Value) {
        let gvk = GroupVersionKind::gvk("sriovnetwork.openshift.io", "v1", kind);
        let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
        let api: Api<DynamicObject> = Api::namespaced_with(self.administrator(), self.namespace(), &resource);
        let object = serde_json::json!({
            "apiVersion": "sriovnetwork.openshift.io/v1", "kind": kind, "metadata": { "name": name }, "spec": spec,
        });
        api.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(&object)).await.unwrap();
    }

    /// Waits for an object like this.
    pub async fn wait_for<K: Watched>(&self, name: &str, what: &str, like: impl Fn(&K) -> bool) -> K {
        let only_it = watcher::Config::default().fields(&format!("metadata.name={name}"));
        self.wait_with(only_it, &format!("{name}: {what}"), like).await
    }

    /// Waits for an object with these labels.
    pub async fn wait_for_any<K: Watched>(&self, labels: &str, what: &str, like: impl Fn(&K) -> bool) -> K {
        self.wait_with(watcher::Config::default().labels(labels), what, like).await
    }

    async fn wait_with<K: Watched>(
        &self,
        which: watcher::Config,
        what: &str,
        like: impl Fn(&K) -> bool,
    ) -> K {
        let api: Api<K> = self.api();
        let mut last = None;
        let mut objects = watcher(api, which).default_backoff().applied_objects().boxed();
        let found = async {
            loop {
                match objects.next().await.unwrap() {
                    Ok(object) if like(&object) => return object,
                    Ok(object) => last = Some(object),
                    Err(_) => {}
                }
            }
        };
        let Ok(object) = tokio::time::timeout(DEADLINE, found).await else {
            panic!("no {} came to: {what}; the last was {last:#?}\n{}", K::kind(&()), self.log());
        };
        object
    }
}

/// A condition's status, reason and message; empty when there is none.
pub fn condition(conditions: Option<&Vec<Condition>>, type_: &str) -> (String, String, String) {
    let found = conditions.into_iter().flatten().find(|condition| condition.type_ == type_);
    found.map_or_else(Default::default, |found| {
        (found.status.clone(), found.reason.clone(), found.message.clone())
    })
}
