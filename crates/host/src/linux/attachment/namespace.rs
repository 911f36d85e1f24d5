//! Network namespaces of pods.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process;

use nix::fcntl::OFlag;
use nix::libc;
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::GetStruct;
use nix::sys::statfs::{NSFS_MAGIC, fstatfs};
use vfleet_plan::cni::facts::{HolderNamespace, Namespace, NamespaceId};
use vfleet_plan::cni::journal::Journal;

use crate::HostError;
use crate::linux::netlink::failed;
use crate::linux::root::HostRoot;

/// Network namespace of this thread, which is not that of the process in tests.
const OWN: &str = "/proc/thread-self/ns/net";
/// Errors if there is no file: ENOENT, ENOTDIR, and ESRCH for a process that has ended.
const MISSING: [i32; 3] = [2, 20, 3];
/// Error of a namespace of another kind.
const EINVAL: i32 = 22;
/// Error of a kernel that does not know a socket option.
const ENOPROTOOPT: i32 = 92;

/// Socket option with the cookie of the namespace of the socket.
#[derive(Clone, Copy)]
struct NamespaceCookie;

nix::getsockopt_impl!(NamespaceCookie, libc::SOL_SOCKET, libc::SO_NETNS_COOKIE, u64, GetStruct<u64>);

/// Open network namespace, which exists as long as it is open.
#[derive(Debug)]
pub(in crate::linux) struct OpenNamespace {
    file: File,
    path: String,
    /// Identity of the file. A cookie is known only if it is that of a recorded namespace, which is the same if the cookie is
    /// found inside.
    pub(super) id: NamespaceId,
}

/// Result of opening a path as a network namespace.
#[derive(Debug)]
pub(super) enum OpenedPath {
    Namespace(OpenNamespace),
    /// There is no file.
    Missing,
    /// There is a file, but it could not be opened, or is no namespace: this process may not see what is mounted there.
    Unknown(String),
}

impl OpenedPath {
    /// Opens the namespace at a path of the host.
    pub(super) fn open(root: &HostRoot, path: &str) -> Self {
        match open(&root.namespace(path), path) {
            Ok(Some(namespace)) => Self::Namespace(namespace),
            Ok(None) => Self::Unknown("a file that is no namespace".to_owned()),
            Err(error) if error.raw_os_error().is_some_and(|errno| MISSING.contains(&errno)) => Self::Missing,
            Err(error) => Self::Unknown(error.to_string()),
        }
    }

    /// Opens a namespace that was recorded. Another one at the same path counts as missing. One with the same inode is
    /// recognized when it is entered.
    pub(super) fn open_recorded(root: &HostRoot, namespace: &Namespace) -> Self {
        match Self::open(root, &namespace.path) {
            Self::Namespace(found) if !found.id.is_same(&namespace.id) => Self::Missing,
            Self::Namespace(found) => Self::Namespace(OpenNamespace { id: namespace.id, ..found }),
            opened => opened,
        }
    }
}

/// Reads the cookie of the network namespace of this thread; `None` before Linux 5.14.
pub(super) fn read_cookie() -> Result<Option<u64>, HostError> {
    let read = || getsockopt(&UnixDatagram::unbound()?, NamespaceCookie).map_err(io::Error::from);
    match read() {
        Ok(cookie) => Ok(Some(cookie)),
        Err(error) if error.raw_os_error() == Some(ENOPROTOOPT) => Ok(None),
        Err(error) => Err(failed("read the cookie of a network namespace", error)),
    }
}

/// Opens a namespace; `None` if the file is something else.
fn open(path: &Path, name: &str) -> io::Result<Option<OpenNamespace>> {
    // A pipe in this place must not block.
    let file = OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
    if fstatfs(&file)?.filesystem_type() != NSFS_MAGIC {
        return Ok(None);
    }
    let metadata = file.metadata()?;
    let id = NamespaceId { device: metadata.dev(), inode: metadata.ino(), cookie: None };
    Ok(Some(OpenNamespace { file, path: name.to_owned(), id }))
}

impl OpenNamespace {
    /// Opens the namespace of this thread.
    pub(super) fn own() -> Result<Self, HostError> {
        let failed = |source| HostError::Io { attempt: "open", path: OWN.into(), source };
        open(Path::new(OWN), OWN).map_err(failed)?.ok_or_else(|| failed(io::ErrorKind::Unsupported.into()))
    }

