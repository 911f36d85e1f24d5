use vfleet_api::VfRef;
use vfleet_plan::{EswitchMode, ModuleState, VdpaKind, is_userspace_driver};

use super::{EBUSY, ENODEV, EOPNOTSUPP, Refusal, refuse};
use crate::sim::kernel::Kernel;

impl Kernel {
    /// Make a vDPA device of a VF: only where the card's own driver holds it, and in switchdev mode.
    pub fn make_vdpa(&mut self, vf: VfRef, kind: VdpaKind) -> Result<(), Refusal> {
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
        if found.vdpa.is_some_and(|made| made != kind) {
            return Err(refuse(EBUSY));
        }
        found.vdpa = Some(kind);
        self.announced += 1;
        Ok(())
    }

    /// Remove the vDPA device of a VF.
    pub fn remove_vdpa(&mut self, vf: VfRef) -> Result<(), Refusal> {
        self.expect_vf(vf)?.vdpa.take().ok_or(refuse(ENODEV))?;
        self.announced += 1;
        Ok(())
    }
}
