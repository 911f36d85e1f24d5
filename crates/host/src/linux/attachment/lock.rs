//! Locks of devices, shared with the Go plugin: the same lock files, locked the same way (flock). The kernel releases a
//! lock when its holder ends, also after a crash.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use vfleet_plan::cni::journal::Plugin;

use super::{go_files, journals};
use crate::HostError;
use crate::attachment::{DeviceLock, DeviceLockError, LockSubject};
use crate::linux::atomic_file;
use crate::linux::lock::{open, read_holder, write_holder};
use crate::linux::root::HostRoot;

/// Holder that does not write its name: the Go plugin.
const UNNAMED: &str = "another CNI plugin";
/// Directory of the locks of attachments without a device, in that of the journals.
const LOCKS: &str = ".locks";

/// Locked file.
#[derive(Debug)]
struct LockedFile {
    file: File,
    /// Path of a file that nobody needs any more.
    removed: Option<PathBuf>,
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // A name that stays only makes an error less exact, and a file that stays is empty.
        let _ = match &self.removed {
            Some(path) => std::fs::remove_file(path),
            // The Go plugin would not replace the name.
            None => self.file.set_len(0),
        };
    }
}

/// Returns the file of a lock, and creates its directory.
fn prepare(root: &HostRoot, subject: &LockSubject) -> (PathBuf, Result<(), HostError>) {
    match subject {
        LockSubject::Device(device) => {
            (go_files::lock_path(root, *device), go_files::create_directories(root))
        }
        LockSubject::Attachment(key) => {
            let directory = root.journals().join(LOCKS);
            let is_created = atomic_file::create_private_directory(&root.journals())
                .and_then(|()| atomic_file::create_private_directory(&directory));
            (directory.join(journals::file_name(key)), is_created)
        }
        LockSubject::UplinkVlans => {
            let directory = root.go_cni(Plugin::AcceleratedBridge.name());
            let is_created = atomic_file::create_private_directory(&directory);
            (directory.join(go_files::UPLINK_LOCK), is_created)
        }
    }
}

/// Locks a subject. Waits for another holder for at most `limit`.
pub(super) fn lock(
    root: &HostRoot,
    subject: &LockSubject,
    holder: &str,
    limit: Duration,
) -> Result<DeviceLock, DeviceLockError> {
    let (path, is_prepared) = prepare(root, subject);
    let failed = |source| DeviceLockError::Failed { path: path.clone(), source };
    is_prepared.map_err(|error| failed(into_io_error(error)))?;
    let started = Instant::now();
    let mut file = loop {
        let file = open(&path).map_err(failed)?;
        let left = limit.saturating_sub(started.elapsed());
        let Some(file) = lock_file(file, left).map_err(failed)? else {
            let holder = current_holder(&path).map_err(failed)?;
            return Err(DeviceLockError::Busy { subject: subject.clone(), holder, after: limit });
        };
        // The holder before may have removed the file meanwhile.
        if is_at(&file, &path).map_err(failed)? {
            break file;
        }
    };
    write_holder(&mut file, holder).map_err(failed)?;
    let removed = matches!(subject, LockSubject::Attachment(_)).then_some(path);
    Ok(DeviceLock::new(LockedFile { file, removed }))
}

