//! Problems: parts of the desired state that are not possible, with cause and remedy.

use alloc::boxed::Box;
use core::fmt;

use thiserror::Error;
use vfleet_api::{ParseError, PciAddress, VfRange};

use super::bridge::BridgeFault;
use super::system::SystemFault;
use crate::boot::BootFault;
use crate::external::ExternalFault;
use crate::facts::{ModeOrder, ProtectingUse, UnreadableCard};
use crate::firmware::FirmwareFault;
use crate::guids::GuidFileError;
use crate::modules;
use crate::prelude::*;

/// Problem of a node: a part of the desired state that is not possible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// PF of the problem; `None` for the whole node.
    pub pf: Option<PciAddress>,
    /// Name of the PF, if it is known.
    pub name: Option<String>,
    /// Policies that request the state.
    pub policies: Vec<String>,
    /// Cause of the problem.
    pub cause: Cause,
}

impl Problem {
    /// Returns a problem of the whole node that belongs to no particular policy.
    pub(crate) fn of_node(cause: impl Into<Cause>) -> Self {
        Self { pf: None, name: None, policies: Vec::new(), cause: cause.into() }
    }

    /// Returns the problem of a PF that cannot be read.
    pub(super) fn unreadable_card(card: &UnreadableCard) -> Self {
        let cause = Cause::UnreadableCard { reason: card.reason, error: card.error.clone() };
        Self { pf: Some(card.pf), name: None, policies: Vec::new(), cause }
    }

    /// Returns whether the problem is being solved now.
    pub const fn is_in_progress(&self) -> bool {
        matches!(self.cause, Cause::Boot(BootFault::Unfinished))
    }

    /// Returns whether a retry can help although nothing changed: a failed read may succeed, and systemd units do not
    /// report their end.
    pub fn is_retryable(&self) -> bool {
        if let Cause::Bridge(fault) = &self.cause {
            return fault.is_retryable();
        }
        matches!(
            self.cause,
            Cause::UnreadableCard { .. }
                | Cause::Firmware(FirmwareFault::ToolFailed { .. })
                | Cause::Boot(BootFault::Unfinished)
        )
    }

