//! Step that writes a device-info file.

use std::path::Path;

use crate::HostError;
use crate::linux::atomic_file;
use crate::linux::root::HostRoot;

/// Mode of a device-info file, by its specification.
const READ_ONLY: u32 = 0o444;

/// Replaces a device-info file.
pub(super) fn write(root: &HostRoot, path: &str, content: &str) -> Result<(), HostError> {
    let target = root.at(path);
    if !Path::new(path).is_absolute() {
        return Err(HostError::PathNotAllowed { path: target });
    }
    atomic_file::replace(&target, content.as_bytes(), READ_ONLY)
}
