//! Atomic writes of files: after a crash a file has either its old or its new content.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::sysfs;
use crate::HostError;

/// Mode of a file that everybody may read.
pub(super) const PUBLIC: u32 = 0o644;
/// Mode of a program that everybody may run.
pub(super) const PROGRAM: u32 = 0o755;
/// Mode of a file that only root may read.
pub(super) const PRIVATE: u32 = 0o600;
/// Size of the buffer for comparing two files.
const CHUNK: usize = 1 << 16;
/// Mode of directories.
const DIRECTORY: u32 = 0o755;
/// Mode of a directory that only root may read.
const PRIVATE_DIRECTORY: u32 = 0o700;

/// Writes `bytes` to a private file that does not exist, or has another content, and verifies the result. Its directory, if it is
/// missing, is created by `create_directory`.
pub(super) fn write_private(
    path: &Path,
    bytes: &[u8],
    create_directory: impl FnOnce() -> Result<(), HostError>,
) -> Result<(), HostError> {
    let draft = draft_path(path);
    let write = || -> io::Result<bool> {
        let mut written = create(&draft, PRIVATE)?;
        written.write_all(bytes)?;
        written.sync_all()?;
        has_content(&written, bytes)
    };
    let written = match write() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            create_directory()?;
            write()
        }
        written => written,
    };
    match written {
        Ok(true) => {}
        Ok(false) => return Err(not_verified(&draft, PRIVATE)),
        Err(source) => {
            // A full disk has no space for parts of files.
            let _ = fs::remove_file(&draft);
            return Err(sysfs::failed("write to", &draft, source));
        }
    }
    fs::rename(&draft, path).map_err(|source| sysfs::failed("rename a file to", path, source))?;
    sync(&directory_of(path))
}

/// Writes `bytes` to the private file at `path`, which others may see empty or cut off meanwhile, and verifies the result.
pub(super) fn write_in_place(path: &Path, bytes: &[u8]) -> Result<(), HostError> {
    let write = || -> io::Result<bool> {
        let mut written = create(path, PRIVATE)?;
        written.write_all(bytes)?;
        has_content(&written, bytes)
    };
    match write() {
        Ok(true) => Ok(()),
        Ok(false) => Err(not_verified(path, PRIVATE)),
        Err(source) => Err(sysfs::failed("write to", path, source)),
    }
}

/// Returns whether an open file begins with this content.
pub(super) fn has_content(file: &File, bytes: &[u8]) -> io::Result<bool> {
    let mut found = vec![0; bytes.len()];
    file.read_exact_at(&mut found, 0)?;
    Ok(found == bytes)
}

/// Writes `bytes` to the file at `path` and verifies the result. A file that is up to date is left alone.
pub(super) fn replace(path: &Path, bytes: &[u8], mode: u32) -> Result<(), HostError> {
    let is_up_to_date = || Ok(read(path)?.as_deref() == Some(bytes) && has_mode(path, mode)?);
    write_if_needed(path, mode, is_up_to_date, |draft| draft.write_all(bytes))
}

/// Like [`replace`], with the content of the file at `source`, which may be large.
pub(super) fn copy(source: &Path, path: &Path, mode: u32) -> Result<(), HostError> {
    let is_up_to_date = || is_copy(source, path, mode);
    write_if_needed(path, mode, is_up_to_date, |draft| io::copy(&mut File::open(source)?, draft).map(drop))
}

/// Returns whether the file at `path` has the content of the file at `source`, and this mode.
pub(super) fn is_copy(source: &Path, path: &Path, mode: u32) -> Result<bool, HostError> {
    let is_same = is_same_content(source, path).map_err(|error| sysfs::failed("compare", path, error))?;
    Ok(is_same && has_mode(path, mode)?)
}

/// Writes the file at `path` with `fill`, unless it is up to date.
fn write_if_needed(
    path: &Path,
    mode: u32,
    is_up_to_date: impl Fn() -> Result<bool, HostError>,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
) -> Result<(), HostError> {
    if is_up_to_date()? {
        return Ok(());
    }
    let directory = directory_of(path);
    create_directory(&directory).map_err(|source| sysfs::failed("create", &directory, source))?;
    let draft = draft_path(path);
    let write = || -> io::Result<()> {
        let mut written = create(&draft, mode)?;
        fill(&mut written)?;
        written.sync_all()
    };
    if let Err(source) = write() {
        // A full disk has no space for parts of files.
        let _ = fs::remove_file(&draft);
        return Err(sysfs::failed("write to", &draft, source));
    }
    fs::rename(&draft, path).map_err(|source| sysfs::failed("rename a file to", path, source))?;
    sync(&directory)?;
    if is_up_to_date()? { Ok(()) } else { Err(not_verified(path, mode)) }
}

