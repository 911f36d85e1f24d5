//! Configuration that all plugins share.

use serde_json::Value;

use crate::cni::protocol::json::{Json, KeyFault, Section};
use crate::cni::protocol::result::CniResult;
use crate::cni::protocol::{CniError, CniVersion, Command, ErrorCode, is_valid_name};
use crate::prelude::*;

/// Key of the attachments that GC keeps.
const VALID_ATTACHMENTS: &str = "cni.dev/valid-attachments";
/// Name of the same key in the first edition of the specification.
const VALID_ATTACHMENTS_AT_FIRST: &str = "cni.dev/attachments";

/// Network configuration, as far as all plugins share it.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkConfig {
    /// Version of the specification, in which results are written.
    pub version: CniVersion,
    /// Name of the network.
    pub name: String,
    /// Name of the plugin, `type`; empty if the runtime left it out.
    pub plugin_type: String,
    /// IPAM plugin.
    pub ipam: Option<IpamConfig>,
    /// Result of the plugin before this one in a chain.
    pub previous: Option<CniResult>,
    /// Attachments that GC keeps; empty for other commands.
    pub valid_attachments: Vec<ValidAttachment>,
    /// Whole configuration: for delegated plugins.
    pub object: Value,
    /// The same with its keys in their order: for the settings of the plugin.
    document: Json,
}

/// IPAM plugin of a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IpamConfig {
    /// Name of the plugin.
    pub plugin: String,
}

/// Attachment that is still valid.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ValidAttachment {
    /// ID of the container.
    pub container_id: String,
    /// Name of the interface in the container.
    pub interface: String,
}

impl NetworkConfig {
    /// Parses standard input. Keys of the plugin are not read.
    ///
    /// Only ADD and CHECK read `prevResult`, so that nothing in it can prevent a DEL. For the same reason other commands
    /// take an `ipam` without a `type` for no IPAM, as the Go plugins do.
    pub fn parse(command: Command, stdin: &[u8]) -> Result<Self, CniError> {
        let document: Json = serde_json::from_slice(stdin).map_err(|error| {
            CniError::new(ErrorCode::Decode, "standard input is not JSON").with_details(error.to_string())
        })?;
        let root = Section::new("", &document)
            .ok_or_else(|| CniError::new(ErrorCode::Decode, "standard input is not a JSON object"))?;
        let name = root.text("name")?.ok_or_else(|| KeyFault::new("name", "is missing"))?;
        if !is_valid_name(name) {
            let problem = format!("{name:?} has characters other than letters, digits, '_', '.' and '-'");
            return Err(CniError::invalid_config("name", problem));
        }
        let version: CniVersion = root.text("cniVersion")?.unwrap_or_default().parse()?;
        version.check_command(command)?;
        let is_strict = matches!(command, Command::Add | Command::Check);
        let (plugin_type, ipam) = (root.text("type")?.unwrap_or_default(), read_ipam(&root, is_strict)?);
        let previous = if is_strict { read_previous(&root, version)? } else { None };
        let valid_attachments =
            if command == Command::Gc { read_valid_attachments(&root)? } else { Vec::new() };
        let (name, plugin_type) = (name.to_owned(), plugin_type.to_owned());
        let object = serde_json::from_slice(stdin)
            .map_err(|error| CniError::new(ErrorCode::Decode, error.to_string()))?;
        Ok(Self { version, name, plugin_type, ipam, previous, valid_attachments, object, document })
    }

    /// Returns the whole configuration.
    pub(super) fn root(&self) -> Section<'_> {
        Section::new("", &self.document).unwrap_or_default()
    }
}

/// Reads `ipam`. Without a `type` there is no IPAM if the object is empty; else it is an error for ADD and CHECK.
fn read_ipam(root: &Section<'_>, is_strict: bool) -> Result<Option<IpamConfig>, CniError> {
    let Some(ipam) = root.section("ipam")? else { return Ok(None) };
    match ipam.text("type")? {
        Some(plugin) if plugin.contains('/') => {
            Err(CniError::invalid_config("ipam.type", format!("{plugin:?} is not the name of a program")))
        }
        Some(plugin) => Ok(Some(IpamConfig { plugin: plugin.to_owned() })),
        None if !is_strict || ipam.is_empty() => Ok(None),
        None => Err(CniError::invalid_config("ipam.type", "is missing")
            .with_details("name an IPAM plugin, or leave ipam empty")),
    }
}

fn read_previous(root: &Section<'_>, version: CniVersion) -> Result<Option<CniResult>, CniError> {
    let Some(value) = root.last_value("prevResult") else { return Ok(None) };
    Ok(Some(CniResult::from_json(value, "prevResult", version)?))
}

/// Reads the attachments that GC keeps. Their absence is an error: nothing would be kept. Runtimes write `null` if there
/// are none.
fn read_valid_attachments(root: &Section<'_>) -> Result<Vec<ValidAttachment>, CniError> {
    let key = [VALID_ATTACHMENTS, VALID_ATTACHMENTS_AT_FIRST].into_iter().find(|key| root.has(key));
    let key = key.ok_or_else(|| {
        CniError::invalid_config(VALID_ATTACHMENTS, "is missing")
            .with_details("GC removes every attachment that is not in this list")
    })?;
    let read = |section: Section<'_>| {
        let text = |key| {
            let text = section.text(key)?.ok_or_else(|| KeyFault::new(section.path_of(key), "is missing"))?;
            Ok::<_, KeyFault>(text.to_owned())
        };
        Ok(ValidAttachment { container_id: text("containerID")?, interface: text("ifname")? })
    };
    root.objects(key)?.into_iter().map(read).collect()
}

#[cfg(test)]
mod tests;
