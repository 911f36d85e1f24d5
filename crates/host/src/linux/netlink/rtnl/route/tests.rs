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

type Parsed = (bool, Vec<u32>, Option<u32>);

fn parse(payload: &[u8]) -> Option<Parsed> {
    Route::parse(payload).map(|route| (route.is_default, route.interfaces, route.next_hop))
}

fn read(is_default: bool, interfaces: &[u32]) -> Parsed {
    (is_default, interfaces.to_vec(), None)
}

#[test]
fn parses_default_routes_of_any_table() {
    assert_eq!(parse(&route(0, 254, vec![RouteAttribute::Oif(4)])), Some(read(true, &[4])));
    assert_eq!(parse(&route(0, 100, vec![RouteAttribute::Oif(4)])), Some(read(true, &[4])));
    let by_attribute = vec![RouteAttribute::Table(1000), RouteAttribute::Oif(4)];
    assert_eq!(parse(&route(0, 252, by_attribute)), Some(read(true, &[4])));
    let by_id = Attributes::default().with_u32(RTA_NH_ID, 7).after(&route(0, 254, Vec::new()));
    assert_eq!(parse(&by_id), Some((true, Vec::new(), Some(7))));
    assert_eq!(parse(&two_hops()), Some(read(true, &[5, 6])));
}

#[test]
fn other_routes_are_not_default_routes() {
    assert_eq!(parse(&route(24, 254, vec![RouteAttribute::Oif(4)])), Some(read(false, &[4])));
    let mut unreachable = route(0, 254, vec![RouteAttribute::Oif(4)]);
    unreachable[7] = 7;
    assert_eq!(parse(&unreachable), Some(read(false, &[4])));
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
