use std::collections::BTreeMap;

use netlink_packet_core::NlasIterator;
use netlink_packet_route::link::{LinkFlags, LinkHeader};
use vfleet_api::MacAddr;
use vfleet_plan::LinkKind;

const HEADER: usize = 16;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_VFINFO_LIST: u16 = 22;
const IFLA_VF_INFO: u16 = 1;
const IFLA_VF_MAC: u16 = 1;
const IFLA_MAX_MTU: u16 = 51;
const IFLA_PROP_LIST: u16 = 52;
const IFLA_ALT_IFNAME: u16 = 53;
const ARPHRD_ETHER: u16 = 1;
const ARPHRD_INFINIBAND: u16 = 32;

/// A network interface as rtnetlink describes it. Only the attributes that are needed are looked at: a driver
/// that says odd things about others does not matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Link {
    pub(in super::super) name: String,
    pub(in super::super) alt_names: Vec<String>,
    pub(in super::super) kind: LinkKind,
    pub(in super::super) mac: Option<MacAddr>,
    pub(in super::super) mtu: u32,
    pub(in super::super) max_mtu: Option<u32>,
    pub(in super::super) is_up: bool,
    /// The addresses that it keeps for its VFs, by the VF's index.
    pub(in super::super) vf_macs: BTreeMap<u32, MacAddr>,
}

impl Link {
    /// The interface that the payload of an `RTM_NEWLINK` describes.
    pub(super) fn parse(payload: &[u8]) -> Option<Self> {
        let header = LinkHeader::parse(payload).ok()?;
        let attributes = attributes(payload.get(HEADER..)?)?;
        let find = |kind| attributes.iter().find(|(found, _)| *found == kind).map(|(_, value)| value);
        let nested = |kind| find(kind).map_or(Some(Vec::new()), |value| self::attributes(value));
        Some(Self {
            name: text(find(IFLA_IFNAME)?),
            alt_names: alt_names(&nested(IFLA_PROP_LIST)?),
            kind: kind(header.link_layer_type.into()),
            mac: find(IFLA_ADDRESS).and_then(|value| value.as_slice().try_into().ok()).map(MacAddr),
            mtu: number(find(IFLA_MTU)?)?,
            // Zero is how drivers say nothing.
            max_mtu: find(IFLA_MAX_MTU).and_then(|value| number(value)).filter(|max| *max > 0),
            is_up: header.flags.contains(LinkFlags::Up),
            vf_macs: nested(IFLA_VFINFO_LIST)?
                .iter()
                .filter(|(kind, _)| *kind == IFLA_VF_INFO)
                .filter_map(|(_, info)| vf_mac(info))
                .collect(),
        })
    }
}

/// Whether the payload of a link message is about an interface that software made (veth, bridge...), which no
/// network card has. IPoIB is the exception: its own interfaces have a kind, too.
pub(in super::super) fn is_virtual(payload: &[u8]) -> bool {
    let kind = || {
        let attributes = attributes(payload.get(HEADER..)?)?;
        let (_, info) = attributes.into_iter().find(|(kind, _)| *kind == IFLA_LINKINFO)?;
        let (_, kind) = self::attributes(&info)?.into_iter().find(|(kind, _)| *kind == IFLA_INFO_KIND)?;
        Some(text(&kind))
    };
    kind().is_some_and(|kind| kind != "ipoib")
}

fn attributes(bytes: &[u8]) -> Option<Vec<(u16, Vec<u8>)>> {
    NlasIterator::new(bytes)
        .map(|attribute| attribute.ok().map(|attribute| (attribute.kind(), attribute.value().to_vec())))
        .collect()
}

fn kind(arphrd: u16) -> LinkKind {
    match arphrd {
        ARPHRD_ETHER => LinkKind::Ethernet,
        ARPHRD_INFINIBAND => LinkKind::Infiniband,
        other => LinkKind::Other(other),
    }
}

fn alt_names(properties: &[(u16, Vec<u8>)]) -> Vec<String> {
    properties.iter().filter(|(kind, _)| *kind == IFLA_ALT_IFNAME).map(|(_, value)| text(value)).collect()
}

