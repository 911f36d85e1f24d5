use vfleet_api::node_state::Interface;
use vfleet_api::pool_config::RdmaMode;
use vfleet_api::{MacAddr, PciAddress, VfRef};
use vfleet_plan::files::GUIDS;
use vfleet_plan::{HostUse, ModuleState};

use super::SimBench;
use crate::contract::bench::{Outsider, Port, Shown, Stop, Way};

impl Outsider for SimBench {
    fn set_num_vfs(&self, pf: PciAddress, count: u16) -> Shown {
        self.change(|kernel| kernel.set_num_vfs(pf, count))
    }

    fn set_autoprobe(&self, pf: PciAddress, on: bool) -> Shown {
        self.change(|kernel| kernel.set_autoprobe(pf, on))
    }

    fn set_up(&self, pf: PciAddress, up: bool) -> Shown {
        self.change(|kernel| kernel.set_up(pf, up))
    }

    fn set_mtu(&self, pf: PciAddress, mtu: u32) -> Shown {
        self.change(|kernel| kernel.set_pf_mtu(pf, mtu))
    }

    fn set_alt_name(&self, pf: PciAddress, name: &str) -> Shown {
        self.change(|kernel| {
            if let Some(link) = kernel.pf_mut(pf).and_then(|pf| pf.link.as_mut()) {
                link.alt_names.push(name.to_owned());
            }
            Ok(())
        })
    }

    fn set_vf_mac(&self, vf: VfRef, mac: MacAddr) -> Shown {
        self.change(|kernel| kernel.set_vf_mac(vf, mac))
    }

    fn set_override(&self, vf: VfRef, driver: Option<&str>) -> Shown {
        self.change(|kernel| kernel.set_override(vf, driver))
    }

    fn unbind(&self, vf: VfRef) -> Shown {
        self.change(|kernel| kernel.unbind(vf))
    }

    fn rename(&self, vf: VfRef, name: &str) -> Shown {
        self.change(|kernel| {
            let vf = kernel.pf_mut(vf.pf).and_then(|pf| pf.vfs.get_mut(usize::from(vf.index)));
            if let Some(link) = vf.and_then(|vf| vf.link.as_mut()) {
                name.clone_into(&mut link.name);
            }
            Ok(())
        })
    }

    fn hold_elsewhere(&self, vf: VfRef) -> Shown {
        self.change(|kernel| kernel.hold_elsewhere(vf, true))
    }

    fn bring_back(&self, vf: VfRef) -> Shown {
        self.change(|kernel| kernel.hold_elsewhere(vf, false))
    }

    /// The model keeps none of that: nothing that vfleet does depends on it.
    fn tune(&self, _: VfRef) -> Shown {
        self.change(|_| Ok(()))
    }

    /// Such a device belongs to no card, and the model knows only cards.
    fn add_soft_rdma(&self, _: VfRef) -> Shown {
        self.change(|_| Ok(()))
    }

    /// The model has no routes, only what they make of an interface.
    fn lead_default_route(&self, port: Port, _: Way) -> Shown {
        let host_use = Some(HostUse::DefaultRoute);
        self.change(|kernel| match port {
            Port::Pf(pf) => kernel.set_up(pf, true).and_then(|()| kernel.use_pf(pf, host_use)),
            Port::Vf(vf) => kernel.use_vf(vf, host_use),
        })
    }

    fn remove_default_route(&self) -> Shown {
        self.change(|kernel| {
            for pf in &mut kernel.pfs {
                let links = pf.link.iter_mut().chain(pf.vfs.iter_mut().filter_map(|vf| vf.link.as_mut()));
                links.for_each(|link| link.host_use = None);
            }
            Ok(())
        })
    }

    fn write_go_record(&self, interface: &Interface) -> Shown {
        let pf = interface.pci_address.value().map_err(|error| Stop::Failed(error.to_string()))?;
        self.change(|kernel| {
            kernel.go_records.insert(*pf, interface.clone());
            Ok(())
        })
    }

    fn tear_record(&self, pf: PciAddress, with_copy: bool) -> Shown {
        self.change(|kernel| {
            if kernel.records.remove(&pf).is_some() {
                kernel.damaged_records.insert(pf);
            }
            if with_copy && kernel.go_records.remove(&pf).is_some() {
                kernel.damaged_go_records.insert(pf);
            }
            Ok(())
        })
    }

    fn write_file(&self, path: &str, text: Option<&str>) -> Shown {
        self.change(|kernel| {
            match text {
                _ if path == GUIDS => kernel.guid_file = text.map(str::to_owned),
                Some(text) => drop(kernel.files.insert(path.to_owned(), text.to_owned())),
                None => drop(kernel.files.remove(path)),
            }
            Ok(())
        })
    }

    fn list_modules_anew(&self) -> Shown {
        self.change(|_| Ok(()))
    }

    fn unload_module(&self, module: &str) -> Shown {
        self.change(|kernel| {
            kernel.modules.insert(module.to_owned(), ModuleState::Loadable);
            kernel.userspace_drivers.remove(module);
            Ok(())
        })
    }

    fn set_rdma_mode(&self, mode: RdmaMode) -> Shown {
        self.change(|kernel| {
            kernel.rdma_mode = Some(mode);
            Ok(())
        })
    }

    fn settle(&self) -> Shown {
        Ok(())
    }
}