/// Removes the file at `path`, if it exists.
pub(super) fn remove(path: &Path) -> Result<(), HostError> {
    if remove_unsynced(path)? { sync(&directory_of(path)) } else { Ok(()) }
}

/// Like [`remove`], for a file that may be there again after a crash of the machine. Returns whether it existed.
pub(super) fn remove_unsynced(path: &Path) -> Result<bool, HostError> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if is_absent(&error) => Ok(false),
        Err(source) => Err(sysfs::failed("remove", path, source)),
    }
}

/// Removes the draft of the file at `path` that a killed writer left, if there is one.
pub(super) fn remove_draft(path: &Path) -> Result<(), HostError> {
    remove(&draft_path(path))
}

/// Reads a file; `None` if it does not exist.
pub(super) fn read(path: &Path) -> Result<Option<Vec<u8>>, HostError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if is_absent(&error) => Ok(None),
        Err(source) => Err(sysfs::failed("read", path, source)),
    }
}

/// Like [`read`], as text. Invalid UTF-8 is replaced: such a file still differs from every text of ours.
pub(super) fn read_text(path: &Path) -> Result<Option<String>, HostError> {
    Ok(read(path)?.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn has_mode(path: &Path, mode: u32) -> Result<bool, HostError> {
    let metadata = fs::symlink_metadata(path).map_err(|source| sysfs::failed("read", path, source))?;
    Ok(metadata.is_file() && metadata.permissions().mode() & 0o7777 == mode)
}

fn is_same_content(one: &Path, other: &Path) -> io::Result<bool> {
    let (Ok(this), Ok(that)) = (File::open(one), File::open(other)) else { return Ok(false) };
    if this.metadata()?.len() != that.metadata()?.len() {
        return Ok(false);
    }
    let (mut this, mut that) = (BufReader::with_capacity(CHUNK, this), BufReader::with_capacity(CHUNK, that));
    loop {
        let (left, right) = (this.fill_buf()?, that.fill_buf()?);
        let length = left.len().min(right.len());
        if left[..length] != right[..length] {
            return Ok(false);
        }
        if length == 0 {
            return Ok(left.len() == right.len());
        }
        this.consume(length);
        that.consume(length);
    }
}

fn not_verified(path: &Path, mode: u32) -> HostError {
    HostError::NotVerified {
        attempt: format!("write {}", path.display()),
        expected: format!("the written content with mode {mode:o}"),
        found: "different content, another program may have changed the file".to_owned(),
    }
}

fn directory_of(path: &Path) -> PathBuf {
    path.parent().unwrap_or(Path::new("/")).to_owned()
}

fn draft_path(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.tmp"))
}

/// Creates a directory and its missing parents. Everybody may read them, regardless of the umask; files restrict access
/// by their own mode. Existing directories are left alone.
pub(super) fn create_directory(directory: &Path) -> io::Result<()> {
    create_directory_with(directory, DIRECTORY)
}

/// Like [`create_directory`], for a directory that only root may read.
pub(super) fn create_private_directory(directory: &Path) -> Result<(), HostError> {
    create_directory_with(directory, PRIVATE_DIRECTORY)
        .map_err(|source| sysfs::failed("create", directory, source))
}

fn create_directory_with(directory: &Path, mode: u32) -> io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    create_directory(&directory_of(directory))?;
    match fs::create_dir(directory) {
        Ok(()) => fs::set_permissions(directory, Permissions::from_mode(mode)),
        // Another process created it meanwhile.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && directory.is_dir() => Ok(()),
        Err(error) => Err(error),
    }
}

fn create(path: &Path, mode: u32) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(true).mode(mode).open(path)?;
    // The umask may have removed permissions, and an earlier draft may have had others.
    if file.metadata()?.permissions().mode() & 0o7777 != mode {
        file.set_permissions(Permissions::from_mode(mode))?;
    }
    Ok(file)
}

fn sync(directory: &Path) -> Result<(), HostError> {
    let sync = || File::open(directory)?.sync_all();
    sync().map_err(|source| sysfs::failed("sync", directory, source))
}