fn vf_mac(info: &[u8]) -> Option<(u32, MacAddr)> {
    let (_, value) = attributes(info)?.into_iter().find(|(kind, _)| *kind == IFLA_VF_MAC)?;
    let (vf, mac) = value.split_first_chunk::<4>()?;
    Some((u32::from_ne_bytes(*vf), MacAddr(*mac.first_chunk()?)))
}

fn number(value: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(value.try_into().ok()?))
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::Emitable;
    use netlink_packet_route::link::{
        InfoKind, LinkAttribute, LinkInfo, LinkLayerType, LinkMessage, LinkVfInfo, Prop, VfInfo, VfInfoMac,
    };
    use proptest::prelude::*;

    use super::*;

    fn emit(attributes: Vec<LinkAttribute>) -> Vec<u8> {
        let mut message = LinkMessage::default();
        message.header.index = 2;
        message.header.link_layer_type = LinkLayerType::Ether;
        message.header.flags = LinkFlags::Up | LinkFlags::Broadcast;
        message.attributes = attributes;
        let mut bytes = vec![0; message.buffer_len()];
        message.emit(&mut bytes);
        bytes
    }

    fn a_pf() -> Vec<LinkAttribute> {
        let vf = |id, mac: [u8; 6]| LinkVfInfo(vec![VfInfo::Mac(VfInfoMac::new(id, &mac))]);
        vec![
            LinkAttribute::IfName("enp1s0".to_owned()),
            LinkAttribute::Mtu(1500),
            LinkAttribute::MaxMtu(9216),
            LinkAttribute::Address(vec![2, 0, 0, 0, 1, 0]),
            LinkAttribute::PropList(vec![Prop::AltIfName("enx020000000100".to_owned())]),
            LinkAttribute::VfInfoList(vec![vf(0, [0; 6]), vf(1, [2, 0, 0, 0, 0, 9])]),
        ]
    }

    #[test]
    fn reads_a_pf_with_its_vfs() {
        let link = Link::parse(&emit(a_pf())).unwrap();
        let vf_macs = [(0, MacAddr::ZERO), (1, MacAddr([2, 0, 0, 0, 0, 9]))];
        let expected = Link {
            name: "enp1s0".to_owned(),
            alt_names: vec!["enx020000000100".to_owned()],
            kind: LinkKind::Ethernet,
            mac: Some(MacAddr([2, 0, 0, 0, 1, 0])),
            mtu: 1500,
            max_mtu: Some(9216),
            is_up: true,
            vf_macs: vf_macs.into(),
        };
        assert_eq!(link, expected);
    }

    #[test]
    fn an_address_of_another_length_is_no_mac() {
        let mut attributes = a_pf();
        attributes[3] = LinkAttribute::Address(vec![0; 20]);
        assert_eq!(Link::parse(&emit(attributes)).unwrap().mac, None);
    }

    #[test]
    fn a_link_without_a_name_or_an_mtu_makes_no_sense() {
        assert_eq!(Link::parse(&emit(vec![LinkAttribute::Mtu(1500)])), None);
        assert_eq!(Link::parse(&emit(vec![LinkAttribute::IfName("lo".to_owned())])), None);
        assert_eq!(Link::parse(&[]), None);
    }

    #[test]
    fn knows_what_software_made() {
        let made = |kind| emit(vec![LinkAttribute::LinkInfo(vec![LinkInfo::Kind(kind)])]);
        assert!(is_virtual(&made(InfoKind::Veth)));
        assert!(!is_virtual(&made(InfoKind::Ipoib)));
        assert!(!is_virtual(&emit(a_pf())));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn takes_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = (Link::parse(&bytes), is_virtual(&bytes));
        }

        #[test]
        fn takes_a_damaged_link(at in 0_usize..200, byte: u8, length in 0_usize..200) {
            let mut bytes = emit(a_pf());
            let at = at % bytes.len();
            bytes[at] = byte;
            bytes.truncate(length);
            let _ = (Link::parse(&bytes), is_virtual(&bytes));
        }
    }
}
