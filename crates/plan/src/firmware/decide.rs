//! Desired firmware settings of a card. Ports of one card share most of its settings.

use thiserror::Error;
use vfleet_api::PciAddress;

use super::{FirmwareFacts, FirmwareLinkType, FirmwareSettings};
use crate::facts::{LinkKind, PfFacts};
use crate::prelude::*;

/// PCI vendor ID of cards with these settings.
pub const MELLANOX: u16 = 0x15b3;

/// Maximum number of VFs of a PF.
pub const MAX_VFS: u16 = 128;

/// Desired state of a port of a card.
#[derive(Clone, Copy, Debug)]
pub struct DesiredPort<'a> {
    /// Facts of the PF.
    pub observed: &'a PfFacts,
    /// Number of VFs.
    pub num_vfs: u16,
    /// Link type; `None` for any.
    pub link: Option<LinkKind>,
}

/// Firmware settings to change on a card.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FirmwareChange {
    /// Settings to change: those that are `Some`.
    pub settings: FirmwareSettings,
    /// The desired state needs a reset of the firmware now.
    pub needs_reset: bool,
}

/// Fault that prevents the needed firmware settings. The text includes the remedy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FirmwareFault {
    /// No firmware tool is installed.
    #[error(
        "the firmware must be changed for {need}, and no firmware tool is available: install mstflint (mstconfig) on the node"
    )]
    NoTool {
        /// State that needs the settings.
        need: String,
    },
    /// The firmware tool failed.
    #[error("the firmware must be changed for {need}, and cannot be read: {error}")]
    ToolFailed {
        /// State that needs the settings.
        need: String,
        /// Error of the tool.
        error: String,
    },
    /// The card does not have the setting.
    #[error("the firmware has no setting {0}: change it with the tools of the card's vendor")]
    NoSetting(&'static str),
    /// The link type of the port is automatic or unknown.
    #[error("the firmware has {setting}={value}, which vfleet does not change: set it with mstconfig")]
    OtherLinkType {
        /// Name of the setting.
        setting: &'static str,
        /// Its value.
        value: String,
    },
    /// The kernel does not allow firmware changes.
    #[error(
        "the firmware must be set to {settings}, but the kernel is locked down (secure boot): change it in the setup of the machine"
    )]
    LockedDown {
        /// Needed settings.
        settings: String,
    },
}

impl FirmwareFault {
    /// Returns the reason for conditions, Events and metrics.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::NoTool { .. } => "NoFirmwareTool",
            Self::ToolFailed { .. } => "FirmwareToolFailed",
            Self::NoSetting(_) | Self::OtherLinkType { .. } => "FirmwareNotSupported",
            Self::LockedDown { .. } => "KernelLockedDown",
        }
    }
}

/// Returns the card of a PF: its PCI address without the function.
pub fn card_of(pf: PciAddress) -> String {
    let address = pf.to_string();
    address.rsplit_once('.').map_or_else(|| address.clone(), |(card, _)| card.to_owned())
}

/// Returns the settings to change for one desired port of a card.
///
/// The number of VFs is never lowered, since that would need a reset without benefit. A setting that is right now and
/// would be wrong after the next reset is set again, without a reset.
pub fn plan_port(
    port: &DesiredPort<'_>,
    firmware: Option<&FirmwareFacts>,
    is_locked_down: bool,
) -> Result<FirmwareChange, FirmwareFault> {
    let Some(firmware) = firmware else {
        return need(port)
            .map_or_else(|| Ok(FirmwareChange::default()), |need| Err(FirmwareFault::NoTool { need }));
    };
    let change = plan_link(port, firmware, plan_vfs(port, firmware)?)?;
    if is_locked_down && change.settings != FirmwareSettings::default() {
        return Err(FirmwareFault::LockedDown { settings: change.settings.to_string() });
    }
    Ok(change)
}

