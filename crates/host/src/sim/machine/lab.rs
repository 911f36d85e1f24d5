//! Machine of the VM lab.

use vfleet_api::{MacAddr, PciAddress};

use super::{CardLinkKind, EswitchRule, HexId, MachinePf};

/// Returns the Intel 82576 card in the slot with this number, as emulated by QEMU.
pub(super) fn card(number: u8) -> Option<MachinePf> {
    Some(MachinePf {
        address: PciAddress::new(0, number, 0, 0)?,
        name: format!("enp{number}s0"),
        alt_names: vec![format!("enx02000000{number:02x}00")],
        mac: Some(MacAddr([2, 0, 0, 0, number, 0])),
        permanent_mac: None,
        vendor: HexId(0x8086),
        device: HexId(0x10c9),
        vf_device: HexId(0x10ca),
        driver: Some("igb".to_owned()),
        vf_driver: "igbvf".to_owned(),
        total_vfs: 7,
        vf_offset: 128,
        vf_stride: 2,
        mtu: 1500,
        max_mtu: Some(9216),
        up: false,
        speed: Some(1000),
        autoprobe: true,
        num_vfs: 0,
        numa_node: None,
        link_kind: CardLinkKind::Ethernet,
        eswitch: None,
        stuck_representors: false,
        eswitch_rule: EswitchRule::OfDriver,
        tc_offload: None,
        rdma: false,
        node_guid: None,
        port_guid: None,
        firmware: None,
        lone_vf: false,
        net_filter: None,
        host_use: None,
        vf_rules: None,
        numbers_rdma: false,
    })
}
