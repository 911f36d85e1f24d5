//! Files in sysfs. Every error names the file.
//!
//! Errors of the kernel are classified once ([`classify`]): devices of another kind are skipped, a read during which a
//! device vanished is repeated ([`super::stable_read`]), and only the rest is a failure.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use crate::HostError;

const ENOENT: i32 = 2;
const ENXIO: i32 = 6;
const ENODEV: i32 = 19;
const ENOTDIR: i32 = 20;
const EINVAL: i32 = 22;
const ENODATA: i32 = 61;
const EOPNOTSUPP: i32 = 95;

/// Initial size of the buffer for a file: an attribute in sysfs is at most as large.
const PAGE: usize = 4096;

/// Class of an error of the kernel for a device or file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ErrorClass {
    /// The device is gone, or was renamed. The list that named it has to be read again.
    Vanished,
    /// The driver does not support the value.
    Unsupported,
    /// Not a device, such as the file `bonding_masters` among the interfaces.
    Foreign,
    /// The interface is being unregistered, or its driver does not support the value: both return the same error.
    Ambiguous,
    /// Any other failure.
    Failure,
}

/// Returns the class of an error of the kernel.
pub(super) fn classify(error: &io::Error) -> ErrorClass {
    match error.raw_os_error() {
        Some(ENOENT | ENODEV | ENXIO) => ErrorClass::Vanished,
        None if error.kind() == ErrorKind::NotFound => ErrorClass::Vanished,
        Some(ENODATA | EOPNOTSUPP) => ErrorClass::Unsupported,
        Some(ENOTDIR) => ErrorClass::Foreign,
        Some(EINVAL) => ErrorClass::Ambiguous,
        _ => ErrorClass::Failure,
    }
}

/// Returns whether something vanished or changed during the read, so that a second read may succeed.
pub(super) fn has_vanished(error: &HostError) -> bool {
    match error {
        HostError::ConcurrentChange { .. } => true,
        HostError::Io { source, .. } | HostError::Netlink { source, .. } => {
            classify(source) == ErrorClass::Vanished
        }
        _ => false,
    }
}

/// Reads a file and parses it with `parse`. Text that `parse` rejects is an error.
pub(super) fn read_as<T>(
    path: &Path,
    expected: &'static str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<T, HostError> {
    let text = read(path).map_err(|source| failed("read", path, source))?;
    parse(&text).ok_or_else(|| HostError::InvalidContent { path: path.to_owned(), found: text, expected })
}

/// Like [`read_as`], for a file that not every device has.
pub(super) fn read_if_exists<T>(
    path: &Path,
    expected: &'static str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, HostError> {
    none_if_not_found(read_as(path, expected, parse))
}

