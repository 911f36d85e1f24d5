//! Interfaces.

use std::collections::BTreeMap;

use vfleet_api::{MacAddr, PciAddress};
use vfleet_plan::LinkKind;
use vfleet_plan::cni::facts::VfSettings;

use super::bridge::{BridgeInfo, PortInfo};
use super::{RTM_DELLINKPROP, RTM_GETLINK, RTM_NEWLINKPROP, RTM_SETLINK, vf};
use crate::linux::netlink::NetlinkRequest;
use crate::linux::netlink::attribute::{Attributes, ReceivedAttributes, text};

pub(super) const HEADER: usize = 16;
pub(super) const IFF_UP: u32 = 1;
/// The interface is up and has a carrier: the condition under which the kernel lets a port of a bridge forward.
const IFF_LOWER_UP: u32 = 1 << 16;
pub(super) const IFLA_ADDRESS: u16 = 1;
pub(super) const IFLA_IFNAME: u16 = 3;
pub(super) const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
pub(super) const IFLA_MASTER: u16 = 10;
pub(super) const IFLA_LINKINFO: u16 = 18;
pub(super) const IFLA_INFO_KIND: u16 = 1;
pub(super) const IFLA_INFO_DATA: u16 = 2;
pub(super) const IFLA_IFALIAS: u16 = 20;
pub(super) const IFLA_NUM_VF: u16 = 21;
pub(super) const IFLA_VFINFO_LIST: u16 = 22;
pub(super) const IFLA_GROUP: u16 = 27;
pub(super) const IFLA_NET_NS_FD: u16 = 28;
pub(super) const IFLA_EXT_MASK: u16 = 29;
const IFLA_PHYS_SWITCH_ID: u16 = 36;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_PHYS_PORT_NAME: u16 = 38;
const IFLA_MIN_MTU: u16 = 50;
const IFLA_MAX_MTU: u16 = 51;
const IFLA_PROP_LIST: u16 = 52;
const IFLA_ALT_IFNAME: u16 = 53;
const IFLA_PERM_ADDRESS: u16 = 54;
const IFLA_PARENT_DEV_NAME: u16 = 56;
const RTEXT_FILTER_VF: u32 = 1;
const RTEXT_FILTER_SKIP_STATS: u32 = 8;
const ARPHRD_ETHER: u16 = 1;
const ARPHRD_INFINIBAND: u16 = 32;

/// Interface in rtnetlink. Only the needed attributes are parsed, so that invalid values of others do not matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::linux) struct Link {
    pub(in crate::linux) index: u32,
    pub(in crate::linux) name: String,
    pub(in crate::linux) alt_names: Vec<String>,
    pub(in crate::linux) kind: LinkKind,
    /// Kind of a virtual interface, such as `bond` or `vlan`.
    pub(in crate::linux) kind_name: Option<String>,
    /// Text that an administrator or vfleet gave to the interface.
    pub(in crate::linux) alias: Option<String>,
    /// Device group.
    pub(in crate::linux) group: Option<u32>,
    /// Hardware address: 6 bytes of Ethernet, 20 bytes of InfiniBand.
    pub(in crate::linux) address: Vec<u8>,
    pub(in crate::linux) permanent_mac: Option<MacAddr>,
    pub(in crate::linux) mtu: u32,
    pub(in crate::linux) min_mtu: Option<u32>,
    pub(in crate::linux) max_mtu: Option<u32>,
    pub(in crate::linux) is_up: bool,
    pub(in crate::linux) has_carrier: bool,
    /// Index of the bond or bridge that the interface is a member of.
    pub(in crate::linux) master: Option<u32>,
    /// Settings, if the interface is a Linux bridge.
    pub(in crate::linux) bridge: Option<BridgeInfo>,
    /// Settings as a member of `master`.
    pub(in crate::linux) port: Option<PortInfo>,
    /// Index of the interface below this one (the parent of a VLAN), if it is in the same network namespace.
    pub(in crate::linux) lower: Option<u32>,
    /// Index of the interface below this one, or of the other end of a pair, in whatever namespace it is.
    pub(in crate::linux) linked: Option<u32>,
    /// ID of the switch, and name of the port.
    pub(in crate::linux) switch_port: Option<(String, String)>,
    /// PCI function of the interface; `None` for a virtual one, and before Linux 5.14.
    pub(in crate::linux) device: Option<PciAddress>,
    /// Settings of its VFs by VF index.
    pub(in crate::linux) vfs: BTreeMap<u32, VfSettings>,
}

