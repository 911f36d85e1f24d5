//! The program: arguments, environment and standard input => output and exit status.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::ExitCode;

use serde_json::Value;
use vfleet_host::attachment::AttachmentHost;
use vfleet_plan::cni::journal::Plugin;
use vfleet_plan::cni::programs::{MARKER, PROGRAM};
use vfleet_plan::cni::protocol::{CniError, CniVersion, Command, ErrorCode, error_output, version_output};

use crate::call::PluginCall;
use crate::engine;
use crate::log::Log;

/// Maximum length of the configuration. A runtime writes some kilobytes.
const INPUT_LIMIT: u64 = 16 << 20;

/// Runs the program on a machine: the plugin that the name of the executable or the first argument selects.
pub fn run<H: AttachmentHost + ?Sized>(host: &H) -> ExitCode {
    let arguments: Vec<OsString> = env::args_os().collect();
    let output = match Request::parse(&arguments, env::var_os("CNI_COMMAND").is_some()) {
        Request::Print(text) => Ok(Some(text)),
        Request::Refuse(error) => Err(error_output(&error, CniVersion::LATEST.as_str()).to_string()),
        Request::Plugin(plugin) => answer(host, plugin, &read_variables(), &mut io::stdin().lock()),
    };
    // If the output cannot be written, the exit status still reports a failure.
    let (text, is_success) = match output {
        Ok(None) => return ExitCode::SUCCESS,
        Ok(Some(text)) => (text, true),
        Err(text) => (text, false),
    };
    let is_written = writeln!(io::stdout(), "{text}").is_ok();
    if is_written && is_success { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Answers one call of a plugin: the output on success, if there is any, or the JSON of an error.
pub fn answer<H: AttachmentHost + ?Sized>(
    host: &H,
    plugin: Plugin,
    variables: &BTreeMap<String, String>,
    input: &mut dyn Read,
) -> Result<Option<String>, String> {
    let is_version = variables.get("CNI_COMMAND").is_some_and(|command| command == Command::Version.name());
    if is_version {
        return Ok(Some(version_output()));
    }
    let mut stdin = Vec::new();
    let read = input.take(INPUT_LIMIT).read_to_end(&mut stdin);
    let result = match read {
        Ok(_) => PluginCall::parse(plugin, variables, &stdin).and_then(|call| {
            Log::start(&call);
            engine::execute(host, &call).map(|output| output.map(|value| value.to_string()))
        }),
        Err(error) => {
            Err(CniError::new(ErrorCode::Io, "cannot read the network configuration from standard input")
                .with_details(error.to_string()))
        }
    };
    result.map_err(|error| error_output(&error, &requested_version(&stdin)).to_string())
}

/// Returns the version for errors: the one in the configuration, even if it is not supported.
fn requested_version(stdin: &[u8]) -> String {
    let config: Value = serde_json::from_slice(stdin).unwrap_or_default();
    let version = config.get("cniVersion").and_then(Value::as_str).filter(|version| !version.is_empty());
    version.unwrap_or(CniVersion::LATEST.as_str()).to_owned()
}

/// Returns the variables of the environment that belong to CNI. Values that are not UTF-8 keep their valid part.
fn read_variables() -> BTreeMap<String, String> {
    let cni = env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CNI_"));
    cni.map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
        .collect()
}

/// Request of the caller.
#[derive(Debug, PartialEq)]
enum Request {
    /// A text is printed.
    Print(String),
    /// No plugin can be selected.
    Refuse(CniError),
    /// A plugin is run.
    Plugin(Plugin),
}

impl Request {
    fn parse(arguments: &[OsString], has_command: bool) -> Self {
        let executable = arguments.first().map(Path::new).and_then(Path::file_name).unwrap_or_default();
        let executable = executable.to_string_lossy();
        let argument = arguments.get(1).map(|argument| argument.to_string_lossy());
        match argument.as_deref() {
            Some("--version" | "-V" | "-v") => Self::Print(version()),
            Some("--help" | "-h") => Self::Print(help()),
            Some(name) => Self::select(name, has_command),
            None => Self::select(&executable, has_command),
        }
    }

    fn select(name: &str, has_command: bool) -> Self {
        match Plugin::find(name) {
            // Without a command a person has started the program.
            _ if !has_command => Self::Print(help()),
            Some(plugin) => Self::Plugin(plugin),
            None => Self::Refuse(unknown_plugin(name)),
        }
    }
}

fn version() -> String {
    // `vfleet install-cni` recognises the program by the marker in its file, so the compiler must not omit it.
    std::hint::black_box(MARKER);
    format!("{PROGRAM} {}", env!("CARGO_PKG_VERSION"))
}

fn unknown_plugin(name: &str) -> CniError {
    CniError::new(
        ErrorCode::InvalidEnvironment,
        format!("{PROGRAM} was called as {name:?}, which is not a plugin of this version"),
    )
    .with_details("install a version of vfleet that contains this plugin, or another program with this name")
}

fn help() -> String {
    let plugins =
        Plugin::ALL.map(|plugin| format!("  {:<10} {}", plugin.name(), plugin.description())).join("\n");
    format!(
        "CNI plugins of vfleet in one program\n\n\
         Container runtimes call it with CNI_COMMAND in the environment and the network configuration on standard input.\n\
         The name of the executable, or the first argument, selects the plugin. `vfleet install-cni` installs it under all\n\
         names.\n\n\
         Usage: {PROGRAM} [PLUGIN]\n\n\
         Plugins:\n{plugins}\n\n\
         Options:\n  -V, --version  Print version\n  -h, --help     Print help"
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "in a test a failed expectation is the point")]

    use super::*;

    fn parse(arguments: &[&str], has_command: bool) -> Request {
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        Request::parse(&arguments, has_command)
    }

    #[test]
    fn the_plugin_is_selected_by_the_name_of_the_program_or_by_the_first_argument() {
        assert_eq!(parse(&["/opt/cni/bin/sriov"], true), Request::Plugin(Plugin::Sriov));
        assert_eq!(parse(&["ib-sriov"], true), Request::Plugin(Plugin::Infiniband));
        assert_eq!(parse(&["/usr/bin/vfleet-cni", "rdma"], true), Request::Plugin(Plugin::Rdma));
    }

    #[test]
    fn another_name_is_refused_with_its_remedy() {
        for arguments in [&["/opt/cni/bin/bridge"][..], &["vfleet-cni"], &["vfleet-cni", "bridge"], &[]] {
            let Request::Refuse(error) = parse(arguments, true) else { panic!("{arguments:?}") };
            assert_eq!(error.code, ErrorCode::InvalidEnvironment);
            assert!(error.details.contains("install a version"), "{error}");
        }
    }

    #[test]
    fn people_get_help_and_version() {
        for arguments in [&["vfleet-cni"][..], &["vfleet-cni", "--help"], &["sriov"], &["sriov", "-h"]] {
            let Request::Print(text) = parse(arguments, false) else { panic!("{arguments:?}") };
            assert!(text.contains("ib-sriov") && text.contains("install-cni"), "{text}");
        }
        let version = format!("vfleet-cni {}", env!("CARGO_PKG_VERSION"));
        assert_eq!(parse(&["sriov", "--version"], true), Request::Print(version));
    }

    #[test]
    fn errors_have_the_requested_version() {
        assert_eq!(requested_version(br#"{"cniVersion":"0.4.0"}"#), "0.4.0");
        assert_eq!(requested_version(br#"{"cniVersion":"9.0.0"}"#), "9.0.0");
        for other in [&b""[..], b"[]", br#"{"cniVersion":""}"#, br#"{"cniVersion":1}"#] {
            assert_eq!(requested_version(other), "1.1.0");
        }
    }
}
