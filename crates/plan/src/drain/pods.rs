//! Pods that a drain evicts.

use vfleet_api::node_state::DrainScope;

use crate::prelude::*;

/// Facts about a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct PodFacts {
    /// Mirror pod of a static pod.
    pub is_mirror: bool,
    /// Controlled by a DaemonSet, which would create it again on a cordoned node.
    pub is_daemon_set_pod: bool,
    /// Has a deletion timestamp.
    pub is_terminating: bool,
    /// Phase `Succeeded` or `Failed`.
    pub has_finished: bool,
    /// Resources in requests and limits of its containers and init containers.
    pub resources: Vec<String>,
}

/// Treatment of a pod in a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodTreatment {
    /// The pod stays.
    Keep,
    /// The pod is evicted.
    Evict,
    /// The pod terminates already; the drain waits for its end.
    AwaitTermination,
}

/// Returns how a drain with `scope` treats a pod. `prefix` is the prefix of SR-IOV resource names.
pub fn treat_pod(pod: &PodFacts, scope: DrainScope, prefix: &str) -> PodTreatment {
    // A finished pod that is being deleted may still hold VFs: the kubelet tears down its network first.
    let holds_no_vf = pod.has_finished && !pod.is_terminating;
    let stays = pod.is_mirror
        || pod.is_daemon_set_pod
        || scope == DrainScope::Partial && (holds_no_vf || !requests_vfs(pod, prefix));
    match (stays, pod.is_terminating) {
        (true, _) => PodTreatment::Keep,
        (false, false) => PodTreatment::Evict,
        (false, true) => PodTreatment::AwaitTermination,
    }
}

/// Returns whether a pod of a DaemonSet may have lost its VFs during the drain and must be restarted. `kept` are the
/// names, without prefix, of resources whose VFs were not changed.
pub fn needs_restart(pod: &PodFacts, kept: &[String], prefix: &str) -> bool {
    let is_kept = |resource: &str| {
        let name = resource.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('/'));
        name.is_some_and(|name| kept.iter().any(|kept| kept == name))
    };
    pod.is_daemon_set_pod
        && !pod.is_mirror
        && !pod.is_terminating
        && !pod.has_finished
        && pod.resources.iter().any(|resource| has_prefix(resource, prefix) && !is_kept(resource))
}

fn requests_vfs(pod: &PodFacts, prefix: &str) -> bool {
    pod.resources.iter().any(|resource| has_prefix(resource, prefix))
}

fn has_prefix(resource: &str, prefix: &str) -> bool {
    resource.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('/'))
}
