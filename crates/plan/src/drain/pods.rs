//! Which pods of a node are evicted.

use vfleet_api::node_state::DrainScope;

use crate::prelude::*;

/// What counts of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "facts that do not depend on each other")]
pub struct PodFacts {
    /// The static pod of a kubelet, shown by the API server.
    pub is_mirror: bool,
    /// Its DaemonSet would make it again, cordon or not.
    pub is_of_daemon_set: bool,
    /// It was told to end.
    pub is_ending: bool,
    /// It ended by itself.
    pub is_over: bool,
    /// The resources that its containers ask for, those of init containers too.
    pub resources: Vec<String>,
}

/// What happens to a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// It may stay.
    Leave,
    /// It is to go.
    Evict,
    /// It goes already.
    WaitFor,
}

/// What happens to a pod in a drain. `prefix` is what stands before the names of our resources.
pub fn treatment(pod: &PodFacts, scope: DrainScope, prefix: &str) -> Treatment {
    let stays = pod.is_mirror
        || pod.is_of_daemon_set
        || scope == DrainScope::Partial && (pod.is_over || !uses_ours(pod, prefix));
    match (stays, pod.is_ending) {
        (true, _) => Treatment::Leave,
        (false, false) => Treatment::Evict,
        (false, true) => Treatment::WaitFor,
    }
}

/// Whether a pod of a DaemonSet may have lost its VFs by what was done, and is started again. `kept` are the names,
/// without prefix, of resources whose VFs are all as they were.
pub fn restarts_with(pod: &PodFacts, kept: &[String], prefix: &str) -> bool {
    let is_kept = |resource: &str| {
        let name = resource.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('/'));
        name.is_some_and(|name| kept.iter().any(|kept| kept == name))
    };
    pod.is_of_daemon_set
        && !pod.is_mirror
        && !pod.is_ending
        && !pod.is_over
        && pod.resources.iter().any(|resource| is_ours(resource, prefix) && !is_kept(resource))
}

fn uses_ours(pod: &PodFacts, prefix: &str) -> bool {
    pod.resources.iter().any(|resource| is_ours(resource, prefix))
}

fn is_ours(resource: &str, prefix: &str) -> bool {
    resource.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('/'))
}
