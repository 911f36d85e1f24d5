//! Linux bridges and their ports.

use std::collections::BTreeMap;

use vfleet_api::bridge::BridgeVlanProtocol;

use super::link::{
    HEADER, IFF_UP, IFLA_GROUP, IFLA_IFALIAS, IFLA_IFNAME, IFLA_INFO_DATA, IFLA_INFO_KIND, IFLA_LINKINFO,
    IFLA_MASTER, IFLA_MTU, body,
};
use super::{RTM_DELLINK, RTM_NEWLINK, RTM_SETLINK};
use crate::linux::netlink::NetlinkRequest;
use crate::linux::netlink::attribute::{Attributes, ReceivedAttributes};

/// Kind of Linux bridges, and of their ports.
pub(in crate::linux) const BRIDGE: &str = "bridge";

pub(super) const AF_BRIDGE: u8 = 7;
const IFLA_PROTINFO: u16 = 12;
const IFLA_INFO_SLAVE_KIND: u16 = 4;
const IFLA_INFO_SLAVE_DATA: u16 = 5;
const IFLA_BR_VLAN_FILTERING: u16 = 7;
const IFLA_BR_VLAN_PROTOCOL: u16 = 8;
const ETH_P_8021Q: u16 = 0x8100;
const ETH_P_8021AD: u16 = 0x88a8;

/// Length of a number in the kernel.
#[derive(Clone, Copy)]
enum Width {
    One,
    Two,
    Four,
}

/// Settings of a port by their names in bridge(8): `IFLA_BRPORT_*`, sorted by name.
const PORT_SETTINGS: [(&str, u16, Width); vfleet_plan::bridge_port::COUNT] = [
    ("bcast_flood", 30, Width::One),
    ("cost", 3, Width::Four),
    ("fastleave", 7, Width::One),
    ("flood", 9, Width::One),
    ("guard", 5, Width::One),
    ("hairpin", 4, Width::One),
    ("isolated", 33, Width::One),
    ("learning", 8, Width::One),
    ("locked", 39, Width::One),
    ("mab", 40, Width::One),
    ("mcast_flood", 27, Width::One),
    ("mcast_router", 25, Width::One),
    ("mcast_to_unicast", 28, Width::One),
    ("neigh_suppress", 32, Width::One),
    ("priority", 2, Width::Two),
    ("root_block", 6, Width::One),
    ("state", 1, Width::One),
    ("vlan_tunnel", 29, Width::One),
];

/// Numbers of port settings by their names in bridge(8).
pub(in crate::linux) type PortSettings = BTreeMap<&'static str, u32>;

/// Settings of a Linux bridge. Those that the kernel does not report are `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::linux) struct BridgeInfo {
    pub(in crate::linux) vlan_filtering: Option<bool>,
    /// VLAN protocol; also `None` for one that the API does not have.
    pub(in crate::linux) vlan_protocol: Option<BridgeVlanProtocol>,
}

impl BridgeInfo {
    /// Parses the settings in `IFLA_LINKINFO`; `None` if the interface is not a bridge. Invalid settings are not
    /// reported ones.
    pub(super) fn parse(info: &ReceivedAttributes<'_>) -> Option<Self> {
        if info.text(IFLA_INFO_KIND).as_deref() != Some(BRIDGE) {
            return None;
        }
        let Some(data) = info.nested(IFLA_INFO_DATA) else { return Some(Self::default()) };
        let protocol = data.array(IFLA_BR_VLAN_PROTOCOL).map(u16::from_be_bytes);
        Some(Self {
            vlan_filtering: data.array(IFLA_BR_VLAN_FILTERING).map(|[on]| on != 0),
            vlan_protocol: match protocol {
                Some(ETH_P_8021Q) => Some(BridgeVlanProtocol::Ieee8021Q),
                Some(ETH_P_8021AD) => Some(BridgeVlanProtocol::Ieee8021ad),
                _ => None,
            },
        })
    }
}

/// Interface as a member of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::linux) struct PortInfo {
    /// Kind of the other interface, such as `bridge` or `bond`.
    pub(in crate::linux) kind: String,
    /// Settings of a port of a Linux bridge, as far as the kernel reports them.
    pub(in crate::linux) settings: PortSettings,
}

impl PortInfo {
    /// Parses the settings in `IFLA_LINKINFO`; `None` if the interface is not a member of another one.
    pub(super) fn parse(info: &ReceivedAttributes<'_>) -> Option<Self> {
        let kind = info.text(IFLA_INFO_SLAVE_KIND)?;
        let data = info.nested(IFLA_INFO_SLAVE_DATA).filter(|_| kind == BRIDGE);
        let settings = data.as_ref().map(parse_port_settings).unwrap_or_default();
        Some(Self { kind, settings })
    }
}

