//! Messages of rtnetlink: interfaces, addresses, routes and next hops, with one module for each kind of object.
//! Interfaces are identified by index, because names change.

mod address;
mod bridge;
mod bridge_vlan;
mod link;
mod next_hop;
mod route;
mod veth;
mod vf;

pub(in crate::linux) use address::InterfaceAddress;
pub(in crate::linux) use bridge::{BRIDGE, BridgeChange, BridgeEvent, BridgeInfo, PortSettings};
pub(in crate::linux) use bridge_vlan::PortVlans;
pub(in crate::linux) use link::{Link, is_virtual};
pub(in crate::linux) use next_hop::NextHop;
pub(in crate::linux) use route::Route;
pub(in crate::linux) use veth::{VETH, VethEnd, VethPair};
pub(in crate::linux) use vf::VfSetting;

use std::net::IpAddr;
use std::os::fd::AsRawFd;

use netlink_sys::protocols::NETLINK_ROUTE;

use vfleet_api::{Guid, MacAddr};
use vfleet_plan::cni::facts::BridgeVlan;
use vfleet_plan::cni::step::{InterfaceRoute, IpPrefix};

use super::{NetlinkConnection, invalid_answer};
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
const RTM_NEWLINKPROP: u16 = 108;
const RTM_DELLINKPROP: u16 = 109;

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const ENODEV: i32 = 19;
/// Errors if there is no route: EACCES, EINVAL, ENODEV, ENETUNREACH, EHOSTUNREACH.
const NO_ROUTE: [i32; 5] = [13, 22, 19, 101, 113];

/// Requests for the tests of their bytes.
#[cfg(test)]
pub(super) mod requests {
    pub(in crate::linux::netlink) use super::address::{add as add_address, list as list_addresses};
    pub(in crate::linux::netlink) use super::bridge::{
        create_bridge, remove, set_alias, set_bridge, set_master, set_port,
    };
    pub(in crate::linux::netlink) use super::bridge_vlan::{
        add as add_vlans, list as list_vlans, remove as remove_vlans,
    };
    pub(in crate::linux::netlink) use super::link::{
        add_alt_name, get, get_by_name, list, move_to, remove_alt_name, rename, set_address, set_down,
        set_mtu, set_up,
    };
    pub(in crate::linux::netlink) use super::next_hop::list as list_next_hops;
    pub(in crate::linux::netlink) use super::route::{
        add as add_route, get as get_route, list as list_routes,
    };
    pub(in crate::linux::netlink) use super::veth::create_pair;
    pub(in crate::linux::netlink) use super::vf::{set as set_vf, set_guid};
}

/// Connection to rtnetlink.
pub(in crate::linux) struct Rtnl(NetlinkConnection);

impl Rtnl {
    pub(in crate::linux) fn open() -> Result<Self, HostError> {
        NetlinkConnection::open(NETLINK_ROUTE).map(Self)
    }

    /// Reads the interface with this index, including the settings of its VFs.
    pub(in crate::linux) fn link(&mut self, index: u32) -> Result<Link, HostError> {
        let attempt = format!("read interface {index}");
        let answer = self.0.get(&link::get(index), &attempt)?;
        Link::parse(&answer).ok_or_else(|| invalid_answer(&attempt))
    }

