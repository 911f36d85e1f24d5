//! Watch of the Open vSwitch database: one thread, which calls back when something changes that vfleet uses.

pub(in crate::linux) mod columns;
mod connection;

use std::any::Any;
use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use self::connection::{Connection, Lost};
use super::super::file_watch::FileWatch;
use super::super::ovsdb::OvsdbSocket;
use super::super::root::HostRoot;
use crate::{HostError, format_error_chain};

/// Delays before another attempt to connect, if no event announces that it may succeed. A server that is starting
/// creates its socket a moment before it accepts connections.
const FIRST_DELAY: Duration = Duration::from_millis(50);
const LAST_DELAY: Duration = Duration::from_secs(30);
/// Time after which a connection counts as one that works: losing it starts the delays again.
const LASTING: Duration = Duration::from_secs(30);

/// Callback for a change.
type Callback = Arc<dyn Fn() + Send + Sync>;

/// Guard of a watch: dropping it ends the watch.
#[derive(Debug)]
pub(in crate::linux) struct OvsWatch {
    _end: PipeWriter,
}

/// Starts a thread that calls `callback` after every relevant change of the database that facts are read from, and when
/// the connection to it is lost or established.
pub(in crate::linux) fn watch(root: &HostRoot, callback: Callback) -> Result<OvsWatch, HostError> {
    let pipe = || io::pipe().map_err(|source| HostError::SystemResource { resource: "pipe", source });
    let ((end, guard), (wakes, sender)) = (pipe()?, pipe()?);
    root.cache().ovs.add_watch(sender);
    let watch = WatchThread { root: root.clone(), end, wakes, callback };
    thread::Builder::new()
        .name("ovs-watch".to_owned())
        .spawn(move || watch.run())
        .map_err(|source| HostError::SystemResource { resource: "thread", source })?;
    Ok(OvsWatch { _end: guard })
}

/// Cause for which a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// The watch has ended.
    End,
    /// The socket or the state of the server may be another one, as reads found out.
    Woken,
    /// The awaited file descriptor is readable or closed.
    Ready,
    /// The deadline has passed.
    Deadline,
}

struct WatchThread {
    root: HostRoot,
    end: PipeReader,
    wakes: PipeReader,
    callback: Callback,
}

impl WatchThread {
    /// Watches until the end. A defect in the watch is reported, and the watch starts again.
    fn run(mut self) {
        loop {
            let panic = match catch_unwind(AssertUnwindSafe(|| self.watch())) {
                Ok(Ok(())) => return,
                Ok(Err(error)) => format_error_chain(&error),
                Err(panic) => panic_text(&*panic),
            };
            let retry_in_seconds = LAST_DELAY.as_secs();
            tracing::error!(
                error = panic,
                retry_in_seconds,
                "the watch of Open vSwitch failed: starting it again"
            );
            (self.callback)();
            match self.wait(None::<&PipeReader>, Some(LAST_DELAY)) {
                Ok(Cause::End) => return,
                Ok(_) => {}
                // Nothing can be waited for at the moment.
                Err(_) => thread::park_timeout(LAST_DELAY),
            }
        }
    }

    /// Connects, watches, and connects again, until the end.
    fn watch(&mut self) -> Result<(), HostError> {
        let mut delay = FIRST_DELAY;
        let mut was_connected = false;
        loop {
            let Some(socket) = self.root.cache().ovs.socket() else {
                was_connected = false;
                match self.wait(None::<&PipeReader>, None)? {
                    Cause::End => return Ok(()),
                    _ => continue,
                }
            };
            let root = self.root.clone().with_ovsdb_socket(socket.clone());
            // Before the attempt, so that no event is missed in between.
            let files = watch_socket(&root);
            let lost = match Connection::open(&root) {
                Ok(connection) => {
                    was_connected = true;
                    let opened = Instant::now();
                    // Whatever changed before the monitor started.
                    (self.callback)();
                    let Some(lost) = self.follow(connection, &socket)? else { return Ok(()) };
                    if opened.elapsed() >= LASTING {
                        delay = FIRST_DELAY;
                    }
                    lost
                }
                Err(lost) => lost,
            };
            if std::mem::take(&mut was_connected) {
                tracing::info!(error = lost.text(), "the connection to Open vSwitch was lost");
                (self.callback)();
            }
            match self.wait_for_server(&lost, files.as_ref(), delay)? {
                Cause::End => return Ok(()),
                Cause::Ready | Cause::Woken => delay = FIRST_DELAY,
                Cause::Deadline => delay = (delay * 2).min(LAST_DELAY),
            }
        }
    }

