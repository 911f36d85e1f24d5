//! The bench of `SimHost`.

mod machines;
mod outsider;
mod witness;

use vfleet_api::PciAddress;
use vfleet_host::sim::{Kernel, MachineError, Refusal};
use vfleet_host::{Host, SimHost};

use super::bench::{Bench, Outsider, Shown, Stop, Witness};
use super::cases::Given;
use super::coverage::Environment;

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

    fn environment(&self) -> Environment {
        Environment::Sim
    }
}
