//! Errors of machines.

use std::error::Error;
use std::fmt::Write as _;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use vfleet_api::{PciAddress, VfRef};
use vfleet_plan::bridge_port::PortSettingFault;

/// Error of a read or change of a machine. The text names the operation and, where possible, the remedy; the source is
/// the cause.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    #[error("cannot {attempt} {}", path.display())]
    Io { attempt: &'static str, path: PathBuf, source: io::Error },
    #[error("{}: unexpected content {found:?}, expected {expected}", path.display())]
    InvalidContent { path: PathBuf, found: String, expected: &'static str },
    #[error("record {} is damaged: {remedy}", path.display())]
    DamagedRecord { path: PathBuf, remedy: String, source: Box<dyn Error + Send + Sync> },
    #[error("cannot {attempt}{}", format_kernel_message(.message.as_deref()))]
    Netlink { attempt: String, message: Option<String>, source: io::Error },
    #[error("cannot get a {resource} from the operating system")]
    SystemResource { resource: &'static str, source: io::Error },
    #[error("this node has no network card with VF support at {pf}")]
    PfNotFound { pf: PciAddress },
    #[error("{vf} does not exist: the PF has {count} VFs")]
    VfNotFound { vf: VfRef, count: usize },
    #[error("{device} has no interface in the network namespace of the host")]
    NoInterface { device: String },
    #[error("driver {driver} is not loaded on this node: load its module")]
    DriverNotLoaded { driver: String },
    #[error(
        "the kernel does not bind VFs of {pf} to drivers while sriov_drivers_autoprobe is 0: write 1 to it first"
    )]
    AutoprobeOff { pf: PciAddress },
    #[error("cannot create {requested} VFs while {pf} has {found} VFs: remove them first")]
    VfsExist { pf: PciAddress, found: usize, requested: u16 },
    #[error("{pf} supports at most {total} VFs, {requested} requested: lower numVfs")]
    TooManyVfs { pf: PciAddress, requested: u16, total: u16 },
    #[error(
        "vfio-pci cannot bind {vf}, which has no IOMMU group: enable the IOMMU in the BIOS (VT-d, AMD-Vi) and in the \
         kernel arguments (intel_iommu=on on Intel)"
    )]
    NoIommu { vf: PciAddress },
    #[error("driver of {device} reports no eswitch: set eSwitchMode to legacy or use another card")]
    NoEswitch { device: String },
    #[error("cannot {attempt}: no error was reported, but expected {expected}, found {found}")]
    NotVerified { attempt: String, expected: String, found: String },
    #[error(
        "the kernel did not {attempt} within {after:?}, the operation may still be running: check the kernel log for hung tasks"
    )]
    DeadlineExceeded { attempt: String, after: Duration },
    #[error("an earlier operation is still running ({attempt}): check the kernel log for hung tasks")]
    StillRunning { attempt: String },
    #[error("{subject} kept changing while it was read: check which other program configures it")]
    ConcurrentChange { subject: String },
    #[error("program {program} not found on this node: install it")]
    ProgramNotFound { program: String },
    #[error("`{command}` failed ({outcome}){}", format_output(output))]
    CommandFailed { command: String, outcome: String, output: String },
    #[error(
        "`{command}` did not end within {after:?} and was killed: run it manually to see what it waits for"
    )]
    CommandTimeout { command: String, after: Duration },
    #[error("cannot {attempt} through D-Bus: check whether D-Bus and systemd are running on this node")]
    SystemBus { attempt: String, source: Box<dyn Error + Send + Sync> },
    #[error(
        "cannot {attempt}: no D-Bus reply within {after:?}: check whether D-Bus and systemd are running on this node"
    )]
    SystemBusTimeout { attempt: String, after: Duration },
    #[error("cannot {attempt}: this program was built without systemd support: use the node agent (vfleet)")]
    SystemdUnsupported { attempt: String },
    #[error("invalid kernel argument {argument:?}: only letters, digits and ._=,:@/+- are allowed")]
    InvalidKernelArgument { argument: String },
    #[error(
        "cannot remove kernel argument {argument}, which another GRUB file sets: remove it from /etc/default/grub, or from \
         a later file in /etc/default/grub.d, and run update-grub"
    )]
    KernelArgumentNotRemovable { argument: String },
    #[error(
        "cannot {attempt}: {bridge} is {found}, not the Linux bridge that vfleet created for this PF: rename or remove it, \
         or remove bridge from the policy"
    )]
    LinuxBridgeNotOurs { attempt: String, bridge: String, found: String },
    #[error("cannot {attempt}: Linux bridge {bridge} does not exist: vfleet creates it again")]
    LinuxBridgeNotFound { attempt: String, bridge: String },
    #[error(
        "cannot {attempt}: {interface} is a member of {master}: remove it from {master}, or remove bridge from the policy"
    )]
    UplinkHasMaster { attempt: String, interface: String, master: String },
    #[error("cannot {attempt}: {interface} is not a port of {bridge}: vfleet attaches it again")]
    UplinkNotAttached { attempt: String, interface: String, bridge: String },
    #[error("cannot {attempt}: port {port} is still attached to it: delete the pod or the port")]
    LinuxBridgeInUse { attempt: String, port: String },
    #[error("cannot {attempt}")]
    BridgePortSetting { attempt: String, source: PortSettingFault },
    #[error("cannot get {url}")]
    Metadata { url: String, source: io::Error },
    #[error("kernel module {module} not found: install the package that contains it")]
    ModuleNotFound { module: String },
    #[error("no tool found for the firmware of {pf}: install mstflint on this node")]
    NoFirmwareTool { pf: PciAddress },
    #[error("the boot loader of this node is not {loader}")]
    WrongBootLoader { loader: &'static str },
    #[error(
        "cannot {attempt}: Open vSwitch is not running on this node, its socket {socket} does not exist: install and start \
         Open vSwitch"
    )]
    OvsNotRunning { attempt: String, socket: String },
    #[error(
        "cannot {attempt}: no reply from Open vSwitch at {socket} within {after:?}: restart ovsdb-server"
    )]
    OvsTimeout { attempt: String, socket: String, after: Duration },
    #[error("cannot {attempt}: Open vSwitch refused the transaction: {message}")]
    OvsRefused { attempt: String, message: String },
    #[error(
        "cannot {attempt}: ovs-vswitchd did not apply the change within {after:?}: check whether it is running and read its \
         log"
    )]
    OvsNotApplied { attempt: String, after: Duration },
    #[error(
        "cannot {attempt}: Open vSwitch reports for interface {interface}: {message}: use a type that this Open vSwitch \
         supports, and check the log of ovs-vswitchd"
    )]
    OvsInterfaceFailed { attempt: String, interface: String, message: String },
    #[error(
        "cannot {attempt}: ovs-vswitchd did not create bridge {bridge} with datapath type {datapath_type}: use a type that \
         this Open vSwitch supports, check its log, and for type system that the kernel module openvswitch is loaded"
    )]
    OvsBridgeFailed { attempt: String, bridge: String, datapath_type: String },
    #[error(
        "cannot {attempt}: bridge {bridge} was changed by another program in the meantime, the change is planned again"
    )]
    BridgeChanged { attempt: String, bridge: String },
    #[error(
        "cannot {attempt}: {bridge} was created by another program: remove or rename it, or take the bridge out of the policy"
    )]
    ForeignBridge { attempt: String, bridge: String },
    #[error("cannot {attempt}: bridge {bridge} still has ports ({ports}): remove them first")]
    BridgeInUse { attempt: String, bridge: String, ports: String },
    #[error("vfleet is not allowed to write or remove {}", path.display())]
    PathNotAllowed { path: PathBuf },
    #[error(
        "invalid socket of Open vSwitch {found:?}: use PATH, unix:PATH or unix:///PATH with an absolute path"
    )]
    InvalidOvsdbSocket { found: String },
    #[error("cannot {attempt} through {socket}: check or restart ovsdb-server")]
    OvsConnection { attempt: String, socket: String, source: io::Error },
    #[error(
        "cannot {attempt}: invalid answer through {socket} ({found}): check which server uses this socket"
    )]
    OvsInvalidReply { attempt: String, socket: String, found: String },
    #[error(
        "cannot {attempt}: the rows of Open vSwitch changed meanwhile: check which other program changes them"
    )]
    OvsChanged { attempt: String },
    #[error("cannot {attempt}: there is no Linux bridge {bridge}: create it, or correct the network")]
    NoLinuxBridge { attempt: String, bridge: String },
    #[error("cannot {attempt}: {interface} is a member of {master}: remove it from {master}")]
    InterfaceHasMaster { attempt: String, interface: String, master: String },
    #[error("cannot {attempt}: Open vSwitch has no bridge {bridge}: create it, or correct the network")]
    OvsBridgeNotFound { attempt: String, bridge: String },
    #[error(
        "cannot {attempt}: bridge {bridge} has no port {port}: check the plugin before this one in the network"
    )]
    OvsPortNotFound { attempt: String, port: String, bridge: String },
    #[error("cannot {attempt}: the name belongs to {found} that another program added: remove that port")]
    OvsPortTaken { attempt: String, port: String, found: String },
    #[error(
        "cannot {attempt}: Open vSwitch reports for interface {interface}: {message}: read the log of ovs-vswitchd"
    )]
    OvsPortFailed { attempt: String, interface: String, message: String },
    #[error(
        "cannot {attempt}: Open vSwitch does not report link state up of {interface} within {after:?}: check that the \
         interface is up and read the log of ovs-vswitchd"
    )]
    OvsLinkDown { attempt: String, interface: String, after: Duration },
    #[error("cannot {attempt}: mirror {mirror} already has another output: use another mirror")]
    OvsMirrorTaken { attempt: String, mirror: String },
    #[error(
        "cannot {attempt}: interface {name} is not the representor of {vf}: check the eswitch mode of the PF, and delete the pod"
    )]
    RepresentorNotFound { attempt: String, vf: VfRef, name: String },
    #[error("cannot {attempt}: another interface has the name {name}: remove or rename it")]
    InterfaceNameTaken { attempt: String, name: String },
    #[error(
        "cannot {attempt}: the kernel or the driver cannot change it: use Linux 6.12 or later, or remove the MAC address from \
         the network"
    )]
    VdpaMacUnsupported { attempt: String },
    #[error("cannot {attempt}: network namespace {path} does not exist any more: the pod was deleted")]
    NamespaceGone { attempt: String, path: String },
    #[error("cannot {attempt}: {path} is no network namespace ({found}): check the container runtime")]
    NotANamespace { attempt: String, path: String, found: String },
    #[error("journal {} cannot be used: {remedy}", path.display())]
    DamagedJournal { path: PathBuf, remedy: String, source: Box<dyn Error + Send + Sync> },
    #[error("cannot {attempt}: another machine on the network has {address}: use another address")]
    AddressInUse { attempt: String, address: IpAddr },
    #[error("cannot {attempt}: RDMA device {device} does not exist: check the driver of the VF")]
    RdmaDeviceNotFound { attempt: String, device: String },
    #[error("CNI plugin {plugin} not found in {search_path}: install it")]
    PluginNotFound { plugin: String, search_path: String },
    #[error("CNI plugin {plugin} cannot be run from a container: run vfleet-cni on the node itself")]
    PluginNotRunnable { plugin: String },
    #[error(
        "{} is {found}, not vfleet-cni {version}: put vfleet and vfleet-cni of the same release beside each other, or name \
         the file with --program", path.display()
    )]
    NotCniProgram { path: PathBuf, found: String, version: &'static str },
    #[error(
        "another program is installing CNI plugins into {directory}: run this command again when it has ended"
    )]
    InstallationRunning { directory: String },
    #[error("injected fault: cannot {attempt}")]
    InjectedFault { attempt: String },
    #[error("the simulated process was killed before it could {attempt}")]
    ProcessKilled { attempt: String },
}

