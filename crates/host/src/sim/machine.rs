//! Descriptions of simulated machines.

mod bridge;
mod card;
mod lab;
mod system;
mod vf_rules;

pub use bridge::{MachineBridge, MachineOvs};
pub use card::{CardFirmware, CardLinkKind, EswitchRule, HexId, MachinePf};
pub use system::MachineKernel;
pub use vf_rules::{VfRules, VfSetting};

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use thiserror::Error;
use vfleet_api::PciAddress;
use vfleet_api::node_state::Interface;
use vfleet_plan::{ModuleState, Reboots, Record};

/// Description of a machine. In YAML, with all fields:
///
/// ```
/// # let machine = vfleet_host::sim::Machine::from_yaml(r#"
/// pfs:
///   - address: "0000:3b:00.0"
///     name: ens1f0
///     altNames: [enp59s0f0]      # default: none
///     mac: 3c:fd:fe:00:00:01     # default: generated, different for each node
///     permanentMac: 3c:fd:fe:00:00:01 # default: the same as mac
///     vendor: "15b3"             # PCI IDs as in node states
///     device: "101d"
///     vfDevice: "101e"
///     driver: mlx5_core          # default: none
///     vfDriver: mlx5_core        # driver that the kernel binds to VFs
///     totalVfs: 64               # maximum number of VFs; with firmware settings: their upper limit
///     vfOffset: 16               # distance of the first VF from the PF; default 128
///     vfStride: 1                # distance between VFs; default 1
///     mtu: 1500                  # default 1500
///     maxMtu: 9702               # default: unknown
///     up: true                   # default true
///     speed: 25000               # Mbit/s while the interface is up; default: unknown
///     autoprobe: true            # sriov_drivers_autoprobe; default true
///     numVfs: 0                  # number of VFs at the start; default 0
///     numaNode: 0                # default: none
///     linkKind: ETH              # or IB; default ETH
///     eswitch: legacy            # or switchdev; default: no eswitch
///     eswitchRule: ofDriver      # or anyTime, needsVfs, noVfs, freeVfs, never, unsupported: when the mode can be changed
///     stuckRepresentors: false   # representors are up immediately and cannot be renamed; default false
///     tcOffload: false           # default: cannot be switched
///     rdma: true                 # the PF and its VFs have RDMA devices; default false, true for IB
///     nodeGuid: 3c:fd:fe:03:00:00:00:01 # default: generated
///     portGuid: 3c:fd:fe:03:00:00:00:02 # default: the node GUID
///     firmware:                  # default: no firmware settings. All ports of a card have the same
///       sriov: true
///       numVfs: 16
///       linkTypes: [ETH, ETH]    # ETH, IB or another value
///     loneVf: false              # default false
///     netFilter: openstack/NetworkID:5e9b # default: none
///     hostUse: defaultRoute      # or nodeAddress, storage, address: use by the node; default: none
///     vfRules:                   # rules for settings of VFs; default: igb has its own, other drivers support everything
///       refuses: [minTxRate, ieee8021ad, linkState] # also mac, vlan, maxTxRate, spoofCheck, trust
///       takesMacAtOnce: false    # bound VFs take the administrative MAC over at once, not at the next bind
///       keepsAdminMac: false     # VFs that are not trusted cannot change a MAC that the PF has set
///       ratesNeedLink: false     # rates above the speed of the PF are refused; it is 0 while the PF is down
///     numbersRdma: false         # RDMA devices of VFs have the lowest free number as their name at each bind
/// userspaceDrivers: [vfio-pci]   # loaded userspace drivers; default: none
/// kernel:                        # default: as below, but without modules, boot loader and RDMA
///   commandLine: ""
///   bootLoader: grubby           # or rpmOstree, grubDropIn, systemdBoot
///   keepsArguments: true         # false: changes of kernel arguments are lost at the next boot
///   processor: other             # or intel, amd
///   iommu: true                  # false on intel: active only with the argument intel_iommu=on
///   lockedDown: false
///   modules:                     # in addition to those of userspaceDrivers
///     vhost_vdpa: loadable       # or loaded
///   rdmaMode: shared             # or exclusive; default: shared if a card has RDMA
/// records: []                    # records of vfleet; default: none
/// goRecords: []                  # records of the Go daemon: interfaces as in the spec of a node state; default: none
/// damagedRecords: []             # PFs with a damaged record of vfleet; default: none
/// files: {}                      # text of managed files by path; default: none
/// enabledUnits: []               # enabled systemd units; default: none
/// guidFile: "[]"                 # text of the GUID file; default: no file
/// reboots:                       # requested reboots; default: none
///   needs:
///     kernel arguments intel_iommu=on: {count: 1, bootId: another}
/// openVswitch:                   # default: installed and running, without bridges
///   installed: true
///   running: true                # false: ovsdb-server and ovs-vswitchd are stopped until a test starts them
///   offload: false               # other_config:hw-offload
///   interfaceTypes: [system, internal, tap, patch, vxlan, geneve, gre] # supported types; default: these
///   bridges:                     # bridges of other programs; default: none
///     - {name: br-ex, ports: [eth7]}
/// linuxBridges:                  # Linux bridges that other programs create at each boot; default: none
///   - {name: br0, ports: [eth8]} # ports: interfaces of cards, or others
/// # "#).unwrap();
/// # assert_eq!(machine.pfs[0].total_vfs, 64);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Machine {
    /// Network cards that support VFs.
    pub pfs: Vec<MachinePf>,
    /// Loaded userspace drivers.
    #[serde(default)]
    pub userspace_drivers: Vec<String>,
    /// Kernel and boot settings.
    #[serde(default)]
    pub kernel: MachineKernel,
    /// Records of vfleet.
    #[serde(default)]
    pub records: Vec<Record>,
    /// Records of the Go daemon.
    #[serde(default)]
    pub go_records: Vec<Interface>,
    /// PFs with a damaged record of vfleet.
    #[serde(default)]
    pub damaged_records: BTreeSet<PciAddress>,
    /// Text of managed files by path.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// Enabled systemd units.
    #[serde(default)]
    pub enabled_units: BTreeSet<String>,
    /// Text of the GUID file.
    #[serde(default)]
    pub guid_file: Option<String>,
    /// Requested reboots.
    #[serde(default)]
    pub reboots: Option<Reboots>,
    /// Open vSwitch.
    #[serde(default)]
    pub open_vswitch: MachineOvs,
    /// Linux bridges that other programs create at each boot.
    #[serde(default)]
    pub linux_bridges: Vec<MachineBridge>,
}