/// Converts the error of a missing file to `None`.
pub(super) fn none_if_not_found<T>(read: Result<T, HostError>) -> Result<Option<T>, HostError> {
    match read {
        Err(HostError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}

/// Like [`read_as`], for a file that every interface has: if the kernel returns no value, the interface is being
/// unregistered, which is a [`HostError::ConcurrentChange`].
pub(super) fn read_of_interface<T>(
    path: &Path,
    expected: &'static str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<T, HostError> {
    read_as(path, expected, parse).map_err(|error| match error {
        HostError::Io { source, path, .. } if classify(&source) == ErrorClass::Ambiguous => {
            HostError::ConcurrentChange {
                subject: format!("{} (of an interface that is being removed)", path.display()),
            }
        }
        error => error,
    })
}

/// Reads a file that not every kernel has and not every driver supports.
pub(super) fn read_if_supported(path: &Path) -> Result<Option<String>, HostError> {
    match read(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error)
            if matches!(
                classify(&error),
                ErrorClass::Unsupported | ErrorClass::Foreign | ErrorClass::Ambiguous
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(failed("read", path, error)),
    }
}

/// Reads a file without trailing white space. Invalid UTF-8 is replaced; no valid value contains it.
pub(super) fn read(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::with_capacity(PAGE);
    // Without a limit, the library would ask for the size of the file first, which the kernel does not know.
    File::open(path)?.take(u64::MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).trim_end().to_owned())
}

/// Writes to an existing file in one call, as sysfs requires.
pub(super) fn write(path: &Path, text: &str) -> Result<(), HostError> {
    let write = || OpenOptions::new().write(true).truncate(true).open(path)?.write_all(text.as_bytes());
    write().map_err(|source| failed("write to", path, source))
}

/// Returns the file name of the target of a symbolic link; `None` if there is no link.
pub(super) fn target_name(link: &Path) -> Result<Option<String>, HostError> {
    match fs::read_link(link) {
        Ok(target) => Ok(target.file_name().map(|name| name.to_string_lossy().into_owned())),
        Err(source) if source.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(failed("follow", link, source)),
    }
}

/// Lists the names in a directory, sorted. Names that are not UTF-8 are left out: all names of interest are ASCII.
pub(super) fn list_names(directory: &Path) -> Result<Vec<String>, HostError> {
    Ok(file_names(&list_paths(directory)?))
}

/// Like [`list_names`], for a directory that not every device has.
pub(super) fn list_names_if_exists(directory: &Path) -> Result<Vec<String>, HostError> {
    Ok(file_names(&list_paths_if_exists(directory)?))
}

fn file_names(paths: &[PathBuf]) -> Vec<String> {
    paths.iter().filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect()
}

/// Lists the paths in a directory, sorted. The name of an interface may contain any bytes.
pub(super) fn list_paths(directory: &Path) -> Result<Vec<PathBuf>, HostError> {
    let list = || fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>();
    let mut paths = list().map_err(|source| failed("list", directory, source))?;
    paths.sort();
    Ok(paths)
}

/// Like [`list_paths`], for a directory that not every device has.
pub(super) fn list_paths_if_exists(directory: &Path) -> Result<Vec<PathBuf>, HostError> {
    Ok(none_if_not_found(list_paths(directory))?.unwrap_or_default())
}

/// Returns the error of a file operation.
pub(super) fn failed(attempt: &'static str, path: &Path, source: io::Error) -> HostError {
    HostError::Io { attempt, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    /// File that returns EINVAL, as all files of an interface that is being unregistered do.
    const EINVAL_FILE: &str = "/sys/class/net/lo/speed";

    fn refused(errno: i32) -> HostError {
        failed("read", Path::new("/sys/x"), io::Error::from_raw_os_error(errno))
    }

    #[test]
    fn vanished_devices_and_failures_are_distinguished() {
        for errno in [ENOENT, ENXIO, ENODEV] {
            assert!(has_vanished(&refused(errno)), "{errno}");
        }
        assert!(has_vanished(&failed("follow", Path::new("/sys/x"), ErrorKind::NotFound.into())));
        assert!(has_vanished(&HostError::ConcurrentChange { subject: "x".to_owned() }));
        let (eacces, eio) = (13, 5);
        for errno in [eacces, eio, ENOTDIR, EINVAL, ENODATA, EOPNOTSUPP] {
            assert!(!has_vanished(&refused(errno)), "{errno}");
        }
        assert_eq!(classify(&io::Error::from_raw_os_error(eio)), ErrorClass::Failure);
    }

    #[test]
    fn an_interface_that_is_being_unregistered_counts_as_vanished() {
        let error = read_of_interface(Path::new(EINVAL_FILE), "an index", |_| Some(())).unwrap_err();
        assert!(has_vanished(&error) && error.to_string().contains(EINVAL_FILE), "{error}");
        assert!(!has_vanished(&read_as(Path::new(EINVAL_FILE), "an index", |_| Some(())).unwrap_err()));
        assert_eq!(read_if_supported(Path::new(EINVAL_FILE)).unwrap(), None);
    }

    #[test]
    fn a_file_among_the_interfaces_has_no_value() {
        let directory = tempfile::tempdir().unwrap();
        let masters = directory.path().join("bonding_masters");
        fs::write(&masters, "bond0\n").unwrap();
        assert_eq!(read_if_supported(&masters.join("phys_switch_id")).unwrap(), None);
    }

    #[test]
    fn names_that_are_not_utf8_are_listed_as_paths_only() {
        let directory = tempfile::tempdir().unwrap();
        for name in [&b"eth0"[..], b"eth\xff"] {
            fs::write(directory.path().join(OsStr::from_bytes(name)), "").unwrap();
        }
        assert_eq!(list_names(directory.path()).unwrap(), ["eth0"]);
        let paths = list_paths(directory.path()).unwrap();
        assert!(paths.len() == 2 && paths.iter().all(|path| path.exists()), "{paths:?}");
        assert!(list_paths_if_exists(&directory.path().join("none")).unwrap().is_empty());
    }
}
