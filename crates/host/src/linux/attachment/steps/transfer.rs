//! Steps that move the interface of a device between the namespaces of the host and of a pod.
//!
//! An interface in the namespace of a pod is recognized by its device. Kernels before 5.14 do not report it: there the
//! name counts.

mod back;

use vfleet_api::PciAddress;
use vfleet_plan::cni::facts::Namespace;

use super::mac::require_index;
use crate::HostError;
use crate::format_error_chain;
use crate::linux::attachment::namespace::OpenNamespace;
use crate::linux::netdev;
use crate::linux::netlink::rtnl::{Link, Rtnl};
use crate::linux::pci;
use crate::linux::root::HostRoot;
use crate::linux::stable_read::read_stable;
use crate::linux::steps::verify;

pub(super) use back::return_to_host;

/// Error of the kernel if there is no interface with an index.
const ENODEV: i32 = 19;

/// Moves the interface of a device to a pod, where it gets this name and is down.
pub(super) fn move_to_pod(
    root: &HostRoot,
    device: PciAddress,
    namespace: &Namespace,
    name: &str,
    drop_alt_names: &[String],
) -> Result<(), HostError> {
    let attempt = format!("move the interface of {device} to {} as {name}", namespace.path);
    let target = OpenNamespace::require(root, namespace, &attempt)?;
    let index = match require_index(root, device) {
        // An earlier attempt has moved it, or the kernel has created it there: since 6.17 an IPoIB interface is where its RDMA
        // device is.
        Err(error @ HostError::NoInterface { .. }) => {
            let mut pod = target.run(Rtnl::open)?;
            let found = find_in_pod(root, &mut pod, device, name)?;
            return rename_in_pod(&mut pod, &found.ok_or(error)?, name, &attempt);
        }
        index => index?,
    };
    let mut host = Rtnl::open()?;
    let link = host.link(index)?;
    // An interface cannot have a name twice.
    let dropped = link.alt_names.iter().filter(|alt| *alt == name || drop_alt_names.contains(alt));
    for alt_name in dropped {
        host.remove_alt_name(index, alt_name, &format!("remove alternative name {alt_name} of {device}"))?;
    }
    if let Err(error) = host.move_to(index, &target, name, &attempt) {
        undo_move(&mut host, &target, &link, device);
        return Err(error);
    }
    // The next step looks for it in the pod.
    match host.link(index) {
        Ok(found) if is_same(&found, &link, device) => Err(HostError::NotVerified {
            attempt,
            expected: "no interface of the device on the host".to_owned(),
            found: format!("interface {}", found.name),
        }),
        Err(error) if error.errno() != Some(ENODEV) => Err(error),
        _ => Ok(()),
    }
}

/// Gives an interface in a pod its name there, if it has another one.
fn rename_in_pod(pod: &mut Rtnl, link: &Link, name: &str, attempt: &str) -> Result<(), HostError> {
    if link.name == name {
        return Ok(());
    }
    if link.alt_names.iter().any(|alt| alt == name) {
        pod.remove_alt_name(link.index, name, attempt)?;
    }
    if link.is_up {
        // Kernels before 6.2 rename only an interface that is down.
        pod.set_down(link.index, attempt)?;
    }
    pod.rename(link.index, name, attempt)?;
    verify(attempt, &name, &pod.link(link.index)?.name.as_str())
}

/// Moves an interface back that the kernel has moved although the request failed: it names interfaces afterwards.
fn undo_move(host: &mut Rtnl, target: &OpenNamespace, link: &Link, device: PciAddress) {
    let attempt = format!("move the interface of {device} back after a failed move");
    let mut undo = || -> Result<(), HostError> {
        let mut pod = target.run(Rtnl::open)?;
        let moved = pod.links()?.into_iter().find(|found| is_same(found, link, device));
        let Some(moved) = moved else { return Ok(()) };
        pod.move_to(moved.index, &OpenNamespace::own()?, &link.name, &attempt)?;
        if let Some(back) = host.link_by_name(&link.name)?.filter(|back| link.is_up && !back.is_up) {
            host.set_up(back.index, &attempt)?;
        }
        Ok(())
    };
    if let Err(error) = undo() {
        let (error, device) = (format_error_chain(&error), device.to_string());
        tracing::warn!(
            error,
            device,
            "the interface of a device stays in the namespace of a pod: delete the pod"
        );
    }
}

/// Returns whether `found` in one namespace is `link` that was in another one.
fn is_same(found: &Link, link: &Link, device: PciAddress) -> bool {
    match found.device {
        Some(found) => found == device,
        None => found.address == link.address && found.kind_name == link.kind_name,
    }
}

/// Finds the interface of a device in the namespace of a pod, where it may still have another name.
fn find_in_pod(
    root: &HostRoot,
    pod: &mut Rtnl,
    device: PciAddress,
    name: &str,
) -> Result<Option<Link>, HostError> {
    // Usually it has its name.
    if let Some(link) = pod.link_by_name(name)?
        && link.device == Some(device)
        && link.name == name
    {
        return Ok(Some(link));
    }
    let links = read_stable(|| pod.links())?;
    Ok(choose(links, device, name, || reports_devices(root, device)))
}

fn choose(
    mut links: Vec<Link>,
    device: PciAddress,
    name: &str,
    reports_devices: impl FnOnce() -> bool,
) -> Option<Link> {
    let of_device = |link: &Link| link.device == Some(device);
    let called = links.iter().position(|link| of_device(link) && link.name == name);
    let own = called.or_else(|| links.iter().position(of_device));
    let by_name = || {
        let found = links.iter().position(|link| link.name == name && link.device.is_none())?;
        (!reports_devices()).then_some(found)
    };
    let chosen = own.or_else(by_name)?;
    Some(links.swap_remove(chosen))
}

/// Returns whether the kernel reports the devices of interfaces: then one without a device is not that of a VF.
fn reports_devices(root: &HostRoot, device: PciAddress) -> bool {
    let read = || -> Result<bool, HostError> {
        let Some(vf) = pci::read_parent(root, device)? else { return Ok(false) };
        let Some(pf) = netdev::of_device(&root.device(vf.pf))? else { return Ok(false) };
        Ok(Rtnl::open()?.link(pf.index)?.device.is_some())
    };
    read_stable(read).unwrap_or(false)
}

#[cfg(test)]
#[path = "transfer/tests.rs"]
mod tests;
