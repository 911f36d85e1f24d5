//! Pods of DaemonSets stay in a drain. Those whose VFs changed are started again when it is over.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use tokio::time::timeout;
use vfleet_cluster::write::WriteError;
use vfleet_plan::drain::restarts_with;

use super::feed::{Feed, Follower, News};
use super::pod::{PodId, facts};
use super::requests::Requests;

/// Then the node is used again, whatever they do.
const PATIENCE: Duration = Duration::from_mins(2);

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Restarted {
    /// Pods that were started again.
    pub(crate) pods: Vec<String>,
    /// Pods that could not be, and why.
    pub(crate) failed: Vec<String>,
}

/// Which pods may have lost their VFs.
#[derive(Debug)]
pub(crate) struct Lost {
    /// Resources, without prefix, whose VFs are as they were.
    pub(crate) kept: Vec<String>,
    /// Pods that were made later have the VFs as they are now: also those that were started again already.
    pub(crate) until: Option<Timestamp>,
}

/// Deletes the pods, and waits until they are gone.
pub(super) async fn restart(
    requests: &Requests,
    feed: &Feed,
    node: &str,
    lost: &Lost,
) -> Result<Restarted, WriteError> {
    let listed = requests.pods_on(node).await?;
    let has_lost = |pod: &&Pod| {
        let made = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let is_new = made.zip(lost.until).is_some_and(|(made, until)| made > until);
        !is_new && restarts_with(&facts(pod), &lost.kept, &requests.resource_prefix)
    };
    let restarted = listed.iter().filter(has_lost);
    let pods: Vec<_> = restarted.filter_map(PodId::of).collect();
    if pods.is_empty() {
        return Ok(Restarted::default());
    }
    let mut follower = feed.join();
    let begun = async { while !matches!(follower.next().await, News::Begun) {} };
    // Without the feed nobody waits for them, but they start again all the same.
    let is_begun = timeout(PATIENCE, begun).await.is_ok();
    for pod in &pods {
        follower.follow(&pod.uid);
    }
    let deleted = join_all(pods.iter().map(|pod| requests.delete(pod))).await;
    let mut came = Restarted::default();
    let mut ending = Vec::new();
    for (pod, deleted) in pods.into_iter().zip(deleted) {
        match deleted {
            Ok(()) => ending.push(pod),
            Err(error) => came.failed.push(format!("{pod} ({error})")),
        }
    }
    if is_begun && timeout(PATIENCE, gone(requests, &mut follower, node, &ending)).await.is_err() {
        tracing::warn!(
            node,
            "pods of DaemonSets were told to end and are still there; not waited for any more"
        );
    }
    came.pods = ending.iter().map(ToString::to_string).collect();
    Ok(came)
}

/// Waits until they are gone. One that was gone before it could be followed shows in a list.
async fn gone(requests: &Requests, follower: &mut Follower, node: &str, pods: &[PodId]) {
    let mut left: BTreeSet<_> = pods.iter().map(|pod| pod.uid.clone()).collect();
    let mut looks = true;
    while !left.is_empty() {
        if looks {
            let listed = requests.pods_on(node).await;
            let there: Option<BTreeSet<_>> =
                listed.ok().map(|listed| listed.iter().filter_map(PodId::of).map(|pod| pod.uid).collect());
            left.retain(|uid| there.as_ref().is_none_or(|there| there.contains(uid)));
            looks = false;
            continue;
        }
        match follower.next().await {
            News::Gone(uid) => _ = left.remove(&uid),
            News::Begun => looks = true,
            News::Changed(_) | News::Blind(_) => {}
        }
    }
}
