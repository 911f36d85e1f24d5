//! Programs as transient units of systemd of the host.

use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use zbus::{Fd, Variant};

use super::bus::{self, Systemd};
use crate::HostError;
use crate::linux::command::{Capture, Command, CommandOutcome, ENVIRONMENT};
use crate::linux::root::HostRoot;

/// Time for systemd itself, in addition to the limit of the program.
const SYSTEMD_OVERHEAD: Duration = Duration::from_secs(5);
/// Result of a oneshot service that took too long.
const TIMED_OUT: &str = "timeout";

/// Number of the next unit. Unit names must be unique, also among units left behind by a process with the same ID.
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);

/// Runs a program as a transient unit, and waits for its end.
pub(in crate::linux) fn run_command(
    root: &HostRoot,
    command: &Command,
    path: &str,
    capture: &Capture,
) -> Result<CommandOutcome, HostError> {
    let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("vfleet-{}-{}-{number}.service", command.program, process::id());
    let attempt = format!("run {command}");
    bus::with_systemd(root, &attempt, command.limit + SYSTEMD_OVERHEAD, async |systemd| {
        start_and_wait(systemd, &name, unit_properties(command, path, capture)).await
    })
}

async fn start_and_wait(
    systemd: &Systemd,
    name: &str,
    properties: Vec<(&str, Variant<'_>)>,
) -> zbus::Result<CommandOutcome> {
    let result = systemd.run_transient(name, properties).await?;
    if result == "done" {
        return Ok(CommandOutcome::Success);
    }
    // AddRef keeps the unit until the connection is closed.
    let unit_result: String = systemd.read_service_property(name, "Result").await?;
    let status: i32 = systemd.read_service_property(name, "ExecMainStatus").await?;
    Ok(if result == TIMED_OUT || unit_result == TIMED_OUT {
        CommandOutcome::TimedOut
    } else {
        CommandOutcome::Failure(format!("{unit_result}, status {status}"))
    })
}

fn unit_properties<'a>(
    command: &Command,
    path: &str,
    capture: &'a Capture,
) -> Vec<(&'static str, Variant<'a>)> {
    let mut arguments = vec![path.to_owned()];
    // systemd treats a dollar sign as the start of a variable.
    arguments.extend(command.arguments.iter().map(|argument| argument.replace('$', "$$")));
    let environment: Vec<String> =
        ENVIRONMENT.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let limit = u64::try_from(command.limit.as_micros()).unwrap_or(u64::MAX);
    vec![
        ("Description", Variant::from(format!("vfleet: {command}"))),
        // The start job of a oneshot service ends when its program ends.
        ("Type", Variant::from("oneshot")),
        ("TimeoutStartUSec", Variant::from(limit)),
        ("ExecStart", Variant::from(vec![(path.to_owned(), arguments, false)])),
        ("Environment", Variant::from(environment)),
        ("StandardOutputFileDescriptor", Variant::from(Fd::from(&capture.stdout))),
        ("StandardErrorFileDescriptor", Variant::from(Fd::from(&capture.stderr))),
        // The unit is kept while we are connected, and then removed even if it failed.
        ("AddRef", Variant::from(true)),
        ("CollectMode", Variant::from("inactive-or-failed")),
    ]
}
