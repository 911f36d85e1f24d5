//! Administrator of the simulated machine.

use vfleet_api::node_state::Interface;
use vfleet_api::pool_config::RdmaMode;
use vfleet_api::{MacAddr, PciAddress, VfRef};
use vfleet_plan::files::GUIDS;
use vfleet_plan::{HostUse, ModuleState};

use super::SimTestBed;
use crate::contract::testbed::{Administrator, CaseError, CaseResult, PciFunction, RoutePath};

impl Administrator for SimTestBed {
    fn set_num_vfs(&self, pf: PciAddress, count: u16) -> CaseResult {
        self.change_kernel(|kernel| kernel.set_num_vfs(pf, count))
    }

    fn set_autoprobe(&self, pf: PciAddress, on: bool) -> CaseResult {
        self.change_kernel(|kernel| kernel.set_autoprobe(pf, on))
    }

    fn set_up(&self, pf: PciAddress, up: bool) -> CaseResult {
        self.change_kernel(|kernel| kernel.set_link_up(pf, up))
    }

    fn set_mtu(&self, pf: PciAddress, mtu: u32) -> CaseResult {
        self.change_kernel(|kernel| kernel.set_pf_mtu(pf, mtu))
    }

    fn set_alt_name(&self, pf: PciAddress, name: &str) -> CaseResult {
        self.change_kernel(|kernel| {
            if let Some(link) = kernel.pf_mut(pf).and_then(|pf| pf.link.as_mut()) {
                link.alt_names.push(name.to_owned());
            }
            Ok(())
        })
    }

    fn set_vf_mac(&self, vf: VfRef, mac: MacAddr) -> CaseResult {
        self.change_kernel(|kernel| kernel.set_vf_mac(vf, mac))
    }

    fn set_override(&self, vf: VfRef, driver: Option<&str>) -> CaseResult {
        self.change_kernel(|kernel| kernel.set_override(vf, driver))
    }

    fn unbind(&self, vf: VfRef) -> CaseResult {
        self.change_kernel(|kernel| kernel.unbind(vf))
    }

    fn rename(&self, vf: VfRef, name: &str) -> CaseResult {
        self.change_kernel(|kernel| {
            let vf = kernel.pf_mut(vf.pf).and_then(|pf| pf.vfs.get_mut(usize::from(vf.index)));
            if let Some(link) = vf.and_then(|vf| vf.link.as_mut()) {
                name.clone_into(&mut link.name);
            }
            Ok(())
        })
    }

    fn move_to_other_netns(&self, vf: VfRef) -> CaseResult {
        self.change_kernel(|kernel| kernel.set_in_other_namespace(vf, true))
    }

    fn move_back_from_other_netns(&self, vf: VfRef) -> CaseResult {
        self.change_kernel(|kernel| kernel.set_in_other_namespace(vf, false))
    }

    /// Changes nothing: the model has no such options, and vfleet does not depend on them.
    fn set_vf_options(&self, _: VfRef) -> CaseResult {
        self.change_kernel(|_| Ok(()))
    }

    /// Changes nothing: a software RDMA device belongs to no card, and the model has only cards.
    fn add_soft_rdma(&self, _: VfRef) -> CaseResult {
        self.change_kernel(|_| Ok(()))
    }

    /// Marks the interface as used: the model has no routes.
    fn add_default_route(&self, function: PciFunction, _: RoutePath) -> CaseResult {
        let host_use = Some(HostUse::DefaultRoute);
        self.change_kernel(|kernel| match function {
            PciFunction::Pf(pf) => {
                kernel.set_link_up(pf, true).and_then(|()| kernel.set_pf_host_use(pf, host_use))
            }
            PciFunction::Vf(vf) => kernel.set_vf_host_use(vf, host_use),
        })
    }

    fn remove_default_route(&self) -> CaseResult {
        self.change_kernel(|kernel| {
            for pf in &mut kernel.pfs {
                let links = pf.link.iter_mut().chain(pf.vfs.iter_mut().filter_map(|vf| vf.link.as_mut()));
                links.for_each(|link| link.host_use = None);
            }
            Ok(())
        })
    }

    fn write_go_record(&self, interface: &Interface) -> CaseResult {
        let pf = interface.pci_address.value().map_err(|error| CaseError::Failed(error.to_string()))?;
        self.change_kernel(|kernel| {
            kernel.go_records.insert(*pf, interface.clone());
            Ok(())
        })
    }

    fn truncate_record(&self, pf: PciAddress, with_copy: bool) -> CaseResult {
        self.change_kernel(|kernel| {
            if kernel.records.remove(&pf).is_some() {
                kernel.damaged_records.insert(pf);
            }
            if with_copy && kernel.go_records.remove(&pf).is_some() {
                kernel.damaged_go_records.insert(pf);
            }
            Ok(())
        })
    }

    fn write_file(&self, path: &str, text: Option<&str>) -> CaseResult {
        self.change_kernel(|kernel| {
            match text {
                _ if path == GUIDS => kernel.guid_file = text.map(str::to_owned),
                Some(text) => drop(kernel.files.insert(path.to_owned(), text.to_owned())),
                None => drop(kernel.files.remove(path)),
            }
            Ok(())
        })
    }

    fn rewrite_module_list(&self) -> CaseResult {
        self.change_kernel(|_| Ok(()))
    }

    fn unload_module(&self, module: &str) -> CaseResult {
        self.change_kernel(|kernel| {
            kernel.modules.insert(module.to_owned(), ModuleState::Loadable);
            kernel.userspace_drivers.remove(module);
            Ok(())
        })
    }

    fn set_rdma_mode(&self, mode: RdmaMode) -> CaseResult {
        self.change_kernel(|kernel| {
            kernel.rdma_mode = Some(mode);
            Ok(())
        })
    }

    fn settle(&self) -> CaseResult {
        Ok(())
    }
}
