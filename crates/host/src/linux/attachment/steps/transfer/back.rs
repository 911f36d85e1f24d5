//! Return of an interface from the namespace of a pod to that of the host.

use vfleet_api::PciAddress;
use vfleet_plan::cni::facts::Namespace;
use vfleet_plan::cni::step::OriginalInterface;

use super::{find_in_pod, is_same};
use crate::HostError;
use crate::format_error_chain;
use crate::linux::attachment::namespace::OpenNamespace;
use crate::linux::attachment::settle::settle;
use crate::linux::attachment::steps::mac::{self, require_index};
use crate::linux::netlink::rtnl::{Link, Rtnl};
use crate::linux::root::HostRoot;
use crate::linux::stable_read::read_stable;
use crate::linux::steps::verify;

/// Pattern of the name of an interface whose name another interface has: the one that the kernel uses itself.
const FREE_NAME: &str = "dev%d";
/// Attempts while other programs give or take names: udev names an interface as soon as it is there.
const ATTEMPTS: usize = 6;
const ENOENT: i32 = 2;
const EBUSY: i32 = 16;
const EEXIST: i32 = 17;

/// Moves the interface of a device from the namespace of a pod to this one, and restores its name, MAC address, MTU and
/// alternative names. An interface that is here already only gets these.
pub(in crate::linux::attachment::steps) fn return_to_host(
    root: &HostRoot,
    device: PciAddress,
    namespace: Option<&Namespace>,
    pod_name: &str,
    original: &OriginalInterface,
) -> Result<(), HostError> {
    let mut rtnl = Rtnl::open()?;
    let index = match (require_index(root, device), namespace) {
        (Err(HostError::NoInterface { .. }), Some(namespace)) => {
            with_names(|| move_back(root, &mut rtnl, device, namespace, pod_name, original))?
        }
        (index, _) => index?,
    };
    // A driver that is bound again creates another interface: therefore the address is the first.
    let index = match original.mac {
        Some(mac) => mac::set_or_rebind(root, &mut rtnl, device, index, mac)?,
        None => index,
    };
    with_names(|| restore(&mut rtnl, index, device, pod_name, original))
}

/// Repeats `attempt`, which reads names and then uses them, if the kernel reports that a name was given or removed in
/// between. A name is the property of whoever is faster, so it is read again at once.
pub(super) fn with_names<T>(mut attempt: impl FnMut() -> Result<T, HostError>) -> Result<T, HostError> {
    for _ in 1..ATTEMPTS {
        match attempt() {
            Err(error) if matches!(error.errno(), Some(EEXIST | ENOENT)) => {}
            result => return result,
        }
    }
    attempt()
}

/// Moves the interface to this namespace, where it gets its name, or a free one. Returns its index.
fn move_back(
    root: &HostRoot,
    host: &mut Rtnl,
    device: PciAddress,
    namespace: &Namespace,
    pod_name: &str,
    original: &OriginalInterface,
) -> Result<u32, HostError> {
    let attempt = format!("move the interface of {device} from {} back", namespace.path);
    let source = OpenNamespace::require(root, namespace, &attempt)?;
    let mut pod = source.run(Rtnl::open)?;
    let link = find_in_pod(root, &mut pod, device, pod_name)?;
    let Some(link) = link else { return Err(HostError::NoInterface { device: device.to_string() }) };
    // An interface cannot have a name twice, and the kernel refuses to move one with a name that another one has.
    for alt_name in &link.alt_names {
        if *alt_name == original.name || host.link_by_name(alt_name)?.is_some() {
            pod.remove_alt_name(link.index, alt_name, &attempt)?;
        }
    }
    let is_free = !original.name.is_empty() && host.link_by_name(&original.name)?.is_none();
    let name = if is_free { &original.name } else { FREE_NAME };
    let result = pod.move_to(link.index, &OpenNamespace::own()?, name, &attempt);
    match (find_moved(host, name, &link, device)?, result) {
        (Some(moved), Ok(())) => Ok(moved.index),
        // It was moved and has another name: the name was taken in this moment.
        (Some(moved), Err(error)) if error.errno() == Some(EEXIST) => Ok(moved.index),
        (_, Err(error)) => Err(error),
        (None, Ok(())) => Err(HostError::NoInterface { device: device.to_string() }),
    }
}

/// Finds the interface that was moved, usually by its name. The kernel changes the index if another interface has it.
fn find_moved(
    host: &mut Rtnl,
    name: &str,
    link: &Link,
    device: PciAddress,
) -> Result<Option<Link>, HostError> {
    if let Some(found) = host.link_by_name(name)?.filter(|found| is_same(found, link, device)) {
        return Ok(Some(found));
    }
    Ok(read_stable(|| host.links())?.into_iter().find(|found| is_same(found, link, device)))
}

