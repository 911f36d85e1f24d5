//! Commands and files of the machine.

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use vfleet_api::PciAddress;

use crate::contract::testbed::{CaseError, CaseResult};

pub(super) fn device(address: PciAddress) -> PathBuf {
    Path::new("/sys/bus/pci/devices").join(address.to_string())
}

/// Runs a command and returns its output.
pub(super) fn run(program: &str, args: &[&str]) -> Result<String, CaseError> {
    let output = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| failed(program, &error))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(failed(&format!("{program} {}", args.join(" ")), &stderr.trim()))
}

pub(super) fn read(path: &Path) -> Result<String, CaseError> {
    let text = fs::read_to_string(path).map_err(|error| failed(&path.display().to_string(), &error))?;
    Ok(text.trim_end().to_owned())
}

pub(super) fn write(path: &Path, text: &str) -> CaseResult {
    fs::write(path, text).map_err(|error| failed(&path.display().to_string(), &error))
}

/// Writes a file and creates its directory if necessary.
pub(super) fn write_with_directory(path: &Path, text: &str) -> CaseResult {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(|error| failed(&directory.display().to_string(), &error))?;
    }
    write(path, text)
}

/// Returns the file name of the target of a symbolic link.
pub(super) fn link_target(link: &Path) -> Option<String> {
    Some(fs::read_link(link).ok()?.file_name()?.to_string_lossy().into_owned())
}

pub(super) fn failed(what: &str, error: &dyn Display) -> CaseError {
    CaseError::Failed(format!("test bed: {what}: {error}"))
}
