//! Network interfaces, routes and addresses, through rtnetlink. Interfaces always by index: names change.
//!
//! One file for each kind of object.

mod address;
mod link;
mod next_hop;
mod route;
mod vf;

pub(in crate::linux) use address::Address;
pub(in crate::linux) use link::{Link, is_virtual};
pub(in crate::linux) use next_hop::NextHop;
pub(in crate::linux) use route::Route;

use std::net::IpAddr;

use netlink_sys::protocols::NETLINK_ROUTE;

use vfleet_api::{Guid, MacAddr};

use super::{Connection, unreadable};
use crate::HostError;

pub(in crate::linux) const RTM_NEWLINK: u16 = 16;
pub(in crate::linux) const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;
const RTM_SETLINK: u16 = 19;
pub(in crate::linux) const RTM_NEWADDR: u16 = 20;
pub(in crate::linux) const RTM_DELADDR: u16 = 21;
const RTM_GETADDR: u16 = 22;
pub(in crate::linux) const RTM_NEWROUTE: u16 = 24;
pub(in crate::linux) const RTM_DELROUTE: u16 = 25;
const RTM_GETROUTE: u16 = 26;
const RTM_GETNEXTHOP: u16 = 106;

/// EACCES, EINVAL, ENODEV, ENETUNREACH, EHOSTUNREACH: no route leads there.
const NO_ROUTE: [i32; 5] = [13, 22, 19, 101, 113];

/// Requests, for the comparison of their bytes.
#[cfg(test)]
pub(super) mod requests {
    pub(in crate::linux::netlink) use super::address::list as list_addresses;
    pub(in crate::linux::netlink) use super::link::{get, list, set_mtu, set_up};
    pub(in crate::linux::netlink) use super::next_hop::list as list_next_hops;
    pub(in crate::linux::netlink) use super::route::{get as get_route, list as list_routes};
    pub(in crate::linux::netlink) use super::vf::{set_guid, set_mac};
}

/// A connection to the kernel's network.
pub(in crate::linux) struct Rtnl(Connection);

impl Rtnl {
    pub(in crate::linux) fn open() -> Result<Self, HostError> {
        Connection::open(NETLINK_ROUTE).map(Self)
    }

    /// Reads the interface with this index, with what it keeps for its VFs.
    pub(in crate::linux) fn link(&mut self, index: u32) -> Result<Link, HostError> {
        let attempt = format!("read interface {index}");
        let answer = self.0.get(&link::get(index), &attempt)?;
        Link::parse(&answer).ok_or_else(|| unreadable(&attempt))
    }

    /// Lists all interfaces of this network namespace, without what they keep for VFs.
    pub(in crate::linux) fn links(&mut self) -> Result<Vec<Link>, HostError> {
        self.0.dump(&link::list(), "list the network interfaces", Link::parse)
    }

    /// Lists all routes.
    pub(in crate::linux) fn routes(&mut self) -> Result<Vec<Route>, HostError> {
        self.0.dump(&route::list(), "list the routes", Route::parse)
    }

    /// Returns the interfaces that a packet to this address would leave by; none where no route leads there.
    pub(in crate::linux) fn interfaces_towards(&mut self, address: IpAddr) -> Result<Vec<u32>, HostError> {
        let attempt = format!("find the route to {address}");
        match self.0.get(&route::get(address), &attempt) {
            Ok(answer) => Ok(Route::parse(&answer).ok_or_else(|| unreadable(&attempt))?.interfaces),
            Err(error) if error.errno().is_some_and(|errno| NO_ROUTE.contains(&errno)) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Lists all next hops that routes name by an id.
    pub(in crate::linux) fn next_hops(&mut self) -> Result<Vec<NextHop>, HostError> {
        self.0.dump(&next_hop::list(), "list the next hops", NextHop::parse)
    }

    /// Lists all addresses of interfaces.
    pub(in crate::linux) fn addresses(&mut self) -> Result<Vec<Address>, HostError> {
        self.0.dump(&address::list(), "list the addresses", Address::parse)
    }

    pub(in crate::linux) fn set_up(&mut self, index: u32, attempt: &str) -> Result<(), HostError> {
        self.0.change(&link::set_up(index), attempt)
    }

    pub(in crate::linux) fn set_mtu(&mut self, index: u32, mtu: u32, attempt: &str) -> Result<(), HostError> {
        self.0.change(&link::set_mtu(index, mtu), attempt)
    }

    pub(in crate::linux) fn set_vf_mac(
        &mut self,
        pf_index: u32,
        vf: u16,
        mac: MacAddr,
        attempt: &str,
    ) -> Result<(), HostError> {
        self.0.change(&vf::set_mac(pf_index, vf, mac), attempt)
    }

    /// Sets the node and the port GUID that an InfiniBand PF keeps for a VF.
    pub(in crate::linux) fn set_vf_guid(
        &mut self,
        pf_index: u32,
        vf: u16,
        guid: Guid,
        attempt: &str,
    ) -> Result<(), HostError> {
        self.0.change(&vf::set_guid(pf_index, vf, guid), attempt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_describes_its_loopback() {
        let mut rtnl = Rtnl::open().unwrap();
        let link = rtnl.link(1).unwrap();
        assert_eq!((link.index, link.name.as_str(), link.mac), (1, "lo", Some(MacAddr::ZERO)));
        assert!(link.mtu > 0 && link.vf_macs.is_empty());
        assert!(rtnl.links().unwrap().contains(&link));
        let loopback = Address { index: 1, is_global: false, ip: Some([127, 0, 0, 1].into()) };
        assert!(rtnl.addresses().unwrap().contains(&loopback));
        rtnl.routes().unwrap();
        assert_eq!(rtnl.interfaces_towards([127, 0, 0, 1].into()).unwrap(), [1]);
    }

    #[test]
    fn an_interface_that_is_not_there_is_no_such_device() {
        let error = Rtnl::open().unwrap().link(999_999).unwrap_err();
        assert_eq!((error.errno(), error.reason()), (Some(19), "NetlinkRefused"));
        assert_eq!(error.to_string(), "cannot read interface 999999");
    }
}
