//! Socket of ovsdb-server: its setting, its path inside the tree of a host, and connecting to it.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use nix::sys::socket::sockopt::SendTimeout;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, setsockopt, socket};
use nix::sys::time::{TimeVal, TimeValLike};
use vfleet_plan::cni::facts::OvsSocket;

use super::super::root::HostRoot;
use super::stream::ServerStream;
use crate::HostError;

/// Largest number of symbolic links in a path, as in the kernel.
const MAX_LINKS: usize = 40;

/// Socket of ovsdb-server: an absolute path of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::linux) struct OvsdbSocket(String);

impl OvsdbSocket {
    /// Parses `PATH`, `unix:PATH` or `unix:///PATH`. The path is absolute.
    pub(in crate::linux) fn parse(text: &str) -> Result<Self, HostError> {
        let path = text.strip_prefix("unix:").unwrap_or(text);
        let path = path.strip_prefix("//").filter(|path| path.starts_with('/')).unwrap_or(path);
        let is_valid = path.starts_with('/')
            && !path.starts_with("//")
            && !path.ends_with('/')
            && !path.contains(['\0', '\n'])
            && Path::new(path).file_name().is_some();
        if !is_valid {
            return Err(HostError::InvalidOvsdbSocket { found: text.to_owned() });
        }
        Ok(Self(path.to_owned()))
    }

    /// Returns the path of the host.
    pub(in crate::linux) fn path(&self) -> &str {
        &self.0
    }
}

/// Path inside the tree of a host without symbolic links.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::linux) struct ResolvedPath {
    /// The path as this process finds it. The file may not exist.
    pub(in crate::linux) path: PathBuf,
    /// Symbolic links on the way, each at a path without links.
    pub(in crate::linux) links: Vec<PathBuf>,
}

/// Resolves an absolute path of a host. Symbolic links are relative to the tree of the host and never leave it.
pub(in crate::linux) fn resolve(top: &Path, path: &str) -> io::Result<ResolvedPath> {
    let mut resolved = ResolvedPath { path: top.to_owned(), links: Vec::new() };
    let mut depth = 0_usize;
    let mut rest: VecDeque<OsString> = names(Path::new(path));
    while let Some(name) = rest.pop_front() {
        if name == ".." {
            // The parent of the top is the top itself.
            if depth > 0 {
                resolved.path.pop();
                depth -= 1;
            }
            continue;
        }
        let entry = resolved.path.join(&name);
        match fs::read_link(&entry) {
            Ok(target) => {
                if resolved.links.len() >= MAX_LINKS {
                    return Err(io::Error::other("too many symbolic links"));
                }
                if target.is_absolute() {
                    top.clone_into(&mut resolved.path);
                    depth = 0;
                }
                for name in names(&target).into_iter().rev() {
                    rest.push_front(name);
                }
                resolved.links.push(entry);
            }
            // EINVAL: not a link.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::InvalidInput | io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                resolved.path = entry;
                depth += 1;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(resolved)
}

fn names(path: &Path) -> VecDeque<OsString> {
    let name = |component: Component<'_>| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
    };
    path.components().filter_map(name).collect()
}

/// Returns a socket as messages name it.
pub(super) fn describe(socket: &OvsSocket) -> String {
    match socket {
        OvsSocket::Unix(path) => path.clone(),
        OvsSocket::Tcp(..) => socket.to_string(),
    }
}

/// Connects to a server within `limit`, else fails with [`HostError::OvsTimeout`]. Fails with
/// [`HostError::OvsNotRunning`] if a socket of the host does not exist.
pub(super) fn open(
    root: &HostRoot,
    socket: &OvsSocket,
    limit: Duration,
    attempt: &str,
) -> Result<ServerStream, HostError> {
    let connected = match socket {
        OvsSocket::Unix(path) => resolve(&root.at("/"), path)
            .and_then(|resolved| connect_to(&resolved.path, limit))
            .map(ServerStream::Unix),
        OvsSocket::Tcp(host, port) => ServerStream::connect_tcp(host, *port, limit),
    };
    let is_file = matches!(socket, OvsSocket::Unix(_));
    let (attempt, socket) = (attempt.to_owned(), describe(socket));
    connected.map_err(|source| match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory if is_file => {
            HostError::OvsNotRunning { attempt, socket }
        }
        // The queue of a server that hangs is full.
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            HostError::OvsTimeout { attempt, socket, after: limit }
        }
        _ => HostError::OvsConnection { attempt, socket, source },
    })
}

