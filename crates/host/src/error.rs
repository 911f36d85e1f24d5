//! What goes wrong with a machine.

use std::error::Error;
use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use vfleet_api::{PciAddress, VfRef};

/// Why a machine could not be read or changed. The text says what was tried and what to do next; the cause is
/// the source.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    #[error("cannot {attempt} {}", path.display())]
    Io { attempt: &'static str, path: PathBuf, source: io::Error },
    #[error("{} says {found:?}, which is not {expected}", path.display())]
    Unreadable { path: PathBuf, found: String, expected: &'static str },
    #[error("the record {} is damaged: {remedy}", path.display())]
    Record { path: PathBuf, remedy: String, source: Box<dyn Error + Send + Sync> },
    #[error("cannot {attempt}{}", said(.message.as_deref()))]
    Netlink { attempt: String, message: Option<String>, source: io::Error },
    #[error("this machine has no {what} to spare")]
    System { what: &'static str, source: io::Error },
    #[error("there is no network card at {pf} on this node that can have VFs")]
    NoSuchPf { pf: PciAddress },
    #[error("there is no {vf}: the card has {count} VFs")]
    NoSuchVf { vf: VfRef, count: usize },
    #[error("{device} has no network interface in the host's own network namespace")]
    NoInterface { device: String },
    #[error("the driver {driver} is not loaded on this node: load its module")]
    DriverNotLoaded { driver: String },
    #[error(
        "the kernel binds no VF of {pf} by itself while its sriov_drivers_autoprobe is 0: write 1 to it first"
    )]
    AutoprobeOff { pf: PciAddress },
    #[error("{pf} has {found} VFs, and the kernel makes {asked} only when there are none: remove them first")]
    VfsExist { pf: PciAddress, found: usize, asked: u16 },
    #[error("{asked} VFs are more than {pf} can have, which is {total}")]
    TooManyVfs { pf: PciAddress, asked: u16, total: u16 },
    #[error(
        "vfio-pci does not take {vf}, which is in no IOMMU group: switch the IOMMU on in the BIOS (VT-d, AMD-Vi) and \
         in the kernel's arguments (intel_iommu=on on Intel)"
    )]
    NoIommu { vf: PciAddress },
    #[error("the driver of {device} offers no embedded switch whose mode can be set")]
    NoEswitch { device: String },
    #[error("the kernel accepted to {attempt}, but to no effect: expected {expected}, found {found}")]
    Unverified { attempt: String, expected: String, found: String },
    #[error(
        "the kernel did not {attempt} within {after:?} and may still be at it: look for hung tasks in its log"
    )]
    Deadline { attempt: String, after: Duration },
    #[error("the kernel is still trying to {attempt}: look for hung tasks in its log")]
    StillRunning { attempt: String },
    #[error("{what} kept changing while it was read: somebody else is at work on it")]
    Unsettled { what: String },
    #[error("this machine has no program {program}: install it")]
    NoProgram { program: String },
    #[error("`{command}` failed ({outcome}){}", with_words(words))]
    Command { command: String, outcome: String, words: String },
    #[error(
        "`{command}` did not end within {after:?} and was stopped: run it by hand to see what it waits for"
    )]
    CommandOverdue { command: String, after: Duration },
    #[error("cannot {attempt} over the system bus: look whether D-Bus and systemd are well")]
    Bus { attempt: String, source: Box<dyn Error + Send + Sync> },
    #[error("the system bus did not {attempt} within {after:?}: look whether D-Bus and systemd are well")]
    BusOverdue { attempt: String, after: Duration },
    #[error("cannot {attempt}: this program has no support for systemd; leave it to the node agent (vfleet)")]
    WithoutSystemd { attempt: String },
    #[error(
        "{argument:?} cannot be an argument of the kernel here: it may have letters, digits and ._=,:@/+-"
    )]
    KernelArgument { argument: String },
    #[error(
        "GRUB would still start the kernel with {argument}, which vfleet's own file in /etc/default/grub.d cannot take \
         away: remove it by hand from /etc/default/grub, or from a later file in /etc/default/grub.d, and run update-grub"
    )]
    KernelArgumentStays { argument: String },
    #[error("cannot get {url}")]
    Metadata { url: String, source: io::Error },
    #[error("this kernel has no module {module}: install the package that it comes with")]
    NoSuchModule { module: String },
    #[error("no tool can change the firmware of {pf}: install mstflint on this node")]
    NoFirmwareTool { pf: PciAddress },
    #[error("this node's kernel is not started by {loader}")]
    NoSuchBootLoader { loader: &'static str },
    #[error("{} is no file that vfleet may write or remove", path.display())]
    NotOurFile { path: PathBuf },
    #[error("the simulated machine was told to fail to {attempt}")]
    Injected { attempt: String },
    #[error("the simulated process was cut off before it could {attempt}")]
    CutOff { attempt: String },
}

