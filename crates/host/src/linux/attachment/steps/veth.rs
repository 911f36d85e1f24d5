//! Steps that create and delete pairs of virtual interfaces (veth), and set one end up.

use vfleet_api::MacAddr;
use vfleet_plan::cni::facts::Namespace;

use super::pod::set_link_up;
use crate::HostError;
use crate::linux::attachment::namespace::{OpenNamespace, OpenedPath};
use crate::linux::netlink::rtnl::{Link, Rtnl, VETH, VethEnd, VethPair};
use crate::linux::root::HostRoot;
use crate::linux::steps::verify;

const ENODEV: i32 = 19;

/// Creates a pair, one end of which is in the namespace of a pod. A pair that an earlier attempt created stays.
pub(super) fn create(root: &HostRoot, namespace: &Namespace, pair: &VethPair<'_>) -> Result<(), HostError> {
    let VethPair { pod, host, mtu } = *pair;
    let attempt =
        format!("create interface {} in {} with {} on the host", pod.name, namespace.path, host.name);
    let target = OpenNamespace::require(root, namespace, &attempt)?;
    let (mut in_pod, mut on_host) = (target.run(Rtnl::open)?, Rtnl::open()?);
    match (in_pod.link_by_name(pod.name)?, on_host.link_by_name(host.name)?) {
        (None, None) => on_host.create_pair(pair, &target, &attempt)?,
        (found, other) => check_ends(pair, found.as_ref(), other.as_ref(), &attempt)?,
    }
    let (found, other) = (in_pod.link_by_name(pod.name)?, on_host.link_by_name(host.name)?);
    check_ends(pair, found.as_ref(), other.as_ref(), &attempt)?;
    [found, other].iter().flatten().try_for_each(|link| verify(&attempt, &mtu, &link.mtu))
}

/// Fails if two interfaces are not the ends of a pair.
fn check_ends(
    pair: &VethPair<'_>,
    in_pod: Option<&Link>,
    on_host: Option<&Link>,
    attempt: &str,
) -> Result<(), HostError> {
    let taken =
        |name: &str| HostError::InterfaceNameTaken { attempt: attempt.to_owned(), name: name.to_owned() };
    match (in_pod, on_host) {
        (Some(found), Some(other))
            if is_end(found, &pair.pod)
                && is_end(other, &pair.host)
                && (found.linked, other.linked) == (Some(other.index), Some(found.index)) =>
        {
            Ok(())
        }
        (_, Some(other)) if !is_end(other, &pair.host) => Err(taken(pair.host.name)),
        (Some(_), _) => Err(taken(pair.pod.name)),
        (None, Some(_)) => Err(taken(pair.host.name)),
        (None, None) => verify(attempt, &"both interfaces", &"none"),
    }
}

fn is_end(link: &Link, end: &VethEnd<'_>) -> bool {
    link.name == end.name && is_veth(link) && link.mac() == Some(end.mac)
}

fn is_veth(link: &Link) -> bool {
    link.kind_name.as_deref() == Some(VETH)
}

/// Deletes a pair by its end on the host, unless that is another interface.
pub(super) fn delete(name: &str, mac: Option<MacAddr>) -> Result<(), HostError> {
    let is_own = |link: &Link| mac.is_none_or(|mac| link.mac() == Some(mac));
    delete_own(&mut Rtnl::open()?, name, is_own, &format!("delete interface {name}"))
}

/// Deletes a pair by its end in the namespace of a pod. Nothing is left of a pair whose namespace is gone.
pub(super) fn delete_in_pod(root: &HostRoot, namespace: &Namespace, name: &str) -> Result<(), HostError> {
    let attempt = format!("delete interface {name} in {}", namespace.path);
    match OpenedPath::open_recorded(root, namespace) {
        OpenedPath::Missing => Ok(()),
        _ => OpenNamespace::require(root, namespace, &attempt)?
            .run(|| delete_own(&mut Rtnl::open()?, name, |_| true, &attempt)),
    }
}

fn delete_own(
    rtnl: &mut Rtnl,
    name: &str,
    is_own: impl Fn(&Link) -> bool,
    attempt: &str,
) -> Result<(), HostError> {
    let is_pair = |link: &Link| link.name == name && is_veth(link) && is_own(link);
    let Some(link) = rtnl.link_by_name(name)?.filter(is_pair) else { return Ok(()) };
    match rtnl.remove_link(link.index, attempt) {
        // The other end was deleted at the same time.
        Err(error) if error.errno() == Some(ENODEV) => Ok(()),
        removed => removed,
    }?;
    let is_left = rtnl.link_by_name(name)?.is_some_and(|found| found.index == link.index);
    verify(attempt, &"no interface", &if is_left { "the interface" } else { "no interface" })
}

/// Sets an interface of the host up.
pub(super) fn set_host_up(name: &str) -> Result<(), HostError> {
    let mut rtnl = Rtnl::open()?;
    let link = require_on_host(&mut rtnl, name)?;
    set_link_up(&mut rtnl, link.index, &format!("set interface {name} up"))
}

/// Reads an interface of the host.
pub(super) fn require_on_host(rtnl: &mut Rtnl, name: &str) -> Result<Link, HostError> {
    rtnl.link_by_name(name)?.ok_or_else(|| HostError::NoInterface { device: name.to_owned() })
}

#[cfg(test)]
#[path = "veth/tests.rs"]
mod tests;
