//! Settings of VFs in the interface of their PF.

use vfleet_api::{Guid, MacAddr};

use super::RTM_SETLINK;
use super::link::{IFLA_VFINFO_LIST, body};
use crate::linux::netlink::NetlinkRequest;
use crate::linux::netlink::attribute::{Attributes, ReceivedAttributes};

const IFLA_VF_INFO: u16 = 1;
const IFLA_VF_MAC: u16 = 1;
const IFLA_VF_IB_NODE_GUID: u16 = 10;
const IFLA_VF_IB_PORT_GUID: u16 = 11;
/// Size of the address field of a MAC attribute, which has space for any link layer.
const ADDRESS_FIELD_LENGTH: usize = 32;

/// Settings of one VF.
pub(super) struct VfInfo<'a>(ReceivedAttributes<'a>);

impl<'a> VfInfo<'a> {
    /// Parses the settings of all VFs of an interface; `None` if they are invalid.
    pub(super) fn parse_all(link: &ReceivedAttributes<'a>) -> Option<Vec<Self>> {
        let list = link.nested(IFLA_VFINFO_LIST)?;
        list.all(IFLA_VF_INFO).map(|info| ReceivedAttributes::parse(info).map(Self)).collect()
    }

    /// Returns the index and the MAC address of the VF.
    pub(super) fn mac(&self) -> Option<(u32, MacAddr)> {
        let (index, address) = self.0.get(IFLA_VF_MAC)?.split_first_chunk::<4>()?;
        Some((u32::from_ne_bytes(*index), MacAddr(*address.first_chunk()?)))
    }

    /// Returns the index and the node GUID of the VF.
    pub(super) fn guid(&self) -> Option<(u32, Guid)> {
        let (index, rest) = self.0.get(IFLA_VF_IB_NODE_GUID)?.split_first_chunk::<4>()?;
        // After padding: the number is aligned to eight bytes.
        let number = u64::from_ne_bytes(rest.get(4..)?.try_into().ok()?);
        Some((u32::from_ne_bytes(*index), Guid(number.to_be_bytes())))
    }
}

/// Returns the request that sets the MAC address of a VF through its PF.
pub(in crate::linux::netlink) fn set_mac(pf_index: u32, vf: u16, mac: MacAddr) -> NetlinkRequest {
    let mut value = u32::from(vf).to_ne_bytes().to_vec();
    value.extend(mac.0);
    value.resize(4 + ADDRESS_FIELD_LENGTH, 0);
    set_vf(pf_index, &Attributes::default().with(IFLA_VF_MAC, &value))
}

/// Returns the request that sets the node GUID and the port GUID of a VF through its InfiniBand PF.
pub(in crate::linux::netlink) fn set_guid(pf_index: u32, vf: u16, guid: Guid) -> NetlinkRequest {
    // The GUID as a number in native byte order, aligned to eight bytes.
    let number = u64::from_be_bytes(guid.0);
    let value = [&u32::from(vf).to_ne_bytes()[..], &[0; 4], &number.to_ne_bytes()].concat();
    let guids = Attributes::default().with(IFLA_VF_IB_NODE_GUID, &value).with(IFLA_VF_IB_PORT_GUID, &value);
    set_vf(pf_index, &guids)
}

fn set_vf(pf_index: u32, settings: &Attributes) -> NetlinkRequest {
    let list = Attributes::default().with_nested(IFLA_VF_INFO, settings);
    let attributes = Attributes::default().with_nested(IFLA_VFINFO_LIST, &list);
    NetlinkRequest { kind: RTM_SETLINK, body: body(pf_index, 0, &attributes) }
}

#[cfg(test)]
mod tests {
    use netlink_bindings::rt_link as independent;

    use super::*;

    /// Returns the request of the independent encoder for a VF of interface 7.
    fn expected(
        write: impl FnOnce(
            independent::PushVfinfoAttrs<
                independent::PushVfinfoListAttrs<independent::PushLinkAttrs<&mut Vec<u8>>>,
            >,
        ),
    ) -> NetlinkRequest {
        let mut bytes = Vec::new();
        let mut header = independent::Ifinfomsg::new();
        header.ifi_index = 7;
        let request = independent::OpSetlinkDo::encode_request(&mut bytes, &header);
        write(request.nested_vfinfo_list().nested_info());
        NetlinkRequest { kind: 19, body: bytes }
    }

    #[test]
    fn the_request_for_guids_equals_that_of_an_independent_encoder() {
        let guid = Guid([0x02, 0, 0, 0, 0, 0xaa, 0, 0x0f]);
        let written = expected(|vf| {
            let mut value = independent::IflaVfGuid::new();
            (value.vf, value.guid) = (3, 0x0200_0000_00aa_000f);
            drop(vf.push_ib_node_guid(value.clone()).push_ib_port_guid(value));
        });
        assert_eq!(set_guid(7, 3, guid), written);
    }

    #[test]
    fn the_request_for_macs_equals_that_of_an_independent_encoder() {
        let written = expected(|vf| {
            let mut value = independent::IflaVfMac::new();
            value.vf = 3;
            value.mac[..6].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
            drop(vf.push_mac(value));
        });
        assert_eq!(set_mac(7, 3, MacAddr([2, 0, 0, 0, 0, 9])), written);
    }
}
