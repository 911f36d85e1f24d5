//! Attachments that hold a device.

use vfleet_plan::cni::facts::HolderFacts;

use super::{go_files, journals, namespace};
use crate::HostError;
use crate::attachment::AttachmentQuery;
use crate::linux::root::HostRoot;

/// Reads the other attachments of a device. An allocation that names the namespace of the attachment itself, or of
/// another journal of the device, belongs to it.
pub(super) fn read(
    root: &HostRoot,
    query: &AttachmentQuery<'_>,
    boot_id: &str,
) -> Result<Vec<HolderFacts>, HostError> {
    let Some(device) = query.device else { return Ok(Vec::new()) };
    let mut holders = Vec::new();
    let mut paths: Vec<String> = query.namespace.path().map(str::to_owned).into_iter().collect();
    for key in journals::list(root)? {
        if key.device != Some(device) || query.key == Some(&key) {
            continue;
        }
        // Another process may have removed it meanwhile.
        let Some(journal) = journals::read(root, &key)? else { continue };
        let state = namespace::state_of(root, &journal, boot_id);
        paths.push(journal.namespace.path.clone());
        holders.push(HolderFacts::Journal { journal, namespace: state });
    }
    if let Some(path) = go_files::read_allocation(root, device)?
        && !paths.contains(&path)
    {
        let namespace = namespace::state_at(root, &path);
        holders.push(HolderFacts::GoAllocation { path, namespace });
    }
    Ok(holders)
}
