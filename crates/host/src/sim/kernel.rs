//! State of a running simulated machine.

use std::collections::{BTreeMap, BTreeSet};

use vfleet_api::PciAddress;
use vfleet_api::node_state::Interface;
use vfleet_api::pool_config::RdmaMode;
use vfleet_plan::modules::of_driver;
use vfleet_plan::{BootLoader, EswitchMode, FirmwareSettings, ModuleState, Reboots, Record};

use super::attachment::SimCniFiles;
use super::bridges::SimBridge;
use super::devices::SimPf;
use super::machine::{Machine, MachineError, MachinePf};
use super::namespaces::SimNamespaces;
use super::ovs::SimOvs;
use super::virtual_links::SimVeth;
use super::{arguments, random};

/// State of a running machine. Tests may read and change the fields directly; the methods in `requests` are requests of
/// processes and follow the rules of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    /// Description of the machine at the next boot.
    pub(super) machine: Machine,
    /// Number of boots.
    pub(super) boots: u32,
    /// PFs and lone VFs, sorted by address.
    pub pfs: Vec<SimPf>,
    /// Loaded userspace drivers.
    pub userspace_drivers: BTreeSet<String>,
    /// Available kernel modules.
    pub modules: BTreeMap<String, ModuleState>,
    /// vfio was configured to work without an IOMMU.
    pub vfio_without_iommu: bool,
    /// An IOMMU is active.
    pub has_iommu: bool,
    /// Arguments of the running kernel.
    pub command_line: String,
    /// Arguments of the next boot, if the boot loader stores them.
    pub next_command_line: String,
    /// RDMA mode of network namespaces; `None` without RDMA.
    pub rdma_mode: Option<RdmaMode>,
    /// Records of PFs.
    pub records: BTreeMap<PciAddress, Record>,
    /// Records of the Go daemon.
    pub go_records: BTreeMap<PciAddress, Interface>,
    /// PFs with a damaged record, which is not in `records`.
    pub damaged_records: BTreeSet<PciAddress>,
    /// PFs with a damaged record of the Go daemon.
    pub damaged_go_records: BTreeSet<PciAddress>,
    /// Files by path.
    pub files: BTreeMap<String, String>,
    /// Enabled systemd units.
    pub enabled_units: BTreeSet<String>,
    /// Units of systemd whose program runs.
    pub running_units: BTreeSet<String>,
    /// Paths of installed copies of this program.
    pub programs: BTreeSet<String>,
    /// Text of the GUID file.
    pub guid_file: Option<String>,
    /// Requested reboots.
    pub reboots: Option<Reboots>,
    /// Linux bridges, sorted by name.
    pub bridges: Vec<SimBridge>,
    /// Interfaces that belong to no card: of pods, of other programs.
    pub other_links: BTreeSet<String>,
    /// Ends of veth pairs on the host, by name.
    pub veths: BTreeMap<String, SimVeth>,
    /// Open vSwitch.
    pub ovs: SimOvs,
    /// Network namespaces of pods.
    pub namespaces: SimNamespaces,
    /// Files of CNI plugins.
    pub cni: SimCniFiles,
    /// Number of events of the kernel.
    pub(super) event_count: u64,
    /// Seed of generated addresses.
    pub(super) seed: String,
}

impl Kernel {
    /// Boots `machine`. Addresses that the description leaves out are generated from `seed`.
    pub(super) fn boot(machine: &Machine, seed: &str) -> Result<Self, MachineError> {
        machine.check()?;
        let mut kernel = Self {
            machine: machine.clone(),
            boots: 0,
            pfs: Vec::new(),
            userspace_drivers: BTreeSet::new(),
            modules: BTreeMap::new(),
            vfio_without_iommu: false,
            has_iommu: false,
            command_line: String::new(),
            next_command_line: machine.kernel.command_line.clone(),
            rdma_mode: machine.kernel.rdma_mode,
            records: machine.records.iter().map(|record| (record.pf, record.clone())).collect(),
            go_records: machine.go_records()?,
            damaged_records: machine.damaged_records.clone(),
            damaged_go_records: BTreeSet::new(),
            files: machine.files.clone(),
            enabled_units: machine.enabled_units.clone(),
            running_units: BTreeSet::new(),
            programs: BTreeSet::new(),
            guid_file: machine.guid_file.clone(),
            reboots: machine.reboots.clone(),
            bridges: Vec::new(),
            other_links: BTreeSet::new(),
            veths: BTreeMap::new(),
            ovs: SimOvs::new(&machine.open_vswitch, seed),
            namespaces: SimNamespaces::default(),
            cni: SimCniFiles::default(),
            event_count: 0,
            seed: seed.to_owned(),
        };
        kernel.start();
        for pf in machine.pfs.iter().filter(|pf| pf.num_vfs > 0) {
            kernel.set_num_vfs(pf.address, pf.num_vfs).map_err(|refusal| MachineError::InvalidPf {
                pf: pf.address,
                problem: format!("cannot create {} VFs: {refusal}", pf.num_vfs),
            })?;
        }
        Ok(kernel)
    }