fn parse_port_settings(data: &ReceivedAttributes<'_>) -> PortSettings {
    let number = |attribute, width| match width {
        Width::One => data.array(attribute).map(|[number]| u32::from(number)),
        Width::Two => data.u16(attribute).map(u32::from),
        Width::Four => data.u32(attribute),
    };
    let settings = PORT_SETTINGS.iter();
    settings.filter_map(|(name, attribute, width)| Some((*name, number(*attribute, *width)?))).collect()
}

/// Link message of the family `AF_BRIDGE`, which the kernel sends when a port of a bridge or its settings change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::linux) struct BridgeEvent {
    /// Index of the bridge; `None` if the message is invalid.
    pub(in crate::linux) bridge: Option<u32>,
}

impl BridgeEvent {
    /// Parses the payload of a link message; `None` if it is of another family.
    pub(in crate::linux) fn parse(payload: &[u8]) -> Option<Self> {
        let attributes = || ReceivedAttributes::parse(payload.get(HEADER..)?);
        (*payload.first()? == AF_BRIDGE)
            .then(|| Self { bridge: attributes().and_then(|all| all.u32(IFLA_MASTER)) })
    }
}

/// Changes of a Linux bridge. Values that are `None` are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::linux) struct BridgeChange {
    pub(in crate::linux) vlan_filtering: Option<bool>,
    pub(in crate::linux) vlan_protocol: Option<BridgeVlanProtocol>,
    pub(in crate::linux) mtu: Option<u32>,
    pub(in crate::linux) group: Option<u32>,
}

/// Returns the request that creates a bridge in a device group. The kernel ignores an alias in such a request.
pub(in crate::linux::netlink) fn create_bridge(name: &str, group: u32) -> NetlinkRequest {
    let info = Attributes::default().with_text(IFLA_INFO_KIND, BRIDGE);
    let attributes = Attributes::default()
        .with_text(IFLA_IFNAME, name)
        .with_u32(IFLA_GROUP, group)
        .with_nested(IFLA_LINKINFO, &info);
    NetlinkRequest { kind: RTM_NEWLINK, body: body(0, 0, &attributes) }
}

/// Returns the request that changes a bridge and sets it up.
pub(in crate::linux::netlink) fn set_bridge(index: u32, change: &BridgeChange) -> NetlinkRequest {
    let mut data = Attributes::default();
    if let Some(on) = change.vlan_filtering {
        data = data.with_u8(IFLA_BR_VLAN_FILTERING, on.into());
    }
    if let Some(protocol) = change.vlan_protocol {
        let protocol = match protocol {
            BridgeVlanProtocol::Ieee8021Q => ETH_P_8021Q,
            BridgeVlanProtocol::Ieee8021ad => ETH_P_8021AD,
        };
        data = data.with(IFLA_BR_VLAN_PROTOCOL, &protocol.to_be_bytes());
    }
    let mut attributes = Attributes::default();
    if let Some(mtu) = change.mtu {
        attributes = attributes.with_u32(IFLA_MTU, mtu);
    }
    if let Some(group) = change.group {
        attributes = attributes.with_u32(IFLA_GROUP, group);
    }
    let info = Attributes::default().with_text(IFLA_INFO_KIND, BRIDGE).with_nested(IFLA_INFO_DATA, &data);
    attributes = attributes.with_nested(IFLA_LINKINFO, &info);
    // Only this message type accepts settings of a kind.
    NetlinkRequest { kind: RTM_NEWLINK, body: body(index, IFF_UP, &attributes) }
}

pub(in crate::linux::netlink) fn set_alias(index: u32, alias: &str) -> NetlinkRequest {
    // Without a zero byte, which would be part of the alias.
    let attributes = Attributes::default().with(IFLA_IFALIAS, alias.as_bytes());
    NetlinkRequest { kind: RTM_SETLINK, body: body(index, 0, &attributes) }
}

/// Returns the request that makes an interface a member of another one, or takes it out of its master with `None`.
pub(in crate::linux::netlink) fn set_master(index: u32, master: Option<u32>) -> NetlinkRequest {
    let attributes = Attributes::default().with_u32(IFLA_MASTER, master.unwrap_or(0));
    NetlinkRequest { kind: RTM_SETLINK, body: body(index, 0, &attributes) }
}

