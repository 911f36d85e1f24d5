mod card;
mod lab;
mod system;

pub use card::{CardFirmware, CardLinkKind, EswitchRule, HexId, MachinePf};
pub use system::MachineKernel;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use thiserror::Error;
use vfleet_api::PciAddress;
use vfleet_api::node_state::Interface;
use vfleet_plan::{ModuleState, Reboots, Record};

/// What a machine is made of. In YAML, with every field that there is:
///
/// ```
/// # let machine = vfleet_host::sim::Machine::from_yaml(r#"
/// pfs:
///   - address: "0000:3b:00.0"
///     name: ens1f0
///     altNames: [enp59s0f0]      # default: none
///     mac: 3c:fd:fe:00:00:01     # default: made from the seed, different for each node
///     permanentMac: 3c:fd:fe:00:00:01 # default: the same as mac
///     vendor: "15b3"             # PCI ids, as a node state spells them
///     device: "101d"
///     vfDevice: "101e"
///     driver: mlx5_core          # leave out for a card without a driver
///     vfDriver: mlx5_core        # the one that the kernel chooses for VFs
///     totalVfs: 64               # with firmware: how many that can be told to show, at most
///     vfOffset: 16               # how far its first VF is behind it; default 128
///     vfStride: 1                # how far VFs lie apart; default 1
///     mtu: 1500                  # default 1500
///     maxMtu: 9702               # default: the driver does not say
///     up: true                   # default true
///     speed: 25000               # Mbit/s while it is up; default: the driver does not say
///     autoprobe: true            # whether the kernel binds VFs by itself; default true
///     numVfs: 0                  # VFs that it has from the start; default 0
///     numaNode: 0                # default: none
///     linkKind: ETH              # or IB; default ETH
///     eswitch: legacy            # or switchdev; default: it has no embedded switch
///     eswitchRule: ofDriver      # or anyTime, needsVfs, noVfs, freeVfs, never, unsupported: when its mode can be changed
///     stuckRepresentors: false   # whether representors are up at once, and keep the kernel's names; default false
///     tcOffload: false           # default: it cannot be switched
///     rdma: true                 # whether it and its VFs are RDMA devices; default false, true for IB
///     nodeGuid: 3c:fd:fe:03:00:00:00:01 # of its RDMA device; default: made from the seed
///     portGuid: 3c:fd:fe:03:00:00:00:02 # of its port; default: the node GUID
///     firmware:                  # default: no tool can tell. Both ports of a card have the same
///       sriov: true
///       numVfs: 16
///       linkTypes: [ETH, ETH]    # ETH, IB or another word
///     loneVf: false              # whether it is a VF that a hypervisor gave; default false
///     netFilter: openstack/NetworkID:5e9b # default: none
///     hostUse: defaultRoute      # or nodeAddress, storage, address: what the node uses it for; default: nothing
/// userspaceDrivers: [vfio-pci]   # loaded drivers for VFs in programs; default: none
/// kernel:                        # default: as below, but with no modules, boot loader, RDMA
///   commandLine: ""
///   bootLoader: grubby           # or rpmOstree, grubDropIn, systemdBoot
///   keepsArguments: true         # false: what the boot loader is told does not count
///   processor: other             # or intel, amd
///   iommu: true                  # false on intel: it is at work once intel_iommu=on is an argument
///   lockedDown: false
///   modules:                     # besides those of userspaceDrivers
///     vhost_vdpa: loadable       # or loaded
///   rdmaMode: shared             # or exclusive; default: shared where a card has RDMA
/// records: []                    # what vfleet wrote down earlier; default: nothing
/// goRecords: []                  # what the Go daemon did: interfaces as in a node state's spec; default: nothing
/// damagedRecords: []             # PFs about which vfleet wrote something that cannot be read any more; default: none
/// files: {}                      # text by path, of those that vfleet looks at; default: none
/// enabledUnits: []               # units of systemd that start at boot; default: none
/// guidFile: "[]"                 # text of the file of GUIDs; default: no such file
/// reboots:                       # restarts that vfleet asked for; default: none
///   needs:
///     kernel arguments intel_iommu=on: {count: 1, bootId: another}
/// # "#).unwrap();
/// # assert_eq!(machine.pfs[0].total_vfs, 64);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Machine {
    /// Its network cards that can have VFs.
    pub pfs: Vec<MachinePf>,
    /// The drivers for VFs in programs that are loaded.
    #[serde(default)]
    pub userspace_drivers: Vec<String>,
    /// The kernel, and how it is started.
    #[serde(default)]
    pub kernel: MachineKernel,
    /// What vfleet wrote down earlier.
    #[serde(default)]
    pub records: Vec<Record>,
    /// What the Go daemon wrote down earlier.
    #[serde(default)]
    pub go_records: Vec<Interface>,
    /// PFs about which vfleet wrote down something that cannot be read any more.
    #[serde(default)]
    pub damaged_records: BTreeSet<PciAddress>,
    /// Files that vfleet looks at.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// Units of systemd that start at boot.
    #[serde(default)]
    pub enabled_units: BTreeSet<String>,
    /// The file of InfiniBand GUIDs.
    #[serde(default)]
    pub guid_file: Option<String>,
    /// Restarts that vfleet asked for.
    #[serde(default)]
    pub reboots: Option<Reboots>,
}

