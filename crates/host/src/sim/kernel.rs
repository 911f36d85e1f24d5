use std::collections::{BTreeMap, BTreeSet};

use vfleet_api::PciAddress;
use vfleet_api::node_state::Interface;
use vfleet_api::pool_config::RdmaMode;
use vfleet_plan::modules::of_driver;
use vfleet_plan::{BootLoader, EswitchMode, FirmwareSettings, ModuleState, Reboots, Record};

use super::machine::{Machine, MachineError, MachinePf};
use super::parts::Pf;
use super::{arguments, random};

/// A machine while it runs. Plain data, to be looked at and changed at will; its methods (in `requests`) are
/// what any process can ask of a kernel, and obey its rules.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    /// What the machine is made of, as it will be found at the next start.
    pub(super) machine: Machine,
    /// How often it was started.
    pub(super) boots: u32,
    /// By address.
    pub pfs: Vec<Pf>,
    /// Drivers for VFs in programs.
    pub userspace_drivers: BTreeSet<String>,
    /// Modules that are there.
    pub modules: BTreeMap<String, ModuleState>,
    /// Whether vfio was told to do without an IOMMU.
    pub vfio_without_iommu: bool,
    /// Whether an IOMMU is at work.
    pub has_iommu: bool,
    /// The arguments that it was started with.
    pub command_line: String,
    /// The arguments that it is started with next, if the boot loader keeps them.
    pub next_command_line: String,
    /// Whether network namespaces share the RDMA devices.
    pub rdma_mode: Option<RdmaMode>,
    /// Files of records.
    pub records: BTreeMap<PciAddress, Record>,
    /// The Go daemon's files of records.
    pub go_records: BTreeMap<PciAddress, Interface>,
    /// PFs whose file of a record cannot be read. They have none in `records`.
    pub damaged_records: BTreeSet<PciAddress>,
    /// The same of the Go daemon's files.
    pub damaged_go_records: BTreeSet<PciAddress>,
    /// Files by path.
    pub files: BTreeMap<String, String>,
    /// Units of systemd that start at boot.
    pub enabled_units: BTreeSet<String>,
    /// Units of systemd whose program runs.
    pub working_units: BTreeSet<String>,
    /// Where there are copies of this very vfleet.
    pub programs: BTreeSet<String>,
    /// The file of InfiniBand GUIDs.
    pub guid_file: Option<String>,
    /// The file of restarts that were asked for.
    pub reboots: Option<Reboots>,
    /// How many events were announced.
    pub(super) announced: u64,
    /// Decides over addresses that nobody chose.
    pub(super) seed: String,
}

impl Kernel {
    /// Boots `machine`. The seed decides over the addresses that it does not name.
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
            working_units: BTreeSet::new(),
            programs: BTreeSet::new(),
            guid_file: machine.guid_file.clone(),
            reboots: machine.reboots.clone(),
            announced: 0,
            seed: seed.to_owned(),
        };
        kernel.start();
        for pf in machine.pfs.iter().filter(|pf| pf.num_vfs > 0) {
            kernel.set_num_vfs(pf.address, pf.num_vfs).map_err(|refusal| MachineError::Impossible {
                pf: pf.address,
                what: format!("it cannot have {} VFs: {refusal}", pf.num_vfs),
            })?;
        }
        Ok(kernel)
    }

    /// Restarts the machine. What is on its disks and in its cards' firmware stays; all else is as at the start, and
    /// no card has VFs.
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
            self.start_firmware(pf, settings);
        }
        self.announced += 1;
    }

    /// All that is not on a disk, as it is right after the start.
    fn start(&mut self) {
        let Machine { kernel, userspace_drivers, .. } = &self.machine;
        self.boots += 1;
        self.working_units.clear();
        self.modules = self.machine.modules();
        self.userspace_drivers = userspace_drivers.iter().cloned().collect();
        self.vfio_without_iommu = false;
        self.command_line.clone_from(&kernel.command_line);
        self.has_iommu = kernel.iommu || arguments::switch_on_iommu(kernel.processor, &self.command_line);
        self.pfs = self.machine.pfs.iter().map(|card| Pf::plugged_in(card, &self.seed)).collect();
        self.pfs.sort_by_key(|pf| pf.address);
        self.rdma_mode = self.first_rdma_mode();
        self.drivers_of_modules();
        self.probe_lone_vfs();
    }

    /// What RDMA begins with: as it was told by an argument or by options of its module, else shared.
    pub(super) fn first_rdma_mode(&self) -> Option<RdmaMode> {
        let has_rdma = self.machine.kernel.rdma_mode.is_some()
            || self.pfs.iter().any(|pf| pf.rdma.is_some())
            || self.modules.get("ib_core") == Some(&ModuleState::Loaded);
        let told = arguments::rdma_mode(&self.command_line, &self.files);
        has_rdma.then(|| told.or(self.machine.kernel.rdma_mode).unwrap_or(RdmaMode::Shared))
    }

    /// Modules that are loaded give their drivers.
    pub(super) fn drivers_of_modules(&mut self) {
        let is_loaded = |driver: &&str| {
            of_driver(driver).is_some_and(|module| self.modules.get(module) == Some(&ModuleState::Loaded))
        };
        let drivers: Vec<&str> =
            ["vfio-pci", "uio_pci_generic", "igb_uio"].into_iter().filter(is_loaded).collect();
        self.userspace_drivers.extend(drivers.into_iter().map(str::to_owned));
    }

    /// The PF at `address`.
    pub fn pf(&self, address: PciAddress) -> Option<&Pf> {
        self.pfs.iter().find(|pf| pf.address == address)
    }

    /// The PF at `address`, to change it as no kernel would.
    pub fn pf_mut(&mut self, address: PciAddress) -> Option<&mut Pf> {
        self.pfs.iter_mut().find(|pf| pf.address == address)
    }

    /// What changes the arguments of the next start.
    pub const fn boot_loader(&self) -> Option<BootLoader> {
        self.machine.kernel.boot_loader
    }

    /// Another text for each boot.
    pub fn boot_id(&self) -> String {
        random::boot_id(&format!("{} {}", self.seed, self.boots))
    }

    /// What the card at `address` is made of.
    pub(super) fn card(&self, address: PciAddress) -> Option<&MachinePf> {
        self.machine.pfs.iter().find(|card| card.address == address)
    }
}
