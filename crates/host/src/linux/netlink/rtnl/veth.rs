//! Pairs of virtual interfaces (veth).

use vfleet_api::MacAddr;

use super::RTM_NEWLINK;
use super::link::{
    HEADER, IFLA_ADDRESS, IFLA_IFNAME, IFLA_INFO_DATA, IFLA_INFO_KIND, IFLA_LINKINFO, IFLA_MTU,
    IFLA_NET_NS_FD, body,
};
use crate::linux::netlink::NetlinkRequest;
use crate::linux::netlink::attribute::Attributes;

/// Kind of both ends of a pair.
pub(in crate::linux) const VETH: &str = "veth";

const VETH_INFO_PEER: u16 = 1;

/// Pair to create: one end in the namespace of a pod, one in that of the host.
#[derive(Clone, Copy, Debug)]
pub(in crate::linux) struct VethPair<'a> {
    pub(in crate::linux) pod: VethEnd<'a>,
    pub(in crate::linux) host: VethEnd<'a>,
    /// MTU of both ends.
    pub(in crate::linux) mtu: u32,
}

/// End of a pair.
#[derive(Clone, Copy, Debug)]
pub(in crate::linux) struct VethEnd<'a> {
    pub(in crate::linux) name: &'a str,
    pub(in crate::linux) mac: MacAddr,
}

/// Returns the request that creates a pair. The end in the pod is created in the namespace of the open file `namespace`, the
/// other one in that of the socket. Both are down.
pub(in crate::linux::netlink) fn create_pair(pair: &VethPair<'_>, namespace: u32) -> NetlinkRequest {
    let peer = end(&pair.host, pair.mtu).after(&[0; HEADER]);
    let info = Attributes::default()
        .with_text(IFLA_INFO_KIND, VETH)
        .with_nested(IFLA_INFO_DATA, &Attributes::default().with(VETH_INFO_PEER, &peer));
    let attributes =
        end(&pair.pod, pair.mtu).with_u32(IFLA_NET_NS_FD, namespace).with_nested(IFLA_LINKINFO, &info);
    NetlinkRequest { kind: RTM_NEWLINK, body: body(0, 0, &attributes) }
}

/// Returns the attributes of one end.
fn end(end: &VethEnd<'_>, mtu: u32) -> Attributes {
    Attributes::default()
        .with_text(IFLA_IFNAME, end.name)
        .with(IFLA_ADDRESS, &end.mac.0)
        .with_u32(IFLA_MTU, mtu)
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::Emitable;
    use netlink_packet_route::link::{InfoData, InfoKind, InfoVeth, LinkAttribute, LinkInfo, LinkMessage};

    use super::*;

    /// Removes the flag for attributes that contain others, which the other encoder does not set.
    fn without_flags(mut bytes: Vec<u8>, attributes: &[usize]) -> Vec<u8> {
        for at in attributes {
            bytes[at + 3] &= 0x7f;
        }
        bytes
    }

    #[test]
    fn a_request_equals_that_of_an_independent_encoder() {
        let [pod, host] = [9, 8].map(|last| MacAddr([2, 0, 0, 0, 0, last]));
        let end = |name: &str, mac: MacAddr| {
            let name = LinkAttribute::IfName(name.to_owned());
            vec![name, LinkAttribute::Address(mac.0.to_vec()), LinkAttribute::Mtu(9000)]
        };
        let mut peer = LinkMessage::default();
        peer.attributes = end("veth1", host);
        let mut message = LinkMessage::default();
        message.attributes = end("net1", pod);
        message.attributes.extend([
            LinkAttribute::NetNsFd(5),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::Veth),
                LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
            ]),
        ]);
        let mut expected = vec![0; message.buffer_len()];
        message.emit(&mut expected);
        let pair = VethPair {
            pod: VethEnd { name: "net1", mac: pod },
            host: VethEnd { name: "veth1", mac: host },
            mtu: 9000,
        };
        // After the header, name, address, MTU and namespace; then after its own header and the kind.
        let info = HEADER + 12 + 12 + 8 + 8;
        let nested = [info, info + 4 + 12];
        let found = create_pair(&pair, 5).body;
        assert_eq!(without_flags(found, &nested), without_flags(expected, &nested));
    }
}
