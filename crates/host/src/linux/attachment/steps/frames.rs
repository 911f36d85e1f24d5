//! Frames that announce an IP address: a gratuitous ARP request (RFC 5227), and an unsolicited neighbor advertisement
//! (RFC 4861).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use vfleet_api::MacAddr;

const BROADCAST: MacAddr = MacAddr([0xff; 6]);
/// Address of all nodes on the link, and its form in Ethernet.
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_NODES_MAC: MacAddr = MacAddr([0x33, 0x33, 0, 0, 0, 1]);
const ETHERTYPE_ARP: u16 = 0x0806;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ICMPV6: u8 = 58;
/// Receivers ignore advertisements with another hop limit: they may come from another network.
const HOP_LIMIT: u8 = 255;
const NEIGHBOR_ADVERTISEMENT: u8 = 136;
/// The advertisement replaces what the receiver knows.
const OVERRIDE: u8 = 0x20;
const TARGET_LINK_LAYER_ADDRESS: u8 = 2;

/// Returns the frame that announces that `ip` is at `mac`.
pub(super) fn announcement(mac: MacAddr, ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => arp_request(mac, ip),
        IpAddr::V6(ip) => neighbor_advertisement(mac, ip),
    }
}

fn ethernet(destination: MacAddr, source: MacAddr, ethertype: u16, payload: &[u8]) -> Vec<u8> {
    [&destination.0[..], &source.0, &ethertype.to_be_bytes(), payload].concat()
}

/// Returns the request for the own address.
fn arp_request(mac: MacAddr, ip: Ipv4Addr) -> Vec<u8> {
    let ethernet_and_ipv4 = [0, 1, 0x08, 0, 6, 4];
    let request = [0, 1];
    let octets = ip.octets();
    let payload = [&ethernet_and_ipv4[..], &request, &mac.0, &octets, &BROADCAST.0, &octets].concat();
    ethernet(BROADCAST, mac, ETHERTYPE_ARP, &payload)
}

fn neighbor_advertisement(mac: MacAddr, ip: Ipv6Addr) -> Vec<u8> {
    let address = ip.octets();
    let message = |checksum: u16| {
        let flags = [OVERRIDE, 0, 0, 0];
        let option = [TARGET_LINK_LAYER_ADDRESS, 1];
        let head = [NEIGHBOR_ADVERTISEMENT, 0];
        [&head[..], &checksum.to_be_bytes(), &flags, &address, &option, &mac.0].concat()
    };
    let length = u16::try_from(message(0).len()).unwrap_or(u16::MAX);
    let checked = [
        &address[..],
        &ALL_NODES.octets(),
        &u32::from(length).to_be_bytes(),
        &[0, 0, 0, ICMPV6],
        &message(0),
    ];
    let message = message(checksum(&checked.concat()));
    let header = [&[0x60, 0, 0, 0][..], &length.to_be_bytes(), &[ICMPV6, HOP_LIMIT]].concat();
    let packet = [&header[..], &address, &ALL_NODES.octets(), &message].concat();
    ethernet(ALL_NODES_MAC, mac, ETHERTYPE_IPV6, &packet)
}

/// Returns the checksum of the internet protocols (RFC 1071) over an even number of bytes.
fn checksum(bytes: &[u8]) -> u16 {
    let (words, _) = bytes.as_chunks::<2>();
    let mut sum: u32 = words.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
    }

    #[test]
    fn announcements_have_these_bytes() {
        assert_eq!(
            hex(&announcement(MAC, "192.0.2.7".parse().unwrap())),
            "ffffffffffff020000000009080600010800060400010200000000\
             09c0000207ffffffffffffc0000207"
        );
        let frame = announcement(MAC, "2001:db8::7".parse().unwrap());
        assert_eq!(
            hex(&frame[..54]),
            "33330000000102000000000986dd6000000000203aff\
             20010db8000000000000000000000007ff020000000000000000000000000001"
        );
        assert_eq!(hex(&frame[54..56]), "8800");
        assert_eq!(hex(&frame[58..]), "2000000020010db80000000000000000000000070201020000000009");
    }

    #[test]
    fn the_checksum_of_a_message_with_its_checksum_is_zero() {
        let frame = announcement(MAC, "2001:db8::7".parse().unwrap());
        let pseudo = [&frame[22..54], &32_u32.to_be_bytes(), &[0, 0, 0, ICMPV6], &frame[54..]].concat();
        assert_eq!(checksum(&pseudo), 0);
        // The example of RFC 1071.
        assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
    }
}
