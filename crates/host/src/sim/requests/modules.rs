//! Requests that load kernel modules.

use vfleet_plan::ModuleState;

use super::{ENOENT, Refusal, refuse};
use crate::sim::kernel::Kernel;

impl Kernel {
    /// Loads a module with its dependencies, or sets the options of a loaded module.
    pub fn load_module(&mut self, module: &str, options: &[String]) -> Result<(), Refusal> {
        self.modules.get(module).ok_or(refuse(ENOENT))?;
        self.vfio_without_iommu |=
            module == "vfio" && options.iter().any(|option| option == "enable_unsafe_noiommu_mode=1");
        self.modules.insert(module.to_owned(), ModuleState::Loaded);
        if module == "vfio_pci" {
            self.modules.insert("vfio".to_owned(), ModuleState::Loaded);
        }
        self.register_module_drivers();
        self.rdma_mode = self.rdma_mode.or_else(|| self.initial_rdma_mode());
        Ok(())
    }
}
