//! Texts of steps: one line for messages, one word for metrics.

use core::fmt;

use super::{Step, VfDriver};
use crate::facts::Record;

macro_rules! kinds {
    ($($kind:ident)*) => {
        impl Step {
            /// All values that [`Step::kind`] returns.
            pub const KINDS: &[&str] = &[$(stringify!($kind)),*];

            /// Returns the name of the variant, for metrics and logs.
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
    SetOvsBridge RemoveOvsBridge RemoveOvsPort CreateLinuxBridge SetLinuxBridge AttachUplink DetachUplink SetBridgePort
    RemoveLinuxBridge
    EnableOvsOffload LoadModule WriteFile RemoveFile InstallProgram EnableUnit DisableUnit SetKernelArguments CountReboot ForgetReboots
    Reboot
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WriteRecord { record } if record.creating_vfs => {
                f.write_str("write state file: creating VFs of ")?;
                write_name(record, f)
            }
            Self::WriteRecord { record } => {
                f.write_str("write state file of ")?;
                write_name(record, f)
            }
            Self::RemoveRecord { pf } => write!(f, "remove state file of {pf}"),
            Self::SetLinkUp { pf } => write!(f, "set {pf} up"),
            Self::SetPfMtu { pf, mtu } => write!(f, "set {pf} mtu {mtu}"),
            Self::SetAutoprobe { pf, on } => write!(f, "set {pf} autoprobe {}", on_off(*on)),
            Self::SetNumVfs { pf, count } => write!(f, "set {pf} numvfs {count}"),
            Self::SetEswitchMode { pf, mode, .. } => write!(f, "set {pf} eswitch mode {}", mode.as_str()),
            Self::SetTcOffload { pf, on } => write!(f, "set {pf} hw-tc-offload {}", on_off(*on)),
            Self::SetSoftwareSteering { pf } => write!(f, "set {pf} flow_steering_mode smfs"),
            Self::SetFirmware { pf, settings } => write!(f, "set {pf} firmware {settings}"),
            Self::ResetFirmware { pf } => write!(f, "reset firmware of {pf}"),
            Self::ReplayUdev { pf } => write!(f, "trigger udev for {pf}"),
            Self::SetVfMac { vf, mac } => write!(f, "set {vf} mac {mac}"),
            Self::SetVfGuid { vf, guid } => write!(f, "set {vf} guid {guid}"),
            Self::BindVf { vf, driver } => write!(f, "bind {vf} to {driver}"),
            Self::SetVfMtu { vf, mtu } => write!(f, "set {vf} mtu {mtu}"),
            Self::MakeVdpa { vf, kind } => {
                write!(f, "create vDPA device on {vf} with driver {}", kind.driver())
            }
            Self::RemoveVdpa { vf } => write!(f, "remove vDPA device of {vf}"),
            Self::SetOvsBridge { bridge, observed: None, .. } => {
                write!(f, "create Open vSwitch bridge {} with uplink {}", bridge.name, bridge.uplink.name)
            }
            Self::SetOvsBridge { bridge, .. } => {
                write!(f, "configure Open vSwitch bridge {} with uplink {}", bridge.name, bridge.uplink.name)
            }
            Self::RemoveOvsBridge { observed, .. } => {
                write!(f, "remove Open vSwitch bridge {}", observed.name)
            }
            Self::RemoveOvsPort { port, observed, .. } => {
                write!(f, "remove port {port} from Open vSwitch bridge {}", observed.name)
            }
            Self::CreateLinuxBridge { name, .. } => write!(f, "create Linux bridge {name}"),
            Self::SetLinuxBridge { name, settings, .. } => write!(
                f,
                "configure Linux bridge {name}: vlan_filtering {}, vlan_protocol {}, mtu {}",
                on_off(settings.vlan_filtering),
                settings.vlan_protocol.as_str(),
                settings.mtu
            ),
            Self::AttachUplink { pf, bridge } => write!(f, "attach {pf} to Linux bridge {bridge}"),
            Self::DetachUplink { pf, bridge } => write!(f, "detach {pf} from Linux bridge {bridge}"),
            Self::SetBridgePort { pf, bridge, settings } => {
                write!(f, "configure {pf} as port of Linux bridge {bridge}:")?;
                settings.iter().try_for_each(|(name, value)| write!(f, " {name} {value}"))
            }
            Self::RemoveLinuxBridge { name, .. } => write!(f, "remove Linux bridge {name}"),
            Self::EnableOvsOffload => f.write_str("enable hardware offload of Open vSwitch"),
            Self::LoadModule { module, options } if options.is_empty() => write!(f, "load module {module}"),
            Self::LoadModule { module, options } => write!(f, "load module {module} {}", options.join(" ")),
            Self::WriteFile { file, .. } => write!(f, "write {}", file.path),
            Self::RemoveFile { path, .. } => write!(f, "remove {path}"),
            Self::InstallProgram { path } => write!(f, "install vfleet as {path}"),
            Self::EnableUnit { unit } => write!(f, "enable unit {unit}"),
            Self::DisableUnit { unit } => write!(f, "disable unit {unit}"),
            Self::SetKernelArguments { loader, add, remove } => {
                write!(f, "change kernel arguments with {}:", loader.as_str())?;
                add.iter().try_for_each(|argument| write!(f, " +{argument}"))?;
                remove.iter().try_for_each(|argument| write!(f, " -{argument}"))
            }
            Self::CountReboot { reboots } => write!(f, "write reboot count: {reboots}"),
            Self::ForgetReboots => f.write_str("remove reboot count"),
            Self::Reboot => f.write_str("reboot"),
        }
    }
}

/// Writes the name of the PF, or its PCI address if the record has no name.
fn write_name(record: &Record, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match record.interface.name.as_deref() {
        Some(name) if !name.is_empty() => f.write_str(name),
        _ => write!(f, "{}", record.pf),
    }
}

const fn on_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

impl fmt::Display for VfDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel => f.write_str("the kernel driver"),
            Self::Named(name) => f.write_str(name),
        }
    }
}
