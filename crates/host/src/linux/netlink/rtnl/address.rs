//! IP addresses of interfaces.

use std::net::IpAddr;

use vfleet_plan::cni::step::IpPrefix;

use super::{AF_INET, AF_INET6, RTM_GETADDR, RTM_NEWADDR};
use crate::linux::netlink::NetlinkRequest;
use crate::linux::netlink::attribute::{Attributes, ReceivedAttributes};

const HEADER: usize = 8;
/// Scope of addresses that are valid only on the link. Lower numbers have a wider scope.
const RT_SCOPE_LINK: u8 = 253;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_BROADCAST: u16 = 4;
const IFA_FLAGS: u16 = 8;
const IFA_F_DADFAILED: u32 = 0x08;
const IFA_F_TENTATIVE: u32 = 0x40;
/// Length from which on an IPv4 network has no broadcast address.
const POINT_TO_POINT_LENGTH: u8 = 31;

/// Address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::linux) struct InterfaceAddress {
    pub(in crate::linux) index: u32,
    /// The scope is wider than the link: neither a loopback nor a link-local address.
    pub(in crate::linux) is_global: bool,
    /// `None` for families other than IPv4 and IPv6.
    pub(in crate::linux) ip: Option<IpAddr>,
    pub(in crate::linux) prefix_length: u8,
    /// The kernel has not finished to check that no other machine has the address.
    pub(in crate::linux) is_tentative: bool,
    /// Another machine has the address.
    pub(in crate::linux) is_duplicate: bool,
}

impl InterfaceAddress {
    /// Parses the payload of an `RTM_NEWADDR` or `RTM_DELADDR`.
    pub(in crate::linux) fn parse(payload: &[u8]) -> Option<Self> {
        let (header, rest) = payload.split_first_chunk::<HEADER>()?;
        let index = u32::from_ne_bytes([header[4], header[5], header[6], header[7]]);
        let attributes = ReceivedAttributes::parse(rest)?;
        // On a point-to-point link IFA_ADDRESS is the address of the other end.
        let value = attributes.get(IFA_LOCAL).or_else(|| attributes.get(IFA_ADDRESS));
        let flags = attributes.u32(IFA_FLAGS).unwrap_or_else(|| header[2].into());
        Some(Self {
            index,
            is_global: header[3] < RT_SCOPE_LINK,
            ip: value.and_then(parse_ip),
            prefix_length: header[1],
            is_tentative: flags & IFA_F_TENTATIVE != 0,
            is_duplicate: flags & IFA_F_DADFAILED != 0,
        })
    }
}

/// Returns the request that adds an address to an interface, with the broadcast address of its network.
pub(in crate::linux::netlink) fn add(index: u32, address: IpPrefix) -> NetlinkRequest {
    let IpPrefix { address, length } = address;
    let (family, attributes) = match address {
        IpAddr::V4(ip) => {
            let octets = ip.octets();
            let attributes = Attributes::default().with(IFA_LOCAL, &octets).with(IFA_ADDRESS, &octets);
            let host_bits = u32::MAX.checked_shr(length.into()).unwrap_or(0);
            let broadcast = (ip.to_bits() | host_bits).to_be_bytes();
            let has_broadcast = length < POINT_TO_POINT_LENGTH;
            (AF_INET, if has_broadcast { attributes.with(IFA_BROADCAST, &broadcast) } else { attributes })
        }
        IpAddr::V6(ip) => {
            let octets = ip.octets();
            (AF_INET6, Attributes::default().with(IFA_LOCAL, &octets).with(IFA_ADDRESS, &octets))
        }
    };
    let [a, b, c, d] = index.to_ne_bytes();
    NetlinkRequest { kind: RTM_NEWADDR, body: attributes.after(&[family, length, 0, 0, a, b, c, d]) }
}

/// Returns the request for the addresses of all families.
pub(in crate::linux::netlink) fn list() -> NetlinkRequest {
    NetlinkRequest { kind: RTM_GETADDR, body: vec![0; HEADER] }
}

