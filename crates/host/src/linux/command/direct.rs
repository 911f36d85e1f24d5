//! Programs as children of this process.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

use super::capture::Capture;
use super::{CommandOutcome, ENVIRONMENT};

/// Runs a program and kills it with its children after `limit`.
pub(super) fn run(
    path: &Path,
    arguments: &[String],
    capture: &Capture,
    limit: Duration,
) -> io::Result<CommandOutcome> {
    let mut command = Command::new(path);
    command.args(arguments).env_clear().envs(ENVIRONMENT).stdin(Stdio::null());
    run_command(&mut command, capture, limit)
}

/// Like [`run`], for a program with its arguments, environment and standard input.
pub(in crate::linux) fn run_command(
    command: &mut Command,
    capture: &Capture,
    limit: Duration,
) -> io::Result<CommandOutcome> {
    let mut child = command
        .current_dir("/")
        // A separate process group, so that its children are killed with it.
        .process_group(0)
        .stdout(capture.stdout.try_clone()?)
        .stderr(capture.stderr.try_clone()?)
        .spawn()?;
    let is_overdue = !ends_within(&child, limit)?;
    if is_overdue {
        // The process ID cannot be reused yet, because the child was not reaped.
        let _ = killpg(pid(&child)?, Signal::SIGKILL);
    }
    let status = child.wait()?;
    Ok(match status {
        _ if is_overdue => CommandOutcome::TimedOut,
        status if status.success() => CommandOutcome::Success,
        status => CommandOutcome::Failure(status.to_string()),
    })
}

/// Waits for the end of the child without reaping it.
fn ends_within(child: &Child, limit: Duration) -> io::Result<bool> {
    let pid = pid(child)?;
    let (ended, end) = mpsc::channel();
    let wait = move || {
        while waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) == Err(Errno::EINTR) {}
        let _ = ended.send(());
    };
    thread::Builder::new().name("command".to_owned()).spawn(wait)?;
    Ok(end.recv_timeout(limit).is_ok())
}

fn pid(child: &Child) -> io::Result<Pid> {
    i32::try_from(child.id()).map(Pid::from_raw).map_err(io::Error::other)
}
