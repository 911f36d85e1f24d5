use thiserror::Error;

use crate::prelude::*;

/// Why the machine as a whole cannot be as wanted. The text says what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SystemFault {
    /// Nothing was found that changes the kernel's arguments.
    #[error(
        "the kernel must be started {how}, but no boot loader was found whose arguments vfleet can change: change them by hand and restart the machine; vfleet does not restart it"
    )]
    KernelArgumentsByHand {
        /// With which arguments, and without which.
        how: String,
    },
    /// The machine was restarted, and nothing is better.
    #[error(
        "{count} restarts for {need} did not help, so vfleet does not try again: look whether the boot loader and the firmware keep what is set; then remove {}, or change the policy",
        crate::files::REBOOTS
    )]
    RebootsDidNotHelp {
        /// How many.
        count: u32,
        /// What for.
        need: String,
    },
    /// The kernel is ready for it, the machine is not.
    #[error(
        "vfio-pci needs an IOMMU, and none is at work although the kernel's arguments allow it: switch it on in the machine's setup (VT-d, AMD-Vi, SMMU)"
    )]
    NoIommu,
    /// There is no RDMA at all.
    #[error(
        "an RDMA mode is wanted, but the kernel tells of none: install the module ib_core, or remove rdmaMode from the pool"
    )]
    NoRdma,
}

impl SystemFault {
    /// In one word, for conditions, events and metrics.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::KernelArgumentsByHand { .. } => "KernelArgumentsByHand",
            Self::RebootsDidNotHelp { .. } => "RebootsDidNotHelp",
            Self::NoIommu => "NoIommu",
            Self::NoRdma => "NoRdma",
        }
    }
}