/// Why a description is not one of a machine.
#[derive(Debug, Error)]
pub enum MachineError {
    #[error("{0}")]
    Yaml(#[from] serde_saphyr::Error),
    #[error("pfs: {pf}: {what}")]
    Impossible { pf: PciAddress, what: String },
    #[error("goRecords: {address:?} is not a PCI address")]
    GoRecord { address: String },
}

impl Machine {
    /// The machine that `text` describes.
    pub fn from_yaml(text: &str) -> Result<Self, MachineError> {
        let machine: Self = serde_saphyr::from_str(text)?;
        machine.check()?;
        Ok(machine)
    }

    /// The machine of the VM lab: two Intel 82576 cards, as QEMU emulates them.
    pub fn lab() -> Self {
        let pfs = [1, 2].into_iter().filter_map(lab::card).collect();
        Self { pfs, userspace_drivers: vec!["vfio-pci".to_owned()], ..Self::default() }
    }

    /// Modules right after the start.
    pub(super) fn modules(&self) -> BTreeMap<String, ModuleState> {
        system::modules(&self.kernel, &self.userspace_drivers)
    }

    /// That such a machine can be.
    pub fn check(&self) -> Result<(), MachineError> {
        for (at, pf) in self.pfs.iter().enumerate() {
            let others = &self.pfs[..at];
            let what = if others.iter().any(|other| other.address == pf.address) {
                "another PF has the same address".to_owned()
            } else if others.iter().any(|other| other.name == pf.name) {
                format!("another PF has the name {}, too", pf.name)
            } else if let Some(fault) = pf.fault() {
                fault
            } else {
                continue;
            };
            return Err(MachineError::Impossible { pf: pf.address, what });
        }
        self.go_records().map(drop)
    }

    /// What the Go daemon wrote down, by PF.
    pub(super) fn go_records(&self) -> Result<BTreeMap<PciAddress, Interface>, MachineError> {
        let by_address = |interface: &Interface| match interface.pci_address.value() {
            Ok(address) => Ok((*address, interface.clone())),
            Err(_) => Err(MachineError::GoRecord { address: interface.pci_address.text().to_owned() }),
        };
        self.go_records.iter().map(by_address).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#"
pfs:
  - address: "0000:01:00.0"
    name: eth0
    vendor: "8086"
    device: "10c9"
    vfDevice: "10ca"
    driver: igb
    vfDriver: igbvf
    totalVfs: 7
"#;

    #[test]
    fn little_need_be_said() {
        let machine = Machine::from_yaml(SMALL).unwrap();
        assert_eq!((machine.pfs[0].mtu, machine.pfs[0].up, machine.pfs[0].num_vfs), (1500, true, 0));
        assert_eq!(machine.pfs[0].vendor, HexId(0x8086));
    }

    #[test]
    fn a_machine_survives_a_round_trip() {
        let text = serde_saphyr::to_string(&Machine::lab()).unwrap();
        assert_eq!(Machine::from_yaml(&text).unwrap(), Machine::lab());
    }

    #[test]
    fn errors_say_where_and_what() {
        for (from, to, said) in [
            ("totalVfs: 7", "totalVfs: 7\n    colour: red", "colour"),
            ("totalVfs: 7", "totalVfs: many", "line 10"),
            ("totalVfs: 7", "totalVfs: 0", "totalVfs is 0"),
            ("totalVfs: 7", "totalVfs: 7\n    numVfs: 8", "numVfs 8 is more than totalVfs 7"),
            ("totalVfs: 7", "totalVfs: 7\n    vfStride: 60000", "do not fit"),
            ("\"8086\"", "\"0x8086\"", "four hexadecimal digits"),
            ("0000:01:00.0", "01:00.0", "0000:3b:00.0"),
            ("    name: eth0\n", "", "name"),
        ] {
            let error = Machine::from_yaml(&SMALL.replace(from, to)).unwrap_err().to_string();
            assert!(error.contains(said), "{to}: {error}");
        }
    }

    #[test]
    fn two_cards_cannot_share_an_address_or_a_name() {
        let mut machine = Machine::lab();
        machine.pfs[1].address = machine.pfs[0].address;
        assert!(machine.check().unwrap_err().to_string().contains("same address"));
        let mut machine = Machine::lab();
        machine.pfs[1].name = machine.pfs[0].name.clone();
        assert!(machine.check().unwrap_err().to_string().contains("enp1s0"));
    }
}
