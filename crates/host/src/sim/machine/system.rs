use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use vfleet_api::pool_config::RdmaMode;
use vfleet_plan::modules::of_driver;
use vfleet_plan::{BootLoader, ModuleState, Processor};

/// The kernel of a machine, and how it is started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct MachineKernel {
    /// The arguments that it is started with.
    pub command_line: String,
    /// What changes them.
    pub boot_loader: Option<BootLoader>,
    /// Whether what the boot loader was told counts at the next start. A machine that forgets is one that restarts in
    /// vain.
    pub keeps_arguments: bool,
    /// Who made the processors.
    pub processor: Processor,
    /// Whether the IOMMU is at work. One of Intel that is not at first is when the kernel is told to use it.
    pub iommu: bool,
    /// Whether root itself may not reach into the kernel.
    pub locked_down: bool,
    /// Modules besides those of the drivers in `userspaceDrivers`.
    pub modules: BTreeMap<String, ModuleState>,
    /// Whether network namespaces share the RDMA devices.
    pub rdma_mode: Option<RdmaMode>,
}

impl Default for MachineKernel {
    fn default() -> Self {
        Self {
            command_line: String::new(),
            boot_loader: None,
            keeps_arguments: true,
            processor: Processor::default(),
            iommu: true,
            locked_down: false,
            modules: BTreeMap::new(),
            rdma_mode: None,
        }
    }
}

/// Modules right after the start: those of the drivers that are there, and what is said of others.
pub(super) fn modules(kernel: &MachineKernel, drivers: &[String]) -> BTreeMap<String, ModuleState> {
    let of_drivers = drivers.iter().filter_map(|driver| of_driver(driver));
    let vfio = drivers.iter().any(|driver| driver == "vfio-pci").then_some("vfio");
    let loaded = of_drivers.chain(vfio).map(|module| (module.to_owned(), ModuleState::Loaded));
    kernel.modules.clone().into_iter().chain(loaded).collect()
}
