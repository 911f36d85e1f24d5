//! Random machines.

use proptest::prelude::*;
use vfleet_api::PciAddress;
use vfleet_host::sim::{CardFirmware, CardLinkKind, HexId, Machine, MachineKernel, MachinePf};
use vfleet_plan::{BootLoader, EswitchMode, HostUse, ModuleState, Processor};

pub(crate) fn machine() -> impl Strategy<Value = Machine> {
    let cards = prop::collection::vec(card(), 1..=4);
    (cards, kernel(), guid_file(), any::<bool>()).prop_map(|(cards, kernel, guid_file, has_vfio)| {
        let mut machine = Machine { pfs: cards, kernel, guid_file, ..Machine::lab() };
        if !has_vfio {
            machine.userspace_drivers.clear();
        }
        for (pf, number) in machine.pfs.iter_mut().zip(1..) {
            pf.name = format!("ens{number}");
            pf.address = address(number);
        }
        machine
    })
}

/// Returns the address of a card. Addresses are far apart, so that VFs fit in between.
pub(crate) fn address(number: u8) -> PciAddress {
    PciAddress::new(0, number * 16, 0, 0).expect("a possible address")
}

fn card() -> impl Strategy<Value = MachinePf> {
    let kind = prop_oneof![6 => Just(Kind::Plain), 3 => Just(Kind::Mellanox), 2 => Just(Kind::Ice),
        2 => Just(Kind::Infiniband), 1 => Just(Kind::LoneVf)];
    let host_use =
        prop::option::weighted(0.1, prop::sample::select(vec![HostUse::DefaultRoute, HostUse::NodeAddress]));
    let firmware = prop::option::weighted(0.3, (any::<bool>(), 1_u16..=8));
    (plain_card(), kind, host_use, firmware).prop_map(|(card, kind, host_use, firmware)| {
        with_kind(MachinePf { host_use, ..card }, kind, firmware)
    })
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Plain,
    Mellanox,
    Ice,
    Infiniband,
    LoneVf,
}

fn with_kind(card: MachinePf, kind: Kind, firmware: Option<(bool, u16)>) -> MachinePf {
    let has_driver = card.driver.is_some();
    let driver = |name: &str| has_driver.then(|| name.to_owned());
    let mellanox = |card: MachinePf| {
        let firmware =
            firmware.map(|(sriov, num_vfs)| (sriov, num_vfs.min(card.total_vfs))).map(|(sriov, num_vfs)| {
                CardFirmware { sriov: Some(sriov), num_vfs: Some(num_vfs), link_types: Vec::new() }
            });
        let visible_vfs = firmware.as_ref().map_or(card.total_vfs, |firmware| match firmware.sriov {
            Some(false) => 0,
            _ => firmware.num_vfs.unwrap_or(card.total_vfs),
        });
        MachinePf {
            vendor: HexId(0x15b3),
            driver: driver("mlx5_core"),
            vf_driver: "mlx5_core".to_owned(),
            tc_offload: Some(false),
            rdma: true,
            num_vfs: card.num_vfs.min(visible_vfs),
            // The firmware can be set to more VFs than any spec requests.
            total_vfs: if firmware.is_some() { 24 } else { card.total_vfs },
            firmware,
            ..card
        }
    };
    match kind {
        Kind::Plain => card,
        Kind::Mellanox => MachinePf { eswitch: Some(EswitchMode::Legacy), ..mellanox(card) },
        Kind::Ice => MachinePf {
            driver: driver("ice"),
            vf_driver: "iavf".to_owned(),
            eswitch: Some(EswitchMode::Legacy),
            ..card
        },
        Kind::Infiniband => MachinePf { link_kind: CardLinkKind::Infiniband, ..mellanox(card) },
        Kind::LoneVf => MachinePf { lone_vf: true, num_vfs: 0, ..card },
    }
}

fn plain_card() -> impl Strategy<Value = MachinePf> {
    let basics = (prop_oneof![4 => Just(8_u16), 1 => 1_u16..=8], 0_u16..=8, 1_u16..=2, 1_u16..=200);
    let switches = (any::<bool>(), any::<bool>(), prop::bool::weighted(0.95));
    let mtus = (prop::sample::select(vec![1500, 9000]), prop::option::of(Just(9216)));
    (basics, switches, mtus).prop_map(|((total, vfs, stride, offset), (up, autoprobe, driver), mtus)| {
        MachinePf {
            total_vfs: total,
            num_vfs: if driver { vfs.min(total) } else { 0 },
            vf_stride: stride,
            vf_offset: offset,
            up,
            autoprobe,
            driver: driver.then(|| "igb".to_owned()),
            mtu: mtus.0,
            max_mtu: mtus.1,
            ..Machine::lab().pfs.remove(0)
        }
    })
}

/// Kernels without an IOMMU get one after a reboot.
fn kernel() -> impl Strategy<Value = MachineKernel> {
    let loader = prop::option::weighted(0.8, Just(BootLoader::Grubby));
    let processor = prop::sample::select(vec![Processor::Intel, Processor::Amd, Processor::Other]);
    let switches = (prop::bool::weighted(0.85), prop::bool::weighted(0.7), prop::bool::weighted(0.05));
    let loadable = prop::bool::weighted(0.9);
    (loader, processor, switches, loadable).prop_map(
        |(boot_loader, processor, (iommu, keeps_arguments, locked_down), loadable)| MachineKernel {
            command_line: "quiet".to_owned(),
            boot_loader: if iommu { boot_loader } else { Some(BootLoader::GrubDropIn) },
            keeps_arguments: keeps_arguments || !iommu,
            processor: if iommu { processor } else { Processor::Intel },
            iommu,
            locked_down,
            modules: modules(loadable),
            rdma_mode: None,
        },
    )
}

fn modules(are_installed: bool) -> std::collections::BTreeMap<String, ModuleState> {
    let names = ["vfio", "vfio_pci", "uio_pci_generic", "vhost_vdpa", "virtio_vdpa", "tun", "ib_core"];
    let loadable = |name: &str| (name.to_owned(), ModuleState::Loadable);
    names.into_iter().filter(|_| are_installed).map(loadable).collect()
}

/// GUID files: none, one for the first two cards, or an invalid one.
fn guid_file() -> impl Strategy<Value = Option<String>> {
    let entry = |number: u8| {
        let (start, end) =
            (format!("02:00:00:00:00:00:{number:02x}:00"), format!("02:00:00:00:00:00:{number:02x}:40"));
        serde_json::json!({
            "pci_address": address(number).to_string(),
            "guidsRange": {"start": start, "end": end},
        })
    };
    let file = serde_json::json!([entry(1), entry(2)]).to_string();
    prop_oneof![4 => Just(None), 4 => Just(Some(file)), 1 => Just(Some("no json".to_owned()))]
}