fn connect_to(path: &Path, limit: Duration) -> io::Result<UnixStream> {
    // Held until the end: a path that is too long for an address is reached through the descriptor of its directory.
    let directory;
    let address = if let Ok(address) = UnixAddr::new(path) {
        address
    } else {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        directory = File::open(path.parent().ok_or(io::ErrorKind::InvalidInput)?)?;
        let short = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name);
        UnixAddr::new(&short)?
    };
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket: OwnedFd = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    // Also the limit for connecting to a server whose queue is full.
    let limit = TimeVal::milliseconds(i64::try_from(limit.as_millis()).unwrap_or(i64::MAX).max(1));
    setsockopt(&socket, SendTimeout, &limit)?;
    connect(socket.as_raw_fd(), &address)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(true)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use proptest::prelude::*;
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn a_path_may_have_the_prefix_unix() {
        for text in ["/run/a/db.sock", "unix:/run/a/db.sock", "unix:///run/a/db.sock"] {
            assert_eq!(OvsdbSocket::parse(text).unwrap().path(), "/run/a/db.sock");
        }
        for text in
            ["", "db.sock", "unix:", "unix:db.sock", "tcp:127.0.0.1:6640", "unix://run/db.sock", "/", "/run/"]
        {
            let error = OvsdbSocket::parse(text).unwrap_err();
            assert!(error.to_string().contains("unix:PATH"), "{text}: {error}");
        }
    }

    #[test]
    fn links_stay_inside_the_tree() {
        let directory = TempDir::new().unwrap();
        let top = directory.path();
        fs::create_dir_all(top.join("run/openvswitch")).unwrap();
        fs::create_dir_all(top.join("var")).unwrap();
        let expected = top.join("run/openvswitch/db.sock");
        for target in ["/run", "../run", "../../../../run"] {
            symlink(target, top.join("var/run")).unwrap();
            let resolved = resolve(top, "/var/run/openvswitch/db.sock").unwrap();
            assert_eq!((resolved.path, resolved.links), (expected.clone(), vec![top.join("var/run")]));
            fs::remove_file(top.join("var/run")).unwrap();
        }
        symlink("/../../etc/passwd", top.join("run/openvswitch/db.sock")).unwrap();
        assert_eq!(resolve(top, "/run/openvswitch/db.sock").unwrap().path, top.join("etc/passwd"));
        symlink("loop", top.join("loop")).unwrap();
        assert!(resolve(top, "/loop").is_err());
    }

    #[test]
    fn a_long_path_is_connected_through_its_directory() {
        let directory = TempDir::new().unwrap();
        let long = directory.path().join("d".repeat(100)).join("e".repeat(100));
        fs::create_dir_all(&long).unwrap();
        let handle = File::open(&long).unwrap();
        let short = Path::new("/proc/self/fd").join(handle.as_raw_fd().to_string()).join("db.sock");
        let _listener = UnixListener::bind(short).unwrap();
        connect_to(&long.join("db.sock"), Duration::from_secs(1)).unwrap();
        let missing = connect_to(&long.join("other"), Duration::from_secs(1)).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    proptest! {
        #[test]
        fn accepts_any_text(text in "(?s).{0,40}") {
            if let Ok(socket) = OvsdbSocket::parse(&text) {
                prop_assert!(socket.path().starts_with('/'));
            }
        }
    }
}
