//! The external Go device plugin on this node. It looks for devices only when it starts, so it is ended before VFs come
//! and go, and its next pod waits (in an init container, which says so by an annotation) until the agent releases it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::{StreamExt, TryFutureExt};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch_pods};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::task::AbortOnDropHandle;
use vfleet_api::keys::{DEVICE_PLUGIN_DAEMON_SET, DEVICE_PLUGIN_WAITS};

/// A pod has half a minute to end, and the kubelet may be busy.
const GONE_WITHIN: Duration = Duration::from_mins(2);
/// An API server that does not answer must not keep the agent from its machine.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// After an answer that was no good.
const PAUSE: Duration = Duration::from_secs(5);

/// Reason why the plugin could not be held back or released.
#[derive(Debug, Error)]
pub(crate) enum GoDevicePluginError {
    #[error("the API server refused it")]
    Api(#[from] kube::Error),
    #[error("the API server did not answer within {ANSWER_WITHIN:?}")]
    NoAnswer(#[source] tokio::time::error::Elapsed),
    #[error("its pods did not end within {GONE_WITHIN:?}")]
    NotGone(#[source] tokio::time::error::Elapsed),
    #[error("its pods cannot be followed any more")]
    WatchEnded(#[from] watch::error::RecvError),
}

/// The external Go device plugin on this node.
pub(crate) struct GoDevicePlugin {
    pods: Api<PartialObjectMeta<Pod>>,
    seen: watch::Sender<Pods>,
    not_before: Instant,
    _follows: AbortOnDropHandle<()>,
}

/// Its pods, as last seen.
#[derive(Debug, Default)]
struct Pods {
    /// Whether they were looked for.
    listed: bool,
    by_uid: BTreeMap<String, SeenPod>,
    /// Those of the list that is coming in.
    listing: BTreeMap<String, SeenPod>,
}

#[derive(Clone, Debug)]
struct SeenPod {
    name: String,
    waits: bool,
}

impl GoDevicePlugin {
    /// Follows the plugin's pods on `node`.
    pub(crate) fn follow(client: &Client, namespace: &str, node: &str) -> Self {
        let pods: Api<PartialObjectMeta<Pod>> = Api::namespaced(client.clone(), namespace);
        let seen = watch::Sender::<Pods>::default();
        let which = watcher::Config::default()
            .labels(&format!("app={DEVICE_PLUGIN_DAEMON_SET}"))
            .fields(&format!("spec.nodeName={node}"));
        let changes = watch_pods(pods.clone(), which);
        let sender = seen.clone();
        let follow = async move {
            let mut changes = std::pin::pin!(changes.default_backoff());
            while let Some(change) = changes.next().await {
                match change {
                    Ok(event) => sender.send_modify(|pods| pods.take(event)),
                    Err(error) => {
                        tracing::warn!(%error, "watching the device plugin is interrupted, will go on");
                    }
                }
            }
        };
        let follows = AbortOnDropHandle::new(tokio::spawn(follow));
        Self { pods, seen, not_before: Instant::now(), _follows: follows }
    }

    /// Ends the pods that may have looked for devices already, and waits until they are gone.
    pub(crate) async fn hold_back(&self) -> Result<(), GoDevicePluginError> {
        timeout(GONE_WITHIN, self.end_and_wait()).await.map_err(GoDevicePluginError::NotGone)?
    }

    async fn end_and_wait(&self) -> Result<(), GoDevicePluginError> {
        let mut seen = self.seen.subscribe();
        let running: BTreeMap<String, SeenPod> = {
            let pods = seen.wait_for(|pods| pods.listed).await?;
            pods.by_uid
                .iter()
                .filter(|(_, pod)| !pod.waits)
                .map(|(uid, pod)| (uid.clone(), pod.clone()))
                .collect()
        };
        for (uid, pod) in &running {
            tracing::info!(pod = pod.name, "the device plugin is held back while VFs change");
            let preconditions = Preconditions { uid: Some(uid.clone()), resource_version: None };
            let only_it = DeleteParams { preconditions: Some(preconditions), ..Default::default() };
            match self.pods.delete(&pod.name, &only_it).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
                Err(error) => return Err(error.into()),
            }
        }
        let uids: BTreeSet<&String> = running.keys().collect();
        seen.wait_for(|pods| !pods.by_uid.keys().any(|uid| uids.contains(uid))).await?;
        Ok(())
    }

    /// Waits until a pod waits for its release.
    pub(crate) async fn waits(&self) {
        tokio::time::sleep_until(self.not_before).await;
        if self.seen.subscribe().wait_for(Pods::any_waits).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Releases the pods that wait for it.
    pub(crate) async fn release(&mut self) -> Result<(), GoDevicePluginError> {
        let waiting: Vec<(String, SeenPod)> = {
            let pods = self.seen.borrow();
            pods.by_uid
                .iter()
                .filter(|(_, pod)| pod.waits)
                .map(|(uid, pod)| (uid.clone(), pod.clone()))
                .collect()
        };
        for (uid, pod) in waiting {
            let annotations = json!({ DEVICE_PLUGIN_WAITS: null });
            let patch = Patch::Merge(json!({ "metadata": { "uid": uid, "annotations": annotations } }));
            let params = PatchParams::default();
            let answer = timeout(ANSWER_WITHIN, self.pods.patch_metadata(&pod.name, &params, &patch));
            match answer.map_err(GoDevicePluginError::NoAnswer).await.and_then(|answer| Ok(answer?)) {
                Err(GoDevicePluginError::Api(kube::Error::Api(status))) if status.is_not_found() => {}
                Err(error) => {
                    self.not_before = Instant::now() + PAUSE;
                    return Err(error);
                }
                Ok(_) => tracing::info!(pod = pod.name, "the device plugin may start"),
            }
            // What it really is comes with the next event.
            self.seen.send_modify(|pods| {
                if let Some(pod) = pods.by_uid.get_mut(&uid) {
                    pod.waits = false;
                }
            });
        }
        Ok(())
    }
}

impl Pods {
    fn any_waits(&self) -> bool {
        self.by_uid.values().any(|pod| pod.waits)
    }

    fn take(&mut self, event: Event<PartialObjectMeta<Pod>>) {
        let seen = |pod: &PartialObjectMeta<Pod>| {
            let waits = pod.annotations().contains_key(DEVICE_PLUGIN_WAITS);
            (pod.uid().unwrap_or_default(), SeenPod { name: pod.name_any(), waits })
        };
        match event {
            Event::Init => self.listing.clear(),
            Event::InitApply(pod) => self.listing.extend([seen(&pod)]),
            Event::InitDone => {
                self.by_uid = std::mem::take(&mut self.listing);
                self.listed = true;
            }
            Event::Apply(pod) => self.by_uid.extend([seen(&pod)]),
            Event::Delete(pod) => drop(self.by_uid.remove(&seen(&pod).0)),
        }
    }
}
