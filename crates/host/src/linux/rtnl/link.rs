use std::collections::BTreeMap;

use vfleet_api::{Guid, MacAddr};
use vfleet_plan::LinkKind;

use crate::linux::netlink::{Attribute, attributes, find, text};

const HEADER: usize = 16;
const IFF_UP: u32 = 1;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
pub(super) const IFLA_VFINFO_LIST: u16 = 22;
pub(super) const IFLA_VF_INFO: u16 = 1;
pub(super) const IFLA_VF_MAC: u16 = 1;
pub(super) const IFLA_VF_IB_NODE_GUID: u16 = 10;
pub(super) const IFLA_VF_IB_PORT_GUID: u16 = 11;
const IFLA_PHYS_SWITCH_ID: u16 = 36;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_PHYS_PORT_NAME: u16 = 38;
const IFLA_MAX_MTU: u16 = 51;
const IFLA_PROP_LIST: u16 = 52;
const IFLA_ALT_IFNAME: u16 = 53;
const IFLA_PERM_ADDRESS: u16 = 54;
const ARPHRD_ETHER: u16 = 1;
const ARPHRD_INFINIBAND: u16 = 32;

/// A network interface as rtnetlink describes it. Only the attributes that are needed are looked at: a driver
/// that says odd things about others does not matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Link {
    pub(in super::super) index: u32,
    pub(in super::super) name: String,
    pub(in super::super) alt_names: Vec<String>,
    pub(in super::super) kind: LinkKind,
    /// What software made it (`bond`, `vlan`...), if software did.
    pub(in super::super) made_by: Option<String>,
    pub(in super::super) mac: Option<MacAddr>,
    pub(in super::super) permanent_mac: Option<MacAddr>,
    pub(in super::super) mtu: u32,
    pub(in super::super) max_mtu: Option<u32>,
    pub(in super::super) is_up: bool,
    /// The interface that it is a part of (a bond, a bridge...).
    pub(in super::super) master: Option<u32>,
    /// The interface of this namespace that it is on top of (of a VLAN...).
    pub(in super::super) lower: Option<u32>,
    /// Which switch it is a port of, and which port.
    pub(in super::super) switch_port: Option<(String, String)>,
    /// The addresses that it keeps for its VFs, by the VF's index.
    pub(in super::super) vf_macs: BTreeMap<u32, MacAddr>,
    /// The node GUIDs that it keeps for its VFs, by the VF's index.
    pub(in super::super) vf_guids: BTreeMap<u32, Guid>,
}

impl Link {
    /// The interface that the payload of an `RTM_NEWLINK` describes.
    pub(in super::super) fn parse(payload: &[u8]) -> Option<Self> {
        let (header, rest) = payload.split_first_chunk::<HEADER>()?;
        let word =
            |at: usize| u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let attributes = attributes(rest)?;
        let find = |kind| self::find(&attributes, kind);
        let vfs = vf_infos(find(IFLA_VFINFO_LIST).unwrap_or_default())?;
        Some(Self {
            index: word(4),
            name: text(find(IFLA_IFNAME)?),
            alt_names: alt_names(find(IFLA_PROP_LIST).unwrap_or_default())?,
            kind: kind(u16::from_ne_bytes([header[2], header[3]])),
            made_by: find(IFLA_LINKINFO).and_then(made_by),
            mac: find(IFLA_ADDRESS).and_then(mac),
            permanent_mac: find(IFLA_PERM_ADDRESS).and_then(mac),
            mtu: number(find(IFLA_MTU)?)?,
            // Zero is how drivers say nothing.
            max_mtu: find(IFLA_MAX_MTU).and_then(number).filter(|max| *max > 0),
            is_up: word(8) & IFF_UP != 0,
            master: find(IFLA_MASTER).and_then(number),
            lower: find(IFLA_LINK).and_then(number).filter(|_| find(IFLA_LINK_NETNSID).is_none()),
            switch_port: find(IFLA_PHYS_SWITCH_ID).zip(find(IFLA_PHYS_PORT_NAME)).map(switch_port),
            vf_macs: vfs.iter().filter_map(|vf| vf_mac(vf)).collect(),
            vf_guids: vfs.iter().filter_map(|vf| vf_guid(vf)).collect(),
        })
    }
}

#[cfg(test)]
impl Link {
    /// An Ethernet interface with nothing special about it.
    pub(in super::super) fn plain(index: u32) -> Self {
        Self {
            index,
            name: format!("if{index}"),
            alt_names: Vec::new(),
            kind: LinkKind::Ethernet,
            made_by: None,
            mac: None,
            permanent_mac: None,
            mtu: 1500,
            max_mtu: None,
            is_up: true,
            master: None,
            lower: None,
            switch_port: None,
            vf_macs: BTreeMap::new(),
            vf_guids: BTreeMap::new(),
        }
    }
}