    /// Opens the namespace of a pod for a change.
    pub(super) fn require(root: &HostRoot, namespace: &Namespace, attempt: &str) -> Result<Self, HostError> {
        let (attempt, path) = (attempt.to_owned(), namespace.path.clone());
        match OpenedPath::open_recorded(root, namespace) {
            OpenedPath::Namespace(found) => Ok(found),
            OpenedPath::Missing => Err(HostError::NamespaceGone { attempt, path }),
            OpenedPath::Unknown(found) => Err(HostError::NotANamespace { attempt, path, found }),
        }
    }

    /// Runs `work` while this thread is in this namespace. Sockets that it opens stay in the namespace. Fails if this is not
    /// the recorded namespace, but a later one with its inode.
    pub(super) fn run<T>(&self, work: impl FnOnce() -> Result<T, HostError>) -> Result<T, HostError> {
        let _visit = self.enter()?;
        if self.id.cookie.is_some() {
            self.check_cookie()?;
        }
        work()
    }

    /// Moves this thread into this namespace for a while.
    fn enter(&self) -> Result<NamespaceVisit, HostError> {
        let visit = NamespaceVisit { home: Self::own()? };
        match setns(&self.file, CloneFlags::CLONE_NEWNET) {
            Ok(()) => Ok(visit),
            Err(errno) => Err(self.not_entered(errno.into())),
        }
    }

    /// Compares the cookie of the namespace of this thread with the recorded one.
    fn check_cookie(&self) -> Result<(), HostError> {
        let found = NamespaceId { cookie: read_cookie()?, ..self.id };
        if found.is_same(&self.id) {
            return Ok(());
        }
        Err(HostError::NamespaceGone { attempt: self.attempt_to_enter(), path: self.path.clone() })
    }

    fn attempt_to_enter(&self) -> String {
        format!("enter network namespace {}", self.path)
    }

    fn not_entered(&self, error: io::Error) -> HostError {
        let attempt = self.attempt_to_enter();
        if error.raw_os_error() == Some(EINVAL) {
            let found = "a namespace of another kind".to_owned();
            return HostError::NotANamespace { attempt, path: self.path.clone(), found };
        }
        failed(&attempt, error)
    }
}

/// Time that this thread spends in the namespace of a pod: the thread returns at its end, also after a panic. A thread of its
/// own would need as much time as all requests to the kernel.
struct NamespaceVisit {
    home: OpenNamespace,
}

impl Drop for NamespaceVisit {
    fn drop(&mut self) {
        // A thread that may enter a namespace may return. In that of a pod it must not do anything else.
        if let Err(errno) = setns(&self.home.file, CloneFlags::CLONE_NEWNET) {
            tracing::error!(%errno, "a thread cannot return from the network namespace of a pod");
            process::abort();
        }
    }
}

impl AsRawFd for OpenNamespace {
    fn as_raw_fd(&self) -> i32 {
        self.file.as_raw_fd()
    }
}

/// Returns the state of the namespace of an attachment.
pub(super) fn state_of(root: &HostRoot, journal: &Journal, boot_id: &str) -> HolderNamespace {
    if journal.is_of_earlier_boot(boot_id) {
        return HolderNamespace::Gone;
    }
    match OpenedPath::open_recorded(root, &journal.namespace) {
        // Its cookie is visible only inside.
        OpenedPath::Namespace(found) if found.id.cookie.is_some() => match found.run(|| Ok(())) {
            Ok(()) => HolderNamespace::Alive,
            Err(HostError::NamespaceGone { .. }) => HolderNamespace::Gone,
            Err(_) => HolderNamespace::Unknown,
        },
        opened => state(&opened),
    }
}

/// Returns the state of the namespace at a path, which is empty in a file that was cut off.
pub(super) fn state_at(root: &HostRoot, path: &str) -> HolderNamespace {
    if path.is_empty() { HolderNamespace::Gone } else { state(&OpenedPath::open(root, path)) }
}

fn state(opened: &OpenedPath) -> HolderNamespace {
    match opened {
        OpenedPath::Namespace(_) => HolderNamespace::Alive,
        OpenedPath::Missing => HolderNamespace::Gone,
        OpenedPath::Unknown(_) => HolderNamespace::Unknown,
    }
}