impl Link {
    /// Parses the payload of an `RTM_NEWLINK`.
    pub(in crate::linux) fn parse(payload: &[u8]) -> Option<Self> {
        let (header, rest) = payload.split_first_chunk::<HEADER>()?;
        let word =
            |at: usize| u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let attributes = ReceivedAttributes::parse_with(rest, vf::list_length)?;
        let info = attributes.nested(IFLA_LINKINFO)?;
        let switch = attributes.get(IFLA_PHYS_SWITCH_ID).zip(attributes.text(IFLA_PHYS_PORT_NAME));
        Some(Self {
            index: word(4),
            name: attributes.text(IFLA_IFNAME)?,
            alt_names: attributes.nested(IFLA_PROP_LIST)?.all(IFLA_ALT_IFNAME).map(text).collect(),
            kind: link_kind(u16::from_ne_bytes([header[2], header[3]])),
            kind_name: info.text(IFLA_INFO_KIND),
            alias: attributes.text(IFLA_IFALIAS).filter(|alias| !alias.is_empty()),
            group: attributes.u32(IFLA_GROUP),
            address: attributes.get(IFLA_ADDRESS).unwrap_or_default().to_vec(),
            permanent_mac: attributes.array(IFLA_PERM_ADDRESS).map(MacAddr),
            mtu: attributes.u32(IFLA_MTU)?,
            min_mtu: attributes.u32(IFLA_MIN_MTU).filter(|min| *min > 0),
            // Drivers that report no maximum set 0.
            max_mtu: attributes.u32(IFLA_MAX_MTU).filter(|max| *max > 0),
            is_up: word(8) & IFF_UP != 0,
            has_carrier: word(8) & IFF_LOWER_UP != 0,
            master: attributes.u32(IFLA_MASTER),
            bridge: BridgeInfo::parse(&info),
            port: PortInfo::parse(&info),
            lower: attributes.u32(IFLA_LINK).filter(|_| !attributes.has(IFLA_LINK_NETNSID)),
            linked: attributes.u32(IFLA_LINK),
            switch_port: switch.map(|(switch, port)| (hex(switch), port)),
            device: attributes.text(IFLA_PARENT_DEV_NAME).and_then(|name| name.parse().ok()),
            vfs: vf::parse_all(&attributes)?,
        })
    }

    /// Returns the MAC address of an Ethernet interface.
    pub(in crate::linux) fn mac(&self) -> Option<MacAddr> {
        self.address.as_slice().try_into().ok().map(MacAddr)
    }

    /// Returns whether the interface has `name` as its name or an alternative name.
    pub(in crate::linux) fn is_called(&self, name: &str) -> bool {
        self.name == name || self.alt_names.iter().any(|alt_name| alt_name == name)
    }
}

/// Returns the request for the interface with this index, including the settings of its VFs.
pub(in crate::linux::netlink) fn get(index: u32) -> NetlinkRequest {
    // Without the counters of VFs: with them the list exceeds the maximum length of an attribute at 200 VFs.
    let attributes = Attributes::default().with_u32(IFLA_EXT_MASK, RTEXT_FILTER_VF | RTEXT_FILTER_SKIP_STATS);
    NetlinkRequest { kind: RTM_GETLINK, body: body(index, 0, &attributes) }
}

/// Returns the request for the interface with this name or alternative name, without the settings of VFs.
pub(in crate::linux::netlink) fn get_by_name(name: &str) -> NetlinkRequest {
    let attributes =
        Attributes::default().with_u32(IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS).with_text(IFLA_IFNAME, name);
    NetlinkRequest { kind: RTM_GETLINK, body: body(0, 0, &attributes) }
}

/// Returns the request for all interfaces of this network namespace, without the settings of VFs.
pub(in crate::linux::netlink) fn list() -> NetlinkRequest {
    let attributes = Attributes::default().with_u32(IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS);
    NetlinkRequest { kind: RTM_GETLINK, body: body(0, 0, &attributes) }
}