/// Parses an address of 4 or 16 bytes.
pub(super) fn parse_ip(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = || bytes.try_into().ok().map(|bytes: [u8; 4]| IpAddr::from(bytes));
    let v6 = || bytes.try_into().ok().map(|bytes: [u8; 16]| IpAddr::from(bytes));
    v4().or_else(v6)
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::Emitable;
    use netlink_packet_route::AddressFamily;
    use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
    use proptest::prelude::*;

    use super::*;

    fn emit(attributes: Vec<AddressAttribute>) -> Vec<u8> {
        let mut message = AddressMessage::default();
        message.header.index = 3;
        message.attributes = attributes;
        let mut bytes = vec![0; message.buffer_len()];
        message.emit(&mut bytes);
        bytes
    }

    fn found(is_global: bool, ip: Option<IpAddr>, prefix_length: u8) -> InterfaceAddress {
        let (is_tentative, is_duplicate) = (false, false);
        InterfaceAddress { index: 3, is_global, ip, prefix_length, is_tentative, is_duplicate }
    }

    #[test]
    fn parses_addresses() {
        let (own, other): (IpAddr, IpAddr) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let line = emit(vec![AddressAttribute::Address(other), AddressAttribute::Local(own)]);
        assert_eq!(InterfaceAddress::parse(&line), Some(found(true, Some(own), 0)));
        let v6: IpAddr = "2001:db8::1".parse().unwrap();
        let six = emit(vec![AddressAttribute::Address(v6)]);
        assert_eq!(InterfaceAddress::parse(&six), Some(found(true, Some(v6), 0)));
        assert_eq!(InterfaceAddress::parse(&emit(Vec::new())), Some(found(true, None, 0)));
        assert_eq!(InterfaceAddress::parse(&[]), None);
        let for_the_link = [10, 64, 0, 253, 3, 0, 0, 0];
        assert_eq!(InterfaceAddress::parse(&for_the_link), Some(found(false, None, 64)));
    }

    #[test]
    fn reads_the_flags_of_duplicate_address_detection() {
        let state = |bytes: &[u8]| {
            let address = InterfaceAddress::parse(bytes).unwrap();
            (address.is_tentative, address.is_duplicate)
        };
        let with = |flags| emit(vec![AddressAttribute::Flags(flags)]);
        assert_eq!(state(&with(AddressFlags::Tentative)), (true, false));
        assert_eq!(state(&with(AddressFlags::Tentative | AddressFlags::Dadfailed)), (true, true));
        assert_eq!(state(&with(AddressFlags::Permanent)), (false, false));
        assert_eq!(state(&[10, 64, 0x48, 0, 3, 0, 0, 0]), (true, true), "flags of kernels before 3.14");
    }

    #[test]
    fn requests_equal_those_of_an_independent_encoder() {
        let written = |text: &str, length, attributes: &[(u16, &str)]| {
            let ip: IpAddr = text.parse().unwrap();
            let mut message = AddressMessage::default();
            message.header.index = 3;
            message.header.prefix_len = length;
            message.header.family = if ip.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
            let attribute = |(kind, ip): &(u16, &str)| match *kind {
                IFA_LOCAL => AddressAttribute::Local(ip.parse().unwrap()),
                IFA_ADDRESS => AddressAttribute::Address(ip.parse().unwrap()),
                _ => AddressAttribute::Broadcast(ip.parse().unwrap()),
            };
            message.attributes = attributes.iter().map(attribute).collect();
            let mut bytes = vec![0; message.buffer_len()];
            message.emit(&mut bytes);
            assert_eq!(
                add(3, IpPrefix { address: ip, length }),
                NetlinkRequest { kind: 20, body: bytes },
                "{text}"
            );
        };
        let both = |ip| [(IFA_LOCAL, ip), (IFA_ADDRESS, ip)];
        let with = |ip, broadcast| [&both(ip)[..], &[(IFA_BROADCAST, broadcast)]].concat();
        written("10.0.0.7", 24, &with("10.0.0.7", "10.0.0.255"));
        written("10.0.0.7", 8, &with("10.0.0.7", "10.255.255.255"));
        written("10.0.0.7", 0, &with("10.0.0.7", "255.255.255.255"));
        written("10.0.0.7", 30, &with("10.0.0.7", "10.0.0.7"));
        written("10.0.0.7", 31, &both("10.0.0.7"));
        written("10.0.0.7", 32, &both("10.0.0.7"));
        written("2001:db8::7", 64, &both("2001:db8::7"));
    }

    proptest! {
        #[test]
        fn accepts_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = InterfaceAddress::parse(&bytes);
        }
    }
}
