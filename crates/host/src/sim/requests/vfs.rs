//! Requests that create and remove VFs.

use vfleet_api::{PciAddress, VfRef};
use vfleet_plan::EswitchMode;

use super::{EBUSY, ENOENT, ERANGE, Refusal, refuse};
use crate::sim::devices::SimVf;
use crate::sim::kernel::Kernel;
use crate::sim::machine::EswitchRule;

impl Kernel {
    /// Writes to `sriov_numvfs`.
    pub fn set_num_vfs(&mut self, pf: PciAddress, count: u16) -> Result<(), Refusal> {
        let count = usize::from(count);
        let rule = self.eswitch_rule(pf);
        let found = self.expect_pf(pf)?;
        if found.is_lone_vf {
            return Err(refuse(ENOENT));
        }
        if count > found.vf_addresses.len() {
            return Err(refuse(ERANGE));
        }
        if count == found.vfs.len() {
            return Ok(());
        }
        if found.driver.is_none() {
            return Err(refuse(ENOENT));
        }
        if count > 0 && !found.vfs.is_empty() {
            return Err(refuse(EBUSY));
        }
        let vanished: Vec<String> = found.vfs.iter().flat_map(SimVf::interface_names).collect();
        found.vfs = found.vf_addresses.iter().take(count).map(|address| SimVf::new(*address)).collect();
        if count == 0 && rule == EswitchRule::NeedsVfs && found.eswitch.is_some() {
            found.enter_mode(EswitchMode::Legacy);
        }
        self.remove_bridge_ports(&vanished);
        self.update_representors(pf);
        self.event_count += 1;
        (0..).take(count).try_for_each(|index| self.probe(VfRef { pf, index }))
    }

    /// Writes to `sriov_drivers_autoprobe`, which a lone VF does not have. Causes no event.
    pub fn set_autoprobe(&mut self, pf: PciAddress, on: bool) -> Result<(), Refusal> {
        let found = self.expect_pf(pf)?;
        if found.is_lone_vf {
            return Err(refuse(ENOENT));
        }
        found.autoprobe = on;
        Ok(())
    }

    /// Binds lone VFs, which exist and have a driver from the start.
    pub(in crate::sim) fn probe_lone_vfs(&mut self) {
        let lone: Vec<PciAddress> = self.pfs.iter().filter(|pf| pf.is_lone_vf).map(|pf| pf.address).collect();
        for pf in lone {
            // Cannot fail.
            let _ = self.probe(VfRef { pf, index: 0 });
        }
    }
}