impl HostError {
    /// In one word, for conditions, events and metrics.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Io { .. } => "HostFileFailed",
            Self::Unreadable { .. } => "HostFileUnreadable",
            Self::Record { .. } => "RecordDamaged",
            Self::Netlink { .. } => "NetlinkRefused",
            Self::System { .. } => "HostFailed",
            Self::NoSuchPf { .. } => "NoSuchDevice",
            Self::NoSuchVf { .. } => "NoSuchVf",
            Self::NoInterface { .. } => "NoInterface",
            Self::DriverNotLoaded { .. } => "DriverNotLoaded",
            Self::AutoprobeOff { .. } => "AutoprobeOff",
            Self::VfsExist { .. } => "VfsExist",
            Self::TooManyVfs { .. } => "TooManyVfs",
            Self::NoIommu { .. } => "NoIommu",
            Self::NoEswitch { .. } => "NoEswitch",
            Self::Unverified { .. } => "NotVerified",
            Self::StillRunning { .. } => "StepStillRunning",
            Self::Unsettled { .. } => "HostUnsettled",
            Self::NoProgram { .. } => "ProgramMissing",
            Self::Command { .. } => "CommandFailed",
            Self::Deadline { .. } | Self::CommandOverdue { .. } | Self::BusOverdue { .. } => {
                "DeadlineExceeded"
            }
            Self::Bus { .. } => "SystemBusFailed",
            Self::WithoutSystemd { .. } => "WithoutSystemd",
            Self::KernelArgument { .. } => "InvalidKernelArgument",
            Self::KernelArgumentStays { .. } => "KernelArgumentsByHand",
            Self::Metadata { .. } => "MetadataFailed",
            Self::NoSuchModule { .. } => "NoSuchModule",
            Self::NoFirmwareTool { .. } => "NoFirmwareTool",
            Self::NoSuchBootLoader { .. } => "NoSuchBootLoader",
            Self::NotOurFile { .. } => "NotOurFile",
            Self::Injected { .. } => "Injected",
            Self::CutOff { .. } => "CutOff",
        }
    }

    /// The errno that the kernel gave, if it gave one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Io { source, .. } | Self::Netlink { source, .. } | Self::System { source, .. } => {
                source.raw_os_error()
            }
            _ => None,
        }
    }

    /// Returns whether the kernel takes no such change as things are now, rather than that the change went wrong.
    pub fn is_refusal(&self) -> bool {
        const EINVAL: i32 = 22;
        const EOPNOTSUPP: i32 = 95;
        match self {
            Self::Netlink { source, .. } => matches!(source.raw_os_error(), Some(EINVAL | EOPNOTSUPP)),
            Self::Unverified { .. } => true,
            _ => false,
        }
    }
}

/// What the kernel added in words (its extended acknowledgement).
fn said(message: Option<&str>) -> String {
    message.map_or_else(String::new, |text| format!(" (the kernel says: {text})"))
}

/// What a program said, if it said anything.
fn with_words(words: &str) -> String {
    if words.is_empty() { String::new() } else { format!(": {words}") }
}

/// An error with all that led to it, in one line.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        // Writing to a text cannot fail.
        let _ = write!(text, ": {next}");
        cause = next.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_say_what_was_tried_and_what_to_do() {
        let missing = HostError::DriverNotLoaded { driver: "vfio-pci".to_owned() };
        assert_eq!(missing.to_string(), "the driver vfio-pci is not loaded on this node: load its module");
        let refused = HostError::Netlink {
            attempt: "set the MTU of 0000:01:00.0 to 9217".to_owned(),
            message: Some("mtu greater than device maximum".to_owned()),
            source: io::Error::from_raw_os_error(22),
        };
        assert_eq!(
            refused.to_string(),
            "cannot set the MTU of 0000:01:00.0 to 9217 (the kernel says: mtu greater than device maximum)"
        );
        assert_eq!(refused.errno(), Some(22));
    }
}