    /// Reads the interface with this name or alternative name; `None` if there is no such interface.
    pub(in crate::linux) fn link_by_name(&mut self, name: &str) -> Result<Option<Link>, HostError> {
        let attempt = format!("read interface {name}");
        match self.0.get(&link::get_by_name(name), &attempt) {
            Ok(answer) => Link::parse(&answer).map(Some).ok_or_else(|| invalid_answer(&attempt)),
            Err(error) if error.errno() == Some(ENODEV) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Lists all interfaces of this network namespace, without the settings of VFs.
    pub(in crate::linux) fn links(&mut self) -> Result<Vec<Link>, HostError> {
        self.0.dump(&link::list(), "list the network interfaces", Link::parse)
    }

    /// Lists all routes.
    pub(in crate::linux) fn routes(&mut self) -> Result<Vec<Route>, HostError> {
        self.0.dump(&route::list(), "list the routes", Route::parse)
    }

    /// Returns the interfaces of the route to an address; none if there is no route.
    pub(in crate::linux) fn interfaces_of_route_to(
        &mut self,
        address: IpAddr,
    ) -> Result<Vec<u32>, HostError> {
        let attempt = format!("find the route to {address}");
        match self.0.get(&route::get(address), &attempt) {
            Ok(answer) => Ok(Route::parse(&answer).ok_or_else(|| invalid_answer(&attempt))?.interfaces),
            Err(error) if error.errno().is_some_and(|errno| NO_ROUTE.contains(&errno)) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Lists all next hop objects.
    pub(in crate::linux) fn next_hops(&mut self) -> Result<Vec<NextHop>, HostError> {
        self.0.dump(&next_hop::list(), "list the next hops", NextHop::parse)
    }

    /// Lists all addresses of interfaces.
    pub(in crate::linux) fn addresses(&mut self) -> Result<Vec<InterfaceAddress>, HostError> {
        self.0.dump(&address::list(), "list the addresses", InterfaceAddress::parse)
    }

    pub(in crate::linux) fn set_up(&mut self, index: u32, attempt: &str) -> Result<(), HostError> {
        self.0.change(&link::set_up(index), attempt)
    }

    pub(in crate::linux) fn set_mtu(&mut self, index: u32, mtu: u32, attempt: &str) -> Result<(), HostError> {
        self.0.change(&link::set_mtu(index, mtu), attempt)
    }

    pub(in crate::linux) fn set_down(&mut self, index: u32, attempt: &str) -> Result<(), HostError> {
        self.0.change(&link::set_down(index), attempt)
    }

    /// Sets the MAC address of an interface.
    pub(in crate::linux) fn set_mac(
        &mut self,
        index: u32,
        mac: MacAddr,
        attempt: &str,
    ) -> Result<(), HostError> {
        self.0.change(&link::set_address(index, mac), attempt)
    }

    /// Renames an interface. In a pattern such as `dev%d` the kernel replaces `%d` with the first free number.
    pub(in crate::linux) fn rename(
        &mut self,
        index: u32,
        name: &str,
        attempt: &str,
    ) -> Result<(), HostError> {
        self.0.change(&link::rename(index, name), attempt)
    }

    /// Moves an interface to another network namespace, where it gets this name. If the name is not free there, the
    /// kernel fails after it has moved the interface.
    pub(in crate::linux) fn move_to(
        &mut self,
        index: u32,
        namespace: &impl AsRawFd,
        name: &str,
        attempt: &str,
    ) -> Result<(), HostError> {
        let descriptor = namespace.as_raw_fd().cast_unsigned();
        self.0.change(&link::move_to(index, descriptor, name), attempt)
    }

    pub(in crate::linux) fn add_alt_name(
        &mut self,
        index: u32,
        name: &str,
        attempt: &str,
    ) -> Result<(), HostError> {
        self.0.create(&link::add_alt_name(index, name), attempt)
    }

    pub(in crate::linux) fn remove_alt_name(
        &mut self,
        index: u32,
        name: &str,
        attempt: &str,
    ) -> Result<(), HostError> {
        self.0.change(&link::remove_alt_name(index, name), attempt)
    }

    /// Adds an address to an interface. An address that exists is an error.
    pub(in crate::linux) fn add_address(
        &mut self,
        index: u32,
        address: IpPrefix,
        attempt: &str,
    ) -> Result<(), HostError> {
        self.0.create(&address::add(index, address), attempt)
    }

    /// Adds a route through an interface. A route to the same destination that exists is an error.
    pub(in crate::linux) fn add_route(
        &mut self,
        index: u32,
        route: &InterfaceRoute,
        attempt: &str,
    ) -> Result<(), HostError> {
        self.0.create(&route::add(index, route), attempt)
    }

    /// Changes settings of a VF, in this order. The kernel stops at the first one that it refuses.
    pub(in crate::linux) fn set_vf(
        &mut self,
        pf_index: u32,
        vf: u16,
        settings: &[VfSetting],
        attempt: &str,
    ) -> Result<(), HostError> {
        self.0.change(&vf::set(pf_index, vf, settings), attempt)
    }

    /// Creates a Linux bridge in a device group. Fails if an interface has this name.
    pub(in crate::linux) fn create_bridge(
        &mut self,
        name: &str,
        group: u32,
        attempt: &str,
    ) -> Result<(), HostError> {
        self.0.create(&bridge::create_bridge(name, group), attempt)
    }

    /// Changes a Linux bridge and sets it up.
    pub(in crate::linux) fn set_bridge(
        &mut self,
        index: u32,
        change: &BridgeChange,
        attempt: &str,
    ) -> Result<(), HostError> {
        self.0.change(&bridge::set_bridge(index, change), attempt)
    }

    pub(in crate::linux) fn set_alias(
        &mut self,
        index: u32,
        alias: &str,
        attempt: &str,
    ) -> Result<(), HostError> {
        self.0.change(&bridge::set_alias(index, alias), attempt)
    }

    /// Makes an interface a member of another one, or takes it out of its master with `None`.
    pub(in crate::linux) fn set_master(
        &mut self,
        index: u32,
        master: Option<u32>,
        attempt: &str,
    ) -> Result<(), HostError> {
        self.0.change(&bridge::set_master(index, master), attempt)
    }

    /// Changes settings of a port of a Linux bridge.
    pub(in crate::linux) fn set_port(
        &mut self,
        index: u32,
        settings: &PortSettings,
        attempt: &str,
    ) -> Result<(), HostError> {
        self.0.change(&bridge::set_port(index, settings), attempt)
    }

    /// Removes a virtual interface.
    pub(in crate::linux) fn remove_link(&mut self, index: u32, attempt: &str) -> Result<(), HostError> {
        self.0.change(&bridge::remove(index), attempt)
    }

    /// Creates a pair of virtual interfaces, one of them in the namespace of a pod. A name that is not free is an error.
    pub(in crate::linux) fn create_pair(
        &mut self,
        pair: &VethPair<'_>,
        namespace: &impl AsRawFd,
        attempt: &str,
    ) -> Result<(), HostError> {
        self.0.create(&veth::create_pair(pair, namespace.as_raw_fd().cast_unsigned()), attempt)
    }

    /// Lists the VLANs of all ports of Linux bridges, and of the bridges.
    pub(in crate::linux) fn port_vlans(&mut self) -> Result<Vec<PortVlans>, HostError> {
        self.0.dump(&bridge_vlan::list(), "list the VLANs of bridge ports", PortVlans::parse)
    }

    /// Adds VLANs to a port of a Linux bridge, or changes their form.
    pub(in crate::linux) fn add_port_vlans(
        &mut self,
        index: u32,
        vlans: &[BridgeVlan],
        attempt: &str,
    ) -> Result<(), HostError> {
        self.0.change(&bridge_vlan::add(index, vlans), attempt)
    }

    /// Removes VLANs from a port of a Linux bridge.
    pub(in crate::linux) fn remove_port_vlans(
        &mut self,
        index: u32,
        vlans: &[BridgeVlan],
        attempt: &str,
    ) -> Result<(), HostError> {
        self.0.change(&bridge_vlan::remove(index, vlans), attempt)
    }

    /// Sets the node GUID and the port GUID of a VF through its InfiniBand PF.
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
    fn the_loopback_interface_is_read() {
        let mut rtnl = Rtnl::open().unwrap();
        let link = rtnl.link(1).unwrap();
        assert_eq!((link.index, link.name.as_str(), link.mac()), (1, "lo", Some(MacAddr::ZERO)));
        assert!(link.mtu > 0 && link.vfs.is_empty());
        assert!(rtnl.links().unwrap().contains(&link));
        let is_loopback = |address: &InterfaceAddress| address.ip == Some([127, 0, 0, 1].into());
        let loopback = rtnl.addresses().unwrap().into_iter().find(is_loopback).unwrap();
        assert_eq!((loopback.index, loopback.is_global, loopback.prefix_length), (1, false, 8));
        rtnl.routes().unwrap();
        assert_eq!(rtnl.interfaces_of_route_to([127, 0, 0, 1].into()).unwrap(), [1]);
    }

    #[test]
    fn reading_a_missing_interface_is_an_error() {
        let error = Rtnl::open().unwrap().link(999_999).unwrap_err();
        assert_eq!((error.errno(), error.reason()), (Some(19), "NetlinkRefused"));
        assert_eq!(error.to_string(), "cannot read interface 999999");
    }
}
