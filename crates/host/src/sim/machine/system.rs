//! Description of the kernel and the boot settings of a machine.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use vfleet_api::pool_config::RdmaMode;
use vfleet_plan::modules::of_driver;
use vfleet_plan::{BootLoader, ModuleState, Processor};

/// Description of the kernel and the boot settings of a machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct MachineKernel {
    /// Kernel arguments.
    pub command_line: String,
    /// Boot loader, which changes the arguments.
    pub boot_loader: Option<BootLoader>,
    /// Changes by the boot loader take effect at the next boot. A machine that loses them reboots without effect.
    pub keeps_arguments: bool,
    /// Vendor of the processors.
    pub processor: Processor,
    /// The IOMMU is active. On Intel an inactive one can be enabled by a kernel argument.
    pub iommu: bool,
    /// Kernel lockdown is active.
    pub locked_down: bool,
    /// Modules in addition to those of the drivers in `userspaceDrivers`.
    pub modules: BTreeMap<String, ModuleState>,
    /// RDMA mode of network namespaces.
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

/// Returns the modules right after a boot: those of the loaded userspace drivers, and the described ones.
pub(super) fn modules(kernel: &MachineKernel, drivers: &[String]) -> BTreeMap<String, ModuleState> {
    let of_drivers = drivers.iter().filter_map(|driver| of_driver(driver));
    let vfio = drivers.iter().any(|driver| driver == "vfio-pci").then_some("vfio");
    let loaded = of_drivers.chain(vfio).map(|module| (module.to_owned(), ModuleState::Loaded));
    kernel.modules.clone().into_iter().chain(loaded).collect()
}
