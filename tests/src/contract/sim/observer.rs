//! Observer of the simulated machine. It reads the state of the model, never the facts of a host.

use vfleet_api::{Guid, MacAddr, PciAddress};
use vfleet_host::sim::{Kernel, SimLink, SimPf, SimRdmaDevice, SimVf};
use vfleet_plan::{FirmwareFacts, LinkKind, ModuleState, VdpaKind};

use super::SimTestBed;
use crate::contract::observed::{ObservedEswitch, ObservedGuids, ObservedLink, ObservedPf, ObservedVf};
use crate::contract::testbed::{CaseError, ObservedFile, Observer};

impl Observer for SimTestBed {
    fn pfs(&self) -> Result<Vec<ObservedPf>, CaseError> {
        let kernel = self.host.kernel();
        Ok(kernel
            .pfs
            .iter()
            .map(|pf| ObservedPf {
                address: pf.address,
                vendor: pf.vendor,
                device: pf.device,
                driver: own_vf(pf).map_or(&pf.driver, |vf| &vf.driver).clone(),
                total_vfs: u16::try_from(pf.vf_addresses.len()).unwrap_or_default(),
                autoprobe: pf.autoprobe,
                link: own_vf(pf).map_or(&pf.link, |vf| &vf.link).as_ref().map(observe_link),
                vfs: pf
                    .vfs
                    .iter()
                    .map(|vf| ObservedVf {
                        address: vf.address,
                        vendor: pf.vendor,
                        device: pf.vf_device,
                        driver: vf.driver.clone(),
                        driver_override: vf.driver_override.clone(),
                        admin_mac: pf.link.as_ref().map(|_| vf.admin_mac),
                        link: vf.link.as_ref().filter(|_| vf.namespace.is_none()).map(observe_link),
                    })
                    .collect(),
            })
            .collect())
    }

    fn record(&self, pf: PciAddress) -> Result<Option<ObservedFile>, CaseError> {
        to_json_file(self.host.kernel().records.get(&pf))
    }

    fn go_record(&self, pf: PciAddress) -> Result<Option<ObservedFile>, CaseError> {
        to_json_file(self.host.kernel().go_records.get(&pf))
    }

    fn file(&self, path: &str) -> Result<Option<ObservedFile>, CaseError> {
        Ok(self.host.kernel().files.get(path).map(|text| ObservedFile { text: text.clone(), mode: None }))
    }

    fn has_program(&self, path: &str) -> Result<bool, CaseError> {
        Ok(self.host.kernel().programs.contains(path))
    }

    fn is_unit_enabled(&self, unit: &str) -> Result<bool, CaseError> {
        Ok(self.host.kernel().enabled_units.contains(unit))
    }

    fn is_module_loaded(&self, module: &str) -> Result<bool, CaseError> {
        Ok(self.host.kernel().modules.get(module) == Some(&ModuleState::Loaded))
    }

    fn command_line(&self) -> Result<String, CaseError> {
        Ok(self.host.kernel().command_line)
    }

    fn boot_id(&self) -> Result<String, CaseError> {
        Ok(self.host.kernel().boot_id())
    }

    fn has_iommu(&self) -> Result<bool, CaseError> {
        Ok(self.host.kernel().has_iommu)
    }

    fn permanent_mac(&self, pf: PciAddress) -> Result<Option<MacAddr>, CaseError> {
        let kernel = self.host.kernel();
        Ok(kernel.pf(pf).and_then(|pf| pf.link.as_ref()).and_then(|link| link.permanent_mac))
    }

    fn eswitch(&self, pf: PciAddress) -> Result<ObservedEswitch, CaseError> {
        let kernel = self.host.kernel();
        let card = card(&kernel, pf)?;
        let id = card.link.as_ref().map(|link| link.mac.to_string().replace(':', ""));
        Ok(ObservedEswitch {
            mode: kernel.eswitch_mode(pf),
            port: id.filter(|_| card.eswitch.is_some()).map(|id| (id, format!("p{}", pf.function()))),
            tc_offload: card.tc_offload,
            software_steering: card.eswitch.map(|_| card.software_steering),
            representors: card.vfs.iter().map(|vf| vf.representor.clone()).collect(),
        })
    }

    fn guids(&self, pf: PciAddress) -> Result<ObservedGuids, CaseError> {
        let kernel = self.host.kernel();
        let card = card(&kernel, pf)?;
        let is_infiniband = card.link.as_ref().is_some_and(|link| link.kind == LinkKind::Infiniband);
        Ok(ObservedGuids {
            pf_device: guid(card.rdma.as_ref()),
            vf_devices: card.vfs.iter().map(|vf| guid(vf.rdma.as_ref())).collect(),
            admin_guids: card.vfs.iter().map(|vf| is_infiniband.then_some(vf.admin_guid)).collect(),
        })
    }

    fn vdpa(&self, pf: PciAddress) -> Result<Vec<Option<VdpaKind>>, CaseError> {
        Ok(card(&self.host.kernel(), pf)?.vfs.iter().map(|vf| vf.vdpa).collect())
    }

    fn firmware(&self, pf: PciAddress) -> Result<Option<FirmwareFacts>, CaseError> {
        Ok(card(&self.host.kernel(), pf)?.firmware.clone())
    }
}

fn card(kernel: &Kernel, pf: PciAddress) -> Result<&SimPf, CaseError> {
    kernel.pf(pf).ok_or_else(|| CaseError::Failed(format!("the model has no card at {pf}")))
}

/// Returns the VF of a lone VF: itself.
fn own_vf(pf: &SimPf) -> Option<&SimVf> {
    pf.vfs.first().filter(|_| pf.is_lone_vf)
}

fn guid(rdma: Option<&SimRdmaDevice>) -> Option<Guid> {
    rdma.map(|rdma| rdma.node_guid)
}

fn to_json_file<T: serde::Serialize>(content: Option<&T>) -> Result<Option<ObservedFile>, CaseError> {
    let text = content.map(serde_json::to_string).transpose();
    let text = text.map_err(|error| CaseError::Failed(error.to_string()))?;
    Ok(text.map(|text| ObservedFile { text, mode: None }))
}

pub(super) fn observe_link(link: &SimLink) -> ObservedLink {
    ObservedLink {
        name: link.name.clone(),
        alt_names: link.alt_names.clone(),
        is_ethernet: link.kind == LinkKind::Ethernet,
        mac: Some(link.mac),
        mtu: link.mtu,
        max_mtu: link.max_mtu,
        up: link.up,
    }
}
