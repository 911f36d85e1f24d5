//! State of the attachments of pods, for reports and repairs.

use core::fmt;

use crate::cni::attachment::{is_abandoned, plan_release};
use crate::cni::facts::{AttachmentFacts, HolderNamespace, InterfaceFacts, NamespaceFacts};
use crate::cni::journal::{DeviceChanges, Journal, OvsLink, Phase, VfChanges};
use crate::prelude::*;

/// State of an attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttachmentState {
    /// The pod has its device.
    Attached,
    /// A process works on the attachment.
    InProgress {
        /// Process and operation.
        holder: String,
    },
    /// A plugin was killed during ADD or DEL.
    Interrupted,
    /// The network namespace of the pod does not exist any more.
    NamespaceGone,
    /// The pod runs, but its device is not in its network namespace.
    NotInPod,
    /// The network namespace does not exist any more, and the kernel has not returned the device yet.
    AwaitingKernel,
    /// The device was released. IP addresses of the IPAM plugin are left.
    AddressesLeft,
    /// It could not be determined whether the network namespace still exists.
    Unknown {
        /// Reason.
        reason: String,
    },
    /// The journal, or the cache of the Go plugin, cannot be read.
    Unreadable {
        /// Error.
        error: String,
    },
    /// A Go plugin has attached the device.
    GoPlugin,
    /// A Go plugin has left the attachment behind: the network namespace does not exist any more.
    LeftByGoPlugin,
}

impl AttachmentState {
    /// Returns the state of an attachment on which no process works.
    pub fn of(journal: &Journal, facts: &AttachmentFacts) -> Self {
        if journal.phase == Phase::Returned {
            return Self::AddressesLeft;
        }
        let namespace = match &facts.namespace {
            NamespaceFacts::Present { .. } => HolderNamespace::Alive,
            NamespaceFacts::Gone => HolderNamespace::Gone,
            NamespaceFacts::NotGiven | NamespaceFacts::Unknown { .. } => HolderNamespace::Unknown,
        };
        if is_abandoned(journal, namespace, &facts.boot_id) {
            let is_back = plan_release(journal, facts).waits_for.is_empty();
            return if is_back { Self::NamespaceGone } else { Self::AwaitingKernel };
        }
        match (&facts.namespace, journal.phase) {
            (NamespaceFacts::Present { .. }, Phase::Attaching | Phase::Releasing) => Self::Interrupted,
            (NamespaceFacts::Present { links, rdma, .. }, _) => {
                if is_in_pod(journal, facts, links, rdma) {
                    Self::Attached
                } else {
                    Self::NotInPod
                }
            }
            (NamespaceFacts::Unknown { reason }, _) => Self::Unknown { reason: reason.clone() },
            (NamespaceFacts::NotGiven | NamespaceFacts::Gone, _) => {
                Self::Unknown { reason: "the namespace was not read".to_owned() }
            }
        }
    }

    /// Returns the state of an attachment of a Go plugin, whose network namespace is often unknown.
    pub fn of_go_plugin(namespace: HolderNamespace) -> Self {
        if namespace == HolderNamespace::Gone { Self::LeftByGoPlugin } else { Self::GoPlugin }
    }

    /// Returns whether something has to be done, by a person or by a program.
    pub const fn is_fault(&self) -> bool {
        !matches!(self, Self::Attached | Self::InProgress { .. } | Self::GoPlugin)
    }

    /// Returns whether the attachment can be released without its runtime: no pod has the device, or only half of it.
    pub const fn is_repairable(&self) -> bool {
        matches!(self, Self::Interrupted | Self::NamespaceGone | Self::AwaitingKernel | Self::AddressesLeft)
    }

    /// Returns the name of the state for programs.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Attached => "attached",
            Self::InProgress { .. } => "inProgress",
            Self::Interrupted => "interrupted",
            Self::NamespaceGone => "namespaceGone",
            Self::NotInPod => "notInPod",
            Self::AwaitingKernel => "awaitingKernel",
            Self::AddressesLeft => "addressesLeft",
            Self::Unknown { .. } => "unknown",
            Self::Unreadable { .. } => "unreadable",
            Self::GoPlugin => "goPlugin",
            Self::LeftByGoPlugin => "leftByGoPlugin",
        }
    }
}

/// Formats the state for people, with the remedy of a fault that a repair does not end.
impl fmt::Display for AttachmentState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Attached => "attached",
            Self::InProgress { holder } => return write!(f, "in progress: {holder}"),
            Self::Interrupted => "interrupted",
            Self::NamespaceGone => "namespace gone",
            Self::NotInPod => "device not in the pod: delete the pod",
            Self::AwaitingKernel => "namespace gone, waiting for the kernel to return the device",
            Self::AddressesLeft => "released, IP addresses are left",
            Self::Unknown { reason } => {
                return write!(f, "unknown, the namespace cannot be examined: {reason}");
            }
            Self::Unreadable { error } => return write!(f, "unreadable: {error}"),
            Self::GoPlugin => "held by the Go plugin",
            Self::LeftByGoPlugin => "left by the Go plugin, namespace gone: the next ADD takes the device",
        })
    }
}

/// Returns whether the pod has what ADD gave it. A device with a driver for userspace only has to exist.
fn is_in_pod(journal: &Journal, facts: &AttachmentFacts, links: &[InterfaceFacts], rdma: &[String]) -> bool {
    let has_rdma = |name: &String| rdma.contains(name);
    let exists = facts.device.as_ref().is_some_and(|device| device.exists);
    let has_vf = |changes: &VfChanges| {
        exists && (changes.interface.is_none() || has_link(journal, facts, links))
    };
    match &journal.changes {
        DeviceChanges::Sriov(changes) => has_vf(changes),
        DeviceChanges::Infiniband(changes) => {
            exists
                && (changes.interface.is_none() || has_link(journal, facts, links))
                && changes.rdma.as_ref().is_none_or(has_rdma)
        }
        DeviceChanges::Rdma(changes) => has_rdma(&changes.rdma),
        DeviceChanges::Ovs(changes) => match &changes.link {
            OvsLink::Veth { .. } => has_link(journal, facts, links),
            OvsLink::Vf { vf, .. } => has_vf(vf),
            OvsLink::Vdpa { .. } => exists,
        },
        DeviceChanges::AcceleratedBridge(changes) => has_vf(&changes.vf),
        // The mirrors of a port that exists: whether it does is a matter of the plugin before.
        DeviceChanges::Mirror(_) => true,
    }
}

/// Returns whether the pod has the interface of the device. Its programs may have renamed it; kernels that do not report
/// the device of an interface leave only the name.
fn has_link(journal: &Journal, facts: &AttachmentFacts, links: &[InterfaceFacts]) -> bool {
    let is_named = |link: &InterfaceFacts| link.device.is_none() && link.is_called(&journal.key.interface);
    let Some(device) = &facts.device else { return links.iter().any(is_named) };
    links.iter().any(|link| link.device == Some(device.address) || device.link.is_none() && is_named(link))
}