    /// Reboots the machine. The content of disks and firmware is kept; everything else returns to its initial state,
    /// and no card has VFs.
    pub fn reboot(&mut self) {
        let firmware: Vec<(PciAddress, FirmwareSettings)> =
            self.pfs.iter().filter_map(|pf| Some((pf.address, pf.firmware.clone()?.next_boot))).collect();
        for card in &mut self.machine.pfs {
            card.eswitch = card.eswitch.map(|_| EswitchMode::Legacy);
        }
        if self.machine.kernel.keeps_arguments {
            self.machine.kernel.command_line.clone_from(&self.next_command_line);
        }
        self.start();
        for (pf, settings) in firmware {
            self.apply_firmware_settings(pf, settings);
        }
        self.event_count += 1;
    }

    /// Initializes all state that is not on a disk.
    fn start(&mut self) {
        let Machine { kernel, userspace_drivers, .. } = &self.machine;
        self.boots += 1;
        self.running_units.clear();
        self.modules = self.machine.modules();
        self.userspace_drivers = userspace_drivers.iter().cloned().collect();
        self.vfio_without_iommu = false;
        self.command_line.clone_from(&kernel.command_line);
        self.has_iommu = kernel.iommu || arguments::enables_iommu(kernel.processor, &self.command_line);
        self.pfs = self.machine.pfs.iter().map(|card| SimPf::at_boot(card, &self.seed)).collect();
        self.pfs.sort_by_key(|pf| pf.address);
        self.start_namespaces();
        self.rdma_mode = self.initial_rdma_mode();
        self.register_module_drivers();
        self.probe_lone_vfs();
        self.start_bridges();
    }

    /// Returns the initial RDMA mode: as configured by an argument or by module options, else shared.
    pub(super) fn initial_rdma_mode(&self) -> Option<RdmaMode> {
        let has_rdma = self.machine.kernel.rdma_mode.is_some()
            || self.pfs.iter().any(|pf| pf.rdma.is_some())
            || self.modules.get("ib_core") == Some(&ModuleState::Loaded);
        let configured = arguments::rdma_mode(&self.command_line, &self.files);
        has_rdma.then(|| configured.or(self.machine.kernel.rdma_mode).unwrap_or(RdmaMode::Shared))
    }

    /// Registers the userspace drivers of loaded modules.
    pub(super) fn register_module_drivers(&mut self) {
        let is_loaded = |driver: &&str| {
            of_driver(driver).is_some_and(|module| self.modules.get(module) == Some(&ModuleState::Loaded))
        };
        let drivers: Vec<&str> =
            ["vfio-pci", "uio_pci_generic", "igb_uio"].into_iter().filter(is_loaded).collect();
        self.userspace_drivers.extend(drivers.into_iter().map(str::to_owned));
    }

    /// Returns the PF at `address`.
    pub fn pf(&self, address: PciAddress) -> Option<&SimPf> {
        self.pfs.iter().find(|pf| pf.address == address)
    }

    /// Returns the PF at `address`, to change it without the rules of a kernel.
    pub fn pf_mut(&mut self, address: PciAddress) -> Option<&mut SimPf> {
        self.pfs.iter_mut().find(|pf| pf.address == address)
    }

    /// Returns the boot loader.
    pub const fn boot_loader(&self) -> Option<BootLoader> {
        self.machine.kernel.boot_loader
    }

    /// Returns the boot ID, which is different for each boot.
    pub fn boot_id(&self) -> String {
        random::boot_id(&format!("{} {}", self.seed, self.boots))
    }

    /// Counts an event of the kernel or of the Open vSwitch database.
    pub(super) const fn count_event(&mut self) {
        self.event_count += 1;
    }

    /// Returns the description of the card at `address`.
    pub(super) fn card(&self, address: PciAddress) -> Option<&MachinePf> {
        self.machine.pfs.iter().find(|card| card.address == address)
    }
}
