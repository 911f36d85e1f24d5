//! Watch of files on the host that administrators and CNI plugins write and vfleet reads.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};
use vfleet_plan::files::GUIDS;

use super::ovsdb::resolve;
use super::root::HostRoot;
use super::{attached, command, firmware, modules};
use crate::HostError;

/// Directories of named network namespaces: of container runtimes, and of `ip netns`. Often they are the same.
const NAMESPACES: [&str; 2] = ["/run/netns", "/var/run/netns"];

/// Watch of files and of all directories above them: each may be created, removed or replaced.
#[derive(Debug)]
pub(super) struct FileWatch {
    inotify: Inotify,
    /// Watched entries by directory.
    entries: BTreeMap<WatchDescriptor, WatchedEntries>,
}

/// Watched entries of a directory.
#[derive(Debug)]
struct WatchedEntries {
    names: BTreeSet<OsString>,
    /// Relevant events of entries with other names. Hidden files are drafts.
    others: AddWatchFlags,
}

impl Default for WatchedEntries {
    fn default() -> Self {
        Self { names: BTreeSet::new(), others: AddWatchFlags::empty() }
    }
}

impl WatchedEntries {
    fn has_relevant(&self, name: &OsStr, events: AddWatchFlags) -> bool {
        self.names.contains(name) || self.others.intersects(events) && !name.as_bytes().starts_with(b".")
    }
}

impl FileWatch {
    /// Watches the GUID file, the lists of kernel modules, the paths of firmware tools, and the files that say which VFs are
    /// attached to pods.
    pub(super) fn open(root: &HostRoot) -> Result<Self, HostError> {
        let lists = modules::list_paths(root).into_iter().flatten();
        let tools = firmware::SETTING_TOOLS.into_iter().flat_map(command::candidate_paths);
        let paths = [root.at(GUIDS)].into_iter().chain(lists).chain(tools.map(|path| root.at(&path)));
        let top = root.at("/");
        let mut watch = Self::watch(&top, paths.collect())?;
        for directory in attached::directories(root) {
            watch.add_directory(&top, &directory, watched_events())?;
        }
        Ok(watch)
    }

    /// Watches the directories of network namespaces: an event is the deletion of one.
    pub(super) fn open_namespaces(root: &HostRoot) -> Result<Self, HostError> {
        let top = root.at("/");
        let mut watch = Self::watch(&top, Vec::new())?;
        let directories: BTreeSet<PathBuf> = NAMESPACES.map(|path| root.namespace(path)).into();
        for directory in directories {
            let deleted = AddWatchFlags::IN_DELETE | AddWatchFlags::IN_MOVED_FROM;
            watch.add_directory(&top, &directory, deleted)?;
        }
        Ok(watch)
    }

    /// Watches a socket at an absolute path of the host, with all links on the way to it.
    pub(super) fn open_socket(root: &HostRoot, path: &str) -> Result<Self, HostError> {
        let top = root.at("/");
        let resolved = resolve(&top, path).map_err(|source| HostError::Io {
            attempt: "resolve",
            path: root.at(path),
            source,
        })?;
        Self::watch(&top, resolved.links.into_iter().chain([resolved.path]).collect())
    }

    /// Watches these files below `top`.
    fn watch(top: &Path, paths: Vec<PathBuf>) -> Result<Self, HostError> {
        let flags = InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK;
        let inotify = Inotify::init(flags).map_err(|errno| failed("inotify instance", errno))?;
        let mut watch = Self { inotify, entries: BTreeMap::new() };
        for path in paths {
            watch.add(top, &path)?;
            // The target of a symbolic link may change while the link stays the same.
            if let Ok(target) = fs::canonicalize(&path)
                && target != path
            {
                watch.add(top, &target)?;
            }
        }
        Ok(watch)
    }

