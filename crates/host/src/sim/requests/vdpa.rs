//! Requests that create and remove vDPA devices.

use vfleet_api::VfRef;
use vfleet_plan::{EswitchMode, ModuleState, VdpaKind, is_userspace_driver};

use super::{EBUSY, ENODEV, EOPNOTSUPP, Refusal, refuse};
use crate::sim::kernel::Kernel;

impl Kernel {
    /// Creates the vDPA device of a VF. Allowed only in switchdev mode, and if the VF has a network driver.
    pub fn create_vdpa(&mut self, vf: VfRef, kind: VdpaKind) -> Result<(), Refusal> {
        if self.modules.get(kind.driver()) != Some(&ModuleState::Loaded) {
            return Err(refuse(ENODEV));
        }
        let eswitch = self.expect_pf(vf.pf)?.eswitch;
        let found = self.expect_vf(vf)?;
        if found.driver.as_deref().is_none_or(is_userspace_driver) {
            return Err(refuse(ENODEV));
        }
        if eswitch != Some(EswitchMode::Switchdev) {
            return Err(refuse(EOPNOTSUPP));
        }
        if found.vdpa.is_some_and(|existing| existing != kind) {
            return Err(refuse(EBUSY));
        }
        found.vdpa = Some(kind);
        self.event_count += 1;
        Ok(())
    }

    /// Removes the vDPA device of a VF.
    pub fn remove_vdpa(&mut self, vf: VfRef) -> Result<(), Refusal> {
        self.expect_vf(vf)?.vdpa.take().ok_or(refuse(ENODEV))?;
        self.event_count += 1;
        Ok(())
    }
}
