//! Journals of attachments: one JSON file each, named after its attachment.

use std::error::Error;
use std::path::PathBuf;

use nix::unistd::gettid;
use serde_json::Value;
use thiserror::Error;
use vfleet_plan::cni::journal::{AttachmentKey, JOURNAL_VERSION, Journal, Plugin};

use crate::HostError;
use crate::linux::root::HostRoot;
use crate::linux::{atomic_file, sysfs};

/// Separator in the names of files. IDs of containers and names of interfaces cannot contain it.
const SEPARATOR: char = ':';
/// Last part of the name of an attachment without a device.
const NO_DEVICE: &str = "-";
const REMEDY: &str =
    "remove the file, so that its pod can be deleted, then check name, MAC and settings of the device";
const REMEDY_FOR_VERSION: &str = "install the version of vfleet that wrote it";

/// Returns the name of the journal of an attachment.
pub(in crate::linux) fn file_name(key: &AttachmentKey) -> String {
    let AttachmentKey { plugin, container_id, interface, device } = key;
    let device = device.map_or_else(|| NO_DEVICE.to_owned(), |device| device.to_string());
    format!("{}{SEPARATOR}{container_id}{SEPARATOR}{interface}{SEPARATOR}{device}", plugin.name())
}

/// Parses the name of a journal; `None` for other files, such as drafts of journals.
pub(in crate::linux) fn parse_file_name(name: &str) -> Option<AttachmentKey> {
    let mut parts = name.splitn(4, SEPARATOR);
    let (plugin, container_id, interface) = (parts.next()?, parts.next()?, parts.next()?);
    let key = AttachmentKey {
        plugin: Plugin::find(plugin)?,
        container_id: container_id.to_owned(),
        interface: interface.to_owned(),
        device: match parts.next()? {
            NO_DEVICE => None,
            device => Some(device.parse().ok()?),
        },
    };
    // A name has one form.
    (is_file_name(name) && file_name(&key) == name).then_some(key)
}

/// Returns whether a name stays in its directory, and is not the name of a draft.
pub(super) fn is_file_name(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\0'])
}

fn path(root: &HostRoot, key: &AttachmentKey) -> Result<PathBuf, HostError> {
    let name = file_name(key);
    let path = root.journals().join(&name);
    if parse_file_name(&name).as_ref() == Some(key) {
        Ok(path)
    } else {
        Err(HostError::PathNotAllowed { path })
    }
}

/// Lists the attachments that have a journal, sorted. Reads no journal.
pub(super) fn list(root: &HostRoot) -> Result<Vec<AttachmentKey>, HostError> {
    let names = sysfs::list_names_if_exists(&root.journals())?;
    let mut keys: Vec<_> = names.iter().filter_map(|name| parse_file_name(name)).collect();
    keys.sort();
    Ok(keys)
}

/// Reads a journal; `None` if there is none.
pub(super) fn read(root: &HostRoot, key: &AttachmentKey) -> Result<Option<Journal>, HostError> {
    let path = path(root, key)?;
    let Some(bytes) = atomic_file::read(&path)? else { return Ok(None) };
    match parse_journal(&bytes) {
        Ok(journal) if journal.key == *key => Ok(Some(journal)),
        Ok(journal) => {
            let source = format!("it belongs to {}", file_name(&journal.key)).into();
            Err(HostError::DamagedJournal { path, remedy: REMEDY.to_owned(), source })
        }
        Err(source) => {
            let is_of_other_version = source.is::<OtherVersion>();
            let remedy = if is_of_other_version { REMEDY_FOR_VERSION } else { REMEDY }.to_owned();
            Err(HostError::DamagedJournal { path, remedy, source })
        }
    }
}

/// Error of a journal that another version of vfleet wrote. The rest of its content is unknown.
#[derive(Debug, Error)]
#[error("it has the unknown version {0}")]
struct OtherVersion(u64);

/// Parses a journal of a known version.
pub(in crate::linux) fn parse_journal(bytes: &[u8]) -> Result<Journal, Box<dyn Error + Send + Sync>> {
    let value: Value = serde_json::from_slice(bytes)?;
    let version = value.get("version").and_then(Value::as_u64);
    if let Some(other) = version.filter(|version| *version != u64::from(JOURNAL_VERSION)) {
        return Err(OtherVersion(other).into());
    }
    Ok(serde_json::from_value(value)?)
}

/// Writes a journal, so that it survives a crash of the machine.
pub(super) fn write(root: &HostRoot, journal: &Journal) -> Result<(), HostError> {
    let path = path(root, &journal.key)?;
    let bytes = serde_json::to_vec(journal)
        .map_err(|source| sysfs::failed("write to", &path, std::io::Error::other(source)))?;
    atomic_file::create_private_directory(&root.journals())?;
    atomic_file::replace(&path, &bytes, atomic_file::PRIVATE)
}

/// Checks that journals can be written, with a file that is no journal. Runtimes check several networks at once, so that each
/// check has a file of its own.
pub(super) fn check_storage(root: &HostRoot) -> Result<(), HostError> {
    let path = root.journals().join(format!(".check-{}", gettid()));
    atomic_file::create_private_directory(&root.journals())?;
    atomic_file::replace(&path, b"check", atomic_file::PRIVATE)?;
    atomic_file::remove(&path)
}

/// Removes a journal, if there is one.
pub(super) fn remove(root: &HostRoot, key: &AttachmentKey) -> Result<(), HostError> {
    atomic_file::remove(&path(root, key)?)
}

#[cfg(test)]
#[path = "journals/tests.rs"]
mod tests;
