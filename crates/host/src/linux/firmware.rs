//! Settings in the firmware of Mellanox cards, through the vendor's tool: the open one, or the vendor's own build of it.

use std::sync::Arc;
use std::time::Duration;

use vfleet_api::PciAddress;
use vfleet_plan::firmware::{FirmwareError, MELLANOX, card_of, parse_query};
use vfleet_plan::{FirmwareFacts, FirmwareSettings};

use super::command::{self, Command};
use super::root::HostRoot;
use super::{kept, pci};
use crate::HostError;

pub(super) const SETTING_TOOLS: [&str; 2] = ["mstconfig", "mlxconfig"];
const RESET_TOOLS: [&str; 2] = ["mstfwreset", "mlxfwreset"];
/// A question takes the tool a second or two, and a look at a card must not take ten.
const ASKING: Duration = Duration::from_secs(7);
/// Writing to flash, and restarting a card, take their time.
const CHANGING: Duration = Duration::from_mins(4);

/// What a card's firmware is set to; `None` for other vendors' cards, and without a tool.
pub(super) fn of_card(
    root: &HostRoot,
    vendor: u16,
    pf: PciAddress,
) -> Result<Option<FirmwareFacts>, Arc<HostError>> {
    match find(root, SETTING_TOOLS) {
        Some(tool) if vendor == MELLANOX => {
            note_tool(root, tool);
            root.kept().firmware.get(&card_of(pf), || ask(root, tool, pf)).map(Some)
        }
        _ => Ok(None),
    }
}

/// Another tool, or another version of it, may answer what the last one did not.
fn note_tool(root: &HostRoot, tool: &'static str) {
    let path = command::find(root, tool);
    let now = path.and_then(|path| Some((tool, kept::version(&root.at(&path))?)));
    let mut known = kept::lock(&root.kept().firmware_tool);
    if *known != now {
        root.kept().firmware.forget_failures();
        *known = now;
    }
}

/// Sets what is `Some`, for the next restart of the firmware.
pub(super) fn set(
    root: &HostRoot,
    pf: PciAddress,
    settings: &FirmwareSettings,
    attempt: &str,
) -> Result<(), HostError> {
    pci::require_pf(root, pf)?;
    let tool = require(root, SETTING_TOOLS, pf)?;
    // Whatever comes of it: what was known is not true any more.
    root.kept().firmware.forget(&card_of(pf));
    set_command(tool, pf, settings).run(root)?;
    let found = ask(root, tool, pf)?.next_boot;
    if covers(&found, settings) {
        return Ok(());
    }
    Err(HostError::Unverified {
        attempt: attempt.to_owned(),
        expected: settings.to_string(),
        found: found.to_string(),
    })
}

/// Restarts the firmware. The driver stays: it notices by itself.
pub(super) fn reset(root: &HostRoot, pf: PciAddress) -> Result<(), HostError> {
    pci::require_pf(root, pf)?;
    let tool = require(root, RESET_TOOLS, pf)?;
    root.kept().firmware.forget(&card_of(pf));
    reset_command(tool, pf).run(root).map(drop)
}

fn ask(root: &HostRoot, tool: &'static str, pf: PciAddress) -> Result<FirmwareFacts, HostError> {
    let command = query_command(tool, pf);
    let text = command.run(root)?;
    let nonsense = |error: FirmwareError| HostError::Command {
        command: command.to_string(),
        outcome: "its answer makes no sense".to_owned(),
        words: error.to_string(),
    };
    parse_query(&text).map_err(nonsense)
}

fn query_command(tool: &'static str, pf: PciAddress) -> Command {
    Command::new(tool, ASKING).arguments(["-e", "-d", &pf.to_string(), "query"])
}

fn set_command(tool: &'static str, pf: PciAddress, settings: &FirmwareSettings) -> Command {
    let settings = settings.to_string();
    Command::new(tool, CHANGING)
        .arguments(["-d", &pf.to_string(), "-y", "set"])
        .arguments(settings.split(' '))
}

fn reset_command(tool: &'static str, pf: PciAddress) -> Command {
    Command::new(tool, CHANGING).arguments(["-d", &pf.to_string(), "--skip_driver", "-l", "3", "-y", "reset"])
}

/// Whether all that is wanted is found.
fn covers(found: &FirmwareSettings, wanted: &FirmwareSettings) -> bool {
    let is_same = |wanted: bool, same: bool| !wanted || same;
    is_same(wanted.sriov.is_some(), found.sriov == wanted.sriov)
        && is_same(wanted.num_vfs.is_some(), found.num_vfs == wanted.num_vfs)
        && wanted
            .link_types
            .iter()
            .zip(&found.link_types)
            .all(|(wanted, found)| is_same(wanted.is_some(), wanted == found))
}

fn find(root: &HostRoot, tools: [&'static str; 2]) -> Option<&'static str> {
    tools.into_iter().find(|tool| command::find(root, tool).is_some())
}

fn require(root: &HostRoot, tools: [&'static str; 2], pf: PciAddress) -> Result<&'static str, HostError> {
    find(root, tools).ok_or(HostError::NoFirmwareTool { pf })
}

#[cfg(test)]
#[path = "firmware/tests.rs"]
mod tests;
