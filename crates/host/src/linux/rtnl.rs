//! Network interfaces, routes and addresses, through rtnetlink. Interfaces always by index: names change.

mod address;
mod link;
mod route;

pub(super) use address::Address;
pub(super) use link::{Link, is_virtual};
pub(super) use route::Route;

use netlink_sys::protocols::NETLINK_ROUTE;

use vfleet_api::{Guid, MacAddr};

use self::link::{IFLA_VF_IB_NODE_GUID, IFLA_VF_IB_PORT_GUID, IFLA_VF_INFO, IFLA_VF_MAC, IFLA_VFINFO_LIST};
use super::netlink::{Attributes, Conversation, nonsense};
use crate::HostError;

pub(super) const RTM_NEWLINK: u16 = 16;
pub(super) const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;
const RTM_SETLINK: u16 = 19;
pub(super) const RTM_NEWADDR: u16 = 20;
pub(super) const RTM_DELADDR: u16 = 21;
const RTM_GETADDR: u16 = 22;
pub(super) const RTM_NEWROUTE: u16 = 24;
pub(super) const RTM_DELROUTE: u16 = 25;
const RTM_GETROUTE: u16 = 26;
const IFLA_MTU: u16 = 4;
const IFLA_EXT_MASK: u16 = 29;
const RTEXT_FILTER_VF: u32 = 1;
const RTEXT_FILTER_SKIP_STATS: u32 = 8;
const IFF_UP: u32 = 1;
/// What a MAC is in, with room for the longest address of any network.
const LONGEST_ADDRESS: usize = 32;

/// A conversation with the kernel about its network.
pub(super) struct Rtnl(Conversation);

impl Rtnl {
    pub(super) fn open() -> Result<Self, HostError> {
        Conversation::open(NETLINK_ROUTE).map(Self)
    }

    /// The interface with this index, with what it keeps for its VFs.
    pub(super) fn link(&mut self, index: u32) -> Result<Link, HostError> {
        let attempt = format!("read interface {index}");
        // Without the VFs' counters: with them the list outgrows what a netlink attribute can hold at 200 VFs.
        let body = about_link(index, 0, &mask(RTEXT_FILTER_VF | RTEXT_FILTER_SKIP_STATS));
        let answer = self.0.ask(RTM_GETLINK, &body, &attempt)?;
        Link::parse(&answer).ok_or_else(|| nonsense(&attempt))
    }

    /// All interfaces of this network namespace, without what they keep for VFs.
    pub(super) fn links(&mut self) -> Result<Vec<Link>, HostError> {
        let body = about_link(0, 0, &mask(RTEXT_FILTER_SKIP_STATS));
        self.0.list(RTM_GETLINK, &body, "list the network interfaces", Link::parse)
    }

    /// All routes.
    pub(super) fn routes(&mut self) -> Result<Vec<Route>, HostError> {
        self.0.list(RTM_GETROUTE, &route::ALL, "list the routes", Route::parse)
    }

    /// All addresses of interfaces.
    pub(super) fn addresses(&mut self) -> Result<Vec<Address>, HostError> {
        self.0.list(RTM_GETADDR, &address::ALL, "list the addresses", Address::parse)
    }

    pub(super) fn set_up(&mut self, index: u32, attempt: &str) -> Result<(), HostError> {
        self.0.change(RTM_SETLINK, &about_link(index, IFF_UP, &Attributes::default()), attempt)
    }

    pub(super) fn set_mtu(&mut self, index: u32, mtu: u32, attempt: &str) -> Result<(), HostError> {
        let wanted = Attributes::default().with(IFLA_MTU, &mtu.to_ne_bytes());
        self.0.change(RTM_SETLINK, &about_link(index, 0, &wanted), attempt)
    }

    pub(super) fn set_vf_mac(
        &mut self,
        pf_index: u32,
        vf: u16,
        mac: MacAddr,
        attempt: &str,
    ) -> Result<(), HostError> {
        self.0.change(RTM_SETLINK, &vf_mac_request(pf_index, vf, mac), attempt)
    }

    /// Sets the node and the port GUID that an InfiniBand PF keeps for a VF.
    pub(super) fn set_vf_guid(
        &mut self,
        pf_index: u32,
        vf: u16,
        guid: Guid,
        attempt: &str,
    ) -> Result<(), HostError> {
        self.0.change(RTM_SETLINK, &vf_guid_request(pf_index, vf, guid), attempt)
    }
}