pub(in crate::linux::netlink) fn set_up(index: u32) -> NetlinkRequest {
    NetlinkRequest { kind: RTM_SETLINK, body: body(index, IFF_UP, &Attributes::default()) }
}

pub(in crate::linux::netlink) fn set_down(index: u32) -> NetlinkRequest {
    // Without a flag, of those that change.
    let body = Attributes::default().after(&header(index, 0, IFF_UP));
    NetlinkRequest { kind: RTM_SETLINK, body }
}

/// Returns the request that sets the hardware address of an interface.
pub(in crate::linux::netlink) fn set_address(index: u32, mac: MacAddr) -> NetlinkRequest {
    let attributes = Attributes::default().with(IFLA_ADDRESS, &mac.0);
    NetlinkRequest { kind: RTM_SETLINK, body: body(index, 0, &attributes) }
}

/// Returns the request that renames an interface. In a pattern such as `dev%d` the kernel replaces `%d` with the first
/// free number.
pub(in crate::linux::netlink) fn rename(index: u32, name: &str) -> NetlinkRequest {
    let attributes = Attributes::default().with_text(IFLA_IFNAME, name);
    NetlinkRequest { kind: RTM_SETLINK, body: body(index, 0, &attributes) }
}

/// Returns the request that moves an interface to the network namespace of an open file, where it gets this name. It
/// keeps its index if that is free there, and is down.
pub(in crate::linux::netlink) fn move_to(index: u32, namespace: u32, name: &str) -> NetlinkRequest {
    let attributes = Attributes::default().with_u32(IFLA_NET_NS_FD, namespace).with_text(IFLA_IFNAME, name);
    NetlinkRequest { kind: RTM_SETLINK, body: body(index, 0, &attributes) }
}

/// Returns the request that adds an alternative name to an interface.
pub(in crate::linux::netlink) fn add_alt_name(index: u32, name: &str) -> NetlinkRequest {
    NetlinkRequest { kind: RTM_NEWLINKPROP, body: alt_name(index, name) }
}

/// Returns the request that removes an alternative name of an interface.
pub(in crate::linux::netlink) fn remove_alt_name(index: u32, name: &str) -> NetlinkRequest {
    NetlinkRequest { kind: RTM_DELLINKPROP, body: alt_name(index, name) }
}

fn alt_name(index: u32, name: &str) -> Vec<u8> {
    let list = Attributes::default().with_text(IFLA_ALT_IFNAME, name);
    body(index, 0, &Attributes::default().with_nested(IFLA_PROP_LIST, &list))
}

pub(in crate::linux::netlink) fn set_mtu(index: u32, mtu: u32) -> NetlinkRequest {
    let attributes = Attributes::default().with_u32(IFLA_MTU, mtu);
    NetlinkRequest { kind: RTM_SETLINK, body: body(index, 0, &attributes) }
}

/// Returns the body of a message for an interface, which sets these flags.
pub(super) fn body(index: u32, flags: u32, attributes: &Attributes) -> Vec<u8> {
    attributes.after(&header(index, flags, flags))
}

fn header(index: u32, flags: u32, changed: u32) -> Vec<u8> {
    let any_family_and_type = [0; 4];
    [any_family_and_type, index.to_ne_bytes(), flags.to_ne_bytes(), changed.to_ne_bytes()].concat()
}

#[cfg(test)]
impl Link {
    /// Returns an Ethernet interface with default values.
    pub(in crate::linux) fn plain(index: u32) -> Self {
        Self {
            index,
            name: format!("if{index}"),
            alt_names: Vec::new(),
            kind: LinkKind::Ethernet,
            kind_name: None,
            alias: None,
            group: Some(0),
            address: Vec::new(),
            permanent_mac: None,
            mtu: 1500,
            min_mtu: None,
            max_mtu: None,
            is_up: true,
            has_carrier: true,
            master: None,
            bridge: None,
            port: None,
            lower: None,
            linked: None,
            switch_port: None,
            device: None,
            vfs: BTreeMap::new(),
        }
    }
}

