//! Parser of `mstconfig query` and `mlxconfig query`: a table with a line for each setting. With `-e` it has three
//! columns (default, current, next boot), without it one (next boot), and old firmware may omit some.

use thiserror::Error;

use super::{FirmwareFacts, FirmwareLinkType, FirmwareSettings};
use crate::prelude::*;

/// Error of reading firmware settings.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FirmwareError {
    /// The tool failed.
    #[error("the firmware tool failed: {message}; run it manually to check: mstconfig -e -d <card> query")]
    Tool {
        /// Message of the tool.
        message: String,
    },
    /// The output is not a table of settings.
    #[error(
        "the firmware tool printed no table of settings with a column for the next boot, but: {beginning:?}"
    )]
    NoTable {
        /// Beginning of the output.
        beginning: String,
    },
    /// The value of a setting is not valid.
    #[error("the firmware tool printed an invalid line: {line:?}")]
    Line {
        /// Invalid line.
        line: String,
    },
}

impl FirmwareError {
    /// Returns the reason for conditions, Events and metrics.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Tool { .. } => "FirmwareToolFailed",
            Self::NoTable { .. } | Self::Line { .. } => "FirmwareUnreadable",
        }
    }
}

/// Parses the output for one card. Current settings are unknown if the table has no column for them.
pub fn parse_query(text: &str) -> Result<FirmwareFacts, FirmwareError> {
    let errors: Vec<&str> = text.lines().filter_map(|line| line.trim().strip_prefix("-E-")).collect();
    if !errors.is_empty() {
        let words: Vec<&str> = errors.into_iter().map(str::trim).collect();
        return Err(FirmwareError::Tool { message: words.join(" ") });
    }
    let mut lines = text.lines();
    let columns = lines
        .find_map(|line| line.trim().strip_prefix("Configurations:"))
        .map(read_columns)
        .filter(|columns| columns.contains(&Column::NextBoot))
        .ok_or_else(|| FirmwareError::NoTable { beginning: beginning(text) })?;
    let mut facts =
        FirmwareFacts { current: FirmwareSettings::default(), next_boot: FirmwareSettings::default() };
    for line in lines {
        read_line(line, &columns, &mut facts).ok_or_else(|| FirmwareError::Line { line: beginning(line) })?;
    }
    Ok(facts)
}

/// Column of the table that the firmware tool prints.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Column {
    Current,
    NextBoot,
    /// Ignored column.
    Other,
}

fn read_columns(header: &str) -> Vec<Column> {
    let words = header.split_whitespace().filter(|word| *word != "Boot");
    words
        .map(|word| match word {
            "Current" => Column::Current,
            "Next" => Column::NextBoot,
            _ => Column::Other,
        })
        .collect()
}

/// Stores the values of a line, if it is about a supported setting. `None` if a value is not valid.
fn read_line(line: &str, columns: &[Column], facts: &mut FirmwareFacts) -> Option<()> {
    // A star marks settings that will change, RO those that cannot be changed.
    let mut words = line.split_whitespace().skip_while(|word| matches!(*word, "*" | "RO" | "*RO"));
    let Some(setting) = words.next().and_then(Setting::named) else { return Some(()) };
    let values: Vec<&str> = words.collect();
    if values.len() != columns.len() {
        return None;
    }
    for (column, value) in columns.iter().zip(values) {
        match column {
            Column::Current => setting.read(value, &mut facts.current)?,
            Column::NextBoot => setting.read(value, &mut facts.next_boot)?,
            Column::Other => {}
        }
    }
    Some(())
}

/// Firmware setting that vfleet uses.
#[derive(Clone, Copy)]
enum Setting {
    Sriov,
    NumVfs,
    /// Link type, by index of the port.
    LinkType(usize),
}

impl Setting {
    fn named(name: &str) -> Option<Self> {
        match name {
            "SRIOV_EN" => Some(Self::Sriov),
            "NUM_OF_VFS" => Some(Self::NumVfs),
            "LINK_TYPE_P1" => Some(Self::LinkType(0)),
            "LINK_TYPE_P2" => Some(Self::LinkType(1)),
            _ => None,
        }
    }

    /// Stores the value; the tool prints `N/A` if the card does not report it.
    fn read(self, value: &str, settings: &mut FirmwareSettings) -> Option<()> {
        if value == "N/A" {
            return Some(());
        }
        let name = value.split('(').next().unwrap_or(value);
        match self {
            Self::Sriov => settings.sriov = Some(read_bool(name)?),
            Self::NumVfs => settings.num_vfs = Some(name.parse().ok()?),
            Self::LinkType(port) => *settings.link_types.get_mut(port)? = Some(read_link_type(name, value)),
        }
        Some(())
    }
}

fn read_bool(name: &str) -> Option<bool> {
    match name {
        "True" | "1" => Some(true),
        "False" | "0" => Some(false),
        _ => None,
    }
}

fn read_link_type(name: &str, value: &str) -> FirmwareLinkType {
    match name {
        "ETH" | "2" => FirmwareLinkType::Ethernet,
        "IB" | "1" => FirmwareLinkType::Infiniband,
        _ => FirmwareLinkType::Other(value.to_owned()),
    }
}

/// Returns as much of the text as fits into a message.
fn beginning(text: &str) -> String {
    text.trim().chars().take(120).collect()
}
