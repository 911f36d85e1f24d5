//! The one machine of the VM lab that all trials of `lab.rs` share.

pub mod kernel_suite;

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use anyhow::{Result, anyhow};
use fixture_kube::ControlPlane;
use fixture_lab::{Options, Vm};

static MACHINE: OnceLock<Result<Mutex<Vm>, String>> = OnceLock::new();

/// The machine, for the caller alone as long as it holds the guard. Booted by the first who asks.
pub fn machine() -> Result<MutexGuard<'static, Vm>> {
    let machine = MACHINE.get_or_init(|| boot().map(Mutex::new).map_err(|error| format!("{error:?}")));
    let machine = machine.as_ref().map_err(|error| anyhow!("the machine does not boot: {error}"))?;
    // A trial that failed under the guard says nothing about the machine.
    Ok(machine.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Everything that is decided at boot, for all trials. The machine reaches the control plane that the tests of this
/// process share.
fn boot() -> Result<Vm> {
    Vm::boot(&Options { api_port: Some(ControlPlane::shared().port()), ..Options::default() })
}
