//! Files of the host that people write and vfleet reads: being told when they change.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};
use vfleet_plan::files::GUIDS;

use super::root::HostRoot;
use super::{command, firmware, modules};
use crate::HostError;

/// A watch of some files, and of all directories that lead to them: each may appear, go, or be replaced.
#[derive(Debug)]
pub(super) struct FileWatch {
    inotify: Inotify,
    /// Names that count, by directory.
    names: BTreeMap<WatchDescriptor, BTreeSet<OsString>>,
}

impl FileWatch {
    /// Watches the file of GUIDs, the lists of modules, and where tools for firmware are installed.
    pub(super) fn open(root: &HostRoot) -> Result<Self, HostError> {
        let lists = modules::lists(root).into_iter().flatten();
        let tools = firmware::SETTING_TOOLS.into_iter().flat_map(command::places);
        let paths = [root.at(GUIDS)].into_iter().chain(lists).chain(tools.map(|path| root.at(&path)));
        Self::of(&root.at("/"), paths.collect())
    }

    /// Watches these files below `top`.
    fn of(top: &Path, paths: Vec<PathBuf>) -> Result<Self, HostError> {
        let flags = InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK;
        let inotify = Inotify::init(flags).map_err(|errno| failed("watch files", errno))?;
        let mut watch = Self { inotify, names: BTreeMap::new() };
        for path in paths {
            watch.add(top, &path)?;
            // Where a link leads, the file may be written without the link being touched.
            if let Ok(target) = fs::canonicalize(&path)
                && target != path
            {
                watch.add(top, &target)?;
            }
        }
        Ok(watch)
    }

    /// Watches a file and the directories that lead to it, those above first: what appears below one that was not there is
    /// told by the one above.
    fn add(&mut self, top: &Path, path: &Path) -> Result<(), HostError> {
        let mut ways: Vec<(&Path, &Path)> = path
            .ancestors()
            .zip(path.ancestors().skip(1))
            .take_while(|(_, parent)| parent.starts_with(top))
            .collect();
        ways.reverse();
        for (child, directory) in ways {
            let Some(name) = child.file_name() else { continue };
            match self.inotify.add_watch(directory, events()) {
                Ok(descriptor) => {
                    self.names.entry(descriptor).or_default().insert(name.to_owned());
                }
                Err(Errno::ENOENT | Errno::ENOTDIR | Errno::EACCES | Errno::ELOOP) => return Ok(()),
                Err(errno) => return Err(failed("watch a directory", errno)),
            }
        }
        Ok(())
    }

    /// Takes all events that wait; returns whether one may be about one of the files.
    pub(super) fn drain(&self) -> Result<bool, HostError> {
        let mut found = false;
        loop {
            match self.inotify.read_events() {
                Ok(events) => found |= events.iter().any(|event| self.is_of_interest(event)),
                Err(Errno::EAGAIN) => return Ok(found),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(failed("read what happened to files", errno)),
            }
        }
    }

    /// An event without a name is about a directory itself, or tells that others were lost.
    fn is_of_interest(&self, event: &InotifyEvent) -> bool {
        let Some(name) = &event.name else { return true };
        self.names.get(&event.wd).is_some_and(|names| names.contains(name))
    }
}

impl AsFd for FileWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

/// What is told of a directory: names that come and go in it, files in it that were written, and its own end.
fn events() -> AddWatchFlags {
    AddWatchFlags::IN_ONLYDIR
        | AddWatchFlags::IN_CREATE
        | AddWatchFlags::IN_DELETE
        | AddWatchFlags::IN_MOVE
        | AddWatchFlags::IN_CLOSE_WRITE
        | AddWatchFlags::IN_DELETE_SELF
        | AddWatchFlags::IN_MOVE_SELF
}

fn failed(what: &'static str, errno: Errno) -> HostError {
    HostError::System { what, source: errno.into() }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::time::Duration;

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use tempfile::TempDir;

    use super::*;

    /// A directory with a file that is watched.
    struct Place {
        directory: TempDir,
        watch: FileWatch,
    }

    const FILE: &str = "etc/a/guids";

    impl Place {
        fn new(prepare: impl FnOnce(&Path)) -> Self {
            let directory = TempDir::new().unwrap();
            prepare(directory.path());
            let watch = watch(directory.path());
            Self { directory, watch }
        }

        /// Tells of `change`, and watches anew then, as is done after every change.
        #[track_caller]
        fn tells(&mut self, change: impl FnOnce(&Path)) {
            change(self.directory.path());
            assert!(has_event(&self.watch) && self.watch.drain().unwrap());
            self.watch = watch(self.directory.path());
            assert!(!has_event(&self.watch));
        }

        #[track_caller]
        fn does_not_tell(&mut self, change: impl FnOnce(&Path)) {
            change(self.directory.path());
            assert!(!self.watch.drain().unwrap());
        }
    }

    fn watch(top: &Path) -> FileWatch {
        FileWatch::of(top, vec![top.join(FILE)]).unwrap()
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
    fn a_file_that_is_written_replaced_or_removed_is_told() {
        let mut place = Place::new(|top| write(&top.join(FILE), "1"));
        place.tells(|top| write(&top.join(FILE), "2"));
        place.does_not_tell(|top| write(&top.join("etc/a/draft"), "3"));
        place.tells(|top| fs::rename(top.join("etc/a/draft"), top.join(FILE)).unwrap());
        place.tells(|top| fs::remove_file(top.join(FILE)).unwrap());
        place.tells(|top| write(&top.join(FILE), "4"));
    }

    #[test]
    fn directories_that_appear_and_are_replaced_are_told() {
        let mut place = Place::new(|_| ());
        place.does_not_tell(|top| write(&top.join("usr/guids"), ""));
        place.tells(|top| fs::create_dir(top.join("etc")).unwrap());
        place.does_not_tell(|top| write(&top.join("etc/b/guids"), ""));
        place.tells(|top| fs::create_dir(top.join("etc/a")).unwrap());
        place.tells(|top| write(&top.join(FILE), "1"));
        place.tells(|top| fs::rename(top.join("etc"), top.join("old")).unwrap());
        place.does_not_tell(|top| write(&top.join("old/a/guids"), "2"));
        place.tells(|top| fs::rename(top.join("old"), top.join("etc")).unwrap());
        place.tells(|top| fs::remove_dir_all(top.join("etc")).unwrap());
    }

    /// A tree that appears at once is told by its first directory: what is in it by then is read.
    #[test]
    fn a_file_in_directories_that_are_all_new_is_told() {
        let mut place = Place::new(|_| ());
        place.tells(|top| write(&top.join(FILE), "1"));
        place.tells(|top| write(&top.join(FILE), "2"));
    }

    #[test]
    fn a_file_behind_a_link_is_told() {
        let mut place = Place::new(|top| {
            write(&top.join("elsewhere/one"), "1");
            write(&top.join("elsewhere/two"), "2");
            fs::create_dir_all(top.join("etc/a")).unwrap();
            symlink("../../elsewhere/one", top.join(FILE)).unwrap();
        });
        place.tells(|top| write(&top.join("elsewhere/one"), "3"));
        place.does_not_tell(|top| write(&top.join("elsewhere/two"), "4"));
    }
}
