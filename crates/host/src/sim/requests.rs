//! Requests of processes to the simulated kernel, with its rules and errors.
//!
//! VFs and interfaces behave as observed on Linux 6.12 with igb and igbvf, eswitches as with igb and the module
//! labswitch of the lab; the contract suite verifies both. InfiniBand, vDPA and firmware follow the sources and manuals
//! of drivers and were never compared with hardware.

mod bind;
mod bridge;
mod eswitch;
mod firmware;
mod links;
mod modules;
mod namespaces;
mod ports;
mod vdpa;
mod vf_settings;
mod vfs;

use std::io;

use thiserror::Error;
use vfleet_api::{PciAddress, VfRef};

use super::devices::{SimPf, SimVf};
use super::kernel::Kernel;

const ENOENT: i32 = 2;
const EBUSY: i32 = 16;
const EEXIST: i32 = 17;
const ENODEV: i32 = 19;
const EINVAL: i32 = 22;
const ERANGE: i32 = 34;
const EOPNOTSUPP: i32 = 95;

/// Error of a request to the simulated kernel.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}", io::Error::from_raw_os_error(*errno))]
pub struct Refusal {
    /// Error number.
    pub errno: i32,
    /// Text of the extended acknowledgment.
    pub message: Option<&'static str>,
}

const fn refuse(errno: i32) -> Refusal {
    Refusal { errno, message: None }
}

impl Kernel {
    fn expect_pf(&mut self, pf: PciAddress) -> Result<&mut SimPf, Refusal> {
        self.pf_mut(pf).ok_or(refuse(ENOENT))
    }

    fn expect_vf(&mut self, vf: VfRef) -> Result<&mut SimVf, Refusal> {
        self.expect_pf(vf.pf)?.vfs.get_mut(usize::from(vf.index)).ok_or(refuse(ENOENT))
    }
}