    /// Watches a file and its parent directories, from the top down: the creation of a missing directory is an event of
    /// its parent.
    fn add(&mut self, top: &Path, path: &Path) -> Result<(), HostError> {
        let mut entries: Vec<(&Path, &Path)> = path
            .ancestors()
            .zip(path.ancestors().skip(1))
            .take_while(|(_, parent)| parent.starts_with(top))
            .collect();
        entries.reverse();
        for (child, directory) in entries {
            let Some(name) = child.file_name() else { continue };
            match self.inotify.add_watch(directory, watched_events()) {
                Ok(descriptor) => {
                    self.entries.entry(descriptor).or_default().names.insert(name.to_owned());
                }
                Err(errno) if is_absent(errno) => return Ok(()),
                Err(errno) => return Err(failed("watch of a directory", errno)),
            }
        }
        Ok(())
    }

    /// Watches a directory, its parent directories, and these events of its entries.
    fn add_directory(&mut self, top: &Path, path: &Path, others: AddWatchFlags) -> Result<(), HostError> {
        self.add(top, path)?;
        match self.inotify.add_watch(path, watched_events()) {
            Ok(descriptor) => {
                self.entries.entry(descriptor).or_default().others |= others;
                Ok(())
            }
            Err(errno) if is_absent(errno) => Ok(()),
            Err(errno) => Err(failed("watch of a directory", errno)),
        }
    }

    /// Receives all pending events. Returns whether one of them may concern a watched file.
    pub(super) fn drain(&self) -> Result<bool, HostError> {
        let mut has_relevant = false;
        loop {
            match self.inotify.read_events() {
                Ok(events) => has_relevant |= events.iter().any(|event| self.is_relevant(event)),
                Err(Errno::EAGAIN) => return Ok(has_relevant),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(failed("list of file events", errno)),
            }
        }
    }

    /// Returns whether an event may concern a watched file. An event without a name concerns a directory itself, or
    /// reports lost events.
    fn is_relevant(&self, event: &InotifyEvent) -> bool {
        let Some(name) = &event.name else { return true };
        self.entries.get(&event.wd).is_some_and(|entries| entries.has_relevant(name, event.mask))
    }
}

impl AsFd for FileWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

/// Returns the watched events of a directory: entries created, removed or renamed, files written, the directory
/// removed.
fn watched_events() -> AddWatchFlags {
    AddWatchFlags::IN_ONLYDIR
        | AddWatchFlags::IN_CREATE
        | AddWatchFlags::IN_DELETE
        | AddWatchFlags::IN_MOVE
        | AddWatchFlags::IN_CLOSE_WRITE
        | AddWatchFlags::IN_DELETE_SELF
        | AddWatchFlags::IN_MOVE_SELF
}

/// Returns whether there is no directory, or one that this process may not read.
const fn is_absent(errno: Errno) -> bool {
    matches!(errno, Errno::ENOENT | Errno::ENOTDIR | Errno::EACCES | Errno::ELOOP)
}

