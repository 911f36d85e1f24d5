//! Tests of `vfleet-host` that change a kernel or systemd. They are ignored outside of the lab.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use fixture_lab::Vm;
use serde_json::Value;

/// Environment variable with the path of the unit tests of `vfleet-host`, which `make test` builds.
const VARIABLE: &str = "VFLEET_HOST_TESTS";

/// Runs the tests in the machine; returns their output.
pub(super) fn run(vm: &Vm) -> Result<String> {
    vm.run_ignored_tests(&find_program()?)
}

fn find_program() -> Result<PathBuf> {
    env::var_os(VARIABLE).map_or_else(build, |path| Ok(path.into()))
}

fn build() -> Result<PathBuf> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments =
        ["test", "--locked", "--package", "vfleet-host", "--lib", "--no-run", "--message-format", "json"];
    let output = Command::new(cargo).args(arguments).output().context("cargo")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for line in output.stdout.split(|byte| *byte == b'\n') {
        let message: Value = serde_json::from_slice(line).unwrap_or_default();
        if let Some(executable) = message["executable"].as_str() {
            return Ok(executable.into());
        }
    }
    bail!("cargo reports no executable for the unit tests of vfleet-host")
}
