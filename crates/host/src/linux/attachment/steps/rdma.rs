//! Steps that move an RDMA device between the namespaces of the host and of a pod.

use std::os::fd::AsRawFd;

use vfleet_api::PciAddress;
use vfleet_plan::cni::facts::Namespace;

use crate::HostError;
use crate::linux::attachment::namespace::OpenNamespace;
use crate::linux::netlink::rdma::RdmaDevice;
use crate::linux::rdma;
use crate::linux::root::HostRoot;

/// Moves the RDMA device of a device from this namespace to that of a pod, under this name.
pub(super) fn move_to_pod(
    root: &HostRoot,
    device: PciAddress,
    name: &str,
    namespace: &Namespace,
) -> Result<(), HostError> {
    let attempt = format!("move RDMA device {name} to {}", namespace.path);
    let pod = OpenNamespace::require(root, namespace, &attempt)?;
    let in_pod = || pod.run(|| find(root, name));
    match find_of_device(root, device, name)? {
        Some(found) => {
            if found.name != name {
                rdma::rename(found.index, name, &format!("rename RDMA device {} to {name}", found.name))?;
            }
            transfer(&found, &pod, &attempt)?;
        }
        // An earlier attempt has moved it.
        None if in_pod()?.is_some() => return Ok(()),
        None => return Err(not_found(name, attempt)),
    }
    verify_moved(in_pod()?, name, attempt)
}

/// Moves an RDMA device from the namespace of a pod to this one.
pub(super) fn return_to_host(root: &HostRoot, name: &str, namespace: &Namespace) -> Result<(), HostError> {
    let attempt = format!("move RDMA device {name} back from {}", namespace.path);
    let own = OpenNamespace::own()?;
    let pod = OpenNamespace::require(root, namespace, &attempt)?;
    let is_moved = pod.run(|| {
        let device = find(root, name)?;
        device.as_ref().map(|device| transfer(device, &own, &attempt)).transpose()
    })?;
    match (find(root, name)?, is_moved) {
        // An earlier attempt may have moved it.
        (Some(_), _) => Ok(()),
        (None, None) => Err(not_found(name, attempt)),
        (None, Some(())) => verify_moved(None, name, attempt),
    }
}

/// Finds the RDMA device of a PCI function, which may have another name since its driver was bound again.
fn find_of_device(root: &HostRoot, device: PciAddress, name: &str) -> Result<Option<RdmaDevice>, HostError> {
    let own = rdma::names_of_device(&root.device(device))?;
    match own.as_slice() {
        [other] if other != name => find(root, other),
        _ => Ok(find(root, name)?.filter(|found| own.contains(&found.name))),
    }
}

fn find(root: &HostRoot, name: &str) -> Result<Option<RdmaDevice>, HostError> {
    Ok(rdma::list(root)?.into_iter().find(|device| device.name == name))
}

fn transfer(device: &RdmaDevice, target: &impl AsRawFd, attempt: &str) -> Result<(), HostError> {
    rdma::move_to(device.index, target, attempt)
}

fn verify_moved(found: Option<RdmaDevice>, name: &str, attempt: String) -> Result<(), HostError> {
    let (expected, none) = (name.to_owned(), "no such device".to_owned());
    found.map(drop).ok_or(HostError::NotVerified { attempt, expected, found: none })
}

fn not_found(name: &str, attempt: String) -> HostError {
    HostError::RdmaDeviceNotFound { attempt, device: name.to_owned() }
}
