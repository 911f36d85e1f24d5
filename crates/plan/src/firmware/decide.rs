//! What a card's firmware shall be set to. Ports of one card share most of its settings.

use thiserror::Error;
use vfleet_api::PciAddress;

use super::{FirmwareFacts, FirmwareLinkType, FirmwareSettings};
use crate::facts::{LinkKind, PfFacts};
use crate::prelude::*;

/// The vendor of cards that are set this way.
pub const MELLANOX: u16 = 0x15b3;

/// As many VFs as each of their PFs can have.
pub const MOST_VFS: u16 = 128;

/// A port of a card, as wanted.
#[derive(Clone, Copy, Debug)]
pub struct WantedPort<'a> {
    /// The PF.
    pub found: &'a PfFacts,
    /// How many VFs.
    pub num_vfs: u16,
    /// What it shall speak, if that matters.
    pub link: Option<LinkKind>,
}

/// What is to be done with a card.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FirmwareChange {
    /// What is to be set: only what is `Some`.
    pub settings: FirmwareSettings,
    /// Whether what is wanted now needs a restart.
    pub needs_restart: bool,
}

/// Why a card's firmware cannot be what is needed. The text says what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FirmwareFault {
    /// No tool can tell.
    #[error(
        "its firmware must be changed for {need}, and no tool for that can reach it: install mstflint (mstconfig) on the node"
    )]
    NoTool {
        /// What is wanted.
        need: String,
    },
    /// A tool is there, and failed.
    #[error("its firmware must be changed for {need}, and cannot be read: {error}")]
    ToolFailed {
        /// What is wanted.
        need: String,
        /// What was tried, and what came of it.
        error: String,
    },
    /// The card does not have the setting.
    #[error("its firmware has no setting {0}: change it by the means of the card's vendor")]
    NoSetting(&'static str),
    /// The port finds out by itself what to speak.
    #[error("its firmware has {setting}={value}, which vfleet does not change: set it by mstconfig")]
    OtherLinkType {
        /// The setting.
        setting: &'static str,
        /// What it is.
        value: String,
    },
    /// The kernel lets nobody.
    #[error(
        "its firmware must be set to {settings}, but the kernel is locked down (secure boot): set it by the machine's own setup"
    )]
    LockedDown {
        /// What is needed.
        settings: String,
    },
}

impl FirmwareFault {
    /// In one word, for conditions, events and metrics.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::NoTool { .. } => "NoFirmwareTool",
            Self::ToolFailed { .. } => "FirmwareToolFailed",
            Self::NoSetting(_) | Self::OtherLinkType { .. } => "FirmwareNotPossible",
            Self::LockedDown { .. } => "KernelLockedDown",
        }
    }
}

/// The card that a PF is a port of: its address without the function.
pub fn card_of(pf: PciAddress) -> String {
    let address = pf.to_string();
    address.rsplit_once('.').map_or_else(|| address.clone(), |(card, _)| card.to_owned())
}

/// What is to be done with a card for one of its wanted ports.
///
/// The number of VFs is never lowered, as that would cost a restart and help nobody. What works now and would not
/// after the next restart is set again, without one.
pub fn plan_port(
    port: &WantedPort<'_>,
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
    /// For both of two ports of a card, with the higher number of VFs.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        let [first, second] = self.settings.link_types;
        let [other_first, other_second] = other.settings.link_types;
        let settings = FirmwareSettings {
            sriov: self.settings.sriov.or(other.settings.sriov),
            num_vfs: self.settings.num_vfs.max(other.settings.num_vfs),
            link_types: [first.or(other_first), second.or(other_second)],
        };
        Self { settings, needs_restart: self.needs_restart || other.needs_restart }
    }
}

/// What is wanted of a port and not there, for people.
fn need(port: &WantedPort<'_>) -> Option<String> {
    let vfs = lacks_vfs(port).then(|| format!("{} VFs (it shows {})", port.num_vfs, port.found.total_vfs));
    let link =
        port.link.filter(|_| speaks_otherwise(port)).map(|kind| format!("link type {}", kind.as_api()));
    let needs: Vec<String> = vfs.into_iter().chain(link).collect();
    (!needs.is_empty()).then(|| needs.join(" and "))
}

fn lacks_vfs(port: &WantedPort<'_>) -> bool {
    port.num_vfs > port.found.total_vfs
}

fn speaks_otherwise(port: &WantedPort<'_>) -> bool {
    matches!((port.link, &port.found.link), (Some(wanted), Some(link)) if link.kind != wanted)
}

fn plan_vfs(port: &WantedPort<'_>, firmware: &FirmwareFacts) -> Result<FirmwareChange, FirmwareFault> {
    let FirmwareFacts { current, next_boot } = firmware;
    let is_enough = |settings: &FirmwareSettings| {
        settings.sriov != Some(false) && settings.num_vfs.is_some_and(|count| count >= port.num_vfs)
    };
    // Where the firmware would allow more than the card shows, something else limits it.
    let needs_restart = lacks_vfs(port) && !is_enough(current);
    if needs_restart && next_boot.num_vfs.is_none() {
        return Err(FirmwareFault::NoSetting("NUM_OF_VFS"));
    }
    let settings = FirmwareSettings {
        sriov: (port.num_vfs > 0 && next_boot.sriov == Some(false)).then_some(true),
        num_vfs: next_boot.num_vfs.is_some_and(|count| count < port.num_vfs).then_some(port.num_vfs),
        link_types: [None, None],
    };
    Ok(FirmwareChange { settings, needs_restart })
}

fn plan_link(
    port: &WantedPort<'_>,
    firmware: &FirmwareFacts,
    mut change: FirmwareChange,
) -> Result<FirmwareChange, FirmwareFault> {
    let wanted = match port.link {
        Some(LinkKind::Ethernet) => FirmwareLinkType::Ethernet,
        Some(LinkKind::Infiniband) => FirmwareLinkType::Infiniband,
        Some(LinkKind::Other(_)) | None => return Ok(change),
    };
    let (index, setting) = setting_of(port.found.address);
    let of = |settings: &FirmwareSettings| settings.link_types.get(index).cloned().flatten();
    // Where the firmware says that the port speaks what is wanted, something else is the matter.
    let needs_restart = speaks_otherwise(port) && of(&firmware.current).as_ref() != Some(&wanted);
    match of(&firmware.next_boot) {
        Some(next) if next == wanted => {}
        Some(FirmwareLinkType::Other(value)) if needs_restart => {
            return Err(FirmwareFault::OtherLinkType { setting, value });
        }
        None if needs_restart => return Err(FirmwareFault::NoSetting(setting)),
        Some(FirmwareLinkType::Other(_)) | None => {}
        Some(_) => change.settings.link_types[index] = Some(wanted),
    }
    change.needs_restart |= needs_restart;
    Ok(change)
}

/// The setting for what a port speaks. Ports are counted as the functions of the card are.
fn setting_of(port: PciAddress) -> (usize, &'static str) {
    match port.to_string().as_bytes().last() {
        Some(b'0') => (0, "LINK_TYPE_P1"),
        Some(b'1') => (1, "LINK_TYPE_P2"),
        _ => (2, "LINK_TYPE of a third port"),
    }
}