/// Returns whether a path leads to an open file.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let own = file.metadata()?;
    match std::fs::metadata(path) {
        Ok(found) => Ok((found.dev(), found.ino()) == (own.dev(), own.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
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
    match File::open(path) {
        Ok(mut file) => Ok(read_holder(&mut file, UNNAMED)),
        // The holder has just removed it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(UNNAMED.to_owned()),
        Err(error) => Err(error),
    }
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
    use vfleet_plan::cni::journal::AttachmentKey;

    use crate::linux::test_tree::TestTree;

    const LOCK: &str = "/var/lib/cni/sriov/pci/vf_lock/0000:01:10.0.lock";
    const LIMIT: Duration = Duration::from_millis(20);

    fn device() -> LockSubject {
        LockSubject::Device("0000:01:10.0".parse().unwrap())
    }

    fn busy(tree: &TestTree) -> String {
        match lock(tree.root(), &device(), "second", LIMIT) {
            Err(error @ DeviceLockError::Busy { .. }) => error.to_string(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_second_lock_fails_and_names_the_holder_until_the_first_is_dropped() {
        let tree = TestTree::new();
        let first = lock(tree.root(), &device(), "ADD of pod default/a", LIMIT).unwrap();
        let holder = format!("ADD of pod default/a (process {})", std::process::id());
        assert_eq!(busy(&tree), format!("0000:01:10.0 was locked by {holder} for 20ms: try again later"));
        let other =
            lock(tree.root(), &LockSubject::Device("0000:01:10.1".parse().unwrap()), "x", LIMIT).unwrap();
        drop((first, other));
        assert_eq!(tree.read(LOCK), "", "no name of a holder that has ended");
        // The waiting thread of the failed attempt may have the lock for a moment.
        drop(lock(tree.root(), &device(), "third", Duration::from_secs(10)).unwrap());
    }

    #[test]
    fn the_lock_of_an_attachment_leaves_no_file() {
        let tree = TestTree::new();
        let key = AttachmentKey {
            plugin: Plugin::Ovs,
            container_id: "c1".to_owned(),
            interface: "net1".to_owned(),
            device: None,
        };
        let subject = LockSubject::of(&key);
        let path = tree.path("/var/lib/cni/vfleet/.locks/ovs:c1:net1:-");
        let first = lock(tree.root(), &subject, "ADD", LIMIT).unwrap();
        assert!(path.exists());
        let error = lock(tree.root(), &subject, "DEL", LIMIT).unwrap_err();
        assert!(error.to_string().starts_with("interface net1 of container c1 was locked by ADD"), "{error}");
        thread::scope(|scope| {
            let waiting = scope.spawn(|| lock(tree.root(), &subject, "DEL", Duration::from_secs(10)));
            drop(first);
            drop(waiting.join().unwrap().unwrap());
        });
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 0);
        assert_eq!(journals::list(tree.root()).unwrap(), []);
    }

    #[test]
    fn the_lock_of_uplinks_is_that_of_the_go_plugin() {
        let tree = TestTree::new();
        let locked = lock(tree.root(), &LockSubject::UplinkVlans, "ADD", LIMIT).unwrap();
        let path = tree.path("/var/lib/cni/accelerated-bridge/vlan-uplink.lock");
        let go = File::open(&path).unwrap();
        assert!(matches!(go.try_lock(), Err(TryLockError::WouldBlock)));
        drop(locked);
        go.lock().unwrap();
    }

    #[test]
    fn the_lock_of_a_go_plugin_is_respected_and_awaited() {
        let tree = TestTree::new();
        tree.write(LOCK, "");
        let go = File::open(tree.path(LOCK)).unwrap();
        go.lock().unwrap();
        assert!(busy(&tree).contains("another CNI plugin"));
        thread::scope(|scope| {
            let waiting = scope.spawn(|| lock(tree.root(), &device(), "ours", Duration::from_secs(10)));
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
        let held = lock(tree.root(), &device(), "DEL", LIMIT).unwrap();
        assert!(matches!(lock(tree.root(), &device(), "x", LIMIT), Err(DeviceLockError::Busy { .. })));
        drop(held);
    }

    #[test]
    fn a_lock_file_that_cannot_be_created_is_an_error_with_its_path() {
        let tree = TestTree::new();
        tree.write("/var/lib/cni/sriov", "a file in place of the directory");
        let error = lock(tree.root(), &device(), "x", LIMIT).unwrap_err();
        assert!(
            matches!(&error, DeviceLockError::Failed { path, .. } if path.ends_with("0000:01:10.0.lock"))
        );
    }
}
