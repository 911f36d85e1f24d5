//! Settings of VFs in the interface of their PF.

mod setting;

use std::collections::BTreeMap;

use vfleet_api::{Guid, MacAddr};
use vfleet_plan::cni::facts::{LinkState, VfSettings, VfVlan, VlanProtocol};

pub(in crate::linux) use setting::VfSetting;

use super::RTM_SETLINK;
use super::link::{IFLA_NUM_VF, IFLA_VFINFO_LIST, body};
use crate::linux::netlink::NetlinkRequest;
use crate::linux::netlink::attribute::{Attributes, ReceivedAttributes};

const IFLA_VF_INFO: u16 = 1;
const IFLA_VF_MAC: u16 = 1;
const IFLA_VF_VLAN: u16 = 2;
const IFLA_VF_TX_RATE: u16 = 3;
const IFLA_VF_SPOOFCHK: u16 = 4;
const IFLA_VF_LINK_STATE: u16 = 5;
const IFLA_VF_RATE: u16 = 6;
const IFLA_VF_TRUST: u16 = 9;
const IFLA_VF_IB_NODE_GUID: u16 = 10;
const IFLA_VF_IB_PORT_GUID: u16 = 11;
const IFLA_VF_VLAN_LIST: u16 = 12;
const IFLA_VF_VLAN_INFO: u16 = 1;
const IFLA_VF_LINK_STATE_AUTO: u32 = 0;
const IFLA_VF_LINK_STATE_ENABLE: u32 = 1;
const IFLA_VF_LINK_STATE_DISABLE: u32 = 2;
/// Size of the address field of a MAC attribute, which has space for any link layer.
const ADDRESS_FIELD_LENGTH: usize = 32;
/// Length of the header of an attribute.
const ATTRIBUTE_HEADER: usize = 4;
const NLA_F_NESTED: u16 = 0x8000;

/// Parses the settings of all VFs of an interface, by VF index; `None` if they are invalid.
pub(super) fn parse_all(link: &ReceivedAttributes<'_>) -> Option<BTreeMap<u32, VfSettings>> {
    let list = link.nested(IFLA_VFINFO_LIST)?;
    let mut vfs = BTreeMap::new();
    for info in list.all(IFLA_VF_INFO) {
        let info = ReceivedAttributes::parse(info)?;
        if let Some(index) = index(&info) {
            vfs.insert(index, parse(&info));
        }
    }
    Some(vfs)
}

/// Returns the length of the list of VFs if it is too long for an attribute, from about 280 VFs on. The kernel sets only
/// the last 16 bits of the length then.
pub(super) fn list_length(before: &ReceivedAttributes<'_>, kind: u16, list: &[u8]) -> Option<usize> {
    if kind != IFLA_VFINFO_LIST {
        return None;
    }
    let mut length = 0_usize;
    for _ in 0..before.u32(IFLA_NUM_VF)? {
        let [low, high, kind_low, kind_high] = *list.get(length..)?.first_chunk::<ATTRIBUTE_HEADER>()?;
        let entry = usize::from(u16::from_ne_bytes([low, high]));
        let is_vf = u16::from_ne_bytes([kind_low, kind_high]) & !NLA_F_NESTED == IFLA_VF_INFO;
        if !is_vf || entry < ATTRIBUTE_HEADER {
            return None;
        }
        length += entry.next_multiple_of(4);
    }
    (ATTRIBUTE_HEADER + length > usize::from(u16::MAX)).then_some(length)
}

/// Returns the index of a VF, which is the first field of each of its settings.
fn index(info: &ReceivedAttributes<'_>) -> Option<u32> {
    let value = info.get(IFLA_VF_MAC).or_else(|| info.get(IFLA_VF_IB_NODE_GUID))?;
    value.first_chunk().map(|index| u32::from_ne_bytes(*index))
}