/// Restores name, MTU and alternative names of the interface of a device in this namespace.
fn restore(
    rtnl: &mut Rtnl,
    index: u32,
    device: PciAddress,
    pod_name: &str,
    original: &OriginalInterface,
) -> Result<(), HostError> {
    let link = restore_name(rtnl, index, device, &original.name)?;
    let has_pod_name = link.alt_names.iter().any(|alt| alt == pod_name);
    if has_pod_name && !original.alt_names.iter().any(|alt| alt == pod_name) {
        // It would be in the way of the next attachment.
        let attempt = format!("remove alternative name {pod_name} of {device}");
        rtnl.remove_alt_name(index, pod_name, &attempt)?;
    }
    if let Some(mtu) = original.mtu.filter(|mtu| *mtu != link.mtu) {
        let attempt = format!("set the MTU of {device} to {mtu}");
        settle(|| rtnl.set_mtu(index, mtu, &attempt))?;
        verify(&attempt, &mtu, &rtnl.link(index)?.mtu)?;
    }
    remove_names_of_other_macs(rtnl, &link, pod_name, original)?;
    for alt_name in &original.alt_names {
        if link.is_called(alt_name) {
            continue;
        }
        // Nothing but convenience depends on it, and kernels before 5.5 have none.
        let attempt = format!("add alternative name {alt_name} to {device}");
        if let Err(error) = rtnl.add_alt_name(index, alt_name, &attempt) {
            let error = format_error_chain(&error);
            tracing::warn!(
                error,
                "an interface lost an alternative name: add it again with ip link property"
            );
        }
    }
    Ok(())
}

/// Removes alternative names that udev derived from a MAC that the interface had in the meantime.
fn remove_names_of_other_macs(
    rtnl: &mut Rtnl,
    link: &Link,
    pod_name: &str,
    original: &OriginalInterface,
) -> Result<(), HostError> {
    let own_name = name_of_mac(&link.address);
    let names = link.alt_names.iter().filter(|name| is_name_of_mac(name) && **name != own_name);
    for alt_name in names.filter(|name| *name != pod_name && !original.alt_names.contains(name)) {
        rtnl.remove_alt_name(link.index, alt_name, &format!("remove alternative name {alt_name}"))?;
    }
    Ok(())
}

/// Returns the name that udev derives from a MAC.
fn name_of_mac(mac: &[u8]) -> String {
    mac.iter().fold("enx".to_owned(), |name, byte| format!("{name}{byte:02x}"))
}

fn is_name_of_mac(name: &str) -> bool {
    let digits = name.strip_prefix("enx").unwrap_or_default();
    digits.len() == 12 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Renames an interface, unless another one has the name. Returns the interface afterwards.
fn restore_name(rtnl: &mut Rtnl, index: u32, device: PciAddress, name: &str) -> Result<Link, HostError> {
    let link = rtnl.link(index)?;
    if is_to_rename(rtnl, &link, device, name)? { rename(rtnl, &link, device, name) } else { Ok(link) }
}

/// Returns whether an interface needs another name, which no other one has.
pub(super) fn is_to_rename(
    rtnl: &mut Rtnl,
    link: &Link,
    device: PciAddress,
    name: &str,
) -> Result<bool, HostError> {
    if link.name == name || name.is_empty() {
        return Ok(false);
    }
    if let Some(other) = rtnl.link_by_name(name)?.filter(|other| other.index != link.index) {
        let (device, kept, other) = (device.to_string(), &link.name, other.name);
        tracing::warn!(
            device,
            kept,
            name,
            other,
            "an interface returned from a pod cannot get its name back, which another interface has: rename that one"
        );
        return Ok(false);
    }
    Ok(true)
}

/// Renames an interface that is as `link` describes it. Returns the interface afterwards.
pub(super) fn rename(
    rtnl: &mut Rtnl,
    link: &Link,
    device: PciAddress,
    name: &str,
) -> Result<Link, HostError> {
    let index = link.index;
    let attempt = format!("rename interface {} of {device} to {name}", link.name);
    if link.alt_names.iter().any(|alt| alt == name) {
        rtnl.remove_alt_name(index, name, &attempt)?;
    }
    match rtnl.rename(index, name, &attempt) {
        // Kernels before 6.2 rename only an interface that is down.
        Err(error) if error.errno() == Some(EBUSY) && link.is_up => {
            rtnl.set_down(index, &attempt)?;
            let renamed = rtnl.rename(index, name, &attempt);
            rtnl.set_up(index, &attempt)?;
            renamed
        }
        result => result,
    }?;
    let renamed = rtnl.link(index)?;
    verify(&attempt, &name, &renamed.name.as_str())?;
    Ok(renamed)
}
