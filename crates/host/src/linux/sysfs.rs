//! Reading and writing the kernel's files. Every error names the file.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use crate::HostError;

/// What the file says, parsed by `parse`; what `parse` refuses is an error.
pub(super) fn read_as<T>(
    path: &Path,
    expected: &'static str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<T, HostError> {
    let text = read(path).map_err(|source| failed("read", path, source))?;
    parse(&text).ok_or_else(|| HostError::Unreadable { path: path.to_owned(), found: text, expected })
}

/// Like [`read_as`], for a file that not every device has.
pub(super) fn read_if_there<T>(
    path: &Path,
    expected: &'static str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, HostError> {
    match read_as(path, expected, parse) {
        Err(HostError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}

/// What the file says, without the line's end. What is no UTF-8 is made so: nobody expects it anyway.
pub(super) fn read(path: &Path) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&fs::read(path)?).trim_end().to_owned())
}

/// Writes in one call, as the kernel wants it, to a file that is there.
pub(super) fn write(path: &Path, text: &str) -> Result<(), HostError> {
    let write = || OpenOptions::new().write(true).truncate(true).open(path)?.write_all(text.as_bytes());
    write().map_err(|source| failed("write to", path, source))
}

/// The name of what a symbolic link points to; `None` without a link.
pub(super) fn target_name(link: &Path) -> Result<Option<String>, HostError> {
    match fs::read_link(link) {
        Ok(target) => Ok(target.file_name().map(|name| name.to_string_lossy().into_owned())),
        Err(source) if source.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(failed("follow", link, source)),
    }
}

/// The names in a directory, sorted.
pub(super) fn names(directory: &Path) -> Result<Vec<String>, HostError> {
    let list = || {
        fs::read_dir(directory)?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<io::Result<Vec<_>>>()
    };
    let mut names = list().map_err(|source| failed("list", directory, source))?;
    names.sort();
    Ok(names)
}

/// Like [`names`], of a directory that not every device has.
pub(super) fn names_if_there(directory: &Path) -> Result<Vec<String>, HostError> {
    match names(directory) {
        Err(HostError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        names => names,
    }
}

pub(super) fn failed(attempt: &'static str, path: &Path, source: io::Error) -> HostError {
    HostError::Io { attempt, path: path.to_owned(), source }
}
