//! Routes.

use std::net::IpAddr;

use vfleet_plan::cni::step::{InterfaceRoute, IpPrefix};

use super::address::parse_ip;
use super::{AF_INET, AF_INET6, RTM_GETROUTE, RTM_NEWROUTE};
use crate::linux::netlink::NetlinkRequest;
use crate::linux::netlink::attribute::{Attributes, ReceivedAttributes};

const HEADER: usize = 12;
const NEXT_HOP: usize = 8;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_METRICS: u16 = 8;
const RTA_MULTIPATH: u16 = 9;
const RTA_TABLE: u16 = 15;
const RTA_NH_ID: u16 = 30;
const RTAX_MTU: u16 = 2;
const RTAX_ADVMSS: u16 = 8;
const RTN_UNICAST: u8 = 1;
const RTPROT_BOOT: u8 = 3;
const RT_SCOPE_UNIVERSE: u8 = 0;
const RT_SCOPE_LINK: u8 = 253;
const RT_TABLE_UNSPEC: u8 = 0;
const RT_TABLE_MAIN: u8 = 254;

/// Route of any table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::linux) struct Route {
    /// The route is a default route of its table.
    pub(in crate::linux) is_default: bool,
    /// Interfaces of the route.
    pub(in crate::linux) interfaces: Vec<u32>,
    /// ID of its next hop object. The interfaces of the object may be missing in `interfaces`.
    pub(in crate::linux) next_hop: Option<u32>,
    /// Destination; `None` for families other than IPv4 and IPv6.
    destination: Option<IpPrefix>,
    gateway: Option<IpAddr>,
    priority: Option<u32>,
    table: u32,
}

impl Route {
    /// Parses the payload of an `RTM_NEWROUTE` or `RTM_DELROUTE`.
    pub(in crate::linux) fn parse(payload: &[u8]) -> Option<Self> {
        let (header, rest) = payload.split_first_chunk::<HEADER>()?;
        let (destination_length, kind) = (header[1], header[7]);
        let attributes = ReceivedAttributes::parse(rest)?;
        let mut interfaces = match attributes.get(RTA_MULTIPATH) {
            Some(hops) => parse_multipath(hops)?,
            None => Vec::new(),
        };
        interfaces.extend(attributes.u32(RTA_OIF));
        let is_default = destination_length == 0 && kind == RTN_UNICAST;
        let unspecified = match header[0] {
            AF_INET => Some(IpAddr::from([0; 4])),
            AF_INET6 => Some(IpAddr::from([0; 16])),
            _ => None,
        };
        let destination = attributes.get(RTA_DST).map_or(unspecified, parse_ip);
        Some(Self {
            is_default,
            interfaces,
            next_hop: attributes.u32(RTA_NH_ID),
            destination: destination.map(|address| IpPrefix { address, length: destination_length }),
            gateway: attributes.get(RTA_GATEWAY).and_then(parse_ip),
            priority: attributes.u32(RTA_PRIORITY),
            table: attributes.u32(RTA_TABLE).unwrap_or_else(|| header[4].into()),
        })
    }

    /// Returns whether this is the route `other` through the interface with this index. Metrics are not compared.
    pub(in crate::linux) fn is_through(&self, index: u32, other: &InterfaceRoute) -> bool {
        let main = u32::from(RT_TABLE_MAIN);
        self.interfaces == [index]
            && self.destination == Some(other.destination)
            && self.gateway == other.gateway
            && self.table == other.table.unwrap_or(main)
            // The kernel has a default of its own for IPv6.
            && (other.priority.is_none() || self.priority.unwrap_or(0) == other.priority.unwrap_or(0))
    }
}

/// Returns the request that adds a route through an interface.
pub(in crate::linux::netlink) fn add(index: u32, route: &InterfaceRoute) -> NetlinkRequest {
    let IpPrefix { address, length } = route.destination;
    let (family, octets) = encode_ip(address);
    let mut attributes = Attributes::default();
    if length > 0 {
        attributes = attributes.with(RTA_DST, &octets);
    }
    attributes = attributes.with_u32(RTA_OIF, index);
    if let Some(gateway) = route.gateway {
        attributes = attributes.with(RTA_GATEWAY, &encode_ip(gateway).1);
    }
    if let Some(priority) = route.priority {
        attributes = attributes.with_u32(RTA_PRIORITY, priority);
    }
    let metrics = [(RTAX_MTU, route.mtu), (RTAX_ADVMSS, route.advmss)];
    if metrics.iter().any(|(_, value)| value.is_some()) {
        let add = |all: Attributes, (kind, value): (u16, Option<u32>)| match value {
            Some(value) => all.with_u32(kind, value),
            None => all,
        };
        attributes =
            attributes.with_nested(RTA_METRICS, &metrics.into_iter().fold(Attributes::default(), add));
    }
    // Numbers of tables above 255 fit only into the attribute.
    let table = match route.table {
        None => RT_TABLE_MAIN,
        Some(table) => {
            attributes = attributes.with_u32(RTA_TABLE, table);
            u8::try_from(table).unwrap_or(RT_TABLE_UNSPEC)
        }
    };
    let without_gateway = family == AF_INET && route.gateway.is_none();
    let scope = route.scope.unwrap_or(if without_gateway { RT_SCOPE_LINK } else { RT_SCOPE_UNIVERSE });
    let header = [family, length, 0, 0, table, RTPROT_BOOT, scope, RTN_UNICAST, 0, 0, 0, 0];
    NetlinkRequest { kind: RTM_NEWROUTE, body: attributes.after(&header) }
}

/// Returns the family and the bytes of an address.
fn encode_ip(address: IpAddr) -> (u8, Vec<u8>) {
    match address {
        IpAddr::V4(address) => (AF_INET, address.octets().to_vec()),
        IpAddr::V6(address) => (AF_INET6, address.octets().to_vec()),
    }
}

/// Returns the request for the route to an address.
pub(in crate::linux::netlink) fn get(destination: IpAddr) -> NetlinkRequest {
    let (family, octets) = encode_ip(destination);
    let bits = if family == AF_INET { 32 } else { 128 };
    let header = [family, bits, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    NetlinkRequest { kind: RTM_GETROUTE, body: Attributes::default().with(RTA_DST, &octets).after(&header) }
}

/// Returns the request for the routes of all families.
pub(in crate::linux::netlink) fn list() -> NetlinkRequest {
    NetlinkRequest { kind: RTM_GETROUTE, body: vec![0; HEADER] }
}

/// Parses the interfaces of a multipath route: each hop has a length, flags, weight and interface, then attributes.
fn parse_multipath(mut bytes: &[u8]) -> Option<Vec<u32>> {
    let mut interfaces = Vec::new();
    while let Some(hop) = bytes.first_chunk::<NEXT_HOP>() {
        let length = usize::from(u16::from_ne_bytes([hop[0], hop[1]]));
        if length < NEXT_HOP {
            return None;
        }
        interfaces.push(u32::from_ne_bytes([hop[4], hop[5], hop[6], hop[7]]));
        bytes.get(..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(interfaces)
}

#[cfg(test)]
#[path = "route/tests.rs"]
mod tests;
