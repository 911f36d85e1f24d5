use vfleet_host::sim::{CardFirmware, CardLinkKind, EswitchRule, HexId, Machine, MachinePf};
use vfleet_plan::{EswitchMode, ModuleState};

use crate::contract::cases::{GIVEN_VFS, Given};

/// The machine that a case is given. [`Given`] says what its first card is; the others are those of the VM lab.
pub(super) fn machine(given: Given) -> Machine {
    let mut machine = Machine::lab();
    "BOOT_IMAGE=/vmlinuz root=/dev/vda1".clone_into(&mut machine.kernel.command_line);
    machine.kernel.modules = ["uio_pci_generic", "vhost_vdpa", "virtio_vdpa", "vhost_net", "tun", "ib_core"]
        .into_iter()
        .map(|name| (name.to_owned(), ModuleState::Loadable))
        .collect();
    let first = &mut machine.pfs[0];
    match given {
        Given::NoVfs => {}
        Given::VfsMadeDown => first.num_vfs = GIVEN_VFS,
        Given::VfsMadeUp => (first.num_vfs, first.up) = (GIVEN_VFS, true),
        Given::SwitchCard => *first = switch(first, EswitchRule::AnyTime),
        Given::SwitchForFreeVfs => *first = switch(first, EswitchRule::FreeVfs),
        Given::SwitchForVfs => *first = switch(first, EswitchRule::NeedsVfs),
        Given::SwitchForNoVfs => *first = without_vfs(switch(first, EswitchRule::NoVfs)),
        Given::StuckSwitch => *first = without_vfs(switch(first, EswitchRule::Never)),
        Given::RdmaCard => *first = mellanox(first),
        Given::InfinibandCard => {
            *first = MachinePf { link_kind: CardLinkKind::Infiniband, eswitch: None, ..mellanox(first) };
        }
        Given::LoneVf => first.lone_vf = true,
    }
    machine
}

/// The lab's card with an embedded switch; with VFs, and up.
fn switch(place: &MachinePf, eswitch_rule: EswitchRule) -> MachinePf {
    MachinePf {
        eswitch: Some(EswitchMode::Legacy),
        eswitch_rule,
        tc_offload: Some(false),
        num_vfs: GIVEN_VFS,
        up: true,
        ..place.clone()
    }
}

fn without_vfs(card: MachinePf) -> MachinePf {
    MachinePf { num_vfs: 0, up: false, ..card }
}

/// A card with an embedded switch, RDMA, and firmware that shows fewer VFs than it could; with VFs, and up.
fn mellanox(place: &MachinePf) -> MachinePf {
    MachinePf {
        vendor: HexId(0x15b3),
        device: HexId(0x101d),
        vf_device: HexId(0x101e),
        driver: Some("mlx5_core".to_owned()),
        vf_driver: "mlx5_core".to_owned(),
        total_vfs: 64,
        vf_offset: 2,
        vf_stride: 1,
        eswitch: Some(EswitchMode::Legacy),
        tc_offload: Some(false),
        rdma: true,
        firmware: Some(CardFirmware { sriov: Some(true), num_vfs: Some(8), link_types: Vec::new() }),
        num_vfs: GIVEN_VFS,
        up: true,
        ..place.clone()
    }
}
