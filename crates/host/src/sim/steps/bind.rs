//! Step that binds a VF to a driver.

use vfleet_api::VfRef;
use vfleet_plan::{Step, VfDriver, is_userspace_driver};

use super::{netlink_error, require_pf, require_vf};
use crate::HostError;
use crate::sim::devices::SimVf;
use crate::sim::kernel::Kernel;
use crate::sim::requests::Refusal;

pub(super) fn bind(kernel: &mut Kernel, vf: VfRef, driver: &VfDriver, step: &Step) -> Result<(), HostError> {
    let refused = |refusal: Refusal| netlink_error(step, &refusal);
    let bound = require_vf(kernel, vf)?.driver.clone();
    match driver {
        VfDriver::Named(name) if !kernel.has_driver(name) => {
            kernel.set_override(vf, None).map_err(refused)?;
            return Err(HostError::DriverNotLoaded { driver: name.clone() });
        }
        VfDriver::Named(name) if bound.as_ref() == Some(name) => {
            return kernel.set_override(vf, None).map_err(refused);
        }
        VfDriver::Named(name) => kernel.set_override(vf, Some(name)).map_err(refused)?,
        VfDriver::Kernel => {
            kernel.set_override(vf, None).map_err(refused)?;
            if !require_pf(kernel, vf.pf)?.autoprobe {
                return Err(HostError::AutoprobeOff { pf: vf.pf });
            }
        }
    }
    if bound.is_some() {
        kernel.unbind(vf).map_err(refused)?;
    }
    kernel.probe(vf).map_err(refused)?;
    kernel.set_override(vf, None).map_err(refused)?;
    let has_iommu = kernel.has_iommu;
    let found = require_vf(kernel, vf)?;
    if found.driver.is_none() && !has_iommu && matches!(driver, VfDriver::Named(name) if name == "vfio-pci") {
        return Err(HostError::NoIommu { vf: found.address });
    }
    verify_driver(found, driver, step)
}

fn verify_driver(vf: &SimVf, desired: &VfDriver, step: &Step) -> Result<(), HostError> {
    let is_desired = vf.driver.as_deref().is_some_and(|driver| match desired {
        VfDriver::Kernel => !is_userspace_driver(driver),
        VfDriver::Named(name) => driver == name,
    });
    if is_desired {
        return Ok(());
    }
    Err(HostError::NotVerified {
        attempt: step.to_string(),
        expected: desired.to_string(),
        found: vf.driver.clone().unwrap_or_else(|| "no driver".to_owned()),
    })
}
