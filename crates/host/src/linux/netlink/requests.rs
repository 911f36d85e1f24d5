//! Bytes of every request, as they were tested with the kernels and cards of the lab. A changed test means a changed
//! request.

use vfleet_api::bridge::BridgeVlanProtocol;
use vfleet_api::{Guid, MacAddr};
use vfleet_plan::EswitchMode;
use vfleet_plan::cni::facts::{BridgeVlan, LinkState, VfVlan, VlanProtocol};
use vfleet_plan::cni::step::{InterfaceRoute, IpPrefix};

use super::devlink::{self, DevlinkHandle};
use super::rtnl::{BridgeChange, VethEnd, VethPair, VfSetting, requests as rtnl};
use super::{NetlinkRequest, ethtool, generic, rdma, vdpa};

/// Arbitrary index of an interface.
const INDEX: u32 = 7777;
/// Arbitrary number of a generic family.
const FAMILY: u16 = 30;

#[track_caller]
fn assert_bytes(request: &NetlinkRequest, kind: u16, expected: &str) {
    let found = request.body.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
    assert_eq!((request.kind, found.as_str()), (kind, expected));
}

#[track_caller]
fn assert_command(command: &generic::FamilyCommand, expected: &str) {
    assert_bytes(&command.request(FAMILY), FAMILY, expected);
}

#[test]
fn requests_of_rtnetlink() {
    assert_bytes(&rtnl::get(INDEX), 18, "00000000611e0000000000000000000008001d0009000000");
    assert_bytes(&rtnl::list(), 18, "0000000000000000000000000000000008001d0008000000");
    assert_bytes(&rtnl::list_routes(), 26, "000000000000000000000000");
    assert_bytes(&rtnl::get_route([192, 0, 2, 7].into()), 26, "02200000000000000000000008000100c0000207");
    assert_bytes(&rtnl::list_next_hops(), 106, "0000000000000000");
    assert_bytes(&rtnl::list_addresses(), 22, "0000000000000000");
    assert_bytes(&rtnl::set_up(INDEX), 19, "00000000611e00000100000001000000");
    assert_bytes(&rtnl::set_mtu(INDEX, 9000), 19, "00000000611e000000000000000000000800040028230000");
    assert_bytes(
        &rtnl::set_vf(INDEX, 3, &[VfSetting::Mac(MacAddr([2, 0, 0, 0, 0, 9]))]),
        19,
        "00000000611e00000000000000000000300016802c000180280001000300000002000000000900000000000000000000\
         00000000000000000000000000000000",
    );
    assert_bytes(
        &rtnl::set_guid(INDEX, 3, Guid([2, 0, 0, 0, 0, 0xaa, 0, 0x0f])),
        19,
        "00000000611e00000000000000000000300016802c00018014000a0003000000000000000f00aa000000000214000b00\
         03000000000000000f00aa0000000002",
    );
}

#[test]
fn requests_for_settings_of_vfs() {
    let vlan = VfVlan { id: 100, qos: 5, protocol: VlanProtocol::Ieee8021ad };
    let settings = [
        VfSetting::Vlan(vlan),
        VfSetting::Rates { min: 10, max: 200 },
        VfSetting::SpoofCheck(true),
        VfSetting::Trust(false),
        VfSetting::LinkState(LinkState::Disable),
    ];
    assert_bytes(
        &rtnl::set_vf(INDEX, 3, &settings),
        19,
        "00000000611e00000000000000000000640016801c00018018000c801400010003000000640000000500000088a800001400018010000600030000000a000000c8000000100001800c0004000300000001000000100001800c0009000300000000000000100001800c0005000300000002000000",
    );
    let older = [VfSetting::PlainVlan(vlan), VfSetting::MaxRate(200)];
    assert_bytes(
        &rtnl::set_vf(INDEX, 3, &older),
        19,
        "00000000611e00000000000000000000280016801400018010000200030000006400000005000000100001800c00030003000000c8000000",
    );
}