impl FirmwareChange {
    /// Returns the settings for two ports of a card, with the higher number of VFs.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        let [first, second] = self.settings.link_types;
        let [other_first, other_second] = other.settings.link_types;
        let settings = FirmwareSettings {
            sriov: self.settings.sriov.or(other.settings.sriov),
            num_vfs: self.settings.num_vfs.max(other.settings.num_vfs),
            link_types: [first.or(other_first), second.or(other_second)],
        };
        Self { settings, needs_reset: self.needs_reset || other.needs_reset }
    }
}

/// Returns the desired state that the port does not have, for messages.
fn need(port: &DesiredPort<'_>) -> Option<String> {
    let vfs = lacks_vfs(port)
        .then(|| format!("{} VFs (the card reports {})", port.num_vfs, port.observed.total_vfs));
    let link =
        port.link.filter(|_| has_other_link_type(port)).map(|kind| format!("link type {}", kind.as_api()));
    let needs: Vec<String> = vfs.into_iter().chain(link).collect();
    (!needs.is_empty()).then(|| needs.join(" and "))
}

fn lacks_vfs(port: &DesiredPort<'_>) -> bool {
    port.num_vfs > port.observed.total_vfs
}

fn has_other_link_type(port: &DesiredPort<'_>) -> bool {
    matches!((port.link, &port.observed.link), (Some(desired), Some(link)) if link.kind != desired)
}

fn plan_vfs(port: &DesiredPort<'_>, firmware: &FirmwareFacts) -> Result<FirmwareChange, FirmwareFault> {
    let FirmwareFacts { current, next_boot } = firmware;
    let is_enough = |settings: &FirmwareSettings| {
        settings.sriov != Some(false) && settings.num_vfs.is_some_and(|count| count >= port.num_vfs)
    };
    // If the firmware allows more VFs than the card reports, something else limits them.
    let needs_reset = lacks_vfs(port) && !is_enough(current);
    if needs_reset && next_boot.num_vfs.is_none() {
        return Err(FirmwareFault::NoSetting("NUM_OF_VFS"));
    }
    let settings = FirmwareSettings {
        sriov: (port.num_vfs > 0 && next_boot.sriov == Some(false)).then_some(true),
        num_vfs: next_boot.num_vfs.is_some_and(|count| count < port.num_vfs).then_some(port.num_vfs),
        link_types: [None, None],
    };
    Ok(FirmwareChange { settings, needs_reset })
}

fn plan_link(
    port: &DesiredPort<'_>,
    firmware: &FirmwareFacts,
    mut change: FirmwareChange,
) -> Result<FirmwareChange, FirmwareFault> {
    let desired = match port.link {
        Some(LinkKind::Ethernet) => FirmwareLinkType::Ethernet,
        Some(LinkKind::Infiniband) => FirmwareLinkType::Infiniband,
        Some(LinkKind::Other(_)) | None => return Ok(change),
    };
    let (index, setting) = setting_of(port.observed.address);
    let of = |settings: &FirmwareSettings| settings.link_types.get(index).cloned().flatten();
    // If the firmware already has the desired link type, something else is wrong.
    let needs_reset = has_other_link_type(port) && of(&firmware.current).as_ref() != Some(&desired);
    match of(&firmware.next_boot) {
        Some(next) if next == desired => {}
        Some(FirmwareLinkType::Other(value)) if needs_reset => {
            return Err(FirmwareFault::OtherLinkType { setting, value });
        }
        None if needs_reset => return Err(FirmwareFault::NoSetting(setting)),
        Some(FirmwareLinkType::Other(_)) | None => {}
        Some(_) => change.settings.link_types[index] = Some(desired),
    }
    change.needs_reset |= needs_reset;
    Ok(change)
}

/// Returns the link type setting of a port. Ports are numbered as the functions of the card.
fn setting_of(port: PciAddress) -> (usize, &'static str) {
    match port.to_string().as_bytes().last() {
        Some(b'0') => (0, "LINK_TYPE_P1"),
        Some(b'1') => (1, "LINK_TYPE_P2"),
        _ => (2, "LINK_TYPE of a third port"),
    }
}
