//! IP addresses of interfaces.

use std::net::IpAddr;

use super::RTM_GETADDR;
use crate::linux::netlink::NetlinkRequest;
use crate::linux::netlink::attribute::ReceivedAttributes;

const HEADER: usize = 8;
/// Scope of addresses that are valid only on the link. Lower numbers have a wider scope.
const RT_SCOPE_LINK: u8 = 253;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;

/// Address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::linux) struct InterfaceAddress {
    pub(in crate::linux) index: u32,
    /// The scope is wider than the link: neither a loopback nor a link-local address.
    pub(in crate::linux) is_global: bool,
    /// `None` for families other than IPv4 and IPv6.
    pub(in crate::linux) ip: Option<IpAddr>,
}

impl InterfaceAddress {
    /// Parses the payload of an `RTM_NEWADDR` or `RTM_DELADDR`.
    pub(in crate::linux) fn parse(payload: &[u8]) -> Option<Self> {
        let (header, rest) = payload.split_first_chunk::<HEADER>()?;
        let index = u32::from_ne_bytes([header[4], header[5], header[6], header[7]]);
        let attributes = ReceivedAttributes::parse(rest)?;
        // On a point-to-point link IFA_ADDRESS is the address of the other end.
        let value = attributes.get(IFA_LOCAL).or_else(|| attributes.get(IFA_ADDRESS));
        Some(Self { index, is_global: header[3] < RT_SCOPE_LINK, ip: value.and_then(parse_ip) })
    }
}

/// Returns the request for the addresses of all families.
pub(in crate::linux::netlink) fn list() -> NetlinkRequest {
    NetlinkRequest { kind: RTM_GETADDR, body: vec![0; HEADER] }
}

fn parse_ip(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = || bytes.try_into().ok().map(|bytes: [u8; 4]| IpAddr::from(bytes));
    let v6 = || bytes.try_into().ok().map(|bytes: [u8; 16]| IpAddr::from(bytes));
    v4().or_else(v6)
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::Emitable;
    use netlink_packet_route::address::{AddressAttribute, AddressMessage};
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

    #[test]
    fn parses_addresses() {
        let (own, other): (IpAddr, IpAddr) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let line = emit(vec![AddressAttribute::Address(other), AddressAttribute::Local(own)]);
        assert_eq!(
            InterfaceAddress::parse(&line),
            Some(InterfaceAddress { index: 3, is_global: true, ip: Some(own) })
        );
        let v6: IpAddr = "2001:db8::1".parse().unwrap();
        let six = emit(vec![AddressAttribute::Address(v6)]);
        assert_eq!(
            InterfaceAddress::parse(&six),
            Some(InterfaceAddress { index: 3, is_global: true, ip: Some(v6) })
        );
        assert_eq!(
            InterfaceAddress::parse(&emit(Vec::new())),
            Some(InterfaceAddress { index: 3, is_global: true, ip: None })
        );
        assert_eq!(InterfaceAddress::parse(&[]), None);
        let for_the_link = [10, 64, 0, 253, 3, 0, 0, 0];
        assert_eq!(
            InterfaceAddress::parse(&for_the_link),
            Some(InterfaceAddress { index: 3, is_global: false, ip: None })
        );
    }

    proptest! {
        #[test]
        fn accepts_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = InterfaceAddress::parse(&bytes);
        }
    }
}