/// Whether the payload of a link message is about an interface that software made (veth, bridge...), which no
/// network card has. IPoIB is the exception: its own interfaces have a kind, too.
pub(in super::super) fn is_virtual(payload: &[u8]) -> bool {
    let kind = || made_by(find(&attributes(payload.get(HEADER..)?)?, IFLA_LINKINFO)?);
    kind().is_some_and(|kind| kind != "ipoib")
}

fn made_by(info: &[u8]) -> Option<String> {
    find(&attributes(info)?, IFLA_INFO_KIND).map(text)
}

fn kind(arphrd: u16) -> LinkKind {
    match arphrd {
        ARPHRD_ETHER => LinkKind::Ethernet,
        ARPHRD_INFINIBAND => LinkKind::Infiniband,
        other => LinkKind::Other(other),
    }
}

fn alt_names(properties: &[u8]) -> Option<Vec<String>> {
    let properties = attributes(properties)?;
    Some(
        properties
            .iter()
            .filter(|(kind, _)| *kind == IFLA_ALT_IFNAME)
            .map(|(_, value)| text(value))
            .collect(),
    )
}

/// As sysfs spells them.
fn switch_port((switch, port): (&[u8], &[u8])) -> (String, String) {
    let hex = switch.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
    (hex, text(port))
}

/// What is said about each VF.
fn vf_infos(list: &[u8]) -> Option<Vec<Vec<Attribute<'_>>>> {
    attributes(list)?
        .into_iter()
        .filter(|(kind, _)| *kind == IFLA_VF_INFO)
        .map(|(_, info)| attributes(info))
        .collect()
}

fn vf_mac(vf: &[Attribute<'_>]) -> Option<(u32, MacAddr)> {
    let (index, address) = find(vf, IFLA_VF_MAC)?.split_first_chunk::<4>()?;
    Some((u32::from_ne_bytes(*index), MacAddr(*address.first_chunk()?)))
}

fn vf_guid(vf: &[Attribute<'_>]) -> Option<(u32, Guid)> {
    let (index, rest) = find(vf, IFLA_VF_IB_NODE_GUID)?.split_first_chunk::<4>()?;
    // After a gap: the number starts at a multiple of eight bytes.
    let number = u64::from_ne_bytes(rest.get(4..)?.try_into().ok()?);
    Some((u32::from_ne_bytes(*index), Guid(number.to_be_bytes())))
}

fn mac(value: &[u8]) -> Option<MacAddr> {
    value.try_into().ok().map(MacAddr)
}

fn number(value: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(value.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use netlink_bindings::rt_link::{IflaVfGuid, PushLinkAttrs};
    use netlink_packet_core::{Emitable, Parseable};
    use netlink_packet_route::link::{
        InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage, LinkPhysId, LinkVfInfo,
        Prop, VfInfo, VfInfoMac,
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
            LinkAttribute::PermAddress(vec![2, 0, 0, 0, 1, 1]),
            LinkAttribute::Controller(9),
            LinkAttribute::PhysSwitchId(LinkPhysId::parse(&[0x0a, 0xff]).unwrap()),
            LinkAttribute::PhysPortName("p0".to_owned()),
            LinkAttribute::PropList(vec![Prop::AltIfName("enx020000000100".to_owned())]),
            LinkAttribute::VfInfoList(vec![vf(0, [0; 6]), vf(1, [2, 0, 0, 0, 0, 9])]),
        ]
    }

    #[test]
    fn reads_a_pf_with_its_vfs() {
        let link = Link::parse(&emit(a_pf())).unwrap();
        let vf_macs = [(0, MacAddr::ZERO), (1, MacAddr([2, 0, 0, 0, 0, 9]))];
        let expected = Link {
            index: 2,
            made_by: None,
            permanent_mac: Some(MacAddr([2, 0, 0, 0, 1, 1])),
            master: Some(9),
            lower: None,
            switch_port: Some(("0aff".to_owned(), "p0".to_owned())),
            vf_guids: BTreeMap::new(),
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
    fn reads_the_guid_that_an_independent_encoder_wrote() {
        let mut bytes = emit(a_pf()[..2].to_vec());
        let mut value = IflaVfGuid::new();
        (value.vf, value.guid) = (3, 0x0200_0000_00aa_000f);
        drop(PushLinkAttrs::new(&mut bytes).nested_vfinfo_list().nested_info().push_ib_node_guid(value));
        let guid = Guid([0x02, 0, 0, 0, 0, 0xaa, 0, 0x0f]);
        assert_eq!(Link::parse(&bytes).unwrap().vf_guids, [(3, guid)].into());
    }

    #[test]
    fn what_it_is_on_top_of_counts_in_its_own_namespace_alone() {
        let on_top = |more: Option<LinkAttribute>| {
            let attributes = a_pf().into_iter().chain([LinkAttribute::Link(5)]).chain(more);
            Link::parse(&emit(attributes.collect())).unwrap().lower
        };
        assert_eq!(on_top(None), Some(5));
        assert_eq!(on_top(Some(LinkAttribute::LinkNetNsId(0))), None);
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