    /// Returns whether a change on the machine may solve the problem. Not every such change is announced. An invalid
    /// spec is solved only by another spec.
    pub fn may_be_solved_on_host(&self) -> bool {
        if let Cause::Bridge(fault) = &self.cause {
            return !fault.is_invalid_spec();
        }
        !matches!(
            self.cause,
            Cause::InvalidValue(_)
                | Cause::OutOfRange { .. }
                | Cause::RangeBeyondCount { .. }
                | Cause::UnknownWord { .. }
                | Cause::VdpaNotSupported
        )
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.pf, &self.name) {
            (Some(pf), Some(name)) => write!(f, "PF {name} ({pf}): ")?,
            (Some(pf), None) => write!(f, "PF {pf}: ")?,
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

/// Cause of a problem. The text includes the remedy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Cause {
    #[error("{0}: correct the node state, or let the operator write it again")]
    InvalidValue(#[source] ParseError),
    #[error("{error}; the card is not changed until it can be read")]
    UnreadableCard { reason: &'static str, error: String },
    #[error(
        "no card with SR-IOV support at this address: correct the policy, or check that the card is present"
    )]
    NoSuchPf,
    #[error(
        "the card has no network interface: check that its driver is loaded and that the interface is in the host's network namespace"
    )]
    NoLink,
    #[error("{requested} VFs are requested, but {}", vf_limit(*total))]
    TooManyVfs { requested: i64, total: u16 },
    #[error(transparent)]
    External(#[from] ExternalFault),
    #[error("MTU {requested} is requested, but the card supports at most {max}: lower mtu")]
    MtuTooHigh { requested: u32, max: u32 },
    #[error("{value} is not a valid {what}: correct the policy")]
    OutOfRange { what: &'static str, value: i64 },
    #[error("VFs {range} are requested, but numVfs is {count}: raise numVfs or lower the range")]
    RangeBeyondCount { range: VfRange, count: u16 },
    #[error(
        "link type {requested} is requested, but the port is {observed}: select another PF or correct linkType"
    )]
    LinkType { requested: String, observed: &'static str },
    #[error("{field} {word:?} is not valid: use {valid}")]
    UnknownWord { field: &'static str, word: String, valid: &'static str },
    #[error(
        "the node uses VF {index} for {in_use}, so the VF is not changed: exclude it from the VF range of the policy, move {} to another interface, or set overrideHostProtection",
        in_use.host_use.as_str()
    )]
    VfInUse { index: u16, in_use: ProtectingUse },
    #[error(
        "all VFs would have to be removed, but the node uses VF {index} for {in_use}: keep numVfs and eSwitchMode, set externallyManaged, move {} to another interface, or set overrideHostProtection",
        in_use.host_use.as_str()
    )]
    RemovalOfVfInUse { index: u16, in_use: ProtectingUse },
    #[error(
        "the eswitch mode would have to change, but the node uses the PF for {in_use}: keep eSwitchMode and numVfs, move {} to another interface, or set overrideHostProtection",
        in_use.host_use.as_str()
    )]
    PfInUse { in_use: ProtectingUse },
    #[error(
        "the MTU would have to be raised from {observed} to {requested}, but the node uses the PF for {in_use}: raise it in the network configuration of the node, lower mtu, or set overrideHostProtection"
    )]
    MtuOfPfInUse { requested: u32, observed: u32, in_use: ProtectingUse },
    #[error(
        "{driver} reports no switchdev support on this card: set eSwitchMode to legacy or select another card"
    )]
    NoEswitch { driver: String },
    #[error(
        "the kernel refused switchdev mode in both orders ({}): check the kernel log, update driver or firmware of the card, or set eSwitchMode to legacy; vfleet tries again after a reboot, or when the desired state of the PF changes",
        refusal_text(refusals)
    )]
    EswitchRefused { refusals: Vec<(ModeOrder, String)> },
    #[error(
        "no policy selects the PF anymore, but {left}, because the node uses the PF for {in_use}: move {} to another interface",
        in_use.host_use.as_str()
    )]
    NotRestored { left: String, in_use: ProtectingUse },
    #[error(
        "udev could not rename representors ({names}), since kernels before 6.2 do not rename interfaces that are up: set them down and run `udevadm trigger --action=add` for them, or keep their names"
    )]
    RepresentorsNotRenamed { names: String },
    #[error(
        "switchdev mode is requested, but the port is not Ethernet: select another PF or remove eSwitchMode"
    )]
    SwitchdevNotEthernet,
    #[error("vdpaType requires eSwitchMode switchdev and deviceType netdevice: correct the policy")]
    VdpaNotSupported,
    #[error(
        "kernel module {module} is not installed: {}, or select another deviceType or vdpaType",
        modules::origin(module)
    )]
    MissingModule { module: &'static str },
    #[error(transparent)]
    Guids(Box<GuidFileError>),
    #[error(
        "the kernel cannot bind VFs, since sriov_drivers_autoprobe of this externally managed PF is off: write 1 to it"
    )]
    AutoprobeOff,
    #[error(
        "the card is a VF that a hypervisor provides: set numVfs to 1, with VF 0 in one policy and eSwitchMode legacy"
    )]
    LoneVf,
    #[error("vfio-pci requires an IOMMU, and none is active: the VFs are bound when one is")]
    NoIommu,
    #[error(transparent)]
    System(#[from] SystemFault),
    #[error(transparent)]
    Firmware(#[from] FirmwareFault),
    #[error(transparent)]
    Boot(#[from] BootFault),
    #[error(transparent)]
    Bridge(Box<BridgeFault>),
}

impl From<BridgeFault> for Cause {
    fn from(fault: BridgeFault) -> Self {
        Self::Bridge(Box::new(fault))
    }
}

/// Part of a PF that is not changed because the node uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProtectedPart {
    /// MTU and eswitch mode of the PF.
    Pf,
    /// Number of VFs and eswitch mode.
    AllVfs,
    /// Single VF.
    Vf(u16),
}

impl Cause {
    /// Returns whether other firmware settings may solve the problem.
    pub(super) const fn depends_on_firmware(&self) -> bool {
        matches!(self, Self::TooManyVfs { .. } | Self::LinkType { .. })
    }

    /// Returns whether the cause is a bridge of somebody else that has the name of the desired one.
    pub(super) fn is_foreign_bridge(&self) -> bool {
        matches!(self, Self::Bridge(fault) if fault.is_foreign_bridge())
    }

    /// Returns the protected part, if protection is the cause.
    pub(crate) const fn protected_part(&self) -> Option<ProtectedPart> {
        match self {
            Self::VfInUse { index, .. } => Some(ProtectedPart::Vf(*index)),
            Self::RemovalOfVfInUse { .. } => Some(ProtectedPart::AllVfs),
            Self::PfInUse { .. } | Self::MtuOfPfInUse { .. } => Some(ProtectedPart::Pf),
            _ => None,
        }
    }

    /// Returns the reason for conditions, Events and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::InvalidValue(_) | Self::OutOfRange { .. } | Self::UnknownWord { .. } => "InvalidSpec",
            Self::UnreadableCard { reason, .. } => reason,
            Self::NoSuchPf => "NoSuchDevice",
            Self::NoLink => "NoInterface",
            Self::TooManyVfs { .. } => "TooManyVfs",
            Self::External(fault) => fault.reason(),
            Self::MtuTooHigh { .. } => "MtuNotSupported",
            Self::RangeBeyondCount { .. } => "VfRangeNotSupported",
            Self::LinkType { .. } => "LinkTypeNotSupported",
            Self::VfInUse { .. } | Self::RemovalOfVfInUse { .. } => "VfInUse",
            Self::PfInUse { .. } | Self::MtuOfPfInUse { .. } | Self::NotRestored { .. } => "PfInUse",
            Self::NoEswitch { .. } | Self::SwitchdevNotEthernet | Self::EswitchRefused { .. } => {
                "EswitchModeNotSupported"
            }
            Self::RepresentorsNotRenamed { .. } => "RepresentorsNotRenamed",
            Self::VdpaNotSupported => "VdpaNotSupported",
            Self::MissingModule { .. } => "MissingModule",
            Self::Guids(error) => error.reason(),
            Self::AutoprobeOff => "AutoprobeOff",
            Self::LoneVf => "NotSupportedOnVf",
            Self::NoIommu => "WaitingForIommu",
            Self::System(fault) => fault.reason(),
            Self::Firmware(fault) => fault.reason(),
            Self::Boot(fault) => fault.reason(),
            Self::Bridge(fault) => fault.reason(),
        }
    }
}

/// Returns the text about the maximum number of VFs of a card, with the remedy.
fn vf_limit(total: u16) -> String {
    match total {
        0 => "the card reports none: enable SR-IOV in its firmware or in the BIOS".to_owned(),
        total => format!("the card supports at most {total}: lower numVfs"),
    }
}

/// Returns the error of the kernel for each order.
fn refusal_text(refusals: &[(ModeOrder, String)]) -> String {
    let refusal = |(order, error): &(ModeOrder, String)| match order {
        ModeOrder::VfsFirst => format!("with VFs: {error}"),
        ModeOrder::ModeFirst => format!("without VFs: {error}"),
    };
    refusals.iter().map(refusal).collect::<Vec<_>>().join("; ")
}
