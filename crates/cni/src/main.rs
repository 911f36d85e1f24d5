//! CNI plugins in one small program, selected by the name of the executable: no async runtime, no Kubernetes client.
//!
//! It contains no plugin yet. A container runtime that calls it gets an error as the CNI specification defines it, so
//! that the reason appears in the Events of the pod.
//!
//! Plugins plan their steps with `vfleet-plan` and execute them with `vfleet-host`, both without the features that only
//! `vfleet` needs (`docs/decisions/0014-plain-types-below-crds-above.md`).

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

// For the plugins. Their dependencies are checked from the start (`tools/check-programs`).
use vfleet_host as _;
use vfleet_plan::cni::programs::MARKER;

/// Error code "invalid necessary environment variables" of the CNI specification.
const INVALID_ENVIRONMENT: u32 = 4;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    let executable = arguments.next().unwrap_or_default();
    let name = Path::new(&executable).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let output = match arguments.next() {
        Some(flag) if flag == "--version" || flag == "-V" => version(),
        Some(_) => help(),
        None if std::env::var_os("CNI_COMMAND").is_none() => help(),
        None => {
            // If the error cannot be written, the exit status still reports a failure.
            let _ = writeln!(std::io::stdout(), "{}", unknown_plugin_error(&name));
            return ExitCode::FAILURE;
        }
    };
    match writeln!(std::io::stdout(), "{output}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn version() -> String {
    // `vfleet install-cni` recognises the program by the marker in its file, so the compiler must not omit it.
    std::hint::black_box(MARKER);
    concat!("vfleet-cni ", env!("CARGO_PKG_VERSION")).to_owned()
}

fn help() -> String {
    "CNI plugins of vfleet in one program\n\n\
     Install it in the CNI directory under the name of each plugin. Container runtimes call it with CNI_COMMAND in\n\
     the environment. This version contains no plugin yet.\n\n\
     Usage: vfleet-cni [OPTIONS]\n\n\
     Options:\n  -V, --version  Print version\n  -h, --help     Print help"
        .to_owned()
}

fn unknown_plugin_error(name: &str) -> serde_json::Value {
    serde_json::json!({
        "cniVersion": "1.0.0",
        "code": INVALID_ENVIRONMENT,
        "msg": format!("vfleet-cni was called as {name:?}, which is not a plugin of this version"),
        "details": "install a version of vfleet that contains this plugin, or another program with this name",
    })
}
