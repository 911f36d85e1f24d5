//! All CNI plugins in one small program that looks at its own name: no async runtime, no Kubernetes client.
//!
//! No plugin is part of it yet. A container runtime that calls it is told so in the form that the CNI
//! specification asks for, so that the reason reaches the pod's events.
//!
//! Plugins plan their steps with `vfleet-plan` and execute them through `vfleet-host`, both built without the features that
//! only the other program needs (`docs/decisions/0014-plain-types-below-crds-above.md`).

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

// For the plugins. What they may bring into this program is checked from the start (`tools/check-programs`).
use vfleet_host as _;
use vfleet_plan as _;

/// "Invalid environment variables" of the CNI specification: called as something that it is not.
const INVALID_ENVIRONMENT: u32 = 4;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    let called = arguments.next().unwrap_or_default();
    let name = Path::new(&called).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let answer = match arguments.next() {
        Some(flag) if flag == "--version" || flag == "-V" => {
            concat!("vfleet-cni ", env!("CARGO_PKG_VERSION")).to_owned()
        }
        Some(_) => help(),
        None if std::env::var_os("CNI_COMMAND").is_none() => help(),
        None => {
            // Nobody reads an answer that cannot be written; the exit status still says that it failed.
            let _ = writeln!(std::io::stdout(), "{}", refusal(&name));
            return ExitCode::FAILURE;
        }
    };
    match writeln!(std::io::stdout(), "{answer}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn help() -> String {
    "vfleet-cni: the CNI plugins of vfleet in one program.\n\n\
     It is put into the CNI directory under the name of each plugin, and container runtimes call it with\n\
     CNI_COMMAND in the environment. This version carries no plugin yet.\n\n\
     Options:\n  -V, --version  Print version\n  -h, --help     Print help"
        .to_owned()
}

fn refusal(name: &str) -> serde_json::Value {
    serde_json::json!({
        "cniVersion": "1.0.0",
        "code": INVALID_ENVIRONMENT,
        "msg": format!("vfleet-cni is called as {name:?}, which is no plugin of this version"),
        "details": "install a version of vfleet that carries this plugin, or another program of this name",
    })
}
