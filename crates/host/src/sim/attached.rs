//! Devices of a simulated machine that CNI plugins have attached to pods.

use vfleet_api::PciAddress;
use vfleet_plan::VfAttachment;
use vfleet_plan::cni::facts::HolderNamespace;

use super::kernel::Kernel;

/// Reads the attachment of a VF. A journal that cannot be read holds its device.
pub(super) fn read(kernel: &Kernel, device: PciAddress) -> Option<VfAttachment> {
    let of_journals = kernel.cni.journals.keys().filter(|key| key.device == Some(device)).find_map(|key| {
        kernel.cni.journal(key).map_or(Some(VfAttachment::Journal), |journal| {
            VfAttachment::of_journal(&journal?, &kernel.boot_id())
        })
    });
    of_journals.or_else(|| {
        let path = kernel.cni.go_allocations.get(&device)?;
        let exists = kernel.namespaces.paths.contains_key(path);
        VfAttachment::of_go_allocation(if exists { HolderNamespace::Unknown } else { HolderNamespace::Gone })
    })
}