/// Parses the settings of a VF. A setting of an unexpected form counts as not reported.
fn parse(info: &ReceivedAttributes<'_>) -> VfSettings {
    let word = |kind, at| info.get(kind).and_then(|value| word(value, at));
    // Drivers that do not report a switch leave it at -1.
    let switch = |kind| word(kind, 1).filter(|on| *on <= 1).map(|on| on == 1);
    let rates = info.has(IFLA_VF_RATE);
    VfSettings {
        mac: info.get(IFLA_VF_MAC).and_then(|value| Some(MacAddr(*value.get(4..)?.first_chunk()?))),
        vlan: parse_vlan(info),
        spoof_check: switch(IFLA_VF_SPOOFCHK),
        trust: switch(IFLA_VF_TRUST),
        min_tx_rate: word(IFLA_VF_RATE, 1),
        max_tx_rate: if rates { word(IFLA_VF_RATE, 2) } else { word(IFLA_VF_TX_RATE, 1) },
        link_state: match word(IFLA_VF_LINK_STATE, 1) {
            Some(IFLA_VF_LINK_STATE_AUTO) => Some(LinkState::Auto),
            Some(IFLA_VF_LINK_STATE_ENABLE) => Some(LinkState::Enable),
            Some(IFLA_VF_LINK_STATE_DISABLE) => Some(LinkState::Disable),
            _ => None,
        },
        node_guid: info.get(IFLA_VF_IB_NODE_GUID).and_then(parse_guid),
        port_guid: info.get(IFLA_VF_IB_PORT_GUID).and_then(parse_guid),
    }
}

/// Parses the first VLAN of the list, or the VLAN that kernels before 4.9 report.
fn parse_vlan(info: &ReceivedAttributes<'_>) -> Option<VfVlan> {
    let list = info.get(IFLA_VF_VLAN_LIST).and_then(ReceivedAttributes::parse);
    let listed = list.as_ref().and_then(|list| list.get(IFLA_VF_VLAN_INFO));
    let value = listed.or_else(|| info.get(IFLA_VF_VLAN))?;
    let protocol = listed.and_then(|value| Some(u16::from_be_bytes(*value.get(12..)?.first_chunk()?)));
    let is_ad = protocol == Some(VlanProtocol::Ieee8021ad.ether_type());
    Some(VfVlan {
        id: u16::try_from(word(value, 1)?).ok()?,
        qos: u8::try_from(word(value, 2)?).ok()?,
        protocol: if is_ad { VlanProtocol::Ieee8021ad } else { VlanProtocol::Ieee8021q },
    })
}

/// Parses a GUID, which is a number that is aligned to eight bytes.
fn parse_guid(value: &[u8]) -> Option<Guid> {
    let number = u64::from_ne_bytes(value.get(8..)?.try_into().ok()?);
    Some(Guid(number.to_be_bytes()))
}

/// Returns a number in a structure of numbers.
fn word(value: &[u8], at: usize) -> Option<u32> {
    value.get(4 * at..)?.first_chunk().map(|word| u32::from_ne_bytes(*word))
}

/// Returns the request that changes settings of a VF through its PF. The kernel applies them in this order, and stops at
/// the first one that it refuses.
pub(in crate::linux::netlink) fn set(pf_index: u32, vf: u16, settings: &[VfSetting]) -> NetlinkRequest {
    // An entry for each setting: within one entry the kernel has its own order.
    let entries = settings
        .iter()
        .fold(Attributes::default(), |list, setting| list.with_nested(IFLA_VF_INFO, &setting.encode(vf)));
    set_list(pf_index, &entries)
}

/// Returns the request that sets the node GUID and the port GUID of a VF through its InfiniBand PF.
pub(in crate::linux::netlink) fn set_guid(pf_index: u32, vf: u16, guid: Guid) -> NetlinkRequest {
    let guids = VfSetting::PortGuid(guid).add_to(VfSetting::NodeGuid(guid).encode(vf), vf);
    set_list(pf_index, &Attributes::default().with_nested(IFLA_VF_INFO, &guids))
}

fn set_list(pf_index: u32, list: &Attributes) -> NetlinkRequest {
    let attributes = Attributes::default().with_nested(IFLA_VFINFO_LIST, list);
    NetlinkRequest { kind: RTM_SETLINK, body: body(pf_index, 0, &attributes) }
}

#[cfg(test)]
#[path = "vf/tests.rs"]
mod tests;
