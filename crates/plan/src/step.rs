//! Steps: effects as data. A step carries every value it needs and leaves its executor no choice.

mod plan;
mod text;

pub use plan::{Disruption, Plan, PlannedStep};

use core::fmt;

use vfleet_api::{Guid, MacAddr, PciAddress, VfRef};

use crate::facts::{BootLoader, EswitchMode, ModeTrial, Reboots, Record, VdpaKind};
use crate::firmware::FirmwareSettings;
use crate::prelude::*;

/// One change of a machine. Doing it twice is the same as doing it once.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "a plan has few steps, and each is made once")]
pub enum Step {
    // A PF.
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
    /// Set the mode of a PF's embedded switch. A switch that is off for lack of VFs is in legacy mode. When the kernel
    /// refuses the mode, that is noted in the PF's record as the end of `trial`, and the step fails.
    SetEswitchMode { pf: PciAddress, mode: EswitchMode, trial: Option<ModeTrial> },
    /// Let traffic control be offloaded to a PF, or not.
    SetTcOffload { pf: PciAddress, on: bool },
    /// Let software steer the flows of a PF (devlink `flow_steering_mode` = `smfs`). A card that has no such parameter,
    /// or does not take it, is as well.
    SetSoftwareSteering { pf: PciAddress },
    /// Set what a card's firmware shall be after the next restart: only what is `Some`.
    SetFirmware { pf: PciAddress, settings: FirmwareSettings },
    /// Restart a card's firmware, so that its settings count. The card must have no VFs.
    ResetFirmware { pf: PciAddress },
    /// Have udev look at a PF's interfaces again, by the rules as they are now.
    ReplayUdev { pf: PciAddress },

    // A VF.
    /// Set the address that the PF keeps for a VF; the VF takes it up when it is bound next.
    SetVfMac { vf: VfRef, mac: MacAddr },
    /// Set the node and port GUID that the PF keeps for a VF; the VF takes them up when it is bound next.
    SetVfGuid { vf: VfRef, guid: Guid },
    /// Bind a VF to a driver, anew if it is bound already.
    BindVf { vf: VfRef, driver: VfDriver },
    /// Set the MTU of a VF's interface.
    SetVfMtu { vf: VfRef, mtu: u32 },
    /// Make a vDPA device of a VF, bound to this driver.
    MakeVdpa { vf: VfRef, kind: VdpaKind },
    /// Remove the vDPA device of a VF.
    RemoveVdpa { vf: VfRef },

    // The machine.
    /// Load a module of the kernel, with these options (`name=value`).
    LoadModule { module: String, options: Vec<String> },
    /// Write a file of [`crate::files`].
    WriteFile { pf: Option<PciAddress>, file: HostFile },
    /// Remove a file of [`crate::files`].
    RemoveFile { pf: Option<PciAddress>, path: String },
    /// Put this program where systemd can start it at boot.
    InstallProgram { path: String },
    /// Have systemd start a unit at boot.
    EnableUnit { unit: String },
    /// Have systemd not start a unit at boot.
    DisableUnit { unit: String },
    /// Change the arguments that the kernel is started with next time.
    SetKernelArguments { loader: BootLoader, add: Vec<String>, remove: Vec<String> },
    /// Write down which restarts were asked for.
    CountReboot { reboots: Reboots },
    /// Forget about restarts: they led to what they were for.
    ForgetReboots,
    /// Restart the machine.
    Reboot,
}

/// A file on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostFile {
    /// Where, as seen from the host's own root.
    pub path: String,
    /// What it says.
    pub text: String,
    /// Whether it is a program.
    pub is_program: bool,
}

/// The part of a machine that a step changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// The machine itself: modules, files, units, kernel arguments.
    Machine,
    /// A PF with everything on it.
    Pf(PciAddress),
    /// A single VF.
    Vf(VfRef),
}

