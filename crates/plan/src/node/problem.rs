//! What is wanted and cannot be.

use alloc::boxed::Box;
use core::fmt;

use thiserror::Error;
use vfleet_api::{Invalid, PciAddress, SriovNetworkNodeStateSpec, VfRange};

use super::system::SystemFault;
use crate::boot::BootFault;
use crate::external::ExternalFault;
use crate::facts::{InUse, ModeOrder, Unread};
use crate::firmware::FirmwareFault;
use crate::guids::GuidFileError;
use crate::modules;
use crate::prelude::*;

/// Something that is wanted of a node and cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The PF that it is about; `None` for the whole node.
    pub pf: Option<PciAddress>,
    /// The PF's name for people, where it is known.
    pub name: Option<String>,
    /// The policies that want it.
    pub policies: Vec<String>,
    /// Why it cannot be.
    pub cause: Cause,
}

impl Problem {
    /// One of the whole node, that no policy in particular wants.
    pub(crate) fn of_the_node(cause: impl Into<Cause>) -> Self {
        Self { pf: None, name: None, policies: Vec::new(), cause: cause.into() }
    }

    /// One of a PF that cannot be read, whoever wants something of it.
    pub(super) fn unread(unread: &Unread) -> Self {
        let cause = Cause::Unread { reason: unread.reason, error: unread.error.clone() };
        Self { pf: Some(unread.pf), name: None, policies: Vec::new(), cause }
    }

    /// Whether somebody is at work on it.
    pub const fn is_under_way(&self) -> bool {
        matches!(self.cause, Cause::Boot(BootFault::Unfinished))
    }

    /// Whether trying again can help although nothing changed: what could not be read may be readable by then, and units
    /// of systemd tell nobody when they are done.
    pub const fn is_worth_a_retry(&self) -> bool {
        matches!(
            self.cause,
            Cause::Unread { .. }
                | Cause::Firmware(FirmwareFault::ToolFailed { .. })
                | Cause::Boot(BootFault::Unfinished)
        )
    }

    /// Returns whether somebody may end it on the machine: by far not everything that people change there is announced.
    /// What is wrong in the spec itself ends with another spec.
    pub const fn may_end_on_the_machine(&self) -> bool {
        !matches!(
            self.cause,
            Cause::Unreadable(_)
                | Cause::OutOfRange { .. }
                | Cause::RangeBeyondCount { .. }
                | Cause::Unsupported(_)
                | Cause::UnknownWord { .. }
                | Cause::VdpaNotPossible
        )
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.pf, &self.name) {
            (Some(pf), Some(name)) => write!(f, "{name} ({pf}): ")?,
            (Some(pf), None) => write!(f, "{pf}: ")?,
            (None, _) => {}
        }
        write!(f, "{}", self.cause)?;
        match self.policies.as_slice() {
            [] => Ok(()),
            [one] => write!(f, " (policy {one})"),
            several => write!(f, " (policies {})", several.join(", ")),
        }
    }
}

