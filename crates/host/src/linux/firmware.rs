//! Firmware settings of Mellanox cards, through the open tools (mstflint) or the tools of the vendor.

use std::sync::Arc;
use std::time::Duration;

use vfleet_api::PciAddress;
use vfleet_plan::firmware::{FirmwareError, MELLANOX, card_of, parse_query};
use vfleet_plan::{FirmwareFacts, FirmwareSettings};

use super::command::{self, Command};
use super::root::HostRoot;
use super::{cache, pci};
use crate::HostError;

pub(super) const SETTING_TOOLS: [&str; 2] = ["mstconfig", "mlxconfig"];
const RESET_TOOLS: [&str; 2] = ["mstfwreset", "mlxfwreset"];
/// Limit for a query. The tool needs one or two seconds, and reading a card must end within ten seconds.
const QUERY_TIMEOUT: Duration = Duration::from_secs(7);
/// Limit for writing to flash and for resetting a card.
const CHANGE_TIMEOUT: Duration = Duration::from_mins(4);

/// Reads the firmware settings of a card; `None` for cards of other vendors, and if no tool is installed.
pub(super) fn read_settings(
    root: &HostRoot,
    vendor: u16,
    pf: PciAddress,
) -> Result<Option<FirmwareFacts>, Arc<HostError>> {
    match find_tool(root, SETTING_TOOLS) {
        Some(tool) if vendor == MELLANOX => {
            check_tool_version(root, tool);
            root.cache().firmware.get_or_query(&card_of(pf), || query(root, tool, pf)).map(Some)
        }
        _ => Ok(None),
    }
}

/// Removes cached failures if the tool has changed: another version may succeed.
fn check_tool_version(root: &HostRoot, tool: &'static str) {
    let path = command::find(root, tool);
    let current = path.and_then(|path| Some((tool, cache::file_version(&root.at(&path))?)));
    let mut previous = cache::lock(&root.cache().firmware_tool);
    if *previous != current {
        root.cache().firmware.remove_failures();
        *previous = current;
    }
}

/// Writes the settings that are `Some`. They take effect at the next reset of the firmware.
pub(super) fn set(
    root: &HostRoot,
    pf: PciAddress,
    settings: &FirmwareSettings,
    attempt: &str,
) -> Result<(), HostError> {
    pci::require_pf(root, pf)?;
    let tool = require_tool(root, SETTING_TOOLS, pf)?;
    // Also if the command fails, the cached settings are obsolete.
    root.cache().firmware.remove(&card_of(pf));
    set_command(tool, pf, settings).run(root)?;
    let found = query(root, tool, pf)?.next_boot;
    if contains_all(&found, settings) {
        return Ok(());
    }
    Err(HostError::NotVerified {
        attempt: attempt.to_owned(),
        expected: settings.to_string(),
        found: found.to_string(),
    })
}

/// Resets the firmware. The driver stays bound and detects the reset itself.
pub(super) fn reset(root: &HostRoot, pf: PciAddress) -> Result<(), HostError> {
    pci::require_pf(root, pf)?;
    let tool = require_tool(root, RESET_TOOLS, pf)?;
    root.cache().firmware.remove(&card_of(pf));
    reset_command(tool, pf).run(root).map(drop)
}

fn query(root: &HostRoot, tool: &'static str, pf: PciAddress) -> Result<FirmwareFacts, HostError> {
    let command = query_command(tool, pf);
    let text = command.run(root)?;
    let invalid = |error: FirmwareError| HostError::CommandFailed {
        command: command.to_string(),
        outcome: "unexpected output".to_owned(),
        output: error.to_string(),
    };
    parse_query(&text).map_err(invalid)
}

fn query_command(tool: &'static str, pf: PciAddress) -> Command {
    Command::new(tool, QUERY_TIMEOUT).arguments(["-e", "-d", &pf.to_string(), "query"])
}

fn set_command(tool: &'static str, pf: PciAddress, settings: &FirmwareSettings) -> Command {
    let settings = settings.to_string();
    Command::new(tool, CHANGE_TIMEOUT)
        .arguments(["-d", &pf.to_string(), "-y", "set"])
        .arguments(settings.split(' '))
}

fn reset_command(tool: &'static str, pf: PciAddress) -> Command {
    Command::new(tool, CHANGE_TIMEOUT).arguments([
        "-d",
        &pf.to_string(),
        "--skip_driver",
        "-l",
        "3",
        "-y",
        "reset",
    ])
}

/// Returns whether `found` has all values that `desired` sets.
fn contains_all(found: &FirmwareSettings, desired: &FirmwareSettings) -> bool {
    let matches = |is_set: bool, is_same: bool| !is_set || is_same;
    matches(desired.sriov.is_some(), found.sriov == desired.sriov)
        && matches(desired.num_vfs.is_some(), found.num_vfs == desired.num_vfs)
        && desired
            .link_types
            .iter()
            .zip(&found.link_types)
            .all(|(desired, found)| matches(desired.is_some(), desired == found))
}

fn find_tool(root: &HostRoot, tools: [&'static str; 2]) -> Option<&'static str> {
    tools.into_iter().find(|tool| command::find(root, tool).is_some())
}

fn require_tool(
    root: &HostRoot,
    tools: [&'static str; 2],
    pf: PciAddress,
) -> Result<&'static str, HostError> {
    find_tool(root, tools).ok_or(HostError::NoFirmwareTool { pf })
}

#[cfg(test)]
#[path = "firmware/tests.rs"]
mod tests;