/// Error in the description of a machine.
#[derive(Debug, Error)]
pub enum MachineError {
    #[error("{0}")]
    Yaml(#[from] serde_saphyr::Error),
    #[error("pfs: {pf}: {problem}")]
    InvalidPf { pf: PciAddress, problem: String },
    #[error("goRecords: {address:?} is not a PCI address")]
    GoRecord { address: String },
}

impl Machine {
    /// Parses the YAML description of a machine.
    pub fn from_yaml(text: &str) -> Result<Self, MachineError> {
        let machine: Self = serde_saphyr::from_str(text)?;
        machine.check()?;
        Ok(machine)
    }

    /// Returns the machine of the VM lab: two Intel 82576 cards as emulated by QEMU.
    pub fn lab() -> Self {
        let pfs = [1, 2].into_iter().filter_map(lab::card).collect();
        Self { pfs, userspace_drivers: vec!["vfio-pci".to_owned()], ..Self::default() }
    }

    /// Returns the kernel modules right after a boot.
    pub(super) fn modules(&self) -> BTreeMap<String, ModuleState> {
        system::modules(&self.kernel, &self.userspace_drivers)
    }

    /// Fails if the description is contradictory.
    pub fn check(&self) -> Result<(), MachineError> {
        for (at, pf) in self.pfs.iter().enumerate() {
            let others = &self.pfs[..at];
            let problem = if others.iter().any(|other| other.address == pf.address) {
                "another PF has the same address".to_owned()
            } else if others.iter().any(|other| other.name == pf.name) {
                format!("another PF has the same name, {}", pf.name)
            } else if let Some(problem) = pf.find_problem() {
                problem
            } else {
                continue;
            };
            return Err(MachineError::InvalidPf { pf: pf.address, problem });
        }
        self.go_records().map(drop)
    }

    /// Returns the records of the Go daemon by PF.
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
    fn most_fields_have_defaults() {
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
    fn errors_name_the_field_and_the_problem() {
        for (from, to, expected) in [
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
            assert!(error.contains(expected), "{to}: {error}");
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