/// Returns whether the payload of a link message describes a virtual interface (veth, bridge), which does not belong to
/// a card. Interfaces of InfiniBand cards have a kind as well (`ipoib`).
pub(in crate::linux) fn is_virtual(payload: &[u8]) -> bool {
    let kind = || parse_kind_name(&ReceivedAttributes::parse(payload.get(HEADER..)?)?);
    kind().is_some_and(|kind| kind != "ipoib")
}

fn parse_kind_name(link: &ReceivedAttributes<'_>) -> Option<String> {
    link.nested(IFLA_LINKINFO)?.text(IFLA_INFO_KIND)
}

fn link_kind(arphrd: u16) -> LinkKind {
    match arphrd {
        ARPHRD_ETHER => LinkKind::Ethernet,
        ARPHRD_INFINIBAND => LinkKind::Infiniband,
        other => LinkKind::Other(other),
    }
}

/// Formats bytes as sysfs does.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use netlink_bindings::rt_link::{Ifinfomsg, IflaVfGuid, OpGetlinkDo, OpSetlinkDo, PushLinkAttrs};
    use netlink_packet_core::{Emitable, Parseable};
    use netlink_packet_route::link::{
        InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage, LinkPhysId, LinkVfInfo,
        Prop, VfInfo, VfInfoMac,
    };
    use proptest::prelude::*;
    use vfleet_api::Guid;

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
            LinkAttribute::MinMtu(68),
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
    fn parses_a_pf_with_its_vfs() {
        let bytes =
            Attributes::default().with_text(IFLA_PARENT_DEV_NAME, "0000:01:00.0").after(&emit(a_pf()));
        let link = Link::parse(&bytes).unwrap();
        let vf = |mac| VfSettings { mac: Some(mac), ..VfSettings::default() };
        let vfs = [(0, vf(MacAddr::ZERO)), (1, vf(MacAddr([2, 0, 0, 0, 0, 9])))];
        let expected = Link {
            index: 2,
            kind_name: None,
            alias: None,
            group: None,
            bridge: None,
            port: None,
            permanent_mac: Some(MacAddr([2, 0, 0, 0, 1, 1])),
            master: Some(9),
            lower: None,
            linked: None,
            switch_port: Some(("0aff".to_owned(), "p0".to_owned())),
            device: Some("0000:01:00.0".parse().unwrap()),
            name: "enp1s0".to_owned(),
            alt_names: vec!["enx020000000100".to_owned()],
            kind: LinkKind::Ethernet,
            address: vec![2, 0, 0, 0, 1, 0],
            mtu: 1500,
            min_mtu: Some(68),
            max_mtu: Some(9216),
            is_up: true,
            has_carrier: false,
            vfs: vfs.into(),
        };
        assert_eq!(link, expected);
    }

    #[test]
    fn parses_the_guid_of_an_independent_encoder() {
        let mut bytes = emit(a_pf()[..2].to_vec());
        let mut value = IflaVfGuid::new();
        (value.vf, value.guid) = (3, 0x0200_0000_00aa_000f);
        drop(PushLinkAttrs::new(&mut bytes).nested_vfinfo_list().nested_info().push_ib_node_guid(value));
        let guid = Guid([0x02, 0, 0, 0, 0, 0xaa, 0, 0x0f]);
        assert_eq!(Link::parse(&bytes).unwrap().vfs[&3].node_guid, Some(guid));
    }

    #[test]
    fn requests_equal_those_of_an_independent_encoder() {
        let header = |flags| {
            let mut header = Ifinfomsg::new();
            (header.ifi_index, header.ifi_flags, header.ifi_change) = (7, flags, flags);
            header
        };
        let (mut up, mut mtu, mut question) = (Vec::new(), Vec::new(), Vec::new());
        drop(OpSetlinkDo::encode_request(&mut up, &header(1)));
        drop(OpSetlinkDo::encode_request(&mut mtu, &header(0)).push_mtu(9000));
        drop(OpGetlinkDo::encode_request(&mut question, &header(0)).push_ext_mask(9));
        assert_eq!((set_up(7).body, set_mtu(7, 9000).body, get(7).body), (up, mtu, question));

        // The other encoder does not pad the last attribute.
        let padded = |mut bytes: Vec<u8>| {
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        };
        let (mut address, mut moved, mut named) = (Vec::new(), Vec::new(), Vec::new());
        drop(OpSetlinkDo::encode_request(&mut address, &header(0)).push_address(&[2, 0, 0, 0, 0, 9]));
        drop(OpSetlinkDo::encode_request(&mut moved, &header(0)).push_net_ns_fd(5).push_ifname(c"net1"));
        drop(OpSetlinkDo::encode_request(&mut named, &header(0)).push_ifname(c"dev%d"));
        assert_eq!(set_address(7, MacAddr([2, 0, 0, 0, 0, 9])).body, padded(address));
        assert_eq!((move_to(7, 5, "net1").body, rename(7, "dev%d").body), (padded(moved), padded(named)));

        let (mut down, mut other_name) = (Vec::new(), Vec::new());
        let mut to_down = header(0);
        to_down.ifi_change = 1;
        drop(OpSetlinkDo::encode_request(&mut down, &to_down));
        let list = OpSetlinkDo::encode_request(&mut other_name, &header(0)).nested_prop_list();
        drop(list.push_alt_ifname(c"vf0.pod"));
        assert_eq!((set_down(7).body, add_alt_name(7, "vf0.pod").body), (down, other_name));
        assert_eq!(remove_alt_name(7, "vf0.pod").body, add_alt_name(7, "vf0.pod").body);
    }

    #[test]
    fn attributes_that_are_not_needed_may_have_any_value() {
        const NEEDED: [u16; 17] = [1, 3, 4, 5, 10, 18, 20, 22, 27, 36, 37, 38, 50, 51, 52, 54, 56];
        let plain = emit(a_pf());
        for kind in (0..200).filter(|kind| !NEEDED.contains(kind)) {
            for value in [&[][..], &[0xff], &[0xff; 9]] {
                let odd = Attributes::default().with(kind, value).after(&plain);
                assert_eq!(Link::parse(&odd), Link::parse(&plain), "{kind} {value:?}");
            }
        }
    }

    #[test]
    fn a_lower_interface_in_another_namespace_is_ignored() {
        let on_top = |more: Option<LinkAttribute>| {
            let attributes = a_pf().into_iter().chain([LinkAttribute::Link(5)]).chain(more);
            let link = Link::parse(&emit(attributes.collect())).unwrap();
            (link.lower, link.linked)
        };
        assert_eq!(on_top(None), (Some(5), Some(5)));
        assert_eq!(on_top(Some(LinkAttribute::LinkNetNsId(0))), (None, Some(5)));
    }

    #[test]
    fn an_address_of_another_length_is_no_mac() {
        let mut attributes = a_pf();
        attributes[4] = LinkAttribute::Address(vec![0; 20]);
        assert_eq!(Link::parse(&emit(attributes)).unwrap().mac(), None);
    }

    #[test]
    fn a_link_without_a_name_or_an_mtu_is_invalid() {
        assert_eq!(Link::parse(&emit(vec![LinkAttribute::Mtu(1500)])), None);
        assert_eq!(Link::parse(&emit(vec![LinkAttribute::IfName("lo".to_owned())])), None);
        assert_eq!(Link::parse(&[]), None);
    }

    #[test]
    fn virtual_interfaces_are_detected() {
        let link_of = |kind| emit(vec![LinkAttribute::LinkInfo(vec![LinkInfo::Kind(kind)])]);
        assert!(is_virtual(&link_of(InfoKind::Veth)));
        assert!(!is_virtual(&link_of(InfoKind::Ipoib)));
        assert!(!is_virtual(&emit(a_pf())));
    }

    proptest! {
        #[test]
        fn accepts_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = (Link::parse(&bytes), is_virtual(&bytes));
        }

        #[test]
        fn accepts_a_damaged_link(at in 0_usize..200, byte: u8, length in 0_usize..200) {
            let mut bytes = emit(a_pf());
            let at = at % bytes.len();
            bytes[at] = byte;
            bytes.truncate(length);
            let _ = (Link::parse(&bytes), is_virtual(&bytes));
        }
    }
}
