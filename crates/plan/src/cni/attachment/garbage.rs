//! Attachments that nobody needs any more.

use crate::cni::config::ValidAttachment;
use crate::cni::facts::HolderNamespace;
use crate::cni::journal::{AttachmentKey, Journal, Plugin};
use crate::prelude::*;

/// Returns the attachments that GC of a plugin releases: those of the same network and plugin that are not valid.
pub fn plan_gc<'a>(
    attachments: impl IntoIterator<Item = (&'a AttachmentKey, &'a str)>,
    network: &str,
    plugin: Plugin,
    valid: &[ValidAttachment],
) -> Vec<AttachmentKey> {
    let is_valid = |key: &AttachmentKey| {
        valid.iter().any(|entry| entry.container_id == key.container_id && entry.interface == key.interface)
    };
    attachments
        .into_iter()
        .filter(|(key, of)| *of == network && key.plugin == plugin && !is_valid(key))
        .map(|(key, _)| key.clone())
        .collect()
}

/// Returns whether the namespace of an attachment is really gone, so that it is released without a DEL. A journal without a
/// path is that of a DEL for a pod of a Go plugin whose runtime named no namespace: nobody can ever find one.
pub fn is_abandoned(journal: &Journal, namespace: HolderNamespace, boot_id: &str) -> bool {
    journal.is_of_earlier_boot(boot_id)
        || namespace == HolderNamespace::Gone
        || journal.namespace.path.is_empty()
}
