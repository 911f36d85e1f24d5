//! Steps: effects as data. A step carries every value it needs and leaves its executor no choice.

use core::fmt;

use vfleet_api::{MacAddr, PciAddress, VfRef};

use crate::facts::Record;
use crate::node::Problem;
use crate::prelude::*;

/// One change of a machine. Doing it twice is the same as doing it once.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Write down that a PF is ours, and what it shall be like.
    WriteRecord { record: Record },
    /// Forget a PF.
    RemoveRecord { pf: PciAddress },
    /// Set a PF's interface up.
    SetLinkUp { pf: PciAddress },
    /// Set the MTU of a PF.
    SetPfMtu { pf: PciAddress, mtu: u32 },
    /// Let the kernel bind new VFs of a PF by itself, or not.
    SetAutoprobe { pf: PciAddress, on: bool },
    /// Make `count` VFs on a PF that has none, or remove all of them (`count` 0).
    SetNumVfs { pf: PciAddress, count: u16 },
    /// Set the address that the PF keeps for a VF; the VF takes it up when it is bound next.
    SetVfMac { vf: VfRef, mac: MacAddr },
    /// Bind a VF to a driver, anew if it is bound already.
    BindVf { vf: VfRef, driver: VfDriver },
    /// Set the MTU of a VF's interface.
    SetVfMtu { vf: VfRef, mtu: u32 },
}

impl Step {
    /// The PF that it is about.
    pub fn pf(&self) -> PciAddress {
        match self {
            Self::WriteRecord { record } => record.pf,
            Self::RemoveRecord { pf }
            | Self::SetLinkUp { pf }
            | Self::SetPfMtu { pf, .. }
            | Self::SetAutoprobe { pf, .. }
            | Self::SetNumVfs { pf, .. } => *pf,
            Self::SetVfMac { vf, .. } | Self::BindVf { vf, .. } | Self::SetVfMtu { vf, .. } => vf.pf,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WriteRecord { record: Record { pf, making: true, .. } } => {
                write!(f, "record {pf} as being made")
            }
            Self::WriteRecord { record } => write!(f, "record {}", record.pf),
            Self::RemoveRecord { pf } => write!(f, "forget {pf}"),
            Self::SetLinkUp { pf } => write!(f, "set {pf} up"),
            Self::SetPfMtu { pf, mtu } => write!(f, "set {pf} mtu {mtu}"),
            Self::SetAutoprobe { pf, on } => {
                write!(f, "set {pf} autoprobe {}", if *on { "on" } else { "off" })
            }
            Self::SetNumVfs { pf, count } => write!(f, "set {pf} numvfs {count}"),
            Self::SetVfMac { vf, mac } => write!(f, "set {vf} mac {mac}"),
            Self::BindVf { vf, driver } => write!(f, "bind {vf} to {driver}"),
            Self::SetVfMtu { vf, mtu } => write!(f, "set {vf} mtu {mtu}"),
        }
    }
}

/// The driver of a VF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VfDriver {
    /// The one that the kernel chooses.
    Kernel,
    /// The one of this name.
    Named(String),
}

/// Whether a driver hands a VF to a program instead of the kernel's network stack.
pub fn is_userspace_driver(name: &str) -> bool {
    matches!(name, "vfio-pci" | "uio_pci_generic" | "igb_uio")
}

impl fmt::Display for VfDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel => f.write_str("the kernel's driver"),
            Self::Named(name) => f.write_str(name),
        }
    }
}

/// How much a change disturbs those who use the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Disruption {
    /// Nobody notices.
    #[default]
    None,
    /// A VF that no pod holds.
    Vf,
    /// A PF, in a way that its users do not notice.
    Pf,
    /// Pods that use VFs of this node.
    Drain,
    /// The whole node.
    Reboot,
}

/// A step with its reason.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedStep {
    /// What to do.
    pub step: Step,
    /// Whom it disturbs.
    pub disruption: Disruption,
    /// Why.
    pub why: String,
}

impl fmt::Display for PlannedStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}  # {}", self.step, self.why)
    }
}

/// What to do, in this order, and what cannot be done. Steps of different PFs do not depend on each other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// What to do.
    pub steps: Vec<PlannedStep>,
    /// What was wanted and cannot be.
    pub problems: Vec<Problem>,
}

impl Plan {
    /// How much all of it disturbs: as much as its most disturbing step.
    pub fn disruption(&self) -> Disruption {
        self.steps.iter().map(|planned| planned.disruption).max().unwrap_or_default()
    }

    /// Whether the machine is as wanted.
    pub fn is_done(&self) -> bool {
        self.steps.is_empty() && self.problems.is_empty()
    }
}
