//! Facts of one attachment.

use std::collections::BTreeSet;

use vfleet_api::pool_config::RdmaMode;
use vfleet_plan::cni::facts::{AttachmentFacts, DeviceFacts, Namespace, NamespaceFacts, NamespaceId};

use super::namespace::{OpenNamespace, OpenedPath, read_cookie};
use super::{device, holders};
use crate::HostError;
use crate::attachment::{AttachmentQuery, NamespaceQuery};
use crate::linux::netlink::rtnl::{Link, Rtnl};
use crate::linux::root::HostRoot;
use crate::linux::stable_read::read_stable;
use crate::linux::{rdma, system};

/// Reads the facts of one attachment.
pub(super) fn read(root: &HostRoot, query: &AttachmentQuery<'_>) -> Result<AttachmentFacts, HostError> {
    let boot_id = system::read_boot_id(root)?;
    let mut rtnl = Rtnl::open()?;
    let (device, host_names) = read_stable(|| {
        let links = rtnl.links()?;
        let device = query.device.map(|device| device::read(root, device, &links, &mut rtnl)).transpose()?;
        let names = other_names(&links, device.as_ref());
        Ok((device, names))
    })?;
    Ok(AttachmentFacts {
        device,
        switch: None,
        namespace: read_namespace(root, query, &boot_id)?,
        has_exclusive_rdma: rdma::read_mode(root)? == Some(RdmaMode::Exclusive),
        holders: holders::read(root, query, &boot_id)?,
        host_names,
        boot_id,
    })
}

/// Returns the names of all interfaces except that of the device.
fn other_names(links: &[Link], device: Option<&DeviceFacts>) -> BTreeSet<String> {
    let own = device.and_then(|device| device.link.as_ref()).map(|link| link.index);
    let others = links.iter().filter(|link| Some(link.index) != own);
    others.flat_map(|link| link.alt_names.iter().chain([&link.name])).cloned().collect()
}

fn read_namespace(
    root: &HostRoot,
    query: &AttachmentQuery<'_>,
    boot_id: &str,
) -> Result<NamespaceFacts, HostError> {
    let opened = match query.namespace {
        NamespaceQuery::NotGiven => return Ok(NamespaceFacts::NotGiven),
        // The boot of an attachment of a Go plugin is unknown.
        NamespaceQuery::Recorded { boot_id: recorded, .. } if !recorded.is_empty() && recorded != boot_id => {
            OpenedPath::Missing
        }
        NamespaceQuery::Recorded { namespace, .. } => OpenedPath::open_recorded(root, namespace),
        NamespaceQuery::Path(path) => OpenedPath::open(root, path),
    };
    match opened {
        OpenedPath::Missing => Ok(NamespaceFacts::Gone),
        OpenedPath::Unknown(reason) => Ok(NamespaceFacts::Unknown { reason }),
        OpenedPath::Namespace(namespace) => match read_present(root, query, &namespace) {
            // A later one has its inode.
            Err(HostError::NamespaceGone { .. }) => Ok(NamespaceFacts::Gone),
            read => read,
        },
    }
}

fn read_present(
    root: &HostRoot,
    query: &AttachmentQuery<'_>,
    namespace: &OpenNamespace,
) -> Result<NamespaceFacts, HostError> {
    let is_own = OpenNamespace::own()?.id.is_same(&namespace.id);
    let (links, rdma, cookie) = namespace.run(|| {
        let mut rtnl = Rtnl::open()?;
        let links = read_stable(|| rtnl.links())?;
        let addresses = if query.with_addresses { read_stable(|| rtnl.addresses())? } else { Vec::new() };
        let links = links.iter().map(|link| device::interface(link, &addresses)).collect();
        Ok((links, rdma::list_names(root)?, read_cookie()?))
    })?;
    let path = query.namespace.path().unwrap_or_default().to_owned();
    let namespace = Namespace { path, id: NamespaceId { cookie, ..namespace.id } };
    Ok(NamespaceFacts::Present { namespace, is_own, links, rdma })
}

#[cfg(test)]
#[path = "facts/tests.rs"]
mod tests;
