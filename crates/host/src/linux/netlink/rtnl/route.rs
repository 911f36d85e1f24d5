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
mod tests {
    use netlink_bindings::rt_route as independent;
    use netlink_packet_core::Emitable;
    use netlink_packet_route::AddressFamily;
    use netlink_packet_route::route::{
        RouteAddress, RouteAttribute, RouteMessage, RouteNextHop, RouteProtocol, RouteScope, RouteType,
    };
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

    type Parsed = Option<(bool, Vec<u32>, Option<u32>)>;

    fn parse(payload: &[u8]) -> Parsed {
        Route::parse(payload).map(|route| (route.is_default, route.interfaces, route.next_hop))
    }

    fn read(is_default: bool, interfaces: &[u32]) -> Parsed {
        Some((is_default, interfaces.to_vec(), None))
    }

    #[test]
    fn parses_default_routes_of_any_table() {
        assert_eq!(parse(&route(0, 254, vec![RouteAttribute::Oif(4)])), read(true, &[4]));
        assert_eq!(parse(&route(0, 100, vec![RouteAttribute::Oif(4)])), read(true, &[4]));
        let by_attribute = vec![RouteAttribute::Table(1000), RouteAttribute::Oif(4)];
        assert_eq!(parse(&route(0, 252, by_attribute)), read(true, &[4]));
        let by_id = Attributes::default().with_u32(RTA_NH_ID, 7).after(&route(0, 254, Vec::new()));
        assert_eq!(parse(&by_id), Some((true, Vec::new(), Some(7))));
        assert_eq!(parse(&two_hops()), read(true, &[5, 6]));
    }

    #[test]
    fn other_routes_are_not_default_routes() {
        assert_eq!(parse(&route(24, 254, vec![RouteAttribute::Oif(4)])), read(false, &[4]));
        let mut unreachable = route(0, 254, vec![RouteAttribute::Oif(4)]);
        unreachable[7] = 7;
        assert_eq!(parse(&unreachable), read(false, &[4]));
        assert_eq!(parse(&[0; 5]), None);
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

    fn through(destination: &str, length: u8) -> InterfaceRoute {
        let destination = IpPrefix { address: destination.parse().unwrap(), length };
        let (gateway, mtu, advmss) = (None, None, None);
        InterfaceRoute { destination, gateway, mtu, advmss, priority: None, table: None, scope: None }
    }

    fn address(text: &str) -> RouteAddress {
        match text.parse().unwrap() {
            IpAddr::V4(address) => RouteAddress::Inet(address),
            IpAddr::V6(address) => RouteAddress::Inet6(address),
        }
    }

    /// Returns the request of the independent encoder.
    fn written(
        (family, length, table, scope): (AddressFamily, u8, u8, RouteScope),
        attributes: Vec<RouteAttribute>,
    ) -> NetlinkRequest {
        let mut message = RouteMessage::default();
        message.header.address_family = family;
        message.header.destination_prefix_length = length;
        message.header.table = table;
        message.header.scope = scope;
        message.header.protocol = RouteProtocol::Boot;
        message.header.kind = RouteType::Unicast;
        message.attributes = attributes;
        let mut bytes = vec![0; message.buffer_len()];
        message.emit(&mut bytes);
        NetlinkRequest { kind: 24, body: bytes }
    }

    #[test]
    fn requests_for_new_routes_equal_those_of_an_independent_encoder() {
        let (v4, v6) = (AddressFamily::Inet, AddressFamily::Inet6);
        let plain = vec![RouteAttribute::Destination(address("10.1.0.0")), RouteAttribute::Oif(7)];
        assert_eq!(add(7, &through("10.1.0.0", 16)), written((v4, 16, 254, RouteScope::Link), plain));
        let route = InterfaceRoute {
            gateway: Some("10.0.0.1".parse().unwrap()),
            priority: Some(100),
            table: Some(1000),
            ..through("0.0.0.0", 0)
        };
        let attributes = vec![
            RouteAttribute::Oif(7),
            RouteAttribute::Gateway(address("10.0.0.1")),
            RouteAttribute::Priority(100),
            RouteAttribute::Table(1000),
        ];
        assert_eq!(add(7, &route), written((v4, 0, 0, RouteScope::Universe), attributes));
        let route = InterfaceRoute { table: Some(100), scope: Some(200), ..through("2001:db8::", 32) };
        let attributes = vec![
            RouteAttribute::Destination(address("2001:db8::")),
            RouteAttribute::Oif(7),
            RouteAttribute::Table(100),
        ];
        assert_eq!(add(7, &route), written((v6, 32, 100, RouteScope::Site), attributes));
    }

    /// The other library that has metrics of routes.
    #[test]
    fn metrics_of_new_routes_equal_those_of_an_independent_encoder() {
        let route = InterfaceRoute { mtu: Some(1400), advmss: Some(1300), ..through("2001:db8::", 32) };
        let mut header = independent::Rtmsg::new();
        (header.rtm_family, header.rtm_dst_len, header.rtm_table) = (10, 32, 254);
        (header.rtm_protocol, header.rtm_type) = (3, 1);
        let mut bytes = Vec::new();
        let request = independent::OpNewrouteDo::encode_request(&mut bytes, &header);
        let request = request.push_dst("2001:db8::".parse().unwrap()).push_oif(7);
        drop(request.nested_metrics().push_mtu(1400).push_advmss(1300));
        assert_eq!(add(7, &route).body, bytes);
    }

    #[test]
    fn an_equal_route_is_recognized() {
        let asked = InterfaceRoute { gateway: Some("10.0.0.1".parse().unwrap()), ..through("10.1.0.0", 16) };
        let parse = |route: &InterfaceRoute, index| Route::parse(&add(index, route).body).unwrap();
        assert!(parse(&asked, 7).is_through(7, &asked));
        assert!(!parse(&asked, 8).is_through(7, &asked));
        for other in [
            InterfaceRoute { gateway: None, ..asked.clone() },
            InterfaceRoute { gateway: Some("10.0.0.2".parse().unwrap()), ..asked.clone() },
            InterfaceRoute { table: Some(100), ..asked.clone() },
            InterfaceRoute { gateway: asked.gateway, ..through("10.1.0.0", 17) },
        ] {
            assert!(!parse(&other, 7).is_through(7, &asked), "{other:?}");
        }
        let urgent = InterfaceRoute { priority: Some(5), ..asked.clone() };
        assert!(parse(&urgent, 7).is_through(7, &asked), "any priority");
        assert!(!parse(&asked, 7).is_through(7, &urgent));
        let default = through("::", 0);
        assert!(parse(&default, 7).is_through(7, &default));
        assert!(!parse(&default, 7).is_through(7, &through("0.0.0.0", 0)));
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
