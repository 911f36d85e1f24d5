//! Commands and files, as an administrator uses them.

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use vfleet_api::PciAddress;

use crate::contract::bench::{Shown, Stop};

pub(super) fn device(address: PciAddress) -> PathBuf {
    Path::new("/sys/bus/pci/devices").join(address.to_string())
}

/// Runs a command and gives its output.
pub(super) fn run(program: &str, words: &[&str]) -> Result<String, Stop> {
    let output = Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| failed(program, &error))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(failed(&format!("{program} {}", words.join(" ")), &said.trim()))
}

pub(super) fn read(path: &Path) -> Result<String, Stop> {
    let text = fs::read_to_string(path).map_err(|error| failed(&path.display().to_string(), &error))?;
    Ok(text.trim_end().to_owned())
}

pub(super) fn write(path: &Path, text: &str) -> Shown {
    fs::write(path, text).map_err(|error| failed(&path.display().to_string(), &error))
}

/// Writes a file of the disk, in a directory that may not be there yet.
pub(super) fn put(path: &Path, text: &str) -> Shown {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(|error| failed(&directory.display().to_string(), &error))?;
    }
    write(path, text)
}

/// The name of what a symbolic link points to.
pub(super) fn target(link: &Path) -> Option<String> {
    Some(fs::read_link(link).ok()?.file_name()?.to_string_lossy().into_owned())
}

pub(super) fn failed(what: &str, why: &dyn Display) -> Stop {
    Stop::Failed(format!("the bench: {what}: {why}"))
}
