//! Locks of devices, shared with the Go plugin: the same lock files, locked the same way (flock). The kernel releases a
//! lock when its holder ends, also after a crash.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use vfleet_api::PciAddress;

use super::go_files;
use crate::HostError;
use crate::attachment::{DeviceLock, DeviceLockError};
use crate::linux::lock::{open_in_directory, read_holder, write_holder};
use crate::linux::root::HostRoot;

/// Holder that does not write its name: the Go plugin.
const UNNAMED: &str = "another CNI plugin";

/// Locked file of a device.
#[derive(Debug)]
struct LockedFile(File);

impl Drop for LockedFile {
    fn drop(&mut self) {
        // The Go plugin would not replace the name. A name that stays only makes an error less exact.
        let _ = self.0.set_len(0);
    }
}

/// Locks a device. Waits for another holder for at most `limit`.
pub(super) fn lock(
    root: &HostRoot,
    device: PciAddress,
    holder: &str,
    limit: Duration,
) -> Result<DeviceLock, DeviceLockError> {
    let path = go_files::lock_path(root, device);
    let failed = |source| DeviceLockError::Failed { path: path.clone(), source };
    let file = open(root, &path).map_err(failed)?;
    let Some(file) = lock_file(file, limit).map_err(failed)? else {
        let holder = current_holder(&path).map_err(failed)?;
        return Err(DeviceLockError::Busy { device, holder, after: limit });
    };
    if let Err(error) = write_holder(&file, holder) {
        // The device is locked nevertheless, and a full disk must not prevent a release.
        tracing::warn!(%error, path = %path.display(), "the holder of a lock cannot be recorded for the errors of others");
    }
    Ok(DeviceLock::new(LockedFile(file)))
}

/// Opens the lock file of a device. Creates the directories if they are missing.
fn open(root: &HostRoot, path: &Path) -> io::Result<File> {
    match open_in_directory(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            go_files::create_directories(root).map_err(into_io_error)?;
            open_in_directory(path)
        }
        opened => opened,
    }
}

/// Locks a file; `None` if another process holds the lock for longer than `limit`.
fn lock_file(file: File, limit: Duration) -> io::Result<Option<File>> {
    match file.try_lock() {
        Ok(()) => return Ok(Some(file)),
        Err(TryLockError::WouldBlock) if limit.is_zero() => return Ok(None),
        Err(TryLockError::WouldBlock) => {}
        Err(TryLockError::Error(error)) => return Err(error),
    }
    // The kernel has no lock with a limit. If the limit is exceeded, the thread ends when it gets the lock, which it
    // releases then, or with the process.
    let (sender, locked) = mpsc::channel();
    let wait = move || {
        let result = file.lock();
        let _ = sender.send(result.map(|()| file));
    };
    thread::Builder::new().name("device-lock".to_owned()).spawn(wait)?;
    locked.recv_timeout(limit).ok().transpose()
}

fn current_holder(path: &Path) -> io::Result<String> {
    Ok(read_holder(&mut File::open(path)?, UNNAMED))
}

fn into_io_error(error: HostError) -> io::Error {
    match error {
        HostError::Io { source, .. } => source,
        error => io::Error::other(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::test_tree::TestTree;

    const LOCK: &str = "/var/lib/cni/sriov/pci/vf_lock/0000:01:10.0.lock";
    const LIMIT: Duration = Duration::from_millis(20);

    fn device() -> PciAddress {
        "0000:01:10.0".parse().unwrap()
    }

    fn busy(tree: &TestTree) -> String {
        match lock(tree.root(), device(), "second", LIMIT) {
            Err(error @ DeviceLockError::Busy { .. }) => error.to_string(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_second_lock_fails_and_names_the_holder_until_the_first_is_dropped() {
        let tree = TestTree::new();
        let first = lock(tree.root(), device(), "ADD of pod default/a", LIMIT).unwrap();
        let holder = format!("ADD of pod default/a (process {})", std::process::id());
        assert_eq!(busy(&tree), format!("0000:01:10.0 was locked by {holder} for 20ms: try again later"));
        let other = lock(tree.root(), "0000:01:10.1".parse().unwrap(), "x", LIMIT).unwrap();
        drop((first, other));
        assert_eq!(tree.read(LOCK), "", "no name of a holder that has ended");
        // The waiting thread of the failed attempt may have the lock for a moment.
        drop(lock(tree.root(), device(), "third", Duration::from_secs(10)).unwrap());
    }

    #[test]
    fn the_lock_of_a_go_plugin_is_respected_and_awaited() {
        let tree = TestTree::new();
        tree.write(LOCK, "");
        let go = File::open(tree.path(LOCK)).unwrap();
        go.lock().unwrap();
        assert!(busy(&tree).contains("another CNI plugin"));
        thread::scope(|scope| {
            let waiting = scope.spawn(|| lock(tree.root(), device(), "ours", Duration::from_secs(10)));
            go.unlock().unwrap();
            drop(waiting.join().unwrap().unwrap());
        });
    }

    #[test]
    fn a_device_can_be_locked_on_a_full_disk() {
        let tree = TestTree::new();
        tree.write(LOCK, "");
        std::fs::remove_file(tree.path(LOCK)).unwrap();
        std::os::unix::fs::symlink("/dev/full", tree.path(LOCK)).unwrap();
        let held = lock(tree.root(), device(), "DEL", LIMIT).unwrap();
        assert!(matches!(lock(tree.root(), device(), "x", LIMIT), Err(DeviceLockError::Busy { .. })));
        drop(held);
    }

    #[test]
    fn a_lock_file_that_cannot_be_created_is_an_error_with_its_path() {
        let tree = TestTree::new();
        tree.write("/var/lib/cni/sriov", "a file in place of the directory");
        let error = lock(tree.root(), device(), "x", LIMIT).unwrap_err();
        assert!(
            matches!(&error, DeviceLockError::Failed { path, .. } if path.ends_with("0000:01:10.0.lock"))
        );
    }
}