/// Why something cannot be. The text says what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Cause {
    #[error("{0}; correct the node state or let the operator write it anew")]
    Unreadable(#[source] Invalid),
    #[error("{error}; nothing is done with this card until it can be read again")]
    Unread { reason: &'static str, error: String },
    #[error(
        "there is no such network card on this node that can have VFs: correct the policy, or look whether the card is still there"
    )]
    NoSuchPf,
    #[error(
        "the card has no network interface: is its driver loaded, and is the interface in the host's own network namespace?"
    )]
    NoLink,
    #[error("{asked} VFs are wanted, but {}", room(*total))]
    TooManyVfs { asked: i64, total: u16 },
    #[error(transparent)]
    External(#[from] ExternalFault),
    #[error("MTU {asked} is wanted, but the card takes at most {max}: lower mtu")]
    MtuTooHigh { asked: u32, max: u32 },
    #[error("{value} is not a possible {what}: correct the policy")]
    OutOfRange { what: &'static str, value: i64 },
    #[error("VFs {range} are wanted, but numVfs is {count}: raise numVfs or lower the range")]
    RangeBeyondCount { range: VfRange, count: u16 },
    #[error("link type {asked} is wanted, but the port is {found}: select another PF, or correct linkType")]
    LinkType { asked: String, found: &'static str },
    #[error("{0} is not supported by this version of vfleet")]
    Unsupported(&'static str),
    #[error("{field} {word:?} is not known: {known} are")]
    UnknownWord { field: &'static str, word: String, known: &'static str },
    #[error(
        "VF {index} is used by the node itself, for {in_use}, and is left as it is: leave it out of the policy's range, move {} to another interface, or set overrideHostProtection",
        in_use.host_use.as_str()
    )]
    VfInUse { index: u16, in_use: InUse },
    #[error(
        "all VFs would have to be removed, but VF {index} is used by the node itself, for {in_use}: leave numVfs and eSwitchMode as they are, have the PF managed outside (externallyManaged), move {} to another interface, or set overrideHostProtection",
        in_use.host_use.as_str()
    )]
    RemovalOfVfInUse { index: u16, in_use: InUse },
    #[error(
        "its embedded switch would have to change its mode, but the node itself uses the PF, for {in_use}: leave eSwitchMode and numVfs as they are, move {} to another interface, or set overrideHostProtection",
        in_use.host_use.as_str()
    )]
    PfInUse { in_use: InUse },
    #[error(
        "its MTU would have to be raised from {found} to {asked}, but the node itself uses the PF, for {in_use}: raise it where the node's own network is configured, lower mtu, or set overrideHostProtection"
    )]
    MtuOfPfInUse { asked: u32, found: u32, in_use: InUse },
    #[error(
        "switchdev mode is wanted, but its driver tells of no embedded switch: select another card, or set eSwitchMode to legacy"
    )]
    NoEswitch,
    #[error(
        "switchdev mode is wanted, but the kernel refuses it in either order ({}): look into the kernel's log, update the card's driver or firmware, or set eSwitchMode to legacy; it is tried again after a restart of the node, or when something else is wanted of the PF",
        refusals(said)
    )]
    EswitchRefused { said: Vec<(ModeOrder, String)> },
    #[error(
        "no policy wants it any more, but {left}, since the node itself uses the PF, for {in_use}: move {} to another interface, and it is restored",
        in_use.host_use.as_str()
    )]
    NotRestored { left: String, in_use: InUse },
    #[error(
        "{names}: udev could not rename them by the rule for this PF; kernels before 6.2 rename no interface that is up: set them down and run `udevadm trigger --action=add` for them, or leave their names as they are"
    )]
    RepresentorsNotRenamed { names: String },
    #[error(
        "switchdev mode is wanted, but the port is not Ethernet: select another PF, or remove eSwitchMode"
    )]
    SwitchdevNotEthernet,
    #[error("vdpaType needs eSwitchMode switchdev and deviceType netdevice: correct the policy")]
    VdpaNotPossible,
    #[error(
        "the kernel has no module {module}: {}, or choose another deviceType or vdpaType",
        modules::origin(module)
    )]
    MissingModule { module: &'static str },
    #[error(transparent)]
    Guids(Box<GuidFileError>),
    #[error(
        "the kernel shall bind VFs to its own driver, but whoever manages this PF switched that off: write 1 to sriov_drivers_autoprobe of the PF"
    )]
    AutoprobeOff,
    #[error(
        "the card is itself a VF, given by a hypervisor: numVfs must be 1, with VF 0 in one policy, and without switchdev mode"
    )]
    LoneVf,
    #[error("vfio-pci needs an IOMMU, and none is at work: its VFs wait for one")]
    NoIommu,
    #[error(transparent)]
    System(#[from] SystemFault),
    #[error(transparent)]
    Firmware(#[from] FirmwareFault),
    #[error(transparent)]
    Boot(#[from] BootFault),
}

/// What is not changed because the node itself uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protected {
    /// The PF itself: its MTU and the mode of its switch.
    Pf,
    /// The number of its VFs, and the mode of its switch.
    AllVfs,
    /// One VF.
    Vf(u16),
}

impl Cause {
    /// Whether a change of the card's firmware may help.
    pub(super) const fn is_up_to_firmware(&self) -> bool {
        matches!(self, Self::TooManyVfs { .. } | Self::LinkType { .. })
    }

    /// Returns the protection of what the node itself uses, where that is the cause.
    pub(crate) const fn protection(&self) -> Option<Protected> {
        match self {
            Self::VfInUse { index, .. } => Some(Protected::Vf(*index)),
            Self::RemovalOfVfInUse { .. } => Some(Protected::AllVfs),
            Self::PfInUse { .. } | Self::MtuOfPfInUse { .. } => Some(Protected::Pf),
            _ => None,
        }
    }

    /// In one word, for conditions, events and metrics.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Unreadable(_) | Self::OutOfRange { .. } | Self::UnknownWord { .. } => "InvalidSpec",
            Self::Unread { reason, .. } => reason,
            Self::NoSuchPf => "NoSuchDevice",
            Self::NoLink => "NoInterface",
            Self::TooManyVfs { .. } => "TooManyVfs",
            Self::External(fault) => fault.reason(),
            Self::MtuTooHigh { .. } => "MtuNotPossible",
            Self::RangeBeyondCount { .. } => "VfRangeNotPossible",
            Self::LinkType { .. } => "LinkTypeNotPossible",
            Self::Unsupported(_) => "Unsupported",
            Self::VfInUse { .. } | Self::RemovalOfVfInUse { .. } => "VfInUse",
            Self::PfInUse { .. } | Self::MtuOfPfInUse { .. } | Self::NotRestored { .. } => "PfInUse",
            Self::NoEswitch | Self::SwitchdevNotEthernet | Self::EswitchRefused { .. } => {
                "EswitchModeNotPossible"
            }
            Self::RepresentorsNotRenamed { .. } => "RepresentorsNotRenamed",
            Self::VdpaNotPossible => "VdpaNotPossible",
            Self::MissingModule { .. } => "MissingModule",
            Self::Guids(error) => error.reason(),
            Self::AutoprobeOff => "AutoprobeOff",
            Self::LoneVf => "NotPossibleOnVf",
            Self::NoIommu => "WaitsForIommu",
            Self::System(fault) => fault.reason(),
            Self::Firmware(fault) => fault.reason(),
            Self::Boot(fault) => fault.reason(),
        }
    }
}