    /// Calls back for changes. Returns why the connection ended, or `None` at the end of the watch.
    fn follow(&mut self, mut connection: Connection, socket: &str) -> Result<Option<Lost>, HostError> {
        loop {
            let idle = self.root.ovs_limits().idle;
            let result = match self.wait(Some(connection.client()), Some(idle))? {
                Cause::End => return Ok(None),
                Cause::Ready => connection.receive(&self.root),
                Cause::Woken if self.root.cache().ovs.socket().as_deref() != Some(socket) => {
                    return Ok(Some(Lost::OtherSocket));
                }
                // A server that hangs keeps its connections.
                Cause::Woken | Cause::Deadline => connection.check(&self.root),
            };
            match result {
                Ok((kept, is_relevant)) => {
                    connection = kept;
                    if is_relevant {
                        (self.callback)();
                    }
                }
                Err(lost) => return Ok(Some(lost)),
            }
        }
    }

    /// Waits for an event after which another attempt may succeed, or for `delay`.
    fn wait_for_server(
        &mut self,
        lost: &Lost,
        files: Option<&FileWatch>,
        delay: Duration,
    ) -> Result<Cause, HostError> {
        match lost {
            Lost::OtherSocket => Ok(Cause::Woken),
            // Its answer is the event. A new server has a new socket, which a longer delay notices.
            Lost::Unanswered(client) => self.wait(Some(&**client), Some(LAST_DELAY)),
            Lost::Failed(error) => {
                // Without a socket only its creation changes something.
                let is_absent = matches!(error, HostError::OvsNotRunning { .. });
                let deadline = (!is_absent || files.is_none()).then_some(delay);
                self.wait_for_files(files, deadline)
            }
        }
    }

    fn wait_for_files(
        &mut self,
        files: Option<&FileWatch>,
        limit: Option<Duration>,
    ) -> Result<Cause, HostError> {
        let deadline = limit.map(|limit| Instant::now() + limit);
        loop {
            let remaining = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let cause = self.wait(files, remaining)?;
            let has_events = || files.is_none_or(|files| files.drain().unwrap_or(true));
            if cause != Cause::Ready || has_events() {
                return Ok(cause);
            }
        }
    }

    /// Waits for the end, a wake, `source`, or `limit`.
    fn wait(&mut self, source: Option<&impl AsFd>, limit: Option<Duration>) -> Result<Cause, HostError> {
        let deadline = limit.map(|limit| Instant::now() + limit);
        loop {
            let mut waiting = vec![
                PollFd::new(self.end.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.wakes.as_fd(), PollFlags::POLLIN),
            ];
            waiting.extend(source.map(|source| PollFd::new(source.as_fd(), PollFlags::POLLIN)));
            let until = |deadline: Instant| {
                // One more millisecond, because a timeout that is rounded down to 0 would not wait.
                let remaining = deadline.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
                PollTimeout::try_from(remaining).unwrap_or(PollTimeout::MAX)
            };
            let timeout = deadline.map_or(PollTimeout::NONE, until);
            match poll(&mut waiting, timeout) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => {
                    return Err(HostError::SystemResource {
                        resource: "wait for Open vSwitch",
                        source: errno.into(),
                    });
                }
            }
            let ready: Vec<bool> = waiting.iter().map(|fd| fd.any().unwrap_or(true)).collect();
            match ready.as_slice() {
                [true, ..] => return Ok(Cause::End),
                [_, true, ..] => {
                    // The state itself is in the cache. The other end is closed only together with the machine.
                    let has_ended = matches!(self.wakes.read(&mut [0; 64]), Ok(0));
                    return Ok(if has_ended { Cause::End } else { Cause::Woken });
                }
                [_, _, true] => return Ok(Cause::Ready),
                _ if deadline.is_some_and(|deadline| deadline <= Instant::now()) => {
                    return Ok(Cause::Deadline);
                }
                _ => {}
            }
        }
    }
}

/// Watches the socket and all directories and links on the way to it; `None` if that is not possible.
fn watch_socket(root: &HostRoot) -> Option<FileWatch> {
    let socket = OvsdbSocket::parse(root.ovsdb_socket()).ok()?;
    let watched = FileWatch::open_socket(root, socket.path());
    watched
        .inspect_err(|error| {
            let error = format_error_chain(error);
            tracing::warn!(error, "cannot watch the socket of Open vSwitch, its start is noticed late");
        })
        .ok()
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "panic".to_owned())
}
