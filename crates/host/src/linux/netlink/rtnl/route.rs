//! Routes.

use std::net::IpAddr;

use super::RTM_GETROUTE;
use crate::linux::netlink::NetlinkRequest;
use crate::linux::netlink::attribute::{Attributes, ReceivedAttributes};

const HEADER: usize = 12;
const NEXT_HOP: usize = 8;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_MULTIPATH: u16 = 9;
const RTA_NH_ID: u16 = 30;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const RTN_UNICAST: u8 = 1;

/// Route of any table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::linux) struct Route {
    /// The route is a default route of its table.
    pub(in crate::linux) is_default: bool,
    /// Interfaces of the route.
    pub(in crate::linux) interfaces: Vec<u32>,
    /// ID of its next hop object. The interfaces of the object may be missing in `interfaces`.
    pub(in crate::linux) next_hop: Option<u32>,
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
        Some(Self { is_default, interfaces, next_hop: attributes.u32(RTA_NH_ID) })
    }
}

/// Returns the request for the route to an address.
pub(in crate::linux::netlink) fn get(destination: IpAddr) -> NetlinkRequest {
    let (family, octets) = match destination {
        IpAddr::V4(address) => (AF_INET, address.octets().to_vec()),
        IpAddr::V6(address) => (AF_INET6, address.octets().to_vec()),
    };
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
mod tests {
    use netlink_packet_core::Emitable;
    use netlink_packet_route::AddressFamily;
    use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteNextHop, RouteType};
    use proptest::prelude::*;

    use super::*;

    fn route(destination_length: u8, table: u8, attributes: Vec<RouteAttribute>) -> Vec<u8> {
        let mut message = RouteMessage::default();
        message.header.destination_prefix_length = destination_length;
        message.header.table = table;
        message.header.kind = RouteType::Unicast;
        message.attributes = attributes;
        let mut bytes = vec![0; message.buffer_len()];
        message.emit(&mut bytes);
        bytes
    }

    fn two_hops() -> Vec<u8> {
        let hop = |index| {
            let mut hop = RouteNextHop::default();
            hop.interface_index = index;
            hop
        };
        route(0, 254, vec![RouteAttribute::MultiPath(vec![hop(5), hop(6)])])
    }

    fn read(is_default: bool, interfaces: &[u32]) -> Route {
        Route { is_default, interfaces: interfaces.to_vec(), next_hop: None }
    }

    #[test]
    fn parses_default_routes_of_any_table() {
        assert_eq!(Route::parse(&route(0, 254, vec![RouteAttribute::Oif(4)])), Some(read(true, &[4])));
        assert_eq!(Route::parse(&route(0, 100, vec![RouteAttribute::Oif(4)])), Some(read(true, &[4])));
        let by_attribute = vec![RouteAttribute::Table(1000), RouteAttribute::Oif(4)];
        assert_eq!(Route::parse(&route(0, 252, by_attribute)), Some(read(true, &[4])));
        let by_id = Attributes::default().with_u32(RTA_NH_ID, 7).after(&route(0, 254, Vec::new()));
        assert_eq!(Route::parse(&by_id), Some(Route { next_hop: Some(7), ..read(true, &[]) }));
        assert_eq!(Route::parse(&two_hops()), Some(read(true, &[5, 6])));
    }

    #[test]
    fn other_routes_are_not_default_routes() {
        assert_eq!(Route::parse(&route(24, 254, vec![RouteAttribute::Oif(4)])), Some(read(false, &[4])));
        let mut unreachable = route(0, 254, vec![RouteAttribute::Oif(4)]);
        unreachable[7] = 7;
        assert_eq!(Route::parse(&unreachable), Some(read(false, &[4])));
        assert_eq!(Route::parse(&[0; 5]), None);
    }

    #[test]
    fn a_request_equals_that_of_an_independent_encoder() {
        let encoded = |destination: IpAddr| {
            let mut message = RouteMessage::default();
            let (family, length, address) = match destination {
                IpAddr::V4(address) => (AddressFamily::Inet, 32, RouteAddress::Inet(address)),
                IpAddr::V6(address) => (AddressFamily::Inet6, 128, RouteAddress::Inet6(address)),
            };
            (message.header.address_family, message.header.destination_prefix_length) = (family, length);
            message.attributes = vec![RouteAttribute::Destination(address)];
            let mut bytes = vec![0; message.buffer_len()];
            message.emit(&mut bytes);
            bytes
        };
        for address in ["192.0.2.7", "2001:db8::7"] {
            let address = address.parse().unwrap();
            assert_eq!(get(address).body, encoded(address));
        }
    }

    #[test]
    fn a_hop_that_is_longer_than_its_route_is_invalid() {
        let mut bytes = two_hops();
        let at = bytes.len() - 8;
        bytes[at..at + 2].copy_from_slice(&12_u16.to_ne_bytes());
        assert_eq!(Route::parse(&bytes), None);
    }

    proptest! {
        #[test]
        fn accepts_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = (Route::parse(&bytes), parse_multipath(&bytes));
        }

        #[test]
        fn accepts_a_damaged_route(at in 0_usize..60, byte: u8) {
            let mut bytes = two_hops();
            let at = at % bytes.len();
            bytes[at] = byte;
            let _ = Route::parse(&bytes);
        }
    }
}