#[test]
fn requests_for_interfaces_of_pods() {
    assert_bytes(&rtnl::set_down(INDEX), 19, "00000000611e00000000000001000000");
    assert_bytes(
        &rtnl::set_address(INDEX, MacAddr([2, 0, 0, 0, 0, 9])),
        19,
        "00000000611e000000000000000000000a0001000200000000090000",
    );
    assert_bytes(
        &rtnl::rename(INDEX, "dev%d"),
        19,
        "00000000611e000000000000000000000a0003006465762564000000",
    );
    assert_bytes(
        &rtnl::move_to(INDEX, 5, "net1"),
        19,
        "00000000611e0000000000000000000008001c0005000000090003006e65743100000000",
    );
    assert_bytes(
        &rtnl::add_alt_name(INDEX, "enp1s0v0"),
        108,
        "00000000611e00000000000000000000140034800d003500656e70317330763000000000",
    );
    assert_bytes(
        &rtnl::remove_alt_name(INDEX, "enp1s0v0"),
        109,
        "00000000611e00000000000000000000140034800d003500656e70317330763000000000",
    );
    let address = |text: &str, length| IpPrefix { address: text.parse().unwrap(), length };
    assert_bytes(
        &rtnl::add_address(INDEX, address("192.0.2.7", 24)),
        20,
        "02180000611e000008000200c000020708000100c000020708000400c00002ff",
    );
    assert_bytes(
        &rtnl::add_address(INDEX, address("2001:db8::7", 64)),
        20,
        "0a400000611e00001400020020010db80000000000000000000000071400010020010db8000000000000000000000007",
    );
    let route = InterfaceRoute {
        destination: address("0.0.0.0", 0),
        gateway: Some("192.0.2.1".parse().unwrap()),
        mtu: Some(1400),
        advmss: Some(1300),
        priority: Some(100),
        table: Some(1000),
        scope: None,
    };
    assert_bytes(
        &rtnl::add_route(INDEX, &route),
        24,
        "02000000000300010000000008000400611e000008000500c00002010800060064000000140008800800020078050000080008001405000008000f00e8030000",
    );
}

#[test]
fn requests_for_linux_bridges() {
    assert_bytes(
        &rtnl::get_by_name("br0"),
        18,
        "0000000000000000000000000000000008001d00080000000800030062723000",
    );
    assert_bytes(
        &rtnl::create_bridge("br0", 0x7666_6c74),
        16,
        "00000000000000000000000000000000080003006272300008001b00746c6676100012800b0001006272696467650000",
    );
    assert_bytes(
        &rtnl::set_alias(INDEX, "vfleet"),
        19,
        "00000000611e000000000000000000000a00140076666c6565740000",
    );
    let change = BridgeChange {
        vlan_filtering: Some(true),
        vlan_protocol: Some(BridgeVlanProtocol::Ieee8021ad),
        mtu: Some(9000),
        group: Some(0),
    };
    assert_bytes(
        &rtnl::set_bridge(INDEX, &change),
        16,
        "00000000611e00000100000001000000080004002823000008001b0000000000240012800b0001006272696467650000\
         1400028005000700010000000600080088a80000",
    );
    assert_bytes(
        &rtnl::set_bridge(INDEX, &BridgeChange::default()),
        16,
        "00000000611e00000100000001000000140012800b000100627269646765000004000280",
    );
    assert_bytes(&rtnl::set_master(INDEX, Some(9)), 19, "00000000611e0000000000000000000008000a0009000000");
    assert_bytes(&rtnl::set_master(INDEX, None), 19, "00000000611e0000000000000000000008000a0000000000");
    let settings = [("cost", 65535), ("learning", 0), ("priority", 63)].into();
    assert_bytes(
        &rtnl::set_port(INDEX, &settings),
        19,
        "07000000611e000000000000000000001c000c8008000300ffff00000500080000000000060002003f000000",
    );
    assert_bytes(&rtnl::remove(INDEX), 17, "00000000611e00000000000000000000");
}

