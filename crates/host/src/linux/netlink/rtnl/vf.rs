//! What an interface keeps for its VFs.

use vfleet_api::{Guid, MacAddr};

use super::RTM_SETLINK;
use super::link::{IFLA_VFINFO_LIST, body};
use crate::linux::netlink::Request;
use crate::linux::netlink::attribute::{Attributes, Received};

const IFLA_VF_INFO: u16 = 1;
const IFLA_VF_MAC: u16 = 1;
const IFLA_VF_IB_NODE_GUID: u16 = 10;
const IFLA_VF_IB_PORT_GUID: u16 = 11;
/// Room for the longest address of any network, which an attribute with a MAC has.
const LONGEST_ADDRESS: usize = 32;

/// What a PF says about one of its VFs.
pub(super) struct VfInfo<'a>(Received<'a>);

impl<'a> VfInfo<'a> {
    /// Returns what is said about each VF; `None` when it cannot be read.
    pub(super) fn all(link: &Received<'a>) -> Option<Vec<Self>> {
        let list = link.nested(IFLA_VFINFO_LIST)?;
        list.all(IFLA_VF_INFO).map(|info| Received::parse(info).map(Self)).collect()
    }

    /// Returns the VF's index and its MAC.
    pub(super) fn mac(&self) -> Option<(u32, MacAddr)> {
        let (index, address) = self.0.get(IFLA_VF_MAC)?.split_first_chunk::<4>()?;
        Some((u32::from_ne_bytes(*index), MacAddr(*address.first_chunk()?)))
    }

    /// Returns the VF's index and its node GUID.
    pub(super) fn guid(&self) -> Option<(u32, Guid)> {
        let (index, rest) = self.0.get(IFLA_VF_IB_NODE_GUID)?.split_first_chunk::<4>()?;
        // After a gap: the number starts at a multiple of eight bytes.
        let number = u64::from_ne_bytes(rest.get(4..)?.try_into().ok()?);
        Some((u32::from_ne_bytes(*index), Guid(number.to_be_bytes())))
    }
}

/// Sets the MAC that a PF keeps for a VF.
pub(in crate::linux::netlink) fn set_mac(pf_index: u32, vf: u16, mac: MacAddr) -> Request {
    let mut value = u32::from(vf).to_ne_bytes().to_vec();
    value.extend(mac.0);
    value.resize(4 + LONGEST_ADDRESS, 0);
    set(pf_index, &Attributes::default().with(IFLA_VF_MAC, &value))
}

/// Sets the node and the port GUID that an InfiniBand PF keeps for a VF.
pub(in crate::linux::netlink) fn set_guid(pf_index: u32, vf: u16, guid: Guid) -> Request {
    // As a number, whose first byte is the GUID's; a number of eight bytes starts at a multiple of eight.
    let number = u64::from_be_bytes(guid.0);
    let value = [&u32::from(vf).to_ne_bytes()[..], &[0; 4], &number.to_ne_bytes()].concat();
    let guids = Attributes::default().with(IFLA_VF_IB_NODE_GUID, &value).with(IFLA_VF_IB_PORT_GUID, &value);
    set(pf_index, &guids)
}

fn set(pf_index: u32, desired: &Attributes) -> Request {
    let list = Attributes::default().with_nested(IFLA_VF_INFO, desired);
    let attributes = Attributes::default().with_nested(IFLA_VFINFO_LIST, &list);
    Request { kind: RTM_SETLINK, body: body(pf_index, 0, &attributes) }
}

#[cfg(test)]
mod tests {
    use netlink_bindings::rt_link as independent;

    use super::*;

    /// Returns what the other encoder writes for a VF of interface 7.
    fn expected(
        write: impl FnOnce(
            independent::PushVfinfoAttrs<
                independent::PushVfinfoListAttrs<independent::PushLinkAttrs<&mut Vec<u8>>>,
            >,
        ),
    ) -> Request {
        let mut bytes = Vec::new();
        let mut header = independent::Ifinfomsg::new();
        header.ifi_index = 7;
        let request = independent::OpSetlinkDo::encode_request(&mut bytes, &header);
        write(request.nested_vfinfo_list().nested_info());
        Request { kind: 19, body: bytes }
    }

    #[test]
    fn guids_are_what_an_independent_encoder_writes() {
        let guid = Guid([0x02, 0, 0, 0, 0, 0xaa, 0, 0x0f]);
        let written = expected(|vf| {
            let mut value = independent::IflaVfGuid::new();
            (value.vf, value.guid) = (3, 0x0200_0000_00aa_000f);
            drop(vf.push_ib_node_guid(value.clone()).push_ib_port_guid(value));
        });
        assert_eq!(set_guid(7, 3, guid), written);
    }

    #[test]
    fn macs_are_what_an_independent_encoder_writes() {
        let written = expected(|vf| {
            let mut value = independent::IflaVfMac::new();
            value.vf = 3;
            value.mac[..6].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
            drop(vf.push_mac(value));
        });
        assert_eq!(set_mac(7, 3, MacAddr([2, 0, 0, 0, 0, 9])), written);
    }
}
