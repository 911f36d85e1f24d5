//! Random desired states.

use proptest::prelude::*;
use vfleet_api::node_state::{Interface, System, VfGroup};
use vfleet_api::pool_config::RdmaMode;
use vfleet_api::{SriovNetworkNodeStateSpec, VfRange};

use super::machine::address;

/// Specs for a machine with this number of cards, valid or not.
pub(crate) fn spec(cards: usize) -> impl Strategy<Value = SriovNetworkNodeStateSpec> {
    let one_for_each: Vec<_> =
        (1_u8..).take(cards).map(|number| prop::option::weighted(0.7, interface(number))).collect();
    let interfaces = prop::option::weighted(0.95, one_for_each);
    let mode = prop::option::weighted(0.1, prop::sample::select(vec![RdmaMode::Shared, RdmaMode::Exclusive]));
    (interfaces, mode).prop_map(|(interfaces, mode)| SriovNetworkNodeStateSpec {
        interfaces: interfaces.map(|list| list.into_iter().flatten().collect()),
        system: mode.map(|mode| System { rdma_mode: Some(mode) }),
        ..SriovNetworkNodeStateSpec::default()
    })
}

/// Desired PFs, mostly valid ones, because nothing is done for invalid ones.
fn interface(number: u8) -> impl Strategy<Value = Interface> {
    let num_vfs = prop_oneof![18 => 0_u8..=6, 1 => Just(9)];
    let card = prop_oneof![20 => Just(number), 1 => Just(15)];
    (card, num_vfs).prop_flat_map(|(card, num_vfs)| {
        let link_types = vec!["ETH", "eth", "ETH", "eth", "IB"];
        let link_type = prop::option::weighted(0.1, prop::sample::select(link_types));
        let mode =
            prop::option::weighted(0.4, prop::sample::select(vec!["legacy", "switchdev", "switchdev"]));
        let external = prop::option::weighted(0.3, any::<bool>());
        let groups = prop::collection::vec(group(num_vfs.into()), 0..=3);
        (mtu(), link_type, mode, external, groups).prop_map(
            move |(mtu, link_type, mode, external, groups)| Interface {
                pci_address: address(card).into(),
                // 20 is more than any card supports, unless its firmware can be changed.
                num_vfs: Some(if num_vfs == 9 { 20 } else { num_vfs.into() }),
                mtu,
                name: None,
                link_type: link_type.map(str::to_owned),
                e_switch_mode: mode.map(str::to_owned),
                vf_groups: Some(groups).filter(|groups| !groups.is_empty()),
                externally_managed: external,
                override_host_protection: None,
            },
        )
    })
}

/// Groups with VFs below `num_vfs`, or slightly beyond.
fn group(num_vfs: u16) -> impl Strategy<Value = VfGroup> {
    let kind = prop_oneof![15 => Just("netdevice"), 12 => Just("vfio-pci"), 1 => Just("uio_pci_generic"),
        1 => Just("toaster")];
    let beyond = prop_oneof![15 => Just(0_u16), 1 => Just(1)];
    let range = prop::option::weighted(0.8, (0..num_vfs.max(1), 0_u16..=6, beyond));
    let rdma = prop::option::weighted(0.2, any::<bool>());
    let vdpa = prop::option::weighted(0.1, prop::sample::select(vec!["vhost", "virtio"]));
    (kind, range, mtu(), rdma, vdpa).prop_map(move |(kind, range, mtu, is_rdma, vdpa)| VfGroup {
        device_type: Some(kind.to_owned()),
        vf_range: range
            .and_then(|(first, more, beyond)| {
                VfRange::new(first, (first + more).min(num_vfs.saturating_sub(1)) + beyond)
            })
            .map(Into::into),
        policy_name: Some("policy".to_owned()),
        mtu,
        is_rdma,
        vdpa_type: vdpa.map(str::to_owned),
        ..VfGroup::default()
    })
}

fn mtu() -> impl Strategy<Value = Option<i64>> {
    let possible = prop::sample::select(vec![None, None, Some(0), Some(1500), Some(3000), Some(9000)]);
    prop_oneof![20 => possible, 1 => Just(Some(20_000))]
}
