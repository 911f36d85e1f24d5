//! What a process can ask of the kernel, and what the kernel answers.
//!
//! VFs and interfaces: seen on Linux 6.12 with igb and igbvf; embedded switches: with igb and the lab's labswitch. The
//! contract suite holds both to it. InfiniBand, vDPA and firmware: as the sources and the manuals of drivers say, never
//! seen on hardware.

mod bind;
mod eswitch;
mod firmware;
mod links;
mod modules;
mod vdpa;
mod vfs;

use std::io;

use thiserror::Error;
use vfleet_api::{PciAddress, VfRef};

use super::kernel::Kernel;
use super::parts::{Pf, Vf};

const ENOENT: i32 = 2;
const EBUSY: i32 = 16;
const ENODEV: i32 = 19;
const EINVAL: i32 = 22;
const ERANGE: i32 = 34;
const EOPNOTSUPP: i32 = 95;

/// The kernel says no.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}", io::Error::from_raw_os_error(*errno))]
pub struct Refusal {
    /// Its number for that.
    pub errno: i32,
    /// Its words for that.
    pub message: Option<&'static str>,
}

const fn refuse(errno: i32) -> Refusal {
    Refusal { errno, message: None }
}

impl Kernel {
    fn expect_pf(&mut self, pf: PciAddress) -> Result<&mut Pf, Refusal> {
        self.pf_mut(pf).ok_or(refuse(ENOENT))
    }

    fn expect_vf(&mut self, vf: VfRef) -> Result<&mut Vf, Refusal> {
        self.expect_pf(vf.pf)?.vfs.get_mut(usize::from(vf.index)).ok_or(refuse(ENOENT))
    }
}
