//! VLANs of the ports of a Linux bridge with VLAN filtering.

use std::collections::BTreeMap;

use vfleet_plan::cni::facts::BridgeVlan;

use super::bridge::AF_BRIDGE;
use super::link::{HEADER, IFLA_EXT_MASK, body};
use super::{RTM_DELLINK, RTM_GETLINK, RTM_SETLINK};
use crate::linux::netlink::NetlinkRequest;
use crate::linux::netlink::attribute::{Attributes, ReceivedAttributes};

const IFLA_AF_SPEC: u16 = 26;
const IFLA_BRIDGE_FLAGS: u16 = 0;
const IFLA_BRIDGE_VLAN_INFO: u16 = 2;
const BRIDGE_FLAGS_SELF: u16 = 2;
const BRIDGE_VLAN_INFO_PVID: u16 = 1 << 1;
const BRIDGE_VLAN_INFO_UNTAGGED: u16 = 1 << 2;
const BRIDGE_VLAN_INFO_RANGE_BEGIN: u16 = 1 << 3;
const BRIDGE_VLAN_INFO_RANGE_END: u16 = 1 << 4;
const RTEXT_FILTER_BRVLAN_COMPRESSED: u32 = 1 << 2;
/// Largest number of a VLAN.
const MAX_VLAN: u16 = 4094;

/// VLANs of one port, or of a bridge itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::linux) struct PortVlans {
    /// Index of the interface.
    pub(in crate::linux) index: u32,
    /// Its VLANs, by their IDs. None if the kernel has no VLAN filtering.
    pub(in crate::linux) vlans: Vec<BridgeVlan>,
}

impl PortVlans {
    /// Parses an answer to [`list`]. What a card reports about its own bridge has no VLANs.
    pub(in crate::linux) fn parse(payload: &[u8]) -> Option<Self> {
        let (header, rest) = payload.split_first_chunk::<HEADER>()?;
        let index = u32::from_ne_bytes([header[4], header[5], header[6], header[7]]);
        let specification = ReceivedAttributes::parse(rest)?.nested(IFLA_AF_SPEC)?;
        let is_of_card =
            specification.u16(IFLA_BRIDGE_FLAGS).is_some_and(|flags| flags & BRIDGE_FLAGS_SELF != 0);
        let vlans = if is_of_card { Vec::new() } else { parse_vlans(&specification)? };
        Some(Self { index, vlans })
    }
}

/// Parses VLANs and ranges of them.
fn parse_vlans(specification: &ReceivedAttributes<'_>) -> Option<Vec<BridgeVlan>> {
    let mut vlans = BTreeMap::new();
    let mut begin = None;
    for entry in specification.all(IFLA_BRIDGE_VLAN_INFO) {
        let [flags_low, flags_high, id_low, id_high] = *entry.first_chunk()?;
        let flags = u16::from_ne_bytes([flags_low, flags_high]);
        let id = u16::from_ne_bytes([id_low, id_high]);
        if !(1..=MAX_VLAN).contains(&id) {
            return None;
        }
        if flags & BRIDGE_VLAN_INFO_RANGE_BEGIN != 0 {
            begin = Some(id);
            continue;
        }
        let first = if flags & BRIDGE_VLAN_INFO_RANGE_END != 0 { begin.take()? } else { id };
        let (is_native, is_untagged) =
            (flags & BRIDGE_VLAN_INFO_PVID != 0, flags & BRIDGE_VLAN_INFO_UNTAGGED != 0);
        vlans.extend((first..=id).map(|id| (id, BridgeVlan { id, is_native, is_untagged })));
    }
    begin.is_none().then(|| vlans.into_values().collect())
}

fn flags(vlan: &BridgeVlan) -> u16 {
    let native = if vlan.is_native { BRIDGE_VLAN_INFO_PVID } else { 0 };
    let untagged = if vlan.is_untagged { BRIDGE_VLAN_INFO_UNTAGGED } else { 0 };
    native | untagged
}

