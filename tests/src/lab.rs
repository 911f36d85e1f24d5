//! Machines of the VM lab: one that all scenarios of `lab.rs` share, and one for the contract suite.

mod host_tests;
pub mod kernel_suite;

use std::sync::{Arc, OnceLock, RwLockWriteGuard};

use anyhow::Result;
use fixture_kube::ControlPlane;
use fixture_lab::Vm;

use crate::plane::Plane;

/// Returns the machine for exclusive use while the guard is held. The machine can reach the control plane that the
/// tests of this process share.
pub fn machine() -> Result<RwLockWriteGuard<'static, Vm>> {
    // The machine gets the port of the control plane when it boots.
    static PLANE: OnceLock<Arc<ControlPlane>> = OnceLock::new();
    Vm::exclusive(Some(PLANE.get_or_init(|| Plane::Lab.get()).port()))
}
