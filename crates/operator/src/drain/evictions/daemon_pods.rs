//! Restart of DaemonSet pods after a drain. A drain does not evict them, but their VFs may have changed.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use tokio::time::timeout;
use vfleet_cluster::write::WriteError;
use vfleet_plan::drain::needs_restart;

use super::pod::{PodId, read_facts};
use super::pod_watch::{PodNotification, PodSubscription, PodWatch};
use super::requests::PodRequests;

/// Longest wait for the end of deleted pods. Then the node is uncordoned anyway.
const TERMINATION_TIMEOUT: Duration = Duration::from_mins(2);

/// Result of a restart.
#[derive(Debug, Default)]
pub(crate) struct RestartOutcome {
    /// Restarted pods.
    pub(crate) pods: Vec<String>,
    /// Pods that could not be deleted, with the error.
    pub(crate) failed: Vec<String>,
}

/// Selection of pods that may have lost their VFs.
#[derive(Debug)]
pub(crate) struct RestartFilter {
    /// Resources, without prefix, whose VFs did not change.
    pub(crate) kept_resources: Vec<String>,
    /// Pods created later have current VFs, also those that were restarted already.
    pub(crate) created_until: Option<Timestamp>,
}

/// Deletes the pods and waits until they are gone.
pub(super) async fn restart(
    requests: &PodRequests,
    pod_watch: &PodWatch,
    node: &str,
    filter: &RestartFilter,
) -> Result<RestartOutcome, WriteError> {
    let listed = requests.list_pods(node).await?;
    let needs_it = |pod: &&Pod| {
        let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let is_new = created.zip(filter.created_until).is_some_and(|(created, until)| created > until);
        !is_new && needs_restart(&read_facts(pod), &filter.kept_resources, &requests.resource_prefix)
    };
    let pods: Vec<_> = listed.iter().filter(needs_it).filter_map(PodId::of).collect();
    if pods.is_empty() {
        return Ok(RestartOutcome::default());
    }
    let mut subscription = pod_watch.subscribe();
    let started = async { while !matches!(subscription.next().await, PodNotification::WatchStarted) {} };
    // Without a watch the pods are restarted, but their end is not awaited.
    let has_watch = timeout(TERMINATION_TIMEOUT, started).await.is_ok();
    for pod in &pods {
        subscription.add_pod(&pod.uid);
    }
    let deleted = join_all(pods.iter().map(|pod| requests.delete(pod))).await;
    let mut outcome = RestartOutcome::default();
    let mut terminating = Vec::new();
    for (pod, deleted) in pods.into_iter().zip(deleted) {
        match deleted {
            Ok(()) => terminating.push(pod),
            Err(error) => outcome.failed.push(format!("{pod} ({error})")),
        }
    }
    let all_gone = wait_until_gone(requests, &mut subscription, node, &terminating);
    if has_watch && timeout(TERMINATION_TIMEOUT, all_gone).await.is_err() {
        let seconds = TERMINATION_TIMEOUT.as_secs();
        tracing::warn!(
            "{node}: deleted DaemonSet pods have not terminated after {seconds} s, uncordoning the node anyway"
        );
    }
    outcome.pods = terminating.iter().map(ToString::to_string).collect();
    Ok(outcome)
}

/// Waits until the pods are gone. The list finds pods that were gone before the subscription.
async fn wait_until_gone(
    requests: &PodRequests,
    subscription: &mut PodSubscription,
    node: &str,
    pods: &[PodId],
) {
    let mut remaining: BTreeSet<_> = pods.iter().map(|pod| pod.uid.clone()).collect();
    let mut needs_list = true;
    while !remaining.is_empty() {
        if needs_list {
            let listed = requests.list_pods(node).await;
            let existing: Option<BTreeSet<_>> =
                listed.ok().map(|listed| listed.iter().filter_map(PodId::of).map(|pod| pod.uid).collect());
            remaining.retain(|uid| existing.as_ref().is_none_or(|existing| existing.contains(uid)));
            needs_list = false;
            continue;
        }
        match subscription.next().await {
            PodNotification::Deleted(uid) => _ = remaining.remove(&uid),
            PodNotification::WatchStarted => needs_list = true,
            PodNotification::Changed(_) | PodNotification::WatchFailed(_) => {}
        }
    }
}
