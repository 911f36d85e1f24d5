//! Test bed of `SimHost`.

mod administrator;
mod bridges;
mod machines;
mod observer;
mod pods;
mod switch_ports;

use vfleet_api::PciAddress;
use vfleet_host::attachment::AttachmentHost;
use vfleet_host::sim::{Kernel, MachineError, Refusal};
use vfleet_host::{Host, SimHost};

use super::cases::CardSetup;
use super::coverage::Environment;
use super::testbed::{Administrator, CaseError, CaseResult, Observer, TestBed};

/// Model of the machine in the VM lab, created anew for each case.
pub struct SimTestBed {
    host: SimHost,
    pfs: [PciAddress; 2],
}

impl SimTestBed {
    pub fn new(setup: CardSetup) -> Result<Self, MachineError> {
        let machine = machines::create_machine(setup);
        let pfs = [machine.pfs[0].address, machine.pfs[1].address];
        Ok(Self { host: SimHost::new(&machine, "contract")?, pfs })
    }

    fn change_kernel(&self, change: impl FnOnce(&mut Kernel) -> Result<(), Refusal>) -> CaseResult {
        let refused =
            |refusal| CaseError::Failed(format!("a change by the administrator was refused: {refusal}"));
        self.host.modify_kernel(change).map_err(refused)
    }
}

impl TestBed for SimTestBed {
    fn host(&self) -> &dyn Host {
        &self.host
    }

    fn attachments(&self) -> &dyn AttachmentHost {
        &self.host
    }

    fn new_host(&self) -> Box<dyn Host + '_> {
        Box::new(self.host.new_process())
    }

    fn pf(&self) -> PciAddress {
        self.pfs[0]
    }

    fn other_pf(&self) -> PciAddress {
        self.pfs[1]
    }

    fn observer(&self) -> &dyn Observer {
        self
    }

    fn admin(&self) -> &dyn Administrator {
        self
    }

    fn environment(&self) -> Environment {
        Environment::Sim
    }
}