#[test]
fn requests_for_ports_of_pods() {
    let [pod, host] = [("net1", 9), ("veth00aa11bb", 8)]
        .map(|(name, last)| VethEnd { name, mac: MacAddr([2, 0, 0, 0, 0, last]) });
    assert_bytes(
        &rtnl::create_pair(&VethPair { pod, host, mtu: 9000 }, 5),
        16,
        "00000000000000000000000000000000090003006e657431000000000a00010002000000000900000800040028230000\
         08001c000500000050001280090001007665746800000000400002803c00010000000000000000000000000000000000\
         11000300766574683030616131316262000000000a00010002000000000800000800040028230000",
    );
    let vlans = [10, 11, 12].map(BridgeVlan::tagged).into_iter().chain([BridgeVlan::native(100)]);
    let vlans: Vec<_> = vlans.collect();
    let list = "07000000611e000000000000000000001c001a800800020008000a000800020010000c000800020006006400";
    assert_bytes(&rtnl::list_vlans(), 18, "0700000000000000000000000000000008001d0004000000");
    assert_bytes(&rtnl::add_vlans(INDEX, &vlans), 19, list);
    assert_bytes(&rtnl::remove_vlans(INDEX, &vlans), 17, list);
}

#[test]
fn requests_of_devlink() {
    let device = DevlinkHandle::pci("0000:03:00.1".parse().unwrap());
    assert_command(
        &devlink::list_ports(&device),
        "05010000080001007063690011000200303030303a30333a30302e3100000000",
    );
    assert_command(&generic::get_family("devlink"), "030100000c0002006465766c696e6b00");
    assert_command(
        &devlink::get_eswitch(&device),
        "1d010000080001007063690011000200303030303a30333a30302e3100000000",
    );
    for (mode, number) in [(EswitchMode::Legacy, "00"), (EswitchMode::Switchdev, "01")] {
        let expected = "1e010000080001007063690011000200303030303a30333a30302e310000000006001900".to_owned()
            + number
            + "000000";
        assert_command(&devlink::set_eswitch(&device, mode), &expected);
    }
    assert_command(
        &devlink::get_parameter(&device, "flow_steering_mode"),
        "26010000080001007063690011000200303030303a30333a30302e310000000017005100666c6f775f7374656572696e\
         675f6d6f64650000",
    );
    assert_command(
        &devlink::set_text_parameter(&device, "flow_steering_mode", 1, "smfs"),
        "27010000080001007063690011000200303030303a30333a30302e310000000017005100666c6f775f7374656572696e\
         675f6d6f646500000500530005000000050057000100000009005600736d667300000000",
    );
}

#[test]
fn requests_of_ethtool() {
    assert_command(&ethtool::get_features(INDEX), "0b0100000c00018008000100611e0000");
    assert_command(
        &ethtool::set_feature(INDEX, "hw-tc-offload", true),
        "0c0100001400018008000100611e0000080003000200000024000380200003801c0001801200020068772d74632d6f66\
         666c6f616400000004000300",
    );
    assert_command(
        &ethtool::set_feature(INDEX, "hw-tc-offload", false),
        "0c0100001400018008000100611e00000800030002000000200003801c000380180001801200020068772d74632d6f66\
         666c6f6164000000",
    );
}

#[test]
fn requests_of_vdpa() {
    let (name, parent) = ("vdpa:0000:03:00.1", "0000:03:00.1");
    assert_command(
        &vdpa::create(name, Some("pci"), parent, Some(32)),
        "0301000016000400766470613a303030303a30333a30302e310000000800010070636900110002003030\
         30303a30333a30302e310000000006000c0020000000",
    );
    assert_command(
        &vdpa::create("vdpa:x", None, "vdpasim_net", None),
        "030100000b000400766470613a780000100002007664706173696d5f6e657400",
    );
    assert_command(&vdpa::remove(name), "0401000016000400766470613a303030303a30333a30302e31000000");
    assert_command(&vdpa::get_config(name), "0601000016000400766470613a303030303a30333a30302e31000000");
    assert_command(
        &vdpa::set_mac("vdpa:x", MacAddr([2, 0, 0, 0, 0, 9])),
        "080100000b000400766470613a7800000a000a000200000000090000",
    );
}

#[test]
fn requests_of_rdma() {
    assert_bytes(&rdma::get_system(), 5126, "");
    assert_bytes(&rdma::list_devices(), 5121, "");
    assert_bytes(&rdma::move_to(3, 5), 5122, "08000100030000000800440005000000");
    assert_bytes(&rdma::rename(3, "mlx5_2"), 5122, "08000100030000000b0002006d6c78355f320000");
}
