//! The bench of `SimHost`.

use vfleet_api::{MacAddr, PciAddress, VfRef};
use vfleet_host::sim::{Kernel, Link, Machine, MachineError, Refusal};
use vfleet_host::{Host, SimHost};
use vfleet_plan::LinkKind;

use super::bench::{Bench, Outsider, SeenRecord, Shown, Stop, Witness};
use super::cases::{GIVEN_VFS, Given};
use super::seen::{SeenLink, SeenPf, SeenVf};

/// A machine like the one in the VM lab, of its own for each case.
pub struct SimBench {
    host: SimHost,
    pfs: [PciAddress; 2],
}

impl SimBench {
    pub fn new(given: Given) -> Result<Self, MachineError> {
        let mut machine = Machine::lab();
        machine.pfs[0].up = given == Given::VfsMadeUp;
        machine.pfs[0].num_vfs = if given == Given::NoVfs { 0 } else { GIVEN_VFS };
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

    fn record(&self, pf: PciAddress) -> Result<Option<SeenRecord>, Stop> {
        let kernel = self.host.kernel();
        let Some(record) = kernel.records.get(&pf) else { return Ok(None) };
        let content = serde_json::to_value(record).map_err(|error| Stop::Failed(error.to_string()))?;
        Ok(Some(SeenRecord { content, mode: None }))
    }
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

    fn settle(&self) -> Shown {
        Ok(())
    }
}
