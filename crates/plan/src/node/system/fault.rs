use thiserror::Error;

use crate::prelude::*;

/// Fault of the whole machine. The text includes the remedy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SystemFault {
    /// No supported boot loader was found.
    #[error(
        "the kernel must be booted {how}, and vfleet supports no boot loader of this machine: change the kernel arguments manually and reboot the machine"
    )]
    KernelArgumentsRequired {
        /// Arguments that must be present or absent.
        how: String,
    },
    /// The allowed number of reboots did not satisfy the need.
    #[error(
        "{count} reboots for {need} had no effect, so vfleet does not reboot again: check that boot loader and firmware keep the settings, then remove {} or change the policy",
        crate::files::REBOOTS
    )]
    RebootLimitReached {
        /// Number of reboots.
        count: u32,
        /// Need that is not satisfied.
        need: String,
    },
    /// The kernel arguments allow an IOMMU, but none is active.
    #[error(
        "vfio-pci requires an IOMMU, and none is active although the kernel arguments allow it: enable it in the BIOS (VT-d, AMD-Vi, SMMU)"
    )]
    NoIommu,
    /// The kernel has no RDMA support.
    #[error(
        "an RDMA mode is requested, but the kernel has no RDMA support: install the kernel module ib_core, or remove rdmaMode from the pool"
    )]
    NoRdma,
}

impl SystemFault {
    /// Returns the reason for conditions, Events and metrics.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::KernelArgumentsRequired { .. } => "KernelArgumentsRequired",
            Self::RebootLimitReached { .. } => "RebootLimitReached",
            Self::NoIommu => "NoIommu",
            Self::NoRdma => "NoRdma",
        }
    }
}