/// Returns the request for the VLANs of all ports and bridges of this network namespace.
pub(in crate::linux::netlink) fn list() -> NetlinkRequest {
    let attributes = Attributes::default().with_u32(IFLA_EXT_MASK, RTEXT_FILTER_BRVLAN_COMPRESSED);
    NetlinkRequest { kind: RTM_GETLINK, body: of_bridges(0, &attributes) }
}

/// Returns the request that adds VLANs to a port, or changes their form.
pub(in crate::linux::netlink) fn add(index: u32, vlans: &[BridgeVlan]) -> NetlinkRequest {
    NetlinkRequest { kind: RTM_SETLINK, body: change(index, vlans) }
}

/// Returns the request that removes VLANs from a port.
pub(in crate::linux::netlink) fn remove(index: u32, vlans: &[BridgeVlan]) -> NetlinkRequest {
    NetlinkRequest { kind: RTM_DELLINK, body: change(index, vlans) }
}

fn change(index: u32, vlans: &[BridgeVlan]) -> Vec<u8> {
    let entry = |flags: u16, id: u16| [flags.to_ne_bytes(), id.to_ne_bytes()].concat();
    let mut list = Attributes::default();
    for (first, last) in ranges(vlans) {
        let flags = flags(&first);
        if first.id == last {
            list = list.with(IFLA_BRIDGE_VLAN_INFO, &entry(flags, last));
        } else {
            list = list
                .with(IFLA_BRIDGE_VLAN_INFO, &entry(flags | BRIDGE_VLAN_INFO_RANGE_BEGIN, first.id))
                .with(IFLA_BRIDGE_VLAN_INFO, &entry(flags | BRIDGE_VLAN_INFO_RANGE_END, last));
        }
    }
    of_bridges(index, &Attributes::default().with_nested(IFLA_AF_SPEC, &list))
}

/// Groups VLANs of one form that follow each other, into their first and the ID of their last one: all 4094 VLANs would be
/// too long for a request. The kernel does not accept the native VLAN in a range.
fn ranges(vlans: &[BridgeVlan]) -> Vec<(BridgeVlan, u16)> {
    let mut ranges: Vec<(BridgeVlan, u16)> = Vec::new();
    for vlan in vlans {
        match ranges.last_mut() {
            Some((first, last))
                if last.checked_add(1) == Some(vlan.id) && flags(first) == flags(vlan) && !vlan.is_native =>
            {
                *last = vlan.id;
            }
            _ => ranges.push((*vlan, vlan.id)),
        }
    }
    ranges
}

