//! Watch of the directories in which container runtimes keep network namespaces: calls back when one is deleted.

use std::io::{self, PipeReader};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::file_watch::FileWatch;
use super::netlink::failed;
use super::root::HostRoot;
use crate::{ChangeCallback, HostError, WatchGuard, format_error_chain};

/// Delay before another attempt to watch. The limit of inotify is usually exhausted for a long time.
const RETRY_DELAY: Duration = Duration::from_mins(1);

/// Starts a thread that calls `callback` after the deletion of a namespace, until the guard is dropped.
pub(super) fn watch(root: &HostRoot, callback: ChangeCallback) -> Result<WatchGuard, HostError> {
    let (end, guard) = io::pipe().map_err(|source| HostError::SystemResource { resource: "pipe", source })?;
    let (root, files) = (root.clone(), open(root));
    thread::Builder::new()
        .name("namespace-watch".to_owned())
        .spawn(move || run(&root, files, &end, &*callback))
        .map_err(|source| HostError::SystemResource { resource: "thread", source })?;
    Ok(WatchGuard::new(guard))
}

/// Opens the watch, or returns the time of the next attempt.
fn open(root: &HostRoot) -> Result<FileWatch, Instant> {
    FileWatch::open_namespaces(root).map_err(|error| {
        let (error, retry_in_seconds) = (format_error_chain(&error), RETRY_DELAY.as_secs());
        tracing::warn!(
            error,
            retry_in_seconds,
            "cannot watch network namespaces: pods that ended without their runtime are noticed late"
        );
        Instant::now() + RETRY_DELAY
    })
}

fn run(root: &HostRoot, mut files: Result<FileWatch, Instant>, end: &PipeReader, callback: &dyn Fn()) {
    loop {
        match has_event(&files, end) {
            Ok(None) => return,
            Ok(Some(false)) => {}
            Ok(Some(true)) => {
                // The new watch starts before the old one ends, and before the callback looks for namespaces.
                files = open(root);
                callback();
            }
            Err(error) => {
                let error = format_error_chain(&error);
                tracing::warn!(error, "events of network namespaces were lost, watching again");
                files = Err(Instant::now() + RETRY_DELAY);
                callback();
            }
        }
    }
}

/// Waits for events and returns whether a namespace may have been deleted, or whether it is time to watch again; `None` if
/// the watch has ended.
fn has_event(files: &Result<FileWatch, Instant>, end: &PipeReader) -> Result<Option<bool>, HostError> {
    // Nothing is ever written to the pipe: it becomes readable when it is closed.
    let mut waiting = vec![PollFd::new(end.as_fd(), PollFlags::POLLIN)];
    waiting.extend(files.as_ref().ok().map(|files| PollFd::new(files.as_fd(), PollFlags::POLLIN)));
    let until = |retry_at: &Instant| {
        let left = retry_at.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
        PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
    };
    match poll(&mut waiting, files.as_ref().map_or_else(until, |_| PollTimeout::NONE)) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(errno) => return Err(failed("wait for events of files", errno.into())),
    }
    if waiting[0].any().unwrap_or(true) {
        return Ok(None);
    }
    match files {
        Ok(files) => files.drain().map(Some),
        Err(retry_at) => Ok(Some(*retry_at <= Instant::now())),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::mpsc;

    use super::super::test_tree::TestTree;
    use super::*;

    #[test]
    fn only_the_deletion_of_a_namespace_is_reported_also_of_one_that_was_created_later() {
        let tree = TestTree::new();
        tree.write("/run/netns/one", "");
        let (sender, events) = mpsc::channel();
        let guard = watch(tree.root(), Box::new(move || _ = sender.send(()))).unwrap();
        let expect_event = || events.recv_timeout(Duration::from_secs(20)).unwrap();

        tree.write("/run/netns/two", "");
        fs::remove_file(tree.path("/run/netns/two")).unwrap();
        expect_event();
        assert!(
            events.recv_timeout(Duration::from_millis(50)).is_err(),
            "one event, not one for the creation"
        );
        fs::remove_dir_all(tree.path("/run/netns")).unwrap();
        expect_event();
        drop(guard);
        assert!(events.iter().count() < 5, "the thread ends");
    }
}
