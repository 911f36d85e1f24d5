//! Pods of the simulated machine.

use vfleet_api::VfRef;
use vfleet_host::sim::{Kernel, NamespacePath};
use vfleet_plan::cni::facts::VfSettings;

use super::SimTestBed;
use super::observer::observe_link;
use crate::contract::observed::ObservedLink;
use crate::contract::pods::{PodAdministrator, PodObserver};
use crate::contract::testbed::{CaseError, CaseResult};

fn path(namespace: &str) -> String {
    format!("/run/netns/{namespace}")
}

impl PodObserver for SimTestBed {
    fn links_in(&self, namespace: &str) -> Result<Vec<ObservedLink>, CaseError> {
        let kernel = self.host.kernel();
        let Some(NamespacePath::Namespace(inode)) = kernel.namespaces.paths.get(&path(namespace)) else {
            return Err(CaseError::Failed(format!("there is no namespace {namespace}")));
        };
        let vfs = kernel.pfs.iter().flat_map(|pf| &pf.vfs).filter(|vf| vf.namespace == Some(*inode));
        let of_vfs = vfs.filter_map(|vf| vf.link.as_ref()).map(observe_link);
        let virtual_links = kernel.namespaces.by_inode.get(inode).into_iter().flat_map(|found| &found.links);
        let virtual_links = virtual_links.map(|(name, link)| ObservedLink {
            name: name.clone(),
            alt_names: link.alt_names.iter().cloned().collect(),
            is_ethernet: true,
            mac: None,
            mtu: 1500,
            max_mtu: None,
            up: false,
        });
        Ok(of_vfs.chain(virtual_links).collect())
    }

    fn vf_settings(&self, vf: VfRef) -> Result<VfSettings, CaseError> {
        let kernel = self.host.kernel();
        let found = kernel.pf(vf.pf).and_then(|pf| pf.vfs.get(usize::from(vf.index)));
        let found = found.ok_or_else(|| CaseError::Failed(format!("there is no {vf}")))?;
        let stored = found.settings;
        Ok(VfSettings {
            mac: Some(found.admin_mac),
            vlan: Some(stored.vlan),
            spoof_check: Some(stored.spoof_check),
            trust: Some(stored.trust),
            min_tx_rate: Some(stored.min_tx_rate),
            max_tx_rate: Some(stored.max_tx_rate),
            link_state: Some(stored.link_state),
            ..VfSettings::default()
        })
    }
}

impl PodAdministrator for SimTestBed {
    fn create_namespace(&self, name: &str) -> Result<String, CaseError> {
        self.host.modify_kernel(|kernel| kernel.create_namespace(&path(name)));
        Ok(path(name))
    }

    fn delete_namespace(&self, name: &str) -> CaseResult {
        self.host.modify_kernel(|kernel| kernel.delete_namespace(&path(name)));
        Ok(())
    }

    fn add_virtual_link(&self, namespace: &str, link: &str) -> CaseResult {
        self.host.modify_kernel(|kernel: &mut Kernel| kernel.add_virtual_link(&path(namespace), link));
        Ok(())
    }

    fn add_vf_alt_name(&self, vf: VfRef, name: &str) -> CaseResult {
        let found =
            self.host.kernel().pf(vf.pf).and_then(|pf| Some(pf.vfs.get(usize::from(vf.index))?.address));
        let device = found.ok_or_else(|| CaseError::Failed(format!("there is no {vf}")))?;
        self.change_kernel(|kernel| kernel.add_alt_name(device, name))
    }
}