fn failed(resource: &'static str, errno: Errno) -> HostError {
    HostError::SystemResource { resource, source: errno.into() }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::time::Duration;

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use tempfile::TempDir;

    use super::*;

    /// Directory with a watched file.
    struct WatchedDirectory {
        directory: TempDir,
        watch: FileWatch,
    }

    const FILE: &str = "etc/a/guids";

    impl WatchedDirectory {
        fn new(prepare: impl FnOnce(&Path)) -> Self {
            let directory = TempDir::new().unwrap();
            prepare(directory.path());
            let watch = watch(directory.path());
            Self { directory, watch }
        }

        /// Asserts an event after `change`, and starts a new watch, as the code does after every change.
        #[track_caller]
        fn expect_event(&mut self, change: impl FnOnce(&Path)) {
            change(self.directory.path());
            assert!(has_event(&self.watch) && self.watch.drain().unwrap());
            self.watch = watch(self.directory.path());
            assert!(!has_event(&self.watch));
        }

        #[track_caller]
        fn expect_no_event(&mut self, change: impl FnOnce(&Path)) {
            change(self.directory.path());
            assert!(!self.watch.drain().unwrap());
        }
    }

    fn watch(top: &Path) -> FileWatch {
        FileWatch::watch(top, vec![top.join(FILE)]).unwrap()
    }

    fn has_event(watch: &FileWatch) -> bool {
        let timeout = PollTimeout::try_from(Duration::from_millis(50)).unwrap();
        poll(&mut [PollFd::new(watch.as_fd(), PollFlags::POLLIN)], timeout).unwrap() > 0
    }

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn writing_replacing_or_removing_a_file_is_an_event() {
        let mut directory = WatchedDirectory::new(|top| write(&top.join(FILE), "1"));
        directory.expect_event(|top| write(&top.join(FILE), "2"));
        directory.expect_no_event(|top| write(&top.join("etc/a/draft"), "3"));
        directory.expect_event(|top| fs::rename(top.join("etc/a/draft"), top.join(FILE)).unwrap());
        directory.expect_event(|top| fs::remove_file(top.join(FILE)).unwrap());
        directory.expect_event(|top| write(&top.join(FILE), "4"));
    }

    #[test]
    fn creating_or_replacing_a_directory_is_an_event() {
        let mut directory = WatchedDirectory::new(|_| ());
        directory.expect_no_event(|top| write(&top.join("usr/guids"), ""));
        directory.expect_event(|top| fs::create_dir(top.join("etc")).unwrap());
        directory.expect_no_event(|top| write(&top.join("etc/b/guids"), ""));
        directory.expect_event(|top| fs::create_dir(top.join("etc/a")).unwrap());
        directory.expect_event(|top| write(&top.join(FILE), "1"));
        directory.expect_event(|top| fs::rename(top.join("etc"), top.join("old")).unwrap());
        directory.expect_no_event(|top| write(&top.join("old/a/guids"), "2"));
        directory.expect_event(|top| fs::rename(top.join("old"), top.join("etc")).unwrap());
        directory.expect_event(|top| fs::remove_dir_all(top.join("etc")).unwrap());
    }

    /// The event of a new tree is that of its first directory; the new watch covers its content.
    #[test]
    fn a_file_in_new_directories_is_an_event() {
        let mut directory = WatchedDirectory::new(|_| ());
        directory.expect_event(|top| write(&top.join(FILE), "1"));
        directory.expect_event(|top| write(&top.join(FILE), "2"));
    }

    #[test]
    fn every_entry_of_a_watched_directory_is_an_event_except_drafts() {
        let watch = |top: &Path| {
            let mut watch = FileWatch::watch(top, Vec::new()).unwrap();
            watch.add_directory(top, &top.join("etc/a"), watched_events()).unwrap();
            watch
        };
        let directory = TempDir::new().unwrap();
        let top = directory.path();
        let watched = watch(top);
        write(&top.join(FILE), "1");
        assert!(watched.drain().unwrap(), "the directory is created");
        let watched = watch(top);
        write(&top.join("etc/a/.draft"), "2");
        write(&top.join("etc/other"), "2");
        assert!(!watched.drain().unwrap());
        write(&top.join(FILE), "3");
        assert!(watched.drain().unwrap());
        fs::rename(top.join("etc/a/.draft"), top.join("etc/a/other")).unwrap();
        assert!(watched.drain().unwrap());
        fs::remove_file(top.join("etc/a/other")).unwrap();
        assert!(watched.drain().unwrap());
    }

    #[test]
    fn changing_the_target_of_a_link_is_an_event() {
        let mut directory = WatchedDirectory::new(|top| {
            write(&top.join("elsewhere/one"), "1");
            write(&top.join("elsewhere/two"), "2");
            fs::create_dir_all(top.join("etc/a")).unwrap();
            symlink("../../elsewhere/one", top.join(FILE)).unwrap();
        });
        directory.expect_event(|top| write(&top.join("elsewhere/one"), "3"));
        directory.expect_no_event(|top| write(&top.join("elsewhere/two"), "4"));
    }
}
