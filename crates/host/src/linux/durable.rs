//! Files that survive a crash: at any moment there is either the old text or the new one, and never a half.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::sysfs;
use crate::HostError;

/// For everybody to read.
pub(super) const PUBLIC: u32 = 0o644;
/// For everybody to run.
pub(super) const PROGRAM: u32 = 0o755;
/// For root alone.
pub(super) const PRIVATE: u32 = 0o600;
/// How much of two files is compared at once.
const CHUNK: usize = 1 << 16;
/// What a directory that we make is like, whatever is in it.
const DIRECTORY: u32 = 0o755;

/// Puts `bytes` into the file at `path`, and has read them back when it returns. A file that is like that already is
/// left alone.
pub(super) fn replace(path: &Path, bytes: &[u8], mode: u32) -> Result<(), HostError> {
    let is_there = || Ok(read(path)?.as_deref() == Some(bytes) && has_mode(path, mode)?);
    put(path, mode, is_there, |draft| draft.write_all(bytes))
}

/// Like [`replace`], with what is in the file at `source`, which may be large.
pub(super) fn copy(source: &Path, path: &Path, mode: u32) -> Result<(), HostError> {
    let is_there = || is_copy(source, path, mode);
    put(path, mode, is_there, |draft| io::copy(&mut File::open(source)?, draft).map(drop))
}

/// Whether the file at `path` has what is in the file at `source`, and this mode.
pub(super) fn is_copy(source: &Path, path: &Path, mode: u32) -> Result<bool, HostError> {
    let is_same = is_same_content(source, path).map_err(|error| sysfs::failed("compare", path, error))?;
    Ok(is_same && has_mode(path, mode)?)
}

/// Has the file at `path` filled by `fill`, unless what shall be is there.
fn put(
    path: &Path,
    mode: u32,
    is_there: impl Fn() -> Result<bool, HostError>,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
) -> Result<(), HostError> {
    if is_there()? {
        return Ok(());
    }
    let directory = directory_of(path);
    make_directory(&directory).map_err(|source| sysfs::failed("make", &directory, source))?;
    let draft = draft_of(path);
    let write = || -> io::Result<()> {
        let mut written = create(&draft, mode)?;
        fill(&mut written)?;
        written.sync_all()
    };
    write().map_err(|source| sysfs::failed("write to", &draft, source))?;
    fs::rename(&draft, path).map_err(|source| sysfs::failed("rename a file to", path, source))?;
    sync(&directory)?;
    if is_there()? { Ok(()) } else { Err(unverified(path, mode)) }
}

/// Removes the file at `path`. There may be none.
pub(super) fn remove(path: &Path) -> Result<(), HostError> {
    match fs::remove_file(path) {
        Ok(()) => sync(&directory_of(path)),
        Err(error) if is_absent(&error) => Ok(()),
        Err(source) => Err(sysfs::failed("remove", path, source)),
    }
}

/// What the file says; `None` when there is none.
pub(super) fn read(path: &Path) -> Result<Option<Vec<u8>>, HostError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if is_absent(&error) => Ok(None),
        Err(source) => Err(sysfs::failed("read", path, source)),
    }
}

/// Like [`read`], as text. What is no UTF-8 is made so: it is no text of ours then, and differs from ours still.
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

fn unverified(path: &Path, mode: u32) -> HostError {
    HostError::Unverified {
        attempt: format!("write {}", path.display()),
        expected: format!("what was written, with mode {mode:o}"),
        found: "something else, as if somebody else wrote there too".to_owned(),
    }
}

fn directory_of(path: &Path) -> PathBuf {
    path.parent().unwrap_or(Path::new("/")).to_owned()
}

fn draft_of(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.tmp"))
}

/// All that is missing of the path, for everybody to look into: a file that is for root alone says so itself. The mask of
/// the process does not count, and what is there is left as it is.
pub(super) fn make_directory(directory: &Path) -> io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    make_directory(&directory_of(directory))?;
    match fs::create_dir(directory) {
        Ok(()) => fs::set_permissions(directory, Permissions::from_mode(DIRECTORY)),
        // Somebody else made it a moment ago.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && directory.is_dir() => Ok(()),
        Err(error) => Err(error),
    }
}

fn create(path: &Path, mode: u32) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(path)?;
    // The mask of the process may have taken rights away, and an earlier draft may have had others.
    file.set_permissions(Permissions::from_mode(mode))?;
    Ok(file)
}

fn sync(directory: &Path) -> Result<(), HostError> {
    let sync = || File::open(directory)?.sync_all();
    sync().map_err(|source| sysfs::failed("sync", directory, source))
}