/// Returns the request that changes settings of a port of a bridge.
pub(in crate::linux::netlink) fn set_port(index: u32, settings: &PortSettings) -> NetlinkRequest {
    let known = PORT_SETTINGS.iter().filter_map(|setting| Some((setting, *settings.get(setting.0)?)));
    let data = known.fold(Attributes::default(), |data, ((_, attribute, width), number)| {
        let attribute = *attribute;
        // The values of settings were checked, and fit.
        match width {
            Width::One => data.with_u8(attribute, u8::try_from(number).unwrap_or(u8::MAX)),
            Width::Two => data.with_u16(attribute, u16::try_from(number).unwrap_or(u16::MAX)),
            Width::Four => data.with_u32(attribute, number),
        }
    });
    let attributes = Attributes::default().with_nested(IFLA_PROTINFO, &data);
    let mut body = body(index, 0, &attributes);
    if let Some(family) = body.first_mut() {
        *family = AF_BRIDGE;
    }
    NetlinkRequest { kind: RTM_SETLINK, body }
}

pub(in crate::linux::netlink) fn remove(index: u32) -> NetlinkRequest {
    NetlinkRequest { kind: RTM_DELLINK, body: body(index, 0, &Attributes::default()) }
}

#[cfg(test)]
mod tests {
    use netlink_bindings::rt_link::{
        Ifinfomsg, OpDellinkDo, OpNewlinkDo, OpSetlinkDo, PushLinkAttrs, PushLinkinfoBrportAttrs,
    };
    use proptest::prelude::*;
    use vfleet_plan::bridge_port;

    use super::super::Link;
    use super::*;

    fn header(index: i32, flags: u32) -> Ifinfomsg {
        let mut header = Ifinfomsg::new();
        (header.ifi_index, header.ifi_flags, header.ifi_change) = (index, flags, flags);
        header
    }

    /// Returns an interface with a name and an MTU, in the form of the kernel.
    fn message(more: impl FnOnce(PushLinkAttrs<&mut Vec<u8>>)) -> Vec<u8> {
        let mut bytes = Vec::new();
        let attributes = OpNewlinkDo::encode_request(&mut bytes, &header(7, 1));
        more(attributes.push_ifname(c"br0").push_mtu(1500));
        bytes
    }

    /// Returns a port of bridge 9 that has every setting, with different numbers.
    fn port() -> Vec<u8> {
        message(|link| {
            let port = link.push_master(9).nested_linkinfo().nested_slave_data_bridge();
            let port = port.push_state(3).push_priority(32).push_cost(65_536).push_mode(4).push_guard(5);
            let port = port.push_protect(6).push_fast_leave(7).push_learning(8).push_unicast_flood(9);
            let port = port.push_multicast_router(25).push_mcast_flood(27).push_mcast_to_ucast(28);
            let port = port.push_vlan_tunnel(29).push_bcast_flood(30).push_neigh_suppress(32);
            drop(port.push_isolated(33).push_locked(39).push_mab(40));
        })
    }

    fn bridge(protocol: u16) -> Vec<u8> {
        message(|link| {
            let link = link.push_ifalias(c"vfleet bridge of x").push_group(5);
            let data = link.nested_linkinfo().nested_data_bridge();
            drop(data.push_vlan_filtering(1).push_vlan_protocol(protocol));
        })
    }

    #[test]
    fn every_setting_of_a_port_is_parsed() {
        let port = Link::parse(&port()).unwrap();
        assert_eq!((port.master, port.bridge), (Some(9), None));
        let PortInfo { kind, settings } = port.port.unwrap();
        let expected = [
            ("bcast_flood", 30),
            ("cost", 65_536),
            ("fastleave", 7),
            ("flood", 9),
            ("guard", 5),
            ("hairpin", 4),
            ("isolated", 33),
            ("learning", 8),
            ("locked", 39),
            ("mab", 40),
            ("mcast_flood", 27),
            ("mcast_router", 25),
            ("mcast_to_unicast", 28),
            ("neigh_suppress", 32),
            ("priority", 32),
            ("root_block", 6),
            ("state", 3),
            ("vlan_tunnel", 29),
        ];
        assert_eq!((kind.as_str(), settings), ("bridge", expected.into()));
        assert!(PORT_SETTINGS.iter().map(|(name, ..)| *name).eq(bridge_port::NAMES));
    }

    #[test]
    fn a_bridge_is_parsed() {
        for (protocol, expected) in [
            (0x8100, Some(BridgeVlanProtocol::Ieee8021Q)),
            (0x88a8, Some(BridgeVlanProtocol::Ieee8021ad)),
            (0x9100, None),
        ] {
            let link = Link::parse(&bridge(protocol)).unwrap();
            assert_eq!((link.alias.as_deref(), link.group), (Some("vfleet bridge of x"), Some(5)));
            let info = BridgeInfo { vlan_filtering: Some(true), vlan_protocol: expected };
            assert_eq!((link.bridge, link.port), (Some(info), None));
        }
    }

