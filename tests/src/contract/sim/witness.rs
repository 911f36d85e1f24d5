//! A reader of the model's registers: of what the model card holds, never of a host's facts.

use vfleet_api::{Guid, MacAddr, PciAddress};
use vfleet_host::sim::{Kernel, Link, Pf, Rdma, Vf};
use vfleet_plan::{FirmwareFacts, LinkKind, ModuleState, VdpaKind};

use super::SimBench;
use crate::contract::bench::{SeenFile, Stop, Witness};
use crate::contract::seen::{SeenGuids, SeenLink, SeenPf, SeenSwitch, SeenVf};

impl Witness for SimBench {
    fn pfs(&self) -> Result<Vec<SeenPf>, Stop> {
        let kernel = self.host.kernel();
        Ok(kernel
            .pfs
            .iter()
            .map(|pf| SeenPf {
                address: pf.address,
                vendor: pf.vendor,
                device: pf.device,
                driver: itself(pf).map_or(&pf.driver, |vf| &vf.driver).clone(),
                total_vfs: u16::try_from(pf.vf_addresses.len()).unwrap_or_default(),
                autoprobe: pf.autoprobe,
                link: itself(pf).map_or(&pf.link, |vf| &vf.link).as_ref().map(see),
                vfs: pf
                    .vfs
                    .iter()
                    .map(|vf| SeenVf {
                        address: vf.address,
                        vendor: pf.vendor,
                        device: pf.vf_device,
                        driver: vf.driver.clone(),
                        driver_override: vf.driver_override.clone(),
                        admin_mac: pf.link.as_ref().map(|_| vf.admin_mac),
                        link: vf.link.as_ref().filter(|_| !vf.is_held_elsewhere).map(see),
                    })
                    .collect(),
            })
            .collect())
    }

    fn record(&self, pf: PciAddress) -> Result<Option<SeenFile>, Stop> {
        in_json(self.host.kernel().records.get(&pf))
    }

    fn go_record(&self, pf: PciAddress) -> Result<Option<SeenFile>, Stop> {
        in_json(self.host.kernel().go_records.get(&pf))
    }

    fn file(&self, path: &str) -> Result<Option<SeenFile>, Stop> {
        Ok(self.host.kernel().files.get(path).map(|text| SeenFile { text: text.clone(), mode: None }))
    }

    fn has_program(&self, path: &str) -> Result<bool, Stop> {
        Ok(self.host.kernel().programs.contains(path))
    }

    fn is_enabled(&self, unit: &str) -> Result<bool, Stop> {
        Ok(self.host.kernel().enabled_units.contains(unit))
    }

    fn is_loaded(&self, module: &str) -> Result<bool, Stop> {
        Ok(self.host.kernel().modules.get(module) == Some(&ModuleState::Loaded))
    }

    fn command_line(&self) -> Result<String, Stop> {
        Ok(self.host.kernel().command_line)
    }

    fn boot_id(&self) -> Result<String, Stop> {
        Ok(self.host.kernel().boot_id())
    }

    fn has_iommu(&self) -> Result<bool, Stop> {
        Ok(self.host.kernel().has_iommu)
    }

    fn permanent_mac(&self, pf: PciAddress) -> Result<Option<MacAddr>, Stop> {
        let kernel = self.host.kernel();
        Ok(kernel.pf(pf).and_then(|pf| pf.link.as_ref()).and_then(|link| link.permanent_mac))
    }

    fn switch(&self, pf: PciAddress) -> Result<SeenSwitch, Stop> {
        let kernel = self.host.kernel();
        let card = card(&kernel, pf)?;
        let id = card.link.as_ref().map(|link| link.mac.to_string().replace(':', ""));
        Ok(SeenSwitch {
            mode: kernel.eswitch_mode(pf),
            port: id.filter(|_| card.eswitch.is_some()).map(|id| (id, format!("p{}", pf.function()))),
            tc_offload: card.tc_offload,
            software_steering: card.eswitch.map(|_| card.software_steering),
            representors: card.vfs.iter().map(|vf| vf.representor.clone()).collect(),
        })
    }

    fn guids(&self, pf: PciAddress) -> Result<SeenGuids, Stop> {
        let kernel = self.host.kernel();
        let card = card(&kernel, pf)?;
        let is_infiniband = card.link.as_ref().is_some_and(|link| link.kind == LinkKind::Infiniband);
        Ok(SeenGuids {
            of_pf: guid(card.rdma.as_ref()),
            of_vfs: card.vfs.iter().map(|vf| guid(vf.rdma.as_ref())).collect(),
            kept: card.vfs.iter().map(|vf| is_infiniband.then_some(vf.admin_guid)).collect(),
        })
    }

    fn vdpa(&self, pf: PciAddress) -> Result<Vec<Option<VdpaKind>>, Stop> {
        Ok(card(&self.host.kernel(), pf)?.vfs.iter().map(|vf| vf.vdpa).collect())
    }

    fn firmware(&self, pf: PciAddress) -> Result<Option<FirmwareFacts>, Stop> {
        Ok(card(&self.host.kernel(), pf)?.firmware.clone())
    }
}

fn card(kernel: &Kernel, pf: PciAddress) -> Result<&Pf, Stop> {
    kernel.pf(pf).ok_or_else(|| Stop::Failed(format!("the model has no card at {pf}")))
}

/// A VF without its PF is its own VF.
fn itself(pf: &Pf) -> Option<&Vf> {
    pf.vfs.first().filter(|_| pf.is_lone_vf)
}

fn guid(rdma: Option<&Rdma>) -> Option<Guid> {
    rdma.map(|rdma| rdma.node_guid)
}

fn in_json<T: serde::Serialize>(content: Option<&T>) -> Result<Option<SeenFile>, Stop> {
    let text = content.map(serde_json::to_string).transpose();
    let text = text.map_err(|error| Stop::Failed(error.to_string()))?;
    Ok(text.map(|text| SeenFile { text, mode: None }))
}

fn see(link: &Link) -> SeenLink {
    SeenLink {
        name: link.name.clone(),
        alt_names: link.alt_names.clone(),
        is_ethernet: link.kind == LinkKind::Ethernet,
        mac: Some(link.mac),
        mtu: link.mtu,
        max_mtu: link.max_mtu,
        up: link.up,
    }
}
