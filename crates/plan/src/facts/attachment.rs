use thiserror::Error;

use crate::cni::facts::HolderNamespace;
use crate::cni::journal::{Journal, Phase};
use crate::prelude::*;

/// File of a CNI plugin that says that a pod holds a VF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VfAttachment {
    /// Journal of an attachment of vfleet.
    Journal,
    /// Allocation of the Go plugin.
    GoAllocation,
}

impl VfAttachment {
    /// Returns whether the attachment of a journal holds its device. One of an earlier boot does not, and neither does one
    /// of which only IP addresses are left.
    pub fn of_journal(journal: &Journal, boot_id: &str) -> Option<Self> {
        let holds = journal.phase != Phase::Returned && !journal.is_of_earlier_boot(boot_id);
        holds.then_some(Self::Journal)
    }

    /// Returns whether an allocation of the Go plugin holds its device: the plugin leaves it behind if the namespace is
    /// deleted before DEL.
    pub fn of_go_allocation(namespace: HolderNamespace) -> Option<Self> {
        (namespace != HolderNamespace::Gone).then_some(Self::GoAllocation)
    }
}

/// Failed read of the files of CNI plugins: the attachments of all VFs are unknown. The text has the consequence and the
/// remedy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "it is unknown which VFs pods have, so that no VF counts as free, and a change of one waits for a drain: {error}; repair \
     this file or directory on the node"
)]
pub struct UnreadAttachments {
    /// Error of the read, with the path.
    pub error: String,
    /// Reason of the error, for conditions.
    pub reason: &'static str,
}