    #[test]
    fn missing_and_invalid_settings_are_unknown() {
        let with_info = |info: &Attributes| {
            let link = Attributes::default().with_text(IFLA_IFNAME, "br0").with_u32(IFLA_MTU, 1500);
            Link::parse(&link.with_nested(IFLA_LINKINFO, info).after(&[0; HEADER]))
        };
        let bridge = Attributes::default().with_text(IFLA_INFO_KIND, BRIDGE);
        let odd = Attributes::default().with(IFLA_BR_VLAN_FILTERING, &[]).with_u8(IFLA_BR_VLAN_PROTOCOL, 1);
        for info in [
            bridge.clone(),
            bridge.clone().with_nested(IFLA_INFO_DATA, &odd),
            bridge.with(IFLA_INFO_DATA, &[1, 0, 0, 0]),
        ] {
            assert_eq!(with_info(&info).unwrap().bridge, Some(BridgeInfo::default()));
        }
        let bond = Attributes::default().with_text(IFLA_INFO_SLAVE_KIND, "bond");
        let data = Attributes::default().with_u8(1, 3);
        let member = with_info(&bond.with_nested(IFLA_INFO_SLAVE_DATA, &data)).unwrap().port.unwrap();
        assert_eq!((member.kind.as_str(), member.settings), ("bond", PortSettings::new()));
        assert_eq!(with_info(&Attributes::default()).unwrap().port, None);
    }

    #[test]
    fn the_bridge_of_an_event_is_known() {
        let mut event = port();
        assert_eq!(BridgeEvent::parse(&event), None, "another family");
        event[0] = AF_BRIDGE;
        assert_eq!(BridgeEvent::parse(&event), Some(BridgeEvent { bridge: Some(9) }));
        for invalid in [&event[..HEADER], &event[..HEADER + 3], &event[..1], &event[..event.len() - 1]] {
            assert_eq!(BridgeEvent::parse(invalid), Some(BridgeEvent { bridge: None }));
        }
        assert_eq!(BridgeEvent::parse(&[]), None);
    }

    #[test]
    fn requests_equal_those_of_an_independent_encoder() {
        let (mut new, mut alias, mut member, mut none, mut gone) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let create = OpNewlinkDo::encode_request(&mut new, &header(0, 0)).push_ifname(c"br0").push_group(5);
        drop(create.nested_linkinfo().push_kind(c"bridge"));
        drop(OpSetlinkDo::encode_request(&mut member, &header(7, 0)).push_master(9));
        drop(OpSetlinkDo::encode_request(&mut none, &header(7, 0)).push_master(0));
        drop(OpDellinkDo::encode_request(&mut gone, &header(7, 0)));
        assert_eq!(create_bridge("br0", 5).body, new);
        assert_eq!((set_master(7, Some(9)).body, set_master(7, None).body), (member, none));
        assert_eq!(remove(7).body, gone);
        // The encoder adds a zero byte.
        drop(OpSetlinkDo::encode_request(&mut alias, &header(7, 0)).push_ifalias(c"abc"));
        alias[HEADER] -= 1;
        assert_eq!(set_alias(7, "abc").body, alias);

        let mut changed = Vec::new();
        let link = OpNewlinkDo::encode_request(&mut changed, &header(7, 1)).push_mtu(9000).push_group(0);
        drop(link.nested_linkinfo().nested_data_bridge().push_vlan_filtering(1).push_vlan_protocol(0x88a8));
        let change = BridgeChange {
            vlan_filtering: Some(true),
            vlan_protocol: Some(BridgeVlanProtocol::Ieee8021ad),
            mtu: Some(9000),
            group: Some(0),
        };
        assert_eq!(set_bridge(7, &change).body, changed);
    }

    #[test]
    fn the_settings_in_a_request_equal_those_of_an_independent_encoder() {
        let mut data = Vec::new();
        let port = PushLinkinfoBrportAttrs::new(&mut data);
        drop(port.push_cost(65_535).push_learning(0).push_mab(1).push_priority(63));
        // Our encoder pads the last attribute as well.
        data.resize(data.len().next_multiple_of(4), 0);
        let settings = [("cost", 65_535), ("learning", 0), ("mab", 1), ("priority", 63)].into();
        let request = set_port(7, &settings);
        let expected = Attributes::default().with(IFLA_PROTINFO | 0x8000, &data);
        assert_eq!(request.body, expected.after(&[7, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]));
    }

    proptest! {
        #[test]
        fn accepts_a_damaged_bridge_or_port(at in 0_usize..300, byte: u8, length in 0_usize..300) {
            for mut bytes in [bridge(0x8100), port()] {
                let at = at % bytes.len();
                bytes[at] = byte;
                bytes.truncate(length);
                let _ = (Link::parse(&bytes), BridgeEvent::parse(&bytes));
            }
        }
    }
}
