//! A program as a unit of the host's systemd that is gone when it ends.

use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use zbus::{Fd, Variant};

use super::bus::{self, Systemd};
use crate::HostError;
use crate::linux::command::{Capture, Command, ENVIRONMENT, Ended};
use crate::linux::root::HostRoot;

/// What systemd itself may take, beyond the program.
const SPARE: Duration = Duration::from_secs(5);
/// How a oneshot service ends that took too long.
const TIMED_OUT: &str = "timeout";

/// Names of units must differ, also from those that an earlier process with our number left behind.
static STARTED: AtomicU64 = AtomicU64::new(0);

/// Runs a program as a unit of its own, and waits for its end.
pub(in crate::linux) fn run_command(
    root: &HostRoot,
    command: &Command,
    path: &str,
    capture: &Capture,
) -> Result<Ended, HostError> {
    let number = STARTED.fetch_add(1, Ordering::Relaxed);
    let name = format!("vfleet-{}-{}-{number}.service", command.program, process::id());
    let attempt = format!("run {command}");
    bus::talk(root, &attempt, command.limit + SPARE, async |systemd| {
        start_and_wait(systemd, &name, properties(command, path, capture)).await
    })
}

async fn start_and_wait(
    systemd: &Systemd,
    name: &str,
    properties: Vec<(&str, Variant<'_>)>,
) -> zbus::Result<Ended> {
    let result = systemd.run_transient(name, properties).await?;
    if result == "done" {
        return Ok(Ended::Well);
    }
    // It is kept for us to look at until we hang up.
    let verdict: String = systemd.service_property(name, "Result").await?;
    let status: i32 = systemd.service_property(name, "ExecMainStatus").await?;
    Ok(if result == TIMED_OUT || verdict == TIMED_OUT {
        Ended::Overdue
    } else {
        Ended::Badly(format!("{verdict}, status {status}"))
    })
}

fn properties<'a>(command: &Command, path: &str, capture: &'a Capture) -> Vec<(&'static str, Variant<'a>)> {
    let mut arguments = vec![path.to_owned()];
    // systemd would read a dollar as the beginning of a variable.
    arguments.extend(command.arguments.iter().map(|argument| argument.replace('$', "$$")));
    let environment: Vec<String> =
        ENVIRONMENT.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let limit = u64::try_from(command.limit.as_micros()).unwrap_or(u64::MAX);
    vec![
        ("Description", Variant::from(format!("vfleet: {command}"))),
        // Its start ends with its end, so its job tells of both.
        ("Type", Variant::from("oneshot")),
        ("TimeoutStartUSec", Variant::from(limit)),
        ("ExecStart", Variant::from(vec![(path.to_owned(), arguments, false)])),
        ("Environment", Variant::from(environment)),
        ("StandardOutputFileDescriptor", Variant::from(Fd::from(&capture.stdout))),
        ("StandardErrorFileDescriptor", Variant::from(Fd::from(&capture.stderr))),
        // Kept while we are connected, and then forgotten, however it ended.
        ("AddRef", Variant::from(true)),
        ("CollectMode", Variant::from("inactive-or-failed")),
    ]
}