/// How many VFs a card can have, and what to do about that.
fn room(total: u16) -> String {
    match total {
        0 => "the card shows none: SR-IOV is switched off in its firmware or in the BIOS".to_owned(),
        total => format!("the card can have at most {total}: lower numVfs"),
    }
}

/// What the kernel said to each order.
fn refusals(said: &[(ModeOrder, String)]) -> String {
    let refusal = |(order, error): &(ModeOrder, String)| match order {
        ModeOrder::VfsFirst => format!("with VFs: {error}"),
        ModeOrder::ModeFirst => format!("without VFs: {error}"),
    };
    said.iter().map(refusal).collect::<Vec<_>>().join("; ")
}

/// Parts of the API that the planner does not know yet. Saying so beats doing half of it.
pub(super) fn unsupported(spec: &SriovNetworkNodeStateSpec) -> Vec<Problem> {
    let mut found = Vec::new();
    if spec.bridges.as_ref().is_some_and(|bridges| {
        bridges.ovs.as_ref().is_some_and(|list| !list.is_empty())
            || bridges.linux.as_ref().is_some_and(|list| !list.is_empty())
    }) {
        found.push("a software bridge");
    }
    found.into_iter().map(|what| Problem::of_the_node(Cause::Unsupported(what))).collect()
}