fn mask(mask: u32) -> Attributes {
    Attributes::default().with(IFLA_EXT_MASK, &mask.to_ne_bytes())
}

/// A message about an interface, with these flags to be set.
fn about_link(index: u32, flags: u32, attributes: &Attributes) -> Vec<u8> {
    let flags = flags.to_ne_bytes();
    let any_family_and_type = [0; 4];
    attributes.after(&[any_family_and_type, index.to_ne_bytes(), flags, flags].concat())
}

fn vf_mac_request(pf_index: u32, vf: u16, mac: MacAddr) -> Vec<u8> {
    let mut value = u32::from(vf).to_ne_bytes().to_vec();
    value.extend(mac.0);
    value.resize(4 + LONGEST_ADDRESS, 0);
    about_vf(pf_index, &Attributes::default().with(IFLA_VF_MAC, &value))
}

fn vf_guid_request(pf_index: u32, vf: u16, guid: Guid) -> Vec<u8> {
    // As a number, whose first byte is the GUID's; a number of eight bytes starts at a multiple of eight.
    let number = u64::from_be_bytes(guid.0);
    let value = [&u32::from(vf).to_ne_bytes()[..], &[0; 4], &number.to_ne_bytes()].concat();
    about_vf(
        pf_index,
        &Attributes::default().with(IFLA_VF_IB_NODE_GUID, &value).with(IFLA_VF_IB_PORT_GUID, &value),
    )
}

fn about_vf(pf_index: u32, wanted: &Attributes) -> Vec<u8> {
    let list = Attributes::default().with_nested(IFLA_VF_INFO, wanted);
    about_link(pf_index, 0, &Attributes::default().with_nested(IFLA_VFINFO_LIST, &list))
}

#[cfg(test)]
mod tests {
    use netlink_bindings::rt_link as independent;

    use super::*;

    /// What the other encoder writes for a VF of interface 7.
    fn expected(
        write: impl FnOnce(
            independent::PushVfinfoAttrs<
                independent::PushVfinfoListAttrs<independent::PushLinkAttrs<&mut Vec<u8>>>,
            >,
        ),
    ) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut header = independent::Ifinfomsg::new();
        header.ifi_index = 7;
        let request = independent::OpSetlinkDo::encode_request(&mut bytes, &header);
        write(request.nested_vfinfo_list().nested_info());
        bytes
    }

    #[test]
    fn guids_are_what_an_independent_encoder_writes() {
        let guid = Guid([0x02, 0, 0, 0, 0, 0xaa, 0, 0x0f]);
        let written = expected(|vf| {
            let mut value = independent::IflaVfGuid::new();
            (value.vf, value.guid) = (3, 0x0200_0000_00aa_000f);
            drop(vf.push_ib_node_guid(value.clone()).push_ib_port_guid(value));
        });
        assert_eq!(vf_guid_request(7, 3, guid), written);
    }

    #[test]
    fn macs_are_what_an_independent_encoder_writes() {
        let written = expected(|vf| {
            let mut value = independent::IflaVfMac::new();
            value.vf = 3;
            value.mac[..6].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
            drop(vf.push_mac(value));
        });
        assert_eq!(vf_mac_request(7, 3, MacAddr([2, 0, 0, 0, 0, 9])), written);
    }

    #[test]
    fn the_kernel_describes_its_loopback() {
        let mut rtnl = Rtnl::open().unwrap();
        let link = rtnl.link(1).unwrap();
        assert_eq!((link.index, link.name.as_str(), link.mac), (1, "lo", Some(MacAddr::ZERO)));
        assert!(link.mtu > 0 && link.vf_macs.is_empty());
        assert!(rtnl.links().unwrap().contains(&link));
        let loopback = Address { index: 1, is_global: false, ip: Some([127, 0, 0, 1].into()) };
        assert!(rtnl.addresses().unwrap().contains(&loopback));
        rtnl.routes().unwrap();
    }

    #[test]
    fn an_interface_that_is_not_there_is_no_such_device() {
        let error = Rtnl::open().unwrap().link(999_999).unwrap_err();
        assert_eq!((error.errno(), error.reason()), (Some(19), "NetlinkRefused"));
        assert_eq!(error.to_string(), "cannot read interface 999999");
    }
}
