//! Steps, one function each. Every one is read back.

mod bind;
mod links;
mod num_vfs;
mod system;

use std::fmt;

use vfleet_api::PciAddress;
use vfleet_plan::Step;

use super::root::HostRoot;
use super::{pci, records, sysfs};
use crate::HostError;

pub(super) fn execute(root: &HostRoot, step: &Step) -> Result<(), HostError> {
    let attempt = step.to_string();
    match step {
        Step::WriteRecord { record } => records::write(root, record),
        Step::RemoveRecord { pf } => records::remove(root, *pf),
        Step::SetLinkUp { pf } => links::set_up(root, *pf, &attempt),
        Step::SetPfMtu { pf, mtu } => links::set_pf_mtu(root, *pf, *mtu, &attempt),
        Step::SetAutoprobe { pf, on } => set_autoprobe(root, *pf, *on, &attempt),
        Step::SetNumVfs { pf, count } => num_vfs::set(root, *pf, *count, &attempt),
        Step::SetVfMac { vf, mac } => links::set_vf_mac(root, *vf, *mac, &attempt),
        Step::BindVf { vf, driver } => bind::bind(root, *vf, driver, &attempt),
        Step::SetVfMtu { vf, mtu } => links::set_vf_mtu(root, *vf, *mtu, &attempt),
        step => system::execute(root, step, &attempt).unwrap_or(Err(HostError::NotYet { attempt })),
    }
}

fn set_autoprobe(root: &HostRoot, pf: PciAddress, on: bool, attempt: &str) -> Result<(), HostError> {
    pci::require_pf(root, pf)?;
    if pci::drivers_autoprobe(root, pf)? != on {
        let switch = root.device(pf).join("sriov_drivers_autoprobe");
        sysfs::write(&switch, if on { "1" } else { "0" })?;
    }
    verify(attempt, &on, &pci::drivers_autoprobe(root, pf)?)
}

/// That the kernel did what it accepted to do.
fn verify<T: PartialEq + fmt::Debug>(attempt: &str, expected: &T, found: &T) -> Result<(), HostError> {
    if expected == found {
        return Ok(());
    }
    Err(HostError::Unverified {
        attempt: attempt.to_owned(),
        expected: format!("{expected:?}"),
        found: format!("{found:?}"),
    })
}