impl HostError {
    /// Returns the CamelCase reason for conditions, Events and metrics.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Io { .. } => "HostFileFailed",
            Self::InvalidContent { .. } => "HostFileInvalid",
            Self::DamagedRecord { .. } => "RecordDamaged",
            Self::Netlink { .. } => "NetlinkRefused",
            Self::SystemResource { .. } => "SystemResourceUnavailable",
            Self::PfNotFound { .. } => "NoSuchDevice",
            Self::VfNotFound { .. } => "NoSuchVf",
            Self::NoInterface { .. } => "NoInterface",
            Self::DriverNotLoaded { .. } => "DriverNotLoaded",
            Self::AutoprobeOff { .. } => "AutoprobeOff",
            Self::VfsExist { .. } => "VfsExist",
            Self::TooManyVfs { .. } => "TooManyVfs",
            Self::NoIommu { .. } => "NoIommu",
            Self::NoEswitch { .. } => "NoEswitch",
            Self::NotVerified { .. } => "NotVerified",
            Self::StillRunning { .. } => "StepStillRunning",
            Self::ConcurrentChange { .. } => "HostStateUnstable",
            Self::ProgramNotFound { .. } => "ProgramMissing",
            Self::CommandFailed { .. } => "CommandFailed",
            Self::DeadlineExceeded { .. } | Self::CommandTimeout { .. } | Self::SystemBusTimeout { .. } => {
                "DeadlineExceeded"
            }
            Self::SystemBus { .. } => "SystemBusFailed",
            Self::SystemdUnsupported { .. } => "SystemdUnsupported",
            Self::InvalidKernelArgument { .. } => "InvalidKernelArgument",
            Self::KernelArgumentNotRemovable { .. } => "KernelArgumentsRequired",
            Self::LinuxBridgeNotOurs { .. } | Self::ForeignBridge { .. } => "BridgeNotOurs",
            Self::LinuxBridgeNotFound { .. }
            | Self::NoLinuxBridge { .. }
            | Self::OvsBridgeNotFound { .. } => "BridgeNotFound",
            Self::UplinkHasMaster { .. } => "UplinkOfOtherBridge",
            Self::UplinkNotAttached { .. } => "UplinkNotAttached",
            Self::LinuxBridgeInUse { .. } | Self::BridgeInUse { .. } => "BridgeInUse",
            Self::BridgePortSetting { .. } => "InvalidSpec",
            Self::Metadata { .. } => "MetadataFailed",
            Self::ModuleNotFound { .. } => "NoSuchModule",
            Self::NoFirmwareTool { .. } => "NoFirmwareTool",
            Self::WrongBootLoader { .. } => "WrongBootLoader",
            Self::OvsNotRunning { .. } => "OvsNotRunning",
            Self::OvsTimeout { .. } => "OvsTimeout",
            Self::OvsRefused { .. } => "OvsRefused",
            Self::OvsNotApplied { .. } => "OvsNotFollowing",
            Self::OvsInterfaceFailed { .. } => "UplinkFailed",
            Self::OvsBridgeFailed { .. } => "DatapathFailed",
            Self::BridgeChanged { .. } => "BridgeChanged",
            Self::PathNotAllowed { .. } => "PathNotAllowed",
            Self::InvalidOvsdbSocket { .. } => "OvsSocketInvalid",
            Self::OvsConnection { .. } => "OvsUnreachable",
            Self::OvsInvalidReply { .. } => "OvsReplyInvalid",
            Self::OvsChanged { .. } => "OvsChanged",
            Self::InterfaceHasMaster { .. } => "InterfaceOfOtherBridge",
            Self::OvsPortNotFound { .. } => "NoSuchPort",
            Self::OvsPortTaken { .. } => "PortNameTaken",
            Self::OvsPortFailed { .. } => "PortFailed",
            Self::OvsLinkDown { .. } => "LinkDown",
            Self::OvsMirrorTaken { .. } => "MirrorInUse",
            Self::RepresentorNotFound { .. } => "NoRepresentor",
            Self::InterfaceNameTaken { .. } => "InterfaceNameTaken",
            Self::VdpaMacUnsupported { .. } => "VdpaMacUnsupported",
            Self::NamespaceGone { .. } => "NamespaceGone",
            Self::NotANamespace { .. } => "NotANamespace",
            Self::DamagedJournal { .. } => "JournalDamaged",
            Self::AddressInUse { .. } => "AddressInUse",
            Self::RdmaDeviceNotFound { .. } => "NoRdmaDevice",
            Self::PluginNotFound { .. } | Self::PluginNotRunnable { .. } => "PluginMissing",
            Self::NotCniProgram { .. } => "CniProgramInvalid",
            Self::InstallationRunning { .. } => "InstallationRunning",
            Self::InjectedFault { .. } => "InjectedFault",
            Self::ProcessKilled { .. } => "ProcessKilled",
        }
    }

    /// Returns the errno of the kernel, if there is one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Io { source, .. } | Self::Netlink { source, .. } | Self::SystemResource { source, .. } => {
                source.raw_os_error()
            }
            _ => None,
        }
    }

    /// Returns whether the kernel refused the change in the current state of the machine, as opposed to a change that
    /// was started and failed.
    pub fn is_refusal(&self) -> bool {
        const EINVAL: i32 = 22;
        const EOPNOTSUPP: i32 = 95;
        match self {
            Self::Netlink { source, .. } => matches!(source.raw_os_error(), Some(EINVAL | EOPNOTSUPP)),
            Self::NotVerified { .. } => true,
            _ => false,
        }
    }
}

/// Formats the message of an extended acknowledgment of netlink.
fn format_kernel_message(message: Option<&str>) -> String {
    message.map_or_else(String::new, |text| format!(" (kernel message: {text})"))
}

/// Formats the output of a program.
fn format_output(output: &str) -> String {
    if output.is_empty() { String::new() } else { format!(": {output}") }
}

/// Returns the text of `error` and all its causes in one line.
pub fn format_error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        // Writing to a String cannot fail.
        let _ = write!(text, ": {next}");
        cause = next.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_name_the_operation_and_the_remedy() {
        let missing = HostError::DriverNotLoaded { driver: "vfio-pci".to_owned() };
        assert_eq!(missing.to_string(), "driver vfio-pci is not loaded on this node: load its module");
        let refused = HostError::Netlink {
            attempt: "set the MTU of 0000:01:00.0 to 9217".to_owned(),
            message: Some("mtu greater than device maximum".to_owned()),
            source: io::Error::from_raw_os_error(22),
        };
        assert_eq!(
            refused.to_string(),
            "cannot set the MTU of 0000:01:00.0 to 9217 (kernel message: mtu greater than device maximum)"
        );
        assert_eq!(refused.errno(), Some(22));
    }
}
