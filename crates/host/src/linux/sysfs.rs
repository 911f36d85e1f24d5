//! Reading and writing the kernel's files. Every error names the file.
//!
//! One rule for answers other than the one that was asked for ([`meaning`]): what is not ours is skipped, what vanishes is
//! looked for again ([`super::settle`]), and only the rest is an error.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use crate::HostError;

const ENOENT: i32 = 2;
const ENXIO: i32 = 6;
const ENODEV: i32 = 19;
const ENOTDIR: i32 = 20;
const EINVAL: i32 = 22;
const ENODATA: i32 = 61;
const EOPNOTSUPP: i32 = 95;

/// Meaning of an error for the device or file that was asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// It is gone, or has another name by now. Whoever listed it lists again.
    Vanished,
    /// Its driver has nothing to say.
    Silent,
    /// It is of another kind than the devices around it, as `bonding_masters` is among the interfaces.
    Foreign,
    /// Every file of an interface that is being unregistered answers so, and some drivers that have nothing to say.
    Ambiguous,
    /// A failure.
    Fault,
}

/// Returns what an error of the kernel means.
pub(super) fn meaning(error: &io::Error) -> Meaning {
    match error.raw_os_error() {
        Some(ENOENT | ENODEV | ENXIO) => Meaning::Vanished,
        None if error.kind() == ErrorKind::NotFound => Meaning::Vanished,
        Some(ENODATA | EOPNOTSUPP) => Meaning::Silent,
        Some(ENOTDIR) => Meaning::Foreign,
        Some(EINVAL) => Meaning::Ambiguous,
        _ => Meaning::Fault,
    }
}

/// Returns whether it may be otherwise a moment later: something vanished or changed while it was read.
pub(super) fn has_vanished(error: &HostError) -> bool {
    match error {
        HostError::Unsettled { .. } => true,
        HostError::Io { source, .. } | HostError::Netlink { source, .. } => {
            meaning(source) == Meaning::Vanished
        }
        _ => false,
    }
}

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
    if_there(read_as(path, expected, parse))
}

/// Returns what was read; `None` of a file that there is none of.
pub(super) fn if_there<T>(read: Result<T, HostError>) -> Result<Option<T>, HostError> {
    match read {
        Err(HostError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}

/// Like [`read_as`], for a file that an interface has whatever its driver: without an answer, the interface is being
/// unregistered.
pub(super) fn read_of_interface<T>(
    path: &Path,
    expected: &'static str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<T, HostError> {
    read_as(path, expected, parse).map_err(|error| match error {
        HostError::Io { source, path, .. } if meaning(&source) == Meaning::Ambiguous => {
            HostError::Unsettled { what: format!("{}, of an interface that is going away,", path.display()) }
        }
        error => error,
    })
}

/// Reads a file about which a driver may have nothing to say, and which not every kernel has.
pub(super) fn read_if_said(path: &Path) -> Result<Option<String>, HostError> {
    match read(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) if matches!(meaning(&error), Meaning::Silent | Meaning::Foreign | Meaning::Ambiguous) => {
            Ok(None)
        }
        Err(error) => Err(failed("read", path, error)),
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

/// The names in a directory, sorted. Names that are not UTF-8 are not ours: every name that is looked for is ASCII.
pub(super) fn names(directory: &Path) -> Result<Vec<String>, HostError> {
    Ok(names_of(&entries(directory)?))
}

/// Like [`names`], of a directory that not every device has.
pub(super) fn names_if_there(directory: &Path) -> Result<Vec<String>, HostError> {
    Ok(names_of(&entries_if_there(directory)?))
}

fn names_of(entries: &[PathBuf]) -> Vec<String> {
    entries.iter().filter_map(|entry| Some(entry.file_name()?.to_str()?.to_owned())).collect()
}

/// The paths of all that is in a directory, sorted. An interface can have any bytes for a name.
pub(super) fn entries(directory: &Path) -> Result<Vec<PathBuf>, HostError> {
    let list = || fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>();
    let mut entries = list().map_err(|source| failed("list", directory, source))?;
    entries.sort();
    Ok(entries)
}

/// Like [`entries`], of a directory that not every device has.
pub(super) fn entries_if_there(directory: &Path) -> Result<Vec<PathBuf>, HostError> {
    Ok(if_there(entries(directory))?.unwrap_or_default())
}

pub(super) fn failed(attempt: &'static str, path: &Path, source: io::Error) -> HostError {
    HostError::Io { attempt, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    /// The loopback has no speed, and says so as an interface that is being unregistered says anything.
    const ANSWERS_EINVAL: &str = "/sys/class/net/lo/speed";

    fn refused(errno: i32) -> HostError {
        failed("read", Path::new("/sys/x"), io::Error::from_raw_os_error(errno))
    }

    #[test]
    fn what_vanishes_is_told_from_what_fails() {
        for errno in [ENOENT, ENXIO, ENODEV] {
            assert!(has_vanished(&refused(errno)), "{errno}");
        }
        assert!(has_vanished(&failed("follow", Path::new("/sys/x"), ErrorKind::NotFound.into())));
        assert!(has_vanished(&HostError::Unsettled { what: "it".to_owned() }));
        let (eacces, eio) = (13, 5);
        for errno in [eacces, eio, ENOTDIR, EINVAL, ENODATA, EOPNOTSUPP] {
            assert!(!has_vanished(&refused(errno)), "{errno}");
        }
        assert_eq!(meaning(&io::Error::from_raw_os_error(eio)), Meaning::Fault);
    }

    #[test]
    fn an_interface_that_is_being_unregistered_has_vanished() {
        let error = read_of_interface(Path::new(ANSWERS_EINVAL), "an index", |_| Some(())).unwrap_err();
        assert!(has_vanished(&error) && error.to_string().contains(ANSWERS_EINVAL), "{error}");
        assert!(!has_vanished(&read_as(Path::new(ANSWERS_EINVAL), "an index", |_| Some(())).unwrap_err()));
        assert_eq!(read_if_said(Path::new(ANSWERS_EINVAL)).unwrap(), None);
    }

    #[test]
    fn a_file_among_the_interfaces_has_nothing_to_say() {
        let directory = tempfile::tempdir().unwrap();
        let masters = directory.path().join("bonding_masters");
        fs::write(&masters, "bond0\n").unwrap();
        assert_eq!(read_if_said(&masters.join("phys_switch_id")).unwrap(), None);
    }

    #[test]
    fn names_that_are_not_utf8_are_listed_as_paths_only() {
        let directory = tempfile::tempdir().unwrap();
        for name in [&b"eth0"[..], b"eth\xff"] {
            fs::write(directory.path().join(OsStr::from_bytes(name)), "").unwrap();
        }
        assert_eq!(names(directory.path()).unwrap(), ["eth0"]);
        let entries = entries(directory.path()).unwrap();
        assert!(entries.len() == 2 && entries.iter().all(|entry| entry.exists()), "{entries:?}");
        assert!(entries_if_there(&directory.path().join("none")).unwrap().is_empty());
    }
}
