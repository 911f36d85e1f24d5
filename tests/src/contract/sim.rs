//! The bench of `SimHost`.

mod machines;
mod outsider;

use vfleet_api::{MacAddr, PciAddress};
use vfleet_host::sim::{Kernel, Link, MachineError, Refusal};
use vfleet_host::{Host, SimHost};
use vfleet_plan::{LinkKind, ModuleState};

use super::bench::{Bench, Outsider, SeenFile, Shown, Stop, Witness};
use super::cases::Given;
use super::seen::{SeenLink, SeenPf, SeenVf};

/// A machine like the one in the VM lab, of its own for each case.
pub struct SimBench {
    host: SimHost,
    pfs: [PciAddress; 2],
}

impl SimBench {
    pub fn new(given: Given) -> Result<Self, MachineError> {
        let machine = machines::machine(given);
        let pfs = [machine.pfs[0].address, machine.pfs[1].address];
        Ok(Self { host: SimHost::new(&machine, "contract")?, pfs })
    }

    fn change(&self, change: impl FnOnce(&mut Kernel) -> Result<(), Refusal>) -> Shown {
        let refused = |refusal| Stop::Failed(format!("the outsider was refused: {refusal}"));
        self.host.behind_its_back(change).map_err(refused)
    }
}

impl Bench for SimBench {
    fn host(&self) -> &dyn Host {
        &self.host
    }

    fn new_host(&self) -> Box<dyn Host + '_> {
        Box::new(self.host.another())
    }

    fn pf(&self) -> PciAddress {
        self.pfs[0]
    }

    fn other_pf(&self) -> PciAddress {
        self.pfs[1]
    }

    fn witness(&self) -> &dyn Witness {
        self
    }

    fn outsider(&self) -> &dyn Outsider {
        self
    }

    fn is_fast(&self) -> bool {
        true
    }
}

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
                driver: pf.driver.clone(),
                total_vfs: u16::try_from(pf.vf_addresses.len()).unwrap_or_default(),
                autoprobe: pf.autoprobe,
                link: pf.link.as_ref().map(see),
                vfs: pf
                    .vfs
                    .iter()
                    .map(|vf| SeenVf {
                        address: vf.address,
                        vendor: pf.vendor,
                        device: pf.vf_device,
                        driver: vf.driver.clone(),
                        driver_override: vf.driver_override.clone(),
                        admin_mac: Some(vf.admin_mac),
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
