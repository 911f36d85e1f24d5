//! Step that announces the addresses of the interface of a pod.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{AddressFamily, LinkAddr, MsgFlags, SockFlag, SockType, bind, send, socket};
use vfleet_plan::LinkKind;
use vfleet_plan::cni::facts::Namespace;

use super::frames;
use super::pod::require_link;
use crate::linux::attachment::namespace::OpenNamespace;
use crate::linux::events;
use crate::linux::netlink::rtnl::{Link, Rtnl};
use crate::linux::root::HostRoot;
use crate::{HostError, format_error_chain};

/// Limit for the carrier. The kernel announces the addresses of an interface whose link comes up later (`arp_notify`,
/// `ndisc_notify`).
const CARRIER_LIMIT: Duration = Duration::from_millis(200);

/// Announces addresses of an interface of a pod to the machines on its network. Errors are only logged.
pub(super) fn announce(root: &HostRoot, namespace: &Namespace, name: &str, ips: &[IpAddr]) {
    let attempt = format!("announce the addresses of interface {name} in {}", namespace.path);
    let announce = || -> Result<(), HostError> {
        OpenNamespace::require(root, namespace, &attempt)?.run(|| send_all(namespace, name, ips, &attempt))
    };
    if ips.is_empty() {
        return;
    }
    if let Err(error) = announce() {
        let error = format_error_chain(&error);
        tracing::warn!(error, "other machines may use an outdated address of a pod for a while");
    }
}

fn send_all(namespace: &Namespace, name: &str, ips: &[IpAddr], attempt: &str) -> Result<(), HostError> {
    let Some(link) = await_carrier(namespace, name)? else { return Ok(()) };
    let Some(mac) = link.mac().filter(|_| link.kind == LinkKind::Ethernet) else { return Ok(()) };
    let failed = |source| HostError::Netlink { attempt: attempt.to_owned(), message: None, source };
    let socket = open_packet_socket(name).map_err(failed)?;
    ips.iter().try_for_each(|ip| {
        let frame = frames::announcement(mac, *ip);
        send(socket.as_raw_fd(), &frame, MsgFlags::empty()).map(drop).map_err(|errno| failed(errno.into()))
    })
}

/// Waits for the carrier of an interface; `None` if it has none.
fn await_carrier(namespace: &Namespace, name: &str) -> Result<Option<Link>, HostError> {
    let mut rtnl = Rtnl::open()?;
    let index = require_link(&mut rtnl, namespace, name)?.index;
    events::wait_for_link(CARRIER_LIMIT, || Ok(Some(rtnl.link(index)?).filter(|link| link.has_carrier)))
}

/// Opens a socket that sends complete frames through an interface, and receives none.
fn open_packet_socket(name: &str) -> io::Result<OwnedFd> {
    // The list of addresses is the only source of an address of this kind without `unsafe`.
    let address = |found: nix::ifaddrs::InterfaceAddress| -> Option<LinkAddr> {
        found.address?.as_link_addr().copied().filter(|_| found.interface_name == name)
    };
    let address = getifaddrs()?.find_map(address).ok_or(io::ErrorKind::NotFound)?;
    let socket = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, None)?;
    bind(socket.as_raw_fd(), &address)?;
    Ok(socket)
}

#[cfg(test)]
#[path = "announce/tests.rs"]
mod tests;
