//! The machines of the VM lab: one that all stories of `lab.rs` share, and one for the contract suite.

mod host_tests;
pub mod kernel_suite;

use std::sync::{Arc, OnceLock, RwLockWriteGuard};

use anyhow::Result;
use fixture_kube::ControlPlane;
use fixture_lab::Vm;

use crate::plane::Plane;

/// The machine, for the caller alone as long as it holds the guard. It reaches the control plane that the tests of
/// this process share.
pub fn machine() -> Result<RwLockWriteGuard<'static, Vm>> {
    // The machine is told its port when it boots.
    static PLANE: OnceLock<Arc<ControlPlane>> = OnceLock::new();
    Vm::exclusive(Some(PLANE.get_or_init(|| Plane::Lab.get()).port()))
}
