use netlink_bindings::rt_link as independent;
use netlink_packet_core::Emitable;
use netlink_packet_route::link::{
    LinkAttribute, LinkMessage, LinkVfInfo, VfInfo, VfInfoVlan, VfVlan as OtherVlan, VfVlanInfo,
};
use proptest::prelude::*;

use super::*;
use crate::linux::netlink::rtnl::Link;

type IndependentVf<'a> = independent::PushVfinfoAttrs<
    independent::PushVfinfoListAttrs<independent::PushLinkAttrs<&'a mut Vec<u8>>>,
>;

const GUID: Guid = Guid([0x02, 0, 0, 0, 0, 0xaa, 0, 0x0f]);

/// Returns the request of the independent encoder for a VF of interface 7.
fn expected(write: impl FnOnce(IndependentVf<'_>)) -> NetlinkRequest {
    let mut bytes = Vec::new();
    let mut header = independent::Ifinfomsg::new();
    header.ifi_index = 7;
    let request = independent::OpSetlinkDo::encode_request(&mut bytes, &header);
    write(request.nested_vfinfo_list().nested_info());
    NetlinkRequest { kind: 19, body: bytes }
}

#[test]
fn the_request_for_guids_equals_that_of_an_independent_encoder() {
    let written = expected(|vf| {
        let mut value = independent::IflaVfGuid::new();
        (value.vf, value.guid) = (3, 0x0200_0000_00aa_000f);
        drop(vf.push_ib_node_guid(value.clone()).push_ib_port_guid(value));
    });
    assert_eq!(set_guid(7, 3, GUID), written);
}

#[test]
fn the_request_for_macs_equals_that_of_an_independent_encoder() {
    let written = expected(|vf| {
        let mut value = independent::IflaVfMac::new();
        value.vf = 3;
        value.mac[..6].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
        drop(vf.push_mac(value));
    });
    assert_eq!(set(7, 3, &[VfSetting::Mac(MacAddr([2, 0, 0, 0, 0, 9]))]), written);
}

#[test]
fn requests_for_single_settings_equal_those_of_an_independent_encoder() {
    let vlan = VfVlan { id: 100, qos: 5, protocol: VlanProtocol::Ieee8021q };
    let requests = [
        (
            VfSetting::PlainVlan(vlan),
            expected(|vf| {
                let mut value = independent::IflaVfVlan::new();
                (value.vf, value.vlan, value.qos) = (3, 100, 5);
                drop(vf.push_vlan(value));
            }),
        ),
        (
            VfSetting::Rates { min: 10, max: 200 },
            expected(|vf| {
                let mut value = independent::IflaVfRate::new();
                (value.vf, value.min_tx_rate, value.max_tx_rate) = (3, 10, 200);
                drop(vf.push_rate(value));
            }),
        ),
        (
            VfSetting::MaxRate(200),
            expected(|vf| {
                let mut value = independent::IflaVfTxRate::new();
                (value.vf, value.rate) = (3, 200);
                drop(vf.push_tx_rate(value));
            }),
        ),
        (
            VfSetting::SpoofCheck(true),
            expected(|vf| {
                let mut value = independent::IflaVfSpoofchk::new();
                (value.vf, value.setting) = (3, 1);
                drop(vf.push_spoofchk(value));
            }),
        ),
        (
            VfSetting::Trust(false),
            expected(|vf| {
                let mut value = independent::IflaVfTrust::new();
                (value.vf, value.setting) = (3, 0);
                drop(vf.push_trust(value));
            }),
        ),
        (
            VfSetting::LinkState(LinkState::Disable),
            expected(|vf| {
                let mut value = independent::IflaVfLinkState::new();
                (value.vf, value.link_state) = (3, 2);
                drop(vf.push_link_state(value));
            }),
        ),
    ];
    for (setting, written) in requests {
        assert_eq!(set(7, 3, &[setting]), written, "{setting}");
    }
}

/// Returns the attributes of a message of an independent encoder with this list of VFs.
fn emit(vfs: Vec<LinkVfInfo>) -> Vec<u8> {
    let mut message = LinkMessage::default();
    message.header.index = 7;
    message.attributes = vec![
        LinkAttribute::IfName("enp1s0".to_owned()),
        LinkAttribute::Mtu(1500),
        LinkAttribute::VfInfoList(vfs),
    ];
    let mut bytes = vec![0; message.buffer_len()];
    message.emit(&mut bytes);
    bytes
}

fn vlan_list(id: u32, vlan: u32, qos: u32, protocol: u16) -> VfInfo {
    VfInfo::VlanList(vec![OtherVlan::Info(VfVlanInfo::new(id, vlan, qos, protocol.into()))])
}

#[test]
fn the_request_for_a_vlan_with_its_protocol_equals_that_of_an_independent_encoder() {
    let vlan = VfVlan { id: 100, qos: 5, protocol: VlanProtocol::Ieee8021ad };
    let found = set(7, 3, &[VfSetting::Vlan(vlan)]).body;
    let list = LinkVfInfo(vec![vlan_list(3, 100, 5, 0x88a8)]);
    let mut message = LinkMessage::default();
    message.header.index = 7;
    message.attributes = vec![LinkAttribute::VfInfoList(vec![list])];
    let mut written = vec![0; message.buffer_len()];
    message.emit(&mut written);
    // The kernel ignores the flag of nested attributes, which the other encoder does not set.
    let without_flags = |bytes: &[u8]| bytes.iter().map(|byte| byte & !0x80).collect::<Vec<_>>();
    assert_eq!(without_flags(&found), without_flags(&written));
}

#[test]
fn settings_are_entries_of_their_own_in_the_given_order() {
    let settings = [VfSetting::SpoofCheck(false), VfSetting::Mac(MacAddr::ZERO), VfSetting::Trust(true)];
    let body = set(7, 3, &settings).body;
    let link = ReceivedAttributes::parse(&body[16..]).unwrap();
    let list = link.nested(IFLA_VFINFO_LIST).unwrap();
    let kinds: Vec<u16> = list
        .all(IFLA_VF_INFO)
        .flat_map(|info| {
            ReceivedAttributes::parse(info).unwrap().iter().map(|(kind, _)| kind).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(kinds, [IFLA_VF_SPOOFCHK, IFLA_VF_MAC, IFLA_VF_TRUST]);
}

fn all_settings() -> VfSettings {
    VfSettings {
        mac: Some(MacAddr([2, 0, 0, 0, 0, 9])),
        vlan: Some(VfVlan { id: 4094, qos: 7, protocol: VlanProtocol::Ieee8021ad }),
        spoof_check: Some(true),
        trust: Some(false),
        min_tx_rate: Some(10),
        max_tx_rate: Some(200),
        link_state: Some(LinkState::Enable),
        node_guid: Some(GUID),
        port_guid: Some(GUID),
    }
}

/// Returns an interface with a VF that has these settings, in the form of requests.
fn link_with(settings: &VfSettings) -> Option<Link> {
    let VfSettings { mac, vlan, spoof_check, trust, min_tx_rate, max_tx_rate, link_state, .. } = *settings;
    let written = [
        mac.map(VfSetting::Mac),
        vlan.map(VfSetting::Vlan),
        spoof_check.map(VfSetting::SpoofCheck),
        trust.map(VfSetting::Trust),
        min_tx_rate.zip(max_tx_rate).map(|(min, max)| VfSetting::Rates { min, max }),
        link_state.map(VfSetting::LinkState),
        settings.node_guid.map(VfSetting::NodeGuid),
        settings.port_guid.map(VfSetting::PortGuid),
    ];
    let add = |all: Attributes, setting: VfSetting| setting.add_to(all, 3);
    let info = written.into_iter().flatten().fold(Attributes::default(), add);
    let list = Attributes::default().with_nested(IFLA_VF_INFO, &info);
    Link::parse(&Attributes::default().with_nested(IFLA_VFINFO_LIST, &list).after(&emit(Vec::new())[..36]))
}

#[test]
fn parses_what_is_written() {
    for settings in [all_settings(), VfSettings { mac: Some(MacAddr::ZERO), ..VfSettings::default() }] {
        assert_eq!(link_with(&settings).unwrap().vfs, [(3, settings)].into());
    }
}

#[test]
fn a_vlan_without_a_list_is_of_802_1q_and_switches_that_are_not_reported_are_none() {
    let minus_one = Attributes::default()
        .with(IFLA_VF_MAC, &[3, 0, 0, 0, 2, 0, 0, 0, 0, 9])
        .with(IFLA_VF_SPOOFCHK, &[3, 0, 0, 0, 255, 255, 255, 255])
        .with(IFLA_VF_VLAN, &[3, 0, 0, 0, 100, 0, 0, 0, 5, 0, 0, 0])
        .with(IFLA_VF_TX_RATE, &[3, 0, 0, 0, 200, 0, 0, 0])
        .with(IFLA_VF_TRUST, &[3, 0])
        .after(&[]);
    let found = parse(&ReceivedAttributes::parse(&minus_one).unwrap());
    let expected = VfSettings {
        mac: Some(MacAddr([2, 0, 0, 0, 0, 9])),
        vlan: Some(VfVlan { id: 100, qos: 5, protocol: VlanProtocol::Ieee8021q }),
        max_tx_rate: Some(200),
        ..VfSettings::default()
    };
    assert_eq!(found, expected);
}

#[test]
fn parses_the_vlans_of_an_independent_encoder() {
    let mac = VfInfo::Mac(netlink_packet_route::link::VfInfoMac::new(3, &[0; 6]));
    let plain = VfInfo::Vlan(VfInfoVlan::new(3, 100, 5));
    let bytes = emit(vec![LinkVfInfo(vec![mac, plain, vlan_list(3, 100, 5, 0x88a8)])]);
    let vlan = Link::parse(&bytes).unwrap().vfs[&3].vlan;
    assert_eq!(vlan, Some(VfVlan { id: 100, qos: 5, protocol: VlanProtocol::Ieee8021ad }));
}

/// Returns an interface with this many VFs. The length of the list has only 16 bits, as the kernel sets it.
fn long_list(count: u32) -> Vec<u8> {
    let mut list = Vec::new();
    for vf in 0..count {
        let value = [&vf.to_ne_bytes()[..], &vf.to_be_bytes(), &[0; 28]].concat();
        let info = Attributes::default().with(IFLA_VF_MAC, &value).with(200, &[0; 200]);
        list = Attributes::default().with_nested(IFLA_VF_INFO, &info).after(&list);
    }
    let length = u16::try_from((4 + list.len()) % 0x1_0000).unwrap();
    let before = Attributes::default().with_u32(IFLA_NUM_VF, count).after(&emit(Vec::new())[..36]);
    let header = [length.to_ne_bytes(), IFLA_VFINFO_LIST.to_ne_bytes()].concat();
    let mut bytes = [before, header, list].concat();
    bytes = Attributes::default().with_u32(51, 9000).after(&bytes);
    bytes
}

#[test]
fn a_list_that_is_longer_than_an_attribute_is_complete() {
    for count in [0, 1, 260, 261, 262, 300, 600, 1024] {
        let link = Link::parse(&long_list(count)).unwrap();
        assert_eq!((link.vfs.len(), link.max_mtu), (count as usize, Some(9000)), "{count}");
        assert!(link.vfs.iter().all(|(vf, settings)| settings.mac.unwrap().0[..4] == vf.to_be_bytes()));
    }
}

#[test]
fn older_kernels_get_only_what_they_can_express() {
    let vlan = |protocol| VfSetting::Vlan(VfVlan { id: 1, qos: 0, protocol });
    assert!(vlan(VlanProtocol::Ieee8021q).for_older_kernels().is_some());
    assert_eq!(vlan(VlanProtocol::Ieee8021ad).for_older_kernels(), None);
    assert_eq!(VfSetting::Rates { min: 0, max: 5 }.for_older_kernels(), Some(VfSetting::MaxRate(5)));
    assert_eq!(VfSetting::Rates { min: 1, max: 5 }.for_older_kernels(), None);
    assert_eq!(VfSetting::Trust(true).for_older_kernels(), None);
}

proptest! {
    #[test]
    fn accepts_a_damaged_list(at in 0_usize..70_000, byte: u8, length in 0_usize..70_000) {
        let mut bytes = long_list(270);
        let at = at % bytes.len();
        bytes[at] = byte;
        bytes.truncate(length);
        let _ = Link::parse(&bytes);
    }
}
