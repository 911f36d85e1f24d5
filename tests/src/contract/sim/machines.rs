//! Machines of the simulated test bed.

use vfleet_host::sim::{CardFirmware, CardLinkKind, EswitchRule, HexId, Machine, MachinePf};
use vfleet_plan::{EswitchMode, ModuleState};

use crate::contract::cases::{CardSetup, INITIAL_VFS};

/// Creates the machine for a setup. [`CardSetup`] describes the first card; the other cards are those of the VM lab.
pub(super) fn create_machine(setup: CardSetup) -> Machine {
    let mut machine = Machine::lab();
    "BOOT_IMAGE=/vmlinuz root=/dev/vda1".clone_into(&mut machine.kernel.command_line);
    machine.kernel.modules = ["uio_pci_generic", "vhost_vdpa", "virtio_vdpa", "vhost_net", "tun", "ib_core"]
        .into_iter()
        .map(|name| (name.to_owned(), ModuleState::Loadable))
        .collect();
    machine.open_vswitch.running = false;
    let first = &mut machine.pfs[0];
    match setup {
        CardSetup::NoVfs => {}
        CardSetup::VfsCreatedDown => first.num_vfs = INITIAL_VFS,
        CardSetup::VfsCreatedUp => (first.num_vfs, first.up) = (INITIAL_VFS, true),
        CardSetup::EswitchAnyTime => *first = with_eswitch(first, EswitchRule::AnyTime),
        CardSetup::EswitchRequiresUnboundVfs => *first = with_eswitch(first, EswitchRule::FreeVfs),
        CardSetup::EswitchRequiresVfs => *first = with_eswitch(first, EswitchRule::NeedsVfs),
        CardSetup::EswitchRequiresNoVfs => *first = without_vfs(with_eswitch(first, EswitchRule::NoVfs)),
        CardSetup::EswitchRefusesModes => *first = without_vfs(with_eswitch(first, EswitchRule::Never)),
        CardSetup::RdmaCard => *first = mellanox(first),
        CardSetup::InfinibandCard => {
            *first = MachinePf { link_kind: CardLinkKind::Infiniband, eswitch: None, ..mellanox(first) };
        }
        CardSetup::LoneVf => first.lone_vf = true,
    }
    machine
}

/// Returns `base` with an embedded switch, VFs and its link up.
fn with_eswitch(base: &MachinePf, eswitch_rule: EswitchRule) -> MachinePf {
    MachinePf {
        eswitch: Some(EswitchMode::Legacy),
        eswitch_rule,
        tc_offload: Some(false),
        num_vfs: INITIAL_VFS,
        up: true,
        ..base.clone()
    }
}

fn without_vfs(card: MachinePf) -> MachinePf {
    MachinePf { num_vfs: 0, up: false, ..card }
}

/// Returns a Mellanox card with an embedded switch, RDMA, VFs, its link up, and firmware that allows fewer VFs than it
/// could.
fn mellanox(base: &MachinePf) -> MachinePf {
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
        num_vfs: INITIAL_VFS,
        up: true,
        ..base.clone()
    }
}
