//! Pods of DaemonSets stay in a drain. Those whose VFs changed are started again when it is over.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::join_all;
use tokio::time::timeout;
use vfleet_plan::drain::restarts_with;

use super::feed::{Feed, Follower, News};
use super::pod::{PodId, facts};
use super::requests::Requests;
use crate::patch::WriteError;

/// Then the node is used again, whatever they do.
const PATIENCE: Duration = Duration::from_mins(2);

/// Deletes the pods, waits until they are gone, and gives their names.
pub(super) async fn restart(
    requests: &Requests,
    feed: &Feed,
    node: &str,
    kept: &[String],
) -> Result<Vec<String>, WriteError> {
    let listed = requests.pods_on(node).await?;
    let restarted = listed.iter().filter(|pod| restarts_with(&facts(pod), kept, &requests.resource_prefix));
    let pods: Vec<_> = restarted.filter_map(PodId::of).collect();
    if pods.is_empty() {
        return Ok(Vec::new());
    }
    let mut follower = feed.join();
    let begun = async { while !matches!(follower.next().await, News::Begun) {} };
    // Without the feed nobody waits for them, but they start again all the same.
    let is_begun = timeout(PATIENCE, begun).await.is_ok();
    for pod in &pods {
        follower.follow(&pod.uid);
    }
    let deleted = join_all(pods.iter().map(|pod| requests.delete(pod))).await;
    deleted.into_iter().collect::<Result<Vec<()>, _>>()?;
    if is_begun && timeout(PATIENCE, gone(requests, &mut follower, node, &pods)).await.is_err() {
        tracing::warn!(
            node,
            "pods of DaemonSets were told to end and are still there; not waited for any more"
        );
    }
    Ok(pods.iter().map(ToString::to_string).collect())
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
