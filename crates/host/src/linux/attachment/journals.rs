//! Journals of attachments: one JSON file each, named after its attachment.

mod text;

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use nix::unistd::gettid;
use vfleet_plan::cni::journal::{AttachmentKey, Journal, Plugin};

pub(in crate::linux) use self::text::parse as parse_journal;
use self::text::{JournalText, OtherVersion};
use crate::HostError;
use crate::linux::root::HostRoot;
use crate::linux::{atomic_file, sysfs};

/// Separator in the names of files. IDs of containers and names of interfaces cannot contain it.
const SEPARATOR: char = ':';
/// Usual length of a journal, and the longest one that is updated in place.
const CAPACITY: usize = 4096;
const LIMIT: u64 = 1 << 20;
const REMEDY: &str =
    "remove the file, so that its pod can be deleted, then check name, MAC and settings of the device";
const REMEDY_FOR_VERSION: &str = "install the version of vfleet that wrote it";

/// Returns the name of the journal of an attachment.
pub(in crate::linux) fn file_name(key: &AttachmentKey) -> String {
    let AttachmentKey { plugin, container_id, interface, device } = key;
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
        device: parts.next()?.parse().ok()?,
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
    let read = || Ok(atomic_file::read(&path)?.map(|bytes| parse_journal(&bytes)));
    let parsed = match read()? {
        // Another process may be overwriting the phase in this moment.
        Some(Err(_)) => read()?,
        parsed => parsed,
    };
    match parsed.transpose() {
        Ok(Some(journal)) if journal.key != *key => {
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

/// Writes a journal. The first one of an attachment survives a crash of the machine. An update of its phase, and its result, need
/// not: nothing of an attachment but its addresses survives it, either.
pub(super) fn write(root: &HostRoot, journal: &Journal) -> Result<(), HostError> {
    let path = path(root, &journal.key)?;
    let failed = |source| sysfs::failed("write to", &path, source);
    let text = JournalText::new(journal).map_err(|source| failed(source.into()))?;
    if update(&path, &text).map_err(failed)? {
        return Ok(());
    }
    let create_directory = || atomic_file::create_private_directory(&root.journals());
    atomic_file::write_private(&path, &text.to_bytes(), create_directory)
}

/// Updates a journal in place. Returns false if there is none, or it differs in more than its phase and a new result.
fn update(path: &Path, text: &JournalText) -> io::Result<bool> {
    let file = match OpenOptions::new().read(true).write(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        file => file?,
    };
    let mut old = Vec::with_capacity(CAPACITY);
    (&file).take(LIMIT).read_to_end(&mut old)?;
    let Some(changes) = text.changes_of(&old) else { return Ok(false) };
    changes.iter().try_for_each(|(at, bytes)| file.write_all_at(bytes, *at))?;
    atomic_file::has_content(&file, &text.to_bytes())
}

/// Checks that journals can be written, with a file that is no journal. Runtimes check several networks at once, so that each
/// check has a file of its own.
pub(super) fn check_storage(root: &HostRoot) -> Result<(), HostError> {
    let path = root.journals().join(format!(".check-{}", gettid()));
    atomic_file::create_private_directory(&root.journals())?;
    atomic_file::replace(&path, b"check", atomic_file::PRIVATE)?;
    atomic_file::remove(&path)
}

/// Removes a journal, if there is one. If a crash of the machine brings it back, it is one of an earlier boot.
pub(super) fn remove(root: &HostRoot, key: &AttachmentKey) -> Result<(), HostError> {
    atomic_file::remove_unsynced(&path(root, key)?).map(drop)
}

#[cfg(test)]
#[path = "journals/tests.rs"]
mod tests;
