//! What vfleet wrote down about PFs: one file for each, in JSON.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use vfleet_api::PciAddress;
use vfleet_plan::Record;

use super::root::HostRoot;
use super::sysfs;
use crate::HostError;

const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// All records, by the name of their files: one that is damaged does not stand for others.
pub(super) fn read_all(root: &HostRoot) -> Result<Vec<(String, Result<Record, HostError>)>, HostError> {
    let directory = root.records();
    let names = sysfs::names_if_there(&directory)?;
    // Names with a dot in front are files whose writing was cut off.
    let names = names.into_iter().filter(|name| !name.starts_with('.'));
    Ok(names.map(|name| (name.clone(), read(&directory.join(&name), &name))).collect())
}

fn read(path: &Path, name: &str) -> Result<Record, HostError> {
    let bytes = fs::read(path).map_err(|source| sysfs::failed("read", path, source))?;
    let record: Record = serde_json::from_slice(&bytes)
        .map_err(|source| HostError::Record { path: path.to_owned(), source })?;
    if record.pf.to_string() != name {
        return Err(HostError::Unreadable {
            path: path.to_owned(),
            found: record.pf.to_string(),
            expected: "the address in its file name",
        });
    }
    Ok(record)
}

/// Writes so that a crash at any moment leaves either the old record or the new one.
pub(super) fn write(root: &HostRoot, record: &Record) -> Result<(), HostError> {
    let (directory, name) = (root.records(), record.pf.to_string());
    let (path, draft) = (directory.join(&name), directory.join(format!(".{name}.tmp")));
    let text = serde_json::to_vec_pretty(record)
        .map_err(|source| HostError::Record { path: path.clone(), source })?;
    make_directory(&directory).map_err(|source| sysfs::failed("make", &directory, source))?;
    write_durably(&draft, &text).map_err(|source| sysfs::failed("write to", &draft, source))?;
    fs::rename(&draft, &path).map_err(|source| sysfs::failed("rename a file to", &path, source))?;
    sync(&directory)?;
    let found = read(&path, &name)?;
    if found == *record {
        return Ok(());
    }
    Err(HostError::Unverified {
        attempt: format!("write {}", path.display()),
        expected: format!("{record:?}"),
        found: format!("{found:?}"),
    })
}

/// Forgets a PF. There may be nothing to forget.
pub(super) fn remove(root: &HostRoot, pf: PciAddress) -> Result<(), HostError> {
    let directory = root.records();
    let path = directory.join(pf.to_string());
    match fs::remove_file(&path) {
        Ok(()) => sync(&directory),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(sysfs::failed("remove", &path, source)),
    }
}

/// Our own directories are for root alone. The one above is shared with the Go operator.
fn make_directory(directory: &Path) -> io::Result<()> {
    if let Some(shared) = directory.ancestors().nth(2) {
        fs::create_dir_all(shared)?;
    }
    DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(directory)
}

fn write_durably(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(FILE_MODE).open(path)?;
    file.write_all(text)?;
    file.sync_all()
}

fn sync(directory: &Path) -> Result<(), HostError> {
    let sync = || File::open(directory)?.sync_all();
    sync().map_err(|source| sysfs::failed("sync", directory, source))
}
