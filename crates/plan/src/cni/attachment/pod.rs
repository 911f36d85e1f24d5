//! Namespace of a pod to which a device is attached.

use crate::cni::facts::{AttachmentFacts, InterfaceFacts, Namespace, NamespaceFacts};
use crate::cni::protocol::{CniError, ErrorCode};
use crate::prelude::*;

/// Namespace of a pod that exists.
#[derive(Clone, Copy, Debug)]
pub(in crate::cni) struct PodNamespace<'a> {
    /// The namespace.
    pub(in crate::cni) namespace: &'a Namespace,
    /// All its interfaces.
    pub(in crate::cni) links: &'a [InterfaceFacts],
    /// RDMA devices that it shows.
    pub(in crate::cni) rdma: &'a [String],
}

impl PodNamespace<'_> {
    /// Returns whether an interface has `name` as its name or an alternative name.
    pub(in crate::cni) fn has_name(&self, name: &str) -> bool {
        self.links.iter().any(|link| link.is_called(name))
    }

    /// Checks that the pod can get an interface with this name.
    pub(in crate::cni) fn check_name(&self, name: &str) -> Result<(), CniError> {
        if name == "lo" {
            return Err(invalid_environment("CNI_IFNAME: lo is the name of the loopback interface")
                .with_details("use another name"));
        }
        if name.contains('%') {
            return Err(invalid_environment(format!(
                "CNI_IFNAME: {name:?} has a '%', from which the kernel makes another name"
            ))
            .with_details("use another name"));
        }
        let Some(link) = self.links.iter().find(|link| link.is_called(name)) else { return Ok(()) };
        let taken = if link.name == name {
            format!("CNI_IFNAME: the pod already has an interface {name}")
        } else {
            format!("CNI_IFNAME: interface {} of the pod already has the alternative name {name}", link.name)
        };
        Err(invalid_environment(taken)
            .with_details("use another name, or delete the attachment that has this one"))
    }
}

/// Returns the namespace of the pod, which must exist and must not be that of the host.
pub(in crate::cni) fn open_pod(facts: &AttachmentFacts) -> Result<PodNamespace<'_>, CniError> {
    match &facts.namespace {
        NamespaceFacts::Present { is_own: true, namespace, .. } => Err(CniError::new(
            ErrorCode::InvalidNamespace,
            format!("CNI_NETNS: {} is the namespace of the host", namespace.path),
        )
        .with_details("use the namespace of a container")),
        NamespaceFacts::Present { is_own: false, namespace, links, rdma } => {
            Ok(PodNamespace { namespace, links, rdma })
        }
        NamespaceFacts::NotGiven => Err(invalid_environment("CNI_NETNS: missing")),
        NamespaceFacts::Gone => {
            Err(CniError::new(ErrorCode::UnknownContainer, "CNI_NETNS: the namespace does not exist"))
        }
        NamespaceFacts::Unknown { reason } => {
            Err(invalid_environment(format!("CNI_NETNS: not a namespace that can be opened: {reason}")))
        }
    }
}

fn invalid_environment(message: impl Into<String>) -> CniError {
    CniError::new(ErrorCode::InvalidEnvironment, message)
}
