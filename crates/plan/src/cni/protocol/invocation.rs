//! Environment of a plugin: the command and its parameters.

use super::{CniArgs, CniError, ErrorCode};
use crate::prelude::*;

/// Maximum length of an interface's name.
const MAX_INTERFACE_NAME: usize = 15;

/// Command of the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Attach the container.
    Add,
    /// Detach the container.
    Del,
    /// Compare the attachment with what ADD left.
    Check,
    /// Detach all containers of a network that are not valid any more.
    Gc,
    /// Report whether the plugin can attach containers.
    Status,
    /// Report the supported versions.
    Version,
}

impl Command {
    const ALL: [Self; 6] = [Self::Add, Self::Del, Self::Check, Self::Gc, Self::Status, Self::Version];

    /// Returns the name in `CNI_COMMAND`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Add => "ADD",
            Self::Del => "DEL",
            Self::Check => "CHECK",
            Self::Gc => "GC",
            Self::Status => "STATUS",
            Self::Version => "VERSION",
        }
    }

    /// Returns the variables that the command needs.
    const fn required(self) -> &'static [&'static str] {
        match self {
            Self::Add | Self::Check => &["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH"],
            Self::Del => &["CNI_CONTAINERID", "CNI_IFNAME", "CNI_PATH"],
            Self::Gc | Self::Status => &["CNI_PATH"],
            Self::Version => &[],
        }
    }
}

/// Environment of a plugin. Parameters that the command does not need are empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// Command.
    pub command: Command,
    /// ID of the container.
    pub container_id: String,
    /// Path of the container's network namespace; always present for ADD and CHECK.
    pub netns: Option<String>,
    /// Name of the interface in the container.
    pub interface: String,
    /// Arguments of the runtime.
    pub args: CniArgs,
    /// Directories of delegated plugins.
    pub path: Vec<String>,
    /// The same, as the runtime wrote them.
    pub path_text: String,
    /// The namespace may be that of the plugin itself.
    pub netns_override: bool,
}

impl Invocation {
    /// Parses the `CNI_*` variables of the environment. The error names all variables that are missing.
    ///
    /// Arguments in `CNI_ARGS` are an error only for ADD and CHECK: nothing else depends on them, and a DEL must not
    /// fail.
    pub fn parse(variables: &BTreeMap<String, String>) -> Result<Self, CniError> {
        let value = |name: &str| variables.get(name).map_or("", String::as_str);
        let name = value("CNI_COMMAND");
        if name.is_empty() {
            return Err(missing(&["CNI_COMMAND"]));
        }
        let command = Command::ALL
            .into_iter()
            .find(|command| command.name() == name)
            .ok_or_else(|| invalid("CNI_COMMAND", format!("unknown command {name:?}")))?;
        let required = command.required();
        let absent: Vec<&str> = required.iter().copied().filter(|name| value(name).is_empty()).collect();
        if !absent.is_empty() {
            return Err(missing(&absent));
        }
        let needed = |name| if required.contains(&name) { value(name) } else { "" };
        let container_id = needed("CNI_CONTAINERID");
        if !container_id.is_empty() && !is_valid_name(container_id) {
            let problem =
                format!("{container_id:?} has characters other than letters, digits, '_', '.' and '-'");
            return Err(invalid("CNI_CONTAINERID", problem));
        }
        let interface = needed("CNI_IFNAME");
        if let Some(problem) = Some(interface).filter(|name| !name.is_empty()).and_then(interface_name_fault)
        {
            return Err(invalid("CNI_IFNAME", format!("{interface:?} {problem}")));
        }
        let netns = match command {
            Command::Add | Command::Del | Command::Check => value("CNI_NETNS"),
            Command::Gc | Command::Status | Command::Version => "",
        };
        let args = CniArgs::parse(value("CNI_ARGS"));
        let args = match command {
            Command::Add | Command::Check => args?,
            _ => args.unwrap_or_default(),
        };
        let path_text = value("CNI_PATH");
        let netns_override = value("CNI_NETNS_OVERRIDE");
        Ok(Self {
            command,
            container_id: container_id.to_owned(),
            netns: Some(netns.to_owned()).filter(|path| !path.is_empty()),
            interface: interface.to_owned(),
            args,
            path: path_text.split(':').filter(|part| !part.is_empty()).map(ToOwned::to_owned).collect(),
            path_text: path_text.to_owned(),
            netns_override: netns_override == "1" || netns_override.eq_ignore_ascii_case("true"),
        })
    }
}

/// Returns whether a text is valid as the name of a network or the ID of a container: a letter or digit, followed by
/// letters, digits, `_`, `.` and `-`.
pub(crate) fn is_valid_name(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
}

/// Returns why a text cannot be the name of an interface.
fn interface_name_fault(name: &str) -> Option<&'static str> {
    let is_forbidden = |letter: char| letter == '/' || letter == ':' || letter.is_whitespace();
    if name.len() > MAX_INTERFACE_NAME {
        Some("is longer than 15 bytes")
    } else if name == "." || name == ".." {
        Some("is the name of a directory")
    } else if name.contains(is_forbidden) {
        Some("has a '/', a ':' or white space")
    } else {
        None
    }
}

fn missing(names: &[&str]) -> CniError {
    let message = format!("missing in the environment: {}", names.join(", "));
    CniError::new(ErrorCode::InvalidEnvironment, message)
        .with_details("container runtimes set these variables; to run the plugin by hand, use cnitool")
}

fn invalid(name: &str, problem: impl core::fmt::Display) -> CniError {
    CniError::new(ErrorCode::InvalidEnvironment, format!("{name}: {problem}"))
}

#[cfg(test)]
mod tests;
