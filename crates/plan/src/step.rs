//! Steps: effects as data. A step carries every value it needs and leaves its executor no choice.

mod plan;

pub use plan::{Disruption, Plan, PlannedStep};

use core::fmt;

use vfleet_api::{Guid, MacAddr, PciAddress, VfRef};

use crate::facts::{BootLoader, EswitchMode, Reboots, Record, VdpaKind};
use crate::firmware::FirmwareSettings;
use crate::prelude::*;

/// One change of a machine. Doing it twice is the same as doing it once.
#[derive(Clone, Debug, PartialEq)]
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
    /// Set the mode of a PF's embedded switch.
    SetEswitchMode { pf: PciAddress, mode: EswitchMode },
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

impl Step {
    /// The PF that it is about; `None` for the machine.
    pub fn pf(&self) -> Option<PciAddress> {
        match self {
            Self::WriteRecord { record } => Some(record.pf),
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
            | Self::ReplayUdev { pf } => Some(*pf),
            Self::WriteFile { pf, .. } | Self::RemoveFile { pf, .. } => *pf,
            _ => self.vf().map(|vf| vf.pf),
        }
    }

    /// Whether it restarts the machine, or only has a meaning before that.
    pub fn leads_to_restart(&self) -> bool {
        matches!(self, Self::SetKernelArguments { .. } | Self::CountReboot { .. } | Self::Reboot)
    }

    /// The VF that it is about; `None` for all of a PF, and for the machine.
    pub fn vf(&self) -> Option<VfRef> {
        match self {
            Self::SetVfMac { vf, .. }
            | Self::SetVfGuid { vf, .. }
            | Self::BindVf { vf, .. }
            | Self::SetVfMtu { vf, .. }
            | Self::MakeVdpa { vf, .. }
            | Self::RemoveVdpa { vf } => Some(*vf),
            _ => None,
        }
    }
}

macro_rules! kinds {
    ($($kind:ident)*) => {
        impl Step {
            /// All that [`Step::kind`] may say.
            pub const KINDS: &[&str] = &[$(stringify!($kind)),*];

            /// In one word, for metrics and logs.
            pub const fn kind(&self) -> &'static str {
                match self {
                    $(Self::$kind { .. } => stringify!($kind),)*
                }
            }
        }
    };
}

kinds! {
    WriteRecord RemoveRecord SetLinkUp SetPfMtu SetAutoprobe SetNumVfs SetEswitchMode SetTcOffload SetSoftwareSteering
    SetFirmware ResetFirmware ReplayUdev
    SetVfMac SetVfGuid BindVf SetVfMtu MakeVdpa RemoveVdpa
    LoadModule WriteFile RemoveFile InstallProgram EnableUnit DisableUnit SetKernelArguments CountReboot ForgetReboots
    Reboot
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
            Self::SetAutoprobe { pf, on } => write!(f, "set {pf} autoprobe {}", on_off(*on)),
            Self::SetNumVfs { pf, count } => write!(f, "set {pf} numvfs {count}"),
            Self::SetEswitchMode { pf, mode } => write!(f, "set {pf} eswitch {}", mode.as_str()),
            Self::SetTcOffload { pf, on } => write!(f, "set {pf} hw-tc-offload {}", on_off(*on)),
            Self::SetSoftwareSteering { pf } => write!(f, "set {pf} flow steering to software"),
            Self::SetFirmware { pf, settings } => write!(f, "set {pf} firmware {settings}"),
            Self::ResetFirmware { pf } => write!(f, "restart the firmware of {pf}"),
            Self::ReplayUdev { pf } => write!(f, "have udev look at {pf} again"),
            Self::SetVfMac { vf, mac } => write!(f, "set {vf} mac {mac}"),
            Self::SetVfGuid { vf, guid } => write!(f, "set {vf} guid {guid}"),
            Self::BindVf { vf, driver } => write!(f, "bind {vf} to {driver}"),
            Self::SetVfMtu { vf, mtu } => write!(f, "set {vf} mtu {mtu}"),
            Self::MakeVdpa { vf, kind } => write!(f, "make {vf} a vdpa device for {}", kind.driver()),
            Self::RemoveVdpa { vf } => write!(f, "remove the vdpa device of {vf}"),
            Self::LoadModule { module, options } if options.is_empty() => write!(f, "load module {module}"),
            Self::LoadModule { module, options } => write!(f, "load module {module} {}", options.join(" ")),
            Self::WriteFile { file, .. } => write!(f, "write {}", file.path),
            Self::RemoveFile { path, .. } => write!(f, "remove {path}"),
            Self::InstallProgram { path } => write!(f, "install this program as {path}"),
            Self::EnableUnit { unit } => write!(f, "enable unit {unit}"),
            Self::DisableUnit { unit } => write!(f, "disable unit {unit}"),
            Self::SetKernelArguments { loader, add, remove } => {
                write!(f, "change kernel arguments by {}:", loader.as_str())?;
                add.iter().try_for_each(|argument| write!(f, " +{argument}"))?;
                remove.iter().try_for_each(|argument| write!(f, " -{argument}"))
            }
            Self::CountReboot { reboots } => write!(f, "write down reboot {reboots}"),
            Self::ForgetReboots => f.write_str("forget reboots"),
            Self::Reboot => f.write_str("reboot"),
        }
    }
}

const fn on_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
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
