//! External Go device plugin on this node. It discovers devices only when it starts, so its pod is deleted before VFs
//! are created or removed. The next pod waits in an init container, which sets an annotation, until the agent releases
//! it.

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

use crate::watch_log::WatchLog;

/// Longest time for pods to end: half a minute of grace, and the kubelet may be busy.
const END_TIMEOUT: Duration = Duration::from_mins(2);
/// Longest time that a request may take. An API server that does not respond must not keep the agent from its machine.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause after a failed request.
const RETRY_PAUSE: Duration = Duration::from_secs(5);

/// Error of holding back or releasing the plugin.
#[derive(Debug, Error)]
pub(crate) enum GoDevicePluginError {
    #[error("the API server rejected the request")]
    Api(#[from] kube::Error),
    #[error("the API server did not respond within {} s", REQUEST_TIMEOUT.as_secs())]
    NoResponse(#[source] tokio::time::error::Elapsed),
    #[error("the pods of the device plugin did not end within {} s", END_TIMEOUT.as_secs())]
    PodsNotEnded(#[source] tokio::time::error::Elapsed),
    #[error("the watch of the device plugin's pods ended")]
    WatchEnded(#[from] watch::error::RecvError),
}

/// External Go device plugin on this node.
pub(crate) struct GoDevicePlugin {
    pods: Api<PartialObjectMeta<Pod>>,
    observed: watch::Sender<PodStore>,
    not_before: Instant,
    _watch_task: AbortOnDropHandle<()>,
}

/// Pods of the plugin on this node.
#[derive(Debug, Default)]
struct PodStore {
    /// The first list was received.
    is_listed: bool,
    by_uid: BTreeMap<String, ObservedPod>,
    /// Pods of the list that is being received.
    listing: BTreeMap<String, ObservedPod>,
}

/// Pod of the Go device plugin on this node.
#[derive(Clone, Debug)]
struct ObservedPod {
    name: String,
    is_waiting: bool,
}

impl GoDevicePlugin {
    /// Starts to watch the plugin's pods on `node`.
    pub(crate) fn watch(client: &Client, namespace: &str, node: &str) -> Self {
        let pods: Api<PartialObjectMeta<Pod>> = Api::namespaced(client.clone(), namespace);
        let observed = watch::Sender::<PodStore>::default();
        let selection = watcher::Config::default()
            .labels(&format!("app={DEVICE_PLUGIN_DAEMON_SET}"))
            .fields(&format!("spec.nodeName={node}"));
        let changes = watch_pods(pods.clone(), selection);
        let sender = observed.clone();
        let mut watch_log = WatchLog::new("pods of the device plugin".to_owned());
        let watch_task = async move {
            let mut changes = std::pin::pin!(changes.default_backoff());
            while let Some(change) = changes.next().await {
                match change {
                    Ok(event) => {
                        watch_log.received(&event);
                        sender.send_modify(|pods| pods.apply_event(event));
                    }
                    Err(error) => watch_log.failed(&error),
                }
            }
        };
        let watch_task = AbortOnDropHandle::new(tokio::spawn(watch_task));
        Self { pods, observed, not_before: Instant::now(), _watch_task: watch_task }
    }

    /// Deletes the pods that may have discovered devices already, and waits until they have ended.
    pub(crate) async fn hold_back(&self) -> Result<(), GoDevicePluginError> {
        timeout(END_TIMEOUT, self.delete_and_wait()).await.map_err(GoDevicePluginError::PodsNotEnded)?
    }

    async fn delete_and_wait(&self) -> Result<(), GoDevicePluginError> {
        let mut observed = self.observed.subscribe();
        let running: BTreeMap<String, ObservedPod> = {
            let pods = observed.wait_for(|pods| pods.is_listed).await?;
            pods.by_uid
                .iter()
                .filter(|(_, pod)| !pod.is_waiting)
                .map(|(uid, pod)| (uid.clone(), pod.clone()))
                .collect()
        };
        for (uid, pod) in &running {
            tracing::info!(pod = pod.name, "deleting the device plugin's pod while VFs change");
            let preconditions = Preconditions { uid: Some(uid.clone()), resource_version: None };
            let parameters = DeleteParams { preconditions: Some(preconditions), ..Default::default() };
            match self.pods.delete(&pod.name, &parameters).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
                Err(error) => return Err(error.into()),
            }
        }
        let uids: BTreeSet<&String> = running.keys().collect();
        observed.wait_for(|pods| !pods.by_uid.keys().any(|uid| uids.contains(uid))).await?;
        Ok(())
    }

    /// Waits until a pod waits for its release.
    pub(crate) async fn wait_for_waiting_pod(&self) {
        tokio::time::sleep_until(self.not_before).await;
        if self.observed.subscribe().wait_for(PodStore::has_waiting_pod).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Releases the pods that wait.
    pub(crate) async fn release(&mut self) -> Result<(), GoDevicePluginError> {
        let waiting: Vec<(String, ObservedPod)> = {
            let pods = self.observed.borrow();
            pods.by_uid
                .iter()
                .filter(|(_, pod)| pod.is_waiting)
                .map(|(uid, pod)| (uid.clone(), pod.clone()))
                .collect()
        };
        for (uid, pod) in waiting {
            let annotations = json!({ DEVICE_PLUGIN_WAITS: null });
            let patch = Patch::Merge(json!({ "metadata": { "uid": uid, "annotations": annotations } }));
            let params = PatchParams::default();
            let answer = timeout(REQUEST_TIMEOUT, self.pods.patch_metadata(&pod.name, &params, &patch));
            match answer.map_err(GoDevicePluginError::NoResponse).await.and_then(|answer| Ok(answer?)) {
                Err(GoDevicePluginError::Api(kube::Error::Api(status))) if status.is_not_found() => {}
                Err(error) => {
                    self.not_before = Instant::now() + RETRY_PAUSE;
                    return Err(error);
                }
                Ok(_) => tracing::info!(pod = pod.name, "device plugin released"),
            }
            // Until the next event of the watch.
            self.observed.send_modify(|pods| {
                if let Some(pod) = pods.by_uid.get_mut(&uid) {
                    pod.is_waiting = false;
                }
            });
        }
        Ok(())
    }
}

impl PodStore {
    fn has_waiting_pod(&self) -> bool {
        self.by_uid.values().any(|pod| pod.is_waiting)
    }

    fn apply_event(&mut self, event: Event<PartialObjectMeta<Pod>>) {
        let entry = |pod: &PartialObjectMeta<Pod>| {
            let is_waiting = pod.annotations().contains_key(DEVICE_PLUGIN_WAITS);
            (pod.uid().unwrap_or_default(), ObservedPod { name: pod.name_any(), is_waiting })
        };
        match event {
            Event::Init => self.listing.clear(),
            Event::InitApply(pod) => self.listing.extend([entry(&pod)]),
            Event::InitDone => {
                self.by_uid = std::mem::take(&mut self.listing);
                self.is_listed = true;
            }
            Event::Apply(pod) => self.by_uid.extend([entry(&pod)]),
            Event::Delete(pod) => drop(self.by_uid.remove(&entry(&pod).0)),
        }
    }
}
