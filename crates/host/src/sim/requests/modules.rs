use vfleet_plan::ModuleState;

use super::{ENOENT, Refusal, refuse};
use crate::sim::kernel::Kernel;

impl Kernel {
    /// Load a module, with those that it needs, or set the options of one that is loaded.
    pub fn load_module(&mut self, module: &str, options: &[String]) -> Result<(), Refusal> {
        self.modules.get(module).ok_or(refuse(ENOENT))?;
        self.vfio_without_iommu |=
            module == "vfio" && options.iter().any(|option| option == "enable_unsafe_noiommu_mode=1");
        self.modules.insert(module.to_owned(), ModuleState::Loaded);
        if module == "vfio_pci" {
            self.modules.insert("vfio".to_owned(), ModuleState::Loaded);
        }
        self.drivers_of_modules();
        self.rdma_mode = self.rdma_mode.or_else(|| self.first_rdma_mode());
        Ok(())
    }
}