/// Returns the body of a message of the family of bridges.
fn of_bridges(index: u32, attributes: &Attributes) -> Vec<u8> {
    let mut body = body(index, 0, attributes);
    if let Some(family) = body.first_mut() {
        *family = AF_BRIDGE;
    }
    body
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::Emitable;
    use netlink_packet_route::AddressFamily;
    use netlink_packet_route::link::{
        AfSpecBridge, BridgeFlag, BridgeVlanInfo, BridgeVlanInfoFlags as Flags, LinkAttribute,
        LinkExtentMask, LinkMessage,
    };
    use proptest::prelude::*;

    use super::*;

    /// Returns a message of an independent encoder.
    fn message(index: u32, attributes: Vec<LinkAttribute>) -> Vec<u8> {
        let mut message = LinkMessage::default();
        message.header.interface_family = AddressFamily::Bridge;
        message.header.index = index;
        message.attributes = attributes;
        let mut bytes = vec![0; message.buffer_len()];
        message.emit(&mut bytes);
        bytes
    }

    fn with_vlans(index: u32, vlans: &[(u16, Flags)]) -> Vec<u8> {
        let info =
            |(vid, flags): &(u16, Flags)| AfSpecBridge::VlanInfo(BridgeVlanInfo { flags: *flags, vid: *vid });
        message(index, vec![LinkAttribute::AfSpecBridge(vlans.iter().map(info).collect())])
    }

    /// Sets the flag for attributes that contain others, which the other encoder does not set.
    fn flagged(mut bytes: Vec<u8>) -> Vec<u8> {
        bytes[HEADER + 3] |= 0x80;
        bytes
    }

    fn tagged(ids: &[u16]) -> Vec<BridgeVlan> {
        ids.iter().map(|id| BridgeVlan::tagged(*id)).collect()
    }

    #[test]
    fn requests_equal_those_of_an_independent_encoder() {
        let asked = message(0, vec![LinkAttribute::ExtMask(vec![LinkExtentMask::BrvlanCompressed])]);
        assert_eq!(list().body, asked);
        let of_port = [tagged(&[10, 11, 12]), vec![BridgeVlan::native(13)], tagged(&[200])].concat();
        let expected = with_vlans(
            7,
            &[
                (10, Flags::RangeBegin),
                (12, Flags::RangeEnd),
                (13, Flags::Pvid | Flags::Untagged),
                (200, Flags::empty()),
            ],
        );
        assert_eq!((add(7, &of_port).kind, add(7, &of_port).body), (RTM_SETLINK, flagged(expected.clone())));
        assert_eq!((remove(7, &of_port).kind, remove(7, &of_port).body), (RTM_DELLINK, flagged(expected)));
    }

    #[test]
    fn the_vlans_of_a_port_are_parsed() {
        let bytes = with_vlans(
            7,
            &[
                (1, Flags::Pvid | Flags::Untagged),
                (10, Flags::RangeBegin),
                (12, Flags::RangeEnd),
                (20, Flags::Untagged),
            ],
        );
        let untagged = BridgeVlan { is_untagged: true, ..BridgeVlan::tagged(20) };
        let expected = [vec![BridgeVlan::native(1)], tagged(&[10, 11, 12]), vec![untagged]].concat();
        assert_eq!(PortVlans::parse(&bytes), Some(PortVlans { index: 7, vlans: expected }));
        let none = Some(PortVlans { index: 7, vlans: Vec::new() });
        assert_eq!(PortVlans::parse(&message(7, Vec::new())), none);
        let of_card =
            message(7, vec![LinkAttribute::AfSpecBridge(vec![AfSpecBridge::Flags(BridgeFlag::LowerDev)])]);
        assert_eq!(PortVlans::parse(&of_card), none);
    }

    #[test]
    fn an_incomplete_range_or_an_impossible_number_is_invalid() {
        for wrong in [
            &[(12, Flags::RangeEnd)][..],
            &[(12, Flags::RangeBegin)],
            &[(0, Flags::empty())],
            &[(4095, Flags::empty())],
        ] {
            assert_eq!(PortVlans::parse(&with_vlans(7, wrong)), None, "{wrong:?}");
        }
        assert_eq!(PortVlans::parse(&[0; HEADER - 1]), None);
    }

    #[test]
    fn all_vlans_fit_in_a_small_request() {
        let all: Vec<_> = (1..=MAX_VLAN).map(BridgeVlan::tagged).collect();
        assert_eq!(add(7, &all).body.len(), HEADER + 4 + 2 * 8);
    }

    proptest! {
        #[test]
        fn a_change_is_parsed_as_it_was_encoded(
            ids in prop::collection::btree_map(1_u16..=4094, any::<bool>(), 0..40),
            pvid in prop::option::of(1_u16..=4094),
        ) {
            let other = |(id, is_untagged)| (id, BridgeVlan { id, is_untagged, is_native: false });
            let mut expected: BTreeMap<u16, BridgeVlan> = ids.into_iter().map(other).collect();
            expected.extend(pvid.map(|id| (id, BridgeVlan::native(id))));
            let expected: Vec<_> = expected.into_values().collect();
            prop_assert_eq!(PortVlans::parse(&change(7, &expected)).unwrap().vlans, expected);
        }

        #[test]
        fn accepts_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = PortVlans::parse(&bytes);
        }
    }
}