impl Target {
    /// Returns the PF that the target is, or is on; `None` for the machine.
    pub const fn pf(self) -> Option<PciAddress> {
        match self {
            Self::Machine => None,
            Self::Pf(pf) => Some(pf),
            Self::Vf(vf) => Some(vf.pf),
        }
    }

    /// Returns the lane of the target: steps of one lane depend on each other's order, those of different lanes do not.
    #[must_use]
    pub const fn lane(self) -> Self {
        match self {
            Self::Machine | Self::Pf(_) => self,
            Self::Vf(vf) => Self::Pf(vf.pf),
        }
    }

    /// Returns whether no step may change `self` while another one changes `other`. Two VFs of one PF can be changed at
    /// once; a PF and its VFs cannot.
    pub fn excludes(self, other: Self) -> bool {
        match (self, other) {
            (Self::Vf(one), Self::Vf(other)) => one == other,
            _ => self.lane() == other.lane(),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine => f.write_str("the machine"),
            Self::Pf(pf) => pf.fmt(f),
            Self::Vf(vf) => vf.fmt(f),
        }
    }
}

impl Step {
    /// Returns the part of the machine that the step changes.
    pub fn target(&self) -> Target {
        match self {
            Self::WriteRecord { record } => Target::Pf(record.pf),
            Self::RemoveRecord { pf }
            | Self::SetLinkUp { pf }
            | Self::SetPfMtu { pf, .. }
            | Self::SetAutoprobe { pf, .. }
            | Self::SetNumVfs { pf, .. }
            | Self::SetEswitchMode { pf, .. }
            | Self::SetTcOffload { pf, .. }
            | Self::SetSoftwareSteering { pf }
            | Self::SetFirmware { pf, .. }
            | Self::ResetFirmware { pf }
            | Self::ReplayUdev { pf } => Target::Pf(*pf),
            Self::SetVfMac { vf, .. }
            | Self::SetVfGuid { vf, .. }
            | Self::BindVf { vf, .. }
            | Self::SetVfMtu { vf, .. }
            | Self::MakeVdpa { vf, .. }
            | Self::RemoveVdpa { vf } => Target::Vf(*vf),
            Self::WriteFile { pf, .. } | Self::RemoveFile { pf, .. } => {
                pf.map_or(Target::Machine, Target::Pf)
            }
            Self::LoadModule { .. }
            | Self::InstallProgram { .. }
            | Self::EnableUnit { .. }
            | Self::DisableUnit { .. }
            | Self::SetKernelArguments { .. }
            | Self::CountReboot { .. }
            | Self::ForgetReboots
            | Self::Reboot => Target::Machine,
        }
    }

    /// Returns the PF that the step is about; `None` for the machine.
    pub fn pf(&self) -> Option<PciAddress> {
        self.target().pf()
    }

    /// Returns the VF that the step is about; `None` for all of a PF, and for the machine.
    pub fn vf(&self) -> Option<VfRef> {
        match self.target() {
            Target::Vf(vf) => Some(vf),
            Target::Pf(_) | Target::Machine => None,
        }
    }

    /// Returns whether another plan follows when the kernel refuses the step.
    pub const fn is_trial(&self) -> bool {
        matches!(self, Self::SetEswitchMode { trial: Some(_), .. })
    }

    /// Returns whether the step restarts the machine, or only has a meaning before that.
    pub fn leads_to_restart(&self) -> bool {
        matches!(self, Self::SetKernelArguments { .. } | Self::CountReboot { .. } | Self::Reboot)
    }

    /// Returns whether the step has to wait while another one changes `running`. This is the only rule about which steps
    /// may run at the same time: targets that exclude each other do not, and nothing leads to a restart of the machine
    /// while anything on it is being changed. What `is_overdue` does not hold up a restart: a driver that hangs may never
    /// end otherwise.
    pub fn waits_for(&self, running: Target, is_overdue: bool) -> bool {
        self.target().excludes(running) || (self.leads_to_restart() && !is_overdue)
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
