//! Other attachments of a device.

use crate::cni::facts::{AttachmentFacts, HolderFacts, HolderNamespace};
use crate::cni::journal::{AttachmentKey, Journal, Plugin};
use crate::cni::protocol::{CniError, ErrorCode};
use crate::prelude::*;

/// Checks that no other attachment holds the device, and that none is left half released.
pub(in crate::cni) fn refuse_holders(facts: &AttachmentFacts, key: &AttachmentKey) -> Result<(), CniError> {
    let path = facts.namespace.path().filter(|_| key.plugin == Plugin::Rdma);
    for holder in others(facts, key, path) {
        let state = state(holder, facts);
        let problem = match (holder, state) {
            (HolderFacts::GoAllocation { .. }, HolderNamespace::Gone) => continue,
            (HolderFacts::Journal { .. }, HolderNamespace::Gone) => "was not released completely by",
            (_, HolderNamespace::Alive | HolderNamespace::Unknown) => "is held by",
        };
        let remedy = match state {
            HolderNamespace::Alive => "it is free after that attachment was deleted",
            HolderNamespace::Gone => "the next attempt releases it",
            HolderNamespace::Unknown => "it could not be determined whether that namespace still exists",
        };
        let message = format!("{} {problem} {}", key.subject(), describe_holder(holder));
        return Err(CniError::new(ErrorCode::TryAgainLater, message).with_details(remedy));
    }
    Ok(())
}

/// Returns another attachment that holds the device now, while `journal` is released.
pub(in crate::cni) fn find_next_holder<'a>(
    facts: &'a AttachmentFacts,
    journal: &Journal,
) -> Option<&'a HolderFacts> {
    others(facts, &journal.key, Some(&journal.namespace.path))
        .find(|holder| state(holder, facts) != HolderNamespace::Gone)
}

/// Returns the pod or container, plugin and namespace of a holder.
pub fn describe_holder(holder: &HolderFacts) -> String {
    match holder {
        HolderFacts::Journal { journal, .. } => {
            let Journal { key, namespace, .. } = journal;
            let owner = match &journal.pod {
                Some(pod) => format!("pod {}/{}", pod.namespace, pod.name),
                None => format!("container {}", key.container_id),
            };
            format!(
                "{owner} (plugin {}, interface {}, namespace {})",
                key.plugin.name(),
                key.interface,
                namespace.path
            )
        }
        HolderFacts::GoAllocation { path, .. } => format!("a pod of the Go plugin sriov (namespace {path})"),
    }
}

/// Returns the holders other than the attachment itself and those that are chained with it. `own_path` is the path of a
/// namespace whose allocation is the own one.
fn others<'a>(
    facts: &'a AttachmentFacts,
    key: &AttachmentKey,
    own_path: Option<&str>,
) -> impl Iterator<Item = &'a HolderFacts> {
    facts.holders.iter().filter(move |holder| match holder {
        HolderFacts::Journal { journal, .. } => !is_same_pod(&journal.key, key),
        HolderFacts::GoAllocation { path, .. } => Some(path.as_str()) != own_path,
    })
}

/// Returns whether two attachments are one, or are chained: the plugin `rdma` runs after the one that moves the interface.
fn is_same_pod(one: &AttachmentKey, other: &AttachmentKey) -> bool {
    let is_chained = (one.plugin == Plugin::Rdma) != (other.plugin == Plugin::Rdma);
    one.container_id == other.container_id
        && one.interface == other.interface
        && (is_chained || one.plugin == other.plugin)
}

fn state(holder: &HolderFacts, facts: &AttachmentFacts) -> HolderNamespace {
    match holder {
        HolderFacts::Journal { journal, .. } if journal.is_of_earlier_boot(&facts.boot_id) => {
            HolderNamespace::Gone
        }
        HolderFacts::Journal { namespace, .. } | HolderFacts::GoAllocation { namespace, .. } => *namespace,
    }
}
