//! Step that adds addresses and routes to the interface of a pod.

use std::net::IpAddr;
use std::time::Duration;

use vfleet_plan::cni::facts::Namespace;
use vfleet_plan::cni::step::{InterfaceAddresses, InterfaceRoute, IpPrefix};

use super::pod::{require_link, set_link_up};
use crate::HostError;
use crate::linux::attachment::namespace::OpenNamespace;
use crate::linux::netlink::rtnl::{InterfaceAddress, Rtnl};
use crate::linux::root::HostRoot;
use crate::linux::stable_read::read_stable;
use crate::linux::{events, sysfs};

/// Limit for duplicate address detection, which takes one to two seconds.
const DETECTION_LIMIT: Duration = Duration::from_secs(5);
const EEXIST: i32 = 17;

/// Adds addresses and routes to an interface of a pod, sets it up, and waits until its IPv6 addresses are usable.
pub(super) fn add(
    root: &HostRoot,
    namespace: &Namespace,
    name: &str,
    addresses: &InterfaceAddresses,
) -> Result<(), HostError> {
    let attempt = format!("configure interface {name} in {}", namespace.path);
    OpenNamespace::require(root, namespace, &attempt)?.run(|| {
        let mut rtnl = Rtnl::open()?;
        let link = require_link(&mut rtnl, namespace, name)?;
        let index = link.index;
        let has_ipv6 = addresses.ips.iter().any(|ip| ip.address.is_ipv6());
        if has_ipv6 {
            enable_ipv6(root, name)?;
        }
        for ip in &addresses.ips {
            add_address(&mut rtnl, index, name, *ip)?;
        }
        set_link_up(&mut rtnl, &link, &attempt)?;
        if has_ipv6 {
            await_detection(&mut rtnl, index, name, addresses)?;
        }
        addresses.routes.iter().try_for_each(|route| add_route(&mut rtnl, index, name, route))
    })
}

/// Lets the kernel assign IPv6 addresses, and keep them while the interface is down.
fn enable_ipv6(root: &HostRoot, name: &str) -> Result<(), HostError> {
    for (interface, setting, value) in
        [("lo", "disable_ipv6", "0"), (name, "disable_ipv6", "0"), (name, "keep_addr_on_down", "1")]
    {
        let path = root.proc(&format!("sys/net/ipv6/conf/{interface}/{setting}"));
        // A kernel without IPv6 refuses the address itself.
        sysfs::none_if_not_found(sysfs::write(&path, value))?;
    }
    Ok(())
}

fn add_address(rtnl: &mut Rtnl, index: u32, name: &str, ip: IpPrefix) -> Result<(), HostError> {
    let IpPrefix { address, length } = ip;
    let attempt = format!("add address {address}/{length} to interface {name}");
    let is_equal = |found: &InterfaceAddress| {
        found.index == index && found.ip == Some(address) && found.prefix_length == length
    };
    match rtnl.add_address(index, ip, &attempt) {
        Err(error) if error.errno() == Some(EEXIST) => {
            let found = read_stable(|| rtnl.addresses())?;
            if found.iter().any(is_equal) { Ok(()) } else { Err(error) }
        }
        result => result,
    }
}

fn add_route(rtnl: &mut Rtnl, index: u32, name: &str, route: &InterfaceRoute) -> Result<(), HostError> {
    let IpPrefix { address, length } = route.destination;
    let gateway = route.gateway.map_or_else(String::new, |gateway| format!(" through {gateway}"));
    let attempt = format!("add the route to {address}/{length}{gateway} to interface {name}");
    match rtnl.add_route(index, route, &attempt) {
        Err(error) if error.errno() == Some(EEXIST) => {
            let found = read_stable(|| rtnl.routes())?;
            if found.iter().any(|found| found.is_through(index, route)) { Ok(()) } else { Err(error) }
        }
        result => result,
    }
}

/// Waits until the kernel has checked that no other machine has the IPv6 addresses. Without a carrier it checks them when
/// the link comes up later.
fn await_detection(
    rtnl: &mut Rtnl,
    index: u32,
    name: &str,
    addresses: &InterfaceAddresses,
) -> Result<(), HostError> {
    let mut tentative = None;
    let done = events::wait_for_link(DETECTION_LIMIT, || {
        let found = read_stable(|| rtnl.addresses())?;
        tentative = find_tentative(&found, index, name, addresses)?;
        Ok(tentative.is_none().then_some(()))
    })?;
    match (done, tentative) {
        (None, Some(ip)) if rtnl.link(index)?.has_carrier => Err(HostError::DeadlineExceeded {
            attempt: format!("finish the duplicate address detection of {ip} on interface {name}"),
            after: DETECTION_LIMIT,
        }),
        _ => Ok(()),
    }
}

/// Returns an IPv6 address that the kernel has not checked yet. An address that another machine has, or that vanished, is
/// an error.
fn find_tentative(
    found: &[InterfaceAddress],
    index: u32,
    name: &str,
    addresses: &InterfaceAddresses,
) -> Result<Option<IpAddr>, HostError> {
    let mut tentative = None;
    for address in addresses.ips.iter().map(|ip| ip.address).filter(IpAddr::is_ipv6) {
        let state = found.iter().find(|found| found.index == index && found.ip == Some(address));
        let attempt = || format!("add address {address} to interface {name}");
        match state {
            None => {
                let (expected, found) = (address.to_string(), "no such address".to_owned());
                return Err(HostError::NotVerified { attempt: attempt(), expected, found });
            }
            Some(found) if found.is_duplicate => {
                return Err(HostError::AddressInUse { attempt: attempt(), address });
            }
            Some(found) if found.is_tentative => tentative = Some(address),
            Some(_) => {}
        }
    }
    Ok(tentative)
}

#[cfg(test)]
#[path = "addresses/tests.rs"]
mod tests;
